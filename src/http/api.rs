//! The JSON API: accounts for the user's own app; events, findings and the audit log for operators.
//!
//! Operators are answered what the commands print with `--json`. What goes wrong is a [`Problem`]. No answer holds a
//! payload.

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, Scope, web};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use crate::clock::{self, UnixMillis};
use crate::config;
use crate::http::access::Visitor;
use crate::http::private::{Private, method_not_allowed, reads};
use crate::http::problem::Problem;
use crate::ops::adjust::{self, AdjustError, Adjustment};
use crate::ops::findings::Advised;
use crate::ops::{fresh, story};
use crate::store::events::{self, Filter};
use crate::store::findings;
use crate::store::views::{self, AuditFilter};

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The longest key, in characters.
const KEY_LENGTH_MAX: usize = 255;

/// The most rows of one answer.
const LIMIT_MAX: i64 = 1_000;

/// What the user's own app asks for.
pub(super) fn accounts(prefix: &str) -> Scope {
    web::scope(prefix).service(reads("/{account}", account)).service(
        web::resource("/{account}/adjustments")
            .route(web::post().to(adjustment))
            .default_service(web::to(|| async { method_not_allowed("POST") })),
    )
}

/// What operators ask for.
pub(super) fn operators(prefix: &str) -> Scope {
    web::scope(prefix)
        .service(reads("/events", list_events))
        .service(reads("/events/{event}", event))
        .service(reads("/findings", list_findings))
        .service(reads("/audit", list_audit))
}

async fn account(private: web::Data<Private>, name: web::Path<String>) -> Result<HttpResponse, Problem> {
    let state =
        private.quick.read(move |reader| reader.read(|connection| Ok(story::state_of(connection, &name)))?).await?;
    Ok(HttpResponse::Ok().json(state))
}

/// The body of an adjustment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(deserialize_with = "whole")]
    amount: i64,
    #[serde(default = "credits")]
    unit: String,
    reason: String,
    #[serde(default)]
    allow_debt: bool,
}

/// Its complaint is for whoever has never heard of our types.
fn whole<'de, D: Deserializer<'de>>(amount: D) -> Result<i64, D::Error> {
    i64::deserialize(amount).map_err(|_| D::Error::custom("`amount` must be a whole number, such as 40 or -40"))
}

fn credits() -> String {
    "credits".to_owned()
}

async fn adjustment(
    private: web::Data<Private>,
    visitor: Visitor,
    name: web::Path<String>,
    request: HttpRequest,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Problem> {
    let key = key(request.headers())?;
    if !request.content_type().eq_ignore_ascii_case("application/json") {
        let detail = "send the adjustment as JSON, with `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "Not sent as JSON", detail));
    }
    let asked: Asked = serde_json::from_slice(&body.map_err(|error| no_body(&error))?)
        .map_err(|error| unprocessable(format!("the body is no adjustment: {error}")))?;
    let now = (private.clock)();
    let adjustment = Adjustment {
        account: name.into_inner(),
        amount: asked.amount,
        unit: asked.unit,
        reason: asked.reason,
        key,
        allow_debt: asked.allow_debt,
        operator: visitor.name,
    };
    let event = fresh::event_id(now).map_err(|_| Problem::unavailable("unavailable", "there are no random numbers"))?;
    let livemode = private.rules.policy.livemode;
    let adjusted = private.write(move |writer| adjust::adjust(writer, &adjustment, &event, livemode, now)).await?;
    let mut answer = if adjusted.new { HttpResponse::Created() } else { HttpResponse::Ok() };
    Ok(answer.json(adjusted))
}

/// What makes a repeat a repeat.
fn key(headers: &HeaderMap) -> Result<String, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY);
    let only = keys.next().filter(|_| keys.next().is_none()).and_then(|key| key.to_str().ok()).map(str::trim);
    only.filter(|key| (1..=KEY_LENGTH_MAX).contains(&key.len())).map(str::to_owned).ok_or_else(|| {
        let detail = "send one header `Idempotency-Key` of 1 to 255 ASCII characters that names this change, such as \
                      order-17: the same again then changes nothing";
        Problem::new(StatusCode::BAD_REQUEST, "key-missing", "No idempotency key", detail)
    })
}

fn no_body(error: &actix_web::Error) -> Problem {
    match error.as_response_error().status_code() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let detail = "the body is larger than 64 KiB";
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large", detail)
        }
        _ => Problem::new(StatusCode::BAD_REQUEST, "body-broken", "No whole body", "the body did not arrive whole"),
    }
}

fn unprocessable(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid request", detail)
}

impl From<AdjustError> for Problem {
    fn from(error: AdjustError) -> Self {
        let detail = error.to_string();
        match error {
            AdjustError::UnknownAccount(name) => {
                let detail = format!("no account has the id or the reference {name}");
                Self::new(StatusCode::NOT_FOUND, "unknown-account", "No such account", detail)
            }
            AdjustError::AmbiguousAccount { accounts, .. } => {
                Self::new(StatusCode::CONFLICT, "ambiguous-account", "Several accounts", detail)
                    .member("accounts", accounts)
            }
            AdjustError::KeyTaken { .. } => {
                Self::new(StatusCode::CONFLICT, "key-taken", "The key was used for something else", detail)
            }
            AdjustError::Insufficient { needed, available, unit } => {
                Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient", "Not enough", detail)
                    .member("needed", needed)
                    .member("available", available)
                    .member("unit", unit)
            }
            AdjustError::Invalid(_) => unprocessable(detail),
            AdjustError::Store(error) => error.into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsAsked {
    status: Option<String>,
    outcome: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    account: Option<String>,
    since: Option<String>,
    before: Option<String>,
    limit: Option<i64>,
}

async fn list_events(private: web::Data<Private>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let asked: EventsAsked = query(&request)?;
    one_of("status", asked.status.as_deref(), &events::STATUSES)?;
    one_of("outcome", asked.outcome.as_deref(), &events::OUTCOMES)?;
    let filter = Filter {
        status: asked.status,
        outcome: asked.outcome,
        kind: asked.kind,
        account: account_named(&private, asked.account).await?,
        since: moment(asked.since.as_deref(), (private.clock)())?,
        before: asked.before,
        limit: limit(asked.limit, 50)?,
    };
    let found = private.lists.read(move |reader| reader.read(|connection| events::list(connection, &filter))).await?;
    Ok(HttpResponse::Ok().json(found))
}

async fn event(private: web::Data<Private>, id: web::Path<String>) -> Result<HttpResponse, Problem> {
    let story = private.lists.read(move |reader| reader.read(|connection| story::of_event(connection, &id))).await?;
    let story = story
        .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "unknown-event", "No such event", "no event has this id"))?;
    Ok(HttpResponse::Ok().json(story))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FindingsAsked {
    status: Option<String>,
    limit: Option<i64>,
}

async fn list_findings(private: web::Data<Private>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let asked: FindingsAsked = query(&request)?;
    let status = asked.status.unwrap_or_else(|| "open".to_owned());
    one_of("status", Some(&status), &["open", "acknowledged", "resolved", "all"])?;
    let limit = limit(asked.limit, 200)?;
    let rows = private
        .lists
        .read(move |reader| {
            let status = Some(status.as_str()).filter(|status| *status != "all");
            reader.read(|connection| findings::list(connection, status, limit))
        })
        .await?;
    Ok(HttpResponse::Ok().json(rows.into_iter().map(Advised::new).collect::<Vec<_>>()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditAsked {
    account: Option<String>,
    event: Option<String>,
    since: Option<String>,
    before: Option<i64>,
    limit: Option<i64>,
}

async fn list_audit(private: web::Data<Private>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let asked: AuditAsked = query(&request)?;
    let filter = AuditFilter {
        account: account_named(&private, asked.account).await?,
        event: asked.event,
        since: moment(asked.since.as_deref(), (private.clock)())?,
        before: asked.before,
        limit: limit(asked.limit, 50)?,
    };
    let found = private.lists.read(move |reader| reader.read(|connection| views::audit(connection, &filter))).await?;
    Ok(HttpResponse::Ok().json(found))
}

/// The parameters of a request; one that is not known is refused, since it would choose nothing.
fn query<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, Problem> {
    web::Query::<T>::from_query(request.query_string())
        .map(web::Query::into_inner)
        .map_err(|error| bad_parameter(error.to_string()))
}

fn bad_parameter(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "parameter", "A parameter cannot be read", detail)
}

fn one_of(name: &str, value: Option<&str>, words: &[&str]) -> Result<(), Problem> {
    if value.is_none_or(|value| words.contains(&value)) {
        return Ok(());
    }
    Err(bad_parameter(format!("{name} must be one of {}", words.join(", "))))
}

fn limit(asked: Option<i64>, usual: i64) -> Result<i64, Problem> {
    let limit = asked.unwrap_or(usual);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(bad_parameter(format!("limit must be from 1 to {LIMIT_MAX}")));
    }
    Ok(limit)
}

/// Seconds of the moment that lies `since` before now.
fn moment(since: Option<&str>, now: UnixMillis) -> Result<Option<i64>, Problem> {
    let Some(text) = since else { return Ok(None) };
    let duration = config::parse_duration(text).map_err(|error| bad_parameter(format!("since: {error}")))?;
    Ok(Some(clock::seconds_before(now, duration)))
}

/// The id of the account that an id or a reference names.
async fn account_named(private: &Private, name: Option<String>) -> Result<Option<String>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let id = private
        .lists
        .read(move |reader| reader.read(|connection| Ok(adjust::find_account(connection, &name)))?)
        .await?;
    Ok(Some(id.to_string()))
}
