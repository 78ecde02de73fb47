//! Files in the making: a backup, a rehearsal, a restore. Each is gone when it is dropped, unless it got its name.
//!
//! Who is killed drops nothing. So an empty file beside each says by its lock that somebody is at work, and what
//! nobody works at is cleared away by the next one. The lock is not on the copy: over NFS it would be in SQLite's way.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::store::StoreError;
use crate::store::files::trouble;

const CLAIM: &str = ".partial";
const COPY: &str = "-copy";

/// A file that is not finished yet, empty at first.
#[derive(Debug)]
pub(crate) struct Partial {
    // Dropped in this order: without its claim a copy would stay behind for good.
    copy: NamedTempFile,
    _claim: NamedTempFile,
}

impl Partial {
    /// Begins one, of a database, in a folder.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when the folder cannot be written to.
    pub(super) fn begin(database: &Path, folder: &Path, mode: u32) -> Result<Self, StoreError> {
        let failed = |error| trouble(folder, "cannot be written to", &error);
        let claim = claim(&prefix(database), folder).map_err(failed)?;
        let name = claim.path().file_name().unwrap_or_default().to_string_lossy().into_owned() + COPY;
        let copy = tempfile::Builder::new()
            .prefix(&name)
            .rand_bytes(0)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder)
            .map_err(failed)?;
        Ok(Self { copy, _claim: claim })
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        self.copy.as_file()
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.copy.path()
    }

    /// Gives it its name, in the same folder; whatever had it before is replaced.
    ///
    /// # Errors
    /// [`StoreError::Unusable`].
    pub(super) fn finish(self, target: &Path) -> Result<(), StoreError> {
        self.copy.persist(target).map_err(|error| trouble(target, "cannot be written", &error.error))?;
        Ok(())
    }
}

fn prefix(database: &Path) -> String {
    format!(".{}.", database.file_name().unwrap_or_default().to_string_lossy())
}

/// Until it is locked, somebody else may take it for a left-over.
fn claim(prefix: &str, folder: &Path) -> io::Result<NamedTempFile> {
    loop {
        let claim = tempfile::Builder::new()
            .prefix(prefix)
            .suffix(CLAIM)
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder)?;
        // Where nothing can be locked, nothing is ever cleared away.
        let is_lost = matches!(claim.as_file().try_lock(), Err(fs::TryLockError::WouldBlock));
        if !is_lost && claim.path().exists() {
            return Ok(claim);
        }
    }
}

/// Removes what was left behind in a folder in the making of a copy of this database.
pub(super) fn clear(database: &Path, folder: &Path) {
    if let Err(error) = try_clear(&prefix(database), folder) {
        tracing::warn!(%error, folder = %folder.display(), "what killed backups have left behind stays");
    }
}

fn try_clear(prefix: &str, folder: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| name.starts_with(prefix)));
    }
    for claim in names.iter().filter(|name| name.ends_with(CLAIM)) {
        let Ok(lock) = File::open(folder.join(claim)) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        // The copy and what SQLite keeps beside it; the claim is the last to go.
        for name in names.iter().filter(|name| *name != claim && name.starts_with(&format!("{claim}{COPY}"))) {
            fs::remove_file(folder.join(name))?;
        }
        fs::remove_file(folder.join(claim))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_nobody_works_at_any_more_is_cleared_away_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let database = Path::new("/elsewhere/books.db");
        let begin = || Partial::begin(database, folder.path(), 0o640).unwrap();
        let at_work = begin();
        let killed = begin();
        let left = killed.path().to_owned();
        std::mem::forget(killed.copy);
        let (lock, claim) = killed._claim.keep().unwrap();
        drop(lock);
        fs::write(format!("{}-journal", left.display()), "of the killed one").unwrap();
        fs::write(folder.path().join(".other.db.abc.partial"), "of another database").unwrap();
        fs::write(folder.path().join(".books.db.notes"), "of a person").unwrap();
        clear(database, folder.path());
        let next = begin();
        assert!(!claim.exists() && !left.exists());
        assert!(at_work.path().exists() && next.path().exists());
        assert_eq!(names(folder.path()).len(), 2 + 2 + 2, "two at work, and what is not ours");
        at_work.finish(&folder.path().join("books.backup")).unwrap();
        drop(next);
        assert_eq!(names(folder.path()), [".books.db.notes", ".other.db.abc.partial", "books.backup"]);
    }
}
