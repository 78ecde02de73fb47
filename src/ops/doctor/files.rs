//! The machine that the books are on: the files, the disk, the clock, the server.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::Check;
use crate::clock::UnixMillis;
use crate::domain::alert;
use crate::domain::words::age;
use crate::ops::backup::Remembered;
use crate::store::{disk, lock};

/// 2026-01-01: billingd is younger than any clock that says less.
const CLOCK_MIN_S: i64 = 1_767_225_600;

/// The age of the newest backup from which on there should be another one, in seconds.
const BACKUP_AGE_MAX_S: i64 = 2 * 86_400;

/// Where backups are.
#[derive(Debug, Clone)]
pub struct Backups {
    /// The folder of those by schedule.
    pub folder: PathBuf,
    /// The last one that a command wrote, if the database knows of one.
    pub by_command: Option<Remembered>,
}

/// What was looked at without opening the database.
#[must_use]
pub fn checks(database: &Path, backups: &Backups, livemode: bool, now: UnixMillis) -> Vec<Check> {
    let metadata = match fs::metadata(database) {
        Ok(metadata) => metadata,
        Err(error) => {
            return vec![Check::problem(
                "database",
                format!("{}: {error}", database.display()),
                "there are no books yet, or this user may not see them",
                "start `billingd serve` once, look at [database] path, or run this as the service's user",
            )];
        }
    };
    vec![
        clock(now),
        permissions(database, &metadata),
        disk(database),
        backup(database, backups, livemode, now),
        server(database),
    ]
}

fn clock(now: UnixMillis) -> Check {
    if now / 1000 >= CLOCK_MIN_S {
        return Check::ok("clock", "plausible; without an answer of Stripe's nobody can tell more");
    }
    Check::problem(
        "clock",
        "this machine lives in the past",
        "signatures are refused that are more than `tolerance` off",
        "let the machine keep the time: `timedatectl set-ntp true`",
    )
}

fn permissions(database: &Path, metadata: &Metadata) -> Check {
    const WHY: &str = "the database holds what your customers' events say";
    let (mode, owner) = (metadata.mode() & 0o777, metadata.uid());
    let shown = format!("mode {mode:o}, owner {owner}");
    let path = database.display();
    if mode & 0o027 != 0 {
        return Check::problem(
            "permissions",
            shown,
            WHY,
            format!("only its owner may write and its group read: `chmod 640 {path}`"),
        );
    }
    let user = rustix::process::geteuid().as_raw();
    if user != owner && user != 0 {
        return Check::note("permissions", format!("{shown}; you are user {user}, and may only look"));
    }
    Check::ok("permissions", shown)
}

fn disk(database: &Path) -> Check {
    let room = match disk::room(database) {
        Ok(room) => room,
        Err(error) => return Check::note("disk", format!("it cannot be asked for its room: {error}")),
    };
    match alert::disk(room) {
        None => Check::ok("disk", format!("{} MiB free", room.free >> 20)),
        Some(short) => Check::problem(
            "disk",
            short.text,
            "a backup or a migration needs the size of the database once more; on a full disk deliveries are answered \
             503",
            short.remedy,
        ),
    }
}

/// The newest file of the folder of backups, or what a command wrote since.
fn backup(database: &Path, backups: &Backups, livemode: bool, now: UnixMillis) -> Check {
    const WHY: &str = "what the disk loses is lost: Stripe keeps events for 30 days only";
    let (folder, fix) = (&backups.folder, "write one with `billingd backup FILE`, and set [jobs] backup");
    let shelved = match newest_backup(database, folder) {
        Ok(at) => at,
        Err(error) => return Check::note("backup", format!("{} cannot be looked at: {error}", folder.display())),
    };
    let aged = |at| age(now / 1000 - at);
    let (at, seen) = match (&backups.by_command, shelved) {
        (Some(Remembered { at, path }), shelved) if shelved.is_none_or(|shelved| shelved < *at) => {
            (*at, format!("the newest was written to {path}, {} ago", aged(*at)))
        }
        (_, Some(at)) => (at, format!("the newest in {} is {} old", folder.display(), aged(at))),
        (_, None) => {
            let seen = format!("there is none in {}", folder.display());
            return if livemode { Check::problem("backup", seen, WHY, fix) } else { Check::note("backup", seen) };
        }
    };
    if now / 1000 - at > BACKUP_AGE_MAX_S {
        Check::problem("backup", seen, WHY, fix)
    } else {
        Check::ok("backup", seen)
    }
}

/// When the newest backup of this database was written, in Unix seconds.
///
/// # Errors
/// When the folder cannot be looked at; one that is not there has none.
pub fn newest_backup(database: &Path, folder: &Path) -> io::Result<Option<i64>> {
    let stem = database.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut newest = None;
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let is_ours =
            entry.file_name().to_str().is_some_and(|name| name.starts_with(&stem) && name.ends_with(".backup"));
        if is_ours {
            let written = entry.metadata()?.modified()?;
            let at = written
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
            newest = newest.max(Some(at));
        }
    }
    Ok(newest)
}

fn server(database: &Path) -> Check {
    match lock::is_served(database) {
        Ok(true) => Check::ok("server", "it runs"),
        Ok(false) => Check::problem(
            "server",
            "no billingd serves this database",
            "nothing receives what Stripe sends; it tries again for three days",
            "`systemctl start billingd`, or `billingd serve`",
        ),
        Err(error) => Check::note("server", error.to_string()),
    }
}
