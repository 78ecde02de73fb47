//! The facts that a database keeps about itself, by name.

use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::store::StoreError;

/// One of the facts that a database keeps about itself.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn get(connection: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT value FROM meta WHERE key = :key")?
        .query_row(named_params! { ":key": key }, |row| row.get("value"))
        .optional()?)
}

/// Removes one of the facts that a database keeps about itself, if it is there.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn remove(connection: &Connection, key: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM meta WHERE key = :key")?.execute(named_params! { ":key": key })?;
    Ok(())
}

/// Writes one of the facts that a database keeps about itself.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn set(connection: &Connection, key: &str, value: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO meta (key, value) VALUES (:key, :value)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute(named_params! { ":key": key, ":value": value })?;
    Ok(())
}
