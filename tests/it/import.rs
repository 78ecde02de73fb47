//! Events from files of every form, whole and broken, beside a running server.

use std::io::{self, BufRead, BufReader, Read};

use billingd::ops::import::{Import, Imported};
use serde_json::{Value, json};

use super::adopt::says;
use super::fixtures::{Shape, event, nth_invoice_paid};
use super::harness::{Billing, NOW, spawn};

fn imports(billing: &Billing, input: impl BufRead) -> io::Result<Imported> {
    let errand = billing.errand_of("alice");
    let mut connection = billing.beside();
    let mut import = Import::new(input, &errand.rules().metadata_key);
    while let Some(batch) = import.next_batch(NOW * 1000)? {
        import.run(&mut connection, &errand, batch, NOW * 1000).expect("a batch");
    }
    errand.run_woken(&mut connection, NOW * 1000).expect("a run");
    Ok(import.imported().clone())
}

/// `new duplicate pending failed ignored unreadable`
fn counts(imported: &Imported) -> [u64; 6] {
    let sum = imported.new + imported.duplicate + imported.pending + imported.failed + imported.ignored;
    assert_eq!(imported.read, sum + imported.unreadable, "each entry is counted once");
    let Imported { new, duplicate, pending, failed, ignored, unreadable, .. } = imported;
    [*new, *duplicate, *pending, *failed, *ignored, *unreadable]
}

#[test]
fn every_form_of_file_imports_once() {
    let events: Vec<Value> = (0..3).map(nth_invoice_paid).collect();
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    let pretty: Vec<String> = events.iter().map(|event| serde_json::to_string_pretty(event).unwrap()).collect();
    for (name, text) in [
        ("NDJSON", lines.join("\n")),
        ("pretty-printed", pretty.join("\n")),
        ("array", json!(events).to_string()),
        ("list", json!({ "object": "list", "data": events, "has_more": true, "url": "/v1/events" }).to_string()),
        ("pretty-printed list", serde_json::to_string_pretty(&json!({ "data": events, "object": "list" })).unwrap()),
    ] {
        let billing = spawn();
        billing.stripe_sends(&events[0]);
        let imported = imports(&billing, text.as_bytes()).expect("a file in memory");
        assert_eq!(counts(&imported), [2, 1, 0, 0, 0, 0], "{name}");
        assert_eq!(counts(&imports(&billing, text.as_bytes()).unwrap()), [0, 3, 0, 0, 0, 0], "{name}, again");
        assert_eq!(billing.row("SELECT count(*), sum(amount) FROM v_ledger"), "3|6000", "{name}");
        assert_eq!(billing.rows("SELECT source FROM v_events ORDER BY event_id"), ["webhook", "import", "import"]);
        let actors = "SELECT actor FROM v_audit WHERE action = 'grant' ORDER BY event_id";
        assert_eq!(billing.rows(actors), ["stripe", "operator:alice", "operator:alice"]);
        assert_eq!(billing.stripe_sends(&events[1]).short(), "200 duplicate applied");
    }
}

#[test]
fn each_entry_is_counted_for_what_became_of_it() {
    let billing = spawn();
    let mut poison = nth_invoice_paid(1);
    poison["data"]["object"]["amount_paid"] = json!("much");
    let mut other_mode = nth_invoice_paid(2);
    other_mode["livemode"] = json!(true);
    let refund = json!({
        "id": "re_1", "object": "refund", "amount": 5, "currency": "usd", "status": "succeeded", "charge": null,
        "payment_intent": "pi_9", "created": NOW - 10,
    });
    let thin = json!({
        "id": "evt_thin", "object": "v2.core.event", "type": "v1.invoice.paid", "created": "2026-09-21T14:00:00.000Z",
        "livemode": false, "related_object": { "id": "in_7", "type": "invoice", "url": "/v1/invoices/in_7" },
    });
    let text = [
        nth_invoice_paid(0).to_string(),
        poison.to_string(),
        other_mode.to_string(),
        "not json".into(),
        event(Shape::New, "evt_refund", "refund.created", refund).to_string(),
        thin.to_string(),
        "{\"object\":\"customer\",\"id\":\"cus_secret\"}".into(),
        nth_invoice_paid(0).to_string(),
    ];
    let imported = imports(&billing, text.join("\n").as_bytes()).unwrap();
    assert_eq!(counts(&imported), [1, 1, 2, 1, 1, 2]);
    let problems: Vec<_> = imported.problems.iter().map(|one| (one.entry, one.line)).collect();
    assert_eq!(problems, [(4, 4), (7, 7)]);
    assert!(imported.problems.iter().all(|one| !one.problem.contains("cus_secret")), "{imported:?}");
    assert_eq!(billing.row("SELECT error_code FROM v_events WHERE status = 'failed'"), "unreadable_object");
    assert_eq!(billing.row("SELECT reason FROM v_events WHERE outcome = 'ignored'"), "other mode");
}

/// A disk that breaks at its end.
struct Breaks;

impl Read for Breaks {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

#[test]
fn a_long_file_is_imported_in_the_order_of_time_and_what_was_read_before_an_error_stays() {
    let billing = spawn();
    let mut lines = String::new();
    // As Stripe's API prints them: the newest first.
    for number in (0..1_050).rev() {
        let object = json!({ "id": "n", "object": "n" });
        let mut event = event(Shape::New, &format!("evt_{number:04}"), "totally.new.thing", object);
        event["created"] = json!(NOW - 10_000 + number);
        lines.push_str(&format!("{event}\n"));
    }
    let mut import = Import::new(lines.as_bytes(), "account_id");
    let first = import.next_batch(NOW * 1000).unwrap().expect("a batch");
    let ids: Vec<&str> = [0, 1, 99].iter().map(|at| first[*at].event.id.as_str()).collect();
    assert_eq!((first.len(), ids), (100, vec!["evt_0050", "evt_0051", "evt_0149"]), "the oldest of the first thousand");
    let input = BufReader::new(lines.as_bytes().chain(Breaks));
    let error = imports(&billing, input).expect_err("a broken disk");
    assert_eq!(error.to_string(), "the disk is gone");
    assert_eq!(billing.row("SELECT count(*) FROM v_events"), "1050", "all that could be read");
    assert_eq!(counts(&imports(&billing, lines.as_bytes()).unwrap()), [0, 1_050, 0, 0, 0, 0]);
}

#[test]
fn an_error_does_not_hide_what_was_imported() {
    let billing = spawn();
    let lines: Vec<String> = (0..150).map(|number| nth_invoice_paid(number).to_string()).collect();
    let file = billing.database().with_file_name("events.ndjson");
    std::fs::write(&file, lines.join("\n")).unwrap();
    billing.somebody_runs(
        "CREATE TRIGGER breaks BEFORE INSERT ON events WHEN new.event_id = 'evt_99'
         BEGIN SELECT RAISE(ABORT, 'the disk breaks'); END",
    );
    let (status, told) = says(&billing, &["events", "import", file.to_str().unwrap()], &[]);
    assert!(status == 1 && told.contains("150 read: 100 new, 0 duplicate"), "{told}");
    assert!(
        told.contains("is not imported to its end; importing it again is safe: database: the disk breaks"),
        "{told}"
    );
    billing.somebody_runs("DROP TRIGGER breaks");
}
