//! What stands around an object: the snapshot event, and the thin event, which has no object.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::NotAnEvent;
use super::field::{Field, Reference, Shape, object_shapes};
use crate::domain::event::{Thin, UnixSeconds};
use crate::domain::ids::{EventId, ID_BYTES_MAX};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawEnvelope<'a> {
    #[serde(borrow)]
    object: Field<Cow<'a, str>>,
    id: Field<Cow<'a, str>>,
    #[serde(rename = "type")]
    kind: Field<Cow<'a, str>>,
    created: Field<Moment<'a>>,
    livemode: Field<bool>,
    account: Field<Reference<'a>>,
    /// The name of `account` until 2017-05-25.
    user_id: Field<Reference<'a>>,
    context: Field<Cow<'a, str>>,
    api_version: Field<Cow<'a, str>>,
    data: Field<RawData<'a>>,
    related_object: Field<Related<'a>>,
    snapshot_event: Field<Reference<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawData<'a> {
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    previous_attributes: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Related<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    #[serde(rename = "type")]
    kind: Field<Cow<'a, str>>,
    url: Field<Cow<'a, str>>,
}

object_shapes!(RawData<'a> Related<'a>);

/// Whole seconds, or RFC 3339 in thin events.
#[derive(Debug)]
enum Moment<'a> {
    Seconds(i64),
    Text(Cow<'a, str>),
}

impl<'de: 'a, 'a> Shape<'de> for Moment<'a> {
    const COMPLAINT: &'static str = "not a time";

    fn text(text: Cow<'de, str>) -> Option<Self> {
        Some(Self::Text(text))
    }

    fn integer(seconds: i64) -> Option<Self> {
        Some(Self::Seconds(seconds))
    }
}

/// The envelope, checked.
pub(super) struct Envelope<'a> {
    pub(super) id: EventId,
    pub(super) kind: String,
    pub(super) created: UnixSeconds,
    pub(super) livemode: bool,
    pub(super) stripe_account: Option<String>,
    pub(super) api_version: Option<String>,
    pub(super) content: Content<'a>,
}

pub(super) enum Content<'a> {
    /// The object, which is a JSON object, and the values that it replaced.
    Snapshot { object: &'a str, previous: Option<&'a str> },
    /// A pointer, and the id of what it points to.
    Thin { thin: Thin, object_id: Option<String> },
}

impl<'a> Envelope<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, NotAnEvent> {
        let text = std::str::from_utf8(body).map_err(|_| NotAnEvent::NotJson)?;
        if !is_object(text) {
            return Err(match serde_json::from_str::<IgnoredAny>(text) {
                Ok(_) => NotAnEvent::NotAnEvent("the body is not a JSON object"),
                Err(_) => NotAnEvent::NotJson,
            });
        }
        let raw: RawEnvelope<'a> = serde_json::from_str(text).map_err(|error| match error.is_data() {
            true => NotAnEvent::NotAnEvent("a field is given twice"),
            false => NotAnEvent::NotJson,
        })?;
        raw.check()
    }
}

impl<'a> RawEnvelope<'a> {
    fn check(self) -> Result<Envelope<'a>, NotAnEvent> {
        let content = self.content()?;
        let id = short(self.id.told()).and_then(|id| EventId::parse(&id).ok());
        let account = short(self.account.told().or(self.user_id.told()).map(|account| &account.0));
        Ok(Envelope {
            id: id.ok_or(NotAnEvent::NotAnEvent("`id` is missing or no id"))?,
            kind: short(self.kind.told()).ok_or(NotAnEvent::NotAnEvent("`type` is missing or no type"))?,
            created: self.created()?,
            livemode: self.livemode.told() == Some(&true),
            stripe_account: account.or_else(|| short(self.context.told())),
            api_version: short(self.api_version.told()),
            content,
        })
    }

    /// Events were always marked as such; where the mark is missing, there must at least be an object.
    fn content(&self) -> Result<Content<'a>, NotAnEvent> {
        match &self.object {
            Field::Is(object) if object == "v2.core.event" => {
                Ok(self.thin(self.kind.told().map(AsRef::as_ref).unwrap_or_default()))
            }
            Field::Is(object) if object == "event" => self.snapshot(),
            Field::Absent => self.snapshot(),
            _ => Err(NotAnEvent::NotAnEvent("`object` is neither `event` nor `v2.core.event`")),
        }
    }

    fn snapshot(&self) -> Result<Content<'a>, NotAnEvent> {
        let data = self.data.told();
        let object = data.and_then(|data| data.object).map(RawValue::get).filter(|object| is_object(object));
        let previous = data.and_then(|data| data.previous_attributes).map(RawValue::get);
        let object = object.ok_or(NotAnEvent::NotAnEvent("`data.object` is missing or no object"))?;
        Ok(Content::Snapshot { object, previous })
    }

    fn thin(&self, kind: &str) -> Content<'a> {
        let related = self.related_object.told();
        let thin = Thin {
            snapshot_event: self.snapshot_event.id(EventId::parse),
            is_acted_on: super::is_acted_on_thinly(kind),
            related_url: related.and_then(|related| short(related.url.told())).filter(|url| is_api_path(url)),
            is_gone: false,
        };
        Content::Thin { thin, object_id: related.and_then(|related| short(related.id.told())) }
    }

    fn created(&self) -> Result<UnixSeconds, NotAnEvent> {
        let seconds = match self.created.told() {
            Some(Moment::Seconds(seconds)) => Some(*seconds),
            Some(Moment::Text(text)) => text.parse::<Timestamp>().ok().map(Timestamp::as_second),
            None => None,
        };
        seconds.ok_or(NotAnEvent::NotAnEvent("`created` is missing or no time"))
    }
}

/// Derived readers take a list for a struct, so we look at the first byte.
pub(super) fn is_object(json: &str) -> bool {
    json.trim_ascii_start().starts_with('{')
}

/// A path below Stripe's API, and nothing that could lead elsewhere.
fn is_api_path(url: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'.');
    (url.starts_with("/v1/") || url.starts_with("/v2/")) && url.bytes().all(is_plain) && !url.contains("..")
}

/// A text as short and clean as an id.
pub(super) fn short(text: Option<&Cow<'_, str>>) -> Option<String> {
    let fits = |text: &&Cow<'_, str>| (1..=ID_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    text.filter(fits).map(|text| text.clone().into_owned())
}
