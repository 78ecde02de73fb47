//! The sections of the configuration that say how billingd runs, one small type each; those that decide about money
//! are in `catalogue.rs`.
//!
//! What a key means for the operator stands in `config/billingd.toml`, which also holds the defaults: a section has
//! none of its own. Only the elements of lists have defaults here, because a list is replaced as a whole.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;

use super::address::{self, UrlSource};
use super::secret::{Secret, SecretError, SecretSource};
use super::units::{self, Schedule, Share, words};

/// The fewest characters of an admin token: nobody guesses them.
const TOKEN_LENGTH_MIN: usize = 32;

/// `[server]`: the public listener.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Where it listens.
    #[serde(deserialize_with = "units::listener")]
    pub listen: SocketAddr,
    /// Proxies whose `X-Forwarded-*` headers count.
    #[serde(deserialize_with = "units::ip_addresses")]
    pub trusted_proxies: Vec<IpAddr>,
    /// The largest body that is read.
    #[serde(deserialize_with = "units::size")]
    pub max_body: ByteSize,
    /// How long a request may take.
    #[serde(deserialize_with = "units::duration")]
    pub request_timeout: Duration,
    /// How long a stop waits for running work.
    #[serde(deserialize_with = "units::duration")]
    pub shutdown_grace: Duration,
}

/// `[admin]`: the private listener and who may use it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Where it listens, if there is a token.
    #[serde(deserialize_with = "units::listener")]
    pub listen: SocketAddr,
    /// Host names that are accepted besides the loopback ones.
    pub hosts: Vec<String>,
    /// `[[admin.token]]`; empty: the listener stays off.
    #[serde(default, rename = "token")]
    pub tokens: Vec<AdminToken>,
}

impl Admin {
    /// What is wrong if two tokens have one secret. `env` looks up an environment variable; tokens that cannot be fetched
    /// are left out.
    #[must_use]
    pub fn shared_secret(&self, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let mut seen = BTreeMap::new();
        self.tokens.iter().find_map(|token| {
            let (name, secret) = (&token.name, token.resolve(env).ok()?);
            let former = seen.insert(secret.expose().to_owned(), name)?;
            Some(format!(
                "[[admin.token]] {former} and {name} have the same secret; give each its own, or nobody knows who shows it"
            ))
        })
    }
}

/// `[[admin.token]]`: one who may use the private listener.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminToken {
    /// The name in the audit.
    pub name: String,
    /// What the token opens.
    #[serde(default = "operator")]
    pub scope: Scope,
    /// The token.
    pub secret: SecretSource,
}

impl AdminToken {
    /// Fetches the token. `env` looks up an environment variable.
    ///
    /// # Errors
    /// [`SecretError`], also for a token of less than 32 characters.
    pub fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Secret, SecretError> {
        let secret = self.secret.resolve(env)?;
        if secret.expose().chars().count() < TOKEN_LENGTH_MIN {
            return Err(SecretError::TooShort { origin: self.secret.to_string(), least: TOKEN_LENGTH_MIN });
        }
        Ok(secret)
    }
}

words! {
    /// What an admin token opens.
    Scope {
        /// Everything.
        Operator = "operator",
        /// Reading accounts, and adjustments.
        App = "app",
        /// The metrics alone.
        Metrics = "metrics",
    }
}

/// `[database]`: where the books are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// The SQLite file.
    pub path: PathBuf,
}

/// `[[webhook]]`: one endpoint that Stripe posts to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Webhook {
    /// The path of its URL.
    pub path: String,
    /// The secrets that its signatures are checked against, any of them.
    pub signing_secrets: Vec<SecretSource>,
    /// How far a signature's time may be from ours, both ways.
    #[serde(deserialize_with = "units::duration")]
    pub tolerance: Duration,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            path: "/webhooks/stripe".to_owned(),
            signing_secrets: vec![SecretSource::Env { env: "STRIPE_WEBHOOK_SECRET".to_owned() }],
            tolerance: Duration::from_secs(300),
        }
    }
}

/// `[stripe]`: whose events these are, and how to ask Stripe.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stripe {
    /// Real money or test mode.
    pub livemode: bool,
    /// The only connected account whose events count; none: the account's own.
    #[serde(deserialize_with = "units::connected_account")]
    pub connected_account: Option<String>,
    /// The key for Stripe's API; none: nothing ever calls Stripe.
    #[serde(default)]
    pub api_key: Option<SecretSource>,
    /// Where the API is.
    pub api_base: UrlSource,
}

/// `[processing]`: how events are run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processing {
    /// Failures until an event becomes a dead letter.
    #[serde(deserialize_with = "units::count")]
    pub max_attempts: u32,
}

/// `[jobs]`: when each job runs; none: never.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// Tries again what is unfinished.
    #[serde(deserialize_with = "units::schedule")]
    pub reaper: Option<Schedule>,
    /// Compares the books with Stripe.
    #[serde(deserialize_with = "units::schedule")]
    pub reconcile: Option<Schedule>,
    /// Deletes what may go.
    #[serde(deserialize_with = "units::schedule")]
    pub retention: Option<Schedule>,
    /// Fetches exchange rates.
    #[serde(deserialize_with = "units::schedule")]
    pub fx: Option<Schedule>,
    /// Writes a backup.
    #[serde(deserialize_with = "units::schedule")]
    pub backup: Option<Schedule>,
}

/// `[reaper]`: when to give up on its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reaper {
    /// The age at which an unfinished event becomes a dead letter.
    #[serde(deserialize_with = "units::duration")]
    pub pending_after: Duration,
}

/// `[reconcile]`: what is compared with Stripe.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// How far back.
    #[serde(deserialize_with = "units::duration")]
    pub lookback: Duration,
    /// What is younger is left for the next run.
    #[serde(deserialize_with = "units::duration")]
    pub grace: Duration,
}

/// `[retention]`: how long is kept what may be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Bodies of completed events.
    #[serde(deserialize_with = "units::duration")]
    pub payloads: Duration,
    /// Ignored events.
    #[serde(deserialize_with = "units::duration")]
    pub ignored_events: Duration,
}

/// `[backup]`: backups by schedule or signal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// Where they go; none: beside the database.
    #[serde(deserialize_with = "units::optional_path")]
    pub folder: Option<PathBuf>,
    /// How many stay.
    #[serde(deserialize_with = "units::count")]
    pub keep: u32,
}

/// `[alerts]`: when and how to call for a person.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alerts {
    /// More pending events than this raise an alert.
    #[serde(deserialize_with = "units::count")]
    pub pending_count: u32,
    /// The age from which a pending event counts.
    #[serde(deserialize_with = "units::duration")]
    pub pending_age: Duration,
    /// The age at which a failed event raises an alert.
    #[serde(deserialize_with = "units::duration")]
    pub failed_age: Duration,
    /// The share of good answers below which there is an alert.
    pub success_rate: Share,
    /// Where alerts are posted.
    #[serde(deserialize_with = "address::optional")]
    pub webhook_url: Option<UrlSource>,
    /// What is called after each good reconciliation.
    #[serde(deserialize_with = "address::optional")]
    pub heartbeat_url: Option<UrlSource>,
}

/// `[log]`: what is written to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// In which form.
    pub format: LogFormat,
    /// From which severity on.
    pub level: LogLevel,
}

words! {
    /// The form of the log.
    LogFormat {
        /// Text on a terminal, JSON otherwise.
        Auto = "auto",
        /// Lines for people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

words! {
    /// The least severity that is logged.
    LogLevel {
        /// Errors.
        Error = "error",
        /// And warnings.
        Warn = "warn",
        /// And what happens.
        Info = "info",
        /// And how.
        Debug = "debug",
        /// And everything else.
        Trace = "trace",
    }
}

fn operator() -> Scope {
    Scope::Operator
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_at_least_32_characters() {
        let token =
            |text: String| AdminToken { name: "ops".into(), scope: Scope::Operator, secret: SecretSource::Plain(text) };
        assert!(token("x".repeat(32)).resolve(&|_| None).is_ok());
        let error = token("y".repeat(31)).resolve(&|_| None).unwrap_err().to_string();
        assert!(error.contains("less than 32 characters") && !error.contains("yyy"), "{error}");
    }

    #[test]
    fn two_tokens_with_one_secret_are_told_by_name() {
        let token = |name: &str, text: &str| AdminToken {
            name: name.into(),
            scope: Scope::App,
            secret: SecretSource::Plain(text.repeat(32)),
        };
        let admin = |tokens| Admin { listen: ([127, 0, 0, 1], 0).into(), hosts: vec![], tokens };
        let of = |tokens| admin(tokens).shared_secret(&|_| None);
        let told = of(vec![token("ops", "x"), token("app", "y"), token("bob", "x")]).unwrap();
        assert!(told.contains("ops and bob") && !told.contains("xxx"), "{told}");
        assert_eq!(of(vec![token("ops", "x"), token("app", "y")]), None);
    }
}
