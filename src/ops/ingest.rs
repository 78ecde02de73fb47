//! One event, from its facts to its answer: load → decide → claim → effects → audit.
//!
//! [`Ingest`] runs a batch of deliveries inside the writer's transaction. An event that goes wrong takes back its own
//! effects only; trouble with disk, memory or locks takes back the batch.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Transaction;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::decide::{self, Completion, Decision, Effect, Fact, Facts, Failure, Outcome};
use crate::domain::event::{Body, Event, Lines, Unit};
use crate::domain::grant::KnownPrices;
use crate::domain::ids::{AccountId, EventId};
use crate::domain::policy::{Basis, Policy};
use crate::store::audit::{self, Head, Record};
use crate::store::events::{self, Claim, EventMeta, Source};
use crate::store::ledger::{self, Entry, Posted};
use crate::store::payload::{self, Payload};
use crate::store::writer::Batch;
use crate::store::{StoreError, accounts, invoices, prices, savepoint};

/// A repeat later than this after the first delivery was sent by hand: Stripe's own retries end after three days.
const LATE_MS: i64 = 72 * 3_600_000;

/// How many events may have uncounted duplicates at a time; more are not counted.
const UNCOUNTED_MAX: usize = 10_000;

/// A verified and parsed event, ready for the writer.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What it says.
    pub event: Event,
    /// What was received.
    pub payload: Payload,
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
    duplicates: Duplicates,
    /// The repeats that the batch at hand counts.
    taken: HashMap<EventId, Repeats>,
}

impl Ingest {
    /// An ingest under this policy. `duplicates` is shared with the door that answers repeats by itself.
    #[must_use]
    pub fn new(policy: Arc<Policy>, duplicates: Duplicates) -> Self {
        Self { policy, duplicates, taken: HashMap::new() }
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
        let mut run = Run { transaction, policy: &self.policy, now, chain: None, repeats: self.taken.clone() };
        let mut first_of: HashMap<&EventId, usize> = HashMap::with_capacity(jobs.len());
        let mut answers: Vec<Answer> = Vec::with_capacity(jobs.len());
        for (index, delivery) in jobs.iter().enumerate() {
            // Deliveries of one id in one batch are one run and one answer.
            if let Some(&first) = first_of.get(&delivery.event.id) {
                run.repeats.entry(delivery.event.id.clone()).or_default().add(1, false);
                answers.push(answers[first].clone());
                continue;
            }
            first_of.insert(&delivery.event.id, index);
            answers.push(run.deliver(delivery)?);
        }
        run.count_repeats()?;
        Ok(answers)
    }

    fn has_leftovers(&self) -> bool {
        !self.duplicates.is_empty()
    }

    fn ended(&mut self, committed: bool) {
        let taken = std::mem::take(&mut self.taken);
        if !committed {
            self.duplicates.give_back(taken);
        }
    }
}

/// One transaction's worth of events.
struct Run<'a> {
    transaction: &'a Transaction<'a>,
    policy: &'a Policy,
    now: UnixMillis,
    /// The end of the audit chain, once it was looked up.
    chain: Option<Head>,
    repeats: HashMap<EventId, Repeats>,
}

impl Run<'_> {
    /// Runs one event inside a savepoint of its own.
    fn deliver(&mut self, delivery: &Delivery) -> Result<Answer, StoreError> {
        let chain = self.chain;
        savepoint::begin(self.transaction)?;
        match catch_unwind(AssertUnwindSafe(|| self.attempt(delivery))) {
            Ok(Ok(answer)) => {
                savepoint::keep(self.transaction)?;
                Ok(answer)
            }
            // FULL, IOERR and NOMEM may have rolled back all of the transaction.
            Ok(Err(error)) if error.is_environmental() || self.transaction.is_autocommit() => Err(error),
            Ok(Err(error)) => self.take_back(delivery, chain, &refused_by_database(&error)),
            Err(panic) => self.take_back(delivery, chain, &panicked(panic.as_ref())),
        }
    }

    /// Takes back what a failed event has done, and records that it failed.
    fn take_back(
        &mut self,
        delivery: &Delivery,
        chain: Option<Head>,
        failure: &Failure,
    ) -> Result<Answer, StoreError> {
        savepoint::take_back(self.transaction)?;
        self.chain = chain;
        let account = account_of(&delivery.event);
        self.fail(delivery, &EventMeta::of(&delivery.event, delivery.source, account, delivery.received), failure)
    }

    fn attempt(&mut self, delivery: &Delivery) -> Result<Answer, StoreError> {
        let event = &delivery.event;
        let meta = EventMeta::of(event, delivery.source, account_of(event), delivery.received);
        let facts = load(self.transaction, event, self.policy)?;
        match decide::decide(event, &facts, self.policy) {
            Decision::Complete(completion) => self.complete(delivery, &meta, completion),
            Decision::Wait(need) => match events::wait(self.transaction, &meta, &need, self.now)? {
                Claim::Lost => self.duplicate(delivery),
                Claim::Won => {
                    payload::insert(self.transaction, &event.id, &delivery.payload)?;
                    Ok(Answer::Pending { needs: need.to_string() })
                }
            },
            Decision::Fail(failure) => self.fail(delivery, &meta, &failure),
        }
    }

    fn complete(
        &mut self,
        delivery: &Delivery,
        meta: &EventMeta<'_>,
        completion: Completion,
    ) -> Result<Answer, StoreError> {
        let Completion { outcome, reason, effects } = completion;
        match events::complete(self.transaction, meta, outcome, reason.as_deref(), self.now)? {
            Claim::Lost => return self.duplicate(delivery),
            Claim::Won => payload::insert(self.transaction, meta.id, &delivery.payload)?,
        }
        for effect in &effects {
            self.apply(&delivery.event, effect)?;
        }
        Ok(Answer::Completed { outcome, reason: reason.map(Into::into) })
    }

    fn duplicate(&mut self, delivery: &Delivery) -> Result<Answer, StoreError> {
        let Some(held) = events::completed(self.transaction, &delivery.event.id)? else {
            return Err(StoreError::Damaged {
                what: format!("event {}", delivery.event.id),
                problem: "it can neither be claimed nor is it completed".into(),
            });
        };
        let late = delivery.received - held.received > LATE_MS;
        self.repeats.entry(delivery.event.id.clone()).or_default().add(1, late);
        Ok(Answer::Duplicate { outcome: held.outcome })
    }

    fn fail(
        &mut self,
        delivery: &Delivery,
        meta: &EventMeta<'_>,
        failure: &Failure,
    ) -> Result<Answer, StoreError> {
        let Some(failed) = events::fail(self.transaction, meta, failure, self.policy.max_attempts, self.now)? else {
            return self.duplicate(delivery);
        };
        payload::insert(self.transaction, meta.id, &delivery.payload)?;
        let detail = FailureDetail { code: failure.code, why: &failure.message, attempts: failed.attempts };
        let action = if failed.dead_letter { "event.dead_letter" } else { "event.failed" };
        self.audit(action, meta.object_id.unwrap_or(meta.kind), meta.id, &detail)?;
        let (code, attempts) = (failure.code, failed.attempts);
        Ok(if failed.dead_letter { Answer::DeadLetter { code, attempts } } else { Answer::Failed { code, attempts } })
    }

    fn apply(&mut self, event: &Event, effect: &Effect) -> Result<(), StoreError> {
        let transaction = self.transaction;
        match effect {
            Effect::SaveInvoice(invoice) => invoices::save(transaction, invoice, &event.id),
            Effect::LinkPayments(invoice, payments) => {
                payments.iter().try_for_each(|one| invoices::link_payment(transaction, invoice, one, event.created))
            }
            Effect::LearnPrice(price) => prices::learn(transaction, price),
            Effect::OpenAccount(account) => accounts::open(transaction, account),
            Effect::SetReference(account, reference) => {
                let before = accounts::held(transaction, account)?.and_then(|held| held.reference);
                accounts::set_reference(transaction, account, reference)?;
                let detail = Change {
                    before: before.as_ref().map(|reference| reference.text.as_str()),
                    after: Some(&reference.text),
                    why: &event.kind,
                };
                self.audit("account.reference", account.as_str(), &event.id, &detail)
            }
            Effect::CloseAccount(account, at) => {
                accounts::close(transaction, account, *at)?;
                let detail = Change { before: Some("live"), after: Some("deleted"), why: &event.kind };
                self.audit("account.deleted", account.as_str(), &event.id, &detail)
            }
            Effect::Grant(account, fact, lines) => {
                let entry =
                    Entry { account, kind: "grant", fact, root: fact, source: &event.id, at: self.now / 1000 };
                let posted = ledger::post(transaction, &entry, lines)?;
                let detail = GrantDetail { fact: fact.as_str(), lines: &posted, why: &event.kind };
                self.audit("grant", account.as_str(), &event.id, &detail)
            }
        }
    }

    fn audit(
        &mut self,
        action: &str,
        subject: &str,
        event: &EventId,
        detail: &impl Serialize,
    ) -> Result<(), StoreError> {
        let head = match self.chain {
            Some(head) => head,
            None => audit::head(self.transaction)?,
        };
        let record = Record {
            at: self.now / 1000,
            actor: "stripe",
            action,
            subject,
            event_id: Some(event.as_str()),
            detail: &to_json(detail)?,
        };
        self.chain = Some(audit::append(self.transaction, head, &record)?);
        Ok(())
    }

    fn count_repeats(&mut self) -> Result<(), StoreError> {
        for (event, repeats) in std::mem::take(&mut self.repeats) {
            events::count_duplicates(self.transaction, &event, repeats.all, repeats.late)?;
        }
        Ok(())
    }
}

/// Before, after and why of a grant.
#[derive(Serialize)]
struct GrantDetail<'a> {
    fact: &'a str,
    lines: &'a [Posted],
    why: &'a str,
}

/// Before, after and why of a text.
#[derive(Serialize)]
struct Change<'a> {
    before: Option<&'a str>,
    after: Option<&'a str>,
    why: &'a str,
}

#[derive(Serialize)]
struct FailureDetail<'a> {
    code: &'a str,
    why: &'a str,
    attempts: i64,
}

/// The JSON of an audit detail.
pub(crate) fn to_json(detail: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(detail)
        .map_err(|error| StoreError::Damaged { what: "an audit detail".into(), problem: error.to_string() })
}

/// Reads what the books hold about the subject of an event.
fn load(transaction: &Transaction<'_>, event: &Event, policy: &Policy) -> Result<Facts, StoreError> {
    match &event.body {
        Body::Invoice(invoice) => {
            let fact = Fact::invoice(&invoice.id);
            let held = invoices::held(transaction, &invoice.id, &fact, invoice.customer.as_ref())?;
            let prices = match (&policy.credits.basis, &invoice.lines) {
                (Basis::Catalogue, Lines::Complete(lines)) => {
                    let mut known = KnownPrices::new();
                    for line in lines.iter().filter(|line| line.proration && line.unit == Unit::Untold) {
                        if let Some(price) = &line.price {
                            let unit = prices::unit(transaction, &price.id, line.currency)?;
                            known.insert((price.id.clone(), line.currency), unit);
                        }
                    }
                    known
                }
                _ => KnownPrices::new(),
            };
            Ok(Facts { invoice: held.invoice, granted_by: held.granted_by, account: held.account, prices })
        }
        Body::Checkout(checkout) => Ok(Facts {
            granted_by: ledger::granted_by(transaction, &Fact::checkout(&checkout.id))?,
            account: held_account(transaction, checkout.customer.as_ref())?,
            ..Facts::default()
        }),
        Body::Customer(customer) => {
            Ok(Facts { account: held_account(transaction, Some(&customer.id))?, ..Facts::default() })
        }
        _ => Ok(Facts::default()),
    }
}

fn held_account(
    transaction: &Transaction<'_>,
    account: Option<&AccountId>,
) -> Result<Option<decide::AccountHeld>, StoreError> {
    match account {
        Some(account) => accounts::held(transaction, account),
        None => Ok(None),
    }
}

/// The account that an event is about.
fn account_of(event: &Event) -> Option<&AccountId> {
    match &event.body {
        Body::Invoice(invoice) => invoice.customer.as_ref(),
        Body::Checkout(checkout) => checkout.customer.as_ref(),
        Body::Customer(customer) => Some(&customer.id),
        Body::Subscription(subscription) => subscription.customer.as_ref(),
        Body::Charge(charge) => charge.customer.as_ref(),
        _ => None,
    }
}

fn refused_by_database(error: &StoreError) -> Failure {
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
