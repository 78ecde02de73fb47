//! One event, from its facts to its answer: load → decide → claim → effects → audit.
//!
//! [`Ingest`] runs a batch of deliveries inside the writer's transaction, then what waited for them. An event that goes
//! wrong takes back its own effects only; trouble with disk, memory or locks takes back the batch.

mod errand;
mod told;
mod verified;

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Transaction;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::decide;
use crate::domain::decision::{Completion, Decision, Failure, Need, Outcome};
use crate::domain::event::{Body, Event, UnixSeconds};
use crate::domain::fact::Fact;
use crate::domain::ids::{AccountId, EventId, SubscriptionId};
use crate::domain::policy::Policy;
use crate::ops::apply::{Books, Cause};
use crate::ops::facts;
use crate::store::events::{self, Claim, EventMeta, Source};
use crate::store::payload::{self, Fetched, Payload};
use crate::store::writer::Batch;
use crate::store::{StoreError, savepoint, subscriptions};
use crate::stripe::wire;

pub use errand::{Done, Errand, Rules, Stored, stored};
pub use verified::{Verified, forget_verified, last_verified};

/// A repeat later than this after the first delivery was sent by hand: Stripe's own retries end after three days.
const LATE_MS: i64 = 72 * 3_600_000;

/// How many events may have uncounted duplicates at a time; more are not counted.
const UNCOUNTED_MAX: usize = 10_000;

/// How many waiting events one batch runs again at most, so that deliveries never wait long for them; the rest comes
/// with the next batches.
const WOKEN_MAX: usize = 256;

/// How many held tiers one batch ends at most.
const DUE_MAX: usize = 64;

/// When to look again at a held tier that could not be ended, in seconds.
const STUCK_S: i64 = 60;

/// A verified and parsed event, ready for the writer.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What it says.
    pub event: Event,
    /// What was received; `None`: it is in the database already.
    pub payload: Option<Payload>,
    /// Where it came from.
    pub source: Source,
    /// When it arrived.
    pub received: UnixMillis,
}

/// What became of a delivery; speaks of what is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Completed now.
    Completed {
        /// What became of it.
        outcome: Outcome,
        /// Why, where the outcome alone does not say.
        reason: Option<String>,
    },
    /// Was completed before.
    Duplicate {
        /// What became of it then.
        outcome: String,
    },
    /// Waits; ours to finish.
    Pending {
        /// For what.
        needs: String,
    },
    /// This attempt failed, and was recorded.
    Failed {
        /// The stable code of the failure.
        code: &'static str,
        /// Failures so far.
        attempts: i64,
    },
    /// It failed for the last time; a person must look.
    DeadLetter {
        /// The stable code of the failure.
        code: &'static str,
        /// Failures so far.
        attempts: i64,
    },
}

/// Repeats that were answered without the writer, and wait to be counted by it. A crash may lose counts, never events.
#[derive(Debug, Clone, Default)]
pub struct Duplicates(Arc<Mutex<HashMap<EventId, Repeats>>>);

#[derive(Debug, Clone, Copy, Default)]
struct Repeats {
    all: i64,
    late: i64,
}

impl Duplicates {
    /// Notes a repeat of an event that first arrived at `first`.
    pub fn note(&self, event: &EventId, first: UnixMillis, now: UnixMillis) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() >= UNCOUNTED_MAX && !noted.contains_key(event) {
            return;
        }
        let repeats = match noted.get_mut(event) {
            Some(repeats) => repeats,
            None => noted.entry(event.clone()).or_default(),
        };
        repeats.add(1, now - first > LATE_MS);
    }

    fn take(&self) -> HashMap<EventId, Repeats> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was taken, but not written after all.
    fn give_back(&self, taken: HashMap<EventId, Repeats>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (event, repeats) in taken {
            let more = noted.entry(event).or_default();
            more.all += repeats.all;
            more.late += repeats.late;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Repeats {
    fn add(&mut self, count: i64, late: bool) {
        self.all += count;
        self.late += if late { count } else { 0 };
    }
}

/// Runs batches of deliveries.
#[derive(Debug)]
pub struct Ingest {
    policy: Arc<Policy>,
    metadata_key: String,
    duplicates: Duplicates,
    verified: Verified,
    /// The repeats that the batch at hand counts.
    taken: HashMap<EventId, Repeats>,
    /// Woken events wait for the next batch.
    more_woken: bool,
    /// When the next held tier ends.
    next_due: Option<UnixSeconds>,
}

impl Ingest {
    /// An ingest under this policy. `metadata_key` is for reading stored payloads again; `duplicates` is shared with
    /// the door that answers repeats by itself.
    #[must_use]
    pub fn new(policy: Arc<Policy>, metadata_key: String, duplicates: Duplicates) -> Self {
        // What a former run has left is looked for at once.
        let (verified, taken) = (Verified::default(), HashMap::new());
        Self { policy, metadata_key, duplicates, verified, taken, more_woken: true, next_due: Some(0) }
    }

    /// Writes what the door notes about signing secrets.
    #[must_use]
    pub fn writing(mut self, verified: Verified) -> Self {
        self.verified = verified;
        self
    }
}

impl Batch for Ingest {
    type Job = Delivery;
    type Answer = Answer;

    fn run(
        &mut self,
        transaction: &Transaction<'_>,
        jobs: Vec<Delivery>,
        now: UnixMillis,
    ) -> Result<Vec<Answer>, StoreError> {
        self.taken = self.duplicates.take();
        let mut run = self.begin(transaction, now, Savepoints::None);
        let mut ran = run.all(&jobs, self.more_woken, self.next_due);
        if ran.is_err() && run.went_wrong {
            savepoint::begin_anew(transaction)?;
            ran = self.begin(transaction, now, Savepoints::Each).all(&jobs, self.more_woken, self.next_due);
        }
        let Ran { answers, more_woken, next_due } = ran?;
        // Not in a commit of its own.
        if !answers.is_empty() || !self.taken.is_empty() {
            self.verified.write(transaction, now)?;
        }
        (self.more_woken, self.next_due) = (more_woken, next_due);
        Ok(answers)
    }

    fn has_leftovers(&self) -> bool {
        !self.duplicates.is_empty()
    }

    fn ended(&mut self, committed: bool) {
        let taken = std::mem::take(&mut self.taken);
        if !committed {
            self.duplicates.give_back(taken);
            // What this batch has woken and ended sleeps and holds again.
            self.look_around();
        }
    }

    fn look_around(&mut self) {
        (self.more_woken, self.next_due) = (true, Some(0));
    }

    fn is_urgent(&self, now: UnixMillis) -> bool {
        self.more_woken || self.next_due.is_some_and(|due| due <= now / 1000)
    }
}

impl Ingest {
    fn begin<'a>(&'a self, transaction: &'a Transaction<'_>, now: UnixMillis, savepoints: Savepoints) -> Run<'a> {
        Run {
            books: Books { connection: transaction, now, chain: None },
            savepoints,
            went_wrong: false,
            policy: &self.policy,
            metadata_key: &self.metadata_key,
            actor: "stripe",
            repeats: self.taken.clone(),
            arrivals: Vec::new(),
            ended: 0,
        }
    }
}

/// Whether an event that goes wrong takes back its own effects only. That costs every event, and hardly any goes
/// wrong: so a batch begins without, and only where it must is it taken back and run again with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Savepoints {
    None,
    Each,
}

/// What a transaction came to.
struct Ran {
    answers: Vec<Answer>,
    more_woken: bool,
    next_due: Option<UnixSeconds>,
}

/// One transaction's worth of events.
struct Run<'a> {
    books: Books<'a>,
    savepoints: Savepoints,
    /// An event went wrong that had no savepoint: all of the transaction is to be taken back.
    went_wrong: bool,
    policy: &'a Policy,
    metadata_key: &'a str,
    /// On whose behalf.
    actor: &'a str,
    repeats: HashMap<EventId, Repeats>,
    /// What became known in this run.
    arrivals: Vec<Need>,
    /// How many held tiers were ended.
    ended: usize,
}

impl Run<'_> {
    fn all(&mut self, jobs: &[Delivery], look: bool, next_due: Option<UnixSeconds>) -> Result<Ran, StoreError> {
        let answers = self.deliver_all(jobs)?;
        let more_woken = self.wake(look)?;
        let next_due = self.end_held_tiers(next_due)?;
        self.count_repeats()?;
        Ok(Ran { answers, more_woken, next_due })
    }

    fn deliver_all(&mut self, jobs: &[Delivery]) -> Result<Vec<Answer>, StoreError> {
        let mut first_of: HashMap<&EventId, usize> = HashMap::with_capacity(jobs.len());
        let mut answers: Vec<Answer> = Vec::with_capacity(jobs.len());
        for (index, delivery) in jobs.iter().enumerate() {
            // Deliveries of one id in one batch are one run and one answer.
            if let Some(&first) = first_of.get(&delivery.event.id) {
                self.repeats.entry(delivery.event.id.clone()).or_default().add(1, false);
                answers.push(answers[first].clone());
                continue;
            }
            first_of.insert(&delivery.event.id, index);
            answers.push(self.deliver(delivery)?);
        }
        Ok(answers)
    }

    /// Runs one event apart from its neighbours.
    fn deliver(&mut self, delivery: &Delivery) -> Result<Answer, StoreError> {
        match self.apart(|run| run.attempt(delivery))? {
            Ok(answer) => Ok(answer),
            Err(failure) => self.fail(delivery, &delivery.event, &meta_of(delivery), &failure),
        }
    }

    /// Does a part of the work so that an error or a panic in it takes back that part alone.
    ///
    /// # Errors
    /// Trouble with disk, memory or locks, which takes back everything; and, without savepoints, any error: then all
    /// is taken back and run again with them.
    fn apart<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Result<T, Failure>, StoreError> {
        let (connection, chain, arrived) = (self.books.connection, self.books.chain, self.arrivals.len());
        let isolated = self.savepoints == Savepoints::Each;
        if isolated {
            savepoint::begin(connection)?;
        }
        let failure = match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(done)) => {
                if isolated {
                    savepoint::keep(connection)?;
                }
                return Ok(Ok(done));
            }
            // FULL, IOERR and NOMEM may have rolled back all of the transaction.
            Ok(Err(error)) if error.is_environmental() || connection.is_autocommit() => return Err(error),
            Ok(Err(error)) => refused_by_database(&error),
            Err(panic) => panicked(panic.as_ref()),
        };
        if !isolated {
            self.went_wrong = true;
            return Err(StoreError::Damaged { what: "a part of the batch".into(), problem: failure.message });
        }
        savepoint::take_back(connection)?;
        self.books.chain = chain;
        self.arrivals.truncate(arrived);
        Ok(Err(failure))
    }

    fn attempt(&mut self, delivery: &Delivery) -> Result<Answer, StoreError> {
        let (connection, now) = (self.books.connection, self.books.now);
        let told = self.with_object(delivery)?;
        let event = told.as_ref().unwrap_or(&delivery.event);
        let meta = EventMeta { account: account_of(event), ..meta_of(delivery) };
        let facts = facts::load(connection, event, delivery.received, self.policy)?;
        match decide::decide(event, &facts, self.policy, now / 1000) {
            Decision::Complete(completion) => self.complete(delivery, &meta, completion),
            Decision::Wait(needs) => match events::wait(connection, &meta, &needs, now)? {
                Claim::Lost => self.duplicate(delivery),
                Claim::Won => {
                    self.keep(delivery)?;
                    self.listen_for_twins(event)?;
                    Ok(Answer::Pending { needs: events::joined(&needs) })
                }
            },
            Decision::Fail(failure) => self.fail(delivery, event, &meta, &failure),
        }
    }

    /// A thin event with its object, if Stripe was asked for it.
    fn with_object(&self, delivery: &Delivery) -> Result<Option<Event>, StoreError> {
        let event = &delivery.event;
        if !matches!(event.body, Body::Thin(_)) {
            return Ok(None);
        }
        let fetched = payload::read_fetched(self.books.connection, &event.id)?;
        // What was asked for before it came, or before somebody runs it again, may be another state by now.
        let fetched = fetched.filter(|fetched| fetched.asked_at >= delivery.received);
        let with =
            |fetched: Fetched<Vec<u8>>| wire::with_object(event, &fetched.object, fetched.told_at, self.metadata_key);
        Ok(fetched.map(with))
    }

    fn complete(
        &mut self,
        delivery: &Delivery,
        meta: &EventMeta<'_>,
        completion: Completion,
    ) -> Result<Answer, StoreError> {
        let Completion { outcome, reason, effects, arrivals } = completion;
        if events::complete(self.books.connection, meta, outcome, reason.as_deref(), self.books.now)? == Claim::Lost {
            return self.duplicate(delivery);
        }
        self.keep(delivery)?;
        self.books.apply_all(Cause { event: meta, actor: self.actor }, &effects)?;
        self.arrivals.extend(arrivals);
        Ok(Answer::Completed { outcome, reason: reason.map(Into::into) })
    }

    fn duplicate(&mut self, delivery: &Delivery) -> Result<Answer, StoreError> {
        let Some(held) = events::completed(self.books.connection, &delivery.event.id)? else {
            return Err(StoreError::Damaged {
                what: format!("event {}", delivery.event.id),
                problem: "it can neither be claimed nor is it completed".into(),
            });
        };
        let late = delivery.received - held.received > LATE_MS;
        self.repeats.entry(delivery.event.id.clone()).or_default().add(1, late);
        Ok(Answer::Duplicate { outcome: held.outcome })
    }

    /// `told` is the event with its object, if it is a thin one.
    fn fail(
        &mut self,
        delivery: &Delivery,
        told: &Event,
        meta: &EventMeta<'_>,
        failure: &Failure,
    ) -> Result<Answer, StoreError> {
        let (connection, now, max) = (self.books.connection, self.books.now, self.policy.max_attempts);
        let Some(failed) = events::fail(connection, meta, failure, max, now)? else {
            return self.duplicate(delivery);
        };
        self.keep(delivery)?;
        self.listen_for_twins(told)?;
        let detail = FailureDetail { code: failure.code, why: &failure.message, attempts: failed.attempts };
        let action = if failed.dead_letter { "event.dead_letter" } else { "event.failed" };
        let cause = Cause { event: meta, actor: self.actor };
        self.books.audit(cause, action, meta.object_id.unwrap_or(meta.kind), &detail)?;
        let (code, attempts) = (failure.code, failed.attempts);
        Ok(if failed.dead_letter { Answer::DeadLetter { code, attempts } } else { Answer::Failed { code, attempts } })
    }

    /// Another event may decide the fact that this one could not decide; then this one has nothing to wait for.
    fn listen_for_twins(&self, event: &Event) -> Result<(), StoreError> {
        let fact = match &event.body {
            Body::Invoice(invoice) => Fact::invoice(&invoice.id),
            Body::Checkout(checkout) => Fact::checkout(&checkout.id),
            _ => return Ok(()),
        };
        events::listen(self.books.connection, &event.id, &Need::Grant(fact))
    }

    fn keep(&self, delivery: &Delivery) -> Result<(), StoreError> {
        match &delivery.payload {
            Some(payload) => payload::insert(self.books.connection, &delivery.event.id, payload),
            None => Ok(()),
        }
    }

    /// Runs what waited for something that is known now, bounded; whether more is left. An event that still waits
    /// sleeps again until something else comes, so there are no cycles.
    fn wake(&mut self, look: bool) -> Result<bool, StoreError> {
        let connection = self.books.connection;
        if (self.arrivals.is_empty() && !look) || !events::any_open(connection)? {
            return Ok(false);
        }
        let mut ran = 0;
        loop {
            for need in std::mem::take(&mut self.arrivals) {
                events::wake(connection, &need)?;
            }
            let woken = events::woken(connection, WOKEN_MAX - ran)?;
            if woken.is_empty() {
                return Ok(ran == WOKEN_MAX && !events::woken(connection, 1)?.is_empty());
            }
            ran += woken.len();
            for id in &woken {
                self.run_again(id)?;
                events::settle_down(connection, id)?;
            }
        }
    }

    fn run_again(&mut self, id: &EventId) -> Result<(), StoreError> {
        match stored(self.books.connection, id, self.metadata_key)? {
            Stored::Whole(delivery) => {
                let answer = self.deliver(&delivery)?;
                let (outcome, reason) = answer.told();
                tracing::info!(event_id = %id, outcome, reason, "ran again what had waited");
            }
            Stored::NoPayload => {}
            Stored::Damaged(problem) => {
                tracing::error!(event_id = %id, problem, "a waiting event cannot be run again");
            }
        }
        Ok(())
    }

    /// Ends held tiers whose time has come; returns when to look again.
    fn end_held_tiers(&mut self, next_due: Option<UnixSeconds>) -> Result<Option<UnixSeconds>, StoreError> {
        if !self.policy.tiers.keep_until_period_end {
            return Ok(None);
        }
        let (connection, now) = (self.books.connection, self.books.now / 1000);
        let mut is_stuck = false;
        if next_due.is_some_and(|due| due <= now) {
            for (id, due) in subscriptions::due(connection, now, DUE_MAX)? {
                match self.apart(|run| run.end_held_tier(&id, due))? {
                    Ok(()) => self.ended += 1,
                    Err(failure) => {
                        is_stuck = true;
                        tracing::error!(subscription = %id, error = failure.message, "a held tier could not be ended");
                    }
                }
            }
        }
        let next = subscriptions::next_due(connection)?;
        Ok(if is_stuck { next.map(|next| next.max(now + STUCK_S)) } else { next })
    }

    fn end_held_tier(&mut self, id: &SubscriptionId, due: UnixSeconds) -> Result<(), StoreError> {
        let (connection, now) = (self.books.connection, self.books.now);
        let facts = facts::of_standing(connection, id, self.policy)?;
        let account = facts.subscription.standing.as_ref().and_then(|standing| standing.state.account.clone());
        let completion = decide::end_held_tier(id, &facts, self.policy, now / 1000);
        // The same moment may come twice: a clock that was set back holds the tier again.
        for turn in 1.. {
            let event = downgrade_id(id, due, turn)?;
            let meta = EventMeta {
                id: &event,
                source: Source::Job,
                kind: "job.downgrade",
                api_version: None,
                livemode: self.policy.livemode,
                stripe_account: None,
                object_id: Some(id.as_str()),
                account: account.as_ref(),
                created: due,
                received: now,
            };
            if events::complete(connection, &meta, completion.outcome, completion.reason.as_deref(), now)? == Claim::Won
            {
                return self.books.apply_all(Cause { event: &meta, actor: "job:downgrade" }, &completion.effects);
            }
        }
        Ok(())
    }

    fn count_repeats(&mut self) -> Result<(), StoreError> {
        for (event, repeats) in std::mem::take(&mut self.repeats) {
            events::count_duplicates(self.books.connection, &event, repeats.all, repeats.late)?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct FailureDetail<'a> {
    code: &'a str,
    why: &'a str,
    attempts: i64,
}

fn downgrade_id(id: &SubscriptionId, due: UnixSeconds, turn: u32) -> Result<EventId, StoreError> {
    let text = if turn == 1 { format!("job:downgrade:{id}:{due}") } else { format!("job:downgrade:{id}:{due}:{turn}") };
    EventId::parse(&text)
        .map_err(|error| StoreError::Damaged { what: format!("event id {text}"), problem: error.to_string() })
}

pub(super) fn meta_of(delivery: &Delivery) -> EventMeta<'_> {
    EventMeta::of(&delivery.event, delivery.source, account_of(&delivery.event), delivery.received)
}

/// The account that an event is about.
fn account_of(event: &Event) -> Option<&AccountId> {
    match &event.body {
        Body::Invoice(invoice) => invoice.customer.as_ref(),
        Body::Checkout(checkout) => checkout.customer.as_ref(),
        Body::Customer(customer) => Some(&customer.id),
        Body::Subscription(subscription) => subscription.customer.as_ref(),
        Body::Charge(charge) => charge.customer.as_ref(),
        Body::CreditNote(note) => note.customer.as_ref(),
        _ => None,
    }
}

fn refused_by_database(error: &StoreError) -> Failure {
    if error.is_too_large() {
        let help = "nothing of this event is applied; bring the balances of its account into a sane range with \
                    `billingd accounts adjust`, then replay the event";
        return Failure { code: "amount_too_large", message: format!("{error}; {help}") };
    }
    Failure {
        code: "refused_by_database",
        message: format!("{error}; nothing of this event is applied; run `billingd verify`, then replay the event"),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    // The text of a panic may quote what it stumbled over, so it is not kept.
    let kind = if panic.is::<&str>() { "a broken assumption" } else { "an unforeseen value" };
    Failure {
        code: "panic",
        message: format!("billingd has a bug: {kind}; nothing of this event is applied; report the log around it"),
    }
}
