//! One self-contained file with everything that a database holds, written while others use it.
//!
//! `VACUUM INTO` and not SQLite's backup API: it reads one snapshot to its end, while the API begins anew whenever
//! another connection commits (174 MiB beside a writer of 250 commits a second: 0.7 s; in steps of 1,000 pages not done
//! after 15 s). It writes each page once, in order, without the free ones, and its copy needs no write-ahead log. The
//! writer never waits for it. What it costs: the write-ahead log cannot be reset meanwhile.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, named_params};

use crate::store::files::trouble;
use crate::store::partial::{self, Partial};
use crate::store::{StoreError, connect, files};

/// How many steps of SQLite's virtual machine pass between two looks at whether to stop.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// So much room must stay on the disk: a backup must not be what keeps the server from writing.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// The beginning of any database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Where its header has two bytes of 1 if it needs no write-ahead log, as a backup.
const VERSIONS: Range<usize> = 18..20;

/// Where its header tells whose it is.
const APPLICATION_ID: Range<usize> = 68..72;

/// Writes a copy of `database`, has it checked, and puts it at `target`, all of it or nothing.
///
/// # Errors
/// What `check` says of the copy; [`StoreError::Unusable`] when `target` is not a former backup, when there is no room,
/// or when it was stopped.
pub fn write<T>(
    database: &Path,
    target: &Path,
    is_stopped: impl Fn() -> bool + Clone + Send + 'static,
    check: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let source = connect::for_reading(database)?;
    refuse_to_overwrite(target)?;
    let copy = begin(database, files::folder_of(target))?;
    // What was stopped ends with an error of SQLite's, or is done just before it looks.
    let or_stopped = |error| if is_stopped() { cut_short(target) } else { error };
    interruptible(&source, is_stopped.clone())?;
    vacuum_into(&source, copy.path()).map_err(or_stopped)?;
    sync(copy.path())?;
    let alone = connect::for_reading(copy.path())?;
    interruptible(&alone, is_stopped.clone())?;
    let checked = check(&alone).map_err(or_stopped)?;
    drop(alone);
    if is_stopped() {
        return Err(cut_short(target));
    }
    copy.finish(target)?;
    sync(files::folder_of(target))?;
    Ok(checked)
}

/// A copy of `database` beside it that is gone when it is dropped.
///
/// # Errors
/// [`StoreError::Unusable`] when there is no room.
pub(super) fn copy(database: &Path) -> Result<Partial, StoreError> {
    let copy = begin(database, files::folder_of(database))?;
    vacuum_into(&connect::for_reading(database)?, copy.path())?;
    Ok(copy)
}

fn vacuum_into(source: &Connection, copy: &Path) -> Result<(), StoreError> {
    let copy = copy.to_str().ok_or_else(|| StoreError::unusable(copy, "is no UTF-8; give another name"))?;
    source.execute("VACUUM INTO :copy", named_params! { ":copy": copy })?;
    Ok(())
}

fn cut_short(target: &Path) -> StoreError {
    StoreError::unusable(target, "was not written: the backup was cut short")
}

/// Keeps a database as it is before its schema changes; returns where. One file for each schema: what an earlier,
/// broken-off migration left is replaced, since the database has only grown since.
///
/// # Errors
/// As [`write()`]; then nothing must be migrated.
pub fn before_migration(database: &Path, schema: i64) -> Result<PathBuf, StoreError> {
    let target = files::beside_path(database, &format!(".schema-{schema}.backup"));
    write(
        database,
        &target,
        || false,
        |copy| {
            let found: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
            if found == "ok" {
                return Ok(());
            }
            Err(StoreError::unusable(database, format!("is damaged, and is not migrated ({found}); restore a backup")))
        },
    )?;
    Ok(target)
}

/// Lets `is_stopped` end what runs on a connection.
fn interruptible(connection: &Connection, is_stopped: impl Fn() -> bool + Send + 'static) -> Result<(), StoreError> {
    Ok(connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(is_stopped))?)
}

/// A former backup may be replaced. Anything else may not, and no database that somebody uses.
fn refuse_to_overwrite(target: &Path) -> Result<(), StoreError> {
    let mut head = [0; APPLICATION_ID.end];
    match File::open(target).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) if head.starts_with(MAGIC) && head[VERSIONS] != [1, 1] => {
            Err(StoreError::unusable(target, "is a database in use, not a former backup; give another name"))
        }
        Ok(()) if head.starts_with(MAGIC) && head[APPLICATION_ID] != files::APPLICATION_ID.to_be_bytes() => {
            Err(StoreError::unusable(target, "is a database of something else; give another name"))
        }
        Ok(()) if head.starts_with(MAGIC) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(()) => Err(StoreError::unusable(target, "exists, and is no former backup; give another name")),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(StoreError::unusable(target, "exists, and is no former backup; give another name"))
        }
        Err(error) => Err(trouble(target, "cannot be looked at", &error)),
    }
}

/// An empty file that as many may read as the database. What killed ones have left behind makes room for it first.
fn begin(database: &Path, folder: &Path) -> Result<Partial, StoreError> {
    partial::clear(database, folder);
    require_room(database, folder)?;
    Partial::begin(database, folder, database.metadata().map_or(0o600, |metadata| metadata.mode() & 0o666))
}

/// The copy is at most as large as the database with its write-ahead log.
fn require_room(database: &Path, folder: &Path) -> Result<(), StoreError> {
    let stat = rustix::fs::statvfs(folder).map_err(|error| trouble(folder, "cannot be written to", &error.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    let needed = size(database) + size(&files::beside_path(database, "-wal")) + ROOM_BYTES_MIN;
    if free < needed {
        let problem = format!("has {} MiB left, the backup needs up to {}; make room", free >> 20, needed >> 20);
        return Err(StoreError::unusable(folder, problem));
    }
    Ok(())
}

/// Has the disk hold what was written to a file, or which files a folder holds.
pub(super) fn sync(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|error| trouble(path, "cannot be flushed to disk", &error))
}
