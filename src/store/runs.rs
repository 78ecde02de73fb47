//! Runs of reconciliation.

use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde::Serialize;

use crate::domain::event::UnixSeconds;
use crate::store::StoreError;

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

/// A run of reconciliation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Run {
    /// When it began.
    pub started_at: UnixSeconds,
    /// When it ended; `None`: it runs, or its server ended in the middle.
    pub finished_at: Option<UnixSeconds>,
    /// `ok`, `partial` or `failed`.
    pub result: Option<String>,
    /// JSON: how much it looked at, and what came of it.
    pub counts: Option<String>,
}

/// The run that began last.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn last(connection: &Connection) -> Result<Option<Run>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT started_at, finished_at, result, counts FROM reconciliation_runs ORDER BY run_id DESC LIMIT 1",
        )?
        .query_row([], |row| {
            Ok(Run {
                started_at: row.get("started_at")?,
                finished_at: row.get("finished_at")?,
                result: row.get("result")?,
                counts: row.get("counts")?,
            })
        })
        .optional()?)
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
