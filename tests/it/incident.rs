//! The incident that billingd exists for: the same facts delivered again and again, at once, and while things break.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;

use billingd::stripe::signature;
use serde_json::Value;

use super::fixtures::{SHAPES, Shape, event, invoice, invoice_paid, nth_invoice_paid};
use super::harness::{Answer, Billing, Gate, NOW, PATH, SECRET, Setup, gated_clock, spawn, wait_until};

/// Sends these events while the writer is held up, so that all of them but one wait in the queue and become one batch;
/// the one is refused, which proves that the queue is full. Needs a service whose queue holds one less than there are
/// events, and to which nothing has been sent yet. Answers stand in the order of the events.
fn crowd(billing: &Billing, gate: &Gate, events: &[Value]) -> Vec<Answer> {
    gate.close();
    let before = billing.commits();
    let (answered, answers) = channel();
    std::thread::scope(|scope| {
        for (index, event) in events.iter().enumerate() {
            let answered = answered.clone();
            scope.spawn(move || {
                let answer = billing.stripe_sends(event);
                let stored = billing.row(&format!("SELECT count(*) FROM events WHERE event_id = '{}'", id(event)));
                answered.send((index, answer, stored)).expect("a test that waits");
            });
        }
        let (refused, answer, stored) = answers.recv().expect("a refusal");
        assert_eq!((answer.short().as_str(), stored.as_str()), ("503 overloaded", "0"));
        let lock = billing.somebody_locks();
        gate.open();
        assert!(answers.try_recv().is_err(), "an answer came before its commit");
        assert_eq!(billing.commits(), before);
        drop(lock);
        let mut all = vec![answer; events.len()];
        for _ in 1..events.len() {
            let (index, answer, stored) = answers.recv().expect("an answer");
            assert_ne!(index, refused);
            assert_eq!(stored, "1", "an answer came before its commit: {answer:?}");
            all[index] = answer;
        }
        assert_eq!(billing.commits() - before, 1, "one commit for all of them");
        all
    })
}

fn id(event: &Value) -> &str {
    event["id"].as_str().expect("an id")
}

#[test]
fn a_fact_delivered_fifty_times_at_once_has_one_effect() {
    for shape in SHAPES {
        let mut billing = spawn();
        let event = invoice_paid(shape, "evt_1", "in_1", "cus_1", 2_000);
        let started = std::sync::Barrier::new(16);
        let answers: Vec<String> = std::thread::scope(|scope| {
            let (billing, event, started) = (&billing, &event, &started);
            let senders: Vec<_> = (0..16)
                .map(|sender| {
                    scope.spawn(move || {
                        started.wait();
                        let times = if sender < 2 { 4 } else { 3 };
                        (0..times).map(|_| billing.stripe_sends(event).short()).collect::<Vec<_>>()
                    })
                })
                .collect();
            senders.into_iter().flat_map(|sender| sender.join().expect("answers")).collect()
        });
        assert_eq!(answers.len(), 50);
        for answer in &answers {
            assert!(["200 completed applied", "200 duplicate applied"].contains(&answer.as_str()), "{answer}");
        }
        assert!(answers.iter().any(|answer| answer == "200 completed applied"));
        billing.restart();
        assert_eq!(
            billing.rows("SELECT status, outcome, duplicates, attempts FROM v_events"),
            ["completed|applied|49|0"]
        );
        let ledger = "SELECT account_id, kind, fact, unit, amount, source_event_id FROM v_ledger";
        assert_eq!(billing.rows(ledger), ["cus_1|grant|grant:invoice:in_1|usd|2000|evt_1"]);
        assert_eq!(billing.rows("SELECT account_id, unit, balance FROM v_balances"), ["cus_1|usd|2000"]);
        assert_eq!(billing.rows("SELECT action FROM v_audit"), ["grant"]);
        assert_eq!(billing.stripe_sends(&event).short(), "200 duplicate applied", "after a restart");
    }
}

#[test]
fn two_events_that_announce_one_fact_have_one_effect() {
    let billing = spawn();
    assert_eq!(
        billing.stripe_sends(&invoice_paid(Shape::Old, "evt_1", "in_1", "cus_1", 500)).short(),
        "200 completed applied"
    );
    let same = event(Shape::New, "evt_2", "invoice.payment_succeeded", invoice(Shape::New, "in_1", "cus_1", 500));
    let answer = billing.stripe_sends(&same);
    assert_eq!(answer.short(), "200 completed no_effect");
    assert_eq!(answer.body["reason"], "grant:invoice:in_1 was granted by evt_1");
    assert_eq!(billing.rows("SELECT balance FROM v_balances"), ["500"]);
}

#[test]
fn repeats_in_one_batch_are_one_run_and_get_its_answer() {
    gated_clock!(GATE, clock);
    let mut billing = Setup::new().clock(clock).limits(256, 9).spawn();
    let same = nth_invoice_paid(1);
    let events: Vec<Value> = std::iter::repeat_n(same, 10).collect();
    let answers = crowd(&billing, &GATE, &events);
    assert_eq!(answers.iter().filter(|answer| answer.short() == "200 completed applied").count(), 9);
    billing.stop();
    assert_eq!(billing.rows("SELECT duplicates FROM events WHERE event_id = 'evt_1'"), ["8"]);
}

#[test]
fn all_that_wait_share_one_commit_and_none_is_answered_before() {
    gated_clock!(GATE, clock);
    let billing = Setup::new().clock(clock).limits(256, 24).spawn();
    let events: Vec<Value> = (0..25).map(nth_invoice_paid).collect();
    let answers = crowd(&billing, &GATE, &events);
    assert_eq!(answers.iter().filter(|answer| answer.short() == "200 completed applied").count(), 24);
    assert_eq!(answers.iter().filter(|answer| answer.short() == "503 overloaded").count(), 1);
    let again: Vec<String> = events.iter().map(|event| billing.stripe_sends(event).short()).collect();
    assert_eq!(again.iter().filter(|answer| *answer == "200 duplicate applied").count(), 24);
    assert_eq!(again.iter().filter(|answer| *answer == "200 completed applied").count(), 1);
    assert_eq!(billing.row("SELECT count(*), sum(amount) FROM v_ledger"), "25|50000");
}

#[test]
fn a_failure_takes_back_its_own_event_only_and_heals() {
    gated_clock!(GATE, clock);
    let mut billing = Setup::new().clock(clock).limits(256, 5).spawn();
    billing.somebody_runs(
        "CREATE TRIGGER broken BEFORE INSERT ON ledger_lines WHEN NEW.root GLOB 'grant:invoice:bad*'
         BEGIN SELECT RAISE(ABORT, 'made by a test'); END",
    );
    let good = (1..=4).map(nth_invoice_paid);
    let bad = (1..=2).map(|n| invoice_paid(Shape::New, &format!("evt_bad_{n}"), &format!("bad_{n}"), "cus_bad", 700));
    let events: Vec<Value> = good.chain(bad).collect();
    let answers = crowd(&billing, &GATE, &events);
    for (event, answer) in events.iter().zip(&answers) {
        let expected = if id(event).starts_with("evt_bad") { "500 failed" } else { "200 completed applied" };
        assert!([expected, "503 overloaded"].contains(&answer.short().as_str()), "{} {answer:?}", id(event));
        if answer.status == 500 {
            assert_eq!(answer.body.as_object().expect("an object").len(), 2, "no internals: {}", answer.body);
            let row = "SELECT status, outcome, attempts, error_code, dead_letter FROM v_events WHERE event_id";
            assert_eq!(billing.row(&format!("{row} = '{}'", id(event))), "failed||1|refused_by_database|0");
        }
    }
    assert_eq!(billing.rows("SELECT 1 FROM v_ledger WHERE account_id = 'cus_bad'"), [""; 0]);
    assert_eq!(billing.rows("SELECT 1 FROM accounts WHERE account_id = 'cus_bad'"), [""; 0], "nothing stays behind");
    assert_eq!(billing.rows("SELECT 1 FROM invoices WHERE invoice_id GLOB 'bad*'"), [""; 0], "nothing stays behind");
    billing.somebody_runs("DROP TRIGGER broken");
    billing.restart();
    for event in &events {
        let answer = billing.stripe_sends(event).short();
        assert!(["200 completed applied", "200 duplicate applied"].contains(&answer.as_str()), "{answer}");
    }
    assert_eq!(billing.row("SELECT count(*), sum(amount) FROM v_ledger"), "6|9400");
    let open =
        "SELECT event_id FROM v_events WHERE status <> 'completed' OR error_code IS NOT NULL OR last_error IS NOT NULL";
    assert_eq!(billing.rows(open), [""; 0]);
}

/// SQLite reports an overflow as a general error, which says as much about the event as a broken constraint does.
#[test]
fn a_poisonous_event_does_not_keep_its_neighbours_from_the_books() {
    gated_clock!(GATE, clock);
    let billing = Setup::new().clock(clock).limits(256, 4).spawn();
    billing.somebody_runs(
        "CREATE TRIGGER poison BEFORE INSERT ON ledger_lines WHEN NEW.root GLOB 'grant:invoice:bad*'
         BEGIN SELECT abs(-9223372036854775807 - 1); END",
    );
    let good = (1..=3).map(nth_invoice_paid);
    let bad = (1..=2).map(|n| invoice_paid(Shape::New, &format!("evt_bad_{n}"), &format!("bad_{n}"), "cus_bad", 700));
    let events: Vec<Value> = good.chain(bad).collect();
    let answers = crowd(&billing, &GATE, &events);
    for (event, answer) in events.iter().zip(&answers) {
        let expected = if id(event).starts_with("evt_bad") { "500 failed" } else { "200 completed applied" };
        assert!([expected, "503 overloaded"].contains(&answer.short().as_str()), "{} {answer:?}", id(event));
    }
    billing.somebody_runs("DROP TRIGGER poison");
}

#[test]
fn the_last_attempt_makes_a_dead_letter_which_a_redelivery_still_cures() {
    let billing = Setup::new().with("processing.max_attempts", "3").spawn();
    billing.somebody_runs(
        "CREATE TRIGGER broken BEFORE INSERT ON ledger_entries BEGIN SELECT RAISE(ABORT, 'made by a test'); END",
    );
    let event = nth_invoice_paid(1);
    let row = "SELECT status, attempts, dead_letter, error_code FROM v_events";
    let answers: Vec<String> = (0..4).map(|_| billing.stripe_sends(&event).short()).collect();
    assert_eq!(answers, ["500 failed", "500 failed", "200 dead_letter", "200 dead_letter"]);
    assert_eq!(billing.row(row), "failed|4|1|refused_by_database");
    assert_eq!(billing.row("SELECT duplicates FROM events"), "0", "a retry of what failed is no duplicate");
    let audited = "SELECT action FROM v_audit";
    assert_eq!(billing.rows(audited), ["event.failed", "event.failed", "event.dead_letter", "event.dead_letter"]);
    assert_eq!(billing.rows("SELECT count(*) FROM event_payloads"), ["1"], "what failed is kept");
    billing.somebody_runs("DROP TRIGGER broken");
    assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
    assert_eq!(billing.row(row), "completed|4|0|");
    assert_eq!(billing.stripe_sends(&event).short(), "200 duplicate applied");
}

/// SQLite has rolled back by itself: nothing of the batch may be answered as stored.
#[test]
fn a_lost_transaction_stores_nothing_counts_nothing_and_keeps_the_noted_repeats() {
    let mut billing = spawn();
    let known = nth_invoice_paid(1);
    assert_eq!(billing.stripe_sends(&known).short(), "200 completed applied");
    billing.somebody_runs(
        "CREATE TRIGGER lost BEFORE INSERT ON ledger_entries BEGIN SELECT RAISE(ROLLBACK, 'made by a test'); END",
    );
    let event = nth_invoice_paid(2);
    for _ in 0..3 {
        assert_eq!(billing.stripe_sends(&known).short(), "200 duplicate applied");
        let answer = billing.stripe_sends(&event);
        assert_eq!(answer.short(), "503 storage_unavailable");
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(billing.rows("SELECT event_id FROM events"), ["evt_1"]);
    billing.somebody_runs("DROP TRIGGER lost");
    assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
    billing.stop();
    assert_eq!(
        billing.rows("SELECT event_id, duplicates, attempts FROM events ORDER BY 1"),
        ["evt_1|3|0", "evt_2|0|0"]
    );
}

/// Everything went well but the last step.
#[test]
fn a_commit_that_fails_stores_nothing_of_the_batch() {
    let billing = spawn();
    billing.somebody_runs(
        "CREATE TABLE dangling (event_id TEXT REFERENCES events (event_id) DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER dangles AFTER INSERT ON ledger_entries BEGIN INSERT INTO dangling VALUES ('nobody'); END",
    );
    let event = nth_invoice_paid(1);
    assert_eq!(billing.stripe_sends(&event).short(), "503 storage_unavailable");
    assert_eq!(billing.rows("SELECT 1 FROM events"), [""; 0]);
    assert_eq!(billing.rows("SELECT 1 FROM audit_log"), [""; 0]);
    billing.somebody_runs("DROP TRIGGER dangles; DROP TABLE dangling");
    assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
}

#[test]
fn an_answer_that_was_lost_after_the_commit_is_a_duplicate_next_time() {
    let billing = spawn();
    let event = nth_invoice_paid(1);
    let body = event.to_string();
    let mut client = TcpStream::connect(billing.address()).expect("a connection");
    let signature = signature::sign(SECRET, NOW, body.as_bytes());
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nStripe-Signature: {signature}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).expect("a head");
    client.write_all(body.as_bytes()).expect("a body");
    wait_until("it is committed", || billing.row("SELECT count(*) FROM events") == "1");
    client.shutdown(Shutdown::Both).expect("an end");
    drop(client);
    assert_eq!(billing.stripe_sends(&event).short(), "200 duplicate applied");
    assert_eq!(billing.rows("SELECT balance FROM v_balances"), ["2000"]);
}

#[test]
fn a_repeat_after_three_days_was_sent_by_hand() {
    static TIME: AtomicI64 = AtomicI64::new(NOW * 1000);
    fn clock() -> i64 {
        TIME.load(Ordering::SeqCst)
    }
    let mut billing = Setup::new().clock(clock).spawn();
    let event = nth_invoice_paid(1);
    let hours = |hours: i64| TIME.fetch_add(hours * 3_600_000, Ordering::SeqCst);
    assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
    hours(72);
    assert_eq!(billing.stripe_sends(&event).short(), "200 duplicate applied");
    hours(1);
    assert_eq!(billing.stripe_sends(&event).short(), "200 duplicate applied");
    billing.stop();
    assert_eq!(billing.rows("SELECT duplicates, late_duplicates FROM v_events"), ["2|1"]);
}
