//! Findings: one row per kind and subject, opened again when it comes back.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use crate::domain::decision::Finding;
use crate::domain::event::UnixSeconds;
use crate::domain::ids::EventId;
use crate::domain::money::Currency;
use crate::domain::reconcile::Difference;
use crate::store::StoreError;

/// Opens a finding, or sees it again. What a person has acknowledged stays acknowledged for as long as both of its
/// sides are the same.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open(connection: &Connection, finding: &Finding, now: UnixSeconds) -> Result<(), StoreError> {
    save(connection, finding, None, None, now)
}

/// Opens a finding with what stands behind it, or sees it again.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn tell(connection: &Connection, difference: &Difference, now: UnixSeconds) -> Result<(), StoreError> {
    save(connection, &difference.finding, difference.stake, difference.event.as_ref(), now)
}

fn save(
    connection: &Connection,
    finding: &Finding,
    stake: Option<(i64, Currency)>,
    event: Option<&EventId>,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO findings (kind, subject, expected, actual, status, first_seen_at, last_seen_at, amount,
                                   currency, event_id)
             VALUES (:kind, :subject, :expected, :actual, 'open', :now, :now, :amount, :currency, :event)
             ON CONFLICT (kind, subject) DO UPDATE SET
                 status = CASE WHEN status = 'acknowledged' AND expected IS excluded.expected
                                    AND actual IS excluded.actual THEN status ELSE 'open' END,
                 reason = CASE WHEN status = 'acknowledged' AND expected IS excluded.expected
                                    AND actual IS excluded.actual THEN reason END,
                 first_seen_at = CASE WHEN status = 'resolved' THEN excluded.first_seen_at ELSE first_seen_at END,
                 expected = excluded.expected, actual = excluded.actual, last_seen_at = excluded.last_seen_at,
                 amount = excluded.amount, currency = excluded.currency, event_id = excluded.event_id",
        )?
        .execute(named_params! {
            ":kind": finding.kind, ":subject": finding.subject, ":expected": finding.expected,
            ":actual": finding.actual, ":now": now, ":amount": stake.map(|(amount, _)| amount),
            ":currency": stake.map(|(_, currency)| currency), ":event": event,
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

/// A person has seen a finding and lets it be, for a reason.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn acknowledge(connection: &Connection, id: i64, reason: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE findings SET status = 'acknowledged', reason = :reason WHERE finding_id = :id")?
        .execute(named_params! { ":id": id, ":reason": reason })?;
    Ok(())
}

/// One row of `v_findings`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_findings")]
pub struct FindingRow {
    pub finding_id: i64,
    pub kind: String,
    pub subject: String,
    pub expected: Option<String>,
    pub actual: Option<String>,
    pub status: String,
    pub first_seen_at: UnixSeconds,
    pub last_seen_at: UnixSeconds,
    pub amount: Option<i64>,
    pub currency: Option<String>,
    pub event_id: Option<String>,
    pub reason: Option<String>,
    /// The account of the subscription or invoice that is its subject, if it is known here.
    pub account_id: Option<String>,
}

const ROWS: &str = "SELECT f.*, (
        SELECT account_id FROM accounts WHERE account_id = coalesce(
            (SELECT account_id FROM subscriptions WHERE subscription_id = f.subject),
            (SELECT account_id FROM invoices WHERE invoice_id = f.subject))) AS account_id
    FROM v_findings f";

impl FindingRow {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            finding_id: row.get("finding_id")?,
            kind: row.get("kind")?,
            subject: row.get("subject")?,
            expected: row.get("expected")?,
            actual: row.get("actual")?,
            status: row.get("status")?,
            first_seen_at: row.get("first_seen_at")?,
            last_seen_at: row.get("last_seen_at")?,
            amount: row.get("amount")?,
            currency: row.get("currency")?,
            event_id: row.get("event_id")?,
            reason: row.get("reason")?,
            account_id: row.get("account_id")?,
        })
    }
}

/// The findings of a status (`None`: of any), the first seen first, at most `limit`.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn list(connection: &Connection, status: Option<&str>, limit: i64) -> Result<Vec<FindingRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "{ROWS} WHERE (:status IS NULL OR status = :status) ORDER BY first_seen_at, finding_id LIMIT :limit"
    ))?;
    let rows = statement.query_map(named_params! { ":status": status, ":limit": limit }, FindingRow::from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// One finding.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn find(connection: &Connection, id: i64) -> Result<Option<FindingRow>, StoreError> {
    Ok(connection
        .prepare_cached(&format!("{ROWS} WHERE finding_id = :id"))?
        .query_row(named_params! { ":id": id }, FindingRow::from_row)
        .optional()?)
}

/// How many findings are open.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn count_open(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT count(*) FROM findings WHERE status = 'open'")?
        .query_row([], |row| row.get(0))?)
}

/// Kind and subject of each finding that is not resolved.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn unresolved(connection: &Connection) -> Result<Vec<(String, String)>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT kind, subject FROM findings WHERE status <> 'resolved'")?;
    let rows = statement.query_map([], |row| Ok((row.get("kind")?, row.get("subject")?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
