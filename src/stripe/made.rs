//! Events of our own around what Stripe's API told: as if an event of Stripe's had carried the object, so that they
//! are read, kept and run again like those.

use serde::Serialize;
use serde_json::value::RawValue;

use super::client::STRIPE_VERSION;
use crate::domain::event::UnixSeconds;
use crate::domain::ids::EventId;

/// What stands around the object.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    /// The id of the event.
    pub id: &'a EventId,
    /// Such as `customer.updated`.
    pub kind: &'a str,
    /// When the object was as it is told.
    pub created: UnixSeconds,
    /// The mode of the object.
    pub livemode: bool,
    /// The connected account that it belongs to.
    pub stripe_account: Option<&'a str>,
}

#[derive(Serialize)]
struct Event<'a> {
    id: &'a str,
    object: &'static str,
    api_version: &'static str,
    created: UnixSeconds,
    livemode: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'a str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    object: &'a RawValue,
}

/// The body of the event, to be read by [`super::wire::read`].
///
/// # Errors
/// When the object is no JSON.
pub fn body(envelope: &Envelope<'_>, object: &str) -> Result<Vec<u8>, serde_json::Error> {
    let Envelope { id, kind, created, livemode, stripe_account, .. } = *envelope;
    let data = Data { object: serde_json::from_str(object)? };
    let (id, account) = (id.as_str(), stripe_account);
    serde_json::to_vec(&Event {
        id,
        object: "event",
        api_version: STRIPE_VERSION,
        created,
        livemode,
        account,
        kind,
        data,
    })
}
