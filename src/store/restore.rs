//! A backup becomes the database: first a copy of it that is checked, then that copy takes the place, and the former
//! database stays under another name.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use crate::store::backup::sync;
use crate::store::files::give_to_owner_of;
use crate::store::files::trouble;
use crate::store::open::{self, Binding};
use crate::store::partial::{self, Partial};
use crate::store::{StoreError, files, lock, migrations};

/// What lies beside a database that was not closed in order.
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Neither a server nor a command that writes is at work, and none begins, for as long as this lives.
#[derive(Debug)]
pub struct Stopped(#[expect(dead_code, reason = "holds the locks")] [File; 2]);

/// Makes sure that no server and no command writes to the database.
///
/// # Errors
/// [`StoreError::Unusable`] when one may.
pub fn require_stopped(database: &Path) -> Result<Stopped, StoreError> {
    Ok(Stopped([lock::of_server(database)?, lock::against_commands(database)?]))
}

/// A copy of a backup beside the database, of this build's schema, that nobody else knows of.
#[derive(Debug)]
pub struct Staged {
    file: Partial,
    connection: Connection,
}

/// Copies a backup to the place where it will be used, and brings the copy to this build's schema.
///
/// # Errors
/// [`StoreError::Unusable`] when it is no backup of ours, comes from a newer billingd, or is bound to others.
pub fn stage(backup: &Path, database: &Path, binding: &Binding) -> Result<Staged, StoreError> {
    if files::beside_path(backup, "-wal").metadata().is_ok_and(|wal| wal.len() > 0) {
        let problem = "has a -wal file beside it: a database in use; make a backup of it, and restore that";
        return Err(StoreError::unusable(backup, problem));
    }
    let folder = files::folder_of(database);
    partial::clear(database, folder);
    let file = Partial::begin(database, folder, mode_at(database))?;
    File::open(backup)
        .and_then(|mut from| std::io::copy(&mut from, &mut file.file()))
        .map_err(|error| trouble(backup, "cannot be copied", &error))?;
    let mut connection = open::alone(file.path()).map_err(|error| of_backup(error, backup))?;
    if migrations::version(&connection)? == 0 {
        return Err(StoreError::unusable(backup, "holds no books; name a file that `billingd backup` wrote"));
    }
    if !open::is_bound(&connection, backup, binding)? {
        return Err(StoreError::unusable(backup, "does not say whose books it holds; take another backup"));
    }
    migrations::migrate(&mut connection, backup)?;
    Ok(Staged { file, connection })
}

/// What is wrong with the copy is wrong with the backup.
fn of_backup(error: StoreError, backup: &Path) -> StoreError {
    match error {
        StoreError::Unusable { problem, .. } => StoreError::unusable(backup, problem),
        other => other,
    }
}

fn mode_at(database: &Path) -> u32 {
    database.metadata().map_or(0o640, |metadata| metadata.mode() & 0o666)
}

impl Staged {
    /// The copy, to be checked and noted in.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Puts the copy in place. What was there is `aside` then, with its side files; true if there was something.
    ///
    /// Whenever this is cut off, the database is either the former one, whole in its one file, or the copy. Only one
    /// that was damaged before may be without its log then; `aside` has it.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when another program has the database open, or the files cannot be moved.
    pub fn put_in_place(self, database: &Path, aside: &Path) -> Result<bool, StoreError> {
        let Self { file, connection } = self;
        drop(connection);
        let folder = files::folder_of(database);
        give_to_owner_of(database, file.path())?;
        sync(file.path())?;
        let was_there = database.exists();
        if was_there {
            fold(database)?;
            keep(database, aside)?;
            for suffix in SIDE_FILES {
                keep(&files::beside_path(database, suffix), &files::beside_path(aside, suffix))?;
            }
            sync(folder)?;
        }
        for suffix in SIDE_FILES {
            remove(&files::beside_path(database, suffix))?;
        }
        sync(folder)?;
        file.finish(database)?;
        sync(folder)?;
        Ok(was_there)
    }
}

/// What the log still holds must not hang on a file that is removed later. A damaged database stays as it is.
fn fold(database: &Path) -> Result<(), StoreError> {
    match open::fold(database) {
        Err(StoreError::Sql(error))
            if matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)) =>
        {
            tracing::warn!(%error, "the former database is damaged; it is kept as it is");
            Ok(())
        }
        Err(StoreError::Sql(error)) => {
            let problem =
                format!("cannot be closed ({error}); move it and its -wal file elsewhere, then restore again");
            Err(StoreError::unusable(database, problem))
        }
        folded => folded,
    }
}

/// A second name for a file, or a copy where the file system knows no second names. None is no trouble.
fn keep(file: &Path, aside: &Path) -> Result<(), StoreError> {
    if !file.exists() {
        return Ok(());
    }
    fs::hard_link(file, aside)
        .or_else(|_| fs::copy(file, aside).and_then(|_| File::open(aside)?.sync_all()))
        .map_err(|error| trouble(aside, "cannot be written, and nothing is restored without it", &error))
}

fn remove(file: &Path) -> Result<(), StoreError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(trouble(file, "cannot be removed", &error)),
        _ => Ok(()),
    }
}
