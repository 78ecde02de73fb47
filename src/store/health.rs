//! How the books are doing, in a few numbers.

use rusqlite::{Connection, Row, named_params};

use crate::clock::UnixMillis;
use crate::domain::alert::{Findings, Open};
use crate::store::StoreError;
use crate::store::select::select;

/// How many events arrived since a moment.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn received_since(connection: &Connection, since: UnixMillis) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT count(*) FROM events INDEXED BY events_received WHERE received_at >= :since")?
        .query_row(named_params! { ":since": since }, |row| row.get(0))?)
}

/// The events that a person must look at.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn dead_letters(connection: &Connection) -> Result<Open, StoreError> {
    let sql = "SELECT count(*) AS count, min(received_at) AS first_at, event_id
               FROM events INDEXED BY events_dead WHERE dead_letter = 1";
    Ok(connection.prepare_cached(sql)?.query_row([], open)?)
}

/// The failed events that were received at or before `received_until`, without dead letters.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn failed(connection: &Connection, received_until: UnixMillis) -> Result<Open, StoreError> {
    // The first term is that of the index of open events.
    let sql = "SELECT count(*) AS count, min(received_at) AS first_at, event_id FROM events INDEXED BY events_open
               WHERE status <> 'completed' AND status = 'failed' AND dead_letter = 0 AND received_at <= :until";
    Ok(connection.prepare_cached(sql)?.query_row(named_params! { ":until": received_until }, open)?)
}

/// The pending events that were received at or before `received_until`.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn pending(connection: &Connection, received_until: UnixMillis) -> Result<Open, StoreError> {
    let sql = "SELECT count(*) AS count, min(received_at) AS first_at, event_id FROM events INDEXED BY events_open
               WHERE status <> 'completed' AND status = 'pending' AND received_at <= :until";
    Ok(connection.prepare_cached(sql)?.query_row(named_params! { ":until": received_until }, open)?)
}

/// With a single `min`, the other columns are those of its row.
fn open(row: &Row<'_>) -> rusqlite::Result<Open> {
    let first_at: Option<UnixMillis> = row.get("first_at")?;
    let first = first_at.map(|at| Ok::<_, rusqlite::Error>((row.get("event_id")?, at / 1000))).transpose()?;
    Ok(Open { count: row.get("count")?, first })
}

/// The findings that are open, by kind.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open_findings(connection: &Connection) -> Result<Vec<Findings>, StoreError> {
    let sql = "SELECT kind, count(*) AS count, min(first_seen_at) AS since FROM findings WHERE status = 'open'
               GROUP BY kind ORDER BY kind";
    select(connection, sql, [], |row| {
        Ok(Findings { kind: row.get("kind")?, count: row.get("count")?, since: row.get("since")? })
    })
}

/// How changes are written; `wal` if all is well.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn journal_mode(connection: &Connection) -> Result<String, StoreError> {
    Ok(connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?)
}
