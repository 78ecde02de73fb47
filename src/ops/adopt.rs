//! Takes over a running Stripe account: its customers, references and subscriptions become events of an operator, which
//! run like any other.
//!
//! Each object is told as of the moment at which the lists began, by Stripe's clock. So whatever changes from then on
//! is newer, and so is, in the same second, every event that says what it changed; whatever happened before is in what
//! the lists tell. An adoption can come before, between or after webhooks, and ends in the same tiers.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, Transaction};
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::event::{Body, Customer, Event, Subscription, UnixSeconds};
use crate::domain::ids::EventId;
use crate::domain::subscription::State;
use crate::ops::account_of_key;
use crate::ops::ingest::{Answer, Delivery, Errand};
use crate::ops::seen::Seen;
use crate::store::events::{self, Source};
use crate::store::payload::Payload;
use crate::store::spool::Spool;
use crate::store::{Desk, Look, StoreError, accounts, audit, savepoint, subscriptions};
use crate::stripe::ask::NoAnswer;
use crate::stripe::client::{Api, ApiError};
use crate::stripe::lists::{self, CUSTOMERS, SUBSCRIPTIONS};
use crate::stripe::made::{self, Envelope};
use crate::stripe::wire;

/// How many events one transaction runs, so that deliveries never wait long; those of one account stay together.
const CHUNK: usize = 64;

/// In which order events run: those of one account together, and its customer first. The account stands as a hash.
type Order = (u64, bool);

/// What Stripe told, and what is to be done about it.
#[derive(Debug)]
pub struct Plan {
    /// The events that the objects become; in a file, since they may be many.
    events: Spool<Order>,
    /// What will be reported, as far as it is known.
    report: Adopted,
}

impl Plan {
    /// How many events will run.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events.len()
    }
}

/// What was adopted, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Adopted {
    /// False: everything was taken back.
    pub applied: bool,
    /// Customers at Stripe.
    pub customers: usize,
    /// Subscriptions at Stripe, but for those that are left out.
    pub subscriptions: usize,
    /// Subscriptions that ended with a customer who is deleted: they are left out.
    pub left_out: usize,
    /// Accounts that are new.
    pub accounts_opened: i64,
    /// References that are new or others.
    pub references_set: i64,
    /// Subscriptions that are new or stand in another way.
    pub subscriptions_changed: i64,
    /// Accounts whose tier changes.
    pub tiers_changed: i64,
    /// Objects that change nothing.
    pub as_known: usize,
    /// Objects of which an event told something newer.
    pub told_later: usize,
    /// Objects that could not be adopted.
    pub problems: Vec<Problem>,
}

/// An object that could not be adopted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its event.
    pub event_id: String,
    /// Why.
    pub problem: String,
}

/// Why nothing could be adopted, or not all.
#[derive(Debug, Error)]
pub enum AdoptError {
    /// Stripe did not tell all.
    #[error("Stripe did not tell all of it, and nothing is changed: {0}")]
    NoAnswer(NoAnswer),
    /// The key opens the other mode.
    #[error("stripe.api_key opens {} mode, and these books are of {} mode; give the key of that mode", mode(.0), mode(&!.0))]
    OtherMode(bool),
    /// The key opens another account.
    #[error("{}", account_of_key::ANOTHER)]
    OtherAccount,
    /// What Stripe told is not what was asked for.
    #[error("Stripe told of something that is no {0}; nothing is changed; try again")]
    Garbage(&'static str),
    /// The database did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn mode(livemode: &bool) -> &'static str {
    if *livemode { "live" } else { "test" }
}

impl From<NoAnswer> for AdoptError {
    fn from(error: NoAnswer) -> Self {
        Self::NoAnswer(error)
    }
}

impl From<ApiError> for AdoptError {
    fn from(error: ApiError) -> Self {
        Self::NoAnswer(error.into())
    }
}

/// Where the lists of Stripe are compared with the books.
#[derive(Clone, Copy)]
pub struct Place<'a, B> {
    /// The books.
    pub books: &'a B,
    /// A folder on the disk of the database.
    pub folder: &'a Path,
    /// Who is asked.
    pub api: &'a dyn Api,
}

/// Lists what Stripe has; `seen` hears how many objects have been read. Changes nothing, and holds no transaction.
///
/// # Errors
/// [`AdoptError`].
pub fn plan<B: Look>(
    place: Place<'_, B>,
    errand: &Errand,
    now: UnixMillis,
    seen: &mut dyn FnMut(usize),
) -> Result<Plan, AdoptError> {
    let (api, livemode) = (place.api, errand.rules().policy.livemode);
    let mode = lists::livemode(api)?;
    if let Some(other) = mode.told.filter(|told| *told != livemode) {
        return Err(AdoptError::OtherMode(other));
    }
    if account_of_key::is_another(place.books, api, &errand.rules().policy, now / 1000)? {
        return Err(AdoptError::OtherAccount);
    }
    let began = mode.date.unwrap_or(now / 1000);
    let plan = Plan { events: Spool::create(place.folder)?, report: Adopted::default() };
    let mut look = Lists { books: place.books, errand, began, plan, customers: Seen::default(), read: 0 };
    for page in CUSTOMERS.texts(api, &[]) {
        for customer in page? {
            look.object(CUSTOMERS.carried_by, customer.get())?;
        }
        seen(look.read);
    }
    for page in SUBSCRIPTIONS.texts(api, &[("status", "all")]) {
        for subscription in page? {
            look.object(SUBSCRIPTIONS.carried_by, &lists::with_all_items(api, &subscription)?)?;
        }
        seen(look.read);
    }
    Ok(look.plan)
}

/// The lists, while they are read.
struct Lists<'a, B> {
    books: &'a B,
    errand: &'a Errand,
    began: UnixSeconds,
    plan: Plan,
    customers: Seen,
    read: usize,
}

/// An event that an object becomes.
struct Made {
    event: Event,
    body: Vec<u8>,
}

impl<B: Look> Lists<'_, B> {
    fn object(&mut self, kind: &'static str, object: &str) -> Result<(), AdoptError> {
        self.read += 1;
        let first = self.made(kind, object, None)?;
        match &first.event.body {
            Body::Customer(customer) => {
                self.plan.report.customers += 1;
                self.customers.add(customer.id.as_str());
            }
            Body::Subscription(subscription) if self.is_of_deleted(subscription) => {
                self.plan.report.left_out += 1;
                return Ok(());
            }
            Body::Subscription(_) => self.plan.report.subscriptions += 1,
            Body::Unreadable(problem) => {
                let problem = format!("field {} is {}; it is left out", problem.field, problem.problem);
                self.plan.report.problems.push(Problem { event_id: first.event.id.to_string(), problem });
                return Ok(());
            }
            _ => return Err(AdoptError::Garbage(kind)),
        }
        let (is_adopted, is_held) = self.books.look(|connection| {
            let is_adopted = events::completed(connection, &first.event.id)?.is_some();
            Ok((is_adopted, is_adopted && is_held(connection, &first.event.body)?))
        })?;
        if is_held {
            self.plan.report.as_known += 1;
            return Ok(());
        }
        let Made { event, body } = if is_adopted { self.made(kind, object, Some(self.began))? } else { first };
        self.plan.events.push(self.order(&event.body), &body)?;
        Ok(())
    }

    fn order(&self, body: &Body) -> Order {
        match body {
            Body::Customer(customer) => (self.customers.hash(customer.id.as_str()), false),
            Body::Subscription(Subscription { customer: Some(customer), .. }) => {
                (self.customers.hash(customer.as_str()), true)
            }
            _ => (0, true),
        }
    }

    /// The event of an object; one that was adopted before, and is another now, needs an event of its own.
    fn made(&self, kind: &str, object: &str, again: Option<UnixSeconds>) -> Result<Made, AdoptError> {
        let policy = &self.errand.rules().policy;
        let object_id = wire::object_id(object).ok_or(AdoptError::Garbage("object with an id"))?;
        let id = match again {
            None => format!("op_adopt:{object_id}"),
            Some(began) => format!("op_adopt:{object_id}:{began}"),
        };
        let id = EventId::parse(&id).map_err(|_| AdoptError::Garbage("object with an id"))?;
        let envelope = Envelope {
            id: &id,
            kind,
            created: self.began,
            livemode: policy.livemode,
            stripe_account: policy.connected_account.as_deref(),
        };
        let body = made::body(&envelope, object).map_err(|_| AdoptError::Garbage("object"))?;
        let event = wire::read(&body, &self.errand.rules().metadata_key).map_err(|_| AdoptError::Garbage("object"))?;
        Ok(Made { event, body })
    }

    fn is_of_deleted(&self, subscription: &Subscription) -> bool {
        let is_listed = subscription.customer.as_ref().is_some_and(|customer| self.customers.has(customer.as_str()));
        State::of(subscription).is_terminal() && !is_listed
    }
}

/// The books show the object as it is.
fn is_held(connection: &Connection, body: &Body) -> Result<bool, StoreError> {
    match body {
        Body::Customer(Customer { id, reference, .. }) => {
            let held = accounts::held(connection, id)?;
            Ok(held.is_some_and(|held| reference.is_none() || held.reference.is_some()))
        }
        Body::Subscription(subscription) => {
            let (_, standing) = subscriptions::held(connection, &subscription.id)?;
            Ok(standing.is_some_and(|standing| standing.state == State::of(subscription)))
        }
        _ => Ok(false),
    }
}

/// Runs the plan, each chunk in a transaction of its own; `ran` hears how many events have run.
///
/// # Errors
/// [`StoreError`]; earlier chunks stand, and adopting again goes on.
pub fn apply(
    desk: &mut impl Desk,
    errand: &Errand,
    plan: Plan,
    now: UnixMillis,
    ran: &mut dyn FnMut(usize),
) -> Result<Adopted, StoreError> {
    let mut report = run(desk, errand, plan, now, End::Keep, ran)?;
    errand.run_woken(desk, now)?;
    report.applied = true;
    Ok(report)
}

/// Runs the plan the same way, and takes everything back.
///
/// # Errors
/// [`StoreError`].
pub fn rehearse(
    desk: &mut impl Desk,
    errand: &Errand,
    plan: Plan,
    now: UnixMillis,
    ran: &mut dyn FnMut(usize),
) -> Result<Adopted, StoreError> {
    run(desk, errand, plan, now, End::TakeBack, ran)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Keep,
    TakeBack,
}

fn run(
    desk: &mut impl Desk,
    errand: &Errand,
    plan: Plan,
    now: UnixMillis,
    end: End,
    ran: &mut dyn FnMut(usize),
) -> Result<Adopted, StoreError> {
    let Plan { mut events, mut report } = plan;
    let mut done = 0;
    while !events.is_empty() {
        // Taken back apart, the events of one account would not see each other.
        let chunk = events.take_whole(CHUNK, |(account, _), (other, _)| account == other)?;
        done += chunk.len();
        let errand = errand.clone();
        let ran_chunk = desk.write(move |transaction| run_chunk(transaction, &errand, chunk, now, end))?;
        report.accounts_opened += ran_chunk.accounts_opened;
        report.add(&ran_chunk.changes);
        ran_chunk.answers.iter().for_each(|(event, answer)| report.count(event, answer));
        ran(done);
    }
    Ok(report)
}

/// What a chunk came to.
struct RanChunk {
    answers: Vec<(EventId, Answer)>,
    accounts_opened: i64,
    /// How many audit rows there are of each action.
    changes: BTreeMap<String, i64>,
}

fn run_chunk(
    transaction: &Transaction<'_>,
    errand: &Errand,
    chunk: Vec<(Vec<u8>, Payload)>,
    now: UnixMillis,
    end: End,
) -> Result<RanChunk, StoreError> {
    let deliveries = chunk.into_iter().map(|(body, payload)| delivery(errand, &body, payload, now));
    let deliveries = deliveries.collect::<Result<Vec<_>, _>>()?;
    savepoint::begin(transaction)?;
    let (seq, known) = (audit::head(transaction)?.seq, accounts::count(transaction)?);
    let answers = errand.run(transaction, &deliveries, now)?.answers;
    let ran = RanChunk {
        answers: deliveries.into_iter().map(|delivery| delivery.event.id).zip(answers).collect(),
        accounts_opened: accounts::count(transaction)? - known,
        changes: audit::actions_since(transaction, seq)?,
    };
    match end {
        End::Keep => savepoint::keep(transaction)?,
        End::TakeBack => savepoint::take_back(transaction)?,
    }
    Ok(ran)
}

fn delivery(errand: &Errand, body: &[u8], payload: Payload, now: UnixMillis) -> Result<Delivery, StoreError> {
    let event = wire::read(body, &errand.rules().metadata_key).map_err(|problem| StoreError::Damaged {
        what: "an object on its way into the books".into(),
        problem: problem.to_string(),
    })?;
    Ok(Delivery { event, payload: Some(payload), source: Source::Operator, received: now })
}

impl Adopted {
    fn add(&mut self, changes: &BTreeMap<String, i64>) {
        let of = |action: &str| changes.get(action).copied().unwrap_or_default();
        self.references_set += of("account.reference");
        self.subscriptions_changed += of("subscription");
        self.tiers_changed += of("tier");
    }

    fn count(&mut self, event: &EventId, answer: &Answer) {
        let problem = match answer {
            Answer::Completed { outcome: Outcome::Applied, .. } => return,
            Answer::Completed { outcome: Outcome::Stale, .. } => {
                self.told_later += 1;
                return;
            }
            Answer::Completed { .. } | Answer::Duplicate { .. } => {
                self.as_known += 1;
                return;
            }
            Answer::Pending { needs } => format!("waits for {needs}"),
            Answer::Failed { code, .. } | Answer::DeadLetter { code, .. } => {
                format!("failed: {code}; `billingd events show {event}` tells why")
            }
        };
        self.problems.push(Problem { event_id: event.to_string(), problem });
    }
}
