//! A person decides that an event is not ours: it is completed as ignored, and whoever waits for it goes on.

use rusqlite::Transaction;
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decide;
use crate::domain::ids::EventId;
use crate::domain::words::quoted;
use crate::ops::apply::{Books, Cause, to_json};
use crate::ops::facts;
use crate::ops::ingest::{Errand, Stored, meta_of, stored};
use crate::store::audit::{self, Record};
use crate::store::events::{self, EventRow};
use crate::store::{Desk, StoreError, unfinished};

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dismissed {
    /// Which.
    pub event_id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// False: it was completed before, and nothing changed.
    pub dismissed: bool,
    /// What became of it, when it was completed before.
    pub outcome: Option<String>,
}

/// Why nothing was dismissed.
#[derive(Debug, Error)]
pub enum DismissError {
    /// No such events.
    #[error("there is no event {}; nothing is dismissed; `billingd events list` shows the newest", quoted(.0))]
    Unknown(String),
    /// The reason is for the audit log.
    #[error("the reason is empty; give --reason a text for the audit log; nothing is dismissed")]
    NoReason,
    /// The database did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Completes open events as ignored, all of them or none.
///
/// # Errors
/// [`DismissError`]; then nothing has changed.
pub fn dismiss(
    desk: &mut impl Desk,
    errand: &Errand,
    ids: &[EventId],
    reason: &str,
    now: UnixMillis,
) -> Result<Vec<Dismissed>, DismissError> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(DismissError::NoReason);
    }
    let (ids, reason, to_run) = (EventId::each_once(ids), reason.to_owned(), errand.clone());
    let dismissed = desk.write(move |transaction| {
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids {
            match events::find(transaction, id.as_str())? {
                Some(row) => rows.push((id, row)),
                None => return Ok(Err(DismissError::Unknown(id.to_string()))),
            }
        }
        let dismissed: Result<Vec<_>, StoreError> =
            rows.iter().map(|(id, row)| dismiss_one(transaction, &to_run, id, row, &reason, now)).collect();
        let dismissed = dismissed?;
        to_run.run(transaction, &[], now)?;
        Ok(Ok(dismissed))
    })??;
    errand.run_woken(desk, now)?;
    Ok(dismissed)
}

fn dismiss_one(
    transaction: &Transaction<'_>,
    errand: &Errand,
    id: &EventId,
    row: &EventRow,
    reason: &str,
    now: UnixMillis,
) -> Result<Dismissed, StoreError> {
    let told = |dismissed| Dismissed {
        event_id: row.event_id.clone(),
        kind: row.kind.clone(),
        dismissed,
        outcome: row.outcome.clone(),
    };
    if row.status == "completed" {
        return Ok(told(false));
    }
    unfinished::dismiss(transaction, id, reason, now)?;
    record(transaction, errand.actor(), row, reason, now)?;
    let rules = errand.rules();
    let mut effects = Vec::new();
    if let Stored::Whole(delivery) = stored(transaction, id, &rules.metadata_key)? {
        effects = decide::dismiss(
            &delivery.event,
            &facts::load(transaction, &delivery.event, delivery.received, &rules.policy)?,
        );
        let meta = meta_of(&delivery);
        let cause = Cause { event: &meta, actor: errand.actor() };
        Books { connection: transaction, now, chain: None }.apply_all(cause, &effects)?;
    }
    for need in decide::arrivals_of_dismissal(&row.kind, row.object_id.as_deref(), &effects) {
        events::wake(transaction, &need)?;
    }
    Ok(told(true))
}

#[derive(Serialize)]
struct Detail<'a> {
    before: &'a str,
    code: Option<&'a str>,
    needs: Option<&'a str>,
    why: &'a str,
}

fn record(
    transaction: &Transaction<'_>,
    actor: &str,
    row: &EventRow,
    reason: &str,
    now: UnixMillis,
) -> Result<(), StoreError> {
    let detail = Detail {
        before: if row.dead_letter { "dead letter" } else { &row.status },
        code: row.error_code.as_deref(),
        needs: row.needs.as_deref(),
        why: reason,
    };
    let record = Record {
        at: now / 1000,
        actor,
        action: "event.dismissed",
        subject: row.object_id.as_deref().unwrap_or(&row.kind),
        event_id: Some(&row.event_id),
        detail: &to_json(&detail)?,
    };
    audit::append(transaction, audit::head(transaction)?, &record)?;
    Ok(())
}
