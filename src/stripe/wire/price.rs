//! Prices and plans: `price.*`, `plan.*`, and wherever one is embedded in something else.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::MapAccess;
use serde::de::value::MapAccessDeserializer;

use super::field::{Field, Reference, Shape, unreadable};
use crate::domain::event::{Price, PriceRef, Unit, Unreadable};
use crate::domain::ids::PriceId;
use crate::domain::money::{Currency, UnitAmount};

/// A price or a plan; only its id where a text stood in its place.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawPrice<'a> {
    #[serde(borrow)]
    pub(super) id: Field<Cow<'a, str>>,
    product: Field<Reference<'a>>,
    lookup_key: Field<Cow<'a, str>>,
    pub(super) currency: Field<Cow<'a, str>>,
    unit_amount_decimal: Field<Decimal<'a>>,
    unit_amount: Field<i64>,
    amount_decimal: Field<Decimal<'a>>,
    amount: Field<i64>,
}

impl<'de: 'a, 'a> Shape<'de> for RawPrice<'a> {
    const COMPLAINT: &'static str = "neither an id nor a price";

    fn text(text: Cow<'de, str>) -> Option<Self> {
        Some(Self { id: Field::Is(text), ..Self::default() })
    }

    fn object<A: MapAccess<'de>>(map: A) -> Result<Option<Self>, A::Error> {
        Self::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

impl RawPrice<'_> {
    /// Its ids, if it has one of its own.
    pub(super) fn reference(&self) -> Option<PriceRef> {
        let id = self.id.told().and_then(|id| PriceId::parse(id).ok())?;
        Some(PriceRef { id, product: self.product(), lookup_key: self.lookup_key() })
    }

    pub(super) fn product(&self) -> Option<String> {
        self.product.id(|id| PriceId::parse(id).map(|id| id.as_str().to_owned()))
    }

    fn lookup_key(&self) -> Option<String> {
        self.lookup_key.told().filter(|key| !key.is_empty()).map(|key| key.clone().into_owned())
    }

    pub(super) fn currency(&self) -> Option<Currency> {
        self.currency.told().and_then(|code| Currency::parse(code).ok())
    }

    /// A decimal beats the integer, which is null where the decimal is no whole number.
    pub(super) fn unit(&self) -> Unit {
        let decimal = self.unit_amount_decimal.told().or(self.amount_decimal.told()).and_then(Decimal::unit);
        let whole = || self.unit_amount.told().or(self.amount.told()).copied();
        if let Some(amount) = decimal.or_else(|| UnitAmount::whole(whole()?).ok()) {
            return Unit::Costs(amount);
        }
        let says_null = matches!((&self.unit_amount, &self.amount), (Field::Null, Field::Absent | Field::Null))
            || matches!((&self.unit_amount, &self.amount), (Field::Absent, Field::Null));
        let nothing_else = self.unit_amount_decimal.is_empty() && self.amount_decimal.is_empty();
        if says_null && nothing_else { Unit::HasNone } else { Unit::Untold }
    }

    /// The same in a currency: a price with several currencies is embedded with its default one.
    pub(super) fn unit_in(&self, currency: Currency) -> Unit {
        match self.currency() {
            Some(other) if other != currency => Unit::Untold,
            _ => self.unit(),
        }
    }

    /// The object of a price's own event.
    pub(super) fn read(&self) -> Result<Price, Unreadable> {
        let price = self.reference().ok_or_else(|| unreadable("id", "missing, or not an id"))?;
        Ok(Price { price, currency: currency(&self.currency, "currency")?, unit: self.unit() })
    }
}

/// Minor units as Stripe writes them with decimals: a text, or a plain integer where somebody re-encoded it.
#[derive(Debug, Clone)]
pub(super) enum Decimal<'a> {
    Text(Cow<'a, str>),
    Whole(i64),
}

impl<'de: 'a, 'a> Shape<'de> for Decimal<'a> {
    const COMPLAINT: &'static str = "not a decimal";

    fn text(text: Cow<'de, str>) -> Option<Self> {
        Some(Self::Text(text))
    }

    fn integer(integer: i64) -> Option<Self> {
        Some(Self::Whole(integer))
    }
}

impl Decimal<'_> {
    pub(super) fn unit(&self) -> Option<UnitAmount> {
        match self {
            Self::Text(text) => UnitAmount::parse(text).ok(),
            Self::Whole(amount) => UnitAmount::whole(*amount).ok(),
        }
    }
}

/// A currency that a rule needs.
pub(super) fn currency(field: &Field<Cow<'_, str>>, path: &str) -> Result<Currency, Unreadable> {
    Currency::parse(field.need(path)?).map_err(|_| unreadable(path, "not a currency"))
}

/// A currency that may be missing.
pub(super) fn currency_or_null(field: &Field<Cow<'_, str>>, path: &str) -> Result<Option<Currency>, Unreadable> {
    if field.is_empty() { Ok(None) } else { currency(field, path).map(Some) }
}
