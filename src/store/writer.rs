//! The one thread that writes for a server.
//!
//! It takes what is waiting, runs it in one `BEGIN IMMEDIATE` … `COMMIT`, and only then answers: while one batch
//! commits, the next one gathers by itself, so one flush of the disk serves all who wait. It knows nothing of events;
//! a [`Batch`] does the work inside the transaction. Between two batches it does what others of the server have to
//! write: the writer is their [`Desk`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use crate::clock::UnixMillis;
use crate::store::desk::{self, Desk};
use crate::store::open::ServerConnection;
use crate::store::{StoreError, connect, meta};

/// How long the writer sleeps at most before it shows that it lives.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// A heartbeat older than this means that the writer is stuck.
pub const HEARTBEAT_MAX: Duration = Duration::from_secs(20);

/// The name under which a database keeps when its server last found out whether it takes writes again.
const PROBED_AT: &str = "probed_at_ms";

/// What is done with a batch of jobs inside one transaction.
pub trait Batch: Send + 'static {
    /// One piece of work.
    type Job: Send + 'static;
    /// What its sender is told after the commit.
    type Answer: Send + 'static;

    /// Runs all jobs; answers in their order. May be called without jobs, to write what has gathered besides.
    ///
    /// # Errors
    /// Any error aborts the whole batch: nothing of it is stored, and every sender is told so.
    fn run(
        &mut self,
        transaction: &Transaction<'_>,
        jobs: Vec<Self::Job>,
        now: UnixMillis,
    ) -> Result<Vec<Self::Answer>, StoreError>;

    /// Something has gathered that should be written even if no job comes for a while.
    fn has_leftovers(&self) -> bool {
        false
    }

    /// Something should be written at once, even if no job waits.
    fn is_urgent(&self, _now: UnixMillis) -> bool {
        false
    }

    /// The batch is on disk, or it is not.
    fn ended(&mut self, _committed: bool) {}

    /// Somebody else has written: there may be work that no job tells of.
    fn look_around(&mut self) {}
}

/// Limits of a writer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Jobs in one transaction; 1 gives one commit per job.
    pub batch_max: usize,
    /// Jobs that may wait; one more is refused.
    pub queue_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch_max: 256, queue_max: 4_096 }
    }
}

/// Why a job was not done. Nothing of it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// Too much is waiting, or the writer is going away.
    Overloaded,
    /// The database did not take it.
    Unavailable,
}

enum Message<B: Batch> {
    Job(Posted<B>),
    Task(Task),
    Stop,
}

struct Posted<B: Batch> {
    job: B::Job,
    answer: oneshot::Sender<Result<B::Answer, NotDone>>,
}

/// A transaction of somebody else; it tells its sender, and the health, by itself how it went.
type Task = Box<dyn FnOnce(&mut Connection) + Send>;

/// A handle to the writer thread. The thread ends when all handles are gone, or when it is told to stop.
pub struct Writer<B: Batch> {
    queue: SyncSender<Message<B>>,
    health: Health,
}

impl<B: Batch> Clone for Writer<B> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), health: self.health.clone() }
    }
}

impl<B: Batch> std::fmt::Debug for Writer<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("health", &self.health).finish_non_exhaustive()
    }
}

impl<B: Batch> Writer<B> {
    /// Starts the thread. `on_beat` is called by it about once per [`HEARTBEAT`] for as long as it moves.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        server: ServerConnection,
        batch: B,
        limits: Limits,
        clock: fn() -> UnixMillis,
        on_beat: fn(),
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, jobs) = sync_channel(limits.queue_max.max(1));
        let health = Health::new(on_beat);
        let mut thread = WriterThread { server, batch, limits, clock, health: health.clone(), seen: None };
        let handle = std::thread::Builder::new().name("writer".into()).spawn(move || thread.run(&jobs))?;
        Ok((Self { queue, health }, handle))
    }

    /// Hands over a job. The answer comes after the commit that it speaks of; dropping the future changes nothing.
    ///
    /// # Errors
    /// [`NotDone::Overloaded`] at once when the queue is full, [`NotDone::Unavailable`] when the commit failed.
    pub async fn run(&self, job: B::Job) -> Result<B::Answer, NotDone> {
        let (answer, told) = oneshot::channel();
        match self.queue.try_send(Message::Job(Posted { job, answer })) {
            Ok(()) => told.await.unwrap_or(Err(NotDone::Unavailable)),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(NotDone::Overloaded),
        }
    }

    /// Ends the thread once it has done what was handed over before; what comes later is refused. Waits until the queue
    /// has room.
    pub fn stop(&self) {
        // Who has ended already need not be told.
        drop(self.queue.send(Message::Stop));
    }

    /// How the writer is.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }
}

impl<B: Batch> Desk for Writer<B> {
    /// Waits for its turn and for the commit; not for the threads that serve requests.
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, told) = sync_channel(1);
        let health = self.health.clone();
        let task: Task = Box::new(move |connection| {
            let changes = connection.total_changes();
            let done = desk::transact(connection, work);
            match &done {
                Ok(_) if connection.total_changes() != changes => health.beat(None),
                Err(error) if error.is_environmental() => health.beat(Some(error.to_string())),
                // It proves nothing about the disk: what writes nothing also commits on a full one.
                Ok(_) | Err(_) => health.moves(),
            }
            // A sender that went away leaves nothing undone.
            drop(answer.send(done));
        });
        self.queue.send(Message::Task(task)).map_err(|_| StoreError::Stopped)?;
        told.recv().unwrap_or(Err(StoreError::Stopped))
    }
}

/// What the writer says about itself; feeds `/readyz` and the watchdog.
#[derive(Debug, Clone)]
pub struct Health(Arc<Mutex<Beat>>);

#[derive(Debug)]
struct Beat {
    at: Instant,
    told: Instant,
    trouble: Option<String>,
    on_beat: fn(),
}

impl Health {
    fn new(on_beat: fn()) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(Beat { at: now, told: now, trouble: None, on_beat })))
    }

    /// Whether the writer lives and the database takes writes.
    ///
    /// # Errors
    /// The reason why the database takes no writes now.
    pub fn check(&self) -> Result<(), String> {
        let beat = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &beat.trouble {
            Some(trouble) => Err(trouble.clone()),
            None if beat.at.elapsed() > HEARTBEAT_MAX => {
                Err(format!("the writer has not moved for {} s", beat.at.elapsed().as_secs()))
            }
            None => Ok(()),
        }
    }

    fn beat(&self, trouble: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).trouble = trouble;
        self.moves();
    }

    /// The writer moves; whether the database takes writes is as it was.
    fn moves(&self) {
        let mut beat = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        beat.at = Instant::now();
        if beat.told.elapsed() >= HEARTBEAT {
            beat.told = beat.at;
            (beat.on_beat)();
        }
    }

    fn is_troubled(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).trouble.is_some()
    }
}

/// What the thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    End,
}

struct WriterThread<B: Batch> {
    server: ServerConnection,
    batch: B,
    limits: Limits,
    clock: fn() -> UnixMillis,
    health: Health,
    /// The version of the database that only commits of other connections change.
    seen: Option<i64>,
}

impl<B: Batch> WriterThread<B> {
    fn run(&mut self, queue: &Receiver<Message<B>>) {
        loop {
            let urgent = self.batch.is_urgent((self.clock)()) && !self.health.is_troubled();
            match queue.recv_timeout(if urgent { Duration::ZERO } else { HEARTBEAT }) {
                Ok(first) => {
                    let mut messages = vec![first];
                    messages.extend(queue.try_iter().take(self.limits.batch_max.saturating_sub(1)));
                    if self.take(messages) == Then::End {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.notice_others();
                    let urgent = urgent || self.batch.is_urgent((self.clock)());
                    if urgent || self.batch.has_leftovers() || self.health.is_troubled() {
                        self.write(Vec::new());
                    } else {
                        self.health.beat(None);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.write(Vec::new());
        if let Err(error) = self.server.connection.execute_batch("PRAGMA optimize") {
            tracing::debug!(%error, "the database was not optimized");
        }
    }

    /// What commands beside the server have written may have left work.
    fn notice_others(&mut self) {
        match connect::version(&self.server.connection) {
            Ok(version) => {
                // The first look only learns the number: a batch begins with what a former run has left.
                if self.seen.replace(version).is_some_and(|seen| seen != version) {
                    self.batch.look_around();
                }
            }
            Err(error) => tracing::debug!(%error, "nobody knows whether others have written"),
        }
    }

    /// The jobs are one transaction, each task is one of its own.
    fn take(&mut self, messages: Vec<Message<B>>) -> Then {
        let mut then = Then::GoOn;
        let (mut jobs, mut tasks) = (Vec::with_capacity(messages.len()), Vec::new());
        for message in messages {
            match message {
                Message::Job(job) => jobs.push(job),
                Message::Task(task) => tasks.push(task),
                Message::Stop => then = Then::End,
            }
        }
        self.notice_others();
        if !jobs.is_empty() {
            self.write(jobs);
        }
        for task in tasks {
            let connection = &mut self.server.connection;
            if catch_unwind(AssertUnwindSafe(|| task(connection))).is_err() {
                tracing::error!("a task of the server panicked; nothing of it is stored");
            }
            self.batch.look_around();
            self.health.moves();
        }
        then
    }

    fn write(&mut self, posted: Vec<Posted<B>>) {
        let (jobs, senders): (Vec<_>, Vec<_>) = posted.into_iter().map(|posted| (posted.job, posted.answer)).unzip();
        let probe = jobs.is_empty() && self.health.is_troubled();
        let written = commit(&mut self.server.connection, &mut self.batch, jobs, probe, (self.clock)());
        self.batch.ended(written.is_ok());
        match written {
            Ok(answers) => {
                self.health.beat(None);
                for (sender, answer) in senders.into_iter().zip(answers) {
                    // A sender that went away is a dropped client: the commit stands.
                    drop(sender.send(Ok(answer)));
                }
            }
            Err(error) => {
                tracing::error!(events = senders.len(), error = %error, "a batch was not stored");
                self.health.beat(Some(error.to_string()));
                for sender in senders {
                    drop(sender.send(Err(NotDone::Unavailable)));
                }
            }
        }
    }
}

/// One transaction. Whatever goes wrong in it, a panic too, takes back all of it. `probe`: write something in any case.
fn commit<B: Batch>(
    connection: &mut Connection,
    batch: &mut B,
    jobs: Vec<B::Job>,
    probe: bool,
    now: UnixMillis,
) -> Result<Vec<B::Answer>, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if probe {
        // A transaction that writes nothing also commits on a full disk.
        meta::set(&transaction, PROBED_AT, &now.to_string())?;
    }
    let answers = catch_unwind(AssertUnwindSafe(|| batch.run(&transaction, jobs, now))).unwrap_or_else(|_| {
        Err(StoreError::Damaged { what: "a batch".into(), problem: "the writer panicked outside of an event".into() })
    })?;
    transaction.commit()?;
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open::{self, Binding};

    /// Puts each number into a table; 13 panics, 14 fails.
    struct Numbers;

    impl Batch for Numbers {
        type Job = i64;
        type Answer = usize;

        fn run(&mut self, transaction: &Transaction<'_>, jobs: Vec<i64>, _now: i64) -> Result<Vec<usize>, StoreError> {
            for job in &jobs {
                assert!(*job != 13, "thirteen");
                if *job == 14 {
                    return Err(StoreError::unusable("here", "fourteen"));
                }
                meta::set(transaction, &job.to_string(), "there")?;
            }
            Ok(vec![jobs.len(); jobs.len()])
        }
    }

    fn connection() -> (tempfile::TempDir, ServerConnection) {
        let folder = tempfile::tempdir().expect("a folder");
        let binding = Binding { livemode: false, connected_account: None };
        let server = open::server(&folder.path().join("books.db"), &binding).expect("a database");
        (folder, server)
    }

    #[test]
    fn the_live_writer_is_durable() {
        let (_folder, server) = connection();
        let pragma = |name: &str| -> i64 {
            server.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).expect(name)
        };
        assert_eq!(pragma("synchronous"), 2, "FULL");
        assert_eq!(pragma("foreign_keys"), 1);
        assert_eq!(pragma("recursive_triggers"), 1);
        assert!(rusqlite::version_number() >= connect::SQLITE_VERSION_MIN);
    }

    #[test]
    fn whatever_goes_wrong_takes_back_the_whole_batch() {
        let (_folder, mut server) = connection();
        for bad in [13, 14] {
            let connection = &mut server.connection;
            assert!(commit(connection, &mut Numbers, vec![1, bad, 2], false, 0).is_err());
            assert!(connection.is_autocommit());
            assert_eq!(meta::get(connection, "1").expect("a read"), None);
            assert_eq!(commit(connection, &mut Numbers, vec![3], false, 0).expect("a commit"), [1]);
        }
    }

    #[test]
    fn all_that_waits_is_one_commit_and_what_is_too_much_is_refused() {
        let (_folder, server) = connection();
        let (queue, jobs) = sync_channel(3);
        let health = Health::new(|| ());
        let writer = Writer::<Numbers> { queue, health: health.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let answers = runtime.block_on(async {
            let mut waiting: Vec<_> = (1..=4).map(|job| Box::pin(writer.run(job))).collect();
            for one in &mut waiting {
                let polled = std::future::poll_fn(|context| std::task::Poll::Ready(one.as_mut().poll(context))).await;
                assert!(polled.is_pending() || polled == std::task::Poll::Ready(Err(NotDone::Overloaded)));
            }
            waiting.pop();
            drop(writer.clone());
            let thread = std::thread::spawn(move || {
                let limits = Limits { batch_max: 256, queue_max: 3 };
                let mut thread = WriterThread { server, batch: Numbers, limits, clock: || 0, health, seen: None };
                let first = jobs.recv().expect("a job");
                let mut all = vec![first];
                all.extend(jobs.try_iter());
                thread.take(all);
            });
            let mut answers = Vec::new();
            for one in waiting {
                answers.push(one.await);
            }
            thread.join().expect("the writer");
            answers
        });
        assert_eq!(answers, [Ok(3), Ok(3), Ok(3)], "three jobs, one batch");
    }

    #[test]
    fn the_writer_is_a_desk_and_a_task_that_goes_wrong_takes_back_itself() {
        let (_folder, server) = connection();
        let (mut writer, thread) = Writer::start(server, Numbers, Limits::default(), || 0, || ()).expect("a writer");
        writer.write(|transaction| meta::set(transaction, "a", "there")).expect("a commit");
        let refused: Result<(), _> = writer.write(|transaction| {
            meta::set(transaction, "b", "there")?;
            Err(StoreError::unusable("here", "no"))
        });
        assert!(matches!(refused, Err(StoreError::Unusable { .. })));
        let panicked: Result<(), _> = writer.write(|transaction| {
            meta::set(transaction, "b", "there")?;
            panic!("a task")
        });
        assert!(matches!(panicked, Err(StoreError::Stopped)));
        let held = writer.write(|transaction| Ok((meta::get(transaction, "a")?, meta::get(transaction, "b")?)));
        assert_eq!(held.expect("a read"), (Some("there".to_owned()), None));
        drop(writer);
        thread.join().expect("the writer");
    }

    #[test]
    fn a_task_ends_the_trouble_of_the_batches_only_if_it_wrote() {
        let (_folder, server) = connection();
        let (queue, queued) = sync_channel(1);
        let health = Health::new(|| ());
        let mut writer = Writer::<Numbers> { queue, health: health.clone() };
        let limits = Limits::default();
        let mut thread =
            WriterThread { server, batch: Numbers, limits, clock: || 0, health: health.clone(), seen: None };
        let mut after = |trouble: Option<&str>, work: fn(&Transaction<'_>) -> Result<(), StoreError>| {
            health.beat(trouble.map(str::to_owned));
            std::thread::scope(|scope| {
                let sender = scope.spawn(|| writer.write(work));
                thread.take(vec![queued.recv().expect("a task")]);
                drop(sender.join().expect("a sender"));
            });
            health.check().err()
        };
        let held = Some("a batch was not stored".to_owned());
        let reads = |transaction: &Transaction<'_>| meta::get(transaction, "a").map(drop);
        assert_eq!(after(held.as_deref(), reads), held, "what writes nothing");
        assert_eq!(
            after(held.as_deref(), |_| Err(StoreError::Damaged { what: "a row".into(), problem: "no".into() })),
            held,
            "what fails by itself"
        );
        assert_eq!(after(held.as_deref(), |_| panic!("a task")), held, "what panics");
        assert_eq!(after(None, |_| Err(StoreError::Damaged { what: "a row".into(), problem: "no".into() })), None);
        assert!(
            after(None, |_| Err(StoreError::unusable("here", "the disk is full")))
                .is_some_and(|told| told.contains("the disk is full"))
        );
        assert_eq!(after(held.as_deref(), |transaction| meta::set(transaction, "a", "there")), None);
    }
}
