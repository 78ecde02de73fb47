//! What the operator configured, read once and checked as a whole.
//!
//! Three layers: the defaults in `config/billingd.toml`, the operator's file, the environment. [`load`] either gives a
//! [`Config`] that cannot be wrong in itself or lists every problem with its key, its place and its remedy. A leaf:
//! it knows nothing of the rest of the crate, never reads the process environment by itself, and fetches no secret.

mod address;
mod catalogue;
mod layers;
mod problem;
mod read;
mod render;
mod rules;
mod secret;
mod sections;
mod shape;
mod starter;
#[cfg(test)]
mod tests;
mod units;

use std::path::Path;

pub use address::{CalledUrl, UrlSource};
pub use catalogue::{Access, Accounts, Basis, Credits, Downgrade, Fx, Per, Price, Proration, Tiers, UnlistedPrice};
pub use problem::{ConfigError, Problem, Source};
pub use secret::{Secret, SecretError, SecretSource};
pub use sections::{
    Admin, AdminToken, Alerts, Backup, Database, Jobs, Log, LogFormat, LogLevel, Processing, Reaper, Reconcile,
    Retention, Scope, Server, Stripe, Webhook,
};
pub use starter::{StarterTokens, starter};
pub use units::{NotADuration, Schedule, Share, format_duration, parse_duration};

/// The effective configuration. Each field is the section, or the list, of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The public listener.
    pub server: Server,
    /// The private listener and who may use it.
    pub admin: Admin,
    /// Where the books are.
    pub database: Database,
    /// `[[webhook]]`: the endpoints that Stripe posts to; never empty.
    pub webhooks: Vec<Webhook>,
    /// Whose events these are, and how to ask Stripe.
    pub stripe: Stripe,
    /// How a customer is tied to the user's own id.
    pub accounts: Accounts,
    /// The plans and their order.
    pub tiers: Tiers,
    /// Which states of a subscription give its tier.
    pub access: Access,
    /// What a payment grants.
    pub credits: Credits,
    /// `[[price]]`: the price list.
    pub prices: Vec<Price>,
    /// How events are run.
    pub processing: Processing,
    /// When the jobs run.
    pub jobs: Jobs,
    /// When to give up on its own.
    pub reaper: Reaper,
    /// What is compared with Stripe.
    pub reconcile: Reconcile,
    /// How long is kept what may be deleted.
    pub retention: Retention,
    /// Backups by schedule or signal.
    pub backup: Backup,
    /// Exchange rates.
    pub fx: Fx,
    /// When and how to call for a person.
    pub alerts: Alerts,
    /// What is logged, and in which form.
    pub log: Log,
}

/// Reads the configuration: defaults, then `file`, then those variables of `env` that begin with `BILLINGD__`.
///
/// # Errors
/// [`ConfigError`] with every problem that was found.
pub fn load(file: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigError> {
    let (layers, problems) = layers::Layers::read(file, env)?;
    let config = read::config(&layers, problems)?;
    let placed = |problem: Problem| {
        let source = layers.source_of(&problem.key);
        problem.at(source)
    };
    match config.validate() {
        Ok(()) => Ok(config),
        Err(problems) => Err(ConfigError::Invalid(problems.into_iter().map(placed).collect())),
    }
}
