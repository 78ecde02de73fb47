//! The database: how it is opened, whom it refuses, and what nobody can do to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use billingd::domain::ids::EventId;
use billingd::ops::verify::{verify, verify_in_short_looks};
use billingd::store::open::{self, Binding};
use billingd::store::reader::Reader;
use billingd::store::verify::{Proofs, Proven};
use billingd::store::{StoreError, migrations, payload};
use rusqlite::Connection;

use super::fixtures::nth_invoice_paid;
use super::harness::{Billing, binding, open_outside, rows, spawn};

const APPEND_ONLY: [&str; 5] = ["ledger_entries", "ledger_lines", "audit_log", "tier_changes", "fx_rates"];

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn database(&self) -> PathBuf {
        self.0.path().join("books.db")
    }

    /// A database that somebody made with these statements.
    fn made_with(sql: &str) -> Self {
        let folder = Self::new();
        open_outside(&folder.database()).execute_batch(sql).expect(sql);
        folder
    }
}

/// All three ways to open a database refuse this one, say why, and leave it as it is.
#[track_caller]
fn everybody_refuses(path: &Path, why: &str) {
    let before = fs::read(path).expect("a file");
    let told =
        [open::server(path, &binding()).err(), open::beside(path, &binding()).err(), Reader::open(path, 1).err()];
    for (who, error) in ["server", "command", "reader"].iter().zip(told) {
        let error = error.unwrap_or_else(|| panic!("the {who} takes it")).to_string();
        assert!(error.contains(why) && error.contains(&path.display().to_string()), "{who}: {error}");
    }
    assert!(fs::read(path).expect("a file") == before, "it was changed");
}

#[test]
fn an_empty_file_becomes_a_database_once() {
    let folder = Folder::new();
    for _ in 0..2 {
        let server = open::server(&folder.database(), &binding()).expect("a database");
        assert_eq!(migrations::version(server.connection()).expect("a version"), migrations::newest());
        assert_eq!(rows(server.connection(), "SELECT value FROM meta WHERE key = 'livemode'"), ["test"]);
    }
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%STRICT%'";
    assert_eq!(rows(&open_outside(&folder.database()), tables), ["0"]);
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let why = "is a database of something else";
    everybody_refuses(&Folder::made_with("CREATE TABLE users (id)").database(), why);
    everybody_refuses(&Folder::made_with("CREATE TABLE users (id); PRAGMA user_version = 1").database(), why);
    everybody_refuses(&Folder::made_with("CREATE TABLE users (id); PRAGMA user_version = 99").database(), why);
    let alike = "CREATE TABLE meta (key, value); CREATE TABLE events (event_id); PRAGMA user_version = 1";
    everybody_refuses(&Folder::made_with(alike).database(), why);
    everybody_refuses(&Folder::made_with("PRAGMA application_id = 7; PRAGMA encoding = 'UTF-8'").database(), why);
    let text = Folder::new();
    fs::write(text.database(), "not a database, but longer than the header of one; ".repeat(9)).expect("a file");
    everybody_refuses(&text.database(), "is no SQLite database");
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let folder = Folder::new();
    drop(open::server(&folder.database(), &binding()).expect("a database"));
    let outside = open_outside(&folder.database());
    outside.execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)").expect("a version");
    everybody_refuses(&folder.database(), "made by a newer billingd");
}

#[test]
fn what_has_not_been_made_yet_is_told_to_be_made_by_the_server() {
    let folder = Folder::new();
    let missing = open::beside(&folder.database(), &binding()).expect_err("no database").to_string();
    assert!(missing.contains("start `billingd serve` once"), "{missing}");
    assert!(Reader::open(&folder.database(), 1).is_err());
    assert!(!folder.database().exists(), "a command does not make one");
}

#[test]
fn tables_of_a_tool_are_no_foreign_database() {
    let folder = Folder::made_with(
        "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER); CREATE TABLE _litestream_lock (id INTEGER)",
    );
    let server = open::server(&folder.database(), &binding()).expect("it is taken");
    assert_eq!(migrations::version(server.connection()).expect("a version"), migrations::newest());
}

#[test]
fn books_belong_to_one_mode_and_one_account() {
    let folder = Folder::new();
    drop(open::server(&folder.database(), &binding()).expect("a database"));
    let live = Binding { livemode: true, connected_account: None };
    let connected = Binding { livemode: false, connected_account: Some("acct_1".into()) };
    for (other, why) in [(live, "holds test mode books"), (connected, "holds the books of Stripe account (its own)")] {
        let refused =
            [open::server(&folder.database(), &other).map(drop), open::beside(&folder.database(), &other).map(drop)];
        for refused in refused {
            let error = refused.expect_err("other books").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
    open::server(&folder.database(), &binding()).expect("the right ones");
}

#[test]
fn one_server_at_a_time_and_commands_beside_it() {
    let folder = Folder::new();
    let server = open::server(&folder.database(), &binding()).expect("a database");
    let second = open::server(&folder.database(), &binding()).expect_err("a second server").to_string();
    assert!(second.contains("another billingd serves this database"), "{second}");
    open::beside(&folder.database(), &binding()).expect("a command");
    drop(server);
    open::server(&folder.database(), &binding()).expect("the next server");
}

/// Books with a row in every append-only table.
fn written() -> Billing {
    let billing = spawn();
    for number in 1..=3 {
        assert_eq!(billing.stripe_sends(&nth_invoice_paid(number)).short(), "200 completed applied");
    }
    billing.somebody_runs("INSERT INTO tier_changes (account_id, source_event_id, at) VALUES ('cus_1', 'evt_1', 1)");
    billing.somebody_runs("INSERT INTO fx_rates VALUES ('2026-11-27', 'usd', 'eur', '1.0876', 'a test')");
    billing
}

#[test]
fn what_is_written_in_the_books_stays() {
    let billing = written();
    let beside = open::beside(&billing.database(), &binding()).expect("a connection");
    for table in APPEND_ONLY {
        let all = || rows(&beside, &format!("SELECT * FROM {table}"));
        let before = all();
        assert!(!before.is_empty(), "{table}");
        let column = rows(&beside, &format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid DESC LIMIT 1"));
        let column = &column[0];
        for sql in [
            format!("UPDATE {table} SET {column} = {column}"),
            format!("UPDATE OR IGNORE {table} SET {column} = NULL"),
            format!("UPDATE OR REPLACE {table} SET {column} = {column}"),
            format!("DELETE FROM {table}"),
            format!("REPLACE INTO {table} SELECT * FROM {table}"),
            format!("INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT 1"),
            format!(
                "INSERT INTO {table} SELECT * FROM {table} WHERE true ON CONFLICT DO UPDATE SET {column} = {column}"
            ),
        ] {
            let error = beside.execute_batch(&sql).expect_err(&sql).to_string();
            assert!(error.contains(&format!("{table} is append-only")), "{sql}: {error}");
        }
        assert_eq!(all(), before);
    }
}

#[test]
fn a_reader_cannot_write() {
    let billing = written();
    let written = billing.reader().read(|connection| {
        connection.execute("DELETE FROM events", [])?;
        Ok(())
    });
    assert!(matches!(written, Err(StoreError::Sql(_))), "{written:?}");
    let persuaded = billing.reader().read(|connection| {
        connection.execute_batch("PRAGMA query_only = OFF; DELETE FROM events")?;
        Ok(())
    });
    assert!(persuaded.is_err(), "the file is opened read-only, too");
}

#[test]
fn a_read_ends_at_its_deadline_and_the_next_one_works() {
    let billing = written();
    let reader = billing.reader().ending_within(Duration::from_millis(50));
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let error = reader.read(|connection| Ok(connection.query_row(endless, [], |row| row.get::<_, i64>(0))?));
    assert!(matches!(&error, Err(error) if error.is_environmental()), "{error:?}");
    assert!(error.is_err_and(|error| error.to_string().contains("interrupted")));
    let events = reader.read(|connection| Ok(rows(connection, "SELECT count(*) FROM events"))).expect("a read");
    assert_eq!(events, ["3"]);
    let long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT max(i) FROM n";
    let counted = reader.read_at_leisure(|connection| Ok(rows(connection, long))).expect("a read at leisure");
    assert_eq!(counted, ["3000000"]);
}

#[test]
fn a_payload_is_kept_as_it_came() {
    let billing = written();
    for number in 1..=3 {
        let id = EventId::parse(&format!("evt_{number}")).expect("an id");
        let kept = billing.reader().read(|connection| payload::read(connection, &id)).expect("a read");
        assert_eq!(kept.expect("a payload"), nth_invoice_paid(number).to_string().into_bytes());
    }
    billing.somebody_runs("UPDATE event_payloads SET digest = zeroblob(32) WHERE event_id = 'evt_1'");
    let id = EventId::parse("evt_1").expect("an id");
    assert!(billing.reader().read(|connection| payload::read(connection, &id)).is_err());
}

/// Takes a guard away, does something, and puts the guard back as it was.
fn behind_the_back_of(guard: &str, connection: &Connection, sql: &str) {
    let made = rows(connection, &format!("SELECT sql FROM sqlite_schema WHERE name = '{guard}'"));
    connection.execute_batch(&format!("DROP TRIGGER {guard}; {sql}; {};", made[0])).expect(sql);
}

#[test]
fn verify_finds_the_first_broken_link_of_the_chain() {
    for (guard, sql, found) in [
        (
            "audit_log_update",
            "UPDATE audit_log SET detail = replace(detail, '2000', '1000') WHERE seq = 2",
            "2 is the first broken link: hash: the content was changed",
        ),
        (
            "audit_log_update",
            "UPDATE audit_log SET subject = 'cus_9' WHERE seq = 1",
            "1 is the first broken link: hash: the content was changed",
        ),
        (
            "audit_log_update",
            "UPDATE audit_log SET event_id = NULL WHERE seq >= 2",
            "2 is the first broken link: hash: the content was changed",
        ),
        (
            "audit_log_update",
            "UPDATE audit_log SET prev_hash = zeroblob(32) WHERE seq = 3",
            "3 is the first broken link: prev_hash: it is not the hash of the row before it",
        ),
        (
            "audit_log_delete",
            "DELETE FROM audit_log WHERE seq = 2",
            "3 is the first broken link: seq: a row before it is missing",
        ),
        (
            "audit_log_delete",
            "DELETE FROM audit_log WHERE seq = 1",
            "2 is the first broken link: seq: a row before it is missing",
        ),
    ] {
        let mut billing = written();
        assert_eq!(billing.violations(), Vec::<String>::new());
        behind_the_back_of(guard, &billing.outside(), sql);
        assert_eq!(billing.violations(), [format!("audit row {found}")], "{sql}");
        billing.is_broken_on_purpose();
    }
}

/// Without the key of facts, which nobody can drop, there is one fact twice.
/// The page of the index that is lost is of no use to anybody, which SQLite's own check may find: hence the VACUUM.
const TWICE: &str = "PRAGMA writable_schema = ON;
    UPDATE sqlite_schema SET sql = replace(sql, 'fact            TEXT NOT NULL UNIQUE', 'fact TEXT NOT NULL')
    WHERE name = 'ledger_entries';
    DELETE FROM sqlite_schema WHERE name = 'sqlite_autoindex_ledger_entries_1';
    UPDATE sqlite_schema SET name = 'sqlite_autoindex_ledger_entries_1' WHERE name = 'sqlite_autoindex_ledger_entries_2';
    PRAGMA writable_schema = RESET;
    INSERT INTO events (event_id, source, type, status, outcome, livemode, created_at, received_at, tried_at, processed_at)
    VALUES ('evt_9', 'import', 'a', 'completed', 'applied', 0, 1, 1, 1, 1);
    INSERT INTO ledger_entries (account_id, kind, fact, source_event_id, created_at)
    VALUES ('cus_2', 'grant', 'grant:invoice:in_2', 'evt_9', 1);
    VACUUM";

/// Each look may see other books than the one before it.
#[test]
fn the_books_are_proven_in_short_looks_while_deliveries_go_on() {
    let billing = written();
    let (reader, is_over) = (billing.reader().seeing_at_most(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (4..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(|number| {
                assert_eq!(billing.stripe_sends(&nth_invoice_paid(number)).short(), "200 completed applied");
            });
        });
        let all: Vec<Proofs> = (0..30).map(|_| verify_in_short_looks(&reader).expect("proofs")).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(all.iter().flat_map(|proofs| &proofs.proven).all(Proven::holds), "{all:?}");
        assert!(all.is_sorted_by_key(|proofs| proofs.head.seq));
    });
}

#[test]
fn what_a_look_has_no_time_for_is_told_and_the_rest_is_proven() {
    let mut billing = written();
    billing.somebody_runs(
        "CREATE TABLE big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) SELECT * FROM n;
         UPDATE balances SET balance = balance + 1 WHERE account_id = 'cus_2';
         CREATE TABLE odd (kind TEXT); INSERT INTO odd VALUES (NULL); PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = 'CREATE TABLE odd (kind TEXT NOT NULL)' WHERE name = 'odd';",
    );
    let proven = verify_in_short_looks(&billing.reader().ending_within(Duration::ZERO)).expect("proofs").proven;
    let cut_short = proven.iter().flat_map(|one| one.cut_short.iter().map(|table| format!("{table}: {}", one.name)));
    assert_eq!(cut_short.collect::<Vec<_>>(), ["big: SQLite's own integrity check"]);
    let violations: Vec<&String> = proven.iter().flat_map(|proof| &proof.violations).collect();
    let behind_it = "NULL value in odd.kind";
    assert_eq!(violations, ["balance of cus_2 in usd is 2001, its lines sum to 2000", behind_it]);
    let whole = billing.reader().read_at_leisure(verify).expect("proofs");
    assert!(!whole.clean && whole.proofs.iter().all(|one| one.cut_short.is_empty()));
    billing.somebody_runs("DROP TABLE odd");
    billing.is_broken_on_purpose();
}

#[test]
fn verify_tolerates_what_tools_leave_in_the_file() {
    let billing = written();
    billing.somebody_runs(
        "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER); INSERT INTO _litestream_seq VALUES (1, 7);
         CREATE TABLE _litestream_lock (id INTEGER); ANALYZE;",
    );
    assert_eq!(billing.violations(), Vec::<String>::new());
}

/// Writes over one page of a table in a copy of the books.
#[test]
fn verify_calls_damage_a_violation_and_not_an_error() {
    let mut billing = written();
    billing.stop();
    let page = billing.row("SELECT rootpage FROM sqlite_schema WHERE name = 'ledger_lines'").parse::<usize>().unwrap();
    let folder = Folder::new();
    let mut bytes = fs::read(billing.database()).expect("the books");
    let size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    bytes[(page - 1) * size..page * size].fill(0x55);
    fs::write(folder.database(), bytes).expect("damaged books");
    let violations = super::harness::violations(&folder.database());
    assert!(violations.iter().any(|violation| violation.contains("this cannot be read")), "{violations:?}");
    assert!(violations.iter().any(|violation| violation.contains("Tree")), "SQLite's own check: {violations:?}");
}

#[test]
fn verify_finds_what_does_not_add_up() {
    for (sql, found) in [
        (
            "UPDATE balances SET balance = balance + 1 WHERE account_id = 'cus_2'",
            "balance of cus_2 in usd is 2001, its lines sum to 2000",
        ),
        ("DELETE FROM balances WHERE account_id = 'cus_2'", "balance of cus_2 in usd is 0, its lines sum to 2000"),
        ("INSERT INTO balances VALUES ('cus_9', 'usd', 7)", "balance of cus_9 in usd is 7, its lines sum to 0"),
        (
            "UPDATE accounts SET tier = 'pro' WHERE account_id = 'cus_1'",
            "account cus_1 is on pro, its last change says no tier",
        ),
        (
            "UPDATE events SET status = 'failed', outcome = NULL, processed_at = NULL WHERE event_id = 'evt_3'",
            "entry 3 has no completed event evt_3",
        ),
        ("DROP TRIGGER ledger_lines_delete", "ledger_lines has lost its guard against DELETE"),
        (
            "DROP TRIGGER audit_log_update; CREATE TRIGGER audit_log_update BEFORE UPDATE ON audit_log BEGIN SELECT 1; END",
            "audit_log has lost its guard against UPDATE",
        ),
        (
            "DROP TRIGGER ledger_lines_delete; DELETE FROM ledger_lines WHERE entry_id = 1; UPDATE balances SET balance = 0 WHERE account_id = 'cus_1'; \
          CREATE TRIGGER ledger_lines_delete BEFORE DELETE ON ledger_lines\nBEGIN SELECT RAISE(ABORT, 'ledger_lines is append-only: post a reversing entry'); END",
            "entry 1 has no lines",
        ),
        (
            "PRAGMA foreign_keys = OFF; \
             INSERT INTO ledger_entries (account_id, kind, fact, source_event_id, reverses, created_at) \
             VALUES ('cus_1', 'reversal', 'reversal:1', 'evt_x', 1, 0)",
            "entry 1 is reversed, and 2000 usd stand of it",
        ),
        (
            "PRAGMA foreign_keys = OFF; \
             INSERT INTO ledger_entries (account_id, kind, fact, source_event_id, reverses, created_at) \
             VALUES ('cus_2', 'reversal', 'reversal:1', 'evt_x', 1, 0)",
            "entry 4 of cus_2 reverses entry 1 of cus_1",
        ),
        (
            "PRAGMA foreign_keys = OFF; DELETE FROM events WHERE event_id = 'evt_2'",
            "row evt_2 of event_payloads names evt_2 of events, which does not exist",
        ),
        (
            "PRAGMA foreign_keys = OFF; INSERT INTO ledger_lines (entry_id, root, unit, amount, is_root) VALUES (9, 'grant:invoice:in_9', 'usd', 0, 1)",
            "a line names entry 9, which does not exist",
        ),
        (
            "CREATE TRIGGER helpful BEFORE DELETE ON audit_log BEGIN SELECT RAISE(IGNORE); END",
            "audit_log has a trigger that is not ours: helpful",
        ),
        (TWICE, "fact grant:invoice:in_2 has 2 entries"),
    ] {
        let mut billing = written();
        billing.somebody_runs(sql);
        let violations = billing.violations();
        assert!(violations.iter().any(|violation| violation.starts_with(found)), "{sql}: {violations:?}");
        let row_by_row = verify(&billing.reader().seeing_at_most(1)).expect("proofs").proofs;
        assert_eq!(row_by_row.into_iter().flat_map(|proof| proof.violations).collect::<Vec<_>>(), violations, "{sql}");
        billing.is_broken_on_purpose();
    }
}
