//! Keeping the books: backup and restore, retention, and the jobs that do it by the clock.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use billingd::config::Schedule;
use billingd::domain::ids::EventId;
use billingd::jobs::{Context, Job, Jobs, Runner};
use billingd::ops::adjust::{Adjustment, adjust};
use billingd::ops::backup::{self, Shelf, backup};
use billingd::ops::restore::{Restored, restore};
use billingd::ops::retain::{Keep, Pruned, prune};
use billingd::stop::Stop;
use billingd::store::migrations;
use billingd::store::open::{self, Binding, CommandConnection};
use billingd::store::restore::require_stopped;
use billingd::store::{Desk, StoreError, jobs, lock};
use rusqlite::Transaction;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::cli::{Serving, check, run};
use super::fixtures::{Shape, event, invoice_paid, nth_invoice_paid};
use super::harness::{Billing, NOW, Setup, binding, open_outside, rows, spawn, violations, wait_until};

const DAY: i64 = 86_400;

/// Books with the payments of some customers.
fn paid(numbers: std::ops::RangeInclusive<usize>) -> Billing {
    let billing = spawn();
    pays(&billing, numbers);
    billing
}

fn pays(billing: &Billing, numbers: std::ops::RangeInclusive<usize>) {
    for number in numbers {
        assert_eq!(billing.stripe_sends(&nth_invoice_paid(number)).short(), "200 completed applied");
    }
}

fn beside(billing: &Billing) -> CommandConnection {
    open::beside(&billing.database(), &binding()).expect("a connection beside the server")
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn problem<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    result.expect_err("a refusal").to_string()
}

fn backs_up(billing: &Billing, target: &Path) -> Result<backup::BackedUp, StoreError> {
    backup(&billing.database(), target, &Stop::default())
}

#[test]
fn a_backup_is_one_whole_file() {
    let billing = paid(1..=3);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("books.backup");
    let written = backs_up(&billing, &target).expect("a backup");
    assert_eq!((written.events, written.bytes), (3, target.metadata().unwrap().len()));
    assert_eq!(fs::read(&target).unwrap()[18..20], [1, 1], "it needs no write-ahead log");
    assert_eq!(target.metadata().unwrap().mode(), billing.database().metadata().unwrap().mode());
    assert_eq!(violations(&target), Vec::<String>::new());
    assert_eq!(files(folder.path()), ["books.backup"]);
    pays(&billing, 4..=4);
    assert_eq!(rows(&open_outside(&target), "SELECT sum(amount) FROM v_ledger"), ["6000"]);
    assert_eq!(backs_up(&billing, &target).expect("it replaces a former one").events, 4);
    assert_eq!(rows(&open_outside(&target), "SELECT sum(amount) FROM v_ledger"), ["8000"]);
}

#[test]
fn a_backup_replaces_nothing_but_a_former_backup() {
    let mut billing = paid(1..=1);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("notes"), "what somebody wrote, and what is longer than the header of a file").unwrap();
    fs::write(at("empty"), "").unwrap();
    for name in ["notes", "empty"] {
        assert!(problem(backs_up(&billing, &at(name))).contains("no former backup"), "{name}");
    }
    open_outside(&at("app.sqlite")).execute_batch("CREATE TABLE meta (a); CREATE TABLE events (a)").unwrap();
    let app = fs::read(at("app.sqlite")).unwrap();
    assert!(problem(backs_up(&billing, &at("app.sqlite"))).contains("is a database of something else"));
    assert!(fs::read(at("app.sqlite")).unwrap() == app, "somebody else's stays");
    assert!(problem(backs_up(&billing, &billing.database())).contains("is a database in use"));
    assert!(problem(backs_up(&billing, &at("no/such/folder"))).contains("cannot be written to"));
    let good = at("good");
    backs_up(&billing, &good).expect("a backup");
    let before = fs::read(&good).unwrap();
    billing.somebody_runs("UPDATE balances SET balance = 1");
    let told = problem(backs_up(&billing, &good));
    assert!(told.contains("balance of cus_1 in usd is 1") && told.contains("verify"), "{told}");
    let stop = Stop::default();
    stop.set();
    assert!(problem(backup(&billing.database(), &good, &stop)).contains("cut short"));
    assert!(fs::read(&good).unwrap() == before, "a backup that is not written leaves the former one");
    assert_eq!(files(folder.path()), ["app.sqlite", "empty", "good", "notes"]);
    billing.is_broken_on_purpose();
}

#[test]
fn so_many_backups_by_the_clock_stay_and_nothing_else_goes() {
    let mut billing = paid(1..=1);
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf { folder: folder.path().join("backups"), keep: 2 };
    let shelves = |day: i64| backup::shelve(&billing.database(), &shelf, (NOW + day * DAY) * 1000, &Stop::default());
    shelves(0).expect("a backup");
    assert_eq!(shelf.folder.metadata().unwrap().permissions().mode() & 0o777, 0o750);
    let others =
        ["books-by-hand.backup", "books-20260101-000000.backup.copy", "other-20260101-000000.backup", "notes.txt"];
    others.iter().for_each(|name| fs::write(shelf.folder.join(name), "").unwrap());
    for name in [".books.db.xyz.partial", ".books.db.xyz.partial-copy", ".books.db.xyz.partial-copy-journal"] {
        fs::write(shelf.folder.join(name), "of a killed server").unwrap();
        fs::write(billing.database().with_file_name(name), "of a killed rehearsal").unwrap();
    }
    let last = [1, 2, 3].map(|day| shelves(day).expect("a backup").path);
    assert_eq!(last[2], shelf.folder.join("books-20260924-141320.backup"));
    let mut expected = vec!["books-20260923-141320.backup", "books-20260924-141320.backup"];
    expected.extend(others);
    expected.sort_unstable();
    assert_eq!(files(&shelf.folder), expected);
    let beside_it = billing.database().parent().unwrap().to_owned();
    let left = || files(&beside_it).iter().any(|name| name.contains("partial"));
    assert!(left(), "that one is in another folder");
    billing.restart();
    assert!(!left(), "a server clears away what lies beside its database");
}

fn restores(backup: &Path, database: &Path) -> Result<Restored, StoreError> {
    restore(backup, database, &binding(), "operator:alice", NOW * 1000)
}

#[test]
fn a_restore_brings_back_the_backup_and_loses_nothing() {
    let mut billing = paid(1..=1);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("books.backup");
    let head = backs_up(&billing, &target).expect("a backup").audit_head;
    let before = fs::read(&target).unwrap();
    pays(&billing, 2..=2);
    assert!(problem(restores(&target, &billing.database())).contains("another billingd serves this database"));
    assert_eq!(billing.row("SELECT count(*) FROM events"), "2", "the running one goes on");
    billing.stop();
    let restored = restores(&target, &billing.database()).expect("a restore");
    let kept = restored.kept.expect("the former database");
    assert_eq!(kept.file_name().unwrap(), "books.db.before-restore-20260921-141320");
    assert_eq!(rows(&open_outside(&kept), "SELECT count(*) FROM events"), ["2"]);
    assert!(fs::read(&target).unwrap() == before, "the backup stays");
    assert_eq!(billing.rows("SELECT event_id FROM events"), ["evt_1"]);
    let noted = billing.row("SELECT actor || ' ' || action || ' ' || detail FROM v_audit ORDER BY seq DESC LIMIT 1");
    assert!(noted.starts_with("operator:alice restore ") && noted.contains(&head), "{noted}");
    assert_eq!(billing.database().metadata().unwrap().mode(), kept.metadata().unwrap().mode());
    billing.restart();
    assert_eq!(billing.stripe_sends(&nth_invoice_paid(1)).short(), "200 duplicate applied");
    pays(&billing, 2..=2);
}

#[test]
fn nothing_that_is_written_or_read_meanwhile_is_lost_to_a_restore() {
    let mut billing = paid(1..=1);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("books.backup");
    backs_up(&billing, &target).expect("a backup");
    pays(&billing, 2..=2);
    let first = beside(&billing);
    let second = beside(&billing);
    assert!(lock::is_served(&billing.database()).unwrap());
    billing.stop();
    assert!(!lock::is_served(&billing.database()).unwrap(), "a command is no server");
    drop(first);
    assert!(problem(restores(&target, &billing.database())).contains("another command of billingd writes to it"));
    let alone = "INSERT INTO accounts (account_id) VALUES ('cus_new')";
    second.execute_batch(alone).expect("it goes on");
    drop(second);

    // A reader with a snapshot keeps the log from being folded in.
    billing.somebody_runs("PRAGMA wal_checkpoint(TRUNCATE)");
    let reader = billing.outside();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    billing.somebody_runs("INSERT INTO accounts (account_id) VALUES ('cus_newer')");
    assert!(problem(restores(&target, &billing.database())).contains("is open in another program"));
    let here = files(billing.database().parent().unwrap());
    assert!(!here.iter().any(|name| name.contains("restore")), "{here:?}");
    assert_eq!(rows(&reader, "SELECT account_id FROM accounts WHERE account_id LIKE 'cus_new%'"), ["cus_new"]);
    drop(reader);

    let stopped = require_stopped(&billing.database()).expect("nobody is there");
    let refused = open::beside(&billing.database(), &binding()).map(drop);
    assert!(problem(refused).contains("is being restored"));
    drop(stopped);
    let kept = restores(&target, &billing.database()).expect("a restore").kept.expect("the former database");
    let beside_it: Vec<_> = files(kept.parent().unwrap()).into_iter().filter(|name| name.contains("before")).collect();
    assert_eq!(beside_it, ["books.db.before-restore-20260921-141320"], "one file that needs no log");
    let all = "SELECT count(*) FROM accounts WHERE account_id LIKE 'cus_new%'";
    assert_eq!(rows(&open_outside(&kept), all), ["2"]);
    drop(beside(&billing));
    billing.restart();
}

#[test]
fn a_damaged_database_is_restored_and_kept_as_it_was() {
    let billing = paid(1..=1);
    let folder = tempfile::tempdir().unwrap();
    let (target, database) = (folder.path().join("books.backup"), folder.path().join("books.db"));
    backs_up(&billing, &target).expect("a backup");
    let damaged = "no database, but longer than the header of one; ".repeat(99);
    for suffix in ["", "-wal", "-journal"] {
        fs::write(folder.path().join(format!("books.db{suffix}")), &damaged).unwrap();
    }
    let kept = restores(&target, &database).expect("a restore").kept.expect("the former database");
    assert_eq!(fs::read_to_string(kept).unwrap(), damaged);
    assert_eq!(violations(&database), Vec::<String>::new());
    assert_eq!(rows(&open_outside(&database), "SELECT count(*) FROM events"), ["1"], "nothing is taken from old logs");
}

#[test]
fn a_backup_of_an_older_schema_is_restored_as_one_of_the_newest() {
    let billing = paid(1..=2);
    let folder = tempfile::tempdir().unwrap();
    let (target, database) = (folder.path().join("books.backup"), folder.path().join("books.db"));
    backs_up(&billing, &target).expect("a backup");
    let first = "DROP TABLE alerts; DROP TABLE deliveries; DROP INDEX events_dead; DROP INDEX events_received; 
                 DROP INDEX events_delivered; DROP INDEX audit_log_at; DROP INDEX audit_log_event;
                 ALTER TABLE event_payloads DROP COLUMN object_told_at; DROP VIEW v_references;
                 PRAGMA user_version = 1";
    open_outside(&target).execute_batch(first).expect("books of the first schema");
    restores(&target, &database).expect("a restore");
    let restored = open_outside(&database);
    assert_eq!(rows(&restored, "PRAGMA user_version"), [migrations::newest().to_string()]);
    assert_eq!(rows(&restored, "SELECT count(*) FROM events WHERE (SELECT count(*) FROM alerts) = 0"), ["2"]);
    assert_eq!(violations(&database), Vec::<String>::new());
    assert_eq!(rows(&open_outside(&target), "PRAGMA user_version"), ["1"], "the backup stays as it is");
}

#[test]
fn a_restore_keeps_what_only_the_log_of_a_killed_server_holds() {
    let billing = paid(1..=2);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("books.backup");
    backs_up(&billing, &target).expect("a backup");
    pays(&billing, 3..=3);
    let database = folder.path().join("books.db");
    for suffix in ["", "-wal"] {
        let with = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        fs::copy(with(&billing.database()), with(&database)).unwrap();
    }
    fs::write(folder.path().join("books.db-shm"), "of another time").unwrap();
    let kept = restores(&target, &database).expect("a restore").kept.expect("the former database");
    assert_eq!(rows(&open_outside(&kept), "SELECT count(*) FROM events"), ["3"]);
    assert_eq!(rows(&open_outside(&database), "SELECT count(*) FROM events"), ["2"]);
    assert_eq!(violations(&database), Vec::<String>::new());
    let elsewhere = folder.path().join("new.db");
    assert_eq!(restores(&target, &elsewhere).expect("a new machine").kept, None);
    assert_eq!(violations(&elsewhere), Vec::<String>::new());
}

#[test]
fn what_is_no_backup_of_these_books_is_not_restored() {
    let mut billing = paid(1..=1);
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good");
    backs_up(&billing, &good).expect("a backup");
    billing.stop();
    let changed = |sql: &str| {
        let copy = folder.path().join("changed");
        fs::copy(&good, &copy).unwrap();
        open_outside(&copy).execute_batch(sql).expect(sql);
        problem(restores(&copy, &billing.database()))
    };
    let before = fs::read(billing.database()).unwrap();
    assert!(changed("UPDATE balances SET balance = 7").contains("the books are violated"));
    assert!(changed("PRAGMA user_version = 99").contains("made by a newer billingd"));
    assert!(changed("PRAGMA application_id = 0").contains("is a database of something else"));
    assert!(changed("UPDATE meta SET value = 'live' WHERE key = 'livemode'").contains("holds live mode books"));
    assert!(changed("DELETE FROM meta").contains("does not say whose books"));
    fs::write(folder.path().join("empty"), "").unwrap();
    assert!(problem(restores(&folder.path().join("empty"), &billing.database())).contains("holds no books"));
    assert!(problem(restores(&folder.path().join("none"), &billing.database())).contains("cannot be copied"));
    let used = folder.path().join("used");
    let server = open::server(&used, &Binding { livemode: false, connected_account: None }).expect("a database");
    assert!(problem(restores(&used, &billing.database())).contains("a database in use"));
    drop(server);
    assert!(fs::read(billing.database()).unwrap() == before, "nothing was changed");
    let here = files(billing.database().parent().unwrap());
    assert!(!here.iter().any(|name| name.contains("restore")), "{here:?}");
}

fn keeping(payloads: i64, ignored_events: i64) -> Keep {
    let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap());
    Keep { payloads: seconds(payloads), ignored_events: seconds(ignored_events) }
}

fn prunes(billing: &Billing, keep: Keep) -> Pruned {
    let (reader, mut desk) = (billing.reader(), beside(billing));
    prune(&reader, &mut desk, keep, "operator:alice", NOW * 1000, &Stop::default()).expect("a pass")
}

fn ages(billing: &Billing, event: &str, seconds: i64) {
    let received = NOW * 1000 - seconds * 1000;
    billing.somebody_runs(&format!("UPDATE events SET received_at = {received} WHERE event_id = '{event}'"));
}

#[test]
fn retention_takes_what_is_old_enough_and_no_more() {
    let billing = paid(1..=3);
    let unknown = |id: &str| event(Shape::New, id, "totally.new.thing", json!({ "id": "n_1", "object": "n" }));
    for id in ["evt_old", "evt_new", "evt_exact", "evt_dismissed", "evt_named", "evt_ancient"] {
        assert_eq!(billing.stripe_sends(&unknown(id)).short(), "200 completed ignored");
    }
    let refund =
        json!({ "id": "re_1", "object": "refund", "amount": 5, "currency": "usd", "charge": "ch_9", "created": NOW });
    assert_eq!(billing.stripe_sends(&event(Shape::New, "evt_waits", "refund.created", refund)).status, 202);
    for (id, age) in [("evt_1", 30 * DAY + 1), ("evt_2", 30 * DAY), ("evt_3", 29 * DAY), ("evt_waits", 900 * DAY)] {
        ages(&billing, id, age);
    }
    for (id, age) in [("evt_old", 90 * DAY + 1), ("evt_exact", 90 * DAY), ("evt_new", 9 * DAY)] {
        ages(&billing, id, age);
    }
    // A number with fewer digits is an older one, whatever its text says.
    billing.somebody_runs("UPDATE events SET received_at = 9 WHERE event_id = 'evt_ancient'");
    for id in ["evt_dismissed", "evt_named"] {
        ages(&billing, id, 900 * DAY);
    }
    billing.somebody_runs("UPDATE events SET dismissed = 1 WHERE event_id = 'evt_dismissed'");
    billing.somebody_runs("UPDATE events SET object_id = 'in_1' WHERE event_id = 'evt_named'");
    billing.somebody_runs("UPDATE invoices SET source_event_id = 'evt_named' WHERE invoice_id = 'in_1'");
    let pruned = prunes(&billing, keeping(30 * DAY, 90 * DAY));
    assert_eq!((pruned.payloads, pruned.ignored_events, pruned.stopped), (4, 2, false));
    assert!(pruned.payload_bytes > 400, "{pruned:?}");
    let events = "SELECT event_id FROM events ORDER BY event_id";
    let expected = ["evt_1", "evt_2", "evt_3", "evt_dismissed", "evt_exact", "evt_named", "evt_new", "evt_waits"];
    assert_eq!(billing.rows(events), expected);
    let payloads = "SELECT event_id FROM event_payloads ORDER BY event_id";
    assert_eq!(billing.rows(payloads), ["evt_2", "evt_3", "evt_new", "evt_waits"]);
    assert_eq!(billing.stripe_sends(&nth_invoice_paid(1)).short(), "200 duplicate applied", "the memory stays");
    assert_eq!(billing.stripe_sends(&unknown("evt_old")).short(), "200 completed ignored");
    let noted = "SELECT actor, action, subject FROM v_audit WHERE action = 'prune'";
    assert_eq!(billing.rows(noted), ["operator:alice|prune|retention"]);
    assert_eq!(prunes(&billing, keeping(30 * DAY, 90 * DAY)), Pruned::default());
    assert_eq!(billing.rows(noted).len(), 1, "a pass that deletes nothing leaves no row");
}

#[test]
fn retention_goes_on_over_many_batches() {
    let billing = spawn();
    billing.somebody_runs(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6001)
         INSERT INTO events (event_id, source, type, status, outcome, livemode, created_at, received_at, tried_at, processed_at)
         SELECT 'evt_' || i, 'webhook', 'a', 'completed', iif(i % 3 = 0, 'ignored', 'applied'), 0, 1, i % 7, 1, 1 FROM n;
         INSERT INTO event_payloads (event_id, body, digest) SELECT event_id, x'00', x'00' FROM events;
         INSERT INTO tier_changes (account_id, source_event_id, at) VALUES ('cus_1', 'evt_3', 1), ('cus_1', 'evt_6000', 1);
         INSERT INTO accounts (account_id) VALUES ('cus_1');",
    );
    let pruned = prunes(&billing, keeping(0, 0));
    assert_eq!((pruned.payloads, pruned.payload_bytes, pruned.ignored_events), (4003, 8006, 1998));
    assert_eq!(billing.row("SELECT count(*), count(*) FILTER (WHERE outcome = 'ignored') FROM events"), "4003|2");
    assert_eq!(billing.row("SELECT count(*) FROM event_payloads"), "0");
    let stop = Stop::default();
    stop.set();
    let (reader, mut desk) = (billing.reader(), beside(&billing));
    let pruned = prune(&reader, &mut desk, keeping(0, 0), "job:retention", NOW * 1000, &stop).expect("a pass");
    assert_eq!(pruned, Pruned { stopped: true, ..Pruned::default() });
}

/// A desk before which somebody else always comes.
struct After<'a>(CommandConnection, &'a Billing, &'static str);

impl Desk for After<'_> {
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.1.somebody_runs(self.2);
        self.0.write(work)
    }
}

#[test]
fn retention_leaves_the_payload_of_what_a_replay_has_opened_meanwhile() {
    let mut billing = paid(1..=2);
    let opens = "UPDATE events SET status = 'pending', needs = 'replay', outcome = NULL, processed_at = NULL
                 WHERE event_id = 'evt_1'";
    let mut desk = After(beside(&billing), &billing, opens);
    let bytes = billing.row("SELECT length(body) + length(digest) FROM event_payloads WHERE event_id = 'evt_2'");
    let pruned = prune(&billing.reader(), &mut desk, keeping(0, 0), "job:retention", NOW * 1000 + 1, &Stop::default());
    let pruned = pruned.expect("a pass");
    assert_eq!((pruned.payloads, pruned.payload_bytes.to_string()), (1, bytes));
    assert_eq!(billing.rows("SELECT event_id FROM event_payloads"), ["evt_1"]);
    billing.is_broken_on_purpose();
}

/// Or each event that retention deletes is looked for in all of it.
#[test]
fn whatever_names_an_event_is_found_by_it() {
    let billing = spawn();
    let naming = "SELECT t.name || '.' || f.\"from\" FROM sqlite_schema t, pragma_foreign_key_list(t.name) f
                  WHERE t.type = 'table' AND f.\"table\" = 'events' ORDER BY 1";
    let indexed = "SELECT DISTINCT t.name || '.' || c.name FROM sqlite_schema t, pragma_index_list(t.name) i,
                   pragma_index_info(i.name) c WHERE t.type = 'table' AND c.seqno = 0 AND i.partial = 0 ORDER BY 1";
    let indexed = billing.rows(indexed);
    let naming = billing.rows(naming);
    assert!(naming.len() > 3, "{naming:?}");
    for column in naming {
        assert!(indexed.contains(&column), "{column} has no index");
    }
}

/// Everything that people and jobs do beside a server, while it is busy.
#[test]
fn a_busy_server_notices_nothing_of_those_who_keep_its_books() {
    const SENDERS: usize = 4;
    const EACH: usize = 60;
    let billing = Setup::new().with("server.request_timeout", "30s").spawn();
    let customer = json!({ "id": "cus_1", "object": "customer", "metadata": {} });
    let met = billing.stripe_sends(&event(Shape::New, "evt_customer", "customer.created", customer));
    assert_eq!(met.short(), "200 completed applied");
    let folder = tempfile::tempdir().unwrap();
    let is_over = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let (billing, folder, is_over) = (&billing, &folder, &is_over);
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                scope.spawn(move || {
                    for number in 0..EACH {
                        let (event, invoice) = (format!("evt_{sender}_{number}"), format!("in_{sender}_{number}"));
                        let event = invoice_paid(Shape::New, &event, &invoice, "cus_1", 5);
                        assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
                    }
                })
            })
            .collect();
        let keeper = scope.spawn(move || {
            let mut desk = beside(billing);
            let mut round = 0;
            while !is_over.load(Ordering::SeqCst) || round == 0 {
                round += 1;
                let written = backs_up(billing, &folder.path().join("books.backup")).expect("a backup");
                assert!(written.events >= 1);
                let pruned = prune(
                    &billing.reader(),
                    &mut desk,
                    keeping(0, 0),
                    "job:retention",
                    NOW * 1000 + 1,
                    &Stop::default(),
                );
                pruned.expect("a pass");
                assert_eq!(billing.violations(), Vec::<String>::new());
                let adjustment = Adjustment {
                    account: "cus_1".into(),
                    amount: 7,
                    unit: "usd".into(),
                    reason: "a test".into(),
                    key: round.to_string(),
                    allow_debt: true,
                    operator: "alice".into(),
                };
                let id = EventId::parse(&format!("op_{round}")).expect("an id");
                adjust(&mut desk, &adjustment, &id, false, NOW * 1000).expect("an entry");
            }
            round
        });
        senders.into_iter().for_each(|sender| sender.join().expect("a sender"));
        is_over.store(true, Ordering::SeqCst);
        keeper.join().expect("a keeper")
    });
    let expected = i64::try_from(SENDERS * EACH * 5).unwrap() + rounds * 7;
    assert_eq!(billing.row("SELECT balance FROM v_balances"), expected.to_string());
}

/// A clock for each test, since a service takes a plain function.
macro_rules! clock {
    ($time:ident, $clock:ident) => {
        static $time: AtomicI64 = AtomicI64::new(NOW);

        fn $clock() -> i64 {
            $time.load(Ordering::SeqCst) * 1000
        }
    };
}

/// A job that counts its runs; it fails on `fails`, and panics on `panics`.
fn counting(
    name: &'static str,
    schedule: &str,
    runs: &Arc<AtomicUsize>,
    fails: &Arc<AtomicBool>,
) -> Job<CommandConnection> {
    let (runs, fails) = (Arc::clone(runs), Arc::clone(fails));
    Job::new(name, &Some(Schedule::parse(schedule).unwrap()), move |_: &mut Context<'_, CommandConnection>| {
        runs.fetch_add(1, Ordering::SeqCst);
        assert!(name != "panics", "a bug");
        anyhow::ensure!(!fails.load(Ordering::SeqCst), "no room");
        Ok("done".to_owned())
    })
}

clock!(DUE, due_clock);

#[test]
fn what_was_missed_is_made_up_for_once() {
    let billing = spawn();
    let (runs, fails, other) = (Arc::default(), Arc::default(), Arc::default());
    let since = NOW;
    let runner = || {
        let jobs =
            vec![counting("panics", "0 0 4 * * *", &other, &fails), counting("daily", "0 0 4 * * *", &runs, &fails)];
        Runner::new(jobs, beside(&billing), billing.reader(), due_clock, since, Stop::default())
    };
    let at = |day: i64, hour: i64| DUE.store(NOW - NOW % DAY + day * DAY + hour * 3_600, Ordering::SeqCst);
    let count = || runs.load(Ordering::SeqCst);
    let mut first = runner();
    at(0, 23);
    first.run_due().unwrap();
    assert_eq!(count(), 0, "nothing is missed before the first start");
    at(3, 12);
    first.run_due().unwrap();
    first.run_due().unwrap();
    assert_eq!(count(), 1, "three nights are one run");
    runner().run_due().unwrap();
    assert_eq!(count(), 1, "a restart repeats nothing that succeeded");
    fails.store(true, Ordering::SeqCst);
    at(4, 4);
    first.run_due().unwrap();
    first.run_due().unwrap();
    assert_eq!(count(), 2, "a failed run waits");
    runner().run_due().unwrap();
    assert_eq!(count(), 3, "a restart tries it again");
    fails.store(false, Ordering::SeqCst);
    at(5, 4);
    first.run_due().unwrap();
    assert_eq!(count(), 4, "and the next one runs");
    at(365, 4);
    first.run_due().unwrap();
    at(6, 5);
    first.run_due().unwrap();
    first.run_due().unwrap();
    runner().run_due().unwrap();
    assert_eq!(count(), 6, "a clock that was a year ahead makes no year without runs");
    let last = billing.reader().read(jobs::last_runs).unwrap();
    let told: Vec<_> =
        last.iter().map(|run| (run.job.as_str(), run.succeeded, run.result.as_deref().unwrap())).collect();
    assert_eq!(told[0], ("daily", true, "done"));
    assert!(told[1].0 == "panics" && !told[1].1 && told[1].2.contains("panicked"), "{told:?}");
    let failed = "SELECT result, finished_at IS NOT NULL FROM job_runs WHERE job = 'daily' AND succeeded = 0";
    assert_eq!(billing.rows(failed), ["no room|1", "no room|1"]);
}

clock!(BUSY, busy_clock);

#[test]
fn a_run_that_a_busy_database_did_not_let_begin_is_still_due() {
    let billing = spawn();
    let (runs, fails) = (Arc::default(), Arc::default());
    let desk = beside(&billing);
    desk.busy_timeout(Duration::ZERO).unwrap();
    let jobs = vec![counting("daily", "0 0 4 * * *", &runs, &fails)];
    let mut runner = Runner::new(jobs, desk, billing.reader(), busy_clock, NOW, Stop::default());
    BUSY.store(NOW + DAY, Ordering::SeqCst);
    let lock = billing.somebody_locks();
    assert!(problem(runner.run_due()).contains("locked"));
    drop(lock);
    runner.run_due().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_thousand_runs_and_the_last_good_one_of_each_job_are_remembered() {
    let billing = spawn();
    let connection = beside(&billing);
    let run = |job: &str, succeeded: bool| {
        let run = jobs::begin(&connection, job, NOW).unwrap();
        jobs::end(&connection, run, succeeded, "text", NOW).unwrap();
    };
    run("yearly", true);
    run("yearly", false);
    (0..=jobs::RUNS_KEPT).for_each(|_| run("often", true));
    assert_eq!(billing.row("SELECT count(*) FROM job_runs WHERE job = 'often'"), jobs::RUNS_KEPT.to_string());
    assert_eq!(billing.rows("SELECT succeeded FROM job_runs WHERE job = 'yearly'"), ["1"]);
    assert_eq!(jobs::last_successes(&connection, NOW).unwrap().len(), 2);
}

clock!(STANDING, standing_clock);

#[test]
fn a_job_never_overlaps_itself_and_ends_when_it_is_told_to() {
    let billing = spawn();
    let (began, begins) = channel();
    let waits = Job::new("waits", &None, move |job: &mut Context<'_, CommandConnection>| {
        began.send(()).unwrap();
        while !job.stop.is_set() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(String::new())
    });
    let stop = Stop::default();
    let jobs = Jobs::start(vec![waits], beside(&billing), billing.reader(), standing_clock, NOW, stop.clone()).unwrap();
    assert!(jobs.ask("waits"));
    begins.recv().unwrap();
    assert!(!jobs.ask("waits"), "it runs already");
    assert_eq!(billing.row("SELECT job, finished_at FROM job_runs"), "waits|");
    stop.set();
    jobs.stop();
    jobs.into_thread().join().unwrap();
    assert!(begins.recv().is_err(), "one run");
    assert_eq!(billing.row("SELECT succeeded, result FROM job_runs"), "0|cut short by the end of the server");
}

clock!(MONTHS, months_clock);

#[test]
fn a_server_makes_up_for_the_nights_that_it_was_down() {
    let mut billing = Setup::new().clock(months_clock).with("jobs.backup", "0 0 5 * * *").spawn();
    pays(&billing, 1..=1);
    billing.stop();
    MONTHS.fetch_add(40 * DAY, Ordering::SeqCst);
    billing.restart();
    let done = "SELECT count(*) FROM job_runs WHERE succeeded = 1 AND job IN ('retention', 'backup')";
    wait_until("both jobs are done", || billing.row(done) == "2");
    assert_eq!(billing.row("SELECT count(*) FROM event_payloads"), "0");
    let backups = billing.database().with_file_name("backups");
    assert_eq!(files(&backups), ["books-20261031-141320.backup"]);
    assert_eq!(violations(&backups.join("books-20261031-141320.backup")), Vec::<String>::new());
}

/// What a command says, with what differs from run to run replaced.
fn said(text: &str) -> String {
    let word = |word: &str| match word.trim_end_matches([',', ')', ':']) {
        hash if hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => word.replace(hash, "HASH"),
        time if time.contains(".before-restore-") => word.replace(&time[time.len() - 15..], "TIME"),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_prune_backup_and_restore_say() {
    let mut serving = Serving::start();
    check(&serving.run(&["send", "invoice.paid"]), 0, &["applied"]);
    let ran = serving.run(&["prune", "--as", "alice"]);
    let expected = "deleted 0 payloads (0 B) and 0 ignored events; the books stay as they are\n\
                    the room is used again by what comes next; the file does not shrink";
    assert_eq!((ran.status, said(&ran.out).as_str()), (0, expected));
    let ran = serving.run(&["backup", "copy.backup"]);
    let out = said(&ran.out).replace(" KiB", "");
    let out = out.split_once(": ").and_then(|(path, rest)| Some((path, rest.split_once(", ")?.1))).unwrap();
    let expected = "1 event, 1 audit row, head HASH\n\
                    it is one file, proven to be whole; it holds customers' data\n\
                    to restore it: stop the service, then `billingd restore copy.backup`";
    assert_eq!((ran.status, out), (0, ("copy.backup", expected)));
    check(&serving.run(&["backup", "billingd.toml"]), 1, &["billingd: billingd.toml: exists, and is no former backup"]);
    check(
        &serving.run(&["restore", "copy.backup"]),
        1,
        &["billingd: billingd.db: another billingd serves this database"],
    );
    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    let command = open::beside(&serving.path().join("billingd.db"), &binding()).unwrap();
    check(
        &serving.run(&["restore", "copy.backup"]),
        1,
        &["billingd: billingd.db: another command of billingd writes to it; wait for its end, or stop it first"],
    );
    drop(command);
    let ran = serving.run(&["restore", "copy.backup", "--as", "alice"]);
    let expected = "billingd.db is copy.backup now: 1 event, 2 audit rows, head HASH\n\
                    the books are whole\n\
                    the former database is kept: billingd.db.before-restore-TIME\n\
                    next: start the service, then `billingd reconcile` fetches from Stripe what came after the backup";
    assert_eq!((ran.status, said(&ran.out).as_str()), (0, expected), "{}", ran.err);
    let json = serving.run(&["backup", "copy.backup", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["path"], &json["events"]), (&"copy.backup".into(), &1.into()));
    check(&serving.run(&["audit", "list"]), 0, &["operator:alice  restore"]);
    check(&serving.run(&["verify"]), 0, &["the books are whole"]);
    let elsewhere = tempfile::tempdir().unwrap();
    for command in ["prune", "verify"] {
        check(&run(elsewhere.path(), &[command]), 1, &["there is no such database"]);
    }
    let database = elsewhere.path().join("billingd.db").display().to_string();
    check(&run(elsewhere.path(), &["backup", "copy"]), 1, &["there is no such database", &database]);
    check(&run(elsewhere.path(), &["backup", "."]), 1, &[". is a folder; name a file in it"]);
}

#[test]
fn what_verify_says_of_violated_books() {
    let serving = Serving::start();
    check(&serving.run(&["send", "invoice.paid"]), 0, &["applied"]);
    open_outside(&serving.path().join("billingd.db"))
        .execute_batch("UPDATE balances SET balance = 1; DROP TRIGGER audit_log_update; UPDATE audit_log SET actor = 'me' WHERE seq = 1")
        .unwrap();
    let ran = serving.run(&["verify"]);
    let expected = "VIOLATED the audit log is an unbroken chain\n         \
                    audit row 1 is the first broken link: hash: the content was changed\n\
                    VIOLATED append-only tables are guarded\n         \
                    audit_log has lost its guard against UPDATE\n\
                    VIOLATED every balance is the sum of its lines\n         balance of";
    assert_eq!(ran.status, 3);
    assert!(ran.out.starts_with(expected), "{}", ran.out);
    assert!(ran.out.contains("ok       foreign keys\n"), "{}", ran.out);
    check(
        &serving.run(&["backup", "copy"]),
        1,
        &["billingd: billingd.db: the books are violated, and nothing is written"],
    );
}

#[test]
fn a_signal_has_the_server_write_a_backup() {
    let mut serving = Serving::start();
    let server = Pid::from_raw(i32::try_from(serving.child.id()).unwrap()).unwrap();
    kill_process(server, Signal::USR1).unwrap();
    let folder = serving.path().join("backups");
    let written = || folder.exists() && files(&folder).iter().any(|name| name.ends_with(".backup"));
    wait_until("there is a backup", written);
    kill_process(server, Signal::TERM).unwrap();
    assert!(serving.child.wait().unwrap().success());
    let name = files(&folder).pop().unwrap();
    assert!(name.starts_with("billingd-20"), "{name}");
    assert_eq!(violations(&folder.join(name)), Vec::<String>::new());
    let recorded = "SELECT job, succeeded FROM job_runs";
    let path = serving.path().join("billingd.db");
    assert_eq!(rows(&open_outside(&path), recorded).len(), 1);
}
