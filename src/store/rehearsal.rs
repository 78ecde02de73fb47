//! A copy of the books to try something out on that takes long: nobody waits for it, and nothing of it stays.

use std::path::Path;

use rusqlite::Connection;

use crate::store::partial::Partial;
use crate::store::{StoreError, backup, open};

/// The copy; it is gone when this is dropped.
#[derive(Debug)]
pub struct Rehearsal {
    connection: Connection,
    _copy: Partial,
}

impl Rehearsal {
    /// Copies a database, beside it, as one that can be written to.
    ///
    /// # Errors
    /// [`StoreError`], also when there is no room.
    pub fn begin(database: &Path) -> Result<Self, StoreError> {
        let copy = backup::copy(database)?;
        let connection = open::for_rehearsal(copy.path())?;
        Ok(Self { connection, _copy: copy })
    }

    /// The books of the rehearsal.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
