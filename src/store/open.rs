//! The doors to a database that write, and the checks that come before the first write: locks, schema, mode and account.

use std::fs::{File, OpenOptions};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::store::connect::{open, prepare_for_writing, require_exists, require_sqlite_version};
use crate::store::files::{folder_of, refuse_network_file_system};
use crate::store::{StoreError, lock, meta, migrations, partial};

/// Which books a database holds; decided when it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Live or test mode.
    pub livemode: bool,
    /// The connected account; `None` for the account's own events.
    pub connected_account: Option<String>,
}

/// The write connection of a server. Holds the single-server lock for as long as it lives.
#[derive(Debug)]
pub struct ServerConnection {
    pub(crate) connection: Connection,
    pub(crate) _lock: File,
}

impl ServerConnection {
    /// The connection, for what is written before the writer starts.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// The write connection of a command. Nothing is restored for as long as it lives.
#[derive(Debug)]
pub struct CommandConnection {
    connection: Connection,
    _lock: File,
}

impl Deref for CommandConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for CommandConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Opens the database of a server: creates it if need be, migrates it, binds it to its mode and account.
///
/// # Errors
/// [`StoreError::Unusable`] when another server runs on it, when it lies on a network file system, was made by a newer
/// billingd, or is bound to another mode or account.
pub fn server(path: &Path, binding: &Binding) -> Result<ServerConnection, StoreError> {
    require_sqlite_version(path)?;
    refuse_network_file_system(path)?;
    let lock = lock::of_server(path)?;
    partial::clear(path, folder_of(path));
    create(path)?;
    let mut connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrations::require_ours(&connection, path)?;
    prepare_for_writing(&connection, path)?;
    if let Some(backup) = migrations::upgrade(&mut connection, path)? {
        tracing::info!(backup = %backup.display(), "the schema was migrated; what was there before is in a backup");
    }
    bind(&mut connection, path, binding)?;
    Ok(ServerConnection { connection, _lock: lock })
}

/// Opens a write connection for a command, which may run beside a server.
///
/// # Errors
/// [`StoreError::Unusable`] when there is no database, its schema is another one, it is bound to another mode or
/// account, or it is being restored.
pub fn beside(path: &Path, binding: &Binding) -> Result<CommandConnection, StoreError> {
    require_exists(path)?;
    refuse_network_file_system(path)?;
    let lock = lock::of_command(path)?;
    let mut connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrations::require_newest(&connection, path)?;
    prepare_for_writing(&connection, path)?;
    bind(&mut connection, path, binding)?;
    Ok(CommandConnection { connection, _lock: lock })
}

/// Opens a file that is to become the database, while nobody else knows of it. It stays one file: no write-ahead log.
pub(crate) fn alone(path: &Path) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrations::require_ours(&connection, path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = DELETE;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA recursive_triggers = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA temp_store = MEMORY;",
    )?;
    Ok(connection)
}

/// Brings all that the write-ahead log of a database holds into its file, and removes the log. Only who is alone can.
pub(crate) fn fold(path: &Path) -> Result<(), StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    match connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0)) {
        Ok(mode) if mode == "delete" => Ok(()),
        Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => Err(error.into()),
        Ok(_) | Err(_) => {
            let problem = "is open in another program, even if only to read; end that (`fuser` with this path names \
                           it), and try again";
            Err(StoreError::unusable(path, problem))
        }
    }
}

/// Opens a copy that nobody else knows, and that need not survive anything.
pub(super) fn for_rehearsal(path: &Path) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.execute_batch(
        "PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON; PRAGMA trusted_schema = OFF;
         PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA temp_store = MEMORY;",
    )?;
    Ok(connection)
}

/// An empty file is an empty database. Made here and not by SQLite, because it holds payloads: only its owner may
/// write it and only its group may read it. SQLite gives its side files the same mode.
fn create(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().create_new(true).write(true).mode(0o640).open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(StoreError::unusable(path, format!("cannot be created: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes the binding on first use, and compares it from then on.
fn bind(connection: &mut Connection, path: &Path, binding: &Binding) -> Result<(), StoreError> {
    if is_bound(connection, path, binding)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    meta::set(&transaction, "livemode", mode_of(binding))?;
    meta::set(&transaction, "stripe_account", binding.connected_account.as_deref().unwrap_or_default())?;
    transaction.commit()?;
    Ok(())
}

fn mode_of(binding: &Binding) -> &'static str {
    if binding.livemode { "live" } else { "test" }
}

/// Whether a database belongs to this mode and account; false if it belongs to none yet.
///
/// # Errors
/// [`StoreError::Unusable`] when it belongs to others.
pub(crate) fn is_bound(connection: &Connection, path: &Path, binding: &Binding) -> Result<bool, StoreError> {
    let (Some(held_mode), Some(held_account)) =
        (meta::get(connection, "livemode")?, meta::get(connection, "stripe_account")?)
    else {
        return Ok(false);
    };
    let (mode, account) = (mode_of(binding), binding.connected_account.as_deref().unwrap_or_default());
    if held_mode != mode {
        return Err(StoreError::unusable(
            path,
            format!("holds {held_mode} mode books, the config says {mode} mode; use another [database] path"),
        ));
    }
    if held_account != account {
        return Err(StoreError::unusable(
            path,
            format!(
                "holds the books of Stripe account {}, the config says {}; use another [database] path",
                own_if_empty(&held_account),
                own_if_empty(account)
            ),
        ));
    }
    Ok(true)
}

fn own_if_empty(account: &str) -> &str {
    if account.is_empty() { "(its own)" } else { account }
}
