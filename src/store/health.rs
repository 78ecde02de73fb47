//! How the books are doing, in a few numbers.

use rusqlite::{Connection, named_params};

use crate::clock::UnixMillis;
use crate::store::StoreError;

/// How many events are not done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// They wait for something, and have done so for longer than is usual.
    pub stuck: i64,
    /// They wait for something.
    pub pending: i64,
    /// The last run ended in an error; more are to come.
    pub failed: i64,
    /// A person must look.
    pub dead_letters: i64,
}

/// Counts what is not done; what arrived before `stuck_before` and waits is stuck.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn unfinished(connection: &Connection, stuck_before: UnixMillis) -> Result<Unfinished, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT count(*) FILTER (WHERE status = 'pending' AND received_at < :before) AS stuck,
                    count(*) FILTER (WHERE status = 'pending') AS pending,
                    count(*) FILTER (WHERE status = 'failed' AND dead_letter = 0) AS failed,
                    count(*) FILTER (WHERE dead_letter = 1) AS dead_letters
             FROM events WHERE status <> 'completed'",
        )?
        .query_row(named_params! { ":before": stuck_before }, |row| {
            Ok(Unfinished {
                stuck: row.get("stuck")?,
                pending: row.get("pending")?,
                failed: row.get("failed")?,
                dead_letters: row.get("dead_letters")?,
            })
        })?)
}

/// How many events arrived since a moment.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn received_since(connection: &Connection, since: UnixMillis) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT count(*) FROM events INDEXED BY events_received WHERE received_at >= :since")?
        .query_row(named_params! { ":since": since }, |row| row.get(0))?)
}

/// The kinds of findings that are open, and how many there are of each.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open_findings(connection: &Connection) -> Result<Vec<(String, i64)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT kind, count(*) AS findings FROM findings WHERE status = 'open' GROUP BY kind ORDER BY kind",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get("kind")?, row.get("findings")?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How changes are written; `wal` if all is well.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn journal_mode(connection: &Connection) -> Result<String, StoreError> {
    Ok(connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?)
}
