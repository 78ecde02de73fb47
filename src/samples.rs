//! Sample events in Stripe's shapes, for `billingd send`, the demo, benchmarks, tests and the payload dictionary.
//!
//! Pure: the same [`Sample`] always gives the same bytes; time and randomness are passed in. A leaf: it writes JSON
//! as Stripe does (pretty, two spaces, raw UTF-8, `id` and `object` first) and knows nothing of how it is read.

mod customer;
mod ids;
mod invoice;
mod payment;
mod pretty;

use std::fmt;

use serde_json::{Value, json};

pub use pretty::pretty;

/// Which family of API versions renders an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// From 2025-03-31 on: `parent` and `pricing`; an invoice does not name its payment.
    #[default]
    Current,
    /// As 2024-06-20 renders it: an invoice names its subscription and payment, lines carry whole prices.
    Older,
}

impl Shape {
    /// The API version that an event of this shape names.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Current => "2026-10-28.endive",
            Self::Older => "2024-06-20",
        }
    }
}

/// What one sample event is about. Take [`Sample::new`] and change what matters.
///
/// Events that share `seed`, `customer` and `purchase` (and their times) tell one story: the same customer,
/// subscription, invoice, payment, refund and dispute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Makes the ids of this run differ from those of another one.
    pub seed: u64,
    /// The number of the event: gives its id, and nothing else.
    pub event: u64,
    /// When the event happened, in Unix seconds.
    pub now: i64,
    /// How the event is rendered.
    pub shape: Shape,
    /// The number of the customer, who has one subscription.
    pub customer: u64,
    /// When the customer and the subscription began, in Unix seconds.
    pub subscribed_at: i64,
    /// The number of the purchase: gives invoice, payment, charge, checkout session, refund and dispute.
    pub purchase: u64,
    /// When the purchase was made, in Unix seconds.
    pub purchased_at: i64,
    /// The price of the subscription.
    pub price: String,
    /// The price before it: a `customer.subscription.updated` with one tells of a change.
    pub previous_price: Option<String>,
    /// How many of it.
    pub quantity: i64,
    /// What one costs, in minor units.
    pub unit_amount: i64,
    /// In lower case.
    pub currency: String,
    /// How much of the purchase was given back, in minor units; `None`: all of it.
    pub refunded: Option<i64>,
    /// Key and value of the metadata that carries the user's own id of the customer.
    pub reference: Option<(String, String)>,
    /// The connected account that the event belongs to.
    pub account: Option<String>,
    /// Real money. False, unless a test asks for it.
    pub livemode: bool,
}

/// There is no sample of this type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSample(String);

impl fmt::Display for NoSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no sample of the type {}", self.0)
    }
}

impl std::error::Error for NoSample {}

/// What an event of a type carries: its object, and the values that it replaced.
type Data = fn(&Sample) -> (Value, Option<Value>);

const TYPES: &[(&str, Data)] = &[
    ("invoice.created", |sample| (invoice::draft(sample), None)),
    ("invoice.finalized", |sample| (invoice::open(sample), None)),
    ("invoice.paid", |sample| (invoice::paid(sample), None)),
    ("invoice.payment_succeeded", |sample| (invoice::paid(sample), None)),
    ("invoice.payment_failed", |sample| (invoice::unpaid(sample), None)),
    ("invoice_payment.paid", |sample| (invoice::payment(sample), None)),
    ("customer.created", |sample| (customer::customer(sample), None)),
    ("customer.updated", |sample| (customer::customer(sample), Some(customer::customer_before(sample)))),
    ("customer.deleted", |sample| (customer::customer(sample), None)),
    ("customer.subscription.created", |sample| (customer::subscription(sample, "active"), None)),
    ("customer.subscription.updated", |sample| {
        (customer::subscription(sample, "active"), Some(customer::subscription_before(sample)))
    }),
    ("customer.subscription.deleted", |sample| (customer::subscription(sample, "canceled"), None)),
    ("charge.succeeded", |sample| (payment::charge(sample, 0), None)),
    ("charge.refunded", |sample| {
        (payment::charge(sample, sample.given_back()), Some(json!({ "amount_refunded": 0, "refunded": false })))
    }),
    ("refund.created", |sample| (payment::refund(sample, "succeeded"), None)),
    ("refund.updated", |sample| (payment::refund(sample, "succeeded"), Some(payment::refund_before()))),
    ("refund.failed", |sample| (payment::refund(sample, "failed"), None)),
    ("charge.dispute.created", |sample| (payment::dispute(sample, "needs_response"), None)),
    ("charge.dispute.funds_withdrawn", |sample| (payment::dispute(sample, "needs_response"), None)),
    ("charge.dispute.funds_reinstated", |sample| (payment::dispute(sample, "won"), None)),
    ("charge.dispute.closed", |sample| (payment::dispute(sample, "won"), None)),
    ("checkout.session.completed", |sample| (customer::checkout(sample), None)),
    ("payment_intent.succeeded", |sample| (payment::intent(sample), None)),
    ("price.created", |sample| (invoice::price(sample, &sample.price), None)),
];

/// The types that there are samples of.
pub fn types() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name)
}

impl Sample {
    /// The event with this number at this time, about a customer and a purchase of its own: 20.00 USD for one month.
    /// Both began five minutes before, so that a refund or dispute of them lies in the past, too.
    #[must_use]
    pub fn new(event: u64, now: i64) -> Self {
        Self {
            seed: 0,
            event,
            now,
            shape: Shape::default(),
            customer: event,
            subscribed_at: now - 300,
            purchase: event,
            purchased_at: now - 300,
            price: "price_basic".to_owned(),
            previous_price: None,
            quantity: 1,
            unit_amount: 2000,
            currency: "usd".to_owned(),
            refunded: None,
            reference: None,
            account: None,
            livemode: false,
        }
    }

    /// The event of a type.
    ///
    /// # Errors
    /// [`NoSample`] for a type that is not one of [`types`].
    pub fn event(&self, kind: &str) -> Result<Value, NoSample> {
        let (_, data) = TYPES.iter().find(|(name, _)| *name == kind).ok_or_else(|| NoSample(kind.to_owned()))?;
        let (object, previous) = data(self);
        Ok(self.envelope(kind, object, previous))
    }

    /// The body of a delivery, byte for byte as it is signed.
    ///
    /// # Errors
    /// [`NoSample`] for a type that is not one of [`types`].
    pub fn body(&self, kind: &str) -> Result<Vec<u8>, NoSample> {
        Ok(pretty(&self.event(kind)?))
    }

    fn envelope(&self, kind: &str, object: Value, previous: Option<Value>) -> Value {
        let mut event = json!({
            "id": self.event_id(),
            "object": "event",
            "api_version": self.shape.api_version(),
            "created": self.now,
            "data": { "object": object },
            "livemode": self.livemode,
            "pending_webhooks": 1,
            "request": { "id": self.id_like("req_", 6, self.event), "idempotency_key": self.uuid(self.event) },
            "type": kind,
        });
        if let Some(previous) = previous {
            event["data"]["previous_attributes"] = previous;
        }
        if let Some(account) = &self.account {
            event["account"] = json!(account);
        }
        event
    }

    /// What the purchase costs, in minor units.
    #[must_use]
    pub fn amount(&self) -> i64 {
        self.unit_amount.saturating_mul(self.quantity)
    }

    /// How much of the purchase was given back, in minor units.
    #[must_use]
    pub fn given_back(&self) -> i64 {
        self.refunded.unwrap_or_else(|| self.amount())
    }

    fn metadata(&self) -> Value {
        self.reference.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<serde_json::Map<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const NOW: i64 = 1_796_054_400;

    #[test]
    fn an_invoice_has_the_size_and_the_look_of_stripes() {
        let body = Sample::new(1, NOW).body("invoice.paid").unwrap();
        assert!((2_700..=3_700).contains(&body.len()), "{}", body.len());
        let text = String::from_utf8(body).unwrap();
        assert!(text.starts_with("{\n  \"id\": \"evt_1"), "{text}");
        assert!(text.contains("×"), "{text}");
    }

    #[test]
    fn ids_are_unique_and_ordered_by_time() {
        let ids: Vec<String> = (0..1_000).map(|number| Sample::new(number, NOW).event_id()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        assert!(Sample::new(1, NOW).event_id() < Sample::new(0, NOW + 1).event_id());
        assert_ne!(Sample { seed: 1, ..Sample::new(7, NOW) }.event_id(), Sample::new(7, NOW).event_id());
    }

    #[test]
    fn events_of_one_purchase_tell_one_story() {
        let first = Sample::new(1, NOW);
        let later = Sample { event: 2, now: NOW + 60, ..first.clone() };
        let paid = first.event("invoice.paid").unwrap();
        let refunded = later.event("charge.refunded").unwrap();
        let tie = later.event("invoice_payment.paid").unwrap();
        assert_ne!(paid["id"], refunded["id"]);
        assert_eq!(paid["data"]["object"]["customer"], refunded["data"]["object"]["customer"]);
        assert_eq!(paid["data"]["object"]["id"], tie["data"]["object"]["invoice"]);
        assert_eq!(tie["data"]["object"]["payment"]["payment_intent"], refunded["data"]["object"]["payment_intent"]);
    }

    #[test]
    fn an_unknown_type_has_no_sample() {
        assert_eq!(Sample::new(1, NOW).body("invoice.eaten"), Err(NoSample("invoice.eaten".into())));
    }
}
