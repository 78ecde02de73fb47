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
