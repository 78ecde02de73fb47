//! Runs of reconciliation.

use rusqlite::{Connection, named_params};

use crate::domain::event::UnixSeconds;
use crate::store::StoreError;
use crate::store::select::select;

/// What earlier runs know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// All of Stripe's events from before that moment were fetched.
    pub until: Option<UnixSeconds>,
    /// When the very first run began.
    pub first: Option<UnixSeconds>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// `ok`, `partial` or `failed`.
    pub result: &'static str,
    /// From when on Stripe was looked at.
    pub since: UnixSeconds,
    /// All of Stripe's events from before that moment are fetched, if the run shows it.
    pub known_until: Option<UnixSeconds>,
    /// JSON.
    pub counts: &'a str,
}

/// Notes that a run begins; returns its number.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn begin(connection: &Connection, now: UnixSeconds) -> Result<i64, StoreError> {
    connection
        .prepare_cached("INSERT INTO reconciliation_runs (started_at) VALUES (:now)")?
        .execute(named_params! { ":now": now })?;
    Ok(connection.last_insert_rowid())
}

/// Notes how a run ended.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn end(connection: &Connection, run: i64, ended: Ended<'_>, now: UnixSeconds) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE reconciliation_runs SET finished_at = :now, result = :result, since = :since,
                 known_until = :known_until, counts = :counts
             WHERE run_id = :run",
        )?
        .execute(named_params! {
            ":run": run, ":now": now, ":result": ended.result, ":since": ended.since,
            ":known_until": ended.known_until, ":counts": ended.counts,
        })?;
    Ok(())
}

/// What earlier runs know.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn known(connection: &Connection) -> Result<Known, StoreError> {
    Ok(connection
        .prepare_cached("SELECT max(known_until) AS until, min(started_at) AS first FROM reconciliation_runs")?
        .query_row([], |row| Ok(Known { until: row.get("until")?, first: row.get("first")? }))?)
}

/// What a run told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// When it began.
    pub started_at: UnixSeconds,
    /// `ok`, `partial` or `failed`.
    pub result: String,
    /// JSON.
    pub counts: String,
}

/// The latest runs that have ended, the last one first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn latest(connection: &Connection, limit: usize) -> Result<Vec<RunRow>, StoreError> {
    let sql = "SELECT started_at, result, counts FROM reconciliation_runs
               WHERE result IS NOT NULL AND counts IS NOT NULL ORDER BY run_id DESC LIMIT :limit";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    select(connection, sql, named_params! { ":limit": limit }, |row| {
        Ok(RunRow { started_at: row.get("started_at")?, result: row.get("result")?, counts: row.get("counts")? })
    })
}
