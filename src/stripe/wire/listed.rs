//! What lists tell of an object before it is read as a whole.

use std::borrow::Cow;

use serde::Deserialize;

use super::field::{Field, Reference, Shape, object_shapes, unreadable};
use super::parse;
use crate::domain::event::{UnixSeconds, Unreadable};
use crate::domain::ids::EventId;
use crate::domain::reconcile::Endpoint;

/// No id of Stripe's is longer.
const ID_BYTES_MAX: usize = 255;

/// An event in the list of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEvent {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: String,
    /// When it happened.
    pub created: UnixSeconds,
    /// The mode, if it is told.
    pub livemode: Option<bool>,
    /// It says whose account it is of: only what is delivered to a platform does.
    pub names_account: bool,
    /// An endpoint has not taken it yet.
    pub is_undelivered: bool,
    /// The objects that it is about.
    pub names: Vec<String>,
}

/// What every listed object may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListedObject {
    /// When it was made.
    pub created: Option<UnixSeconds>,
    /// The mode, if it is told.
    pub livemode: Option<bool>,
}

/// Reads what a listed event says about itself.
///
/// # Errors
/// [`Unreadable`], with the path of the field.
pub fn event(json: &str) -> Result<ListedEvent, Unreadable> {
    let raw: RawEvent<'_> = parse(json)?;
    let id = EventId::parse(raw.id.need("id")?).map_err(|_| unreadable("id", "not an id"))?;
    Ok(ListedEvent {
        id,
        kind: raw.kind.need("type")?.clone().into_owned(),
        created: *raw.created.need("created")?,
        livemode: raw.livemode.told().copied(),
        names_account: raw.account.told().is_some(),
        is_undelivered: raw.pending_webhooks.told().is_some_and(|pending| *pending > 0),
        names: raw.data.told().and_then(|data| data.object.told()).map(RawNames::all).unwrap_or_default(),
    })
}

/// Reads what any listed object says about itself.
///
/// # Errors
/// [`Unreadable`], with the path of the field.
pub fn object(json: &str) -> Result<ListedObject, Unreadable> {
    let raw: RawObject = parse(json)?;
    Ok(ListedObject { created: raw.created.told().copied(), livemode: raw.livemode.told().copied() })
}

/// The id of whatever is listed, even if nothing else of it can be read.
#[must_use]
pub fn id(json: &str) -> Option<String> {
    let raw: RawId<'_> = parse(json).ok()?;
    raw.id.told().filter(|id| id.len() <= ID_BYTES_MAX).map(|id| id.clone().into_owned())
}

/// Reads a webhook endpoint.
///
/// # Errors
/// [`Unreadable`], with the path of the field.
pub fn endpoint(json: &str) -> Result<Endpoint, Unreadable> {
    let raw: RawEndpoint<'_> = parse(json)?;
    let url = raw.url.need("url")?;
    let after_host = url.split_once("://").map_or(url.as_ref(), |(_, rest)| rest);
    let path = after_host.find('/').map_or("/", |at| &after_host[at..]);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let types = raw.enabled_events.told().map(Vec::as_slice).unwrap_or_default();
    Ok(Endpoint {
        id: raw.id.need("id")?.clone().into_owned(),
        path: path.to_owned(),
        is_enabled: raw.status.need("status")? == "enabled",
        types: types.iter().filter_map(|kind| kind.told()).map(|kind| kind.clone().into_owned()).collect(),
        api_version: raw.api_version.told().map(|version| version.clone().into_owned()),
        livemode: raw.livemode.told().copied(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawEvent<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    #[serde(rename = "type")]
    kind: Field<Cow<'a, str>>,
    created: Field<i64>,
    livemode: Field<bool>,
    account: Field<Reference<'a>>,
    pending_webhooks: Field<i64>,
    data: Field<RawData<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawData<'a> {
    #[serde(borrow)]
    object: Field<RawNames<'a>>,
}

/// What an object is, and the payment and the invoice that it belongs to. Not its subscription: an invoice changes
/// nothing of that by itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawNames<'a> {
    #[serde(borrow)]
    id: Field<Reference<'a>>,
    charge: Field<Reference<'a>>,
    payment_intent: Field<Reference<'a>>,
    invoice: Field<Reference<'a>>,
    latest_charge: Field<Reference<'a>>,
    payment: Field<RawPayment<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawPayment<'a> {
    #[serde(borrow)]
    charge: Field<Reference<'a>>,
    payment_intent: Field<Reference<'a>>,
}

object_shapes!(RawData<'a> RawNames<'a> RawPayment<'a>);

impl RawNames<'_> {
    fn all(&self) -> Vec<String> {
        let payment = self.payment.told();
        let of_payment = payment.into_iter().flat_map(|payment| [&payment.charge, &payment.payment_intent]);
        let own = [&self.id, &self.charge, &self.payment_intent, &self.invoice, &self.latest_charge];
        own.into_iter().chain(of_payment).filter_map(Field::told).map(|name| name.0.clone().into_owned()).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawId<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawObject {
    created: Field<i64>,
    livemode: Field<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawEndpoint<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    url: Field<Cow<'a, str>>,
    status: Field<Cow<'a, str>>,
    enabled_events: Field<Vec<Field<Cow<'a, str>>>>,
    api_version: Field<Cow<'a, str>>,
    livemode: Field<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_what_it_is_about() {
        let told = event(
            r#"{"id": "evt_1", "type": "invoice_payment.paid", "created": 7, "livemode": true, "pending_webhooks": 2,
                "data": {"object": {"id": "inpay_1", "invoice": {"id": "in_1"}, "subscription": "sub_1",
                                    "payment": {"type": "payment_intent", "payment_intent": "pi_1"}}}}"#,
        );
        let names = ["inpay_1", "in_1", "pi_1"].map(str::to_owned).to_vec();
        let id = EventId::parse("evt_1").unwrap();
        let expected = ListedEvent {
            id,
            kind: "invoice_payment.paid".into(),
            created: 7,
            livemode: Some(true),
            names_account: false,
            is_undelivered: true,
            names,
        };
        assert_eq!(told, Ok(expected));
        assert_eq!(event(r#"{"id": "evt_1", "type": "a"}"#), Err(unreadable("created", "missing")));
    }

    #[test]
    fn an_endpoint_has_the_path_of_its_url() {
        for (url, path) in [
            ("https://a.example/webhooks/stripe?x=1", "/webhooks/stripe"),
            ("https://a.example", "/"),
            ("https://a.example:8080/in/", "/in/"),
        ] {
            let json = format!(r#"{{"id": "we_1", "url": "{url}", "status": "disabled", "enabled_events": ["*"]}}"#);
            let told = endpoint(&json).unwrap();
            assert_eq!((told.path.as_str(), told.is_enabled, told.wants("a")), (path, false, true));
        }
    }
}
