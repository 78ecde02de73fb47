//! One pass of the reaper: what rests runs again, what is too old is put aside, what is fresh is left alone.

use billingd::ops::reap::{Reaped, reap};
use serde_json::{Value, json};

use super::fixtures::{Shape, event, invoice, line};
use super::harness::{Billing, NOW, Setup, spawn, wait_until};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

fn refund(number: usize) -> Value {
    let object = json!({
        "id": format!("re_{number}"), "object": "refund", "amount": 500, "currency": "usd", "status": "succeeded",
        "charge": null, "payment_intent": format!("pi_{number}"), "created": NOW - 10,
    });
    event(Shape::New, &format!("evt_re_{number}"), "refund.created", object)
}

fn link(number: usize) -> Value {
    let object = json!({
        "id": format!("inpay_{number}"), "object": "invoice_payment", "invoice": format!("in_{number}"),
        "status": "paid", "amount_paid": 2_000, "currency": "usd",
        "payment": { "type": "payment_intent", "payment_intent": format!("pi_{number}") },
    });
    event(Shape::New, &format!("evt_link_{number}"), "invoice_payment.paid", object)
}

fn poison(number: usize) -> Value {
    let mut object = invoice(Shape::New, &format!("in_p{number}"), "cus_1", 2_000);
    object["amount_paid"] = json!("much");
    event(Shape::New, &format!("evt_p{number}"), "invoice.paid", object)
}

fn reaps(billing: &Billing, now: i64) -> Reaped {
    reap(&mut billing.beside(), &billing.errand_of("carol"), 24 * HOUR, now).expect("a pass")
}

/// Makes an event look as if it had arrived, and last run, so much earlier.
fn ages(billing: &Billing, id: &str, received: i64, tried: i64) {
    billing.somebody_runs(&format!(
        "UPDATE events SET received_at = received_at - {received}, tried_at = tried_at - {tried} WHERE event_id = '{id}'"
    ));
}

fn state(billing: &Billing, id: &str) -> String {
    billing.row(&format!(
        "SELECT status || ' ' || dead_letter || ' ' || attempts || ' ' || coalesce(error_code, '-')
         FROM v_events WHERE event_id = '{id}'"
    ))
}

#[test]
fn what_rests_runs_again_what_is_too_old_is_put_aside_and_what_is_fresh_is_left_alone() {
    let waiting = "pending 0 0 -";
    for (name, sent, received, tried, expected, ran) in [
        ("fresh and waiting", refund(1), 0, 0, waiting, 0),
        ("rested and waiting", refund(1), HOUR, 10 * MINUTE, waiting, 1),
        ("nearly rested", refund(1), HOUR, 10 * MINUTE - 1, waiting, 0),
        ("ran before the clock was set back", refund(1), -6 * HOUR, -6 * HOUR, waiting, 1),
        ("nearly too old", refund(1), 24 * HOUR - 1, 0, waiting, 0),
        ("too old and waiting", refund(1), 24 * HOUR, 0, "failed 1 0 waited_too_long", 0),
        ("too old and rested", refund(1), 25 * HOUR, HOUR, "failed 1 0 waited_too_long", 1),
        ("fresh and failed", poison(1), 0, 0, "failed 0 1 unreadable_object", 0),
        ("failed, left to a redelivery", poison(1), HOUR, 20 * MINUTE - 1, "failed 0 1 unreadable_object", 0),
        ("failed and rested", poison(1), HOUR, 20 * MINUTE, "failed 0 2 unreadable_object", 1),
        ("too old and failed", poison(1), 24 * HOUR, 0, "failed 1 1 unreadable_object", 0),
    ] {
        let billing = spawn();
        billing.stripe_sends(&sent);
        let id = sent["id"].as_str().unwrap();
        ages(&billing, id, received, tried);
        let reaped = reaps(&billing, NOW * 1000);
        assert_eq!(state(&billing, id), expected, "{name}");
        assert_eq!(reaped.ran, ran, "{name}: {reaped:?}");
        let is_dead = expected.contains("failed 1");
        assert_eq!(reaped.dead_letters, if is_dead { vec![id] } else { Vec::new() }, "{name}");
        if is_dead {
            let row = "SELECT actor FROM v_audit WHERE action = 'event.dead_letter'";
            assert_eq!(billing.row(row), "operator:carol", "{name}");
            assert_eq!(reaps(&billing, NOW * 1000 + 48 * HOUR), Reaped::default(), "{name}: never twice");
        }
    }
}

#[test]
fn what_was_put_aside_and_fails_again_stays_a_dead_letter() {
    let billing = spawn();
    billing.stripe_sends(&poison(1));
    ages(&billing, "evt_p1", 24 * HOUR, 0);
    reaps(&billing, NOW * 1000);
    assert_eq!(billing.stripe_sends(&poison(1)).short(), "200 dead_letter");
    assert_eq!(state(&billing, "evt_p1"), "failed 1 2 unreadable_object");
}

#[test]
fn the_last_failure_in_a_pass_makes_a_dead_letter() {
    let billing = spawn();
    for _ in 0..4 {
        billing.stripe_sends(&poison(1));
    }
    ages(&billing, "evt_p1", 3 * HOUR, 160 * MINUTE);
    let reaped = reaps(&billing, NOW * 1000);
    assert_eq!((reaped.ran, reaped.failed, reaped.dead_letters), (1, 1, vec!["evt_p1".to_owned()]));
}

#[test]
fn what_was_put_aside_says_what_to_do_and_applies_when_what_it_waited_for_comes() {
    let billing = spawn();
    billing.stripe_sends(&refund(1));
    ages(&billing, "evt_re_1", 25 * HOUR, 0);
    reaps(&billing, NOW * 1000);
    let why = billing.row("SELECT last_error || ' ' || needs FROM v_events");
    for said in ["payment:pi_1", "invoice_payment.paid", "dismiss"] {
        assert!(why.contains(said), "{said} is not in {why}");
    }
    billing.stripe_sends(&event(Shape::New, "evt_1", "invoice.paid", invoice(Shape::New, "in_1", "cus_1", 2_000)));
    billing.stripe_sends(&link(1));
    wait_until("the dead letter has run", || state(&billing, "evt_re_1") == "completed 0 0 -");
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "1500");
}

fn subscription(id: &str, kind: &str, price: &str, created: i64) -> Value {
    let object = json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_1", "status": "active", "created": NOW - 9_000,
        "livemode": false, "metadata": {}, "cancel_at_period_end": false, "cancel_at": null, "ended_at": null,
        "items": { "object": "list", "has_more": false, "data": [{
            "id": "si_1", "object": "subscription_item", "quantity": 1,
            "current_period_start": NOW - 3_600, "current_period_end": NOW + 2_588_400,
            "price": { "id": price, "object": "price", "currency": "usd", "product": "prod_1", "unit_amount": 2_000 },
        }]},
    });
    let mut event = event(Shape::New, id, kind, object);
    event["created"] = json!(created);
    event
}

#[test]
fn a_pass_ends_held_tiers_where_no_server_runs() {
    let mut billing = Setup::new()
        .toml(
            "[tiers]\norder = [\"basic\", \"pro\"]\ndowngrade = \"period_end\"\n[credits]\nbasis = \"catalogue\"\n\
             [[price]]\nid = \"price_basic\"\ntier = \"basic\"\ncredits = 100\n\
             [[price]]\nid = \"price_pro\"\ntier = \"pro\"\ncredits = 500\n",
        )
        .spawn();
    billing.stripe_sends(&subscription("evt_1", "customer.subscription.created", "price_pro", NOW - 900));
    let mut bill = invoice(Shape::New, "in_1", "cus_1", 5_000);
    bill["parent"]["subscription_details"]["subscription"] = json!("sub_1");
    bill["lines"]["data"] = json!([line(Shape::New, "price_pro", 5_000)]);
    billing.stripe_sends(&event(Shape::New, "evt_2", "invoice.paid", bill));
    billing.stripe_sends(&subscription("evt_3", "customer.subscription.updated", "price_basic", NOW - 300));
    assert_eq!(billing.row("SELECT tier, pending_tier FROM v_subscriptions"), "pro|basic");
    billing.stop();
    let tier = "SELECT tier FROM v_accounts";
    assert_eq!((reaps(&billing, NOW * 1000).downgrades, billing.row(tier)), (0, "pro".into()));
    let later = (NOW + 2_588_400) * 1000;
    assert_eq!((reaps(&billing, later).downgrades, billing.row(tier)), (1, "basic".into()));
    assert_eq!(billing.row("SELECT count(*) FROM v_events WHERE source = 'job'"), "1");
    assert_eq!(reaps(&billing, later).downgrades, 0);
}
