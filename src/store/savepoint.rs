//! The part of a transaction that one event can take back without taking back its neighbours.

use rusqlite::Connection;

use crate::store::StoreError;

/// Begins the part.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn begin(connection: &Connection) -> Result<(), StoreError> {
    connection.prepare_cached("SAVEPOINT event")?.execute([])?;
    Ok(())
}

/// Makes the part one with its transaction.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn keep(connection: &Connection) -> Result<(), StoreError> {
    connection.prepare_cached("RELEASE event")?.execute([])?;
    Ok(())
}

/// Takes the part back, and ends it.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn take_back(connection: &Connection) -> Result<(), StoreError> {
    connection.prepare_cached("ROLLBACK TO event")?.execute([])?;
    keep(connection)
}

/// Takes back the whole transaction, and begins it again.
///
/// # Errors
/// [`StoreError::Sql`], also when another connection writes for too long in between.
pub fn begin_anew(connection: &Connection) -> Result<(), StoreError> {
    Ok(connection.execute_batch("ROLLBACK; BEGIN IMMEDIATE")?)
}
