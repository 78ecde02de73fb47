//! The audit log: who did what, to what, with before, after and why, as a chain of hashes.
//!
//! The hash of a row is SHA-256 over the hash of the row before it and the JSON array of its other columns, so that
//! no row can be changed, taken out or put in between without breaking every later one.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, named_params};
use sha2::{Digest as _, Sha256};

use crate::domain::event::UnixSeconds;
use crate::store::StoreError;

/// A hash of the chain.
pub type Hash = [u8; 32];

/// The hash that the first row builds on.
pub const GENESIS: Hash = [0; 32];

/// A new row.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Record<'a> {
    /// When.
    pub at: UnixSeconds,
    /// `stripe`, `operator:NAME` or `job:NAME`.
    pub actor: &'a str,
    /// What was done, such as `grant`.
    pub action: &'a str,
    /// To what, such as an account.
    pub subject: &'a str,
    /// By which event.
    pub event_id: Option<&'a str>,
    /// JSON: before, after and why.
    pub detail: &'a str,
}

/// The last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its number; 0 when the log is empty.
    pub seq: i64,
    /// Its hash.
    pub hash: Hash,
}

/// The end of the chain.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn head(connection: &Connection) -> Result<Head, StoreError> {
    Ok(connection
        .prepare_cached("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok(Head { seq: row.get("seq")?, hash: row.get("hash")? }))
        .optional()?
        .unwrap_or(Head { seq: 0, hash: GENESIS }))
}

/// Appends a row; returns the new end of the chain.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn append(connection: &Connection, head: Head, record: &Record<'_>) -> Result<Head, StoreError> {
    let next = Head { seq: head.seq + 1, hash: link(&head.hash, head.seq + 1, record) };
    connection
        .prepare_cached(
            "INSERT INTO audit_log (seq, at, actor, action, subject, event_id, detail, prev_hash, hash)
             VALUES (:seq, :at, :actor, :action, :subject, :event, :detail, :prev_hash, :hash)",
        )?
        .execute(named_params! {
            ":seq": next.seq, ":at": record.at, ":actor": record.actor, ":action": record.action,
            ":subject": record.subject, ":event": record.event_id, ":detail": record.detail,
            ":prev_hash": head.hash, ":hash": next.hash,
        })?;
    Ok(next)
}

fn link(previous: &Hash, seq: i64, record: &Record<'_>) -> Hash {
    let columns = (seq, record.at, record.actor, record.action, record.subject, record.event_id, record.detail);
    let mut hasher = Sha256::new();
    hasher.update(previous);
    // A tuple of numbers and texts always has a JSON form.
    hasher.update(serde_json::to_vec(&columns).unwrap_or_default());
    hasher.finalize().into()
}

/// How many rows of each action there are after `seq`.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn actions_since(connection: &Connection, seq: i64) -> Result<BTreeMap<String, i64>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT action, count(*) AS rows FROM audit_log WHERE seq > :seq GROUP BY action")?;
    let rows = statement.query_map(named_params! { ":seq": seq }, |row| Ok((row.get("action")?, row.get("rows")?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The first row that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub seq: i64,
    /// The column that shows it, and why.
    pub problem: &'static str,
}

/// Walks along the chain from `head` on, by at most so many rows; returns where it came to, which is `head` at the end of
/// the chain.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn walk(connection: &Connection, head: Head, rows_max: i64) -> Result<Result<Head, Broken>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at, actor, action, subject, event_id, detail, prev_hash, hash FROM audit_log
         WHERE seq > :seq ORDER BY seq LIMIT :rows",
    )?;
    let mut rows = statement.query(named_params! { ":seq": head.seq, ":rows": rows_max })?;
    let mut head = head;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get("seq")?;
        let (actor, action, subject, detail): (String, String, String, String) =
            (row.get("actor")?, row.get("action")?, row.get("subject")?, row.get("detail")?);
        let event: Option<String> = row.get("event_id")?;
        let record = Record {
            at: row.get("at")?,
            actor: &actor,
            action: &action,
            subject: &subject,
            event_id: event.as_deref(),
            detail: &detail,
        };
        let broken = if seq != head.seq + 1 {
            Some("seq: a row before it is missing")
        } else if row.get::<_, Vec<u8>>("prev_hash")? != head.hash {
            Some("prev_hash: it is not the hash of the row before it")
        } else if row.get::<_, Vec<u8>>("hash")? != link(&head.hash, seq, &record) {
            Some("hash: the content was changed")
        } else {
            None
        };
        if let Some(problem) = broken {
            return Ok(Err(Broken { seq, problem }));
        }
        head = Head { seq, hash: link(&head.hash, seq, &record) };
    }
    Ok(Ok(head))
}
