//! What Stripe's API answers, where it is no object of an event: single lines and prices of several currencies.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::field::{Field, unreadable};
use super::invoice::RawLine;
use super::price::RawPrice;
use super::subscription::RawItem;
use super::{Snapshot, parse};
use crate::domain::event::{Body, Line, Price, SubscriptionItem, Unit, Unreadable};
use crate::domain::money::Currency;

/// A line of an invoice.
///
/// # Errors
/// [`Unreadable`], with the path of the field.
pub fn invoice_line(json: &str) -> Result<Line, Unreadable> {
    parse::<RawLine<'_>>(json)?.read_alone()
}

/// A line of a checkout session.
///
/// # Errors
/// [`Unreadable`], with the path of the field.
pub fn session_line(json: &str) -> Result<Line, Unreadable> {
    parse::<RawSold<'_>>(json)?.read()
}

/// A price in each currency that it can be paid in; read with `expand[]=currency_options`.
///
/// # Errors
/// [`Unreadable`], with the path of the field.
pub fn prices(json: &str) -> Result<Vec<Price>, Unreadable> {
    let default = parse::<RawPrice<'_>>(json)?.read()?;
    let others = parse::<Currencies<'_>>(json)?.currency_options.unwrap_or_default();
    let in_currency = |(code, option): (Cow<'_, str>, RawPrice<'_>)| {
        let currency = Currency::parse(&code).ok().filter(|currency| *currency != default.currency)?;
        Some(Price { price: default.price.clone(), currency, unit: option.unit() })
    };
    let mut prices: Vec<Price> = others.into_iter().filter_map(in_currency).collect();
    prices.push(default);
    // A price whose amount cannot be read has none that we could divide by.
    prices.iter_mut().filter(|price| price.unit == Unit::Untold).for_each(|price| price.unit = Unit::HasNone);
    Ok(prices)
}

/// An item of a subscription.
///
/// # Errors
/// [`Unreadable`], with the path of the field.
pub fn subscription_item(json: &str) -> Result<SubscriptionItem, Unreadable> {
    parse::<RawItem<'_>>(json)?.read(|name| name.trim_start_matches('.').to_owned())
}

/// An object that an event of this type carries, but for the user's own id in its metadata.
#[must_use]
pub fn object(kind: &str, json: &str) -> Body {
    Snapshot { kind, object: json, previous: None, metadata_key: "" }.read().1
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Currencies<'a> {
    #[serde(borrow)]
    currency_options: Option<BTreeMap<Cow<'a, str>, RawPrice<'a>>>,
}

/// A line of a checkout session: before discounts, as the lines of invoices are.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawSold<'a> {
    #[serde(borrow)]
    price: Field<RawPrice<'a>>,
    quantity: Field<i64>,
    amount_subtotal: Field<i64>,
    amount_total: Field<i64>,
    currency: Field<Cow<'a, str>>,
}

impl RawSold<'_> {
    fn read(&self) -> Result<Line, Unreadable> {
        let currency = super::price::currency(&self.currency, "currency")?;
        let price = self.price.told();
        let amount = self.amount_subtotal.told().or(self.amount_total.told());
        Ok(Line {
            price: price.and_then(RawPrice::reference),
            amount: *amount.ok_or_else(|| unreadable("amount_subtotal", "missing"))?,
            currency,
            quantity: self.quantity.allow_null("quantity")?.copied(),
            proration: false,
            on_subscription: false,
            unit: price.map_or(Unit::Untold, |price| price.unit_in(currency)),
            period_start: None,
            period_end: None,
        })
    }
}

#[cfg(test)]
mod tests;
