//! Retention: lets go of raw payloads and of events that were not for us. The memory of all other events, and the
//! books, stay for good.
//!
//! It looks with a reader and deletes in small transactions, so that whoever else writes has its turn. Freed pages are
//! used again by what comes next; the file does not shrink.

use std::time::Duration;

use serde::Serialize;

use crate::clock::UnixMillis;
use crate::ops::apply::to_json;
use crate::stop::Stop;
use crate::store::audit::{self, Record};
use crate::store::reader::Reader;
use crate::store::retention::{self, Arrival};
use crate::store::{Desk, StoreError};

/// So many rows are deleted in one transaction at most.
const BATCH: usize = 250;

/// So many payloads are looked at in one read.
const LOOK: usize = 5_000;

/// How long is kept what may be deleted, counted from its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Payloads of completed events.
    pub payloads: Duration,
    /// Ignored events, but for dismissed ones.
    pub ignored_events: Duration,
}

/// What a pass has deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Payloads of events that stay.
    pub payloads: usize,
    /// Their bytes, as they were kept: compressed.
    pub payload_bytes: i64,
    /// Ignored events, with their payloads.
    pub ignored_events: usize,
    /// It was told to stop, and more may be left.
    pub stopped: bool,
}

/// One pass. `actor` stands in the audit log, where a pass that has deleted something leaves one row.
///
/// # Errors
/// [`StoreError`]; what was deleted until then stays deleted, and the next pass goes on.
pub fn prune(
    reader: &Reader,
    desk: &mut impl Desk,
    keep: Keep,
    actor: &str,
    now: UnixMillis,
    stop: &Stop,
) -> Result<Pruned, StoreError> {
    let mut pruned = Pruned::default();
    let outcome = prune_ignored(reader, desk, now.saturating_sub(millis(keep.ignored_events)), stop, &mut pruned)
        .and_then(|()| prune_payloads(reader, desk, now.saturating_sub(millis(keep.payloads)), stop, &mut pruned));
    pruned.stopped = stop.is_set();
    record(desk, &pruned, actor, now)?;
    outcome.map(|()| pruned)
}

fn millis(age: Duration) -> UnixMillis {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

fn prune_ignored(
    reader: &Reader,
    desk: &mut impl Desk,
    before: UnixMillis,
    stop: &Stop,
    pruned: &mut Pruned,
) -> Result<(), StoreError> {
    let mut after: Arrival = (i64::MIN, String::new());
    while !stop.is_set() {
        let found = reader.read(|connection| retention::ignored_events(connection, &after, before, BATCH))?;
        let Some(last) = found.last() else { break };
        after = last.clone();
        pruned.ignored_events += desk.write(move |transaction| retention::delete_ignored(transaction, &found))?;
    }
    Ok(())
}

fn prune_payloads(
    reader: &Reader,
    desk: &mut impl Desk,
    before: UnixMillis,
    stop: &Stop,
    pruned: &mut Pruned,
) -> Result<(), StoreError> {
    let mut after = Some(String::new());
    while let Some(key) = after.filter(|_| !stop.is_set()) {
        let found = reader.read(|connection| retention::payloads(connection, &key, before, LOOK))?;
        for batch in found.old.chunks(BATCH) {
            if stop.is_set() {
                break;
            }
            let batch = batch.to_vec();
            let (payloads, bytes) = desk.write(move |transaction| retention::delete_payloads(transaction, &batch))?;
            pruned.payloads += payloads;
            pruned.payload_bytes += bytes;
        }
        after = found.next;
    }
    Ok(())
}

fn record(desk: &mut impl Desk, pruned: &Pruned, actor: &str, now: UnixMillis) -> Result<(), StoreError> {
    if pruned.payloads == 0 && pruned.ignored_events == 0 {
        return Ok(());
    }
    let (actor, detail) = (actor.to_owned(), to_json(pruned)?);
    desk.write(move |transaction| {
        let record = Record {
            at: now / 1000,
            actor: &actor,
            action: "prune",
            subject: "retention",
            event_id: None,
            detail: &detail,
        };
        audit::append(transaction, audit::head(transaction)?, &record).map(drop)
    })
}
