//! The private listener: who may pass, and what every answer carries.
//!
//! A request passes the door (is this listener meant?) and then the gate of an area (who asks, and may they?). Areas
//! are branches of the routes, so what is routed to a handler has passed its gate, however its path is written.

use std::future::{Ready, ready};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{Payload, Server, ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::middleware::{Next, from_fn};
use actix_web::{Error, FromRequest, Handler, HttpMessage as _, HttpRequest, HttpResponse, Resource, Responder, web};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::clock::UnixMillis;
use crate::config::Scope;
use crate::http::access::{self, Access, Stranger, Visitor};
use crate::http::problem::Problem;
use crate::http::{Public, Rejections, api, login, metrics, page, serve};
use crate::ops::ingest::{Ingest, Rules};
use crate::ops::overview::Scene;
use crate::store::reader::Reader;
use crate::store::writer::Writer;

/// The largest body that is read here.
const BODY_BYTES_MAX: usize = 64 << 10;

/// One thread reads requests and writes answers; whoever asks the database does it beside it.
const WORKERS: usize = 1;

/// How many may write at a time, so that a busy app leaves the webhooks their part of the writer.
const WRITES_MAX: usize = 8;

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

/// Everything that the private listener needs.
#[derive(Debug)]
pub struct Private {
    /// Whom it serves.
    pub access: Access,
    /// Where operators and apps write.
    pub writer: Writer<Ingest>,
    /// Connections of its own: it never takes one from a webhook.
    pub reader: Reader,
    /// What decides about the events of operators.
    pub rules: Rules,
    /// The public listener, of which the metrics tell.
    pub public: Arc<Public>,
    /// Who may write now.
    pub turns: Turns,
    /// Counts whom it did not serve.
    pub refusals: Rejections,
    /// The longest that a request may take.
    pub request_timeout: Duration,
    /// The database.
    pub database: PathBuf,
    /// When the server started.
    pub started: UnixMillis,
    /// What the one screen is about.
    pub scene: Scene,
    /// The time of day.
    pub clock: fn() -> UnixMillis,
}

/// Who may write now; each of them costs the webhooks a flush of the disk.
#[derive(Debug)]
pub struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(WRITES_MAX))
    }
}

impl Private {
    /// Reads, beside the thread that serves: a read may take some seconds.
    pub(super) async fn read<T, E, R>(&self, read: R) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Into<Problem> + Send + 'static,
        R: FnOnce(&Reader) -> Result<T, E> + Send + 'static,
    {
        let reader = self.reader.clone();
        beside(move || read(&reader)).await
    }

    /// Writes, in the writer's turn. Who waits too long for it has changed nothing.
    pub(super) async fn write<T, E, W>(&self, write: W) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Into<Problem> + Send + 'static,
        W: FnOnce(&mut Writer<Ingest>) -> Result<T, E> + Send + 'static,
    {
        let Ok(_turn) = self.turns.0.acquire().await else {
            return Err(Problem::unavailable("unavailable", "the server is going away"));
        };
        let mut writer = self.writer.clone();
        beside(move || write(&mut writer)).await
    }
}

async fn beside<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, Problem>
where
    T: Send + 'static,
    E: Into<Problem> + Send + 'static,
{
    match web::block(work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(Problem::unavailable("unavailable", "the server is going away")),
    }
}

/// Serves the private listener until it is told to stop.
///
/// # Errors
/// When the system does not let it listen.
pub fn serve_private(private: Arc<Private>, listener: TcpListener, grace: Duration) -> std::io::Result<Server> {
    serve(listener, WORKERS, grace, move |routes| configure(routes, &private))
}

/// An operator who has passed the gate. The audit calls them `operator:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operator {
    /// The name of the token.
    pub(super) name: String,
    /// What each form must carry in its hidden field `csrf`; empty for who shows a token, who needs none.
    pub(super) csrf: String,
}

impl FromRequest for Operator {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _payload: &mut Payload) -> Self::Future {
        ready(admitted(request).and_then(|visitor| match visitor.scope {
            Scope::Operator => Ok(Self { name: visitor.name, csrf: visitor.csrf.unwrap_or_default() }),
            scope => Err(forbidden(scope)),
        }))
    }
}

impl FromRequest for Visitor {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _payload: &mut Payload) -> Self::Future {
        ready(admitted(request))
    }
}

/// Whom the gate has let in. A handler that stands outside of all gates stays closed.
fn admitted(request: &HttpRequest) -> Result<Visitor, Problem> {
    request.extensions().get::<Visitor>().cloned().ok_or_else(|| unauthorized(Stranger::Nothing))
}

/// A path that is only read: GET, and HEAD.
pub(super) fn reads<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    web::resource(path)
        .route(web::get().to(handler.clone()))
        .route(web::head().to(handler))
        .default_service(web::to(|| async { method_not_allowed("GET, HEAD") }))
}

/// Another method than the path has.
pub(super) fn method_not_allowed(allowed: &'static str) -> HttpResponse {
    let detail = format!("this path takes {allowed}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
        .header(ALLOW, allowed)
        .answer()
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
        .configure(|routes| page::configure(routes, private))
        .service(login::logout())
        .default_service(web::to(not_found))
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
        .app_data(web::FormConfig::default().limit(BODY_BYTES_MAX))
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
            return Ok(request.into_response(login::see_other(login::PATH)));
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

fn unauthorized(stranger: Stranger) -> Problem {
    let detail = match stranger {
        Stranger::Nothing => "send `Authorization: Bearer TOKEN` with a token of [[admin.token]], or log in at /login",
        Stranger::Token => "the token is none of [[admin.token]]",
        Stranger::Session => "the session has ended; log in again at /login",
    };
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unknown", detail)
        .header(WWW_AUTHENTICATE, "Bearer realm=\"billingd\"")
}

fn forbidden(scope: Scope) -> Problem {
    let detail = format!("a token of scope {} does not open this path", scope.as_str());
    Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not for this token", detail)
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
