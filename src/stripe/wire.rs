//! Stripe's events in our own words.
//!
//! One reader for all API versions: it goes by which fields are present, never by the version. Whatever no rule needs
//! may be missing, null, new or odd. What a rule needs and cannot be read becomes [`Body::Unreadable`] with the path
//! of the field, so that the event is kept. Reading borrows from the body and copies only what is kept.

pub mod answers;
mod credit_note;
mod customer;
mod envelope;
mod field;
mod invoice;
pub mod listed;
mod payment;
mod price;
mod subscription;
mod trace;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;

use self::envelope::{Content, Envelope};
use self::field::{Field, unreadable};
use crate::domain::clawback;
use crate::domain::event::{Body, Event, UnixSeconds, Unreadable};

/// Why a body is no event. Neither form repeats anything of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAnEvent {
    /// The body is not JSON in UTF-8.
    NotJson,
    /// It is JSON, but not an event; says what is missing.
    NotAnEvent(&'static str),
}

impl NotAnEvent {
    /// The code in the answer.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NotJson => "body_not_json",
            Self::NotAnEvent(_) => "not_an_event",
        }
    }

    /// What is wrong.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::NotJson => "the body is not JSON in UTF-8",
            Self::NotAnEvent(problem) => problem,
        }
    }
}

impl fmt::Display for NotAnEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for NotAnEvent {}

/// Reads the body of one delivery; `metadata_key` names the metadata that carries the user's own id.
///
/// # Errors
/// [`NotAnEvent`]; an event whose object cannot be read is none, see [`Body::Unreadable`].
pub fn read(body: &[u8], metadata_key: &str) -> Result<Event, NotAnEvent> {
    let envelope = Envelope::read(body)?;
    let (object_id, body) = match envelope.content {
        Content::Thin { thin, object_id } => (object_id, Body::Thin(thin)),
        Content::Snapshot { object, previous } => {
            Snapshot { kind: &envelope.kind, object, previous, metadata_key }.read()
        }
    };
    Ok(Event {
        id: envelope.id,
        kind: envelope.kind,
        created: envelope.created,
        livemode: envelope.livemode,
        stripe_account: envelope.stripe_account,
        api_version: envelope.api_version,
        object_id,
        body,
    })
}

/// The id that an object gives itself.
#[must_use]
pub fn object_id(object: &str) -> Option<String> {
    envelope::short(parse::<Head<'_>>(object).ok()?.id.told())
}

/// A thin event with the object that it names, as Stripe's API told it at `at` by its own clock: as if a snapshot event
/// had carried it. An empty object: Stripe does not have it.
#[must_use]
pub fn with_object(event: &Event, object: &[u8], at: UnixSeconds, metadata_key: &str) -> Event {
    let mut event = event.clone();
    let Body::Thin(thin) = &mut event.body else { return event };
    let Ok(object) = std::str::from_utf8(object) else { return event };
    if object.is_empty() {
        thin.is_gone = true;
        return event;
    }
    let kind = event.kind.strip_prefix("v1.").unwrap_or(&event.kind).to_owned();
    let (_, body) = Snapshot { kind: &kind, object, previous: None, metadata_key }.read();
    if is_of_later(&kind, &body) {
        event.created = event.created.max(at);
    }
    Event { kind, body, ..event }
}

/// It tells what was when Stripe answered, not at the time of its event: what a charge says was refunded, and that a
/// refund has failed meanwhile.
fn is_of_later(kind: &str, body: &Body) -> bool {
    match body {
        Body::Charge(_) => true,
        Body::Refund(refund) => clawback::is_failed(refund.status.as_deref()) && kind != "refund.failed",
        _ => false,
    }
}

/// A thin event of the same thing as a type that we act on. The finer ones of a subscription, which have no snapshot
/// twin, tell of its state as well.
fn is_acted_on_thinly(kind: &str) -> bool {
    const FINER: [&str; 10] = [
        "active",
        "past_due",
        "unpaid",
        "incomplete",
        "incomplete_expired",
        "trialing",
        "canceled",
        "cancel_at_changed",
        "item_price_changed",
        "item_quantity_changed",
    ];
    let Some(kind) = kind.strip_prefix("v1.") else { return false };
    let finer = kind.strip_prefix("customer.subscription.").is_some_and(|finer| FINER.contains(&finer));
    finer || event_types().iter().any(|(known, _)| *known == kind)
}

/// The types that billingd acts on, and what each is for.
#[must_use]
pub fn event_types() -> &'static [(&'static str, &'static str)] {
    &[
        ("invoice.paid", "grants the credits of an invoice"),
        ("invoice.payment_succeeded", "the same fact as invoice.paid"),
        ("invoice.updated", "follows an invoice; grants if it is paid"),
        ("invoice.created", "knows an invoice before it is paid"),
        ("invoice.finalized", "knows the final lines of an invoice"),
        ("invoice.payment_failed", "follows an invoice that is not paid"),
        ("invoice.voided", "closes an invoice for good"),
        ("invoice.marked_uncollectible", "follows an invoice that nobody expects to be paid"),
        ("invoice_payment.paid", "ties a payment to its invoice"),
        ("customer.created", "opens an account"),
        ("customer.updated", "learns the account's reference"),
        ("customer.deleted", "marks the account as deleted"),
        ("customer.subscription.created", "gives a tier"),
        ("customer.subscription.updated", "changes a tier"),
        ("customer.subscription.deleted", "ends a tier"),
        ("customer.subscription.paused", "takes a tier away for a while"),
        ("customer.subscription.resumed", "gives a paused tier back"),
        ("customer.subscription.pending_update_applied", "changes a tier once it is paid"),
        ("customer.subscription.pending_update_expired", "keeps a tier after an unpaid change"),
        ("customer.subscription.trial_will_end", "follows a subscription before its trial ends"),
        ("charge.succeeded", "knows a payment and its invoice"),
        ("charge.captured", "knows how much of a payment was captured"),
        ("charge.refunded", "takes credits back after a refund"),
        ("charge.updated", "follows a payment"),
        ("charge.refund.updated", "follows a refund of some payment methods"),
        ("refund.created", "takes credits back after a refund"),
        ("refund.updated", "follows a refund"),
        ("refund.failed", "gives credits again after a failed refund"),
        ("charge.dispute.created", "takes credits back while a payment is disputed"),
        ("charge.dispute.updated", "follows a dispute"),
        ("charge.dispute.closed", "settles a dispute"),
        ("charge.dispute.funds_withdrawn", "takes credits back when the money is gone"),
        ("charge.dispute.funds_reinstated", "gives credits again when the money is back"),
        ("checkout.session.completed", "grants a one-off purchase; learns the account's reference"),
        ("checkout.session.async_payment_succeeded", "grants a one-off purchase that was paid later"),
        ("checkout.session.async_payment_failed", "closes a purchase that was never paid"),
        ("checkout.session.expired", "closes a session without a purchase"),
        ("payment_intent.succeeded", "ties a payment to its charge and its invoice"),
        ("price.created", "learns what a price costs, for prorations"),
        ("price.updated", "learns what a price costs, for prorations"),
        ("credit_note.created", "finds money given back outside of refunds"),
        ("credit_note.voided", "resolves that finding when the note is void"),
    ]
}

/// A type that billingd acts on.
#[must_use]
pub fn is_acted_on(kind: &str) -> bool {
    event_types().iter().any(|(name, _)| *name == kind)
}

/// What kind of object an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Invoice,
    InvoicePayment,
    Checkout,
    Customer,
    Subscription,
    Charge,
    PaymentIntent,
    Refund,
    Dispute,
    Price,
    Plan,
    CreditNote,
}

impl Family {
    /// A longer name stands before the shorter one that it begins with.
    const BY_PREFIX: &[(&str, Self)] = &[
        ("invoice.", Self::Invoice),
        ("invoice_payment.", Self::InvoicePayment),
        ("checkout.session.", Self::Checkout),
        ("customer.subscription.", Self::Subscription),
        ("charge.dispute.", Self::Dispute),
        ("charge.refund.", Self::Refund),
        ("charge.", Self::Charge),
        ("payment_intent.", Self::PaymentIntent),
        ("refund.", Self::Refund),
        ("price.", Self::Price),
        ("plan.", Self::Plan),
        ("credit_note.", Self::CreditNote),
    ];

    fn of(kind: &str) -> Option<Self> {
        match kind {
            "customer.created" | "customer.updated" | "customer.deleted" => Some(Self::Customer),
            "invoice.upcoming" => None,
            _ => Self::BY_PREFIX.iter().find(|(prefix, _)| is_of(kind, prefix)).map(|(_, family)| *family),
        }
    }

    /// What the object calls itself.
    fn object(self) -> &'static str {
        match self {
            Self::Invoice => "invoice",
            Self::InvoicePayment => "invoice_payment",
            Self::Checkout => "checkout.session",
            Self::Customer => "customer",
            Self::Subscription => "subscription",
            Self::Charge => "charge",
            Self::PaymentIntent => "payment_intent",
            Self::Refund => "refund",
            Self::Dispute => "dispute",
            Self::Price => "price",
            Self::Plan => "plan",
            Self::CreditNote => "credit_note",
        }
    }

    /// Types that begin with `charge.` carry three kinds of objects; there the object's own word counts.
    fn told_by(self, kind: &str, object: Option<&str>) -> Result<Self, Unreadable> {
        let Some(object) = object.filter(|object| *object != self.object()) else {
            return Ok(self);
        };
        let of_charges = [Self::Charge, Self::Refund, Self::Dispute];
        let other = of_charges.into_iter().find(|family| family.object() == object && kind.starts_with("charge."));
        other.ok_or_else(|| unreadable("object", "not what events of this type carry"))
    }
}

/// One word after the prefix; with more it is a type that nobody knows.
fn is_of(kind: &str, prefix: &str) -> bool {
    kind.strip_prefix(prefix).is_some_and(|word| !word.is_empty() && !word.contains('.'))
}

/// What every object may say about itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    object: Field<Cow<'a, str>>,
}

/// An object with what is known about it before it is read.
struct Snapshot<'a> {
    kind: &'a str,
    object: &'a str,
    previous: Option<&'a str>,
    metadata_key: &'a str,
}

impl Snapshot<'_> {
    fn read(&self) -> (Option<String>, Body) {
        let head = match parse::<Head<'_>>(self.object) {
            Ok(head) => head,
            Err(problem) => return (None, self.unreadable(problem)),
        };
        let object_id = envelope::short(head.id.told());
        if self.kind == "invoice.upcoming" {
            return (None, Body::Other);
        }
        let Some(family) = Family::of(self.kind) else {
            return (object_id, Body::Other);
        };
        let object = head.object.told().map(AsRef::as_ref);
        match family.told_by(self.kind, object).and_then(|family| self.body(family)) {
            Ok(Some(body)) => (object_id, body),
            Ok(None) => (None, Body::Other),
            Err(problem) => (object_id, self.unreadable(problem)),
        }
    }

    /// `None` for the preview of an invoice.
    fn body(&self, family: Family) -> Result<Option<Body>, Unreadable> {
        let (object, key) = (self.object, self.metadata_key);
        Ok(Some(match family {
            Family::Invoice => {
                let invoice = parse::<invoice::RawInvoice<'_>>(object)?;
                if invoice.is_preview() {
                    return Ok(None);
                }
                Body::Invoice(invoice.read(key)?)
            }
            Family::InvoicePayment => Body::InvoicePayment(parse::<payment::RawInvoicePayment<'_>>(object)?.read()?),
            Family::Checkout => Body::Checkout(parse::<customer::RawCheckout<'_>>(object)?.read(key)?),
            Family::Customer => Body::Customer(parse::<customer::RawCustomer<'_>>(object)?.read(key, self.kind)?),
            Family::Subscription => {
                let subscription = parse::<subscription::RawSubscription<'_>>(object)?;
                Body::Subscription(subscription.read(key, trace::read(object, self.previous)?)?)
            }
            Family::Charge => Body::Charge(parse::<payment::RawCharge<'_>>(object)?.read()?),
            Family::PaymentIntent => Body::PaymentIntent(parse::<payment::RawPaymentIntent<'_>>(object)?.read()?),
            Family::Refund => Body::Refund(parse::<payment::RawRefund<'_>>(object)?.read()?),
            Family::Dispute => Body::Dispute(parse::<payment::RawDispute<'_>>(object)?.read()?),
            Family::Price | Family::Plan => Body::Price(parse::<price::RawPrice<'_>>(object)?.read()?),
            Family::CreditNote => Body::CreditNote(parse::<credit_note::RawCreditNote<'_>>(object)?.read()?),
        }))
    }

    /// Only a type that we act on needs anything.
    fn unreadable(&self, problem: Unreadable) -> Body {
        if is_acted_on(self.kind) { Body::Unreadable(problem) } else { Body::Other }
    }
}

fn parse<'a, T: Deserialize<'a>>(object: &'a str) -> Result<T, Unreadable> {
    serde_json::from_str(object).map_err(|error| locate::<T>(object, &error))
}

/// A second, slower pass that finds out where the first one stopped.
fn locate<'a, T: Deserialize<'a>>(object: &'a str, error: &serde_json::Error) -> Unreadable {
    let mut again = serde_json::Deserializer::from_str(object);
    let path = serde_path_to_error::deserialize::<_, T>(&mut again).err().map(|error| error.path().to_string());
    let path = path.filter(|path| path != ".").unwrap_or_default();
    if !error.is_data() {
        return unreadable(path, "not a number or text that can be read");
    }
    // Fields take any value: only a repeated one can be wrong, and serde names it, by our name, in backquotes.
    let message = error.to_string();
    let name = message.split('`').nth(1).unwrap_or_default();
    let separator = if path.is_empty() || name.is_empty() { "" } else { "." };
    unreadable(format!("{path}{separator}{name}"), "given twice")
}

#[cfg(test)]
mod tests;
