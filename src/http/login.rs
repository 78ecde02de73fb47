//! How a browser gets a session: the form takes a token of scope `operator`.

use actix_web::http::StatusCode;
use actix_web::http::header::SET_COOKIE;
use actix_web::{HttpRequest, HttpResponse, Resource, web};
use maud::html;
use serde::Deserialize;

use crate::http::access::{self, Token};
use crate::http::answer::see_other;
use crate::http::page::{self, mode};
use crate::http::private::{Operator, Private, forms, method_not_allowed, posts, reads};

/// Where to log in.
pub(super) const PATH: &str = "/login";

/// The most that is read of strangers, in bytes: a token is shorter.
const FORM_BYTES_MAX: usize = 4 << 10;

/// The form, and what takes it.
pub(super) fn login() -> Resource {
    reads(PATH, |private: web::Data<Private>| async move { form(&private, StatusCode::OK, None) })
        .app_data(forms(FORM_BYTES_MAX, Into::into))
        .route(web::post().to(take))
        .default_service(web::to(|| async { method_not_allowed("GET, HEAD, POST") }))
}

/// Ends the session of this browser.
pub(super) fn logout() -> Resource {
    posts("/logout", forget)
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

async fn take(private: web::Data<Private>, request: HttpRequest, form_data: web::Form<Login>) -> HttpResponse {
    let now = (private.clock)();
    let refuse = |status, code, problem| {
        private.refusals.count(code, now);
        form(&private, status, Some(problem))
    };
    match private.access.token(form_data.token.trim()) {
        None => refuse(StatusCode::UNAUTHORIZED, "token_unknown", "This is no token of this billingd."),
        Some(token) if !access::is_operator(token) => {
            refuse(StatusCode::FORBIDDEN, "scope", "This token is for programs. The page needs one of scope operator.")
        }
        Some(token) => begin(&private, &request, token, now / 1000),
    }
}

fn begin(private: &Private, request: &HttpRequest, token: &Token, now_s: i64) -> HttpResponse {
    let mut answer = see_other("/");
    set_cookie(&mut answer, &access::cookie(token, now_s, is_https(private, request)));
    answer
}

async fn forget(private: web::Data<Private>, request: HttpRequest, _operator: Operator) -> HttpResponse {
    let mut answer = see_other(PATH);
    set_cookie(&mut answer, &access::no_cookie(is_https(&private, &request)));
    answer
}

fn set_cookie(answer: &mut HttpResponse, cookie: &str) {
    // Hex, digits and our own words are always the value of a header.
    if let Ok(value) = cookie.parse() {
        answer.headers_mut().insert(SET_COOKIE, value);
    }
}

fn is_https(private: &Private, request: &HttpRequest) -> bool {
    private.access.is_https(request.peer_addr().map(|peer| peer.ip()), request.headers())
}

fn form(private: &Private, status: StatusCode, problem: Option<&str>) -> HttpResponse {
    let page = page::document(
        "Log in",
        &html! {
            main.narrow {
                h1 { "billingd " (mode(private.rules.policy.livemode)) }
                @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
                form.card method="post" action=(PATH) {
                    label for="token" { "Token of scope operator" }
                    input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
                    p.faint {
                        "The secret of an " code { "[[admin.token]]" } " with " code { "scope = \"operator\"" } " in the config; "
                        code { "billingd init" } " writes one."
                    }
                    button { "Log in" }
                }
            }
        },
    );
    HttpResponse::build(status).content_type("text/html; charset=utf-8").body(page.into_string())
}
