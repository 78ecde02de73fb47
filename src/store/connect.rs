//! How a connection is opened, with the pragmas that the promises rest on. Nothing else opens one but the pool of readers
//! (`reader.rs`), with what stands here.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::store::StoreError;

/// How often a connection asks for the write lock of another one before it gives up, which takes a little over 5 s.
///
/// SQLite's own timeout asks ever less often, down to ten times a second. A busy server is without the lock for
/// fractions of a millisecond only, and a command that asks so rarely may miss all of them.
const BUSY_TRIES: i32 = 5_000;

/// How long it rests between two such questions.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// The write-ahead log is cut back to this size once no reader needs more of it, in bytes.
pub(super) const WAL_BYTES_MAX: u64 = 64 << 20;

/// Older SQLite has a race between WAL reset and checkpoint that can corrupt a database.
pub const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// How a connection that only reads is opened.
pub(crate) const READING: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a connection that can do nothing but look.
pub(crate) fn for_reading(path: &Path) -> Result<Connection, StoreError> {
    require_exists(path)?;
    open(path, READING)
}

/// What every connection that only reads needs.
pub(crate) fn prepare_for_reading(connection: &Connection) -> rusqlite::Result<()> {
    wait_for_locks(connection)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;")?;
    connection.pragma_update(None, "cache_size", -2_048)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

pub(super) fn require_exists(path: &Path) -> Result<(), StoreError> {
    if path.exists() {
        return Ok(());
    }
    // Relative to which folder is what one wants to know.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Err(StoreError::unusable(path, "there is no such database; start `billingd serve` once to create it"))
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that opens")]
pub(super) fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| StoreError::unusable(path, format!("cannot be opened: {error}")))?;
    wait_for_locks(&connection)?;
    Ok(connection)
}

/// Lets a connection wait for the lock of another one.
fn wait_for_locks(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(|tries| {
        std::thread::sleep(BUSY_PAUSE);
        tries < BUSY_TRIES
    }))
}

pub(super) fn prepare_for_writing(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::unusable(path, format!("refuses write-ahead logging (journal mode {mode})")));
    }
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA recursive_triggers = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = 1000;",
    )?;
    // Small, since a commit may look through all of it, and the system's own cache is behind it.
    connection.pragma_update(None, "cache_size", -8_192)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX.cast_signed())?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

pub(super) fn require_sqlite_version(path: &Path) -> Result<(), StoreError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(StoreError::unusable(
            path,
            format!(
                "is not opened by SQLite {}, which can corrupt it; build with 3.51.3 or newer",
                rusqlite::version()
            ),
        ));
    }
    Ok(())
}

/// A number that changes when another connection than this one has committed.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}
