//! An answer as it came, and what it amounts to.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::Deserialize;
use serde_json::value::RawValue;
use ureq::http::HeaderMap;

use super::error::{ApiError, Kind, Told};
use crate::domain::event::UnixSeconds;

/// The longest word of Stripe's that is kept. Its own have about 40 letters.
const WORD_BYTES_MAX: usize = 80;

/// Longer waits than this are not taken from anybody, as in the SDKs.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// What the headers say about repeating it.
    pub hints: Hints,
    /// The `Request-Id`.
    pub request_id: Option<String>,
    /// When it was made, by the clock of whoever answers.
    pub date: Option<UnixSeconds>,
    /// The bytes.
    pub body: Vec<u8>,
}

/// What an answer told, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dated<T> {
    /// What it told.
    pub told: T,
    /// When it was made, by the clock of whoever answered; `None`: it did not say.
    pub date: Option<UnixSeconds>,
}

/// What an answer's headers say about repeating it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// `Stripe-Should-Retry`.
    pub should_retry: Option<bool>,
    /// `Retry-After`, if it is a number up to 60 seconds.
    pub retry_after: Option<Duration>,
}

/// One attempt without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// What happened.
    pub error: ApiError,
    /// What the answer says about repeating it.
    pub hints: Hints,
}

impl From<ApiError> for Missed {
    fn from(error: ApiError) -> Self {
        Self { error, hints: Hints::default() }
    }
}

impl Answer {
    /// Takes what counts from the headers.
    #[must_use]
    pub fn new(status: u16, headers: &HeaderMap, body: Vec<u8>) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let should_retry = match text("stripe-should-retry") {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        let retry_after = text("retry-after").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Self {
            status,
            hints: Hints { should_retry, retry_after: retry_after.filter(|wait| *wait <= RETRY_AFTER_MAX) },
            request_id: text("request-id").and_then(word),
            date: text("date").and_then(seconds),
            body,
        }
    }

    /// The bytes of the JSON object that was asked for.
    ///
    /// # Errors
    /// [`Missed`] for everything that is none.
    pub fn read(self, path: &str) -> Result<Dated<Vec<u8>>, Missed> {
        if self.status == 200 && is_object(&self.body) {
            return Ok(Dated { told: self.body, date: self.date });
        }
        let told = told(&self.body);
        let (kind, reason) = judge(self.status, told.as_ref());
        let told = Box::new(Told { request_id: self.request_id, ..told.unwrap_or_default() });
        let error = ApiError { kind, path: path.to_owned(), status: Some(self.status), reason, told };
        Err(Missed { error, hints: self.hints })
    }
}

/// What a status without the object amounts to. `told` is there if the answer is an error in Stripe's form.
fn judge(status: u16, told: Option<&Told>) -> (Kind, &'static str) {
    let code = told.and_then(|told| told.code.as_deref());
    match (status, told, code) {
        (200..=299, ..) => (Kind::Garbage, "the answer is no JSON object"),
        (300..=399, ..) => (Kind::Unknown, "the answer is a redirect, which Stripe never sends"),
        (401, ..) => (Kind::Refused, "Stripe does not accept the key"),
        (403, ..) => (Kind::Refused, "the key may not do this"),
        (429, ..) | (400, _, Some("rate_limit" | "lock_timeout")) => (Kind::Limited, "too many requests at once"),
        (409, ..) => (Kind::Unavailable, "another request is in the way"),
        // Stripe gives a code wherever an object is missing, and none where it does not know the path.
        (404, Some(_), Some(_)) => (Kind::NotFound, "Stripe has no such object"),
        (404, ..) | (_, None, _) if status < 500 => (Kind::Unknown, "this API cannot tell"),
        (500.., ..) => (Kind::Unavailable, "the API has trouble of its own"),
        _ => (Kind::Rejected, "Stripe does not take this request"),
    }
}

/// An error in Stripe's form.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    error: Words<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Words<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    param: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

fn told(body: &[u8]) -> Option<Told> {
    let words = serde_json::from_slice::<Envelope<'_>>(body).ok()?.error;
    let text = |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let kept = |raw| text(raw).as_deref().and_then(word);
    Some(Told {
        kind: kept(words.kind),
        code: kept(words.code),
        param: kept(words.param),
        permission: text(words.message).as_deref().and_then(permission),
        request_id: None,
    })
}

/// A word that cannot hold anything private, or break out of a line of the log.
fn word(text: &str) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-' | '[' | ']');
    let fits = (1..=WORD_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain);
    fits.then(|| text.to_owned())
}

/// The time of a `Date` header.
fn seconds(date: &str) -> Option<i64> {
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok().map(Timestamp::as_second)
}

/// The name of a permission in a sentence of Stripe's.
fn permission(message: &str) -> Option<String> {
    let mut words = message.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.find(|word| word.starts_with("rak_")).and_then(word)
}

fn is_object(body: &[u8]) -> bool {
    let starts = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    starts && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> Result<Vec<u8>, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert("request-id", "req_7".parse().unwrap());
        Answer::new(status, &headers, body.as_bytes().to_vec())
            .read("/v1/things/1")
            .map(|answer| answer.told)
            .map_err(|missed| missed.error)
    }

    #[test]
    fn success_is_a_json_object() {
        assert_eq!(read(200, " {\"id\":\"x\"}\n").unwrap(), b" {\"id\":\"x\"}\n");
        for body in ["", "[]", "\"x\"", "null", "{\"id\":", "{} {}", "<html>", "{\"a\":1}x"] {
            assert_eq!(read(200, body).unwrap_err().kind, Kind::Garbage, "{body}");
        }
        assert_eq!(read(204, "").unwrap_err().kind, Kind::Garbage);
    }

    #[test]
    fn each_answer_is_of_one_kind() {
        const CODED: &str = r#"{"error":{"type":"invalid_request_error","code":"a_code"}}"#;
        const BARE: &str = r#"{"error":{"type":"invalid_request_error","message":"Unrecognized request URL"}}"#;
        const LIMITED: &str = r#"{"error":{"code":"rate_limit"}}"#;
        const TEXT: &str = "404: Not Found";
        for (status, body, kind) in [
            (301, TEXT, Kind::Unknown),
            (302, CODED, Kind::Unknown),
            (400, CODED, Kind::Rejected),
            (400, BARE, Kind::Rejected),
            (400, LIMITED, Kind::Limited),
            (400, TEXT, Kind::Unknown),
            (401, BARE, Kind::Refused),
            (401, TEXT, Kind::Refused),
            (402, CODED, Kind::Rejected),
            (403, BARE, Kind::Refused),
            (404, CODED, Kind::NotFound),
            (404, BARE, Kind::Unknown),
            (404, TEXT, Kind::Unknown),
            (404, "{}", Kind::Unknown),
            (405, TEXT, Kind::Unknown),
            (409, TEXT, Kind::Unavailable),
            (429, TEXT, Kind::Limited),
            (500, CODED, Kind::Unavailable),
            (500, TEXT, Kind::Unavailable),
            (503, "", Kind::Unavailable),
        ] {
            assert_eq!(read(status, body).unwrap_err().kind, kind, "{status} {body}");
        }
    }

    #[test]
    fn only_words_of_stripe_s_are_kept() {
        let body = r#"{"error":{"type":"invalid_request_error","code":"resource_missing","param":"created[gte]",
            "message":"No such customer: 'jane@example.com'; needs 'rak_customer_read', says sk_live_hush"}}"#;
        let error = read(403, body).unwrap_err();
        let told = Told {
            kind: Some("invalid_request_error".to_owned()),
            code: Some("resource_missing".to_owned()),
            param: Some("created[gte]".to_owned()),
            permission: Some("rak_customer_read".to_owned()),
            request_id: Some("req_7".to_owned()),
        };
        assert_eq!(*error.told, told);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("jane") && !shown.contains("hush"), "{shown}");
    }

    #[test]
    fn the_date_is_read() {
        for (date, seconds) in
            [("Wed, 03 Jan 2001 12:00:00 GMT", Some(978_523_200)), ("yesterday", None), ("", None), ("978523200", None)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("date", date.parse().unwrap());
            assert_eq!(Answer::new(200, &headers, Vec::new()).date, seconds, "{date}");
        }
    }

    #[test]
    fn words_that_are_none_are_left_out() {
        let long = "x".repeat(81);
        for text in ["", "two words", "jane@example.com", "a\\nb", "ä", &long] {
            let body = format!(r#"{{"error":{{"type":"{text}","code":7,"param":null,"message":["rak_x"]}}}}"#);
            let error = read(404, &body).unwrap_err();
            assert_eq!(*error.told, Told { request_id: Some("req_7".to_owned()), ..Told::default() }, "{text}");
        }
    }
}
