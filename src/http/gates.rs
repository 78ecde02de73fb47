//! The routes of the private listener: who may pass, and what every answer carries.
//!
//! A request passes the door (is this listener meant?) and then the gate of an area (who asks, and may they?). Areas
//! are branches of the routes, so what is routed to a handler has passed its gate, however its path is written.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{Payload, Server, ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::middleware::{Next, from_fn};
use actix_web::{Error, FromRequest as _, HttpMessage as _, HttpRequest, HttpResponse, web};
use serde::Deserialize;

use crate::config::Scope;
use crate::http::answer::see_other;
use crate::http::private::{BODY_BYTES_MAX, Private, forbidden, unauthorized};
use crate::http::problem::Problem;
use crate::http::{access, api, login, metrics, page, serve};

/// One thread reads requests and writes answers; whoever asks the database does it beside it.
const WORKERS: usize = 1;

/// How many may be connected at a time: a few people and programs, who are not many even with a browser each.
const CONNECTIONS_MAX: usize = 128;

/// On every answer, also on those of errors.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; \
         base-uri 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// Serves the private listener until it is told to stop.
///
/// # Errors
/// When the system does not let it listen.
pub fn serve_private(private: Arc<Private>, listener: TcpListener, grace: Duration) -> std::io::Result<Server> {
    serve(listener, WORKERS, CONNECTIONS_MAX, grace, move |routes| configure(routes, &private))
}

/// A branch of the routes, with its own answer to strangers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    /// For people.
    Pages,
    /// For the operators' programs.
    Api,
    /// For the user's own app.
    Accounts,
    /// For who watches.
    Metrics,
}

impl Area {
    fn is_open_to(self, scope: Scope) -> bool {
        match (self, scope) {
            (_, Scope::Operator) | (Self::Accounts, Scope::App) | (Self::Metrics, Scope::Metrics) => true,
            (_, Scope::App | Scope::Metrics) => false,
        }
    }

    /// Whether a browser without a session is sent to the form.
    fn has_a_form(self) -> bool {
        self == Self::Pages
    }
}

fn configure(routes: &mut web::ServiceConfig, private: &Arc<Private>) {
    let gate = |area: Area| {
        let private = Arc::clone(private);
        from_fn(move |request, next| gate(Arc::clone(&private), area, request, next))
    };
    let door = {
        let private = Arc::clone(private);
        from_fn(move |request, next| door(Arc::clone(&private), request, next))
    };
    let pages = web::scope("")
        .configure(page::configure)
        .service(login::logout())
        .default_service(web::to(no_page))
        .wrap(gate(Area::Pages));
    // The longer prefix comes first.
    let all = web::scope("")
        .service(login::login())
        .service(page::style())
        .service(api::accounts("/api/v1/accounts").default_service(web::to(not_found)).wrap(gate(Area::Accounts)))
        .service(api::operators("/api/v1").default_service(web::to(not_found)).wrap(gate(Area::Api)))
        .service(metrics::resource("/metrics").wrap(gate(Area::Metrics)))
        .service(pages)
        .wrap(door);
    routes
        .app_data(web::Data::from(Arc::clone(private)))
        .app_data(web::PayloadConfig::new(BODY_BYTES_MAX))
        .app_data(web::PathConfig::default().error_handler(|_, _| no_such_path().into()))
        .service(all)
        .default_service(web::to(no_path));
}

/// Is this listener meant? Whatever the answer is, it is told in time and with all headers.
async fn door(private: Arc<Private>, request: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse, Error> {
    if !private.access.is_reached_by_name(&request) {
        private.refusals.count("host", (private.clock)());
        let mut answer = request.into_response(misdirected().answer());
        secure(answer.headers_mut());
        return Ok(answer);
    }
    match tokio::time::timeout(private.request_timeout, next.call(request)).await {
        Ok(Ok(mut answer)) => {
            secure(answer.headers_mut());
            Ok(answer)
        }
        Ok(Err(error)) => Err(secured(error)),
        Err(_) => Err(secured(timeout().into())),
    }
}

/// Who asks, and may they? The answer to a stranger is the same whether there is such a path or not.
async fn gate(
    private: Arc<Private>,
    area: Area,
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let now = (private.clock)();
    let visitor = match private.access.visitor(request.headers(), now / 1000) {
        Ok(visitor) => visitor,
        Err(_) if area.has_a_form() && wants_html(request.headers()) => {
            return Ok(request.into_response(see_other(login::PATH)));
        }
        Err(stranger) => {
            private.refusals.count(stranger.code(), now);
            return Ok(request.into_response(unauthorized(stranger).answer()));
        }
    };
    if !area.is_open_to(visitor.scope) {
        private.refusals.count("scope", now);
        return Ok(request.into_response(forbidden(visitor.scope).answer()));
    }
    if let Some(csrf) = &visitor.csrf
        && !request.method().is_safe()
        && !carries(&mut request, csrf).await
    {
        private.refusals.count("csrf", now);
        return Ok(request.into_response(forged().answer()));
    }
    request.extensions_mut().insert(visitor);
    next.call(request).await
}

#[derive(Deserialize)]
struct Csrf {
    csrf: String,
}

/// Whether the body is a form that carries `csrf`; the body is put back.
async fn carries(request: &mut ServiceRequest, csrf: &str) -> bool {
    let Ok(body) = request.extract::<web::Bytes>().await else { return false };
    let form = web::Form::<Csrf>::from_request(request.request(), &mut Payload::from(body.clone())).await;
    request.set_payload(Payload::from(body));
    form.is_ok_and(|form| access::same(&form.csrf, csrf))
}

fn wants_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok()).any(|value| value.contains("text/html"))
}

fn secure(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn secured(error: Error) -> Error {
    let mut answer = error.error_response();
    secure(answer.headers_mut());
    InternalError::from_response(error, answer).into()
}

async fn not_found() -> HttpResponse {
    no_such_path().answer()
}

/// A person gets a page, from which others are to be reached.
async fn no_page(request: HttpRequest) -> HttpResponse {
    if wants_html(request.headers()) { page::not_found() } else { not_found().await }
}

fn no_such_path() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not-found", "Not found", "there is nothing at this path")
}

/// For targets that are no path, such as `*`: they come to no door.
async fn no_path() -> HttpResponse {
    let mut answer = not_found().await;
    secure(answer.headers_mut());
    answer
}

fn misdirected() -> Problem {
    Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "host",
        "Not under this name",
        "the Host of the request is neither a loopback name nor one of [admin] hosts; add it there if it is yours",
    )
}

fn forged() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "csrf",
        "Not from a page of this session",
        "a form of a session must carry its hidden field `csrf`; load the page again, or show a token",
    )
}

fn timeout() -> Problem {
    Problem::unavailable("timeout", "took longer than [server] request_timeout; what it was to change may still change")
}
