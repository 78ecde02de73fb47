//! The door for Stripe: body → signature → our own words → the writer → an answer that speaks of what is on disk.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, Resource, web};

use crate::domain::event::Event;
use crate::http::body::{self, NotTaken};
use crate::http::{Public, answer};
use crate::ops::alerts::Answered;
use crate::ops::ingest::{Answer, Delivery};
use crate::store::events::{self, Source};
use crate::store::payload::Payload;
use crate::store::writer::NotDone;
use crate::stripe::wire;

const SIGNATURE: &str = "stripe-signature";

/// The webhook at `path`; `index` is that of its endpoint.
pub(super) fn resource(path: &str, public: Arc<Public>, index: usize) -> Resource {
    let handler =
        move |request: HttpRequest, payload: web::Payload| receive(Arc::clone(&public), index, request, payload);
    web::resource(path)
        .route(web::post().to(handler))
        .default_service(web::to(|| async { answer::method_not_allowed("POST") }))
}

/// A delivery that was refused; nothing of it is stored.
struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

async fn receive(public: Arc<Public>, index: usize, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    let is_authentic = Cell::new(false);
    let work = deliver(&public, index, &request, payload, &is_authentic);
    match tokio::time::timeout(public.request_timeout, work).await {
        Ok(Ok(answer)) => {
            let how = if answer.status().is_success() { Answered::Well } else { Answered::Badly };
            public.tally.note(how, (public.clock)());
            answer
        }
        Ok(Err(refusal)) => {
            public.rejections.count(refusal.code, (public.clock)());
            if let Some(how) = refusal.answered(is_authentic.get()) {
                public.tally.note(how, (public.clock)());
            }
            if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
                return answer::try_again(refusal.code, &refusal.message);
            }
            answer::refused(refusal.status, refusal.code, &refusal.message)
        }
        Err(_) => {
            public.rejections.count("timeout", (public.clock)());
            // Anybody can send a body so slowly that it never ends.
            if is_authentic.get() {
                public.tally.note(Answered::Badly, (public.clock)());
            }
            answer::try_again(
                "timeout",
                "took longer than request_timeout; whether it is stored is open, a repeat is safe",
            )
        }
    }
}

async fn deliver(
    public: &Public,
    index: usize,
    request: &HttpRequest,
    payload: web::Payload,
    is_authentic: &Cell<bool>,
) -> Result<HttpResponse, Refusal> {
    let began = Instant::now();
    refuse_encoding(request.headers())?;
    let body = body::read(request, payload, public.body_bytes_max, &public.budget).await?;
    let received = (public.clock)();
    authenticate(public, index, request.headers(), &body.bytes, received)?;
    is_authentic.set(true);
    let event = wire::read(&body.bytes, &public.metadata_key)?;
    if let Some(completed) = completed_before(public, &event) {
        public.duplicates.note(&event.id, completed.received, received);
        public.deliveries.count_duplicate(&event.kind, began.elapsed());
        tracing::debug!(event_id = %event.id, r#type = event.kind, outcome = "duplicate", "webhook");
        return Ok(answer::duplicate(&event.id, &completed.outcome));
    }
    let payload = Payload::pack(&body.bytes).map_err(|error| {
        tracing::error!(event_id = %event.id, %error, "a payload was not packed");
        Refusal::unavailable()
    })?;
    // What waits counts as much as what arrives.
    let held = body.into_held();
    let (id, kind) = (event.id.clone(), event.kind.clone());
    let delivery = Delivery { event, payload: Some(payload), source: Source::Webhook, received };
    let ran = public.writer.run(delivery).await;
    drop(held);
    match ran {
        Ok(answer) => {
            public.deliveries.count(&answer, &kind, began.elapsed());
            log(id.as_str(), &kind, &answer, began);
            Ok(answer::of_delivery(&id, &answer))
        }
        Err(why) => Err(why.into()),
    }
}

/// Nothing of a body is parsed before its signature has been verified.
fn authenticate(public: &Public, index: usize, headers: &HeaderMap, body: &[u8], received: i64) -> Result<(), Refusal> {
    let lines: Vec<&[u8]> = headers.get_all(SIGNATURE).map(HeaderValue::as_bytes).collect();
    let endpoint = public.endpoints.get(index).ok_or_else(Refusal::unavailable)?;
    let secret = endpoint.verifier.verify(&lines, body, received / 1000).map_err(|rejection| Refusal {
        status: StatusCode::BAD_REQUEST,
        code: rejection.code(),
        message: rejection.message().into(),
    })?;
    public.verified.note(index, secret, received);
    Ok(())
}

/// Trouble with this look-up is no trouble: the writer finds the repeat as well.
fn completed_before(public: &Public, event: &Event) -> Option<events::Completed> {
    public.reader.read(|connection| events::completed(connection, &event.id)).unwrap_or_else(|error| {
        tracing::warn!(event_id = %event.id, %error, "the look-up of a repeat failed");
        None
    })
}

fn refuse_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(CONTENT_ENCODING).flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if codings.all(|coding| coding.trim_ascii().is_empty() || coding.trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    Err(Refusal {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        code: "unsupported_encoding",
        message: "the body must come as it was signed, without Content-Encoding".into(),
    })
}

impl Refusal {
    /// `None`: anybody could cause it, so it tells nothing of Stripe's deliveries. That holds even for a 503 before the
    /// signature is verified: whoever sends enough bodies at a time gets one.
    fn answered(&self, is_authentic: bool) -> Option<Answered> {
        match self.code {
            "signature_mismatch" => Some(Answered::Mismatched),
            // The signature is right, so it is no stranger.
            "timestamp_too_old" | "timestamp_in_future" => Some(Answered::Badly),
            _ => is_authentic.then_some(Answered::Badly),
        }
    }

    fn unavailable() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "storage_unavailable",
            message: "the delivery could not be taken".into(),
        }
    }
}

impl From<wire::NotAnEvent> for Refusal {
    fn from(error: wire::NotAnEvent) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: error.code(), message: error.to_string() }
    }
}

impl From<NotDone> for Refusal {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Overloaded => Self {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: "overloaded",
                message: "more deliveries are waiting than can be taken now".into(),
            },
            NotDone::Unavailable => Self {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: "storage_unavailable",
                message: "the database does not take writes now".into(),
            },
        }
    }
}

impl From<NotTaken> for Refusal {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::TooLarge => Self {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                code: "body_too_large",
                message: "the body is larger than [server] max_body".into(),
            },
            NotTaken::Overloaded => Self {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: "overloaded",
                message: "more deliveries are arriving than can be taken now".into(),
            },
            NotTaken::Broken => Self {
                status: StatusCode::BAD_REQUEST,
                code: "body_broken",
                message: "the body did not arrive whole".into(),
            },
        }
    }
}

fn log(event_id: &str, kind: &str, answer: &Answer, began: Instant) {
    let duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    match answer {
        Answer::Completed { outcome, .. } => {
            tracing::info!(event_id, r#type = kind, outcome = outcome.as_str(), duration_us, "webhook");
        }
        Answer::Duplicate { .. } => {
            tracing::debug!(event_id, r#type = kind, outcome = "duplicate", duration_us, "webhook");
        }
        Answer::Pending { needs } => {
            tracing::info!(event_id, r#type = kind, outcome = "pending", needs, duration_us, "webhook");
        }
        Answer::Failed { code, attempts } => {
            const SAID: &str = "the event failed, and Stripe sends it again: `billingd events show` tells why";
            tracing::warn!(event_id, r#type = kind, outcome = "failed", code, attempts, duration_us, "{SAID}");
        }
        Answer::DeadLetter { code, attempts } => {
            const SAID: &str = "a dead letter: `billingd events show` tells why";
            tracing::error!(event_id, r#type = kind, outcome = "dead_letter", code, attempts, duration_us, "{SAID}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_anybody_could_cause_is_neither_good_nor_bad() {
        let refused = |code: &'static str| Refusal { status: StatusCode::BAD_REQUEST, code, message: String::new() };
        for (refusal, is_authentic, expected) in [
            (Refusal::from(NotTaken::Overloaded), false, None),
            (Refusal::from(NotTaken::TooLarge), false, None),
            (refused("signature_missing"), false, None),
            (refused("signature_malformed"), false, None),
            (refused("signature_mismatch"), false, Some(Answered::Mismatched)),
            (refused("timestamp_too_old"), false, Some(Answered::Badly)),
            (refused("timestamp_in_future"), false, Some(Answered::Badly)),
            (refused("not_an_event"), true, Some(Answered::Badly)),
            (Refusal::from(NotDone::Overloaded), true, Some(Answered::Badly)),
            (Refusal::from(NotDone::Unavailable), true, Some(Answered::Badly)),
        ] {
            assert_eq!(refusal.answered(is_authentic), expected, "{}", refusal.code);
        }
    }
}
