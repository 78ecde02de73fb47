//! The files of a database: what they are called, whose they are, and what they must not lie on.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// What the first step writes into the header of the file, so that it can be told from those of other programs.
pub(super) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"blld");

/// A file beside another one, with the same name and more.
pub(crate) fn beside_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whoever makes a file beside a database, often root: the service must be able to use it.
pub(super) fn give_to_owner_of(database: &Path, file: &Path) -> Result<(), StoreError> {
    let whose = if database.exists() { database } else { folder_of(database) };
    let owner = whose.metadata().map_err(|error| trouble(whose, "cannot be looked at", &error))?;
    let own = file.metadata().map_err(|error| trouble(file, "cannot be looked at", &error))?;
    if (owner.uid(), owner.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    chown(file, Some(owner.uid()), Some(owner.gid()))
        .map_err(|error| trouble(file, "cannot be given to its owner; run this as root, or as that user", &error))
}

pub(super) fn trouble(path: &Path, what: &str, error: &std::io::Error) -> StoreError {
    StoreError::unusable(path, format!("{what}: {error}"))
}

/// The folder that a file lies in.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// WAL needs shared memory between processes, and locks that network file systems only pretend to have.
pub(super) fn refuse_network_file_system(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    let stat = rustix::fs::statfs(folder)
        .map_err(|error| StoreError::unusable(folder, format!("the folder of the database cannot be read: {error}")))?;
    match network_file_system(stat.f_type) {
        None => Ok(()),
        Some(name) => Err(StoreError::unusable(
            path,
            format!("lies on a network file system ({name}), where SQLite corrupts databases; use a local disk"),
        )),
    }
}

/// Magic numbers from Linux's `statfs(2)`.
fn network_file_system(magic: impl Into<i64>) -> Option<&'static str> {
    match magic.into() {
        0x6969 => Some("nfs"),
        0x517b => Some("smb"),
        0xff53_4d42 => Some("cifs"),
        0xfe53_4d42 => Some("smb2"),
        0x0102_1997 => Some("9p"),
        0x00c3_6400 => Some("ceph"),
        0x5346_414f => Some("afs"),
        0x7461_636f => Some("ocfs2"),
        0x0116_1970 => Some("gfs2"),
        0x0bd0_0bd0 => Some("lustre"),
        _ => None,
    }
}

/// Whether a database could be made where there is none.
///
/// # Errors
/// [`StoreError::Unusable`] when there is no such folder, or this user may not write to it.
pub fn require_folder(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)
        .map_err(|error| StoreError::unusable(folder, format!("no database can be made in this folder: {error}")))
}
