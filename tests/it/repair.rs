//! The clean-up after the incident: an old table taken over, and grants that stand twice.

use billingd::ops::import_ledger::{self, ImportError, Report, RowResult};
use billingd::ops::repair;
use billingd::store::rehearsal::Rehearsal;
use serde_json::{Value, json};

use super::fixtures::{Shape, event, invoice_paid};
use super::harness::{Billing, NOW, Setup, spawn, wait_until};
use super::sim::Rng;

const HEADER: &str = "account_id,unit,amount,source_event_id,source_object,created_at\n";

const LEDGER: &str =
    "SELECT account_id, kind, fact, unit, amount, source_event_id, reverses FROM v_ledger ORDER BY entry_id";

const BALANCES: &str = "SELECT account_id, unit, balance FROM v_balances ORDER BY 1, 2";

fn try_import(billing: &Billing, rows: &str) -> Result<Report, ImportError> {
    let rows = import_ledger::read(format!("{HEADER}{rows}").as_bytes()).expect("a table");
    import_ledger::apply(&mut billing.beside(), &rows, &billing.errand_of("alice"), NOW * 1000)
}

fn import(billing: &Billing, rows: &str) -> Report {
    try_import(billing, rows).expect("an import")
}

fn rehearse_import(billing: &Billing, rows: &str) -> Report {
    let rows = import_ledger::read(format!("{HEADER}{rows}").as_bytes()).expect("a table");
    import_ledger::rehearse(&mut copy(billing), &rows, &billing.errand_of("alice"), NOW * 1000).expect("a rehearsal")
}

fn repair(billing: &Billing) -> repair::Report {
    repair::apply(&mut billing.beside(), &billing.errand_of("alice"), NOW * 1000).expect("a repair")
}

fn copy(billing: &Billing) -> Rehearsal {
    Rehearsal::begin(&billing.database()).expect("a copy of the books")
}

fn rehearse_repair(billing: &Billing) -> repair::Report {
    repair::rehearse(&mut copy(billing), &billing.errand_of("alice"), NOW * 1000).expect("a rehearsal")
}

/// Which fact stays and which is reversed, and by how much.
fn told(report: &repair::Report) -> Vec<String> {
    let amounts = |one: &repair::Duplicate| {
        one.lines.iter().map(|line| format!("{} {}", line.amount, line.unit)).collect::<Vec<_>>().join(", ")
    };
    let tell =
        |one: &repair::Duplicate| format!("{}: {} stays, {} {}", one.paid, one.kept.fact, one.extra.fact, amounts(one));
    report.duplicates.iter().map(tell).collect()
}

fn sends(billing: &Billing, event: &Value, expected: &str) {
    assert_eq!(billing.stripe_sends(event).short(), expected, "{}", event["id"]);
}

/// A charge of 2000, of which so much was refunded.
fn refunded(id: &str, number: usize, refunded: i64) -> Value {
    let object = json!({
        "id": format!("ch_{number}"), "object": "charge", "payment_intent": format!("pi_{number}"), "currency": "usd",
        "amount": 2000, "amount_captured": 2000, "amount_refunded": refunded, "status": "succeeded", "paid": true,
        "captured": true, "livemode": false, "created": NOW - 3_000,
    });
    let mut event = event(Shape::New, id, "charge.refunded", object);
    event["created"] = json!(NOW - 2_000 + refunded);
    event
}

fn linked(id: &str, invoice: &str, number: usize) -> Value {
    let object = json!({
        "id": format!("inpay_{number}"), "object": "invoice_payment", "invoice": invoice, "status": "paid",
        "amount_paid": 2000, "currency": "usd", "livemode": false,
        "payment": {"type": "payment_intent", "payment_intent": format!("pi_{number}")},
    });
    event(Shape::New, id, "invoice_payment.paid", object)
}

fn checkout(id: &str, session: &str, number: usize) -> Value {
    let object = json!({
        "id": session, "object": "checkout.session", "mode": "payment", "payment_status": "paid", "status": "complete",
        "customer": "cus_1", "payment_intent": format!("pi_{number}"), "amount_total": 2000, "currency": "usd",
        "invoice": null, "livemode": false, "metadata": {},
    });
    event(Shape::New, id, "checkout.session.completed", object)
}

/// A session of an invoice, in this mode.
fn session(id: &str, mode: &str, number: usize) -> Value {
    let mut event = checkout(id, "cs_9", number);
    event["data"]["object"]["mode"] = json!(mode);
    event["data"]["object"]["invoice"] = json!("in_9");
    if mode == "subscription" {
        event["data"]["object"]["payment_intent"] = Value::Null;
    }
    event
}

/// 18 accounts with their credits twice, one of them with two invoices over the same amount, and some that were spent.
fn incident() -> String {
    let mut rows = String::new();
    for number in 1..=18 {
        for (retry, letter) in ["a", "b"].into_iter().enumerate() {
            rows.push_str(&format!(
                "cus_{number},credits,100,evt_{number}{letter},in_{number},{}\n",
                1_780_000_000 + 60 * number + retry
            ));
        }
    }
    rows + "cus_7,credits,100,evt_7c,in_77,1780009000\ncus_7,credits,-130,use_1,use_1,1780009100\n"
}

#[test]
fn the_incident_is_cleaned_up_and_real_look_alikes_stay() {
    let billing = spawn();
    let dry = rehearse_import(&billing, &incident());
    assert_eq!((dry.applied, dry.imported, dry.repeats), (false, 20, 18));
    assert_eq!(
        billing.rows("SELECT 1 FROM events UNION ALL SELECT 1 FROM audit_log UNION ALL SELECT 1 FROM accounts"),
        [""; 0]
    );
    let done = import(&billing, &incident());
    assert_eq!(Report { applied: false, ..done.clone() }, dry, "it does what it said");
    let kinds = "SELECT kind, count(*), sum(amount) FROM v_ledger GROUP BY kind ORDER BY 1";
    assert_eq!(billing.rows(kinds), ["import|38|3570", "reversal|18|-1800"]);
    let balances: Vec<i64> = done.balances.iter().map(|balance| balance.after).collect();
    assert_eq!((balances.iter().filter(|after| **after == 100).count(), balances.len()), (17, 18));
    let seventh = done.balances.iter().find(|balance| balance.account_id == "cus_7").expect("the account");
    assert_eq!((seventh.before, seventh.imported, seventh.reversed, seventh.after), (0, 170, -100, 70));
    assert_eq!(
        billing.row("SELECT count(*) FROM v_ledger WHERE fact LIKE 'grant:invoice:in_%' AND amount = 100"),
        "19"
    );
    let reversal =
        "SELECT r.fact = 'reversal:' || e.entry_id, r.source_event_id = e.source_event_id || ':reversal', e.fact
                    FROM v_ledger r JOIN v_ledger e ON e.entry_id = r.reverses";
    assert!(billing.rows(reversal).iter().all(|row| row.starts_with("1|1|import:")));
    let audit = "SELECT actor, action, count(*), count(DISTINCT event_id) FROM v_audit GROUP BY 1, 2 ORDER BY 2";
    assert_eq!(billing.rows(audit), ["operator:alice|import|38|38", "operator:alice|reversal|18|18"]);
    assert_eq!(billing.rows("SELECT DISTINCT source, status, outcome FROM v_events"), ["import|completed|applied"]);
    assert_eq!(repair(&billing).duplicates, []);
}

#[test]
fn the_same_table_again_changes_nothing_and_a_grown_one_adds_what_is_new() {
    let billing = spawn();
    // The same row twice without any object is the same event twice; with an unknown object nobody knows.
    let rows = "cus_1,,100,evt_1,,\ncus_1,,100,evt_1,,\ncus_1,,100,evt_2,,\n\
                cus_1,,-5,use_1,chat,\ncus_1,,-5,use_1,chat,\ncus_1,,0,evt_3,,\n";
    let first = import(&billing, rows);
    let results: Vec<RowResult> = first.rows.iter().map(|row| row.result).collect();
    use RowResult::{AlreadyImported, Empty, Imported, RepeatReversed};
    assert_eq!(results, [Imported, RepeatReversed, Imported, Imported, Imported, Empty]);
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|190"]);
    let held = billing.rows(LEDGER);
    let again = import(&billing, rows);
    assert!(again.rows.iter().all(|row| row.result == AlreadyImported), "{again:?}");
    assert_eq!((again.balances[0].before, again.balances[0].after), (190, 190));
    assert_eq!(billing.rows(LEDGER), held);
    // Other spellings of the same rows, and two new ones, of which one is known by its event.
    let grown = rows.replace(",,", ",credits,").replace(",credits,\n", ",,\n").replace("100", "+100");
    let grown = import(&billing, &format!("{grown}cus_1,,100,evt_2,,1780000000\ncus_1,,7,evt_4,,\n"));
    assert_eq!((grown.already_imported, grown.repeats, grown.imported), (6, 1, 1));
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|197"]);
}

#[test]
fn a_webhook_after_the_import_has_no_effect_and_a_refund_finds_the_grant() {
    let billing = spawn();
    import(&billing, "cus_1,credits,100,evt_a,in_1,1780000000\ncus_1,credits,100,evt_b,in_1,1780000001\n");
    sends(&billing, &invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2000), "200 completed no_effect");
    sends(&billing, &linked("evt_2", "in_1", 1), "200 completed no_effect");
    sends(&billing, &refunded("evt_3", 1, 500), "200 completed applied");
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|75"]);
    sends(&billing, &refunded("evt_4", 1, 2000), "200 completed applied");
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|0"]);
}

#[test]
fn an_import_after_the_webhook_is_history_only() {
    let billing = spawn();
    sends(&billing, &invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2000), "200 completed applied");
    // By its object, and by its event; a row that takes is no repeat of what gave.
    let rows = "cus_1,usd,2000,evt_a,in_1,\ncus_1,credits,100,evt_b,in_1,\ncus_1,usd,2000,evt_1,,\n\
                cus_1,usd,-9,evt_1,,\ncus_1,usd,-500,evt_c,in_1,\n";
    let report = import(&billing, rows);
    assert_eq!((report.repeats, report.imported), (3, 2));
    assert_eq!(report.rows[0].repeats.as_deref(), Some("grant:invoice:in_1"));
    assert_eq!(report.rows[2].repeats.as_deref(), Some("evt_1"));
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|0", "cus_1|usd|1491"]);
    assert_eq!(repair(&billing).duplicates, []);
}

#[test]
fn what_was_refunded_before_the_import_is_taken_back_at_once() {
    let billing = Setup::new().toml("[credits]\nsince = \"2200-01-01\"\n").spawn();
    sends(&billing, &invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2000), "200 completed no_effect");
    sends(&billing, &linked("evt_2", "in_1", 1), "200 completed no_effect");
    sends(&billing, &refunded("evt_3", 1, 500), "200 completed no_effect");
    let rows = "cus_1,credits,100,evt_a,in_1,\ncus_1,credits,100,evt_b,in_1,\n";
    let report = import(&billing, rows);
    assert_eq!(report.rows[0].corrected, -25);
    assert_eq!((report.balances[0].imported, report.balances[0].reversed, report.balances[0].after), (200, -125, 75));
    let clawback =
        "SELECT root, amount, source_event_id GLOB 'job:correct:import:*:2' FROM v_ledger WHERE kind = 'clawback'";
    assert_eq!(billing.rows(clawback), ["grant:invoice:in_1|-25|1"]);
    sends(&billing, &refunded("evt_4", 1, 2000), "200 completed applied");
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|0"]);
}

#[test]
fn what_the_old_system_took_back_of_an_invoice_is_not_taken_again() {
    let given = "cus_1,usd,2000,evt_a,in_1,1780000000\n";
    for taken in ["cus_1,usd,-1000,evt_b,in_1,1780000009\n", "cus_1,usd,-1000,evt_b,in_1,1779999999\n"] {
        for tables in [vec![format!("{given}{taken}")], vec![taken.into(), given.into()]] {
            let billing = spawn();
            tables.iter().for_each(|rows| drop(import(&billing, rows)));
            let roots = "SELECT DISTINCT root FROM v_ledger";
            assert_eq!(billing.rows(roots), ["grant:invoice:in_1"]);
            // As long as nobody tells of a refund, it stays taken.
            sends(&billing, &linked("evt_1", "in_1", 1), "200 completed no_effect");
            assert_eq!(billing.rows(BALANCES), ["cus_1|usd|1000"]);
            sends(&billing, &refunded("evt_2", 1, 1000), "200 completed no_effect");
            sends(&billing, &refunded("evt_3", 1, 1500), "200 completed applied");
            assert_eq!(billing.rows(BALANCES), ["cus_1|usd|500"]);
            // Two refunds failed: what the books took is given again, what the old system took is not.
            let mut failed = refunded("evt_4", 1, 0);
            failed["created"] = json!(NOW);
            sends(&billing, &failed, "200 completed applied");
            assert_eq!(billing.rows(BALANCES), ["cus_1|usd|1000"]);
            sends(&billing, &refunded_later("evt_5", 2000), "200 completed applied");
            assert_eq!(billing.rows(BALANCES), ["cus_1|usd|0"]);
        }
    }
}

fn refunded_later(id: &str, amount: i64) -> Value {
    let mut event = refunded(id, 1, amount);
    event["created"] = json!(NOW + 1);
    event
}

#[test]
fn every_unit_of_an_imported_invoice_is_taken_back() {
    let credits = "cus_1,credits,100,evt_a,in_1,1780000001\n";
    // The tokens after the credits, and before them; one row of another account.
    for tokens in ["cus_1,tokens,50,evt_b,in_1,1780000002\n", "cus_1,tokens,50,evt_b,in_1,1780000000\n"] {
        for tables in [vec![format!("{credits}{tokens}")], vec![tokens.into(), credits.into()]] {
            for refund_first in [false, true] {
                let billing = Setup::new().toml("[credits]\nsince = \"2200-01-01\"\n").spawn();
                sends(&billing, &invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2000), "200 completed no_effect");
                sends(&billing, &linked("evt_2", "in_1", 1), "200 completed no_effect");
                if refund_first {
                    sends(&billing, &refunded("evt_3", 1, 500), "200 completed no_effect");
                }
                tables.iter().for_each(|rows| drop(import(&billing, rows)));
                import(
                    &billing,
                    "cus_1,tokens,50,evt_c,in_1,\ncus_1,tokens,-10,evt_d,in_1,\ncus_2,coins,7,evt_e,in_1,\n",
                );
                if !refund_first {
                    sends(&billing, &refunded("evt_3", 1, 500), "200 completed applied");
                }
                assert_eq!(billing.rows(BALANCES), ["cus_1|credits|75", "cus_1|tokens|38", "cus_2|coins|7"]);
                sends(&billing, &refunded("evt_4", 1, 2000), "200 completed applied");
                assert_eq!(billing.rows(BALANCES), ["cus_1|credits|0", "cus_1|tokens|0", "cus_2|coins|7"]);
                assert_eq!(repair(&billing).duplicates, []);
                assert_eq!(billing.violations(), [""; 0]);
            }
        }
    }
}

#[test]
fn what_the_old_system_and_the_books_took_back_both_is_given_again_once() {
    let billing = spawn();
    sends(&billing, &invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2000), "200 completed applied");
    sends(&billing, &linked("evt_2", "in_1", 1), "200 completed no_effect");
    sends(&billing, &refunded("evt_3", 1, 500), "200 completed applied");
    // Another account's row names the invoice: it is none of this grant's.
    let rows = "cus_1,usd,2000,evt_a,in_1,\ncus_1,usd,-500,evt_b,in_1,\ncus_2,usd,-300,evt_c,in_1,\n\
                cus_1,usd,-200,use_1,use_1,\n";
    let report = import(&billing, rows);
    let corrected: Vec<i64> = report.rows.iter().map(|row| row.corrected).collect();
    assert_eq!(corrected, [-2000, 500, 0, 0]);
    assert_eq!(billing.rows(BALANCES), ["cus_1|usd|1300", "cus_2|usd|-300"]);
    let spent = "SELECT root = fact, amount FROM v_ledger WHERE amount = -200";
    assert_eq!(billing.rows(spent), ["1|-200"], "spending stays on its own");
    sends(&billing, &refunded("evt_4", 1, 2000), "200 completed applied");
    assert_eq!(billing.rows(BALANCES), ["cus_1|usd|-200", "cus_2|usd|-300"]);
    // A second grant of the payment gave nothing in the end, and is reversed all the same.
    sends(&billing, &checkout("evt_5", "cs_1", 1), "200 completed applied");
    assert_eq!(told(&repair(&billing)), ["invoice in_1: grant:invoice:in_1 stays, grant:checkout:cs_1 0 usd"]);
    assert_eq!(billing.violations(), [""; 0]);
}

#[test]
fn a_refund_that_waits_for_the_grant_is_woken_by_the_import() {
    let billing = spawn();
    sends(&billing, &linked("evt_1", "in_1", 1), "200 completed no_effect");
    sends(&billing, &refunded("evt_2", 1, 500), "202 pending grant:invoice:in_1");
    import(&billing, "cus_1,credits,100,evt_a,in_1,\n");
    // The server looks whenever anything arrives.
    sends(&billing, &linked("evt_3", "in_9", 9), "200 completed no_effect");
    wait_until("the refund has run", || billing.rows(BALANCES) == ["cus_1|credits|75"]);
}

#[test]
fn one_payment_under_two_keys_keeps_the_first_and_its_refunds() {
    for refund_first in [false, true] {
        let billing = spawn();
        sends(&billing, &checkout("evt_1", "cs_1", 1), "200 completed applied");
        sends(&billing, &invoice_paid(Shape::New, "evt_2", "in_1", "cus_1", 2000), "200 completed applied");
        // A look-alike: the same amount, another payment.
        sends(&billing, &checkout("evt_3", "cs_2", 2), "200 completed applied");
        assert_eq!(repair(&billing).duplicates, [], "nothing ties the two yet");
        sends(&billing, &linked("evt_4", "in_1", 1), "200 completed no_effect");
        if refund_first {
            sends(&billing, &refunded("evt_5", 1, 500), "200 completed applied");
            assert_eq!(billing.rows(BALANCES), ["cus_1|usd|5000"], "taken back of both");
        }
        let dry = rehearse_repair(&billing);
        let left = if refund_first { 1500 } else { 2000 };
        let expected = format!("invoice in_1: grant:checkout:cs_1 stays, grant:invoice:in_1 -{left} usd");
        assert_eq!(told(&dry), [expected]);
        assert_eq!(billing.rows("SELECT 1 FROM v_ledger WHERE kind = 'reversal'"), [""; 0]);
        let done = repair(&billing);
        assert_eq!(repair::Report { applied: false, ..done.clone() }, dry, "it does what it said");
        let reversal =
            "SELECT kind, fact, root, amount, source_event_id, reverses FROM v_ledger WHERE kind = 'reversal'";
        assert_eq!(billing.rows(reversal), [format!("reversal|reversal:2|grant:invoice:in_1|-{left}|op_reversal:2|2")]);
        let audit = "SELECT actor, action, subject, event_id FROM v_audit WHERE action = 'reversal'";
        assert_eq!(billing.rows(audit), ["operator:alice|reversal|cus_1|op_reversal:2"]);
        assert_eq!(repair(&billing).duplicates, [], "once");
        if !refund_first {
            sends(&billing, &refunded("evt_5", 1, 500), "200 completed applied");
        }
        assert_eq!(billing.rows(BALANCES), ["cus_1|usd|3500"]);
        // What is reversed is neither given again nor taken again, and its webhook does not grant it anew.
        sends(&billing, &invoice_paid(Shape::Old, "evt_6", "in_1", "cus_1", 2000), "200 completed no_effect");
        sends(&billing, &refunded("evt_7", 1, 2000), "200 completed applied");
        assert_eq!(billing.rows(BALANCES), ["cus_1|usd|2000"]);
        assert_eq!(billing.violations(), [""; 0]);
    }
}

#[test]
fn a_session_that_an_old_table_names_and_its_invoice_are_one_purchase() {
    let rows = "cus_1,usd,2000,evt_a,cs_9,1780000000\ncus_1,tokens,50,evt_b,cs_9,1780000001\n";
    for mode in ["payment", "subscription"] {
        // At each place where the table can come in, with the session before or after the invoice.
        for (table_at, session_first) in [(0, true), (0, false), (1, true), (1, false), (3, true), (3, false)] {
            let billing = spawn();
            let paid = invoice_paid(Shape::New, "evt_2", "in_9", "cus_1", 2000);
            let told = session("evt_1", mode, 9);
            let webhooks = if session_first { [told, paid] } else { [paid, told] };
            for (at, event) in webhooks.iter().chain([&linked("evt_3", "in_9", 9)]).enumerate() {
                if at == table_at {
                    import(&billing, rows);
                }
                assert_eq!(billing.stripe_sends(event).status, 200);
            }
            if table_at == 3 {
                import(&billing, rows);
            }
            let case = format!("{mode}, table at {table_at}, session first: {session_first}");
            // Nothing ties the two when the second of them gives.
            let granted_twice = !session_first && table_at < 3;
            assert_eq!(repair(&billing).duplicates.is_empty(), !granted_twice, "{case}");
            assert_eq!(repair(&billing).duplicates, [], "{case}");
            let kept = billing.rows(BALANCES);
            let expected: &[&str] = if table_at == 0 || (table_at == 1 && session_first) {
                &["cus_1|tokens|50", "cus_1|usd|2000"]
            } else {
                &["cus_1|tokens|0", "cus_1|usd|2000"]
            };
            assert_eq!(kept, expected, "{case}");
            sends(&billing, &refunded("evt_4", 9, 1000), "200 completed applied");
            assert_eq!(billing.row("SELECT balance FROM v_balances WHERE unit = 'usd'"), "1000", "{case}");
            import(&billing, "cus_1,usd,2000,evt_c,in_9,\ncus_1,usd,-1000,evt_d,cs_9,\ncus_1,usd,2000,evt_e,cs_9,\n");
            sends(&billing, &refunded("evt_5", 9, 2000), "200 completed applied");
            assert!(billing.rows(BALANCES).iter().all(|balance| balance.ends_with("|0")), "{case}");
            assert_eq!(repair(&billing).duplicates, [], "{case}");
            assert_eq!(billing.violations(), [""; 0]);
        }
    }
}

#[test]
fn what_was_refunded_before_the_session_is_known_is_taken_back_once_it_is() {
    let billing = Setup::new().toml("[credits]\nsince = \"2200-01-01\"\n").spawn();
    import(&billing, "cus_1,usd,2000,evt_a,cs_9,1780000000\n");
    sends(&billing, &linked("evt_1", "in_9", 9), "200 completed no_effect");
    // The refund waits, because nothing tells of the invoice; later that it granted nothing.
    sends(&billing, &refunded("evt_2", 9, 500), "202 pending grant:invoice:in_9");
    sends(&billing, &session("evt_3", "subscription", 9), "200 completed no_effect");
    wait_until("the refund has run", || billing.rows(BALANCES) == ["cus_1|usd|1500"]);
    let billing = Setup::new().toml("[credits]\nsince = \"2200-01-01\"\n").spawn();
    import(&billing, "cus_1,usd,2000,evt_a,cs_9,1780000000\n");
    sends(&billing, &linked("evt_1", "in_9", 9), "200 completed no_effect");
    sends(&billing, &invoice_paid(Shape::New, "evt_2", "in_9", "cus_1", 2000), "200 completed no_effect");
    sends(&billing, &refunded("evt_3", 9, 500), "200 completed no_effect");
    sends(&billing, &session("evt_4", "subscription", 9), "200 completed applied");
    assert_eq!(billing.rows(BALANCES), ["cus_1|usd|1500"]);
}

#[test]
fn a_grant_of_which_nothing_is_left_is_reversed_as_well_so_that_nothing_gives_it_again() {
    let billing = spawn();
    sends(&billing, &checkout("evt_1", "cs_1", 1), "200 completed applied");
    sends(&billing, &invoice_paid(Shape::New, "evt_2", "in_1", "cus_1", 2000), "200 completed applied");
    sends(&billing, &linked("evt_3", "in_1", 1), "200 completed no_effect");
    let dispute = |id: &str, kind: &str, status: &str, at: i64| {
        let object = json!({
            "id": "dp_1", "object": "dispute", "payment_intent": "pi_1", "charge": "ch_1", "amount": 2000,
            "currency": "usd", "status": status, "livemode": false,
        });
        let mut event = event(Shape::New, id, kind, object);
        event["created"] = json!(at);
        event
    };
    let lost = dispute("evt_4", "charge.dispute.created", "needs_response", NOW - 50);
    sends(&billing, &lost, "200 completed applied");
    assert_eq!(told(&repair(&billing)), ["invoice in_1: grant:checkout:cs_1 stays, grant:invoice:in_1 0 usd"]);
    sends(&billing, &dispute("evt_5", "charge.dispute.closed", "won", NOW - 40), "200 completed applied");
    assert_eq!(billing.rows(BALANCES), ["cus_1|usd|2000"]);
}

#[test]
fn rows_for_a_payment_or_an_event_that_a_grant_covers_are_found() {
    let billing = spawn();
    let rows = "cus_1,credits,100,evt_a,pi_1,1780000000\n\
                cus_1,credits,40,evt_b,ch_5,1780000001\n\
                cus_1,credits,40,evt_c,pi_5,1780000002\n\
                cus_1,tokens,9,evt_d,pi_5,1780000003\n\
                cus_1,credits,30,evt_9,,1780000004\n\
                cus_1,credits,30,order_1,order_1,1780000005\n\
                cus_1,credits,30,order_2,order_1,1780000006\n\
                cus_1,credits,70,evt_e,in_3,1780000007\n\
                cus_1,tokens,5,evt_f,in_3,1780000008\n";
    let report = import(&billing, rows);
    assert_eq!((report.imported, report.repeats), (9, 0));
    sends(&billing, &refunded("evt_2", 5, 0), "200 completed no_effect");
    assert_eq!(told(&rehearse_repair(&billing)).len(), 1, "two rows for payment pi_5, one of them by its charge");
    // The webhooks come after the table that did not name their invoices.
    sends(&billing, &invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2000), "200 completed applied");
    sends(&billing, &linked("evt_3", "in_1", 1), "200 completed no_effect");
    sends(&billing, &invoice_paid(Shape::New, "evt_9", "in_9", "cus_1", 2000), "200 completed applied");
    let facts = billing.rows("SELECT fact FROM v_ledger WHERE entry_id <= 5 ORDER BY entry_id");
    let expected = [
        format!("invoice in_1: grant:invoice:in_1 stays, {} -100 credits", facts[0]),
        format!("invoice in_9: grant:invoice:in_9 stays, {} -30 credits", facts[4]),
        format!("payment pi_5 in credits: {} stays, {} -40 credits", facts[1], facts[2]),
    ];
    let done = repair(&billing);
    assert_eq!(told(&done), expected);
    assert_eq!((done.balances[0].before, done.balances[0].after), (340, 170));
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|170", "cus_1|tokens|14", "cus_1|usd|4000"]);
    assert_eq!(repair(&billing).duplicates, []);
}

#[test]
fn many_rows_go_in_beside_a_running_server_and_after_an_interruption() {
    let billing = spawn();
    let mut rows: String =
        (0..1_300).map(|n| format!("cus_1,credits,10,evt_t{n},in_t{n},{}\n", 1_780_000_000 + n)).collect();
    rows.push_str("cus_1,credits,10,evt_again,in_t3,1780009999\n");
    billing.somebody_runs(
        "CREATE TRIGGER broken BEFORE INSERT ON ledger_lines WHEN NEW.root = 'grant:invoice:in_t1100'
         BEGIN SELECT RAISE(ABORT, 'made by a test'); END",
    );
    try_import(&billing, &rows).expect_err("a broken database");
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|10000"], "whole transactions");
    billing.somebody_runs("DROP TRIGGER broken");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..40 {
                let event = invoice_paid(Shape::New, &format!("evt_{number}"), &format!("in_{number}"), "cus_1", 5);
                sends(&billing, &event, "200 completed applied");
            }
        });
        let report = import(&billing, &rows);
        assert_eq!((report.already_imported, report.imported, report.repeats), (1_000, 300, 1));
    });
    assert_eq!(billing.rows(BALANCES), ["cus_1|credits|13000", "cus_1|usd|200"]);
}

#[test]
fn a_balance_beyond_counting_is_refused_with_its_line() {
    let billing = spawn();
    let rows = format!("cus_1,credits,{},evt_1,,\ncus_2,credits,1,evt_3,,\ncus_1,credits,1,evt_2,,\n", i64::MAX);
    let error = try_import(&billing, &rows).expect_err("too much").to_string();
    assert!(error.starts_with("line 4: the balance of cus_1 would be beyond"), "{error}");
    assert_eq!(billing.rows(BALANCES), [""; 0]);
}

#[test]
fn any_order_of_the_rows_ends_in_the_same_balances() {
    let mut rng = Rng::new(7);
    for _ in 0..12 {
        let mut rows: Vec<String> = (0..40)
            .map(|at| {
                let object = *rng.pick(&["in_1", "in_2", "in_3", "cs_1", "pi_1", "use_1", ""]);
                let (account, unit) = (rng.below(3), *rng.pick(&["credits", "tokens"]));
                let amount = if rng.percent(70) { rng.within(1, 500) } else { -rng.within(1, 500) };
                format!("cus_{account},{unit},{amount},evt_{},{object},{}", rng.below(12), 1_780_000_000 + at)
            })
            .collect();
        rows.extend_from_within(..5);
        let mut ends = Vec::new();
        for _ in 0..3 {
            let billing = spawn();
            import(&billing, &(rows.join("\n") + "\n"));
            let imported = billing.rows(BALANCES);
            repair(&billing);
            ends.push((imported, billing.rows(BALANCES)));
            rng.shuffle(&mut rows);
        }
        assert!(ends.iter().all(|end| *end == ends[0]), "{rows:#?}: {ends:#?}");
    }
}

#[test]
fn two_repairs_at_once_reverse_once() {
    let billing = spawn();
    let rows: String = (0..40).map(|n| format!("cus_1,credits,10,evt_{n},pi_{},\n", n / 2)).collect();
    import(&billing, &rows);
    let reversed: usize = std::thread::scope(|scope| {
        let repairs: Vec<_> = (0..4).map(|_| scope.spawn(|| repair(&billing).duplicates.len())).collect();
        repairs.into_iter().map(|one| one.join().expect("a repair")).sum()
    });
    assert_eq!((reversed, billing.rows(BALANCES)), (20, vec!["cus_1|credits|200".to_owned()]));
}
