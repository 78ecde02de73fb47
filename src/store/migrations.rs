//! The schema, as an append-only list of steps. The position of a step plus one is the `user_version` that it makes;
//! a step that was released is never edited.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::store::{StoreError, backup, files};

const STEPS: &[&str] = &[
    include_str!("../../migrations/0001_books.sql"),
    include_str!("../../migrations/0002_alerts.sql"),
    include_str!("../../migrations/0003_newest.sql"),
    include_str!("../../migrations/0004_told_at.sql"),
    include_str!("../../migrations/0005_references.sql"),
];

/// The schema that this build writes.
#[must_use]
pub fn newest() -> i64 {
    count(STEPS)
}

fn count(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}

/// The schema of a database; 0 for an empty file.
///
/// # Errors
/// [`StoreError::Sql`] if the file is no database.
pub fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Brings a database to [`newest`]. One that holds something already is backed up first; returns where.
///
/// # Errors
/// [`StoreError::Unusable`] for a database of a newer billingd, or one that is not ours, or when it cannot be backed up;
/// nothing was changed then.
pub fn upgrade(connection: &mut Connection, path: &Path) -> Result<Option<PathBuf>, StoreError> {
    upgrade_by(STEPS, connection, path)
}

fn upgrade_by(steps: &[&str], connection: &mut Connection, path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let held = require_ours_by(steps, connection, path)?;
    let is_old = (1..count(steps)).contains(&held);
    let backup = is_old.then(|| keep(path, held)).transpose()?;
    migrate_by(steps, connection, path)?;
    Ok(backup)
}

/// Says first that it will take a while: whoever waits for a server with large books should know why.
fn keep(path: &Path, held: i64) -> Result<PathBuf, StoreError> {
    let mib = path.metadata().map_or(0, |metadata| metadata.len()).div_ceil(1 << 20);
    tracing::info!(schema = held, "the schema is being migrated; a backup of {mib} MiB is written first");
    backup::before_migration(path, held)
}

/// Brings a database to [`newest`], each step in a transaction of its own.
///
/// # Errors
/// [`StoreError::Unusable`] for a database of a newer billingd, or one that is not ours.
pub fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    migrate_by(STEPS, connection, path)
}

/// A new index is sorted in files meanwhile: in memory that takes 80 MiB for each million events.
fn migrate_by(steps: &[&str], connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    connection.pragma_update(None, "temp_store", "FILE")?;
    let migrated = step_by_step(steps, connection, path);
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    migrated
}

fn step_by_step(steps: &[&str], connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version = require_ours_by(steps, &transaction, path)?;
        let Some(step) = usize::try_from(version).ok().and_then(|index| steps.get(index)) else {
            return Ok(());
        };
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", version + 1)?;
        transaction.commit()?;
    }
}

/// Refuses a database that this build cannot read or write as it stands.
///
/// # Errors
/// [`StoreError::Unusable`] for any other schema than [`newest`].
pub fn require_newest(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let version = require_ours(connection, path)?;
    if version < newest() {
        return Err(StoreError::unusable(
            path,
            format!("has schema {version}, this billingd needs {}; start `billingd serve` once to migrate", newest()),
        ));
    }
    Ok(())
}

/// Refuses a database that is not ours, or that a newer billingd made; returns its schema. Only reads, so that it can
/// come before whatever changes the file.
///
/// # Errors
/// [`StoreError::Unusable`], also for a file that is no database at all.
pub fn require_ours(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    require_ours_by(STEPS, connection, path)
}

fn require_ours_by(steps: &[&str], connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let version = version(connection).map_err(|error| match error {
        StoreError::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            StoreError::unusable(path, "is no SQLite database; give [database] path another name")
        }
        other => other,
    })?;
    refuse_foreign(connection, version, path)?;
    let newest = count(steps);
    if version > newest {
        return Err(StoreError::unusable(
            path,
            format!("has schema {version}, made by a newer billingd (this one knows {newest}); upgrade billingd"),
        ));
    }
    Ok(version)
}

/// Whether a step has written this statement, to the letter.
pub(crate) fn has_written(sql: &str) -> bool {
    STEPS.iter().any(|step| step.contains(sql))
}

/// Other programs number their schemas, too. Tools, such as Litestream, may have put tables of their own (`_…`) into
/// the file first.
fn refuse_foreign(connection: &Connection, version: i64, path: &Path) -> Result<(), StoreError> {
    let (id, tables): (i32, i64) = connection.query_row(
        r"SELECT (SELECT application_id FROM pragma_application_id) AS id, count(*) AS tables FROM sqlite_schema
          WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE '\_%' ESCAPE '\'",
        [],
        |row| Ok((row.get("id")?, row.get("tables")?)),
    )?;
    let is_new = version == 0 && id == 0 && tables == 0;
    if !is_new && (version == 0 || id != files::APPLICATION_ID) {
        return Err(StoreError::unusable(path, "is a database of something else; give [database] path another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::Arc;

    use super::*;
    use crate::domain::ids::EventId;
    use crate::store::open::{self, Binding};
    use crate::store::payload::{self, Payload};
    use crate::store::verify::{self, FileCheck};
    use crate::store::{connect, health, meta};

    const NEXT: &str = "ALTER TABLE meta ADD COLUMN note TEXT";

    fn binding() -> Binding {
        Binding { livemode: false, connected_account: None }
    }

    /// The steps of a build that comes after this one.
    fn steps_and(more: &[&'static str]) -> Vec<&'static str> {
        STEPS.iter().chain(more).copied().collect()
    }

    /// Books of the schema before the next one, which does not exist yet.
    #[test]
    fn what_holds_something_is_backed_up_before_it_is_migrated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books.db");
        let mut server = open::server(&path, &binding()).unwrap();
        let kept = folder.path().join(format!("books.db.schema-{}.backup", newest()));
        assert!(!kept.exists(), "an empty file holds nothing");
        for (rows, step) in [(1, "no SQL"), (2, NEXT)] {
            meta::set(&server.connection, &format!("row {rows}"), "there").unwrap();
            let done = upgrade_by(&steps_and(&[step]), &mut server.connection, &path);
            assert_eq!(done.ok(), (rows == 2).then(|| Some(kept.clone())));
            let backup = connect::for_reading(&kept).unwrap();
            assert_eq!(version(&backup).unwrap(), newest());
            let held: i64 =
                backup.query_row("SELECT count(*) FROM meta WHERE key LIKE 'row %'", [], |row| row.get(0)).unwrap();
            assert_eq!(held, rows, "the newest state of the old schema");
        }
        assert_eq!(version(&server.connection).unwrap(), newest() + 1);
        assert_eq!(upgrade_by(&steps_and(&[NEXT]), &mut server.connection, &path).unwrap(), None);
        fs::remove_file(&kept).unwrap();
        fs::create_dir(&kept).unwrap();
        server.connection.pragma_update(None, "user_version", newest()).unwrap();
        upgrade_by(&steps_and(&[NEXT, NEXT]), &mut server.connection, &path).unwrap_err();
        assert_eq!(version(&server.connection).unwrap(), newest(), "no backup, no migration");
    }

    /// The backup may take minutes; this one cannot even begin.
    #[test]
    fn who_waits_for_a_backup_is_told_of_it_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books.db");
        let mut server = open::server(&path, &binding()).unwrap();
        fs::create_dir(folder.path().join(format!("books.db.schema-{}.backup", newest()))).unwrap();
        let log = folder.path().join("log");
        let lines = tracing_subscriber::fmt().with_writer(Arc::new(File::create(&log).unwrap())).finish();
        tracing::subscriber::with_default(lines, || {
            upgrade_by(&steps_and(&[NEXT]), &mut server.connection, &path).unwrap_err();
        });
        let told = fs::read_to_string(log).unwrap();
        assert!(told.contains("the schema is being migrated; a backup of 1 MiB is written first"), "{told}");
    }

    /// What older builds have left, with something in it.
    #[test]
    fn books_of_every_schema_become_those_of_the_newest() {
        for held in 1..STEPS.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("books.db");
            fs::write(&path, "").unwrap();
            let mut old = open::alone(&path).unwrap();
            migrate_by(&STEPS[..held], &mut old, &path).unwrap();
            old.execute_batch(
                "INSERT INTO events (event_id, source, type, status, dead_letter, livemode, created_at, received_at, tried_at)
                 VALUES ('evt_1', 'webhook', 't', 'failed', 1, 0, 0, 7000, 0);
                 INSERT INTO fx_rates VALUES ('2026-11-30', 'usd', 'eur', '1.1', 'here');",
            )
            .unwrap();
            keep_fetched_by_our_clock(&old, 7500);
            drop(old);
            let server = open::server(&path, &binding()).unwrap();
            assert_eq!(version(&server.connection).unwrap(), newest());
            let kept = folder.path().join(format!("books.db.schema-{held}.backup"));
            assert_eq!(version(&connect::for_reading(&kept).unwrap()).unwrap(), i64::try_from(held).unwrap());
            let dead = health::dead_letters(&server.connection).unwrap();
            assert_eq!((dead.count, dead.first), (1, Some(("evt_1".to_owned(), 7))));
            let fetched =
                payload::read_fetched(&server.connection, &EventId::parse("evt_1").unwrap()).unwrap().unwrap();
            assert_eq!((fetched.object, fetched.told_at), (b"{}".to_vec(), 7));
            let proven = verify::all(&server.connection, FileCheck::Whole).unwrap().proven;
            assert_eq!(proven.into_iter().flat_map(|proof| proof.violations).collect::<Vec<_>>(), Vec::<String>::new());
            server.connection.execute_batch("DELETE FROM fx_rates").unwrap_err();
        }
    }

    /// The object of a thin event as the first schema keeps it.
    fn keep_fetched_by_our_clock(connection: &Connection, at: i64) {
        let digest_and_object = Payload::pack(b"{}").unwrap().to_bytes();
        let sql =
            "INSERT INTO event_payloads (event_id, body, digest, object, object_at) VALUES ('evt_1', x'', x'', ?, ?)";
        connection.execute(sql, (&digest_and_object[32..], at)).unwrap();
    }

    #[test]
    fn indexes_are_sorted_in_files_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books.db");
        let mut server = open::server(&path, &binding()).unwrap();
        let seen = "CREATE TABLE seen AS SELECT temp_store FROM pragma_temp_store";
        migrate_by(&steps_and(&[seen]), &mut server.connection, &path).unwrap();
        let place = |sql: &str| server.connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((place("SELECT temp_store FROM seen"), place("PRAGMA temp_store")), (1, 2));
    }

    /// A check with IN and more than two values does, which once was a third of what an event cost.
    #[test]
    fn no_insert_builds_a_table_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let server = open::server(&folder.path().join("books.db"), &binding()).unwrap();
        let texts = |sql: &str, column: &str| -> Vec<String> {
            let mut statement = server.connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get(column)).unwrap();
            rows.collect::<Result<_, _>>().unwrap()
        };
        for table in texts("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'", "name") {
            let steps = texts(&format!("EXPLAIN INSERT INTO {table} DEFAULT VALUES"), "opcode");
            assert!(!steps.iter().any(|step| step == "OpenEphemeral"), "{table}");
        }
    }
}
