//! Calls for a person: one for each condition, and one when it is over, whatever becomes of the server, of who is
//! called, and of the writer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use billingd::app;
use billingd::config::CalledUrl;
use billingd::jobs::{self, Runner};
use billingd::notify::Sink;
use billingd::stop::Stop;
use serde_json::{Value, json};

use super::adopt::{CATALOGUE, says};
use super::fake_stripe::{FakeStripe, Fault};
use super::fixtures::{Shape, event, invoice, invoice_paid};
use super::harness::{Billing, NOW, PATH, SECRET, Setup, gated_clock, wait_until};

/// Fast enough for a test that waits for several looks.
const OFTEN: Duration = Duration::from_millis(5);

/// Somebody outside who is told things.
struct Listening {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<(String, String)>>>,
    /// What is answered.
    status: Arc<AtomicU16>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (heard, status, is_over) = (Arc::default(), Arc::new(AtomicU16::new(200)), Arc::default());
        let thread = std::thread::spawn({
            let (heard, status, is_over) = (Arc::clone(&heard), Arc::clone(&status), Arc::clone(&is_over));
            move || {
                for connection in listener.incoming().flatten() {
                    if AtomicBool::load(&is_over, Ordering::SeqCst) {
                        return;
                    }
                    hear(connection, &heard, status.load(Ordering::SeqCst));
                }
            }
        });
        Self { address, heard, status, is_over, thread: Some(thread) }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn bodies(&self) -> Vec<String> {
        self.heard.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    /// `raised dead_letter`, in the order in which it was told.
    fn alerts(&self) -> Vec<String> {
        let short = |body: String| {
            let told: Value = serde_json::from_str(&body).expect("JSON");
            format!("{} {}", told["state"].as_str().unwrap(), told["condition"].as_str().unwrap())
        };
        self.bodies().into_iter().map(short).collect()
    }

    fn waits_for(&self, alerts: &[&str]) {
        wait_until(&format!("{alerts:?} are told"), || self.alerts().len() >= alerts.len());
        assert_eq!(self.alerts(), alerts);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// One request for each connection.
fn hear(mut connection: TcpStream, heard: &Mutex<Vec<(String, String)>>, status: u16) {
    let mut reader = BufReader::new(connection.try_clone().expect("a second handle"));
    let (mut target, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.parse().expect("a length");
        } else if let Some(text) = line.strip_prefix("post ") {
            target = text.split(' ').next().unwrap_or_default().to_owned();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    heard.lock().unwrap().push((target, String::from_utf8(body).expect("text")));
    let answer =
        format!("HTTP/1.1 {status} Heard\r\ncontent-length: 0\r\nlocation: /elsewhere\r\nconnection: close\r\n\r\n");
    drop(connection.write_all(answer.as_bytes()));
}

/// A time of day that a test moves.
macro_rules! moving_clock {
    ($time:ident, $clock:ident) => {
        static $time: AtomicI64 = AtomicI64::new(NOW * 1000);

        fn $clock() -> i64 {
            $time.load(Ordering::SeqCst)
        }
    };
}

fn later(time: &AtomicI64, seconds: i64) {
    time.fetch_add(seconds * 1000, Ordering::SeqCst);
}

/// A server that tells `listening`. The first failure of an event is its last.
fn watched(listening: &Listening, clock: fn() -> i64) -> Setup {
    Setup::new()
        .toml(CATALOGUE)
        .with("jobs.reaper", "")
        .with("jobs.reconcile", "")
        .with("jobs.retention", "")
        .with("processing.max_attempts", "1")
        .with("alerts.webhook_url", &listening.url("/hook/hush"))
        .clock(clock)
        .watched_every(OFTEN)
}

fn poison(number: usize) -> Value {
    let mut object = invoice(Shape::New, &format!("in_{number}"), "cus_jane", 2_000);
    object["amount_paid"] = json!("much");
    event(Shape::New, &format!("evt_{number}"), "invoice.paid", object)
}

fn finding(billing: &Billing, status: &str) {
    billing.somebody_runs(&format!(
        "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at)
         VALUES ('missing_grant', 'in_7', '{status}', {NOW}, {NOW})
         ON CONFLICT (kind, subject) DO UPDATE SET status = excluded.status"
    ));
}

/// `condition|told|gone`.
fn kept(billing: &Billing) -> Vec<String> {
    billing.rows("SELECT condition, told, gone_at IS NOT NULL FROM alerts ORDER BY condition")
}

fn waits_until_kept(billing: &Billing, expected: &[&str]) {
    wait_until(&format!("{expected:?} are kept"), || kept(billing) == expected);
}

#[test]
fn a_dead_letter_is_told_once_over_a_restart_and_once_when_it_is_gone() {
    moving_clock!(TIME, clock);
    let listening = Listening::start();
    let mut billing = watched(&listening, clock).spawn();
    assert_eq!(billing.stripe_sends(&poison(1)).short(), "200 dead_letter");
    listening.waits_for(&["raised dead_letter"]);
    let told: Value = serde_json::from_str(&listening.bodies()[0]).unwrap();
    let text = "billingd, test mode: 1 dead letter; it is evt_1, received 0s ago\n\
                `billingd events show evt_1` tells why; remove the cause, then `billingd events replay evt_1`, or \
                dismiss it";
    assert_eq!(told, json!({ "text": text, "condition": "dead_letter", "state": "raised", "since": NOW }));
    waits_until_kept(&billing, &["dead_letter|1|0"]);
    billing.restart();
    finding(&billing, "open");
    listening.waits_for(&["raised dead_letter", "raised findings"]);
    billing.somebody_runs("DELETE FROM events WHERE event_id = 'evt_1'");
    waits_until_kept(&billing, &["dead_letter|1|1", "findings|1|0"]);
    later(&TIME, 119);
    finding(&billing, "acknowledged");
    waits_until_kept(&billing, &["dead_letter|1|1", "findings|1|1"]);
    later(&TIME, 1);
    listening.waits_for(&["raised dead_letter", "raised findings", "cleared dead_letter"]);
    assert!(listening.bodies()[2].contains("billingd, test mode: over: 1 dead letter"), "{:?}", listening.bodies());
    waits_until_kept(&billing, &["findings|1|1"]);
    assert!(!listening.bodies().concat().contains("jane"), "nothing of a payload is told");
}

#[test]
fn who_is_not_there_is_called_again_ever_more_rarely() {
    moving_clock!(TIME, clock);
    let listening = Listening::start();
    let billing = watched(&listening, clock).spawn();
    listening.answers(503);
    finding(&billing, "open");
    waits_until_kept(&billing, &["findings|0|0"]);
    billing.stripe_sends(&poison(1));
    waits_until_kept(&billing, &["dead_letter|0|0", "findings|0|0"]);
    assert_eq!(listening.alerts(), ["raised findings"], "not before 15 s are over, whatever else there is");
    later(&TIME, 15);
    listening.waits_for(&["raised findings"; 2]);
    listening.answers(307);
    later(&TIME, 29);
    finding(&billing, "acknowledged");
    waits_until_kept(&billing, &["dead_letter|0|0", "findings|0|1"]);
    assert_eq!(listening.alerts(), ["raised findings"; 2]);
    finding(&billing, "open");
    later(&TIME, 1);
    listening.waits_for(&["raised findings"; 3]);
    listening.answers(204);
    later(&TIME, 60);
    let told = ["raised findings", "raised findings", "raised findings", "raised findings", "raised dead_letter"];
    listening.waits_for(&told);
    waits_until_kept(&billing, &["dead_letter|1|0", "findings|1|0"]);
}

/// Story: a filter of the channel does not like one text.
#[test]
fn what_is_refused_keeps_nothing_else_from_being_told() {
    moving_clock!(TIME, clock);
    let listening = Listening::start();
    let billing = watched(&listening, clock).spawn();
    listening.answers(400);
    finding(&billing, "open");
    waits_until_kept(&billing, &["findings|0|0"]);
    listening.waits_for(&["raised findings"]);
    listening.answers(200);
    billing.stripe_sends(&poison(1));
    waits_until_kept(&billing, &["dead_letter|1|0", "findings|0|0"]);
    assert_eq!(listening.alerts(), ["raised findings", "raised dead_letter"]);
    later(&TIME, 15);
    listening.waits_for(&["raised findings", "raised dead_letter", "raised findings"]);
    waits_until_kept(&billing, &["dead_letter|1|0", "findings|1|0"]);
}

#[test]
fn what_comes_and_goes_is_told_once() {
    moving_clock!(TIME, clock);
    let listening = Listening::start();
    let billing = watched(&listening, clock).spawn();
    for _ in 0..3 {
        finding(&billing, "open");
        waits_until_kept(&billing, &["findings|1|0"]);
        later(&TIME, 119);
        finding(&billing, "acknowledged");
        waits_until_kept(&billing, &["findings|1|1"]);
        later(&TIME, 119);
    }
    later(&TIME, 1);
    listening.waits_for(&["raised findings", "cleared findings"]);
    waits_until_kept(&billing, &[]);
}

gated_clock!(GATE, gated);

/// The state cannot be written, and the watch does not wait for that.
#[test]
fn a_stuck_writer_holds_up_no_call() {
    let listening = Listening::start();
    let billing = watched(&listening, gated).spawn();
    GATE.close();
    let failed = |id: &str, dead_letter: i64| {
        format!(
            "INSERT INTO events (event_id, source, type, status, dead_letter, livemode, created_at, received_at, tried_at)
             VALUES ('{id}', 'webhook', 't', 'failed', {dead_letter}, 0, 0, 0, 0)"
        )
    };
    let found = |kind: &str| {
        format!(
            "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at) VALUES ('{kind}', '', 'open', 0, 0)"
        )
    };
    // More looks than could wait for the writer.
    let told = ["raised findings", "raised dead_letter", "raised silence", "raised failed"];
    let causes = [found("missing_grant"), failed("evt_1", 1), found("silence"), failed("evt_2", 0)];
    for (count, cause) in causes.iter().enumerate() {
        billing.somebody_runs(cause);
        listening.waits_for(&told[..=count]);
    }
    assert_eq!(kept(&billing), [""; 0]);
    GATE.open();
    waits_until_kept(&billing, &["dead_letter|1|0", "failed|1|0", "findings|1|0", "silence|1|0"]);
    assert_eq!(listening.alerts(), told);
}

/// Takes as long as SQLite waits for a lock.
#[test]
fn a_database_that_takes_no_writes_is_told() {
    moving_clock!(TIME, clock);
    let listening = Listening::start();
    let billing = watched(&listening, clock).spawn();
    let lock = billing.somebody_locks();
    let answer = billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000));
    assert_eq!(answer.short(), "503 storage_unavailable");
    listening.waits_for(&["raised storage"]);
    drop(lock);
    waits_until_kept(&billing, &["storage|1|1"]);
    later(&TIME, 120);
    listening.waits_for(&["raised storage", "cleared storage"]);
    wait_until("the answer is counted", || billing.rows("SELECT bad FROM deliveries") == ["1"]);
}

/// What nobody can look at is not over.
#[test]
fn books_that_cannot_be_read_clear_nothing() {
    static TIME: AtomicI64 = AtomicI64::new(NOW * 1000);
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    // Each look begins with the time of day.
    fn clock() -> i64 {
        if std::thread::current().name() == Some("watch") {
            LOOKS.fetch_add(1, Ordering::SeqCst);
        }
        TIME.load(Ordering::SeqCst)
    }
    let looks = || {
        let before = LOOKS.load(Ordering::SeqCst);
        wait_until("a look has begun and ended", || LOOKS.load(Ordering::SeqCst) >= before + 2);
    };
    let listening = Listening::start();
    let billing = watched(&listening, clock).spawn();
    finding(&billing, "open");
    listening.waits_for(&["raised findings"]);
    billing.somebody_runs("ALTER TABLE deliveries RENAME TO elsewhere");
    listening.waits_for(&["raised findings", "raised database"]);
    assert!(listening.bodies()[1].contains("no such table: deliveries"), "{:?}", listening.bodies());
    finding(&billing, "acknowledged");
    for _ in 0..2 {
        looks();
        later(&TIME, 120);
    }
    looks();
    billing.somebody_runs("ALTER TABLE elsewhere RENAME TO deliveries");
    waits_until_kept(&billing, &["database|1|1", "findings|1|1"]);
    assert_eq!(listening.alerts().len(), 2);
    later(&TIME, 120);
    listening.waits_for(&["raised findings", "raised database", "cleared findings", "cleared database"]);
}

#[test]
fn answers_are_counted_and_a_bad_rate_is_told() {
    moving_clock!(TIME, clock);
    let listening = Listening::start();
    let billing = watched(&listening, clock).spawn();
    let counted = |expected: &str| {
        wait_until(&format!("{expected} are counted"), || {
            billing.rows("SELECT sum(good), sum(bad), sum(mismatched) FROM deliveries") == [expected]
        });
    };
    let paid =
        |number: usize| invoice_paid(Shape::New, &format!("evt_{number}"), &format!("in_{number}"), "cus_1", 2_000);
    billing.stripe_sends_signed_with(PATH, &paid(1), "whsec_wrong", NOW);
    for _ in 0..2 {
        billing.stripe_sends(&event(Shape::New, "evt_good", "totally.new", json!({ "id": "n_1", "object": "n" })));
    }
    billing.posts(PATH, &[], b"{}");
    billing.stripe_sends(&json!({ "object": "nothing that Stripe sends" }));
    counted("2|1|1");
    for number in 0..6 {
        let late = billing.stripe_sends_signed_with(PATH, &paid(number), SECRET, NOW - 1_000);
        assert_eq!(late.short(), "400 timestamp_too_old");
    }
    counted("2|7|1");
    billing.stripe_sends_signed_with(PATH, &paid(9), SECRET, NOW - 1_000);
    listening.waits_for(&["raised success_rate"]);
    let text = "8 of 10 deliveries of the last 24 h failed: 20.0 % went well, 99.0 % should";
    assert!(listening.bodies()[0].contains(text), "{}", listening.bodies()[0]);
    // A day later all of it is forgotten.
    later(&TIME, 86_400);
    waits_until_kept(&billing, &["success_rate|1|1"]);
    let new = event(Shape::New, "evt_new", "totally.new", json!({ "id": "n_1", "object": "n" }));
    billing.stripe_sends(&new);
    counted("1|0|0");
}

/// Stripe keeps at it for hours; who is only passing by does not call anybody.
#[test]
fn a_wrong_secret_is_told_once_stripe_has_kept_at_it() {
    moving_clock!(TIME, clock);
    let listening = Listening::start();
    let billing = watched(&listening, clock).spawn();
    let wrong = |count: usize| {
        for _ in 0..count {
            let event = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000);
            billing.stripe_sends_signed_with(PATH, &event, "whsec_wrong", NOW);
        }
    };
    wrong(20);
    later(&TIME, 3_600);
    wrong(1);
    // What is told of this shows that a look has seen all before it.
    wait_until("they are counted", || billing.rows("SELECT mismatched FROM deliveries") == ["20", "1"]);
    finding(&billing, "open");
    listening.waits_for(&["raised findings"]);
    later(&TIME, 3_600);
    wrong(1);
    listening.waits_for(&["raised findings", "raised signature"]);
    billing.stripe_sends_signed_with(PATH, &poison(1), SECRET, NOW + 7_200);
    waits_until_kept(&billing, &["dead_letter|1|0", "findings|1|0", "signature|1|1"]);
}

/// Stripe, and a server that asks it, each with what it takes.
fn reconciles(fake: &FakeStripe, listening: &Listening, arguments: &[&str]) -> (i32, String) {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let served = fake.serve();
    let (url, heart) = (served.url(), listening.url("/beat/hush"));
    let variables = [
        ("BILLINGD__STRIPE__API_KEY", "rk_test_1"),
        ("BILLINGD__STRIPE__API_BASE", &url),
        ("BILLINGD__ALERTS__HEARTBEAT_URL", &heart),
    ];
    let told = says(&billing, arguments, &variables);
    let head = says(&billing, &["verify", "--json"], &[]).1;
    let head: Value = serde_json::from_str(&head).expect("JSON");
    for beat in listening.bodies() {
        assert!(beat.contains(&format!("audit head {} ", head["audit_rows"])), "{beat}");
        assert!(beat.contains(head["audit_head"].as_str().unwrap()), "{beat}");
    }
    told
}

#[test]
fn a_complete_reconciliation_is_a_heartbeat_and_one_cut_short_is_none() {
    let listening = Listening::start();
    let fake = FakeStripe::default();
    fake.order(Fault::at("/v1/subscriptions").status(401));
    let (status, told) = reconciles(&fake, &listening, &["reconcile"]);
    assert!(status == 1 && !told.contains("audit head"), "{told}");
    assert_eq!(listening.bodies(), [""; 0]);
    let (status, told) = reconciles(&FakeStripe::default(), &listening, &["reconcile"]);
    assert!(status == 0 && told.contains("; heartbeat sent\n"), "{told}");
    assert_eq!(listening.bodies().len(), 1);
    let listening = Listening::start();
    listening.answers(404);
    let (status, told) = reconciles(&FakeStripe::default(), &listening, &["reconcile"]);
    let untold = format!("NO HEARTBEAT {} answers 404; is the address right, token and all?\n", listening.url(""));
    assert!(status == 0 && told.contains(&untold) && !told.contains("hush"), "{told}");
}

#[test]
fn the_job_tells_the_heartbeat_too() {
    let listening = Listening::start();
    let fake = FakeStripe::default();
    let served = fake.serve();
    let base = served.url();
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let asking = Setup::new().toml(CATALOGUE).with("stripe.api_key", "rk_test_1").with("stripe.api_base", &base);
    let folder = tempfile::tempdir().unwrap();
    let (_, config) = asking.config_in(folder.path());
    let rules = app::rules(&config).unwrap();
    let client = app::client(&config, |_| None, Stop::default()).unwrap().expect("a key");
    let stripe = jobs::Stripe { client, rules: app::reconciliation(&config, rules.clone()) };
    let heart = Sink::new(CalledUrl::parse(&listening.url("/beat")).unwrap());
    let table = jobs::table(&config, &rules, Some(stripe), Some(heart));
    let mut runner = Runner::new(table, billing.beside(), billing.reader(), || NOW * 1000, NOW, Stop::default());
    fake.order(Fault::at("/v1/subscriptions").status(401).times(1));
    let succeeded = || billing.rows("SELECT succeeded FROM job_runs ORDER BY run_id");
    runner.run("reconcile").unwrap();
    assert_eq!((succeeded(), listening.bodies().len()), (vec!["0".to_owned()], 0));
    runner.run("reconcile").unwrap();
    assert_eq!((succeeded().len(), listening.bodies().len()), (2, 1));
    listening.answers(500);
    runner.run("reconcile").unwrap();
    assert_eq!(succeeded(), ["0", "1", "1"], "that nobody hears it is no failure of the run");
    assert_eq!(listening.bodies().len(), 2);
}

#[test]
fn alerts_test_tells_whether_each_was_taken() {
    let (alerts, hearts) = (Listening::start(), Listening::start());
    let billing = Setup::new().spawn();
    let (status, told) = says(&billing, &["alerts", "test"], &[]);
    assert!(status == 1 && told.contains("set [alerts] webhook_url"), "{told}");
    let (hook, beat) = (alerts.url("/hook/hush"), hearts.url("/beat/hush"));
    let variables = [("BILLINGD__ALERTS__WEBHOOK_URL", hook.as_str()), ("BILLINGD__ALERTS__HEARTBEAT_URL", &beat)];
    let (status, told) = says(&billing, &["alerts", "test"], &variables);
    let expected = format!(
        "webhook_url    taken by {}\nheartbeat_url  taken by {}\n\nlook whether it has arrived where people read it\n",
        alerts.url(""),
        hearts.url("")
    );
    assert_eq!((status, told), (0, expected));
    assert_eq!(alerts.alerts(), ["test test"]);
    assert_eq!(hearts.bodies(), ["billingd: a test of the heartbeat\n"]);
    hearts.answers(302);
    let (status, told) = says(&billing, &["alerts", "test", "--json"], &variables);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let problem =
        format!("{} answers 302; redirects are not followed, so give the address that it leads to", hearts.url(""));
    let expected = json!([
        { "key": "webhook_url", "origin": alerts.url(""), "taken": true },
        { "key": "heartbeat_url", "origin": hearts.url(""), "taken": false, "problem": problem },
    ]);
    assert_eq!((status, told), (1, expected));
    let gone = hearts.url("/hush");
    drop(hearts);
    let (status, told) = says(&billing, &["alerts", "test"], &[("BILLINGD__ALERTS__WEBHOOK_URL", &gone)]);
    assert!(status == 1 && told.contains("cannot be reached") && !told.contains("hush"), "{told}");
    let unset = [("BILLINGD__ALERTS__WEBHOOK_URL", "{ env = \"NO_SUCH\" }")];
    let (status, told) = says(&billing, &["alerts", "test"], &unset);
    assert!(
        status == 1 && told.contains("[alerts] webhook_url: the environment variable NO_SUCH is not set"),
        "{told}"
    );
}
