//! What is around every page: head, navigation, and who is looking.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpRequest, HttpResponse, web};
use maud::{DOCTYPE, Markup, html};

use super::parts::query;
use crate::domain::event::UnixSeconds;
use crate::http::answer::see_other;
use crate::http::private::{Operator, Private};
use crate::http::problem::Problem;

/// Where the style sheet is.
pub(in crate::http) const STYLE: &str = "/style.css";

/// The pages that each page leads to.
const PLACES: [(&str, &str); 6] = [
    ("/", "Overview"),
    ("/events", "Events"),
    ("/accounts", "Accounts"),
    ("/findings", "Findings"),
    ("/jobs", "Jobs"),
    ("/audit", "Audit"),
];

/// Who looks, and when.
pub(super) struct Frame {
    pub(super) operator: Operator,
    pub(super) now: UnixSeconds,
}

impl FromRequest for Frame {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let clock = request.app_data::<web::Data<Private>>().map(|private| private.clock);
        let clock = clock.ok_or_else(|| Problem::unavailable("unavailable", "the server is going away"));
        ready(clock.and_then(|clock| {
            let operator = Operator::from_request(request, payload).into_inner()?;
            Ok(Self { operator, now: clock() / 1000 })
        }))
    }
}

impl Frame {
    /// What each form that changes something carries.
    pub(super) fn csrf(&self) -> Markup {
        html! { input type="hidden" name="csrf" value=(self.operator.csrf); }
    }

    /// A page at one of the [`PLACES`], or below it.
    pub(super) fn page(&self, place: &str, title: &str, body: &Markup) -> Markup {
        document(
            title,
            &html! {
                (navigation(place))
                main id="main" { (body) }
                footer {
                    p { "Times are UTC. You are " strong { (self.operator.name) } "." }
                    // Who shows a token has no session to end.
                    @if !self.operator.csrf.is_empty() {
                        form method="post" action="/logout" { (self.csrf()) button { "Log out" } }
                    }
                }
            },
        )
    }

    pub(super) fn answer(&self, place: &str, title: &str, body: &Markup) -> HttpResponse {
        answer(StatusCode::OK, &self.page(place, title, body))
    }
}

/// A page as an answer.
pub(super) fn answer(status: StatusCode, page: &Markup) -> HttpResponse {
    HttpResponse::build(status).content_type("text/html; charset=utf-8").body(page.0.clone())
}

pub(super) fn navigation(place: &str) -> Markup {
    html! {
        a.skip href="#main" { "To the content" }
        header {
            nav aria-label="Pages" {
                @for (path, name) in PLACES {
                    a href=(path) aria-current=[(path == place).then_some("page")] { (name) }
                }
            }
        }
    }
}

/// Whether it is about real money.
pub(in crate::http) fn mode(is_live: bool) -> Markup {
    html! { span class={ "mark " @if is_live { "live" } @else { "plain" } } { @if is_live { "live" } @else { "test" } " mode" } }
}

/// A whole document.
pub(in crate::http) fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – billingd" }
                link rel="stylesheet" href=(STYLE);
                link rel="icon" href="data:,";
            }
            body { (body) }
        }
    }
}

/// What is told for a word that [`to_the_story`] sent; nothing for any other.
pub(super) fn was_done(words: &[(&str, &'static str)], done: Option<&str>) -> Option<&'static str> {
    words.iter().find(|(word, _)| Some(*word) == done).map(|(_, text)| *text)
}

/// To the page that shows what was done; `done` is a word of ours.
pub(super) fn to_the_story(path: &str, done: &str) -> HttpResponse {
    see_other(&query(path, &[("done", done)]))
}
