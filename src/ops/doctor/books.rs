//! The books themselves: whose they are, and what is not done.

use rusqlite::Connection;

use super::Check;
use crate::clock::UnixMillis;
use crate::domain::event::UnixSeconds;
use crate::domain::words::{age, counted};
use crate::ops::ingest::last_verified;
use crate::store::{StoreError, health, jobs, open};

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
    /// An event that waits longer is stuck, in seconds.
    pub pending_age_s: i64,
    /// The jobs, and when each should have run last.
    pub due: Vec<(&'static str, UnixSeconds)>,
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
    checks.extend(events(connection, expected, now)?);
    checks.push(findings(connection)?);
    checks.extend(overdue(connection, expected, now)?);
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
    let mode = open::meta(connection, "livemode")?.unwrap_or_default();
    let account = open::meta(connection, "stripe_account")?.unwrap_or_default();
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
    let held = open::meta(connection, expected.digest_key)?;
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

fn events(connection: &Connection, expected: &Expected<'_>, now: UnixMillis) -> Result<Vec<Check>, StoreError> {
    let stuck_before = now.saturating_sub(expected.pending_age_s.saturating_mul(1000));
    let counts = health::unfinished(connection, stuck_before)?;
    let mut checks = Vec::new();
    if counts.dead_letters > 0 {
        checks.push(Check::problem(
            "events",
            counted(counts.dead_letters, "dead letter"),
            "nobody tries them again: what they tell is not in the books",
            "`billingd events list --status failed` tells why; remove the cause, then `billingd events replay ID`, or dismiss it",
        ));
    }
    if counts.failed > 0 {
        checks.push(Check::problem(
            "events",
            format!("{} failed", counts.failed),
            "what they tell is not in the books yet",
            "`billingd events list --status failed` tells why; remove the cause, then `billingd events replay ID`, or dismiss it",
        ));
    }
    if counts.stuck > 0 {
        let seen = format!("{} have waited for longer than {}", counts.stuck, age(expected.pending_age_s));
        checks.push(Check::problem(
            "events",
            seen,
            "what they tell is not in the books yet",
            "`billingd events list --status pending` tells for what",
        ));
    }
    if checks.is_empty() {
        checks.push(Check::ok("events", format!("none failed, {} pending", counts.pending)));
    }
    Ok(checks)
}

fn findings(connection: &Connection) -> Result<Check, StoreError> {
    let open = health::open_findings(connection)?;
    if open.is_empty() {
        return Ok(Check::ok("findings", "none is open"));
    }
    let kinds: Vec<String> = open.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    Ok(Check::problem(
        "findings",
        format!("open: {}", kinds.join(", ")),
        "the books and Stripe do not agree, or only a person can decide",
        "`billingd findings list`",
    ))
}

fn overdue(connection: &Connection, expected: &Expected<'_>, now: UnixMillis) -> Result<Vec<Check>, StoreError> {
    if expected.due.is_empty() {
        return Ok(Vec::new());
    }
    // Before the first start that kept a schedule nothing was due.
    let since = open::meta(connection, jobs::JOBS_SINCE)?.and_then(|since| since.parse::<UnixSeconds>().ok());
    let Some(since) = since else { return Ok(Vec::new()) };
    let done = jobs::last_successes(connection)?;
    let is_overdue =
        |(job, due): &&(&'static str, UnixSeconds)| *due > since && done.get(*job).is_none_or(|started| started < due);
    let overdue: Vec<Check> = expected
        .due
        .iter()
        .filter(is_overdue)
        .map(|(job, due)| {
            let last = done.get(*job).map_or_else(|| "never".into(), |at| format!("{} ago", age(now / 1000 - at)));
            Check::problem(
                "jobs",
                format!("{job} was due {} ago, and ran well {last}", age(now / 1000 - due)),
                "what it is there for does not happen",
                "the log of the server tells why: `journalctl -u billingd`",
            )
        })
        .collect();
    Ok(if overdue.is_empty() { vec![Check::ok("jobs", "none is overdue")] } else { overdue })
}
