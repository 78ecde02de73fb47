//! Who is at work on a database. Files beside it are locked and nothing in it, so that SQLite's own locks stay free.
//!
//! A server holds `.lock` alone. Commands that write hold `.commands.lock` together. A restore holds both alone: what
//! takes the place of the database must not take away what somebody has just been told is stored.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::store::{StoreError, files};

/// The lock of the one server.
pub(super) fn of_server(database: &Path) -> Result<File, StoreError> {
    let (path, file) = lock_file(database, ".lock")?;
    held(file.try_lock(), &path, || {
        StoreError::unusable(database, "another billingd serves this database; stop it first")
    })?;
    Ok(file)
}

/// The share of a command in the lock of all commands.
pub(super) fn of_command(database: &Path) -> Result<File, StoreError> {
    let (path, file) = lock_file(database, ".commands.lock")?;
    held(file.try_lock_shared(), &path, || {
        StoreError::unusable(database, "is being restored; run this again when that is done")
    })?;
    Ok(file)
}

/// The lock that no command can share.
pub(super) fn against_commands(database: &Path) -> Result<File, StoreError> {
    let (path, file) = lock_file(database, ".commands.lock")?;
    held(file.try_lock(), &path, || {
        StoreError::unusable(database, "another command of billingd writes to it; wait for its end, or stop it first")
    })?;
    Ok(file)
}

/// Whether a server runs on this database now.
///
/// # Errors
/// [`StoreError::Unusable`] when its lock cannot be looked at.
pub fn is_served(database: &Path) -> Result<bool, StoreError> {
    let path = files::beside_path(database, ".lock");
    match File::open(&path).map(|lock| lock.try_lock_shared()) {
        Ok(Ok(())) => Ok(false),
        Ok(Err(TryLockError::WouldBlock)) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Ok(Err(TryLockError::Error(error))) | Err(error) => {
            Err(StoreError::unusable(&path, format!("cannot be looked at: {error}")))
        }
    }
}

/// Opens a lock, which need not be written to; makes it if need be, for whoever owns the database.
fn lock_file(database: &Path, suffix: &str) -> Result<(PathBuf, File), StoreError> {
    let path = files::beside_path(database, suffix);
    let trouble = |error| StoreError::unusable(&path, format!("cannot be opened: {error}"));
    match OpenOptions::new().create_new(true).write(true).mode(0o640).open(&path) {
        Ok(file) => {
            files::give_to_owner_of(database, &path)?;
            Ok((path, file))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let file = File::open(&path).map_err(trouble)?;
            Ok((path, file))
        }
        Err(error) => Err(trouble(error)),
    }
}

fn held(tried: Result<(), TryLockError>, path: &Path, refusal: impl FnOnce() -> StoreError) -> Result<(), StoreError> {
    match tried {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(refusal()),
        Err(TryLockError::Error(error)) => Err(StoreError::unusable(path, format!("cannot be locked: {error}"))),
    }
}
