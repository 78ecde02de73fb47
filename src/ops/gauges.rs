//! What the books say at a glance, for whoever watches: a few look-ups, however large they are.

use rusqlite::Connection;

use crate::clock::UnixMillis;
use crate::domain::event::UnixSeconds;
use crate::store::{StoreError, events, health, jobs, ledger};

/// Some numbers of the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauges {
    /// How many events are `pending`, `failed` and `dead_letter`; a dead letter is not counted as failed.
    pub unfinished: [(&'static str, i64); 3],
    /// How long the oldest pending event has waited, in seconds; 0: none.
    pub oldest_pending_s: i64,
    /// How many findings are open of each kind.
    pub findings: Vec<(String, i64)>,
    /// When an event came last by webhook for the first time.
    pub last_delivery: Option<UnixSeconds>,
    /// When the last run of each job began that succeeded.
    pub successes: Vec<(String, UnixSeconds)>,
    /// How many entries the ledger has.
    pub entries: i64,
}

/// Reads them.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn read(connection: &Connection, now: UnixMillis) -> Result<Gauges, StoreError> {
    let pending = health::pending(connection, now)?;
    let findings = health::open_findings(connection)?;
    Ok(Gauges {
        unfinished: [
            ("pending", pending.count),
            ("failed", health::failed(connection, now)?.count),
            ("dead_letter", health::dead_letters(connection)?.count),
        ],
        oldest_pending_s: pending.first.map_or(0, |(_, at)| now / 1000 - at),
        findings: findings.into_iter().map(|found| (found.kind, found.count)).collect(),
        last_delivery: events::last_delivery(connection)?,
        successes: jobs::last_successes(connection, now / 1000)?.into_iter().collect(),
        entries: ledger::newest(connection)?.unwrap_or_default(),
    })
}
