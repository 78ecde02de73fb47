//! A backup takes the place of the database. Nothing is lost by it: what was there is kept under another name.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::ops::apply::to_json;
use crate::ops::backup::{require_whole, stamp};
use crate::ops::verify::{self, Report};
use crate::store::audit::{self, Record};
use crate::store::open::Binding;
use crate::store::{StoreError, events, restore};

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The database.
    pub database: PathBuf,
    /// The backup, which stays.
    pub from: PathBuf,
    /// The former database, if there was one.
    pub kept: Option<PathBuf>,
    /// How many events it holds.
    pub events: i64,
    /// The number of its last audit row, which tells of the restore.
    pub audit_rows: i64,
    /// The hash of its last audit row, in hex.
    pub audit_head: String,
}

#[derive(Serialize)]
struct Detail<'a> {
    from: &'a Path,
    audit_rows: i64,
    audit_head: &'a str,
}

/// Restores a backup while nobody else has the database open. All proofs are made on the very file that becomes the database, before it
/// does; the audit log tells who restored what.
///
/// # Errors
/// [`StoreError::Unusable`] when somebody has it open, or the backup is not whole, not ours, or of a newer schema. The
/// database is as it was then.
pub fn restore(
    backup: &Path,
    database: &Path,
    binding: &Binding,
    actor: &str,
    now: UnixMillis,
) -> Result<Restored, StoreError> {
    let _stopped = restore::require_stopped(database)?;
    let mut staged = restore::stage(backup, database, binding)?;
    let connection = staged.connection();
    note(connection, backup, actor, now)?;
    let report = verify::verify(connection)?;
    require_whole(&report, backup, "take another backup")?;
    let Report { audit_rows, audit_head, .. } = report;
    let events = events::count(connection)?;
    let aside = aside(database, now);
    let kept = staged.put_in_place(database, &aside)?.then_some(aside);
    Ok(Restored { database: database.to_owned(), from: backup.to_owned(), kept, events, audit_rows, audit_head })
}

fn note(connection: &mut Connection, backup: &Path, actor: &str, now: UnixMillis) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let head = audit::head(&transaction)?;
    let audit_head = base16ct::lower::encode_string(&head.hash);
    let detail = to_json(&Detail { from: backup, audit_rows: head.seq, audit_head: &audit_head })?;
    let record =
        Record { at: now / 1000, actor, action: "restore", subject: "database", event_id: None, detail: &detail };
    audit::append(&transaction, head, &record)?;
    transaction.commit()?;
    Ok(())
}

fn aside(database: &Path, now: UnixMillis) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(format!(".before-restore-{}", stamp(now)));
    PathBuf::from(name)
}
