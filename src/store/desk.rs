//! Where the books are written: short transactions, one after the other.
//!
//! Operations that write outside of the stream of deliveries take a [`Desk`] and do not ask whose it is: a command's
//! own connection beside the server, or, within the server, its writer thread, which owns the only one there.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::store::StoreError;
use crate::store::open::CommandConnection;

/// Beside a running server, who asks again at once has the lock most of the time: so a connection rests after each
/// transaction, for so many times as long as that one held the lock.
const REST: u32 = 2;

/// It never rests longer. Others ask for the lock much more often than that.
const REST_MAX: Duration = Duration::from_millis(50);

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
        in_turn(self, work)
    }
}

/// One transaction of a command, and a rest after it, in which others have their turn.
///
/// # Errors
/// Those of the work, which take all of it back, and those of a transaction that cannot begin or end.
pub fn in_turn<T, E: From<StoreError>>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(StoreError::from)?;
    let began = Instant::now();
    let done = work(&transaction)?;
    transaction.commit().map_err(StoreError::from)?;
    std::thread::sleep((began.elapsed() * REST).min(REST_MAX));
    Ok(done)
}

impl Desk for CommandConnection {
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        in_turn(self, work)
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
