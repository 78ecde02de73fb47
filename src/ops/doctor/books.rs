//! The books themselves: whose they are, and what is not done.

use rusqlite::Connection;

use super::Check;
use crate::clock::UnixMillis;
use crate::domain::alert::{self, Condition, Readings, Thresholds};
use crate::domain::words::age;
use crate::ops::alerts::{self, Scope};
use crate::ops::ingest::last_verified;
use crate::store::{StoreError, health, meta};

const EVENTS: &str = "events";
const FINDINGS: &str = "findings";
const JOBS: &str = "jobs";

/// What the config says about the books.
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    /// Their mode.
    pub livemode: bool,
    /// Their connected account.
    pub connected_account: Option<&'a str>,
    /// The name under which the server keeps the digest of its catalogue.
    pub digest_key: &'a str,
    /// The paths of our webhooks, and how many signing secrets each has.
    pub secrets: Vec<(&'a str, usize)>,
    /// The digest of the catalogue.
    pub digest: &'a str,
    /// What a person is called for.
    pub scope: &'a Scope,
}

/// What was looked at in the database.
///
/// # Errors
/// [`StoreError`].
pub fn checks(connection: &Connection, expected: &Expected<'_>, now: UnixMillis) -> Result<Vec<Check>, StoreError> {
    let mut checks = vec![mode(connection)?, binding(connection, expected)?];
    checks.extend(catalogue(connection, expected)?);
    for (path, count) in &expected.secrets {
        checks.push(secret(connection, path, *count, now)?);
    }
    checks.extend(conditions(connection, expected.scope, now)?);
    Ok(checks)
}

fn mode(connection: &Connection) -> Result<Check, StoreError> {
    let mode = health::journal_mode(connection)?;
    if mode == "wal" {
        return Ok(Check::ok("database", "in WAL mode, schema as this billingd knows it"));
    }
    Ok(Check::problem(
        "database",
        format!("in journal mode {mode}"),
        "readers and the server would hold each other up",
        "let no other program change it; the next start of `billingd serve` sets WAL mode",
    ))
}

fn binding(connection: &Connection, expected: &Expected<'_>) -> Result<Check, StoreError> {
    let mode = meta::get(connection, "livemode")?.unwrap_or_default();
    let account = meta::get(connection, "stripe_account")?.unwrap_or_default();
    let wanted = (if expected.livemode { "live" } else { "test" }, expected.connected_account.unwrap_or_default());
    let of = if account.is_empty() { "the account's own events".to_owned() } else { format!("account {account}") };
    if (mode.as_str(), account.as_str()) == wanted {
        return Ok(Check::ok("books", format!("{mode} mode, {of}")));
    }
    Ok(Check::problem(
        "books",
        format!("{mode} mode, {of}; the config says another mode or account"),
        "the service does not start on them",
        "set [stripe] livemode and connected_account as they were, or use another [database] path",
    ))
}

fn catalogue(connection: &Connection, expected: &Expected<'_>) -> Result<Option<Check>, StoreError> {
    let held = meta::get(connection, expected.digest_key)?;
    Ok(held.filter(|held| held != expected.digest).map(|_| {
        Check::problem(
            "catalogue",
            "the server started with other prices, tiers or credits than this config has",
            "what it decides is not what the config says, and commands that write refuse to work",
            "`systemctl restart billingd`",
        )
    }))
}

/// After a change of secrets: which one does Stripe sign with?
fn secret(connection: &Connection, path: &str, count: usize, now: UnixMillis) -> Result<Check, StoreError> {
    Ok(match last_verified(connection, path)? {
        Some((secret, at)) => {
            let (position, ago) = (secret + 1, age(now / 1000 - at));
            Check::ok("secret", format!("of {path}: number {position} of {count} verified last, {ago} ago"))
        }
        None => Check::note("secret", format!("of {path}: none has verified anything since the server started")),
    })
}

/// What a person is called for, and what is not enough for that yet: a single event that failed or waits too long, or
/// a single wrong signature where nothing else came.
fn conditions(connection: &Connection, scope: &Scope, now: UnixMillis) -> Result<Vec<Check>, StoreError> {
    let thresholds =
        Thresholds { pending_count: 0, failed_age_s: 0, mismatched_count: 0, mismatched_hours: 0, ..scope.thresholds };
    let scope = Scope { thresholds, ..scope.clone() };
    // The disk is looked at with the other files.
    let seen = Readings { room: None, ..alerts::read(connection, &scope, now)? };
    let found = alert::conditions(&seen, &thresholds, now / 1000);
    let mut checks: Vec<Check> = found.into_iter().map(problem).collect();
    let is_well = |check: &str| !checks.iter().any(|found| found.check == check);
    let mut well = Vec::new();
    if is_well(EVENTS) {
        let pending = health::pending(connection, UnixMillis::MAX)?.count;
        well.push(Check::ok(EVENTS, format!("none failed, {pending} pending")));
    }
    if is_well(FINDINGS) {
        well.push(Check::ok(FINDINGS, "none is open"));
    }
    if is_well(JOBS) && !(scope.due)(now / 1000).is_empty() {
        well.push(Check::ok(JOBS, "none is overdue"));
    }
    checks.extend(well);
    Ok(checks)
}

/// What a condition is about, in a word, and why it matters.
fn problem(condition: Condition) -> Check {
    let (check, why) = match condition.name.as_str() {
        "dead_letter" => (EVENTS, "nobody tries them again: what they tell is not in the books"),
        "failed" | "pending" => (EVENTS, "what they tell is not in the books yet"),
        "findings" => (FINDINGS, "the books and Stripe do not agree, or only a person can decide"),
        "silence" => (FINDINGS, "the books know of events only when reconciliation fetches them"),
        "wal" => ("database", "it grows until the disk is full, and what reads gets slow"),
        name if name.starts_with("job:") => (JOBS, "what it is there for does not happen"),
        _ => ("deliveries", "Stripe sends again for three days only"),
    };
    Check::problem(check, condition.text, why, condition.remedy)
}
