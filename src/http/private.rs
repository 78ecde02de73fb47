//! What the handlers of the private listener work with: the books, who asks, and how a path takes methods.

use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, WWW_AUTHENTICATE};
use actix_web::web::{FormConfig, QueryConfig};
use actix_web::{
    Error, FromRequest, Handler, HttpMessage as _, HttpRequest, HttpResponse, Resource, Responder, ResponseError as _,
    web,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::UnixMillis;
use crate::config::Scope;
use crate::http::access::{Access, Stranger, Visitor};
use crate::http::problem::Problem;
use crate::http::{Public, Rejections};
use crate::ops::ingest::{Ingest, Rules};
use crate::ops::overview::Scene;
use crate::store::StoreError;
use crate::store::reader::Reader;
use crate::store::writer::Writer;

/// The largest body that is read of who has passed a gate.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;

/// How many may write at a time, so that a busy app leaves the webhooks their part of the writer.
const WRITES_MAX: usize = 8;

/// Everything that the private listener needs.
#[derive(Debug)]
pub struct Private {
    /// Whom it serves.
    pub access: Access,
    /// Where operators and apps write.
    pub writer: Writer<Ingest>,
    /// What the app's accounts and the metrics are read through: look-ups that end at once.
    pub quick: Readers,
    /// What people read through: pages, and the lists of the operators' API, which may take seconds.
    pub lists: Readers,
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
pub struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(WRITES_MAX)))
    }
}

/// Connections that read, taken neither from a webhook nor from each other. Who waits for one holds no thread.
#[derive(Debug)]
pub struct Readers {
    reader: Reader,
    turns: Arc<Semaphore>,
}

impl Readers {
    /// As [`Reader::open`].
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open(database: &Path, connections: u32) -> Result<Self, StoreError> {
        let turns = usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS);
        Ok(Self { reader: Reader::open(database, connections)?, turns: Arc::new(Semaphore::new(turns)) })
    }

    /// Reads, beside the thread that serves.
    pub(super) async fn read<T, E, R>(&self, read: R) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Into<Problem> + Send + 'static,
        R: FnOnce(&Reader) -> Result<T, E> + Send + 'static,
    {
        let turn = turn(&self.turns).await?;
        let reader = self.reader.clone();
        beside(turn, move || read(&reader)).await
    }
}

impl Private {
    /// Writes, in the writer's turn. Who goes away before a turn is free has changed nothing; a turn that has begun goes
    /// on to its end, whether somebody still waits for the answer or not, and is not free before.
    pub(super) async fn write<T, E, W>(&self, write: W) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Into<Problem> + Send + 'static,
        W: FnOnce(&mut Writer<Ingest>) -> Result<T, E> + Send + 'static,
    {
        let turn = turn(&self.turns.0).await?;
        let mut writer = self.writer.clone();
        beside(turn, move || write(&mut writer)).await
    }
}

/// Waits for a turn without holding a thread. It belongs to the work and not to the request, which may end sooner.
async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    Arc::clone(turns).acquire_owned().await.map_err(|_| going_away())
}

async fn beside<T, E>(
    turn: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Problem>
where
    T: Send + 'static,
    E: Into<Problem> + Send + 'static,
{
    let work = move || {
        let done = work();
        drop(turn);
        done
    };
    match web::block(work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(going_away()),
    }
}

fn going_away() -> Problem {
    Problem::unavailable("unavailable", "the server is going away")
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

/// A path that is only posted to.
pub(super) fn posts<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    web::resource(path).route(web::post().to(handler)).default_service(web::to(|| async { method_not_allowed("POST") }))
}

/// How forms are read, and what is answered where one cannot be. The answer says nothing of what was sent.
pub(super) fn forms(bytes_max: usize, answer: fn(Problem) -> Error) -> FormConfig {
    FormConfig::default().limit(bytes_max).error_handler(move |error, _| {
        let status = error.status_code();
        let detail = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "the form is too large",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "send a form, as `application/x-www-form-urlencoded`",
            _ => "a field of the form is missing or cannot be read",
        };
        answer(Problem::new(status, "form", "No such form", detail))
    })
}

/// What is answered where the parameters of a path cannot be read.
pub(super) fn parameters(answer: fn(Problem) -> Error) -> QueryConfig {
    QueryConfig::default().error_handler(move |error, _| {
        let detail = "a parameter of the address cannot be read";
        answer(Problem::new(error.status_code(), "parameter", "A parameter cannot be read", detail))
    })
}

/// Another method than the path has.
pub(super) fn method_not_allowed(allowed: &'static str) -> HttpResponse {
    let detail = format!("this path takes {allowed}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
        .header(ALLOW, allowed)
        .answer()
}

/// Nobody knows who asks.
pub(super) fn unauthorized(stranger: Stranger) -> Problem {
    let detail = match stranger {
        Stranger::Nothing => "send `Authorization: Bearer TOKEN` with a token of [[admin.token]], or log in at /login",
        Stranger::Token => "the token is none of [[admin.token]]",
        Stranger::Session => "the session has ended; log in again at /login",
    };
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Not authenticated", detail)
        .header(WWW_AUTHENTICATE, "Bearer realm=\"billingd\"")
}

/// The token is for other paths.
pub(super) fn forbidden(scope: Scope) -> Problem {
    let detail = format!("a token of scope {} does not open this path", scope.as_str());
    Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not for this token", detail)
}
