//! What the jobs did, and when: one row for each run. It also tells which runs were missed.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, named_params};
use serde::Serialize;

use crate::domain::event::UnixSeconds;
use crate::store::StoreError;
use crate::store::select::select;

/// So many runs are remembered, and besides them the last one of each job that succeeded.
pub const RUNS_KEPT: i64 = 1_000;

/// The name under which a database keeps since when jobs run on it.
pub const JOBS_SINCE: &str = "jobs_since";

/// A run of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Run {
    /// The name of the job.
    pub job: String,
    /// When it began.
    pub started_at: UnixSeconds,
    /// When it ended; `None`: it runs, or its server ended in the middle, which `result` tells then.
    pub finished_at: Option<UnixSeconds>,
    /// It did what it is there for.
    pub succeeded: bool,
    /// What it did, or why it could not, in words.
    pub result: Option<String>,
}

impl Run {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            job: row.get("job")?,
            started_at: row.get("started_at")?,
            finished_at: row.get("finished_at")?,
            succeeded: row.get("succeeded")?,
            result: row.get("result")?,
        })
    }
}

/// A run begins; returns its number.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn begin(connection: &Connection, job: &str, now: UnixSeconds) -> Result<i64, StoreError> {
    connection
        .prepare_cached("INSERT INTO job_runs (job, started_at) VALUES (:job, :now)")?
        .execute(named_params! { ":job": job, ":now": now })?;
    Ok(connection.last_insert_rowid())
}

/// A run has ended; what is too old to be remembered is forgotten.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn end(
    connection: &Connection,
    run: i64,
    succeeded: bool,
    result: &str,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE job_runs SET finished_at = :now, succeeded = :succeeded, result = :result WHERE run_id = :run",
        )?
        .execute(named_params! { ":run": run, ":succeeded": succeeded, ":result": result, ":now": now })?;
    connection
        .prepare_cached(
            "DELETE FROM job_runs WHERE run_id <= :run - :kept
               AND run_id NOT IN (SELECT max(run_id) FROM job_runs WHERE succeeded = 1 GROUP BY job)",
        )?
        .execute(named_params! { ":run": run, ":kept": RUNS_KEPT })?;
    Ok(())
}

/// When the last run of each job began that succeeded, up to `now`: before a clock was set back it may have been later.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn last_successes(connection: &Connection, now: UnixSeconds) -> Result<BTreeMap<String, UnixSeconds>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT job, max(started_at) AS started_at FROM job_runs
         WHERE succeeded = 1 AND started_at <= :now GROUP BY job",
    )?;
    let rows =
        statement.query_map(named_params! { ":now": now }, |row| Ok((row.get("job")?, row.get("started_at")?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A server starts, the only one on this database: what its predecessor has not ended does not run any more.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn end_cut_short(connection: &Connection) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE job_runs SET result = 'its server ended in the middle' WHERE finished_at IS NULL AND result IS NULL",
        )?
        .execute([])?;
    Ok(())
}

/// The jobs that run, and when their runs began, if after `since`.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn running(connection: &Connection, since: UnixSeconds) -> Result<Vec<(String, UnixSeconds)>, StoreError> {
    let sql = "SELECT job, started_at FROM job_runs
               WHERE finished_at IS NULL AND result IS NULL AND started_at > :since";
    select(connection, sql, named_params! { ":since": since }, |row| Ok((row.get("job")?, row.get("started_at")?)))
}

/// The last run of each job, whatever came of it, by name.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn last_runs(connection: &Connection) -> Result<Vec<Run>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT job, started_at, finished_at, succeeded, result FROM job_runs
         WHERE run_id IN (SELECT max(run_id) FROM job_runs GROUP BY job) ORDER BY job",
    )?;
    let rows = statement.query_map([], Run::from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The newest runs of all jobs, at most `limit`, the one that began last first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn runs(connection: &Connection, limit: i64) -> Result<Vec<Run>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT job, started_at, finished_at, succeeded, result FROM job_runs ORDER BY run_id DESC LIMIT :limit",
    )?;
    let rows = statement.query_map(named_params! { ":limit": limit }, Run::from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Since when jobs run on this database: `now` if none ever did. Nothing that was due before was missed.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn since(connection: &Connection, now: UnixSeconds) -> Result<UnixSeconds, StoreError> {
    connection
        .prepare_cached("INSERT INTO meta (key, value) VALUES (:key, :now) ON CONFLICT (key) DO NOTHING")?
        .execute(named_params! { ":key": JOBS_SINCE, ":now": now.to_string() })?;
    Ok(connection
        .prepare_cached("SELECT CAST(value AS INTEGER) AS since FROM meta WHERE key = :key")?
        .query_row(named_params! { ":key": JOBS_SINCE }, |row| row.get("since"))?)
}
