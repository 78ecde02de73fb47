//! One pass over what did not get through: run again what rests, put aside for a person what is too old.

use rusqlite::Transaction;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::ids::EventId;
use crate::ops::apply::to_json;
use crate::ops::ingest::{Answer, Delivery, Errand, Stored, stored};
use crate::ops::remedy;
use crate::store::audit::{self, Record};
use crate::store::events::{self, EventRow};
use crate::store::{Desk, StoreError, unfinished};

/// What ran within this time is left to whoever redelivers it; each failure doubles it, so that Stripe's own retries
/// come first. Milliseconds.
const REST: UnixMillis = 10 * 60_000;

/// How many events one transaction runs at most.
const BATCH: usize = 64;

/// How many events one pass runs at most; the next one goes on.
const PASS: usize = 10_000;

/// The code of what waited for too long; a failed event keeps the code of its failure.
const WAITED_TOO_LONG: &str = "waited_too_long";

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reaped {
    /// Held tiers that were ended.
    pub downgrades: usize,
    /// Events that ran again.
    pub ran: usize,
    /// Of these: done now.
    pub completed: usize,
    /// Of these: still waiting.
    pub pending: usize,
    /// Of these: failed once more.
    pub failed: usize,
    /// Events that became dead letters.
    pub dead_letters: Vec<String>,
}

/// Makes one pass; what is unfinished for longer than `pending_after` milliseconds becomes a dead letter.
///
/// # Errors
/// [`StoreError`]; what earlier transactions of the pass did stands.
pub fn reap(
    desk: &mut impl Desk,
    errand: &Errand,
    pending_after: UnixMillis,
    now: UnixMillis,
) -> Result<Reaped, StoreError> {
    let mut reaped = Reaped { downgrades: end_held_tiers(desk, errand, now)?, ..Reaped::default() };
    let rested = desk.write(move |transaction| unfinished::rested(transaction, REST, PASS, now))?;
    for ids in rested.chunks(BATCH) {
        let (errand, ids) = (errand.clone(), ids.to_vec());
        let ran = desk.write(move |transaction| run_again(transaction, &errand, &ids, now))?;
        ran.into_iter().for_each(|(id, answer)| reaped.count(id, &answer));
    }
    errand.run_woken(desk, now)?;
    let before = now.saturating_sub(pending_after);
    loop {
        let errand = errand.clone();
        let ended = desk.write(move |transaction| put_aside(transaction, errand.actor(), before, now))?;
        if ended.is_empty() {
            return Ok(reaped);
        }
        reaped.dead_letters.extend(ended);
    }
}

impl Reaped {
    fn count(&mut self, id: EventId, answer: &Answer) {
        self.ran += 1;
        match answer {
            Answer::Completed { .. } | Answer::Duplicate { .. } => self.completed += 1,
            Answer::Pending { .. } => self.pending += 1,
            Answer::Failed { .. } => self.failed += 1,
            Answer::DeadLetter { .. } => {
                self.failed += 1;
                self.dead_letters.push(id.to_string());
            }
        }
    }
}

fn end_held_tiers(desk: &mut impl Desk, errand: &Errand, now: UnixMillis) -> Result<usize, StoreError> {
    let mut all = 0;
    loop {
        let errand = errand.clone();
        let ended = desk.write(move |transaction| errand.end_held_tiers(transaction, now))?;
        if ended == 0 {
            return Ok(all);
        }
        all += ended;
    }
}

/// Somebody else may have run or completed some of them meanwhile; those are left alone.
fn run_again(
    transaction: &Transaction<'_>,
    errand: &Errand,
    ids: &[EventId],
    now: UnixMillis,
) -> Result<Vec<(EventId, Answer)>, StoreError> {
    let mut deliveries: Vec<Delivery> = Vec::with_capacity(ids.len());
    for id in ids {
        if !events::find(transaction, id.as_str())?.is_some_and(|row| row.status != "completed" && !row.dead_letter) {
            continue;
        }
        match stored(transaction, id, &errand.rules().metadata_key)? {
            Stored::Whole(delivery) => deliveries.push(*delivery),
            Stored::NoPayload => {}
            Stored::Damaged(problem) => tracing::error!(event_id = %id, problem, "an event cannot be run again"),
        }
    }
    let answers = errand.run(transaction, &deliveries, now)?.answers;
    Ok(deliveries.into_iter().map(|delivery| delivery.event.id).zip(answers).collect())
}

fn put_aside(
    transaction: &Transaction<'_>,
    actor: &str,
    before: UnixMillis,
    now: UnixMillis,
) -> Result<Vec<String>, StoreError> {
    let mut ended = Vec::new();
    for id in unfinished::overdue(transaction, before, BATCH)? {
        let Some(row) = events::find(transaction, id.as_str())? else { continue };
        let (code, message) = diagnosis(&row);
        unfinished::put_aside(transaction, &row.event_id, &code, &message)?;
        let detail = to_json(&Ended { code: &code, why: &message, attempts: row.attempts })?;
        let record = Record {
            at: now / 1000,
            actor,
            action: "event.dead_letter",
            subject: row.object_id.as_deref().unwrap_or(&row.kind),
            event_id: Some(&row.event_id),
            detail: &detail,
        };
        audit::append(transaction, audit::head(transaction)?, &record)?;
        ended.push(row.event_id);
    }
    Ok(ended)
}

/// A failed event has its diagnosis already.
fn diagnosis(row: &EventRow) -> (String, String) {
    if let (Some(code), Some(message)) = (&row.error_code, &row.last_error) {
        return (code.clone(), message.clone());
    }
    let needs = row.needs.as_deref().unwrap_or_default();
    let remedies: Vec<String> = remedy::of_needs(needs).map(|(need, remedy)| format!("{need} ({remedy})")).collect();
    let message = format!(
        "waited for {} longer than [reaper] pending_after; it runs by itself when that comes; if it is not ours, dismiss it",
        remedies.join(" or ")
    );
    (WAITED_TOO_LONG.into(), message)
}

#[derive(Serialize)]
struct Ended<'a> {
    code: &'a str,
    why: &'a str,
    attempts: i64,
}
