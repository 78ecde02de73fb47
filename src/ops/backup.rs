//! Backups: a copy of the books that was proven to be whole before it got its name.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::Connection;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::event::UnixSeconds;
use crate::ops::verify::{self, Report};
use crate::stop::Stop;
use crate::store::{Desk, StoreError, backup, events, meta};

/// A backup that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackedUp {
    /// Where.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// How many events it holds.
    pub events: i64,
    /// The number of its last audit row.
    pub audit_rows: i64,
    /// The hash of its last audit row, in hex.
    pub audit_head: String,
}

/// Writes the books into one file, beside a running server or without one.
///
/// # Errors
/// [`StoreError`], also when the copy does not prove whole; `target` is as it was then.
pub fn backup(database: &Path, target: &Path, stop: &Stop) -> Result<BackedUp, StoreError> {
    let asked = stop.clone();
    let (report, events) = backup::write(
        database,
        target,
        move || asked.is_set(),
        |copy| {
            let report = verify::verify(copy)?;
            require_whole(&report, database, "see `billingd verify`")?;
            Ok((report, events::count(copy)?))
        },
    )?;
    let bytes = target.metadata().map_or(0, |metadata| metadata.len());
    let Report { audit_rows, audit_head, .. } = report;
    Ok(BackedUp { path: target.to_owned(), bytes, events, audit_rows, audit_head })
}

/// A backup that somebody wrote by a command, wherever it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// When.
    pub at: UnixSeconds,
    /// Where to.
    pub path: String,
}

const LAST_BACKUP: &str = "last_backup";

/// Lets the database remember that a backup of it was written and proven: nobody can look for it on all disks.
///
/// # Errors
/// [`StoreError`].
pub fn remember(desk: &mut impl Desk, path: &Path, now: UnixMillis) -> Result<(), StoreError> {
    let value = format!("{} {}", now / 1000, path.display());
    desk.write(move |transaction| meta::set(transaction, LAST_BACKUP, &value))
}

/// The last backup that a command has written; none of those by schedule.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn remembered(connection: &Connection) -> Result<Option<Remembered>, StoreError> {
    Ok(meta::get(connection, LAST_BACKUP)?.and_then(|held| {
        let (at, path) = held.split_once(' ')?;
        Some(Remembered { at: at.parse().ok()?, path: path.to_owned() })
    }))
}

/// Violated books are neither worth to push out a good backup nor to be restored.
pub(super) fn require_whole(report: &Report, path: &Path, advice: &str) -> Result<(), StoreError> {
    if report.clean {
        return Ok(());
    }
    let problem = match report.proofs.iter().flat_map(|proof| &proof.violations).next() {
        Some(violation) => format!("the books are violated, and nothing is written ({violation}); {advice}"),
        None => "the proof of the books was cut short, and nothing is written; try again".into(),
    };
    Err(StoreError::unusable(path, problem))
}

/// Where backups by schedule or signal go, and how many of them stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shelf {
    /// The folder; it is made if need be.
    pub folder: PathBuf,
    /// How many backups of this database stay in it.
    pub keep: usize,
}

/// Writes a backup named by its time, then removes the oldest of those that are too many.
///
/// # Errors
/// As [`backup()`], and when the folder cannot be used.
pub fn shelve(database: &Path, shelf: &Shelf, now: UnixMillis, stop: &Stop) -> Result<BackedUp, StoreError> {
    let trouble = |error: std::io::Error| StoreError::Unusable {
        path: shelf.folder.clone(),
        problem: format!("the folder of backups cannot be used: {error}"),
    };
    fs::DirBuilder::new().recursive(true).mode(0o750).create(&shelf.folder).map_err(trouble)?;
    let base = database.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let target = shelf.folder.join(format!("{base}-{}{SUFFIX}", stamp(now)));
    let backed_up = backup(database, &target, stop)?;
    let mut held = ours(&shelf.folder, &base).map_err(trouble)?;
    held.sort();
    for old in held.iter().take(held.len().saturating_sub(shelf.keep)) {
        fs::remove_file(old).map_err(trouble)?;
    }
    Ok(backed_up)
}

const SUFFIX: &str = ".backup";

/// A time as it stands in names of files, in UTC: `20261130-040000`.
pub(super) fn stamp(now: UnixMillis) -> String {
    Timestamp::from_millisecond(now).map_or_else(|_| now.to_string(), |time| time.strftime("%Y%m%d-%H%M%S").to_string())
}

/// The files of a folder that are backups of this database.
fn ours(folder: &Path, base: &str) -> std::io::Result<Vec<PathBuf>> {
    let is_stamp = |text: &str| {
        text.len() == 15
            && text.bytes().enumerate().all(|(at, byte)| if at == 8 { byte == b'-' } else { byte.is_ascii_digit() })
    };
    let is_ours = |name: &str| {
        let rest = name.strip_suffix(SUFFIX).and_then(|name| name.strip_prefix(base)?.strip_prefix('-'));
        rest.is_some_and(is_stamp)
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_ours) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
