//! Looks at what a person may be called for. [`crate::domain::alert`] says what of it is a condition.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use serde::Deserialize;

use crate::clock::UnixMillis;
use crate::domain::alert::{Alert, Answers, Findings, Missed, Overdue, Readings, Silence, Thresholds};
use crate::domain::event::UnixSeconds;
use crate::domain::reconcile::Kind;
use crate::store::{Desk, StoreError, alerts, disk, health, jobs, meta, runs};

/// So many runs of reconciliation are looked at for what the last one of use has told: some fetch no events.
const RUNS_MAX: usize = 20;

/// A job that is so little late, in seconds, is not overdue.
pub const LATE_S: i64 = 3_600;

/// A job that has run for so long, in seconds, hangs. Nothing that is done with care takes as long.
const HANGS_AFTER_S: i64 = 86_400;

/// In milliseconds.
const HOUR_MS: i64 = 3_600_000;

/// Tells when each job should have begun last.
pub type Due = Arc<dyn Fn(UnixSeconds) -> Vec<(&'static str, UnixSeconds)> + Send + Sync>;

/// What is looked at.
#[derive(Clone)]
pub struct Scope {
    /// The file of the books.
    pub database: PathBuf,
    /// From when on something counts.
    pub thresholds: Thresholds,
    /// The jobs, and when each should have begun last; what is hardly late is left out.
    pub due: Due,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, thresholds, .. } = self;
        f.debug_struct("Scope").field("database", database).field("thresholds", thresholds).finish_non_exhaustive()
    }
}

/// Looks. It costs as much as is open, however large the books are. Whether the writer takes writes only the server
/// knows, so that is left out.
///
/// # Errors
/// [`StoreError`].
pub fn read(connection: &Connection, scope: &Scope, now: UnixMillis) -> Result<Readings, StoreError> {
    let Scope { database, thresholds, due } = scope;
    let received_until = |age_s: i64| now.saturating_sub(age_s.saturating_mul(1000));
    let told = told_by_runs(connection)?;
    let (silent, findings): (Vec<_>, Vec<_>) =
        health::open_findings(connection)?.into_iter().partition(|found| found.kind == Kind::Silence.as_str());
    Ok(Readings {
        storage: None,
        room: disk::room(database).ok(),
        wal: disk::wal(database),
        answers: alerts::answers(connection, now / 1000)?,
        mismatched_hours: alerts::mismatched_hours(connection, now / 1000)?,
        missed: missed(&told),
        silence: silent.first().map(|found| silence(found, &told)),
        dead_letters: health::dead_letters(connection)?,
        failed: health::failed(connection, received_until(thresholds.failed_age_s))?,
        pending: health::pending(connection, received_until(thresholds.pending_age_s))?,
        findings,
        overdue: overdue(connection, &due(now / 1000), now)?,
    })
}

/// What of a run's counts is of use here. Older runs lack some.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    silent: i64,
    silent_since: Option<UnixSeconds>,
    of_day: i64,
    of_day_undelivered: i64,
}

struct Run {
    started_at: UnixSeconds,
    is_complete: bool,
    told: Told,
}

fn told_by_runs(connection: &Connection) -> Result<Vec<Run>, StoreError> {
    let rows = runs::latest(connection, RUNS_MAX)?;
    let run = |row: runs::RunRow| Run {
        started_at: row.started_at,
        is_complete: row.result == "ok",
        told: serde_json::from_str(&row.counts).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(run).collect())
}

fn missed(runs: &[Run]) -> Option<Missed> {
    let run = runs.iter().find(|run| run.is_complete && run.told.of_day > 0)?;
    Some(Missed { run_at: run.started_at, events: run.told.of_day, undelivered: run.told.of_day_undelivered })
}

fn silence(found: &Findings, runs: &[Run]) -> Silence {
    let told = runs.iter().map(|run| &run.told).find(|told| told.silent > 0);
    Silence {
        events: told.map(|told| told.silent),
        since: told.and_then(|told| told.silent_since).unwrap_or(found.since),
    }
}

fn overdue(
    connection: &Connection,
    due: &[(&'static str, UnixSeconds)],
    now: UnixMillis,
) -> Result<Vec<Overdue>, StoreError> {
    // Before the first start that kept a schedule nothing was due.
    let since = meta::get(connection, jobs::JOBS_SINCE)?.and_then(|since| since.parse::<UnixSeconds>().ok());
    let Some(since) = since else { return Ok(Vec::new()) };
    let done = jobs::last_successes(connection, now / 1000)?;
    let running = jobs::running(connection, now / 1000 - HANGS_AFTER_S)?;
    // It runs, or waits for one that began before it was due: one thread runs all.
    let is_seen_to = |job: &str, due| running.iter().any(|(name, began)| name == job || *began <= due);
    let overdue = due.iter().filter(|(job, due)| !is_seen_to(job, *due)).map(|(job, due)| Overdue {
        job,
        due: *due,
        last: done.get(*job).copied(),
    });
    Ok(overdue.filter(|seen| seen.due > since && seen.last.is_none_or(|last| last < seen.due)).collect())
}

/// How a delivery was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It is authentic, and answered 2xx.
    Well,
    /// It is authentic, and refused or answered 5xx.
    Badly,
    /// It is signed with none of our secrets.
    Mismatched,
}

/// How deliveries were answered, noted at the door, and written by the watch. Cloning shares it; a crash loses what the
/// watch has not written yet.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<i64, Answers>>>);

impl Tally {
    /// Counts one more.
    pub fn note(&self, how: Answered, now: UnixMillis) {
        let mut hours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = hours.entry(now / HOUR_MS).or_default();
        *match how {
            Answered::Well => &mut answers.good,
            Answered::Badly => &mut answers.bad,
            Answered::Mismatched => &mut answers.mismatched,
        } += 1;
    }

    fn noted(&self) -> BTreeMap<i64, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was written; more may have come meanwhile.
    fn forget(&self, written: &BTreeMap<i64, Answers>) {
        let mut hours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (hour, Answers { good, bad, mismatched }) in written {
            if let Some(answers) = hours.get_mut(hour) {
                answers.good -= good;
                answers.bad -= bad;
                answers.mismatched -= mismatched;
            }
        }
        hours.retain(|_, answers| *answers != Answers::default());
    }
}

/// Writes what was told, if that has changed, and how deliveries were answered since it was written last.
///
/// # Errors
/// [`StoreError`]; then nothing is written, and nothing is forgotten.
pub fn keep(
    desk: &mut impl Desk,
    changed: Option<Vec<Alert>>,
    tally: &Tally,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    let noted = tally.noted();
    if changed.is_none() && noted.is_empty() {
        return Ok(());
    }
    let answers = noted.clone();
    desk.write(move |transaction| {
        if let Some(told) = &changed {
            alerts::keep(transaction, told)?;
        }
        alerts::add_answers(transaction, &answers, now)
    })?;
    tally.forget(&noted);
    Ok(())
}
