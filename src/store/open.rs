//! How a database is opened: the pragmas that the promises rest on, and the checks that come before the first write.

use std::fs::{File, OpenOptions};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, named_params};

use crate::domain::alert::WAL_BYTES_MAX;
use crate::store::{StoreError, lock, migrations, partial};

/// How often a connection asks for the write lock of another one before it gives up, which takes a little over 5 s.
///
/// SQLite's own timeout asks ever less often, down to ten times a second. A busy server is without the lock for
/// fractions of a millisecond only, and a command that asks so rarely may miss all of them.
const BUSY_TRIES: i32 = 5_000;

/// How long it rests between two such questions.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Older SQLite has a race between WAL reset and checkpoint that can corrupt a database.
pub const SQLITE_VERSION_MIN: i32 = 3_051_003;

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

/// How a connection that only reads is opened.
pub(crate) const READING: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a connection that can do nothing but look.
pub(crate) fn for_reading(path: &Path) -> Result<Connection, StoreError> {
    require_exists(path)?;
    open(path, READING)
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

/// What every connection that only reads needs.
pub(crate) fn prepare_for_reading(connection: &Connection) -> rusqlite::Result<()> {
    wait_for_locks(connection)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;")?;
    connection.pragma_update(None, "cache_size", -2_048)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

fn require_exists(path: &Path) -> Result<(), StoreError> {
    if path.exists() {
        return Ok(());
    }
    Err(StoreError::unusable(path, "there is no such database; start `billingd serve` once to create it"))
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that opens")]
fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| StoreError::unusable(path, format!("cannot be opened: {error}")))?;
    wait_for_locks(&connection)?;
    Ok(connection)
}

/// Lets a connection wait for the lock of another one.
fn wait_for_locks(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(|tries| {
        std::thread::sleep(BUSY_PAUSE);
        tries < BUSY_TRIES
    }))
}

fn prepare_for_writing(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::unusable(path, format!("refuses write-ahead logging (journal mode {mode})")));
    }
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA recursive_triggers = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = 1000;",
    )?;
    // Small, since a commit may look through all of it, and the system's own cache is behind it.
    connection.pragma_update(None, "cache_size", -8_192)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX.cast_signed())?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

fn require_sqlite_version(path: &Path) -> Result<(), StoreError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(StoreError::unusable(
            path,
            format!(
                "is not opened by SQLite {}, which can corrupt it; build with 3.51.3 or newer",
                rusqlite::version()
            ),
        ));
    }
    Ok(())
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
fn refuse_network_file_system(path: &Path) -> Result<(), StoreError> {
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

/// Writes the binding on first use, and compares it from then on.
fn bind(connection: &mut Connection, path: &Path, binding: &Binding) -> Result<(), StoreError> {
    if is_bound(connection, path, binding)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    set_meta(&transaction, "livemode", mode_of(binding))?;
    set_meta(&transaction, "stripe_account", binding.connected_account.as_deref().unwrap_or_default())?;
    transaction.commit()?;
    Ok(())
}

fn mode_of(binding: &Binding) -> &'static str {
    if binding.livemode { "live" } else { "test" }
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

/// Whether a database belongs to this mode and account; false if it belongs to none yet.
///
/// # Errors
/// [`StoreError::Unusable`] when it belongs to others.
pub(crate) fn is_bound(connection: &Connection, path: &Path, binding: &Binding) -> Result<bool, StoreError> {
    let (Some(held_mode), Some(held_account)) = (meta(connection, "livemode")?, meta(connection, "stripe_account")?)
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

/// A number that changes when another connection than this one has committed.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// One of the facts that a database keeps about itself.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn meta(connection: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT value FROM meta WHERE key = :key")?
        .query_row(named_params! { ":key": key }, |row| row.get("value"))
        .optional()?)
}

/// Removes one of the facts that a database keeps about itself, if it is there.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn remove_meta(connection: &Connection, key: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM meta WHERE key = :key")?.execute(named_params! { ":key": key })?;
    Ok(())
}

/// Writes one of the facts that a database keeps about itself.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn set_meta(connection: &Connection, key: &str, value: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO meta (key, value) VALUES (:key, :value)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute(named_params! { ":key": key, ":value": value })?;
    Ok(())
}
