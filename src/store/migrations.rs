//! The schema, as an append-only list of steps. The position of a step plus one is the `user_version` that it makes;
//! a step that was released is never edited.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

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
        let version = require_ours(&transaction, path)?;
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
    let version = require_ours(connection, path)?;
    if version < newest() {
        return Err(StoreError::unusable(
            path,
            format!("has schema {version}, this billingd needs {}; start `billingd serve` once to migrate", newest()),
        ));
    }
    Ok(())
}

/// Refuses a database that is not ours, or that a newer billingd made; returns its schema. Only reads, so that it can
/// come before whatever changes the file.
///
/// # Errors
/// [`StoreError::Unusable`], also for a file that is no database at all.
pub fn require_ours(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let version = version(connection).map_err(|error| match error {
        StoreError::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            StoreError::unusable(path, "is no SQLite database; give [database] path another name")
        }
        other => other,
    })?;
    refuse_foreign(connection, version, path)?;
    if version > newest() {
        return Err(StoreError::unusable(
            path,
            format!("has schema {version}, made by a newer billingd (this one knows {}); upgrade billingd", newest()),
        ));
    }
    Ok(version)
}

/// Whether a step has written this statement, to the letter.
pub(crate) fn has_written(sql: &str) -> bool {
    STEPS.iter().any(|step| step.contains(sql))
}

/// Other programs number their schemas, too. Tools, such as Litestream, may have put tables of their own (`_…`) into
/// the file first.
fn refuse_foreign(connection: &Connection, version: i64, path: &Path) -> Result<(), StoreError> {
    let (tables, ours): (i64, i64) = connection.query_row(
        r"SELECT count(*) AS tables, count(*) FILTER (WHERE name IN ('meta', 'events')) AS ours FROM sqlite_schema
          WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE '\_%' ESCAPE '\'",
        [],
        |row| Ok((row.get("tables")?, row.get("ours")?)),
    )?;
    let is_foreign = if version == 0 { tables > 0 } else { ours < 2 };
    if is_foreign {
        return Err(StoreError::unusable(path, "is a database of something else; give [database] path another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::store::open::{self, Binding};

    /// A check with IN and more than two values does, which once was a third of what an event cost.
    #[test]
    fn no_insert_builds_a_table_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let binding = Binding { livemode: false, connected_account: None };
        let server = open::server(&folder.path().join("books.db"), &binding).unwrap();
        let texts = |sql: &str, column: &str| -> Vec<String> {
            let mut statement = server.connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get(column)).unwrap();
            rows.collect::<Result<_, _>>().unwrap()
        };
        for table in texts("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'", "name") {
            let steps = texts(&format!("EXPLAIN INSERT INTO {table} DEFAULT VALUES"), "opcode");
            assert!(!steps.iter().any(|step| step == "OpenEphemeral"), "{table}");
        }
    }
}
