//! `invoice.*`: both families of shapes, by presence of fields.
//!
//! Up to 2025-02-24 an invoice names its subscription and payment itself and its lines carry whole prices; later ones
//! name the subscription under `parent` and prices under `pricing`. Old versions rendered today carry both.

use std::borrow::Cow;

use serde::Deserialize;

use super::field::{Field, List, Metadata, Reference, Shape, object_shapes, unreadable};
use super::payment::RawPaymentRef;
use super::price::{Decimal, RawPrice, currency};
use crate::domain::event::{Invoice, Line, Lines, PaymentRef, PriceRef, Unit, Unreadable};
use crate::domain::ids::{AccountId, InvoiceId, PriceId, SubscriptionId};
use crate::domain::money::Currency;

/// An invoice as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawInvoice<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    customer: Field<Reference<'a>>,
    customer_account: Field<Reference<'a>>,
    subscription: Field<Reference<'a>>,
    parent: Field<Parent<'a>>,
    status: Field<Cow<'a, str>>,
    paid: Field<bool>,
    forgiven: Field<bool>,
    closed: Field<bool>,
    currency: Field<Cow<'a, str>>,
    total: Field<i64>,
    amount_due: Field<i64>,
    amount_paid: Field<i64>,
    paid_out_of_band: Field<bool>,
    status_transitions: Field<Transitions>,
    created: Field<i64>,
    date: Field<i64>,
    payment_intent: Field<Reference<'a>>,
    charge: Field<Reference<'a>>,
    payments: Field<List<RawAttached<'a>>>,
    lines: Field<List<RawLine<'a>>>,
    metadata: Field<Metadata<'a>>,
    subscription_details: Field<Details<'a>>,
}

/// What an invoice comes from.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parent<'a> {
    #[serde(borrow)]
    subscription_details: Field<Details<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    #[serde(borrow)]
    subscription: Field<Reference<'a>>,
    metadata: Field<Metadata<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Transitions {
    paid_at: Field<i64>,
}

/// A payment in the list of an invoice.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawAttached<'a> {
    #[serde(borrow)]
    status: Field<Cow<'a, str>>,
    payment: Field<RawPaymentRef<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Field<Cow<'a, str>>,
    amount: Field<i64>,
    currency: Field<Cow<'a, str>>,
    quantity: Field<i64>,
    proration: Field<bool>,
    subscription: Field<Reference<'a>>,
    parent: Field<LineParent<'a>>,
    pricing: Field<Pricing<'a>>,
    price: Field<RawPrice<'a>>,
    plan: Field<RawPrice<'a>>,
    period: Field<Period>,
}

/// What a line comes from; at most one of the two is there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LineParent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Field<Cow<'a, str>>,
    subscription_item_details: Field<LineDetails<'a>>,
    invoice_item_details: Field<LineDetails<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LineDetails<'a> {
    #[serde(borrow)]
    subscription: Field<Reference<'a>>,
    proration: Field<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pricing<'a> {
    #[serde(borrow)]
    price_details: Field<PriceDetails<'a>>,
    unit_amount_decimal: Field<Decimal<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PriceDetails<'a> {
    #[serde(borrow)]
    price: Field<RawPrice<'a>>,
    product: Field<Reference<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Period {
    start: Field<i64>,
    end: Field<i64>,
}

object_shapes! {
    Parent<'a> Details<'a> Transitions RawAttached<'a>
    RawLine<'a> LineParent<'a> LineDetails<'a> Pricing<'a> PriceDetails<'a> Period
}

impl RawInvoice<'_> {
    /// A preview of what may be billed: never stored, and its id, if any, names nothing.
    pub(super) fn is_preview(&self) -> bool {
        self.id.told().is_some_and(|id| id.starts_with("upcoming_"))
    }

    pub(super) fn read(&self, metadata_key: &str) -> Result<Invoice, Unreadable> {
        let id = self.id.need("id")?;
        let status = self.status()?;
        let currency = currency(&self.currency, "currency")?;
        let amount_due = *self.amount_due.need("amount_due")?;
        let unpaid_or_all = if status == "paid" { amount_due } else { 0 };
        Ok(Invoice {
            id: InvoiceId::parse(id).map_err(|_| unreadable("id", "not an id"))?,
            customer: self.customer.id(AccountId::parse).or_else(|| self.customer_account.id(AccountId::parse)),
            subscription: self.subscription(),
            currency,
            total: *self.total.need("total")?,
            amount_due,
            amount_paid: self.amount_paid.allow_null("amount_paid")?.copied().unwrap_or(unpaid_or_all),
            paid_out_of_band: self.paid_out_of_band.told() == Some(&true),
            paid_at: self.status_transitions.told().and_then(|times| times.paid_at.told()).copied(),
            created: self.created.told().or(self.date.told()).copied(),
            payments: self.payments(),
            lines: self.lines(currency)?,
            reference: self.reference(metadata_key),
            status,
        })
    }

    /// A closed invoice was no longer collected, but could be opened again: it is not void.
    fn status(&self) -> Result<String, Unreadable> {
        if let Some(status) = self.status.allow_null("status")? {
            return Ok(status.clone().into_owned());
        }
        let flag = |field: &Field<bool>| field.told() == Some(&true);
        let derived = match self.paid.allow_null("paid")? {
            Some(true) => "paid",
            _ if flag(&self.forgiven) => "uncollectible",
            Some(false) => "open",
            None if self.closed.told().is_some() => "open",
            None => return Err(unreadable("status", "missing")),
        };
        Ok(derived.to_owned())
    }

    fn details(&self) -> Option<&Details<'_>> {
        self.parent.told().and_then(|parent| parent.subscription_details.told())
    }

    fn subscription(&self) -> Option<SubscriptionId> {
        let parse = SubscriptionId::parse;
        let in_parent = self.details().and_then(|details| details.subscription.id(parse));
        in_parent.or_else(|| self.subscription.id(parse)).or_else(|| {
            let first = self.lines.items()?.first()?.told()?;
            first.subscription_field()?.id(parse)
        })
    }

    fn reference(&self, key: &str) -> Option<String> {
        let in_parent = || self.details().and_then(|details| details.metadata.text(key));
        let in_details = || self.subscription_details.told().and_then(|details| details.metadata.text(key));
        self.metadata.text(key).or_else(in_parent).or_else(in_details).map(str::to_owned)
    }

    /// The payments of the list, and the one that the invoice itself names if the list does not know it.
    fn payments(&self) -> Vec<PaymentRef> {
        let listed = self.payments.items().unwrap_or_default().iter().filter_map(Field::told);
        let alive = listed.filter(|attached| attached.status.told().is_none_or(|status| status != "canceled"));
        let mut payments: Vec<_> = alive.filter_map(|attached| attached.payment.told()?.read()).collect();
        if let Some(own) = RawPaymentRef::named(&self.payment_intent, &self.charge) {
            let known = |payment: &PaymentRef| {
                payment.payment_intent.is_some() && payment.payment_intent == own.payment_intent
                    || payment.charge.is_some() && payment.charge == own.charge
            };
            match payments.iter_mut().find(|payment| known(payment)) {
                Some(same) => {
                    same.payment_intent = same.payment_intent.take().or(own.payment_intent);
                    same.charge = same.charge.take().or(own.charge);
                }
                None => payments.push(own),
            }
        }
        payments
    }

    fn lines(&self, currency: Currency) -> Result<Lines, Unreadable> {
        let items = self.lines.items().unwrap_or_default();
        if self.lines.is_truncated() {
            return Ok(Lines::Truncated);
        }
        let read = |(index, item): (usize, &Field<RawLine<'_>>)| {
            let path = |name: &str| format!("lines.data[{index}]{name}");
            item.need(path(""))?.read(currency, path)
        };
        items.iter().enumerate().map(read).collect::<Result<_, _>>().map(Lines::Complete)
    }
}

impl RawLine<'_> {
    fn read(&self, of_invoice: Currency, path: impl Fn(&'static str) -> String) -> Result<Line, Unreadable> {
        let currency = match self.currency.is_empty() {
            true => of_invoice,
            false => currency(&self.currency, &path(".currency"))?,
        };
        self.read_in(currency, path)
    }

    /// A line by itself, which names its currency.
    pub(super) fn read_alone(&self) -> Result<Line, Unreadable> {
        self.read_in(currency(&self.currency, "currency")?, |name| name.trim_start_matches('.').to_owned())
    }

    fn read_in(&self, currency: Currency, path: impl Fn(&'static str) -> String) -> Result<Line, Unreadable> {
        let period = self.period.told();
        Ok(Line {
            price: self.price(),
            amount: *self.amount.need(path(".amount"))?,
            currency,
            quantity: self.quantity.allow_null(path(".quantity"))?.copied(),
            proration: self.proration(),
            on_subscription: self.on_subscription(),
            unit: self.unit(currency),
            period_start: period.and_then(|period| period.start.told()).copied(),
            period_end: period.and_then(|period| period.end.told()).copied(),
        })
    }

    fn details(&self) -> Option<&LineDetails<'_>> {
        let parent = self.parent.told()?;
        parent.subscription_item_details.told().or(parent.invoice_item_details.told())
    }

    fn proration(&self) -> bool {
        let in_parent = self.details().and_then(|details| details.proration.told());
        in_parent.or(self.proration.told()) == Some(&true)
    }

    fn subscription_field(&self) -> Option<&Field<Reference<'_>>> {
        let in_parent = self.details().map(|details| &details.subscription);
        in_parent.filter(|field| field.told().is_some()).or(Some(&self.subscription))
    }

    fn on_subscription(&self) -> bool {
        let parent_kind = self.parent.told().and_then(|parent| parent.kind.told());
        self.subscription_field().is_some_and(|field| field.told().is_some())
            || self.kind.told().is_some_and(|kind| kind == "subscription")
            || parent_kind.is_some_and(|kind| kind == "subscription_item_details")
    }

    /// Where the same price may stand, the newest shape first.
    fn prices(&self) -> impl Iterator<Item = &RawPrice<'_>> {
        let details = self.pricing.told().and_then(|pricing| pricing.price_details.told());
        let in_pricing = details.and_then(|details| details.price.told());
        [in_pricing, self.price.told(), self.plan.told()].into_iter().flatten()
    }

    /// The first that has an id; the others may know more about the same one.
    fn price(&self) -> Option<PriceRef> {
        let mut known = self.prices().filter_map(RawPrice::reference);
        let mut price = known.next()?;
        for same in known.filter(|other| other.id == price.id).collect::<Vec<_>>() {
            price.product = price.product.or(same.product);
            price.lookup_key = price.lookup_key.or(same.lookup_key);
        }
        let details = self.pricing.told().and_then(|pricing| pricing.price_details.told());
        let in_pricing = || details?.product.id(|id| PriceId::parse(id).map(|id| id.as_str().to_owned()));
        price.product = price.product.or_else(in_pricing);
        Some(price)
    }

    /// What `pricing` tells is the amount of the line: 0 in a trial, a share in a proration. So it counts last, and
    /// only where it can be that of the price.
    fn unit(&self, currency: Currency) -> Unit {
        let mut best = Unit::Untold;
        for unit in self.prices().map(|price| price.unit_in(currency)) {
            match unit {
                Unit::Costs(_) => return unit,
                Unit::HasNone => best = unit,
                Unit::Untold => {}
            }
        }
        let pricing = self.pricing.told().filter(|_| best == Unit::Untold && !self.proration());
        let amount = pricing.and_then(|pricing| pricing.unit_amount_decimal.told()?.unit());
        amount.filter(|amount| !amount.is_zero()).map_or(best, Unit::Costs)
    }
}
