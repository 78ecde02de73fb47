//! Findings: one row per kind and subject, opened again when it comes back.

use rusqlite::{Connection, named_params};

use crate::domain::decision::Finding;
use crate::domain::event::UnixSeconds;
use crate::store::StoreError;

/// Opens a finding, or sees it again. What a person has acknowledged stays acknowledged for as long as it is the same.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open(connection: &Connection, finding: &Finding, now: UnixSeconds) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO findings (kind, subject, expected, actual, status, first_seen_at, last_seen_at)
             VALUES (:kind, :subject, :expected, :actual, 'open', :now, :now)
             ON CONFLICT (kind, subject) DO UPDATE SET
                 status = CASE WHEN status = 'acknowledged' AND actual IS excluded.actual THEN status ELSE 'open' END,
                 expected = excluded.expected, actual = excluded.actual, last_seen_at = excluded.last_seen_at",
        )?
        .execute(named_params! {
            ":kind": finding.kind, ":subject": finding.subject, ":expected": finding.expected,
            ":actual": finding.actual, ":now": now,
        })?;
    Ok(())
}

/// What a finding told is gone.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn resolve(connection: &Connection, kind: &str, subject: &str, now: UnixSeconds) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE findings SET status = 'resolved', last_seen_at = :now
             WHERE kind = :kind AND subject = :subject AND status <> 'resolved'",
        )?
        .execute(named_params! { ":kind": kind, ":subject": subject, ":now": now })?;
    Ok(())
}
