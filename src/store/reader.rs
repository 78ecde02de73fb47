//! Connections that cannot write. A pool of them serves the look-ups of the webhook path and the reading commands.
//!
//! Every read of the service ends within [`READ_TIMEOUT`]: one that goes on keeps the write-ahead log from being
//! reset.

use std::path::Path;
use std::time::{Duration, Instant};

use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::Connection;

use crate::store::{StoreError, connect, migrations};

/// The longest that one read may take.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// How many steps of SQLite's virtual machine pass between two looks at the time.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// A pool of read-only connections. Cloning shares the pool.
#[derive(Debug, Clone)]
pub struct Reader {
    pool: r2d2::Pool<SqliteConnectionManager>,
    timeout: Duration,
    /// How many rows one look of a walk sees at most.
    rows_max: i64,
}

impl Reader {
    /// Opens up to `connections` connections to a database that a server or an earlier command has migrated.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when there is no such database, or its schema is another one.
    pub fn open(path: &Path, connections: u32) -> Result<Self, StoreError> {
        migrations::require_newest(&connect::for_reading(path)?, path)?;
        let manager = SqliteConnectionManager::file(path)
            .with_flags(connect::READING)
            .with_init(|connection| connect::prepare_for_reading(connection));
        let pool = r2d2::Pool::builder()
            .max_size(connections)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .connection_timeout(READ_TIMEOUT)
            .build(manager)?;
        Ok(Self { pool, timeout: READ_TIMEOUT, rows_max: i64::MAX })
    }

    /// The same connections, whose reads end sooner than after [`READ_TIMEOUT`].
    #[must_use]
    pub fn ending_within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(READ_TIMEOUT);
        self
    }

    /// The same connections, whose walks through the books see at most so many rows in each look, at least one.
    #[must_use]
    pub fn seeing_at_most(mut self, rows: i64) -> Self {
        self.rows_max = rows.max(1);
        self
    }

    pub(super) fn rows_in_a_look(&self, usual: i64) -> i64 {
        usual.min(self.rows_max)
    }

    /// Runs one read.
    ///
    /// # Errors
    /// Those of `read`, or [`StoreError::Sql`] (interrupted) after [`READ_TIMEOUT`].
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let connection = self.pool.get()?;
        let deadline = Instant::now() + self.timeout;
        connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() > deadline))?;
        read(&connection)
    }

    /// Runs a read of all the books, which takes as long as it takes. Only for a person who waits for it.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read_at_leisure<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let connection = self.pool.get()?;
        connection.progress_handler(0, None::<fn() -> bool>)?;
        read(&connection)
    }
}
