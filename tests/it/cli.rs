//! The commands as a person runs them: the real binary, its exit status and what it prints.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use billingd::samples::Sample;
use serde_json::{Value, json};

use super::fixtures::{Shape, event, nth_invoice_paid};
use super::harness::open_outside;

/// Needs privileges, and serves nothing that is still in use.
const NOBODY_LISTENS: u16 = 1;

const SECRET: &str = "whsec_test_only_5d1f";

/// What a command answered.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary, without anything from this test's environment that it would read.
pub(crate) fn billingd(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_billingd"));
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(folder);
    command
}

pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Ran {
    let output = billingd(folder).args(arguments).output().unwrap();
    Ran {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[track_caller]
pub(crate) fn check(ran: &Ran, status: i32, said: &[&str]) {
    for text in said {
        assert!(ran.out.contains(text) || ran.err.contains(text), "{text:?} is not in:\n{}{}", ran.out, ran.err);
    }
    assert_eq!(ran.status, status, "{}{}", ran.out, ran.err);
}

/// A server that is killed when the test ends.
pub(crate) struct Serving {
    pub(crate) child: Child,
    folder: tempfile::TempDir,
}

impl Serving {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        std::fs::write(folder.path().join("billingd.toml"), config(port, false)).unwrap();
        let mut server = billingd(folder.path());
        server.args(["--config", "billingd.toml", "serve"]).stdout(Stdio::null()).stderr(Stdio::null());
        let serving = Self { child: server.spawn().unwrap(), folder };
        wait_until_ready(port);
        serving
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        run(self.path(), &[&["--config", "billingd.toml"], arguments].concat())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn config(port: u16, livemode: bool) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[[webhook]]\nsigning_secrets = [\"{SECRET}\"]\n\
         [stripe]\nlivemode = {livemode}\n"
    )
}

fn wait_until_ready(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while ureq::get(format!("http://127.0.0.1:{port}/readyz")).call().is_err() {
        assert!(Instant::now() < deadline, "the server is not ready");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn demo_replays_the_incident_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        billingd(folder.path()).env("TMPDIR", folder.path()).args(["--config", "no-such-file", "demo"]).output();
    let output = output.unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{out}");
    for said in [
        "90 deliveries of payments, 18 grants",
        "18 grants, 4 tier changes; 74 repeats",
        "answer lost ×1",
        "user-18  2500 credits",
        "the books are whole",
    ] {
        assert!(out.contains(said), "{said:?} is not in:\n{out}");
    }
    assert!(out.lines().count() <= 30, "more than one screen:\n{out}");
    assert_eq!(output.stderr, b"", "logs are off");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn demo_tells_programs_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["demo", "--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.status, &report["as_expected"], &report["deliveries"]), (0, &true.into(), &99.into()));
    assert_eq!(report["effects"], json!({ "clawback": 1, "grant": 18, "tier change": 4 }));
}

#[test]
fn init_writes_a_config_once_and_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    check(
        &run(folder.path(), &["init", "etc"]),
        0,
        &["wrote etc/billingd.toml", "export STRIPE_WEBHOOK_SECRET", "check"],
    );
    assert_eq!(mode(folder.path().join("etc/billingd.toml")), 0o600);
    assert_eq!(mode(folder.path().join("etc")), 0o750);
    let written = std::fs::read(folder.path().join("etc/billingd.toml")).unwrap();
    check(&run(folder.path(), &["init", "etc"]), 1, &["exists already"]);
    assert_eq!(std::fs::read(folder.path().join("etc/billingd.toml")).unwrap(), written);
    let again = run(folder.path(), &["init"]);
    check(&again, 0, &["wrote ./billingd.toml"]);
    assert_ne!(std::fs::read(folder.path().join("billingd.toml")).unwrap(), written, "tokens are fresh");
}

#[test]
fn what_init_writes_passes_check() {
    let folder = tempfile::tempdir().unwrap();
    check(&run(folder.path(), &["init"]), 0, &[]);
    let output = billingd(folder.path())
        .env("STRIPE_WEBHOOK_SECRET", SECRET)
        .args(["--config", "billingd.toml", "check"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn send_delivers_samples_once_and_again() {
    let serving = Serving::start();
    let ran = serving.run(&["send", "invoice.paid", "--times", "5"]);
    check(&ran, 0, &["invoice.paid", "evt_1", "200 completed applied ×1, 200 duplicate ×4"]);
    check(&serving.run(&["accounts", "list"]), 0, &["20.00 USD"]);
    let ran =
        serving.run(&["send", "customer.created", "invoice.paid", "--times", "20", "--concurrency", "8", "--json"]);
    let sent: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.status, &sent[0]["type"], &sent[1]["type"]),
        (0, &"customer.created".into(), &"invoice.paid".into())
    );
    let told: u64 = sent[1]["answers"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(told, 20);
    check(&serving.run(&["send", "invoice.paid", "--reference", "user-42"]), 0, &["200 completed applied ×1"]);
    check(&serving.run(&["accounts", "show", "user-42"]), 0, &["reference user-42", "20.00 USD"]);
}

#[test]
fn send_posts_files_byte_for_byte_and_tells_what_was_refused() {
    let serving = Serving::start();
    let sample = Sample::new(4, 1_796_054_400);
    std::fs::write(serving.path().join("event.json"), sample.body("customer.created").unwrap()).unwrap();
    std::fs::write(serving.path().join("junk.json"), "{}").unwrap();
    let ran = serving.run(&["send", "event.json"]);
    check(&ran, 0, &["customer.created", &sample.event_id(), "200 completed applied ×1"]);
    let payload = serving.run(&["events", "show", &sample.event_id(), "--payload"]);
    assert_eq!(payload.out.trim_end().as_bytes(), sample.body("customer.created").unwrap());
    check(&serving.run(&["send", "junk.json"]), 3, &["400 not_an_event ×1"]);
    check(&serving.run(&["send", "invoice.eaten"]), 1, &["neither a file nor a type", "invoice.paid"]);
}

/// What a command prints, with one word for each hash of a row.
fn transcript(ran: &Ran) -> String {
    let mut text = String::new();
    let mut rest = ran.out.as_str();
    while let Some((before, after)) = rest.split_once("import:") {
        text.push_str(before);
        text.push_str("import:HASH");
        rest = after.trim_start_matches(|one: char| one.is_ascii_hexdigit());
    }
    text + rest
}

#[test]
fn an_old_table_is_shown_taken_over_and_cleaned_up() {
    let serving = Serving::start();
    let table = "account_id,amount,source_event_id,source_object\n\
                 cus_A,100,evt_a,in_3\ncus_A,100,evt_b,in_3\ncus_A,-150,use_1,use_1\n\
                 cus_B,40,evt_c,pi_7\ncus_B,40,evt_d,pi_7\n";
    std::fs::write(serving.path().join("old.csv"), table).unwrap();
    let rows = "\
LINE  ACCOUNT        AMOUNT  SOURCE EVENT  OBJECT  RESULT                                FACT
   2  cus_A     100 credits  evt_a         in_3    imported                              grant:invoice:in_3
   3  cus_A     100 credits  evt_b         in_3    reversed, repeats grant:invoice:in_3  import:HASH
   4  cus_A    -150 credits  use_1         use_1   imported                              import:HASH
   5  cus_B      40 credits  evt_c         pi_7    imported                              import:HASH
   6  cus_B      40 credits  evt_d         pi_7    imported                              import:HASH

ACCOUNT     BEFORE        ROWS      REVERSED        AFTER
cus_A    0 credits  50 credits  -100 credits  -50 credits
cus_B    0 credits  80 credits     0 credits   80 credits

4 imported, 1 repeat reversed, 0 imported before; left out, with an amount of 0: 0
";
    let dry = serving.run(&["import-ledger", "old.csv"]);
    assert_eq!(transcript(&dry), format!("{rows}nothing is changed yet; run the same with --apply\n"));
    assert_eq!((dry.status, dry.err.as_str()), (0, ""));
    check(&serving.run(&["accounts", "list"]), 0, &["no accounts"]);
    let done = serving.run(&["import-ledger", "old.csv", "--apply", "--as", "alice"]);
    assert_eq!((done.status, transcript(&done)), (0, rows.into()));
    let again = serving.run(&["import-ledger", "old.csv", "--apply", "--json"]);
    let report: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!((again.status, &report["already_imported"], &report["imported"]), (0, &5.into(), &0.into()));
    assert_eq!(report["rows"][1]["result"], "already_imported");

    let duplicates = "\
PAID                     STAYS                REVERSED             ACCOUNT       AMOUNT  BY EVENT
payment pi_7 in credits  entry 5 import:HASH  entry 6 import:HASH  cus_B    -40 credits  op_reversal:6

ACCOUNT      BEFORE       AFTER
cus_B    80 credits  40 credits

";
    let columns = |ran: &Ran| {
        // The width of a hash is not that of its word.
        transcript(ran)
            .replace("STAYS                                            ", "STAYS                ")
            .replace("REVERSED                                         ", "REVERSED             ")
    };
    // Whoever only looks waits for nobody, and nobody for them.
    let mut writer = open_outside(&serving.path().join("billingd.db"));
    let lock = writer.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let dry = serving.run(&["repair", "duplicates"]);
    lock.rollback().unwrap();
    let told = "1 to reverse; nothing is changed yet, run the same with --apply\n";
    assert_eq!((dry.status, columns(&dry)), (3, format!("{duplicates}{told}")));
    let done = serving.run(&["repair", "duplicates", "--apply", "--as", "alice"]);
    assert_eq!((done.status, columns(&done)), (0, format!("{duplicates}1 reversed\n")));
    let none = serving.run(&["repair", "duplicates"]);
    assert_eq!((none.status, none.out.as_str()), (0, "nothing was granted twice\n"));
    check(&serving.run(&["verify"]), 0, &["ok       nothing stands of what is reversed", "the books are whole"]);
    check(&serving.run(&["audit", "list"]), 0, &["operator:alice", "reversal"]);
}

#[test]
fn a_table_with_an_error_changes_nothing() {
    let serving = Serving::start();
    let import = |table: &str| {
        std::fs::write(serving.path().join("old.csv"), table).unwrap();
        serving.run(&["import-ledger", "old.csv", "--apply"])
    };
    let bad = import("account_id,amount,source_event_id\ncus_A,100,evt_a\ncus_A,ten,evt_b\n");
    check(&bad, 1, &["old.csv: line 3, column amount: \"ten\" is no whole number", "nothing is imported"]);
    check(&import("account,credits\n"), 1, &["line 1: there is no column \"account\""]);
    check(&serving.run(&["import-ledger", "no-such-file"]), 1, &["no-such-file: "]);
    check(&serving.run(&["import-ledger"]), 2, &["FILE"]);
    check(&serving.run(&["accounts", "list"]), 0, &["no accounts"]);
    check(&import("account_id,amount,source_event_id\n"), 0, &["no rows", "0 imported"]);
}

#[test]
fn send_stays_on_this_machine_and_away_from_live_books() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("test.toml"), config(NOBODY_LISTENS, false)).unwrap();
    std::fs::write(folder.path().join("live.toml"), config(NOBODY_LISTENS, true)).unwrap();
    let send =
        |config, more: &[&str]| run(folder.path(), &[&["--config", config, "send", "invoice.paid"], more].concat());
    check(&send("test.toml", &["--to", "http://example.com/"]), 1, &["loopback addresses only"]);
    check(&send("live.toml", &[]), 1, &["refused against live books"]);
    check(&send("test.toml", &[]), 1, &["nothing listens at", "start `billingd serve`"]);
}

/// An event that fails, one that waits, and one that is done.
fn one_of_each(serving: &Serving) {
    let mut poison = nth_invoice_paid(1);
    poison["data"]["object"]["amount_paid"] = json!("much");
    let refund = json!({
        "id": "re_1", "object": "refund", "amount": 500, "currency": "usd", "status": "succeeded", "charge": null,
        "payment_intent": "pi_1", "created": 1_700_000_000,
    });
    let waiting = event(Shape::New, "evt_2", "refund.created", refund);
    for (name, event) in [("poison", poison), ("waiting", waiting), ("done", nth_invoice_paid(3))] {
        std::fs::write(serving.path().join(format!("{name}.json")), event.to_string()).unwrap();
        serving.run(&["send", &format!("{name}.json")]);
    }
}

#[test]
fn what_did_not_get_through_is_shown_in_groups_and_with_what_to_do_next() {
    let serving = Serving::start();
    check(&serving.run(&["events", "list", "--status", "failed"]), 0, &["no events"]);
    one_of_each(&serving);
    let failed = serving.run(&["events", "list", "--status", "failed"]);
    check(
        &failed,
        0,
        &["EVENTS  DEAD LETTERS  TYPE", "     1             0  invoice.paid  unreadable_object", "evt_1"],
    );
    let pending = serving.run(&["events", "list", "--status", "pending"]);
    check(&pending, 0, &["refund.created  waits for payment", "payment:pi_1"]);
    let rows: Value =
        serde_json::from_str(&serving.run(&["events", "list", "--status", "failed", "--json"]).out).unwrap();
    assert_eq!(
        (rows[0]["event_id"].as_str(), rows[0]["error_code"].as_str()),
        (Some("evt_1"), Some("unreadable_object"))
    );
    let story = serving.run(&["events", "show", "evt_2"]);
    check(
        &story,
        0,
        &["waits for    payment:pi_1", "invoice_payment.paid", "payload      kept", "events replay evt_2 --dry-run"],
    );
    check(
        &serving.run(&["events", "show", "evt_1"]),
        0,
        &["unreadable_object", "failures     1", "events dismiss evt_1"],
    );
    let done = serving.run(&["events", "show", "evt_3"]);
    check(&done, 0, &["outcome      applied", "entries", "20.00 USD", "grant"]);
    assert!(!done.out.contains("next:"), "{}", done.out);
    check(&serving.run(&["events", "show", "evt_9"]), 1, &["there is no event evt_9", "events list"]);
}

#[test]
fn replay_tells_what_it_does_and_why_it_does_nothing() {
    let serving = Serving::start();
    one_of_each(&serving);
    let failed = serving.run(&["events", "replay", "--failed"]);
    check(
        &failed,
        3,
        &["unreadable_object", "evt_1  invoice.paid  failed: unreadable_object", "amount_paid", "remove the cause"],
    );
    check(&serving.run(&["events", "replay", "--pending", "--type", "refund.created"]), 0, &["waits: payment:pi_1"]);
    check(&serving.run(&["events", "replay", "--failed", "--type", "no.such"]), 0, &["no such events"]);
    let dry = serving.run(&["events", "replay", "evt_1", "--dry-run", "--as", "alice"]);
    check(&dry, 3, &["would fail", "audit   operator:alice event.failed in_1", "dry run: nothing was written"]);
    check(&serving.run(&["events", "replay", "evt_3"]), 0, &["not run again: was completed before as applied"]);
    check(&serving.run(&["events", "replay", "evt_1", "evt_9"]), 1, &["there is no event evt_9; nothing ran again"]);
    for usage in [&["events", "replay"] as &[&str], &["events", "replay", "evt_1", "--failed"]] {
        check(&serving.run(usage), 2, &["Usage"]);
    }
    let json: Value = serde_json::from_str(&serving.run(&["events", "replay", "--failed", "--json"]).out).unwrap();
    assert_eq!((&json["plan"]["groups"][0]["count"], &json["counts"]["failed"]), (&json!(1), &json!(1)));
    assert_eq!(json["events"][0]["result"], "failed");
}

#[test]
fn dismiss_needs_a_reason_and_known_events() {
    let serving = Serving::start();
    one_of_each(&serving);
    check(&serving.run(&["events", "dismiss", "evt_1"]), 2, &["--reason"]);
    let unknown = serving.run(&["events", "dismiss", "evt_1", "evt_9", "--reason", "another shop"]);
    check(&unknown, 1, &["there is no event evt_9; nothing is dismissed", "events list"]);
    let ran = serving.run(&["events", "dismiss", "evt_1", "evt_3", "--reason", "another shop"]);
    check(&ran, 0, &["evt_1  invoice.paid  dismissed", "evt_3  invoice.paid  was completed before as applied"]);
    check(&serving.run(&["events", "show", "evt_1"]), 0, &["dismissed    by a person", "reason       another shop"]);
    check(&serving.run(&["events", "replay", "evt_1"]), 0, &["not run: dismissed (another shop)", "--dismissed"]);
}

#[test]
fn import_counts_what_it_read_and_names_what_it_could_not_read() {
    let serving = Serving::start();
    let lines = format!("{}\n{{\"id\":\n{}\n", nth_invoice_paid(1), nth_invoice_paid(2));
    std::fs::write(serving.path().join("events.ndjson"), &lines).unwrap();
    let broken = serving.run(&["events", "import", "events.ndjson"]);
    check(
        &broken,
        3,
        &["2 read: 1 new, 0 duplicate, 0 pending, 0 failed, 0 ignored, 1 unreadable", "entry 2 (line 2)"],
    );
    check(&broken, 3, &["correct the file and import it again"]);
    let mut command = billingd(serving.path());
    command.args(["--config", "billingd.toml", "events", "import", "-", "--json"]);
    let mut piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let list = json!({ "object": "list", "data": [nth_invoice_paid(1), nth_invoice_paid(2)] }).to_string();
    std::io::Write::write_all(&mut piped.stdin.take().unwrap(), list.as_bytes()).unwrap();
    let output = piped.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &told["new"], &told["duplicate"]), (Some(0), &json!(1), &json!(1)));
    check(
        &serving.run(&["events", "import", "no-such-file"]),
        1,
        &["no-such-file cannot be read; nothing is imported"],
    );
    check(&serving.run(&["events", "import", "."]), 1, &["cannot be read on"]);
}

#[test]
fn reap_ends_with_3_when_a_person_must_look() {
    let serving = Serving::start();
    one_of_each(&serving);
    check(&serving.run(&["reap"]), 0, &["0 ran again", "no new dead letters"]);
    let aged = "UPDATE events SET received_at = received_at - 7200000 WHERE event_id = 'evt_2'";
    open_outside(&serving.path().join("billingd.db")).execute_batch(aged).unwrap();
    check(&serving.run(&["reap"]), 0, &["no new dead letters"]);
    let ran = serving.run(&["reap", "--older-than", "1h"]);
    check(&ran, 3, &["1 new dead letter, ", "  evt_2", "events replay ID"]);
    let dead = serving.run(&["events", "list", "--status", "dead_letter"]);
    check(&dead, 0, &["DEAD LETTERS", "  evt_2", "dead letter"]);
    assert!(!dead.out.contains("evt_1 ") && !dead.out.contains("evt_3 "), "{}", dead.out);
    check(&serving.run(&["reap", "--older-than", "1h"]), 0, &["no new dead letters"]);
    check(&serving.run(&["events", "show", "evt_2"]), 0, &["dead letter", "waited_too_long", "payment:pi_1"]);
}

/// No config and no database is asked for: the usage comes first.
#[test]
fn an_argument_that_cannot_be_read_is_a_usage_error_that_says_what_is_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (duration, id, text) = ("write a number with a unit", "must have 1 to 255 bytes", "write a text");
    let long = "x".repeat(513);
    for (arguments, said) in [
        (&["reconcile", "--since", "abc"][..], duration),
        (&["reap", "--older-than", "soon"], duration),
        (&["events", "list", "--since", "7"], duration),
        (&["audit", "list", "--since", ""], duration),
        (&["audit", "list", "--event", ""], id),
        (&["events", "show", ""], id),
        (&["events", "show", &long, "--payload"], id),
        (&["events", "replay", "a\nb"], id),
        (&["events", "dismiss", "", "--reason", "a test"], id),
        (&["events", "dismiss", "evt_1", "--reason", " "], text),
        (&["events", "list", "--status", "lost"], "possible values: dead_letter, failed, pending, completed"),
        (&["events", "list", "--limit", "0"], "1..=100000"),
        (&["findings", "acknowledge", "0", "--reason", "a test"], "1.."),
        (&["findings", "acknowledge", "1", "--reason", ""], text),
        (&["repair", "subscription", ""], id),
        (&["repair", "subscription", "sub_1", "--to", "0"], "1.."),
        (&["fx", "list", "--currency", "dollars"], "three letters"),
        (&["accounts", "adjust", "cus_1", "--amount", "0", "--reason", "a", "--key", "k"], "write a whole number"),
        (&["accounts", "adjust", "cus_1", "--amount", "1.5", "--reason", "a", "--key", "k"], "write a whole number"),
        (&["accounts", "adjust", "cus_1", "--amount", "1", "--reason", "a", "--key", ""], text),
        (&["accounts", "adjust", "cus_1", "--amount", "1", "--reason", "a", "--key", "k", "--unit", " "], text),
    ] {
        check(&run(folder.path(), arguments), 2, &[said]);
    }
}
