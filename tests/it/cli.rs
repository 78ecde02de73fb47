//! The commands as a person runs them: the real binary, its exit status and what it prints.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use billingd::samples::Sample;

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
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.status, &report["as_expected"], &report["deliveries"]), (0, &true.into(), &99.into()));
    assert_eq!(report["effects"], serde_json::json!({ "clawback": 1, "grant": 18, "tier change": 4 }));
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
    let sent: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.status, &sent[0]["type"], &sent[1]["type"]),
        (0, &"customer.created".into(), &"invoice.paid".into())
    );
    let told: u64 = sent[1]["answers"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(told, 20);
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

4 imported, 1 repeats reversed, 0 imported before, 0 of amount 0
";
    let dry = serving.run(&["import-ledger", "old.csv"]);
    assert_eq!(transcript(&dry), format!("{rows}nothing is changed yet; run the same with --apply\n"));
    assert_eq!((dry.status, dry.err.as_str()), (0, ""));
    check(&serving.run(&["accounts", "list"]), 0, &["no accounts"]);
    let done = serving.run(&["import-ledger", "old.csv", "--apply", "--as", "alice"]);
    assert_eq!((done.status, transcript(&done)), (0, rows.into()));
    let again = serving.run(&["import-ledger", "old.csv", "--apply", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&again.out).unwrap();
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
    let dry = serving.run(&["repair", "duplicates"]);
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
    check(&send("test.toml", &[]), 1, &["not delivered"]);
}
