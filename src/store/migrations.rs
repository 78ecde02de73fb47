//! The schema, as an append-only list of steps. The position of a step plus one is the `user_version` that it makes;
//! a step that was released is never edited.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::store::StoreError;

const STEPS: &[&str] = &[include_str!("../../migrations/0001_books.sql")];

/// The schema that this build writes.
#[must_use]
pub fn newest() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// The schema of a database; 0 for an empty file.
///
/// # Errors
/// [`StoreError::Sql`] if the file is no database.
pub fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Brings a database to [`newest`], each step in a transaction of its own; returns whether anything was done.
///
/// # Errors
/// [`StoreError::Unusable`] for a database of a newer billingd, or one that is not ours.
pub fn migrate(connection: &mut Connection, path: &Path) -> Result<bool, StoreError> {
    let mut migrated = false;
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version = version(&transaction)?;
        refuse_newer(version, path)?;
        if version == 0 {
            refuse_foreign(&transaction, path)?;
        }
        let Some(step) = usize::try_from(version).ok().and_then(|index| STEPS.get(index)) else {
            return Ok(migrated);
        };
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", version + 1)?;
        transaction.commit()?;
        migrated = true;
    }
}

/// Refuses a database that this build cannot read or write as it stands.
///
/// # Errors
/// [`StoreError::Unusable`] for any other schema than [`newest`].
pub fn require_newest(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let version = version(connection)?;
    refuse_newer(version, path)?;
    if version < newest() {
        return Err(StoreError::unusable(
            path,
            format!("has schema {version}, this billingd needs {}; start `billingd serve` once to migrate", newest()),
        ));
    }
    Ok(())
}

fn refuse_newer(version: i64, path: &Path) -> Result<(), StoreError> {
    if version > newest() {
        return Err(StoreError::unusable(
            path,
            format!("has schema {version}, made by a newer billingd (this one knows {}); upgrade billingd", newest()),
        ));
    }
    Ok(())
}

/// Other tools, such as Litestream, may have put tables of their own (`_…`) into the file first.
fn refuse_foreign(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let tables: i64 = connection.query_row(
        r"SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE '\_%' ESCAPE '\'",
        [],
        |row| row.get(0),
    )?;
    if tables > 0 {
        return Err(StoreError::unusable(path, "is a database of something else; give [database] path another name"));
    }
    Ok(())
}
