//! What a person is called for: the conditions that stand, and how deliveries were answered.

use std::collections::BTreeMap;

use rusqlite::{Connection, named_params};

use crate::domain::alert::{Alert, Answers, Condition};
use crate::domain::event::UnixSeconds;
use crate::store::StoreError;
use crate::store::select::select;

/// How many hours of answers are looked at.
const HOURS: i64 = 24;

/// How deliveries were answered in the hour of `now` and the 23 before it.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn answers(connection: &Connection, now: UnixSeconds) -> Result<Answers, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT coalesce(sum(good), 0) AS good, coalesce(sum(bad), 0) AS bad,
                    coalesce(sum(mismatched), 0) AS mismatched
             FROM deliveries WHERE hour > :now / 3600 - :hours",
        )?
        .query_row(named_params! { ":now": now, ":hours": HOURS }, |row| {
            Ok(Answers { good: row.get("good")?, bad: row.get("bad")?, mismatched: row.get("mismatched")? })
        })?)
}

/// Adds to the answers of some hours since the epoch, and forgets those that nobody looks at any more.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn add_answers(
    connection: &Connection,
    hours: &BTreeMap<i64, Answers>,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    for (hour, Answers { good, bad, mismatched }) in hours {
        connection
            .prepare_cached(
                "INSERT INTO deliveries (hour, good, bad, mismatched) VALUES (:hour, :good, :bad, :mismatched)
                 ON CONFLICT (hour) DO UPDATE SET good = good + excluded.good, bad = bad + excluded.bad,
                     mismatched = mismatched + excluded.mismatched",
            )?
            .execute(named_params! { ":hour": hour, ":good": good, ":bad": bad, ":mismatched": mismatched })?;
    }
    connection
        .prepare_cached("DELETE FROM deliveries WHERE hour <= :now / 3600 - :hours")?
        .execute(named_params! { ":now": now, ":hours": HOURS })?;
    Ok(())
}

/// What a former process has told, in the order in which it was raised.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn held(connection: &Connection) -> Result<Vec<Alert>, StoreError> {
    let sql =
        "SELECT condition, text, remedy, since, raised_at, told, gone_at FROM alerts ORDER BY raised_at, condition";
    select(connection, sql, [], |row| {
        let condition = Condition {
            name: row.get("condition")?,
            text: row.get("text")?,
            remedy: row.get("remedy")?,
            since: row.get("since")?,
        };
        Ok(Alert { condition, raised_at: row.get("raised_at")?, told: row.get("told")?, gone_at: row.get("gone_at")? })
    })
}

/// Writes what stands now in place of what stood before.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn keep(connection: &Connection, alerts: &[Alert]) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM alerts")?.execute([])?;
    for Alert { condition, raised_at, told, gone_at } in alerts {
        connection
            .prepare_cached(
                "INSERT INTO alerts (condition, text, remedy, since, raised_at, told, gone_at)
                 VALUES (:condition, :text, :remedy, :since, :raised_at, :told, :gone_at)",
            )?
            .execute(named_params! {
                ":condition": condition.name, ":text": condition.text, ":remedy": condition.remedy,
                ":since": condition.since, ":raised_at": raised_at, ":told": told, ":gone_at": gone_at,
            })?;
    }
    Ok(())
}
