//! What goes wrong on the private listener, as RFC 9457 has it: `application/problem+json`.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use serde_json::json;

/// A problem; `type` is `urn:billingd:problem:` and its code.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem of a kind: `title` is the same for all of them, `detail` says what happened and what to do.
    pub(super) fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, title, detail: detail.into(), headers: Vec::new() }
    }

    /// One more header of the answer.
    pub(super) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    pub(super) fn answer(&self) -> HttpResponse {
        let body = json!({
            "type": format!("urn:billingd:problem:{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut answer = HttpResponse::build(self.status);
        for header in &self.headers {
            answer.insert_header(header.clone());
        }
        answer.content_type("application/problem+json").body(body.to_string())
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
