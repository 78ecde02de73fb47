//! Asks Stripe's REST API: bytes of JSON in answer to a path and a query, and when they were told.
//!
//! Everything that asks Stripe does so through [`Api`], so that a test can answer without a network; [`Client`] is the
//! one that goes out. It repeats and waits as the official SDKs do, keeps within a budget that all its clones share,
//! never follows a redirect, and never tells the key. What the bytes mean is read elsewhere.

mod answer;
mod budget;
mod error;
mod pace;
mod pages;
mod retry;
mod url;

use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::http::HeaderValue;
use ureq::http::uri::Uri;

use crate::config::{CalledUrl, Secret};
use crate::domain::ids::EventId;
use crate::outgoing;
use crate::stop::Stop;

pub use answer::{Answer, Dated, Hints, Missed};
use budget::Budget;
pub use error::{ApiError, Kind};
pub use pace::{Pace, WallTime};
pub use pages::{Page, Pages};
pub use url::path;

/// The version of the API whose shapes are asked for: the newest that [`super::wire`] was written against.
pub const STRIPE_VERSION: &str = "2025-11-17.clover";

/// The longest `Idempotency-Key` that Stripe takes, in bytes.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Asks Stripe.
pub trait Api: Send + Sync {
    /// The JSON object that Stripe answers with. `path` begins with `/v1/` or `/v2/`, its ids encoded as by [`path`];
    /// the query is encoded here.
    ///
    /// # Errors
    /// [`ApiError`], whose kind says what a caller can do.
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError>;
}

/// What a client needs to know.
#[derive(Clone)]
pub struct Settings {
    /// Where the API is, without `/v1`.
    pub base: CalledUrl,
    /// The key; a restricted one that may only read is enough.
    pub key: Secret,
    /// The connected account that is asked about; none: the account of the key.
    pub connected_account: Option<String>,
    /// How long and how much.
    pub limits: Limits,
    /// Ends all waiting.
    pub stop: Stop,
    /// Time, waiting and chance.
    pub pace: Arc<dyn Pace>,
}

/// How long and how much. The defaults are those of the official SDKs, and a tenth of what Stripe allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a connection, with its encryption.
    pub connect: Duration,
    /// For one attempt as a whole, until the last byte.
    pub attempt: Duration,
    /// Attempts after the first one.
    pub repeats: u32,
    /// The largest body of an answer, in bytes.
    pub answer_bytes_max: u64,
    /// Requests a second, on average.
    pub per_second: NonZeroU32,
    /// Requests at the same time.
    pub at_once: NonZeroU32,
}

impl Default for Limits {
    fn default() -> Self {
        const PER_SECOND: NonZeroU32 = NonZeroU32::new(10).unwrap();
        const AT_ONCE: NonZeroU32 = NonZeroU32::new(4).unwrap();
        Self {
            connect: Duration::from_secs(30),
            attempt: Duration::from_secs(80),
            repeats: 2,
            answer_bytes_max: 16 << 20,
            per_second: PER_SECOND,
            at_once: AT_ONCE,
        }
    }
}

impl Settings {
    /// The usual limits, in real time.
    #[must_use]
    pub fn new(base: CalledUrl, key: Secret) -> Self {
        let pace = Arc::new(WallTime::default());
        Self { base, key, connected_account: None, limits: Limits::default(), stop: Stop::default(), pace }
    }
}

/// Settings that nothing can be asked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The address of the API is more than an address.
    #[error("stripe.api_base must not have a query or a user; write one such as \"https://api.stripe.com\"")]
    Base,
    /// No header can carry the key.
    #[error("stripe.api_key has letters that no key has; copy it again")]
    Key,
    /// No header can carry the account.
    #[error("stripe.connected_account has letters that no account has; copy it again")]
    Account,
}

/// The client that goes out. Clones share connections and budget. A request that is under way is not broken off by
/// [`Stop`], everything else is: whoever stops need not wait for more than [`Limits::attempt`].
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    agent: Agent,
    base: String,
    /// Marked as sensitive, so that it is not printed.
    authorization: HeaderValue,
    account: Option<HeaderValue>,
    limits: Limits,
    budget: Budget,
    stop: Stop,
    pace: Arc<dyn Pace>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

/// What is asked, in the letters that are sent.
struct Question<'a> {
    path: &'a str,
    /// The query of a GET, the body of a POST.
    pairs: String,
    /// The key under which a POST counts once; none: a GET.
    idempotency_key: Option<HeaderValue>,
}

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// [`Unusable`]; never tells the key.
    pub fn new(settings: Settings) -> Result<Self, Unusable> {
        let Settings { base, key, connected_account, limits, stop, pace } = settings;
        let base = base.expose().trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| Unusable::Base)?;
        let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
        if has_user || uri.query().is_some() || base.contains('#') {
            return Err(Unusable::Base);
        }
        let bearer =
            Some(format!("Bearer {}", key.expose())).filter(|bearer| bearer.is_ascii()).ok_or(Unusable::Key)?;
        let mut authorization = HeaderValue::try_from(bearer).map_err(|_| Unusable::Key)?;
        authorization.set_sensitive(true);
        let account = connected_account.map(HeaderValue::try_from).transpose().map_err(|_| Unusable::Account)?;
        let budget = Budget::new(limits.per_second, limits.at_once);
        let agent = agent(&limits, uri.scheme_str() == Some("https"));
        Ok(Self(Arc::new(Inner { agent, base, authorization, account, limits, budget, stop, pace })))
    }

    /// Changes something at Stripe because of an event. However often this is repeated for one event, within a day it
    /// counts once: the event's id is the `Idempotency-Key`.
    ///
    /// # Errors
    /// [`ApiError`]; [`Kind::Rejected`] without asking if the id of the event cannot be such a key (more than 255
    /// bytes, or letters that no header may have).
    pub fn post(&self, cause: &EventId, path: &str, form: &[(&str, &str)]) -> Result<Vec<u8>, ApiError> {
        let key = Some(cause.as_str()).filter(|id| id.is_ascii() && id.len() <= IDEMPOTENCY_KEY_BYTES_MAX);
        let key = key.and_then(|id| HeaderValue::try_from(id).ok());
        let unfit = || ApiError::new(Kind::Rejected, path, "the id of the event cannot be an Idempotency-Key");
        let question = Question { path, pairs: url::pairs(form), idempotency_key: Some(key.ok_or_else(unfit)?) };
        Ok(self.ask(&question)?.told)
    }

    /// Asks until there is an answer, or no hope of one.
    fn ask(&self, question: &Question<'_>) -> Result<Dated<Vec<u8>>, ApiError> {
        if !url::is_path(question.path) {
            let start = question.path.split(['?', '#']).next().unwrap_or_default();
            return Err(ApiError::new(Kind::Rejected, start, "this is no path"));
        }
        let Inner { limits, budget, stop, pace, .. } = &*self.0;
        let stopped = || ApiError::new(Kind::Stopped, question.path, "billingd is being stopped");
        let mut attempts = 0;
        loop {
            let permit = budget.take(pace.as_ref(), stop).ok_or_else(stopped)?;
            let answer = self.ask_once(question);
            drop(permit);
            attempts += 1;
            let missed = match answer {
                Ok(told) => return Ok(told),
                Err(missed) => missed,
            };
            match retry::delay(&missed, attempts, pace.chance()) {
                Some(delay) if attempts <= limits.repeats => pace.wait(delay, stop),
                _ => return Err(missed.error),
            }
        }
    }

    fn ask_once(&self, question: &Question<'_>) -> Result<Dated<Vec<u8>>, Missed> {
        let broken = |error| unanswered(question.path, &error);
        let mut response = self.send(question).map_err(broken)?;
        let body = response.body_mut().with_config().limit(self.0.limits.answer_bytes_max).read_to_vec();
        let answer = Answer::new(response.status().as_u16(), response.headers(), body.map_err(broken)?);
        answer.read(question.path)
    }

    fn send(&self, question: &Question<'_>) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        let Inner { agent, base, authorization, account, .. } = &*self.0;
        let Question { path, pairs, idempotency_key } = question;
        let headers = [("Stripe-Account", account), ("Idempotency-Key", idempotency_key)];
        let headers = headers.into_iter().filter_map(|(name, value)| value.as_ref().map(|value| (name, value)));
        if idempotency_key.is_none() {
            let separator = if pairs.is_empty() { "" } else { "?" };
            let request = agent
                .get(format!("{base}{path}{separator}{pairs}"))
                .header("Authorization", authorization)
                .header("Stripe-Version", STRIPE_VERSION);
            headers.fold(request, |request, (name, value)| request.header(name, value)).call()
        } else {
            let request = agent
                .post(format!("{base}{path}"))
                .header("Authorization", authorization)
                .header("Stripe-Version", STRIPE_VERSION)
                .header("Content-Type", "application/x-www-form-urlencoded");
            headers.fold(request, |request, (name, value)| request.header(name, value)).send(pairs)
        }
    }
}

impl Api for Client {
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
        self.ask(&Question { path, pairs: url::pairs(query), idempotency_key: None })
    }
}

fn agent(limits: &Limits, is_https: bool) -> Agent {
    outgoing::settings(is_https, limits.connect, limits.attempt)
        .max_idle_connections_per_host(usize::try_from(limits.at_once.get()).unwrap_or(usize::MAX))
        .user_agent(concat!("billingd/", env!("CARGO_PKG_VERSION")))
        .accept("application/json")
        .build()
        .into()
}

/// Why there is no answer. The words are ours: the library's may quote the whole address.
fn unanswered(path: &str, error: &ureq::Error) -> Missed {
    let (kind, reason) = match error {
        ureq::Error::BodyExceedsLimit(_) => (Kind::Garbage, "the answer is larger than any of Stripe's"),
        ureq::Error::LargeResponseHeader(..) | ureq::Error::Protocol(_) => {
            (Kind::Garbage, "the answer is not in the language of HTTP")
        }
        ureq::Error::Timeout(_) => (Kind::Unavailable, "no answer in time"),
        ureq::Error::HostNotFound => (Kind::Unavailable, "the name of the host is not known"),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => (Kind::Garbage, "the certificate or the encryption is wrong"),
        ureq::Error::Io(error) => of_connection(error),
        _ => (Kind::Unavailable, "no connection"),
    };
    ApiError::new(kind, path, reason).into()
}

fn of_connection(error: &io::Error) -> (Kind, &'static str) {
    match error.kind() {
        // So the library passes on what is wrong with a certificate.
        io::ErrorKind::InvalidData => (Kind::Garbage, "the certificate or the encryption is wrong"),
        io::ErrorKind::ConnectionRefused => (Kind::Unavailable, "the connection was refused"),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            (Kind::Unavailable, "the connection broke off")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => (Kind::Unavailable, "no answer in time"),
        _ => (Kind::Unavailable, "no connection"),
    }
}
