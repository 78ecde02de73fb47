//! Where the books are written: short transactions, one after the other.
//!
//! Operations that write outside of the stream of deliveries take a [`Desk`] and do not ask whose it is: a command's
//! own connection beside the server, or, within the server, its writer thread, which owns the only one there.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::store::StoreError;
use crate::store::open::CommandConnection;

/// A place to write at.
pub trait Desk {
    /// Does the work in one transaction; an error takes all of it back.
    ///
    /// Keep it short, and wait for nothing in it: all other writers wait for its end.
    ///
    /// # Errors
    /// What the work returns, and [`StoreError`] when the transaction cannot begin or end.
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static;
}

impl Desk for Connection {
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        transact(self, work)
    }
}

impl Desk for CommandConnection {
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        transact(self, work)
    }
}

/// One transaction on a connection.
pub(super) fn transact<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}
