//! The truth in one screen, as data: what is wrong, what waits, what runs, and what happened lately.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::alert::{self, Condition, Open, Readings};
use crate::domain::event::UnixSeconds;
use crate::ops::alerts::{self, Scope};
use crate::ops::doctor::files;
use crate::ops::findings::Advised;
use crate::ops::ingest::last_verified;
use crate::store::events::{self, EventRow, Filter};
use crate::store::jobs::{self, Run};
use crate::store::{StoreError, audit, findings, health, meta, runs};

/// So many events and findings are told; more are counted.
const LATELY_MAX: i64 = 20;

const HOUR_MS: UnixMillis = 3_600_000;

/// Tells when the jobs run.
pub type Plan = Arc<dyn Fn(UnixSeconds) -> Vec<Planned> + Send + Sync>;

/// When a job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub job: &'static str,
    /// Its schedule.
    pub schedule: String,
    /// When it comes next.
    pub next: Option<UnixSeconds>,
}

/// What the one screen is about.
#[derive(Clone)]
pub struct Scene {
    /// What a person is called for, and the file of the books.
    pub alerts: Scope,
    /// Where backups go.
    pub backups: PathBuf,
    /// The paths of our webhooks, and how many signing secrets each has.
    pub webhooks: Vec<(String, usize)>,
    /// When the jobs run.
    pub plan: Plan,
}

impl fmt::Debug for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alerts, backups, webhooks, .. } = self;
        f.debug_struct("Scene")
            .field("alerts", alerts)
            .field("backups", backups)
            .field("webhooks", webhooks)
            .finish_non_exhaustive()
    }
}

/// The one screen. Times are Unix seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// When this was seen.
    pub at: UnixSeconds,
    /// Of billingd.
    pub version: &'static str,
    /// `live` or `test`.
    pub mode: String,
    /// The connected account; none: the account's own events.
    pub account: Option<String>,
    /// What a person should know now, the most urgent first.
    pub conditions: Vec<Standing>,
    /// What is not done, and calls nobody yet.
    pub early: Vec<Standing>,
    /// Events that wait for something.
    pub pending: Pile,
    /// Events whose last run ended in an error; more runs are to come.
    pub failed: Pile,
    /// Events that a person must look at.
    pub dead_letters: Pile,
    /// What arrived.
    pub received: Received,
    /// What was seen of each webhook.
    pub webhooks: Vec<Webhook>,
    /// How many findings are open.
    pub findings_open: i64,
    /// The first of them.
    pub findings: Vec<Advised>,
    /// The jobs, in the order of their names.
    pub jobs: Vec<Job>,
    /// The last run of reconciliation that has ended.
    pub reconciliation: Option<Reconciliation>,
    /// When the newest backup was written.
    pub backup_at: Option<UnixSeconds>,
    /// Disk and files.
    pub room: Room,
    /// The end of the audit log.
    pub audit: AuditHead,
    /// The newest events, the one received last first.
    pub lately: Vec<EventRow>,
}

/// A condition that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What it is, in a word that stays.
    pub name: String,
    /// What, how many, and for how long.
    pub text: String,
    /// What helps.
    pub remedy: String,
    /// Since when, if that is known.
    pub since: Option<UnixSeconds>,
}

impl From<Condition> for Standing {
    fn from(Condition { name, text, remedy, since }: Condition) -> Self {
        Self { name, text, remedy, since }
    }
}

/// Events that are not done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pile {
    /// How many.
    pub count: i64,
    /// The one that arrived first.
    pub oldest: Option<String>,
    /// When it arrived.
    pub since: Option<UnixSeconds>,
}

impl From<Open> for Pile {
    fn from(Open { count, first }: Open) -> Self {
        let (oldest, since) = first.unzip();
        Self { count, oldest, since }
    }
}

/// New events, without repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Received {
    /// When Stripe last delivered a new one.
    pub last_at: Option<UnixSeconds>,
    /// Of the last hour.
    pub hour: i64,
    /// Of the last 24 hours.
    pub day: i64,
    /// Deliveries of the last 24 hours that went well, repeats too.
    pub answered_good: i64,
    /// Deliveries of the last 24 hours that did not.
    pub answered_bad: i64,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Webhook {
    /// Its path.
    pub path: String,
    /// How many signing secrets it has.
    pub secrets: usize,
    /// Which of them verified last, from 1 on, since the server started.
    pub secret: Option<usize>,
    /// When; up to a minute late.
    pub verified_at: Option<UnixSeconds>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its name.
    pub job: String,
    /// Its schedule; none: only when somebody asks for it.
    pub schedule: Option<String>,
    /// When it comes next.
    pub next_at: Option<UnixSeconds>,
    /// It should have run, and has not.
    pub overdue: bool,
    /// Its last run.
    pub last: Option<Run>,
}

/// A run of reconciliation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reconciliation {
    /// When it began.
    pub started_at: UnixSeconds,
    /// `ok`, `partial` or `failed`.
    pub result: String,
    /// How much it looked at, and what came of it.
    pub counts: serde_json::Map<String, serde_json::Value>,
}

/// Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Free on the disk of the database, if it can be asked.
    pub disk_free: Option<u64>,
    /// The database.
    pub database: Option<u64>,
    /// The write-ahead log.
    pub wal: u64,
}

/// The end of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditHead {
    /// The number of its last row; 0: there is none.
    pub seq: i64,
    /// The hash of that row, in hex.
    pub hash: String,
}

/// Reads it all. `storage`: why the writer takes no writes now, if it does not.
///
/// # Errors
/// [`StoreError`].
pub fn read(
    connection: &Connection,
    scene: &Scene,
    storage: Option<String>,
    now: UnixMillis,
) -> Result<Overview, StoreError> {
    let readings = Readings { storage, ..alerts::read(connection, &scene.alerts, now)? };
    let conditions = alert::conditions(&readings, &scene.alerts.thresholds, now / 1000);
    let failed = health::failed(connection, now)?;
    let early = alert::early(&failed, &readings, &scene.alerts.thresholds, now / 1000);
    let account = meta::get(connection, "stripe_account")?.filter(|account| !account.is_empty());
    let head = audit::head(connection)?;
    let first = findings::list(connection, Some("open"), LATELY_MAX)?;
    Ok(Overview {
        at: now / 1000,
        version: env!("CARGO_PKG_VERSION"),
        mode: meta::get(connection, "livemode")?.unwrap_or_default(),
        account,
        conditions: conditions.into_iter().map(Standing::from).collect(),
        early: early.into_iter().map(Standing::from).collect(),
        pending: health::pending(connection, now)?.into(),
        failed: failed.into(),
        dead_letters: health::dead_letters(connection)?.into(),
        received: Received {
            last_at: events::last_delivery(connection)?,
            hour: health::received_since(connection, now - HOUR_MS)?,
            day: health::received_since(connection, now - 24 * HOUR_MS)?,
            answered_good: readings.answers.good,
            answered_bad: readings.answers.bad,
        },
        webhooks: scene.webhooks.iter().map(|webhook| seen(connection, webhook)).collect::<Result<_, _>>()?,
        findings_open: findings::count_open(connection)?,
        findings: first.into_iter().map(Advised::new).collect(),
        jobs: planned(jobs::last_runs(connection)?, (scene.plan)(now / 1000), &readings),
        reconciliation: runs::latest(connection, 1)?.pop().map(|run| Reconciliation {
            started_at: run.started_at,
            result: run.result,
            counts: serde_json::from_str(&run.counts).unwrap_or_default(),
        }),
        backup_at: files::newest_backup(&scene.alerts.database, &scene.backups).unwrap_or_default(),
        room: Room {
            disk_free: readings.room.map(|room| room.free),
            database: readings.room.map(|room| room.database),
            wal: readings.wal.bytes,
        },
        audit: AuditHead { seq: head.seq, hash: base16ct::lower::encode_string(&head.hash) },
        lately: events::list(connection, &Filter { limit: LATELY_MAX, ..Filter::default() })?.rows,
    })
}

fn seen(connection: &Connection, (path, secrets): &(String, usize)) -> Result<Webhook, StoreError> {
    let (secret, verified_at) = last_verified(connection, path)?.unzip();
    Ok(Webhook { path: path.clone(), secrets: *secrets, secret: secret.map(|secret| secret + 1), verified_at })
}

/// The jobs that are planned, and those that have run without a schedule.
fn planned(ran: Vec<Run>, plan: Vec<Planned>, readings: &Readings) -> Vec<Job> {
    let last = |job: &str| ran.iter().find(|run| run.job == job).cloned();
    let mut jobs: Vec<Job> = plan
        .into_iter()
        .map(|Planned { job, schedule, next }| Job {
            job: job.to_owned(),
            schedule: Some(schedule),
            next_at: next,
            overdue: readings.overdue.iter().any(|overdue| overdue.job == job),
            last: last(job),
        })
        .collect();
    let unplanned: Vec<Job> = ran
        .iter()
        .filter(|run| jobs.iter().all(|job| job.job != run.job))
        .map(|run| Job { job: run.job.clone(), schedule: None, next_at: None, overdue: false, last: Some(run.clone()) })
        .collect();
    jobs.extend(unplanned);
    jobs.sort_by(|one, other| one.job.cmp(&other.job));
    jobs
}
