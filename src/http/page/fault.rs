//! Why a page cannot be shown, as a page.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
use maud::html;

use super::parts::sentence;
use super::shell::{answer, document, navigation};
use crate::http::problem::Problem;
use crate::store::StoreError;

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) struct Fault {
    status: StatusCode,
    title: &'static str,
    detail: String,
}

impl Fault {
    /// There is no such thing.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, title: "Not found", detail: detail.into() }
    }

    /// The request may mean several things.
    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::CONFLICT, title: "More than one", detail: detail.into() }
    }

    /// The request makes no sense.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, title: "Not understood", detail: detail.into() }
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        let status = problem.status_code();
        if status.is_client_error() {
            return Self { status, title: "Not understood", detail: problem.to_string() };
        }
        let detail = format!("{problem}. `journalctl -u billingd` and `billingd doctor` tell more");
        Self { status, title: "This cannot be shown now", detail }
    }
}

impl From<getrandom::Error> for Fault {
    fn from(_: getrandom::Error) -> Self {
        Problem::unavailable("unavailable", "there are no random numbers").into()
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ResponseError for Fault {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let body = html! {
            (navigation(""))
            main id="main" {
                h1 { (self.title) }
                p.problem role="alert" { (sentence(&self.detail)) }
            }
        };
        answer(self.status, &document(self.title, &body))
    }
}
