//! Takes over a running Stripe account: its customers, references and subscriptions become events of an operator, which
//! run like any other.
//!
//! Each object is told as of the moment at which the lists began, by Stripe's clock. So whatever changes from then on
//! is newer, and so is, in the same second, every event that says what it changed; whatever happened before is in what
//! the lists tell. An adoption can come before, between or after webhooks, and ends in the same tiers.

use std::collections::{BTreeMap, HashSet};

use rusqlite::{Connection, TransactionBehavior};
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::event::{Body, Customer, Event, Subscription, UnixSeconds};
use crate::domain::ids::{AccountId, EventId};
use crate::domain::subscription::State;
use crate::ops::ingest::{Answer, Delivery, Errand};
use crate::store::events::{self, Source};
use crate::store::payload::Payload;
use crate::store::{StoreError, accounts, audit, subscriptions};
use crate::stripe::ask::NoAnswer;
use crate::stripe::client::{Api, ApiError};
use crate::stripe::made::{self, Envelope};
use crate::stripe::{all, wire};

/// How many events one transaction runs, so that deliveries never wait long; those of one account stay together.
const CHUNK: usize = 64;

/// What Stripe told, and what is to be done about it.
#[derive(Debug, Default)]
pub struct Plan {
    /// The objects that become events, those of one account one after the other, the customer first.
    deliveries: Vec<Delivery>,
    /// What will be reported, as far as it is known.
    report: Adopted,
}

impl Plan {
    /// How many events will run.
    #[must_use]
    pub fn events(&self) -> usize {
        self.deliveries.len()
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

/// Lists what Stripe has; `seen` hears how many objects have been read. Changes nothing, and holds no transaction.
///
/// # Errors
/// [`AdoptError`].
pub fn plan(
    connection: &Connection,
    api: &dyn Api,
    errand: &Errand,
    now: UnixMillis,
    seen: &mut dyn FnMut(usize),
) -> Result<Plan, AdoptError> {
    let livemode = errand.rules().policy.livemode;
    if let Some(other) = all::livemode(api)?.filter(|told| *told != livemode) {
        return Err(AdoptError::OtherMode(other));
    }
    let began = api.time().unwrap_or(now / 1000);
    let mut look = Look { connection, errand, began, now, plan: Plan::default(), customers: HashSet::new(), read: 0 };
    for page in all::customers(api) {
        look.page("customer.updated", &page?)?;
        seen(look.read);
    }
    for page in all::subscriptions(api) {
        look.page("customer.subscription.updated", &page?)?;
        seen(look.read);
    }
    let mut plan = look.plan;
    plan.deliveries.sort_by(|one, other| place(&one.event).cmp(&place(&other.event)));
    Ok(plan)
}

/// Customers before what they have.
fn place(event: &Event) -> (Option<&AccountId>, bool) {
    match &event.body {
        Body::Customer(customer) => (Some(&customer.id), false),
        Body::Subscription(subscription) => (subscription.customer.as_ref(), true),
        _ => (None, true),
    }
}

/// The lists, while they are read.
struct Look<'a> {
    connection: &'a Connection,
    errand: &'a Errand,
    began: UnixSeconds,
    now: UnixMillis,
    plan: Plan,
    customers: HashSet<AccountId>,
    read: usize,
}

impl Look<'_> {
    fn page(&mut self, kind: &'static str, objects: &[String]) -> Result<(), AdoptError> {
        for object in objects {
            self.read += 1;
            self.object(kind, object)?;
        }
        Ok(())
    }

    fn object(&mut self, kind: &'static str, object: &str) -> Result<(), AdoptError> {
        let first = self.delivery(kind, object, None)?;
        match &first.event.body {
            Body::Customer(customer) => {
                self.plan.report.customers += 1;
                self.customers.insert(customer.id.clone());
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
        if events::completed(self.connection, &first.event.id)?.is_none() {
            self.plan.deliveries.push(first);
        } else if self.is_held(&first.event.body)? {
            self.plan.report.as_known += 1;
        } else {
            self.plan.deliveries.push(self.delivery(kind, object, Some(self.began))?);
        }
        Ok(())
    }

    /// The event of an object; one that was adopted before, and is another now, needs an event of its own.
    fn delivery(&self, kind: &str, object: &str, again: Option<UnixSeconds>) -> Result<Delivery, AdoptError> {
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
        Ok(Delivery { event, payload: Some(Payload::pack(&body)?), source: Source::Operator, received: self.now })
    }

    fn is_of_deleted(&self, subscription: &Subscription) -> bool {
        let is_listed = subscription.customer.as_ref().is_some_and(|customer| self.customers.contains(customer));
        State::of(subscription).is_terminal() && !is_listed
    }

    /// The books show the object as it is.
    fn is_held(&self, body: &Body) -> Result<bool, StoreError> {
        match body {
            Body::Customer(Customer { id, reference, .. }) => {
                let held = accounts::held(self.connection, id)?;
                Ok(held.is_some_and(|held| reference.is_none() || held.reference.is_some()))
            }
            Body::Subscription(subscription) => {
                let (_, standing) = subscriptions::held(self.connection, &subscription.id)?;
                Ok(standing.is_some_and(|standing| standing.state == State::of(subscription)))
            }
            _ => Ok(false),
        }
    }
}

/// Runs the plan, each chunk in a transaction of its own; `ran` hears how many events have run.
///
/// # Errors
/// [`StoreError`]; earlier chunks stand, and adopting again goes on.
pub fn apply(
    connection: &mut Connection,
    errand: &Errand,
    plan: &Plan,
    now: UnixMillis,
    ran: &mut dyn FnMut(usize),
) -> Result<Adopted, StoreError> {
    let mut report = run(connection, errand, plan, now, End::Keep, ran)?;
    errand.run_woken(connection, now)?;
    report.applied = true;
    Ok(report)
}

/// Runs the plan the same way, and takes everything back.
///
/// # Errors
/// [`StoreError`].
pub fn rehearse(
    connection: &mut Connection,
    errand: &Errand,
    plan: &Plan,
    now: UnixMillis,
    ran: &mut dyn FnMut(usize),
) -> Result<Adopted, StoreError> {
    run(connection, errand, plan, now, End::TakeBack, ran)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Keep,
    TakeBack,
}

fn run(
    connection: &mut Connection,
    errand: &Errand,
    plan: &Plan,
    now: UnixMillis,
    end: End,
    ran: &mut dyn FnMut(usize),
) -> Result<Adopted, StoreError> {
    let mut report = plan.report.clone();
    let mut done = 0;
    for chunk in chunks(&plan.deliveries) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (seq, known) = (audit::head(&transaction)?.seq, accounts::count(&transaction)?);
        let answers = errand.run(&transaction, chunk, now)?.answers;
        let changes = audit::actions_since(&transaction, seq)?;
        report.accounts_opened += accounts::count(&transaction)? - known;
        match end {
            End::Keep => transaction.commit()?,
            End::TakeBack => transaction.rollback()?,
        }
        report.add(&changes);
        chunk.iter().zip(&answers).for_each(|(delivery, answer)| report.count(&delivery.event.id, answer));
        done += chunk.len();
        ran(done);
    }
    Ok(report)
}

/// Parts of about [`CHUNK`] events, none of which ends within an account: taken back apart, its events would not see
/// each other.
fn chunks(deliveries: &[Delivery]) -> impl Iterator<Item = &[Delivery]> {
    let mut left = deliveries;
    std::iter::from_fn(move || {
        let first = left.get(CHUNK - 1).or_else(|| left.last())?;
        let account = place(&first.event).0;
        let length = left.iter().skip(CHUNK).position(|next| place(&next.event).0 != account);
        let (chunk, rest) = left.split_at(length.map_or(left.len(), |more| CHUNK + more));
        left = rest;
        Some(chunk)
    })
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
