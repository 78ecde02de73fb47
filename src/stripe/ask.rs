//! What billingd asks of Stripe, one function for each question: which path, and how the answer is read.

use std::fmt;

use serde_json::value::RawValue;

use super::client::{Api, ApiError, Dated, Kind, Pages, path};
use super::wire::answers;
use crate::domain::event::{Body, Charge, InvoicePayment, Line, PaymentRef, Price, Subscription, Unreadable};
use crate::domain::facts::Asked;
use crate::domain::ids::{CheckoutId, EventId, InvoiceId, PaymentId, PriceId, SubscriptionId};

/// More pages than any invoice or session can have.
const PAGES_MAX: u32 = 100;

/// Where the items of subscriptions are.
const ITEMS: &str = "/v1/subscription_items";

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// There was none that could be used.
    Api(ApiError),
    /// It was read, but lacks what a rule needs.
    Unreadable {
        /// What was asked.
        path: String,
        /// What is wrong with the answer.
        problem: Unreadable,
    },
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(error) => error.fmt(f),
            Self::Unreadable { path, problem } => {
                write!(f, "{path}: field {} of the answer is {}", problem.field, problem.problem)
            }
        }
    }
}

impl From<ApiError> for NoAnswer {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// What Stripe knows about a payment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paid {
    /// All of its names that were told.
    pub names: PaymentRef,
    /// The invoices that it paid.
    pub invoices: Vec<InvoiceId>,
}

/// All lines of an invoice.
///
/// # Errors
/// [`NoAnswer`].
pub fn invoice_lines(api: &dyn Api, invoice: &InvoiceId) -> Result<Asked<Vec<Line>>, NoAnswer> {
    lines(api, &format!("{}/lines", path("/v1/invoices", invoice.as_str())), answers::invoice_line)
}

/// All that a checkout session sold.
///
/// # Errors
/// [`NoAnswer`].
pub fn session_lines(api: &dyn Api, session: &CheckoutId) -> Result<Asked<Vec<Line>>, NoAnswer> {
    lines(api, &format!("{}/line_items", path("/v1/checkout/sessions", session.as_str())), answers::session_line)
}

fn lines(api: &dyn Api, path: &str, read: fn(&str) -> Result<Line, Unreadable>) -> Result<Asked<Vec<Line>>, NoAnswer> {
    let mut lines = Vec::new();
    for item in Pages::new(api, path, &[]).at_most(PAGES_MAX).items() {
        match item {
            Ok(item) => lines.push(read(item.get()).map_err(|problem| unreadable(path, problem))?),
            Err(error) => return or_gone(error),
        }
    }
    Ok(Asked::Told(lines))
}

/// What one of a price costs, in each of its currencies.
///
/// # Errors
/// [`NoAnswer`].
pub fn prices(api: &dyn Api, price: &PriceId) -> Result<Asked<Vec<Price>>, NoAnswer> {
    let path = path("/v1/prices", price.as_str());
    match object(api, &path, &[("expand[]", "currency_options")])? {
        Asked::Told(json) => answers::prices(&json.told).map(Asked::Told).map_err(|problem| unreadable(&path, problem)),
        Asked::NotYet | Asked::Gone => Ok(Asked::Gone),
    }
}

/// A subscription as it is now, with all of its items.
///
/// # Errors
/// [`NoAnswer`].
pub fn subscription(api: &dyn Api, id: &SubscriptionId) -> Result<Asked<Dated<Subscription>>, NoAnswer> {
    let path = path("/v1/subscriptions", id.as_str());
    let Asked::Told(Dated { told: json, date }) = object(api, &path, &[])? else { return Ok(Asked::Gone) };
    let Body::Subscription(mut subscription) = read("customer.subscription.updated", &path, &json)? else {
        return Err(other_object(&path));
    };
    if subscription.items_truncated {
        let mut items = Vec::new();
        for item in items_of(api, id) {
            let item = answers::subscription_item(item?.get());
            items.push(item.map_err(|problem| unreadable(ITEMS, problem))?);
        }
        (subscription.items, subscription.items_truncated) = (items, false);
    }
    Ok(Asked::Told(Dated { told: subscription, date }))
}

/// All items of a subscription, as Stripe wrote them.
pub(super) fn items_of<'a>(
    api: &'a dyn Api,
    id: &'a SubscriptionId,
) -> impl Iterator<Item = Result<Box<RawValue>, ApiError>> + use<'a> {
    Pages::new(api, ITEMS, &[("subscription", id.as_str())]).at_most(PAGES_MAX).items()
}

/// What the payment of this name paid: `pi_…`, or the id of a charge.
///
/// # Errors
/// [`NoAnswer`].
pub fn payment(api: &dyn Api, name: &str) -> Result<Paid, NoAnswer> {
    let mut paid = Paid::default();
    match PaymentId::parse(name).ok().filter(|_| name.starts_with("pi_")) {
        Some(intent) => paid.names.payment_intent = Some(intent),
        None => {
            let charge = charge(api, name)?;
            paid.names = PaymentRef { payment_intent: charge.payment_intent, charge: Some(charge.id) };
            paid.invoices.extend(charge.invoice);
        }
    }
    match attached(api, &paid.names) {
        Ok(links) => {
            for link in links.into_iter().filter(|link| link.status == "paid") {
                if let Some(names) = link.payment {
                    paid.names.charge = paid.names.charge.or(names.charge);
                    paid.names.payment_intent = paid.names.payment_intent.or(names.payment_intent);
                }
                if !paid.invoices.contains(&link.invoice) {
                    paid.invoices.push(link.invoice);
                }
            }
            Ok(paid)
        }
        // Versions before 2025-05-28, and look-alikes, do not know the list; there the payment names its invoice.
        Err(NoAnswer::Api(error)) if error.kind == Kind::Unknown => match own_invoice(api, &paid)? {
            Some(invoice) => Ok(Paid { invoices: vec![invoice], ..paid }),
            None => Err(error.into()),
        },
        Err(error) => Err(error),
    }
}

/// The links between invoices and a payment.
fn attached(api: &dyn Api, names: &PaymentRef) -> Result<Vec<InvoicePayment>, NoAnswer> {
    const PATH: &str = "/v1/invoice_payments";
    let query = match (&names.payment_intent, &names.charge) {
        (Some(intent), _) => [("payment[type]", "payment_intent"), ("payment[payment_intent]", intent.as_str())],
        (None, Some(charge)) => [("payment[type]", "charge"), ("payment[charge]", charge.as_str())],
        (None, None) => return Ok(Vec::new()),
    };
    let mut links = Vec::new();
    for item in Pages::new(api, PATH, &query).at_most(PAGES_MAX).items() {
        match read("invoice_payment.paid", PATH, item?.get())? {
            Body::InvoicePayment(link) => links.push(link),
            _ => return Err(other_object(PATH)),
        }
    }
    Ok(links)
}

fn own_invoice(api: &dyn Api, paid: &Paid) -> Result<Option<InvoiceId>, NoAnswer> {
    if let Some(invoice) = paid.invoices.first() {
        return Ok(Some(invoice.clone()));
    }
    let Some(intent) = &paid.names.payment_intent else { return Ok(None) };
    let path = path("/v1/payment_intents", intent.as_str());
    let Asked::Told(json) = object(api, &path, &[])? else { return Ok(None) };
    match read("payment_intent.succeeded", &path, &json.told)? {
        Body::PaymentIntent(intent) => Ok(intent.invoice),
        _ => Err(other_object(&path)),
    }
}

/// The charges of a payment that were not in vain.
///
/// # Errors
/// [`NoAnswer`].
pub fn charges(api: &dyn Api, name: &str) -> Result<Vec<Charge>, NoAnswer> {
    const PATH: &str = "/v1/charges";
    let mut charges = Vec::new();
    if name.starts_with("pi_") {
        for item in Pages::new(api, PATH, &[("payment_intent", name)]).at_most(PAGES_MAX).items() {
            match read("charge.succeeded", PATH, item?.get())? {
                Body::Charge(charge) => charges.push(charge),
                _ => return Err(other_object(PATH)),
            }
        }
    } else {
        charges.push(charge(api, name)?);
    }
    charges.retain(|charge| charge.status != "failed");
    Ok(charges)
}

/// A charge is never deleted: where there is none, another account or mode was asked, and nothing is known of it.
fn charge(api: &dyn Api, id: &str) -> Result<Charge, NoAnswer> {
    let path = path("/v1/charges", id);
    match read("charge.succeeded", &path, &text(&path, api.get(&path, &[])?.told)?)? {
        Body::Charge(charge) => Ok(charge),
        _ => Err(other_object(&path)),
    }
}

/// An event as Stripe rendered it when it happened; Stripe has it for 30 days.
///
/// # Errors
/// [`NoAnswer`].
pub fn event(api: &dyn Api, id: &EventId) -> Result<Asked<Dated<String>>, NoAnswer> {
    object(api, &path("/v1/events", id.as_str()), &[])
}

/// An object by its path, as Stripe wrote it.
///
/// # Errors
/// [`NoAnswer`].
pub fn object(api: &dyn Api, path: &str, query: &[(&str, &str)]) -> Result<Asked<Dated<String>>, NoAnswer> {
    match api.get(path, query) {
        Ok(Dated { told, date }) => text(path, told).map(|told| Asked::Told(Dated { told, date })),
        Err(error) => or_gone(error),
    }
}

fn text(path: &str, body: Vec<u8>) -> Result<String, NoAnswer> {
    String::from_utf8(body).map_err(|_| ApiError::new(Kind::Garbage, path, "the answer is not UTF-8").into())
}

/// That there is no such thing is an answer.
fn or_gone<T>(error: ApiError) -> Result<Asked<T>, NoAnswer> {
    if error.kind == Kind::NotFound { Ok(Asked::Gone) } else { Err(error.into()) }
}

/// Reads an object as an event of this type would carry it.
fn read(kind: &str, path: &str, json: &str) -> Result<Body, NoAnswer> {
    match answers::object(kind, json) {
        Body::Unreadable(problem) => Err(unreadable(path, problem)),
        body => Ok(body),
    }
}

fn unreadable(path: &str, problem: Unreadable) -> NoAnswer {
    NoAnswer::Unreadable { path: path.to_owned(), problem }
}

fn other_object(path: &str) -> NoAnswer {
    ApiError::new(Kind::Garbage, path, "the answer is another object than was asked for").into()
}

#[cfg(test)]
mod tests;
