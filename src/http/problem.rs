//! What goes wrong on the private listener, as RFC 9457 has it: `application/problem+json`.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use serde_json::{Map, Value};

use crate::store::StoreError;
use crate::store::reader::READ_TIMEOUT;

/// When to try again after a 503, in seconds.
const RETRY_AFTER_S: &str = "5";

/// A problem; `type` is `urn:billingd:problem:` and its code.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem of a kind: `title` is the same for all of them, `detail` says what happened and what to do.
    pub(super) fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, title, detail: detail.into(), members: Map::new(), headers: Vec::new() }
    }

    /// One more thing that a program can read.
    pub(super) fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// One more header of the answer.
    pub(super) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Nothing is wrong with the request: try again.
    pub(super) fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, "Not now", detail).header(RETRY_AFTER, RETRY_AFTER_S)
    }

    pub(super) fn answer(&self) -> HttpResponse {
        let mut body = self.members.clone();
        body.insert("type".into(), format!("urn:billingd:problem:{}", self.code).into());
        body.insert("title".into(), self.title.into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("detail".into(), self.detail.as_str().into());
        let mut answer = HttpResponse::build(self.status);
        for header in &self.headers {
            answer.insert_header(header.clone());
        }
        answer.content_type("application/problem+json").body(Value::Object(body).to_string())
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        self.answer()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if error.is_timeout() {
            return took_too_long();
        }
        if error.is_environmental() {
            tracing::warn!(%error, "a request to the private listener was not done");
            return Self::unavailable("unavailable", "the database does not take this now; nothing has changed");
        }
        tracing::error!(%error, "a request to the private listener failed");
        let detail = "this is a bug or a damaged database; the log says more";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Failed", detail)
    }
}

/// The same again would take as long, so no time is told to try again.
fn took_too_long() -> Problem {
    let detail = format!(
        "to read this took longer than {} s and was given up; narrow it with `since` or `before`",
        READ_TIMEOUT.as_secs()
    );
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "slow", "Takes too long", detail)
}
