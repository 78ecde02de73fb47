//! Rows of old credit tables as they were told, and what they have in common with the rest of the books.
//!
//! CROSS JOIN makes SQLite begin with the rows, of which there are few, and not with the entries of an account.

use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::domain::fact::Fact;
use crate::domain::ids::{AccountId, EventId};
use crate::store::StoreError;
use crate::store::look::{Look, Slice, Walk};
use crate::store::select::select;

/// Remembers what a row told of its origin.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn remember(
    connection: &Connection,
    event: &EventId,
    source_event: &str,
    source_object: Option<&str>,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO imported_rows (event_id, source_event_id, source_object)
             VALUES (:event, :source_event, :source_object)",
        )?
        .execute(named_params! {
            ":event": event, ":source_event": source_event, ":source_object": source_object,
        })?;
    Ok(())
}

/// Whether `grant`, the event of the grant of `fact`, was a row of a table, and no row has given this unit for it yet.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn lacks_unit(connection: &Connection, grant: &EventId, fact: &Fact, unit: &str) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM imported_rows WHERE event_id = :grant)
                AND NOT EXISTS (SELECT 1 FROM ledger_entries e JOIN ledger_lines l ON l.entry_id = e.entry_id
                                WHERE e.fact = :fact AND l.unit = :unit)
                AND NOT EXISTS (SELECT 1 FROM ledger_lines l JOIN ledger_entries e ON e.entry_id = l.entry_id
                                WHERE l.root = :fact AND l.is_root = 0 AND l.unit = :unit AND l.amount > 0
                                  AND e.kind = 'import')",
        )?
        .query_row(named_params! { ":grant": grant, ":fact": fact, ":unit": unit }, |row| row.get(0))?)
}

/// The event that had the effect of a row without an object before: a row of the same source event, account, unit and
/// direction, or the source event itself.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn of_same_source(
    connection: &Connection,
    source_event: &str,
    account: &AccountId,
    unit: &str,
    amount: i64,
) -> Result<Option<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT e.source_event_id FROM ledger_entries e
             WHERE e.source_event_id = :source AND e.kind = 'grant' AND :amount > 0
             UNION ALL
             SELECT event_id FROM (
                 SELECT r.event_id FROM imported_rows r
                 CROSS JOIN ledger_entries e ON e.source_event_id = r.event_id
                 JOIN ledger_lines l ON l.entry_id = e.entry_id
                 WHERE r.source_event_id = :source AND r.source_object IS NULL AND e.account_id = :account
                   AND l.unit = :unit AND (l.amount > 0) = (:amount > 0)
                 ORDER BY e.entry_id)
             LIMIT 1",
        )?
        .query_row(
            named_params! { ":source": source_event, ":account": account, ":unit": unit, ":amount": amount },
            |row| row.get("source_event_id"),
        )
        .optional()?)
}

/// A row that gave something under a key of its own, and was not reversed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key of its entry.
    pub fact: String,
    /// The event that it says it comes from.
    pub source_event: String,
    /// What it says it was given for.
    pub object: Option<String>,
}

/// How many rows one look at them reads.
const STEP: i64 = 1_000;

/// Shows `see` all rows that gave something under a key of their own and stand, in short looks.
///
/// # Errors
/// Those of `see`, and [`StoreError::Sql`].
pub fn each_with_own_key(
    books: &impl Look,
    mut see: impl FnMut(&Connection, Row) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let rows = "imported_rows r CROSS JOIN ledger_entries e";
    let sql = with_own_key(rows, "r.event_id >= :from AND r.event_id < :to");
    Walk::by_text("imported_rows", "event_id", STEP).each(books, |connection, Slice { from, to }| {
        let rows = select(connection, &sql, named_params! { ":from": from, ":to": to }, Row::from_row)?;
        rows.into_iter().try_for_each(|row| see(connection, row))
    })
}

/// The row that made an entry, if it stands.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn of_entry(connection: &Connection, entry: i64) -> Result<Option<Row>, StoreError> {
    let sql = with_own_key("ledger_entries e CROSS JOIN imported_rows r", "e.entry_id = :entry");
    Ok(select(connection, &sql, named_params! { ":entry": entry }, Row::from_row)?.pop())
}

fn with_own_key(rows: &str, which: &str) -> String {
    format!(
        "SELECT e.fact, r.source_event_id, r.source_object FROM {rows}
         WHERE {which} AND e.source_event_id = r.event_id AND e.fact GLOB 'import:*'
           AND EXISTS (SELECT 1 FROM ledger_lines l WHERE l.entry_id = e.entry_id AND l.amount > 0)
           AND NOT EXISTS (SELECT 1 FROM ledger_entries v WHERE v.reverses = e.entry_id)"
    )
}

impl Row {
    fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            fact: row.get("fact")?,
            source_event: row.get("source_event_id")?,
            object: row.get("source_object")?,
        })
    }
}

/// The further rows that gave something for a grant and stand, by their keys.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn parts_of(connection: &Connection, fact: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT e.fact
         FROM ledger_lines l JOIN ledger_entries e ON e.entry_id = l.entry_id
         WHERE l.root = :fact AND l.is_root = 0 AND l.amount > 0 AND e.kind = 'import'
           AND NOT EXISTS (SELECT 1 FROM ledger_entries v WHERE v.reverses = e.entry_id)",
    )?;
    let rows = statement.query_map(named_params! { ":fact": fact }, |row| row.get("fact"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The object of an event that the books know.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn object_of(connection: &Connection, event: &str) -> Result<Option<String>, StoreError> {
    let object: Option<Option<String>> = connection
        .prepare_cached("SELECT object_id FROM events WHERE event_id = :event")?
        .query_row(named_params! { ":event": event }, |row| row.get("object_id"))
        .optional()?;
    Ok(object.flatten())
}

/// Shows `see` each invoice and checkout that are one purchase, because one payment paid both or one made the other, and
/// that both have granted, and neither is reversed; in short looks.
///
/// # Errors
/// Those of `see`, and [`StoreError::Sql`].
pub fn each_granted_as_both(
    books: &impl Look,
    mut see: impl FnMut(&Connection, &str, &str) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for (table, purchases) in [("checkouts", PAID_AS_ONE), ("checkout_invoices", MADE_AS_ONE)] {
        let sql = format!(
            "SELECT b.invoice_id, b.checkout_id FROM ({purchases}) b
             JOIN ledger_entries i ON i.fact = 'grant:invoice:' || b.invoice_id
             JOIN ledger_entries s ON s.fact = 'grant:checkout:' || b.checkout_id
             WHERE NOT EXISTS (SELECT 1 FROM ledger_entries v WHERE v.reverses = i.entry_id)
               AND NOT EXISTS (SELECT 1 FROM ledger_entries v WHERE v.reverses = s.entry_id)
             ORDER BY 1, 2"
        );
        Walk::by_text(table, "checkout_id", STEP).each(books, |connection, Slice { from, to }| {
            let pairs: Vec<(String, String)> =
                select(connection, &sql, named_params! { ":from": from, ":to": to }, |row| {
                    Ok((row.get("invoice_id")?, row.get("checkout_id")?))
                })?;
            pairs.iter().try_for_each(|(invoice, checkout)| see(connection, invoice, checkout))
        })?;
    }
    Ok(())
}

const PAID_AS_ONE: &str = "SELECT p.invoice_id, c.checkout_id
    FROM checkouts c
    JOIN invoice_payments p
      ON p.payment_id = c.payment_intent
      OR p.payment_id IN (SELECT n.charge_id FROM payment_names n WHERE n.payment_intent = c.payment_intent)
    WHERE c.checkout_id >= :from AND c.checkout_id < :to";

const MADE_AS_ONE: &str =
    "SELECT invoice_id, checkout_id FROM checkout_invoices WHERE checkout_id >= :from AND checkout_id < :to";
