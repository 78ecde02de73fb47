//! The room that a database takes, and has.

use std::io;
use std::path::Path;

use crate::domain::alert::{Room, Wal};
use crate::store::connect;
use crate::store::files::beside_path;
use crate::store::files::folder_of;

/// How many bytes this user may still write on the disk of a folder.
///
/// # Errors
/// When the system does not tell.
pub fn free(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The room on the disk of a database.
///
/// # Errors
/// When there is no such file, or the system does not tell.
pub fn room(database: &Path) -> io::Result<Room> {
    Ok(Room { free: free(folder_of(database))?, database: database.metadata()?.len() })
}

/// The size of the write-ahead log; 0 if there is none.
#[must_use]
pub fn wal(database: &Path) -> Wal {
    let bytes = beside_path(database, "-wal").metadata().map_or(0, |metadata| metadata.len());
    Wal { bytes, bytes_max: connect::WAL_BYTES_MAX }
}
