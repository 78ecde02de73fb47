//! What a person is called for: the conditions that stand, and how deliveries were answered.

use rusqlite::{Connection, named_params};

use crate::domain::alert::Answers;
use crate::domain::event::UnixSeconds;
use crate::store::StoreError;

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
