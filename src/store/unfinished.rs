//! Events that did not get through: what the reaper looks for, and what a person decides about them.

use rusqlite::{Connection, named_params};
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::event::UnixSeconds;
use crate::domain::ids::EventId;
use crate::store::StoreError;
use crate::store::events::Filter;

/// Open events that have not run for `rest`, the oldest first, without dead letters. Each failure doubles the rest. What
/// ran far ahead of now did so before the clock was set back: it has rested.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn rested(
    connection: &Connection,
    rest: UnixMillis,
    limit: usize,
    now: UnixMillis,
) -> Result<Vec<EventId>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT event_id FROM events INDEXED BY events_open
         WHERE status <> 'completed' AND dead_letter = 0
           AND (tried_at <= :now - (:rest << min(attempts, 10)) OR tried_at > :now + :rest)
         ORDER BY received_at, event_id LIMIT :limit",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement
        .query_map(named_params! { ":now": now, ":rest": rest, ":limit": limit }, |row| row.get("event_id"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Open events that arrived at or before `before`, the oldest first, without dead letters.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn overdue(connection: &Connection, before: UnixMillis, limit: usize) -> Result<Vec<EventId>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT event_id FROM events INDEXED BY events_open
         WHERE status <> 'completed' AND dead_letter = 0 AND received_at <= :before
         ORDER BY received_at, event_id LIMIT :limit",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(named_params! { ":before": before, ":limit": limit }, |row| row.get("event_id"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Puts an open event aside for a person. It still listens for what it needs.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn put_aside(connection: &Connection, id: &str, code: &str, message: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE events SET status = 'failed', dead_letter = 1, error_code = :code, last_error = :message
             WHERE event_id = :id AND status <> 'completed'",
        )?
        .execute(named_params! { ":id": id, ":code": code, ":message": message })?;
    Ok(())
}

/// Opens an ignored event, so that it can be claimed again in the same transaction.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn reopen(connection: &Connection, id: &EventId) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE events SET status = 'pending', needs = 'replay', outcome = NULL, reason = NULL,
                 processed_at = NULL, dismissed = 0
             WHERE event_id = :id AND status = 'completed' AND outcome = 'ignored'",
        )?
        .execute(named_params! { ":id": id })?;
    Ok(())
}

/// Completes an open event as not ours.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn dismiss(connection: &Connection, id: &EventId, reason: &str, now: UnixMillis) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE events SET status = 'completed', outcome = 'ignored', reason = :reason, needs = NULL,
                 error_code = NULL, last_error = NULL, dead_letter = 0, woken = 0, dismissed = 1, processed_at = :now
             WHERE event_id = :id AND status <> 'completed'",
        )?
        .execute(named_params! { ":id": id, ":reason": reason, ":now": now })?;
    Ok(())
}

/// Whether an event about this object was dismissed.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn is_dismissed(connection: &Connection, object_id: &str) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM events WHERE object_id = :object AND dismissed = 1)")?
        .query_row(named_params! { ":object": object_id }, |row| row.get(0))?)
}

/// Which events to run again, besides those that are named.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Failed ones, dead letters too.
    pub failed: bool,
    /// Pending ones.
    pub pending: bool,
    /// Ignored ones that nobody has dismissed.
    pub ignored: bool,
    /// Of these, only those of this type.
    pub kind: Option<String>,
}

/// A chosen event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub id: EventId,
    /// Its type.
    pub kind: String,
    /// Its error code, what kind of thing it waits for, or why it was ignored.
    pub why: String,
}

/// The events that a choice names, the oldest at Stripe first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn chosen(connection: &Connection, choice: &Choice) -> Result<Vec<Chosen>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT event_id, type, coalesce(error_code, 'waits for ' || substr(needs, 1, instr(needs, ':') - 1), reason, '')
                AS why
         FROM events
         WHERE ((:failed AND status = 'failed') OR (:pending AND status = 'pending')
                OR (:ignored AND status = 'completed' AND outcome = 'ignored' AND dismissed = 0))
           AND (:type IS NULL OR type = :type)
         ORDER BY created_at, event_id",
    )?;
    let rows = statement.query_map(
        named_params! {
            ":failed": choice.failed, ":pending": choice.pending, ":ignored": choice.ignored, ":type": choice.kind,
        },
        |row| Ok(Chosen { id: row.get("event_id")?, kind: row.get("type")?, why: row.get("why")? }),
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Open events that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Their type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Their error code, or what kind of thing they wait for.
    pub why: String,
    /// How many.
    pub count: i64,
    /// How many of them are dead letters.
    pub dead_letters: i64,
    /// When the first of them arrived.
    pub oldest: UnixSeconds,
    /// When the last of them arrived.
    pub newest: UnixSeconds,
}

/// The open events that a filter chooses, by type and cause, the largest group first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn groups(connection: &Connection, filter: &Filter) -> Result<Vec<Group>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT type, coalesce(error_code, 'waits for ' || substr(needs, 1, instr(needs, ':') - 1)) AS why,
                count(*) AS count, sum(dead_letter) AS dead_letters, min(received_at) AS oldest,
                max(received_at) AS newest
         FROM v_events
         WHERE status <> 'completed'
           AND (:status IS NULL OR status = :status OR :status = 'dead_letter' AND dead_letter)
           AND (:type IS NULL OR type = :type) AND (:account IS NULL OR account_id = :account)
           AND (:since IS NULL OR received_at >= :since)
         GROUP BY 1, 2 ORDER BY count DESC, type, why",
    )?;
    let rows = statement.query_map(
        named_params! {
            ":status": filter.status, ":type": filter.kind, ":account": filter.account, ":since": filter.since,
        },
        |row| {
            Ok(Group {
                kind: row.get("type")?,
                why: row.get("why")?,
                count: row.get("count")?,
                dead_letters: row.get("dead_letters")?,
                oldest: row.get("oldest")?,
                newest: row.get("newest")?,
            })
        },
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}
