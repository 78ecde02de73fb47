//! The answers of the contract, as JSON.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, LOCATION, RETRY_AFTER};
use serde::Serialize;

use crate::domain::ids::EventId;
use crate::ops::ingest::Answer;

/// When to try again after a 503, in seconds.
const RETRY_AFTER_S: u32 = 5;

#[derive(Serialize)]
struct Told<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    event_id: &'a str,
}

#[derive(Serialize)]
struct Refused<'a> {
    error: &'a str,
    message: &'a str,
}

/// The answer to a delivery.
pub(super) fn of_delivery(event: &EventId, answer: &Answer) -> HttpResponse {
    let told = Told { status: "completed", outcome: None, needs: None, reason: None, event_id: event.as_str() };
    match answer {
        Answer::Completed { outcome, reason } => {
            HttpResponse::Ok().json(Told { outcome: Some(outcome.as_str()), reason: reason.as_deref(), ..told })
        }
        Answer::Duplicate { outcome } => duplicate(event, outcome),
        Answer::Pending { needs } => {
            HttpResponse::Accepted().json(Told { status: "pending", needs: Some(needs), ..told })
        }
        Answer::DeadLetter { .. } => HttpResponse::Ok().json(Told { status: "dead_letter", ..told }),
        Answer::Failed { .. } => HttpResponse::InternalServerError().json(Told { status: "failed", ..told }),
    }
}

/// The answer to a repeat of a completed event.
pub(super) fn duplicate(event: &EventId, outcome: &str) -> HttpResponse {
    HttpResponse::Ok().json(Told {
        status: "duplicate",
        outcome: Some(outcome),
        needs: None,
        reason: None,
        event_id: event.as_str(),
    })
}

/// A 503 that asks for a repeat.
pub(super) fn try_again(error: &str, message: &str) -> HttpResponse {
    HttpResponse::ServiceUnavailable().insert_header((RETRY_AFTER, RETRY_AFTER_S)).json(Refused { error, message })
}

/// A 4xx with its reason.
pub(super) fn refused(status: StatusCode, error: &str, message: &str) -> HttpResponse {
    HttpResponse::build(status).json(Refused { error, message })
}

/// Another method than the path has.
pub(super) fn method_not_allowed(allowed: &'static str) -> HttpResponse {
    HttpResponse::MethodNotAllowed()
        .insert_header((ALLOW, allowed))
        .json(Refused { error: "method_not_allowed", message: "this path takes another method; see Allow" })
}

/// An unknown path.
pub(super) async fn not_found() -> HttpResponse {
    refused(StatusCode::NOT_FOUND, "not_found", "there is nothing here; webhooks go to the path of a [[webhook]]")
}

/// Sends a browser to another page.
pub(super) fn see_other(path: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, path)).finish()
}
