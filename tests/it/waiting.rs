//! Events that wait: they are durable, wake when what they wait for comes, and leave nothing behind.

use serde_json::{Value, json};

use super::fixtures::{Shape, event, invoice_paid};
use super::harness::{spawn, wait_until};

/// More than one batch runs again.
const MANY: usize = 300;

fn refund(number: usize, intent: &str, amount: i64) -> Value {
    let object = json!({
        "id": format!("re_{number}"), "object": "refund", "amount": amount, "currency": "usd", "status": "succeeded",
        "charge": null, "payment_intent": intent, "created": 1_700_000_000,
    });
    event(Shape::New, &format!("evt_re_{number}"), "refund.created", object)
}

fn link(id: &str, invoice: &str, intent: &str) -> Value {
    let object = json!({
        "id": format!("inpay_{invoice}"), "object": "invoice_payment", "invoice": invoice, "status": "paid",
        "amount_paid": 100_000, "currency": "usd",
        "payment": {"type": "payment_intent", "payment_intent": intent},
    });
    event(Shape::New, id, "invoice_payment.paid", object)
}

#[test]
fn what_waits_survives_a_restart_wakes_and_leaves_nothing_behind() {
    let mut billing = spawn();
    assert_eq!(billing.stripe_sends(&refund(1, "pi_1", 25_000)).status, 202);
    assert_eq!(billing.stripe_sends(&refund(1, "pi_1", 25_000)).status, 202, "it runs again, and still waits");
    assert_eq!(billing.row("SELECT needs FROM v_events"), "payment:pi_1");
    billing.restart();
    billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 100_000));
    assert_eq!(billing.row("SELECT status FROM v_events WHERE event_id = 'evt_re_1'"), "pending");
    billing.stripe_sends(&link("evt_2", "in_1", "pi_1"));
    let balance = "SELECT balance FROM v_balances WHERE account_id = 'cus_1'";
    wait_until("the refund has taken back its part", || billing.row(balance) == "75000");
    assert_eq!(
        billing.row("SELECT status || ' ' || outcome FROM v_events WHERE event_id = 'evt_re_1'"),
        "completed applied"
    );
    assert_eq!(billing.row("SELECT count(*) FROM event_needs"), "0", "who is done needs nothing");
}

/// Story: all refunds of a busy day come before the one event that ties their payment.
#[test]
fn more_than_a_batch_of_waiting_events_is_run_in_turns() {
    let billing = spawn();
    for number in 0..MANY {
        assert_eq!(billing.stripe_sends(&refund(number, "pi_1", 100)).status, 202);
    }
    billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 100_000));
    billing.stripe_sends(&link("evt_2", "in_1", "pi_1"));
    let open = "SELECT count(*) FROM v_events WHERE status <> 'completed'";
    wait_until("all of them have run", || billing.row(open) == "0");
    assert_eq!(billing.row("SELECT balance FROM v_balances WHERE account_id = 'cus_1'"), "70000");
    assert_eq!(billing.row("SELECT count(*) FROM event_needs"), "0");
}
