//! What runs by the clock: the schedule as a table, and the thread that keeps it.
//!
//! One thread runs all jobs, one after the other, so that none overlaps itself and none takes time from a request. On
//! the same thread tokio-cron-scheduler rings whenever a schedule comes. A ring only says "look": what is due is told
//! by the schedule, the clock and the last run that succeeded, so a run that was missed while the server was down is
//! made up for, once, by the look at the start.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_cron_scheduler::JobScheduler;

use crate::clock::UnixMillis;
use crate::config::{Config, Schedule};
use crate::domain::event::UnixSeconds;
use crate::domain::money::Currency;
use crate::ecb::{feed, fetch};
use crate::notify::Sink;
use crate::ops::alerts::LATE_S;
use crate::ops::backup::{self, Shelf};
use crate::ops::fx::{self, Told};
use crate::ops::ingest::{Errand, Rules};
use crate::ops::overview::Planned;
use crate::ops::reap;
use crate::ops::reconcile::{self, Ended, Place};
use crate::ops::retain::{self, Keep};
use crate::stop::Stop;
use crate::store::reader::Reader;
use crate::store::{Desk, StoreError, audit, files, jobs};
use crate::stripe::client::Client;

/// So long it waits after a look that went wrong: the next ring may be a day away.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The job that writes a backup.
pub const BACKUP: &str = "backup";

/// What reconciliation needs beyond the database.
#[derive(Debug)]
pub struct Stripe {
    /// Who is asked.
    pub client: Client,
    /// What is right, and how far to look.
    pub rules: reconcile::Rules,
}

/// The schedule: every job, when it runs, and what it does. Without `stripe` nothing is reconciled.
#[must_use]
pub fn table<D: Desk>(config: &Config, rules: &Rules, stripe: Option<Stripe>, heart: Option<Sink>) -> Vec<Job<D>> {
    let when = &config.jobs;
    let reconciliation =
        stripe.map(|stripe| Job::new("reconcile", &when.reconcile, reconciliation(config, stripe, heart)));
    let mut table = vec![
        Job::new("reaper", &when.reaper, reaper(config, rules)),
        Job::new("retention", &when.retention, retention(config)),
        Job::new("fx", &when.fx, rates(config, rules)),
        Job::new(BACKUP, &when.backup, backups(config)),
    ];
    // Last: Stripe may be slow, and nothing else should wait for it.
    table.extend(reconciliation);
    table
}

/// When each job that has a schedule should have begun last. What is hardly late is left out.
#[must_use]
pub fn due(config: &Config, now: UnixSeconds) -> Vec<(&'static str, UnixSeconds)> {
    scheduled(config).filter_map(|(job, schedule)| Some((job, schedule.last_due(now - LATE_S)?))).collect()
}

/// When each job that has a schedule comes next.
#[must_use]
pub fn plan(config: &Config, now: UnixSeconds) -> Vec<Planned> {
    scheduled(config)
        .map(|(job, schedule)| Planned { job, schedule: schedule.as_str().to_owned(), next: schedule.next_due(now) })
        .collect()
}

fn scheduled(config: &Config) -> impl Iterator<Item = (&'static str, &Schedule)> {
    let when = &config.jobs;
    let reconcile = when.reconcile.as_ref().filter(|_| config.stripe.api_key.is_some());
    [
        ("reaper", when.reaper.as_ref()),
        ("reconcile", reconcile),
        ("retention", when.retention.as_ref()),
        ("fx", when.fx.as_ref()),
        (BACKUP, when.backup.as_ref()),
    ]
    .into_iter()
    .filter_map(|(job, schedule)| Some((job, schedule?)))
}

fn reconciliation<D: Desk>(
    config: &Config,
    stripe: Stripe,
    heart: Option<Sink>,
) -> impl Fn(&mut Context<'_, D>) -> anyhow::Result<String> + Send + 'static {
    let folder = files::folder_of(&config.database.path).to_owned();
    move |job| {
        let place = Place {
            api: &stripe.client,
            reader: job.reader,
            folder: &folder,
            clock: &job.clock,
            stop: job.stop,
            actor: "job:reconcile",
            progress: &|_, _| (),
        };
        let report = reconcile::run(place, job.desk, &stripe.rules, reconcile::Options::default())?;
        if report.counts.open > 0 {
            tracing::warn!(
                open = report.counts.open,
                "the books and Stripe differ: `billingd findings list` shows how"
            );
        }
        for untold in &report.cannot_tell {
            tracing::warn!(untold, "Stripe does not tell everything, so it is not compared: see `billingd doctor`");
        }
        anyhow::ensure!(report.result == Ended::Ok, "it was cut short: {}", report.cut_short.join("; "));
        match heartbeat(heart.as_ref(), job.reader) {
            Ok(heartbeat) => heartbeat.log(),
            Err(error) => tracing::warn!(%error, "no heartbeat: the audit log cannot be read"),
        }
        let counts = report.counts;
        Ok(format!("{} events never came, {} new findings, {} open", counts.missing, counts.found, counts.open))
    }
}

/// What tells the world outside that a reconciliation was complete, and where the audit log ended then.
#[derive(Debug, Serialize)]
pub struct Heartbeat {
    /// How many rows the audit log has.
    pub audit_rows: i64,
    /// The hash of its last row, in hex. Who holds it can prove later that nothing before it was changed.
    pub audit_head: String,
    /// Somebody outside has heard it; `None`: nobody is to.
    pub heard: Option<bool>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Sends one, if somebody is to hear it.
///
/// # Errors
/// When the audit log cannot be read. That nobody hears is no error.
pub fn heartbeat(heart: Option<&Sink>, reader: &Reader) -> Result<Heartbeat, StoreError> {
    let head = reader.read(audit::head)?;
    let (audit_rows, audit_head) = (head.seq, base16ct::lower::encode_string(&head.hash));
    let text = format!("billingd: the reconciliation was complete; audit head {audit_rows} {audit_head}\n");
    let sent = heart.map(|heart| heart.beat(&text));
    let heard = sent.as_ref().map(Result::is_ok);
    let problem = sent.and_then(Result::err).map(|error| error.to_string());
    Ok(Heartbeat { audit_rows, audit_head, heard, problem })
}

impl Heartbeat {
    fn log(&self) {
        let Self { audit_rows, audit_head, heard, problem } = self;
        tracing::info!(audit_rows, audit_head, heard, "heartbeat: the reconciliation was complete");
        if let Some(problem) = problem {
            tracing::warn!(problem, "the heartbeat was not taken: see [alerts] heartbeat_url");
        }
    }
}

fn reaper<D: Desk>(
    config: &Config,
    rules: &Rules,
) -> impl Fn(&mut Context<'_, D>) -> anyhow::Result<String> + Send + 'static {
    let errand = Errand::new(rules.clone(), "job:reaper");
    let pending_after = i64::try_from(config.reaper.pending_after.as_millis()).unwrap_or(i64::MAX);
    move |job| {
        let reaped = reap::reap(job.desk, &errand, pending_after, job.now)?;
        for id in &reaped.dead_letters {
            tracing::error!(event_id = id, "a dead letter: `billingd events show` tells why");
        }
        Ok(format!("{} ran again, {} new dead letters", reaped.ran, reaped.dead_letters.len()))
    }
}

fn rates<D: Desk>(
    config: &Config,
    rules: &Rules,
) -> impl Fn(&mut Context<'_, D>) -> anyhow::Result<String> + Send + 'static {
    let errand = Errand::new(rules.clone(), "job:fx");
    let (url, base) = (config.fx.url.clone(), config.fx.base.clone());
    move |job| {
        let url = url.resolve(&|name| std::env::var(name).ok()).context("[fx] url")?;
        let bytes = fetch::fetch(url.expose()).with_context(|| format!("no rates from [fx] url, {}", url.origin()))?;
        let rates = feed::parse(&bytes).with_context(|| format!("{} holds no file of rates", url.origin()))?;
        let told = Told { rates, base: Currency::parse(&base).context("[fx] base")?, source: url.origin().to_owned() };
        let updated = fx::update(job.desk, told, &errand, job.now)?;
        Ok(format!("{} new rates, the newest of {}; {} events ran", updated.new, updated.newest, updated.woken))
    }
}

fn retention<D: Desk>(config: &Config) -> impl Fn(&mut Context<'_, D>) -> anyhow::Result<String> + Send + 'static {
    let keep = keep(config);
    move |job| {
        let pruned = retain::prune(job.reader, job.desk, keep, "job:retention", job.now, job.stop)?;
        Ok(format!("{} payloads, {} ignored events", pruned.payloads, pruned.ignored_events))
    }
}

/// What a config lets retention keep.
#[must_use]
pub fn keep(config: &Config) -> Keep {
    Keep { payloads: config.retention.payloads, ignored_events: config.retention.ignored_events }
}

fn backups<D: Desk>(config: &Config) -> impl Fn(&mut Context<'_, D>) -> anyhow::Result<String> + Send + 'static {
    let (database, shelf) = (config.database.path.clone(), shelf(config));
    move |job| {
        let written = backup::shelve(&database, &shelf, job.now, job.stop)?;
        Ok(format!("{}, {} events, audit head {}", written.path.display(), written.events, written.audit_head))
    }
}

/// Where a config has backups go, and how many of them it keeps.
#[must_use]
pub fn shelf(config: &Config) -> Shelf {
    let beside = || files::folder_of(&config.database.path).join("backups");
    Shelf {
        folder: config.backup.folder.clone().unwrap_or_else(beside),
        keep: usize::try_from(config.backup.keep).unwrap_or(usize::MAX),
    }
}

/// What a job does; the text tells people what it did.
type Work<D> = Box<dyn Fn(&mut Context<'_, D>) -> anyhow::Result<String> + Send>;

/// A line of the schedule.
pub struct Job<D> {
    /// Its name in logs, in `job_runs` and, after `job:`, in the audit log.
    pub name: &'static str,
    /// When; `None`: only when somebody asks for it.
    pub schedule: Option<Schedule>,
    run: Work<D>,
}

impl<D> Job<D> {
    /// A line of the schedule.
    pub fn new(
        name: &'static str,
        schedule: &Option<Schedule>,
        run: impl Fn(&mut Context<'_, D>) -> anyhow::Result<String> + Send + 'static,
    ) -> Self {
        Self { name, schedule: schedule.clone(), run: Box::new(run) }
    }
}

/// What a job works with.
pub struct Context<'a, D> {
    /// Where it writes.
    pub desk: &'a mut D,
    /// Where it reads.
    pub reader: &'a Reader,
    /// When it began.
    pub now: UnixMillis,
    /// The time of day.
    pub clock: fn() -> UnixMillis,
    /// To be looked at between two steps: the server wants to end.
    pub stop: &'a Stop,
}

/// A run whose beginning is on disk.
struct Begun {
    run: i64,
    now: UnixMillis,
}

/// Runs the lines of a table and remembers what came of them.
pub struct Runner<D> {
    jobs: Vec<Job<D>>,
    desk: D,
    reader: Reader,
    clock: fn() -> UnixMillis,
    stop: Stop,
    since: UnixSeconds,
    /// The moments that were seen to, whatever came of it: a failed run waits for its next one.
    seen_to: BTreeMap<&'static str, UnixSeconds>,
}

impl<D: Desk> Runner<D> {
    /// A runner that has not run anything yet. What was due before `since` was not missed.
    pub fn new(
        jobs: Vec<Job<D>>,
        desk: D,
        reader: Reader,
        clock: fn() -> UnixMillis,
        since: UnixSeconds,
        stop: Stop,
    ) -> Self {
        Self { jobs, desk, reader, clock, stop, since, seen_to: BTreeMap::new() }
    }

    /// Runs each job that has become due since its last good run, once, however often it was missed.
    ///
    /// # Errors
    /// When the database does not tell what ran, or take what did. That a job fails is no error here.
    pub fn run_due(&mut self) -> Result<(), StoreError> {
        let now = (self.clock)() / 1000;
        let succeeded = self.reader.read(|connection| jobs::last_successes(connection, now))?;
        for index in 0..self.jobs.len() {
            let Some(job) = self.jobs.get(index).filter(|_| !self.stop.is_set()) else { break };
            let Some(due) = job.schedule.as_ref().and_then(|schedule| schedule.last_due(now)) else { continue };
            let last = succeeded.get(job.name).map_or(self.since, |at| self.since.max(*at));
            let name = job.name;
            if due > last && self.seen_to.get(name) != Some(&due) {
                let begun = self.begin(name)?;
                // Not before: a run that could not even begin is still due.
                self.seen_to.insert(name, due);
                self.carry_out(name, begun)?;
            }
        }
        Ok(())
    }

    /// Runs one job now.
    ///
    /// # Errors
    /// As [`Self::run_due`].
    pub fn run(&mut self, name: &'static str) -> Result<(), StoreError> {
        let begun = self.begin(name)?;
        self.carry_out(name, begun)
    }

    fn begin(&mut self, name: &'static str) -> Result<Begun, StoreError> {
        let now = (self.clock)();
        let run = self.desk.write(move |transaction| jobs::begin(transaction, name, now / 1000))?;
        tracing::info!(job = name, "a job begins");
        Ok(Begun { run, now })
    }

    fn carry_out(&mut self, name: &str, Begun { run, now }: Begun) -> Result<(), StoreError> {
        let Self { jobs, desk, reader, clock, stop, .. } = self;
        let Some(job) = jobs.iter().find(|job| job.name == name) else { return Ok(()) };
        let mut context = Context { desk: &mut *desk, reader, now, clock: *clock, stop };
        let outcome = catch_unwind(AssertUnwindSafe(|| (job.run)(&mut context)))
            .unwrap_or_else(|_| Err(anyhow::anyhow!("a bug: the job panicked; please report it")));
        let (succeeded, result) = match outcome {
            _ if stop.is_set() => (false, "cut short by the end of the server".to_owned()),
            Ok(did) => (true, did),
            Err(error) => (false, format!("{error:#}")),
        };
        if succeeded {
            tracing::info!(job = name, result, "a job is done");
        } else if stop.is_set() {
            tracing::info!(job = name, "a job was cut short; the next start makes up for it");
        } else {
            tracing::error!(
                job = name,
                error = result,
                "a job failed; it runs again when it is due, or after a restart"
            );
        }
        let ended = clock() / 1000;
        desk.write(move |transaction| jobs::end(transaction, run, succeeded, &result, ended))
    }
}

/// What the thread of the jobs is told.
#[derive(Debug, Clone, Copy)]
enum Call {
    /// Something may be due.
    Look,
    /// Run this one.
    Run(&'static str),
    /// Nothing more comes.
    End,
}

/// The jobs of a server, on their thread.
#[derive(Debug)]
pub struct Jobs {
    calls: UnboundedSender<Call>,
    asked: Arc<Mutex<BTreeSet<&'static str>>>,
    thread: JoinHandle<()>,
}

impl Jobs {
    /// Starts the thread, which first makes up for what was missed since `since`. `stop` ends a job between two steps.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start<D: Desk + Send + 'static>(
        table: Vec<Job<D>>,
        desk: D,
        reader: Reader,
        clock: fn() -> UnixMillis,
        since: UnixSeconds,
        stop: Stop,
    ) -> std::io::Result<Self> {
        let (calls, called) = unbounded_channel();
        let asked = Arc::default();
        let schedules = table.iter().filter_map(|job| job.schedule.clone()).collect();
        let runner = Runner::new(table, desk, reader, clock, since, stop);
        let thread = JobsThread { runner, bell: calls.clone(), asked: Arc::clone(&asked) };
        let thread = std::thread::Builder::new().name("jobs".into()).spawn(move || thread.run(schedules, called))?;
        Ok(Self { calls, asked, thread })
    }

    /// Asks for a run of a job beside its schedule. False: it has been asked for already, or runs.
    pub fn ask(&self, job: &'static str) -> bool {
        let is_new = self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(job);
        is_new && self.calls.send(Call::Run(job)).is_ok()
    }

    /// Ends the thread after the running job, which its `stop` ends.
    pub fn stop(&self) {
        // A thread that is gone needs no telling.
        let _ = self.calls.send(Call::End);
    }

    /// The thread, to be waited for after [`Self::stop`].
    #[must_use]
    pub fn into_thread(self) -> JoinHandle<()> {
        self.thread
    }
}

struct JobsThread<D> {
    runner: Runner<D>,
    bell: UnboundedSender<Call>,
    asked: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl<D: Desk> JobsThread<D> {
    fn run(mut self, schedules: Vec<Schedule>, mut called: UnboundedReceiver<Call>) {
        let ended = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .context("no runtime for the jobs")
            .and_then(|runtime| runtime.block_on(self.keep_schedule(schedules, &mut called)));
        if let Err(error) = ended {
            tracing::error!(error = format!("{error:#}"), "no job runs any more; restart billingd");
        }
    }

    async fn keep_schedule(
        &mut self,
        schedules: Vec<Schedule>,
        called: &mut UnboundedReceiver<Call>,
    ) -> anyhow::Result<()> {
        let mut scheduler = JobScheduler::new().await?;
        for schedule in schedules {
            let bell = self.bell.clone();
            let ring = move |_, _| {
                let _ = bell.send(Call::Look);
            };
            scheduler.add(tokio_cron_scheduler::Job::new(schedule.as_str(), ring)?).await?;
        }
        scheduler.start().await?;
        let mut looked = self.answer(Call::Look);
        while let Some(call) = next(called, looked).await {
            match call {
                Call::End => break,
                Call::Look => looked = self.answer(call),
                Call::Run(_) => drop(self.answer(call)),
            }
        }
        Ok(scheduler.shutdown().await?)
    }

    /// Blocks the thread, and with it the bell; what rings meanwhile is one look afterwards. False: the database did not
    /// take it.
    fn answer(&mut self, call: Call) -> bool {
        let done = match call {
            Call::Look => self.runner.run_due(),
            Call::Run(job) if !self.runner.stop.is_set() => {
                let ran = self.runner.run(job);
                self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
                ran
            }
            Call::Run(_) | Call::End => Ok(()),
        };
        if let Err(error) = &done {
            tracing::error!(%error, "the database does not take the runs of jobs; what is due is tried again in a minute");
        }
        done.is_ok()
    }
}

/// The next call; after a look that went wrong, another one if nobody calls for a while.
async fn next(called: &mut UnboundedReceiver<Call>, looked: bool) -> Option<Call> {
    if looked {
        return called.recv().await;
    }
    tokio::time::timeout(LOOK_AGAIN, called.recv()).await.unwrap_or(Some(Call::Look))
}
