//! What retention may delete: found by readers, page by page of a key, and deleted in small transactions.

use rusqlite::{Connection, named_params};

use crate::clock::UnixMillis;
use crate::store::StoreError;

/// A part of all payloads, in the order of their keys.
#[derive(Debug, Default)]
pub struct Payloads {
    /// The events whose payloads may go, with the bytes of each.
    pub old: Vec<(String, i64)>,
    /// Where the next part begins; `None`: this was the last one.
    pub next: Option<String>,
}

/// Of the next `limit` payloads after the key `after`, those of completed events that arrived before `before`.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn payloads(
    connection: &Connection,
    after: &str,
    before: UnixMillis,
    limit: usize,
) -> Result<Payloads, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT p.event_id, length(p.body) + length(p.digest) + coalesce(length(p.object), 0) AS bytes,
                e.status = 'completed' AND e.received_at < :before AS is_old
         FROM event_payloads p CROSS JOIN events e ON e.event_id = p.event_id
         WHERE p.event_id > :after ORDER BY p.event_id LIMIT :limit",
    )?;
    let mut rows = statement.query(named_params! { ":after": after, ":before": before, ":limit": count(limit) })?;
    let (mut found, mut seen) = (Payloads::default(), 0);
    while let Some(row) = rows.next()? {
        seen += 1;
        let id: String = row.get("event_id")?;
        if row.get("is_old")? {
            found.old.push((id.clone(), row.get("bytes")?));
        }
        found.next = Some(id);
    }
    if seen < limit {
        found.next = None;
    }
    Ok(found)
}

/// Deletes the payloads of those of these events that are still completed; returns how many there were, and their
/// bytes. The events stay.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn delete_payloads(connection: &Connection, payloads: &[(String, i64)]) -> Result<(usize, i64), StoreError> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM event_payloads WHERE event_id = :event
           AND EXISTS (SELECT 1 FROM events WHERE event_id = :event AND status = 'completed')",
    )?;
    payloads.iter().try_fold((0, 0), |(count, sum), (event, bytes)| {
        let deleted = statement.execute(named_params! { ":event": event })?;
        Ok((count + deleted, if deleted > 0 { sum + bytes } else { sum }))
    })
}

/// A key of ignored events in the order of their arrival.
pub type Arrival = (UnixMillis, String);

/// Up to `limit` ignored events that arrived before `before` and after the key `after`. Dismissed ones are none, and
/// those that a row of the books names stay as well.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn ignored_events(
    connection: &Connection,
    after: &Arrival,
    before: UnixMillis,
    limit: usize,
) -> Result<Vec<Arrival>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT received_at, event_id FROM events e INDEXED BY events_ignored
         WHERE outcome = 'ignored' AND dismissed = 0 AND received_at < :before
           AND (received_at, event_id) > (:received, :event)
           AND NOT EXISTS (SELECT 1 FROM ledger_entries WHERE source_event_id = e.event_id)
           AND NOT EXISTS (SELECT 1 FROM tier_changes WHERE source_event_id = e.event_id)
           AND NOT EXISTS (SELECT 1 FROM invoices WHERE invoice_id = e.object_id AND source_event_id = e.event_id)
           AND NOT EXISTS (SELECT 1 FROM checkouts WHERE checkout_id = e.object_id AND source_event_id = e.event_id)
           AND NOT EXISTS (SELECT 1 FROM payments WHERE charge_id = e.object_id AND source_event_id = e.event_id)
           AND NOT EXISTS (SELECT 1 FROM refunds WHERE refund_id = e.object_id AND source_event_id = e.event_id)
           AND NOT EXISTS (SELECT 1 FROM disputes WHERE dispute_id = e.object_id AND source_event_id = e.event_id)
           AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE subscription_id = e.object_id AND source_event_id = e.event_id)
         ORDER BY received_at, event_id LIMIT :limit",
    )?;
    let rows = statement.query_map(
        named_params! { ":before": before, ":received": after.0, ":event": after.1, ":limit": count(limit) },
        |row| Ok((row.get("received_at")?, row.get("event_id")?)),
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Deletes events that are still ignored, with their payloads; returns how many there were.
///
/// # Errors
/// [`StoreError::Sql`], also when a row of the books names one of them.
pub fn delete_ignored(connection: &Connection, events: &[Arrival]) -> Result<usize, StoreError> {
    let mut statement = connection
        .prepare_cached("DELETE FROM events WHERE event_id = :event AND outcome = 'ignored' AND dismissed = 0")?;
    events.iter().try_fold(0, |sum, (_, event)| Ok(sum + statement.execute(named_params! { ":event": event })?))
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
