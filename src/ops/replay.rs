//! Runs stored events again through the pipeline, or shows what that would do.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction};
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::facts::Asked;
use crate::domain::ids::EventId;
use crate::ops::apply::to_json;
use crate::ops::ingest::{Answer, Delivery, Errand, Stored, stored};
use crate::store::audit::{self, Record};
use crate::store::events::{self, EventRow};
use crate::store::payload::{self, Payload};
use crate::store::unfinished::{self, Choice, Chosen};
use crate::store::written::{self, Written};
use crate::store::{Desk, StoreError, savepoint};
use crate::stripe::ask::{self, NoAnswer};
use crate::stripe::client::{Api, Dated};
use crate::stripe::wire;

/// How many events one transaction runs at most, so that deliveries never wait long for them.
pub const BATCH: usize = 64;

/// How to run events again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct How {
    /// Events that a person has dismissed run again, too.
    pub dismissed: bool,
}

/// What will run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The events, the oldest at Stripe first.
    #[serde(skip)]
    pub ids: Vec<EventId>,
    /// How many there are of each type and cause.
    pub groups: Vec<PlannedGroup>,
}

/// Planned events that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedGroup {
    /// Their type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Their error code, what kind of thing they wait for, or why they were ignored.
    pub why: String,
    /// How many.
    pub count: usize,
}

/// The events that a choice names.
///
/// # Errors
/// [`StoreError`].
pub fn plan(connection: &Connection, choice: &Choice) -> Result<Plan, StoreError> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut ids = Vec::new();
    for Chosen { id, kind, why } in unfinished::chosen(connection, choice)? {
        *counts.entry((kind, why)).or_default() += 1;
        ids.push(id);
    }
    let groups = counts.into_iter().map(|((kind, why), count)| PlannedGroup { kind, why, count }).collect();
    Ok(Plan { ids, groups })
}

/// Those of some events that are not known.
///
/// # Errors
/// [`StoreError`].
pub fn unknown(connection: &Connection, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
    let mut unknown = Vec::new();
    for id in ids {
        if events::find(connection, id.as_str())?.is_none() {
            unknown.push(id.clone());
        }
    }
    Ok(unknown)
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Which.
    pub event_id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// What became of it.
    #[serde(rename = "result")]
    pub end: End,
    /// Why, or for what it waits.
    pub why: Option<String>,
    /// What the run wrote.
    pub written: Written,
}

/// What became of an event that was to run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It changed the books.
    Applied,
    /// It was understood, and changed nothing.
    NoEffect,
    /// It is older than what is known.
    Stale,
    /// It is not for these books; if it was ignored before, its row stays as it was.
    Ignored,
    /// It was completed before, and is not applied again.
    AlreadyCompleted,
    /// A person dismissed it before.
    Dismissed,
    /// It waits for something.
    Pending,
    /// It failed again.
    Failed,
    /// It failed again, and is a dead letter.
    DeadLetter,
    /// Its payload is not kept any more.
    NoPayload,
    /// Its payload cannot be read back.
    Damaged,
}

impl End {
    /// Whether a person should look at it.
    #[must_use]
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::DeadLetter | Self::NoPayload | Self::Damaged)
    }

    /// For people: what became of it, or would if it was not a dry run.
    #[must_use]
    pub fn words(self, is_dry: bool) -> &'static str {
        match self {
            Self::Applied if is_dry => "would be applied",
            Self::Applied => "applied",
            Self::NoEffect if is_dry => "would have no effect",
            Self::NoEffect => "no effect",
            Self::Stale if is_dry => "would be stale",
            Self::Stale => "stale",
            Self::Ignored => "ignored, as before",
            Self::AlreadyCompleted => "not run again",
            Self::Dismissed => "not run",
            Self::Pending if is_dry => "would wait",
            Self::Pending => "waits",
            Self::Failed if is_dry => "would fail",
            Self::Failed => "failed",
            Self::DeadLetter if is_dry => "would fail as a dead letter",
            Self::DeadLetter => "failed, a dead letter",
            Self::NoPayload | Self::Damaged => "cannot run",
        }
    }
}

/// Those of some events that would run again, but whose payload is not kept any more.
///
/// # Errors
/// [`StoreError`].
pub fn without_payload(connection: &Connection, ids: &[EventId], how: How) -> Result<Vec<EventId>, StoreError> {
    let mut without = Vec::new();
    for id in ids {
        let row = events::find(connection, id.as_str())?;
        let runs = row.is_some_and(|row| row.source != "job" && finished(&row, how).is_none());
        if runs && !payload::is_kept(connection, id.as_str())? {
            without.push(id.clone());
        }
    }
    Ok(without)
}

/// A payload that Stripe told again, and of which event.
pub type Fetched = (EventId, Payload);

/// Gets payloads back from Stripe that retention has deleted, for as long as Stripe answers.
pub struct Fetcher<A> {
    /// `None`: there is nobody to ask, or it makes no sense any more.
    api: Option<A>,
}

impl<A: Api> Fetcher<A> {
    /// Nobody has been asked yet.
    pub fn new(api: Option<A>) -> Self {
        Self { api }
    }

    /// The payloads of those of some events that Stripe still has, and why others could not be had.
    pub fn fetch(&mut self, ids: &[EventId]) -> (Vec<Fetched>, Vec<NotFetched>) {
        let (mut fetched, mut problems) = (Vec::new(), Vec::new());
        for id in ids {
            let Some(api) = &self.api else { break };
            match fetch(api, id) {
                Ok(payload) => fetched.extend(payload.map(|payload| (id.clone(), payload))),
                Err(problem) => {
                    if !problem.why.is_of_one() {
                        self.api = None;
                    }
                    problems.push(problem);
                }
            }
        }
        (fetched, problems)
    }
}

fn fetch(api: &dyn Api, id: &EventId) -> Result<Option<Payload>, NotFetched> {
    let failed = |why| NotFetched { id: id.clone(), why };
    let Asked::Told(Dated { told: body, .. }) = ask::event(api, id).map_err(|error| failed(Why::NoAnswer(error)))?
    else {
        return Ok(None);
    };
    if !wire::read(body.as_bytes(), "").is_ok_and(|event| event.id == *id) {
        return Err(failed(Why::Other));
    }
    Payload::pack(body.as_bytes()).map(Some).map_err(|error| failed(Why::Store(error)))
}

/// A payload could not be fetched again.
#[derive(Debug, Error)]
#[error("{id}: its payload is not fetched again: {why}{}", if why.is_of_one() { "" } else { "; no other is asked for" })]
pub struct NotFetched {
    id: EventId,
    why: Why,
}

#[derive(Debug, Error)]
enum Why {
    #[error("{0}")]
    NoAnswer(NoAnswer),
    #[error("Stripe told another event; check stripe.api_base")]
    Other,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Why {
    /// It is about the event, and tells nothing of the next one.
    fn is_of_one(&self) -> bool {
        match self {
            Self::NoAnswer(NoAnswer::Api(error)) => error.is_final(),
            Self::NoAnswer(NoAnswer::Unreadable { .. }) | Self::Store(_) => true,
            Self::Other => false,
        }
    }
}

/// Runs some events again, in one transaction, with the payloads that were fetched for them: retention never sees one
/// that has come back and has not run yet.
///
/// # Errors
/// Trouble with disk, memory or locks; then none of them has run.
pub fn replay(
    desk: &mut impl Desk,
    errand: &Errand,
    ids: &[EventId],
    fetched: Vec<Fetched>,
    how: How,
    now: UnixMillis,
) -> Result<Vec<Replayed>, StoreError> {
    let (errand, ids) = (errand.clone(), ids.to_vec());
    desk.write(move |transaction| {
        for (id, payload) in &fetched {
            payload::insert(transaction, id, payload)?;
        }
        ids.iter().map(|id| replay_one(transaction, &errand, id, how, now)).collect()
    })
}

/// What a run of one event would do now: a run within a transaction that is taken back.
///
/// # Errors
/// As [`replay`].
pub fn rehearse(
    desk: &mut impl Desk,
    errand: &Errand,
    id: &EventId,
    how: How,
    now: UnixMillis,
) -> Result<Replayed, StoreError> {
    let (errand, id) = (errand.clone(), id.clone());
    desk.write(move |transaction| {
        savepoint::begin(transaction)?;
        let replayed = replay_one(transaction, &errand, &id, how, now)?;
        savepoint::take_back(transaction)?;
        Ok(replayed)
    })
}

fn replay_one(
    transaction: &Transaction<'_>,
    errand: &Errand,
    id: &EventId,
    how: How,
    now: UnixMillis,
) -> Result<Replayed, StoreError> {
    let Some(row) = events::find(transaction, id.as_str())? else {
        let what = format!("event {id}");
        return Err(StoreError::Damaged { what, problem: "it was there, and is gone".into() });
    };
    let told = |end, why| Replayed {
        event_id: row.event_id.clone(),
        kind: row.kind.clone(),
        end,
        why,
        written: Written::default(),
    };
    if let Some((end, why)) = finished(&row, how) {
        return Ok(told(end, Some(why)));
    }
    let delivery = match stored(transaction, id, &errand.rules().metadata_key)? {
        // As if it came now: what Stripe told before somebody removed the cause counts no more.
        Stored::Whole(delivery) => Delivery { received: now, ..*delivery },
        Stored::NoPayload => {
            let why = "its payload is not kept any more; Stripe has it for 30 days: with an API key a replay fetches it \
                       (a dry run does not), without one resend it from the dashboard";
            return Ok(told(End::NoPayload, Some(why.into())));
        }
        Stored::Damaged(problem) => return Ok(told(End::Damaged, Some(problem))),
    };
    let (mark, is_ignored) = (written::mark(transaction)?, row.status == "completed");
    if is_ignored {
        savepoint::begin(transaction)?;
        reopen(transaction, errand.actor(), id, &row, now)?;
    }
    let answer = errand.run(transaction, std::slice::from_ref(&delivery), now)?.answers.pop();
    let (end, why) = became(transaction, id, answer)?;
    if is_ignored && end == End::Ignored {
        savepoint::take_back(transaction)?;
        return Ok(told(end, why));
    }
    if is_ignored {
        savepoint::keep(transaction)?;
    }
    Ok(Replayed { written: written::since(transaction, mark)?, ..told(end, why) })
}

/// Why an event does not run again, if it does not.
fn finished(row: &EventRow, how: How) -> Option<(End, String)> {
    let outcome = row.outcome.as_deref()?;
    let reason = row.reason.as_deref().unwrap_or_default();
    if row.dismissed && !how.dismissed {
        return Some((End::Dismissed, format!("dismissed ({reason}); `--dismissed` with its id runs it after all")));
    }
    if outcome == Outcome::Ignored.as_str() {
        return None;
    }
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    Some((End::AlreadyCompleted, format!("was completed before as {outcome}{why}; nothing is applied twice")))
}

fn reopen(
    transaction: &Transaction<'_>,
    actor: &str,
    id: &EventId,
    row: &EventRow,
    now: UnixMillis,
) -> Result<(), StoreError> {
    unfinished::reopen(transaction, id)?;
    let record = Record {
        at: now / 1000,
        actor,
        action: "event.reopened",
        subject: row.object_id.as_deref().unwrap_or(&row.kind),
        event_id: Some(&row.event_id),
        detail: &to_json(&Reopened { outcome: &row.outcome, reason: &row.reason, dismissed: row.dismissed })?,
    };
    audit::append(transaction, audit::head(transaction)?, &record)?;
    Ok(())
}

#[derive(Serialize)]
struct Reopened<'a> {
    outcome: &'a Option<String>,
    reason: &'a Option<String>,
    dismissed: bool,
}

fn became(
    transaction: &Transaction<'_>,
    id: &EventId,
    answer: Option<Answer>,
) -> Result<(End, Option<String>), StoreError> {
    let error = || -> Result<Option<String>, StoreError> {
        let row = events::find(transaction, id.as_str())?;
        Ok(row.and_then(|row| Some(format!("{}: {}", row.error_code?, row.last_error?))))
    };
    Ok(match answer {
        Some(Answer::Completed { outcome, reason }) => {
            let end = match outcome {
                Outcome::Applied => End::Applied,
                Outcome::NoEffect => End::NoEffect,
                Outcome::Stale => End::Stale,
                Outcome::Ignored => End::Ignored,
            };
            (end, reason)
        }
        Some(Answer::Pending { needs }) => (End::Pending, Some(needs)),
        Some(Answer::Failed { .. }) => (End::Failed, error()?),
        Some(Answer::DeadLetter { .. }) => (End::DeadLetter, error()?),
        Some(Answer::Duplicate { .. }) | None => (End::AlreadyCompleted, None),
    })
}
