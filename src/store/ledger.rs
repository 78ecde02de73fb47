//! The ledger: the one function that posts, and what reads entries back.

use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::domain::event::UnixSeconds;
use crate::domain::fact::Fact;
use crate::domain::grant::GrantLine;
use crate::domain::ids::{AccountId, EventId};
use crate::store::StoreError;

/// A new entry.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Whose books.
    pub account: &'a AccountId,
    /// `grant`, `clawback`, `restore`, `adjustment`, `reversal` or `import`.
    pub kind: &'static str,
    /// The unique key of the effect.
    pub fact: &'a Fact,
    /// The fact that the entry belongs to; its own for a grant.
    pub root: &'a Fact,
    /// The event that has this effect.
    pub source: &'a EventId,
    /// When it is posted.
    pub at: UnixSeconds,
}

/// What one line did to a balance.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Posted {
    /// The unit.
    pub unit: String,
    /// The amount of the line.
    pub amount: i64,
    /// The balance before.
    pub before: i64,
    /// The balance after.
    pub after: i64,
}

/// Writes an entry with its lines and moves the balances by the same amounts.
///
/// # Errors
/// [`StoreError::Sql`] (a constraint) when the fact or the event has an entry already; [`StoreError::TooLarge`] when a
/// balance would not fit.
pub fn post(connection: &Connection, entry: &Entry<'_>, lines: &[GrantLine]) -> Result<Vec<Posted>, StoreError> {
    post_reversing(connection, entry, None, lines)
}

/// Writes an entry that reverses another one; see [`post`].
///
/// # Errors
/// As [`post`], also when the other entry is reversed already.
pub fn reverse(
    connection: &Connection,
    entry: &Entry<'_>,
    reverses: i64,
    lines: &[GrantLine],
) -> Result<Vec<Posted>, StoreError> {
    post_reversing(connection, entry, Some(reverses), lines)
}

fn post_reversing(
    connection: &Connection,
    entry: &Entry<'_>,
    reverses: Option<i64>,
    lines: &[GrantLine],
) -> Result<Vec<Posted>, StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO ledger_entries (account_id, kind, fact, source_event_id, reverses, created_at)
             VALUES (:account, :kind, :fact, :source, :reverses, :at)",
        )?
        .execute(named_params! {
            ":account": entry.account, ":kind": entry.kind, ":fact": entry.fact, ":source": entry.source,
            ":reverses": reverses, ":at": entry.at,
        })?;
    let entry_id = connection.last_insert_rowid();
    lines.iter().map(|line| post_line(connection, entry_id, entry, line)).collect()
}

fn post_line(
    connection: &Connection,
    entry_id: i64,
    entry: &Entry<'_>,
    line: &GrantLine,
) -> Result<Posted, StoreError> {
    let converted = line.converted.as_ref();
    connection
        .prepare_cached(
            "INSERT INTO ledger_lines (entry_id, root, unit, amount, is_root, price_id, credits_per_unit,
                                       original_amount, original_currency, fx_rate, fx_date)
             VALUES (:entry, :root, :unit, :amount, :is_root, :price, :credits,
                     :original_amount, :original_currency, :rate, date(:day * 86400, 'unixepoch'))",
        )?
        .execute(named_params! {
            ":entry": entry_id, ":root": entry.root, ":unit": line.unit, ":amount": line.amount,
            ":is_root": entry.root == entry.fact, ":price": line.price, ":credits": line.credits_per_unit,
            ":original_amount": converted.map(|from| from.amount),
            ":original_currency": converted.map(|from| from.currency),
            ":rate": converted.map(|from| &from.rate), ":day": converted.map(|from| from.day),
        })?;
    // Not RETURNING, which builds a table of its own each time and makes SQLite guard the statement with a journal.
    let before = balance(connection, entry.account, &line.unit)?;
    let after = before
        .checked_add(line.amount)
        .ok_or_else(|| StoreError::TooLarge { account: entry.account.to_string(), unit: line.unit.clone() })?;
    connection
        .prepare_cached(
            "INSERT INTO balances (account_id, unit, balance) VALUES (:account, :unit, :amount)
             ON CONFLICT (account_id, unit) DO UPDATE SET balance = balance + excluded.balance",
        )?
        .execute(named_params! { ":account": entry.account, ":unit": line.unit, ":amount": line.amount })?;
    Ok(Posted { unit: line.unit.clone(), amount: line.amount, before, after })
}

/// An entry with one of its lines, as it was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whose books.
    pub account: AccountId,
    /// The event that has this effect.
    pub source: EventId,
    /// The unit of the line.
    pub unit: String,
    /// The amount of the line.
    pub amount: i64,
}

/// The entry of a fact.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn standing(connection: &Connection, fact: &Fact) -> Result<Option<Standing>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT e.account_id, e.source_event_id, l.unit, l.amount
             FROM ledger_entries e JOIN ledger_lines l ON l.entry_id = e.entry_id
             WHERE e.fact = :fact ORDER BY l.unit LIMIT 1",
        )?
        .query_row(named_params! { ":fact": fact }, |row| {
            Ok(Standing {
                account: row.get("account_id")?,
                source: row.get("source_event_id")?,
                unit: row.get("unit")?,
                amount: row.get("amount")?,
            })
        })
        .optional()?)
}

/// An entry that gives or spends, with what was taken back of it since.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Held {
    /// Its number.
    pub entry_id: i64,
    /// Whose books.
    pub account_id: String,
    /// `grant`, `import` and so on.
    pub kind: String,
    /// The unique key of the effect.
    pub fact: String,
    /// The key of the grant that it belongs to; its own for a grant.
    pub root: String,
    /// The event that has this effect.
    pub source_event_id: String,
    /// What it posted, and what still stands of that; each unit by itself.
    pub units: Vec<UnitHeld>,
}

/// One unit of an entry.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct UnitHeld {
    /// The unit.
    pub unit: String,
    /// What was posted.
    pub amount: i64,
    /// What was posted, less what was taken back.
    pub standing: i64,
}

/// The entry of a fact, unless it is reversed.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn held(connection: &Connection, fact: &str) -> Result<Option<Held>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT e.entry_id, e.account_id, e.kind, e.fact, l.root, e.source_event_id, l.unit, l.amount,
                l.amount + (SELECT coalesce(sum(c.amount), 0)
                            FROM ledger_lines c JOIN ledger_entries o ON o.entry_id = c.entry_id
                            WHERE c.root = l.root AND c.is_root = 0 AND c.unit = l.unit AND c.entry_id <> l.entry_id
                              AND o.account_id = e.account_id) AS standing
         FROM ledger_entries e JOIN ledger_lines l ON l.entry_id = e.entry_id
         WHERE e.fact = :fact AND NOT EXISTS (SELECT 1 FROM ledger_entries r WHERE r.reverses = e.entry_id)
         ORDER BY l.unit",
    )?;
    let mut rows = statement.query(named_params! { ":fact": fact })?;
    let mut held: Option<Held> = None;
    while let Some(row) = rows.next()? {
        let unit = UnitHeld { unit: row.get("unit")?, amount: row.get("amount")?, standing: row.get("standing")? };
        match &mut held {
            Some(held) => held.units.push(unit),
            None => {
                held = Some(Held {
                    entry_id: row.get("entry_id")?,
                    account_id: row.get("account_id")?,
                    kind: row.get("kind")?,
                    fact: row.get("fact")?,
                    root: row.get("root")?,
                    source_event_id: row.get("source_event_id")?,
                    units: vec![unit],
                });
            }
        }
    }
    Ok(held)
}

/// The event that granted a fact.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn granted_by(connection: &Connection, fact: &Fact) -> Result<Option<EventId>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT source_event_id FROM ledger_entries WHERE fact = :fact")?
        .query_row(named_params! { ":fact": fact }, |row| row.get("source_event_id"))
        .optional()?)
}

/// The number of the newest entry: as many as there are, since none is ever deleted.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn newest(connection: &Connection) -> Result<Option<i64>, StoreError> {
    Ok(connection.prepare_cached("SELECT max(entry_id) FROM ledger_entries")?.query_row([], |row| row.get(0))?)
}

/// The balance of an account in a unit; 0 where there is none.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn balance(connection: &Connection, account: &AccountId, unit: &str) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT balance FROM balances WHERE account_id = :account AND unit = :unit")?
        .query_row(named_params! { ":account": account, ":unit": unit }, |row| row.get("balance"))
        .optional()?
        .unwrap_or_default())
}
