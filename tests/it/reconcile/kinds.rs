//! Each kind of finding comes, and goes.

use billingd::domain::policy::{Basis, Policy};
use billingd::ops::findings::acknowledge;
use billingd::ops::ingest::{self, Errand};
use billingd::ops::reconcile::Ended;
use billingd::ops::{import_ledger, repair};
use serde_json::{Value, json};

use super::{DAY, Site};
use crate::books::policy;
use crate::fixtures::{SHAPES, Shape, event, invoice, invoice_paid, merge};
use crate::harness::NOW;

fn test_mode() -> Policy {
    Policy { livemode: false, asks_stripe: true, ..policy(Basis::AmountPaid(None), false) }
}

fn site() -> Site {
    Site::under(test_mode(), NOW)
}

impl Site {
    /// Runs to its end; what is open then.
    fn finds(&mut self) -> Vec<String> {
        let report = self.reconcile();
        assert_eq!((report.result, report.cut_short), (Ended::Ok, Vec::new()));
        self.findings()
    }

    /// An invoice at Stripe that differs from the fixture in these members.
    fn has_invoice(&self, id: &str, more: &Value) {
        let dressed = |shape| {
            let mut object = invoice(shape, id, "cus_1", 2_000);
            merge(&mut object, more.clone());
            object
        };
        self.fake.put_shapes(dressed(Shape::Old), dressed(Shape::New));
    }

    fn has(&self, object: Value) {
        self.fake.put(object);
    }
}

const NOTHING: [String; 0] = [];

fn subscription(id: &str, status: &str, price: &str) -> Value {
    json!({
        "id": id, "object": "subscription", "customer": "cus_1", "status": status, "created": NOW - DAY,
        "cancel_at": null, "cancel_at_period_end": false, "ended_at": null, "pause_collection": null, "metadata": {},
        "livemode": false, "current_period_end": NOW + DAY,
        "items": { "object": "list", "has_more": false, "data": [{
            "id": "si_1", "quantity": 1, "current_period_end": NOW + DAY,
            "price": { "id": price, "object": "price", "product": "prod_1", "currency": "usd", "unit_amount": 1000 },
        }] },
    })
}

fn subscribed(status: &str, price: &str) -> Value {
    event(Shape::New, "evt_sub", "customer.subscription.created", subscription("sub_1", status, price))
}

#[test]
fn a_paid_invoice_without_a_grant() {
    for shape in SHAPES {
        let mut site = site();
        site.has_invoice("in_1", &json!({ "created": NOW - 50 * DAY }));
        assert_eq!(site.finds(), ["missing_grant in_1"]);
        assert_eq!(site.finds(), ["missing_grant in_1"], "a second run tells the same");
        let row = "SELECT amount, currency, first_seen_at, last_seen_at FROM v_findings";
        assert_eq!(site.rows(row), [format!("2000|usd|{NOW}|{NOW}")]);
        site.hears([&invoice_paid(shape, "evt_1", "in_1", "cus_1", 2_000)]);
        assert_eq!(site.finds(), NOTHING);
        assert_eq!(site.rows("SELECT status FROM v_findings"), ["resolved"]);
    }
}

#[test]
fn a_dismissed_invoice_has_its_reason() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    site.runs_sql(&format!(
        "INSERT INTO events (event_id, source, type, status, outcome, reason, livemode, object_id, created_at,
                             received_at, tried_at, processed_at)
         VALUES ('evt_1', 'webhook', 'invoice.paid', 'completed', 'ignored', 'another shop', 0, 'in_1', {NOW}, 1, 1, 1)"
    ));
    assert_eq!(site.finds(), NOTHING);
    site.runs_sql("UPDATE events SET type = 'invoice.sent', reason = 'no rule for this type'");
    assert_eq!(site.finds(), ["missing_grant in_1"], "what nobody would have granted for is no reason");
}

#[test]
fn a_grant_without_a_paid_invoice() {
    for shape in SHAPES {
        let mut site = site();
        site.hears([&invoice_paid(shape, "evt_1", "in_1", "cus_1", 2_000)]);
        assert_eq!(site.finds(), ["surplus_credit in_1"], "Stripe does not have it");
        site.has_invoice("in_1", &json!({ "status": "open", "amount_paid": 0 }));
        assert_eq!(site.finds(), ["surplus_credit in_1"]);
        site.has_invoice("in_1", &json!({}));
        assert_eq!(site.finds(), NOTHING);
    }
}

#[test]
fn an_invoice_in_another_state() {
    let mut site = site();
    let mut open = invoice(Shape::New, "in_1", "cus_1", 2_000);
    merge(&mut open, json!({ "status": "open", "amount_paid": 0, "created": NOW - 300 * DAY }));
    site.hears([&event(Shape::New, "evt_1", "invoice.created", open.clone())]);
    site.has_invoice("in_1", &json!({ "status": "void", "amount_paid": 0, "created": NOW - 300 * DAY }));
    assert_eq!(site.finds(), ["invoice_status in_1"], "asked for by its id: it is open here");
    merge(&mut open, json!({ "status": "void" }));
    site.hears([&event(Shape::New, "evt_2", "invoice.voided", open)]);
    assert_eq!(site.finds(), NOTHING);
}

#[test]
fn subscriptions_that_differ() {
    let mut site = site();
    site.hears([&subscribed("active", "price_basic")]);
    for (at_stripe, found) in [
        (Some(("active", "price_pro")), vec!["subscription_tier sub_1"]),
        (Some(("past_due", "price_basic")), vec!["subscription_state sub_1"]),
        (Some(("canceled", "price_basic")), vec!["subscription_state sub_1"]),
        (Some(("active", "price_unlisted")), vec!["unlisted_price sub_1"]),
        (None, vec!["subscription_missing_at_stripe sub_1"]),
        (Some(("active", "price_basic")), vec![]),
    ] {
        site.fake.remove("sub_1");
        if let Some((status, price)) = at_stripe {
            site.has(subscription("sub_1", status, price));
        }
        assert_eq!(site.finds(), found, "{at_stripe:?}");
    }
    site.has(subscription("sub_2", "trialing", "price_basic"));
    site.has(subscription("sub_3", "canceled", "price_basic"));
    assert_eq!(site.finds(), ["subscription_missing_here sub_2"]);
    assert_eq!(site.rows("SELECT count(*) FROM subscriptions"), ["1"], "a run only reports");
}

/// A refund of the payment of in_1, and the charge at Stripe.
fn refunded(site: &Site, status: &str) -> Value {
    let back = if status == "failed" { 0 } else { 500 };
    site.has(json!({
        "id": "ch_of_in_1", "object": "charge", "payment_intent": "pi_of_in_1", "customer": "cus_1", "currency": "usd",
        "amount": 2000, "amount_captured": 2000, "amount_refunded": back, "status": "succeeded", "created": NOW - DAY,
    }));
    let refund = json!({
        "id": "re_1", "object": "refund", "payment_intent": "pi_of_in_1", "charge": "ch_of_in_1", "amount": 500,
        "currency": "usd", "status": status, "created": NOW - DAY,
    });
    site.has(refund.clone());
    refund
}

#[test]
fn a_refund_that_took_nothing() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    site.hears([&invoice_paid(Shape::Old, "evt_1", "in_1", "cus_1", 2_000)]);
    let refund = refunded(&site, "succeeded");
    assert_eq!(site.finds(), ["refund_not_applied re_1"]);
    site.hears([&event(Shape::New, "evt_2", "refund.created", refund)]);
    assert_eq!(site.finds(), NOTHING);
    let refund = refunded(&site, "failed");
    assert_eq!(site.finds(), ["refund_not_applied re_1"], "its money came back");
    site.hears([&event(Shape::New, "evt_3", "refund.failed", refund)]);
    assert_eq!(site.finds(), NOTHING);
}

#[test]
fn a_refund_that_is_known_by_its_total_only() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    site.hears([&invoice_paid(Shape::Old, "evt_1", "in_1", "cus_1", 2_000)]);
    let charge = json!({
        "id": "ch_of_in_1", "object": "charge", "payment_intent": "pi_of_in_1", "customer": "cus_1", "currency": "usd",
        "amount": 2000, "amount_captured": 2000, "amount_refunded": 500, "status": "succeeded",
    });
    refunded(&site, "succeeded");
    site.hears([&event(Shape::New, "evt_2", "charge.refunded", charge)]);
    assert_eq!(site.finds(), NOTHING);
}

#[test]
fn a_failed_refund_that_the_total_does_not_count_any_more() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    site.hears([&invoice_paid(Shape::Old, "evt_1", "in_1", "cus_1", 2_000)]);
    let mut failed = refunded(&site, "succeeded");
    merge(&mut failed, json!({ "id": "re_2", "status": "failed" }));
    site.has(failed);
    let charge = json!({
        "id": "ch_of_in_1", "object": "charge", "payment_intent": "pi_of_in_1", "customer": "cus_1", "currency": "usd",
        "amount": 2000, "amount_captured": 2000, "amount_refunded": 500, "status": "succeeded",
    });
    site.hears([&event(Shape::New, "evt_2", "charge.refunded", charge)]);
    assert_eq!(site.finds(), NOTHING, "of two refunds, one came back before the total was told");
}

#[test]
fn a_refund_of_a_payment_that_nothing_here_has_tied() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    site.hears([&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000)]);
    site.has(json!({
        "id": "inpay_1", "object": "invoice_payment", "invoice": "in_1", "status": "paid", "created": NOW - DAY,
        "amount_paid": 2000, "currency": "usd", "payment": { "type": "payment_intent", "payment_intent": "pi_of_in_1" },
    }));
    refunded(&site, "succeeded");
    assert_eq!(site.finds(), ["refund_not_applied re_1"]);
}

#[test]
fn a_dispute_that_took_nothing() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    site.hears([&invoice_paid(Shape::Old, "evt_1", "in_1", "cus_1", 2_000)]);
    let mut dispute = json!({
        "id": "dp_1", "object": "dispute", "payment_intent": "pi_of_in_1", "charge": "ch_of_in_1", "amount": 2000,
        "currency": "usd", "status": "needs_response", "created": NOW - DAY,
    });
    site.has(dispute.clone());
    assert_eq!(site.finds(), ["dispute_not_applied dp_1"]);
    site.hears([&event(Shape::New, "evt_2", "charge.dispute.created", dispute.clone())]);
    assert_eq!(site.finds(), NOTHING);
    merge(&mut dispute, json!({ "status": "won", "created": NOW - 100 * DAY }));
    site.has(dispute);
    assert_eq!(site.finds(), ["dispute_not_applied dp_1"], "asked for by its id: it can still change");
}

#[test]
fn one_payment_that_is_granted_twice() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    let checkout = json!({
        "id": "cs_1", "object": "checkout.session", "mode": "payment", "payment_status": "paid", "status": "complete",
        "customer": "cus_1", "payment_intent": "pi_of_in_1", "invoice": null, "amount_total": 2000, "currency": "usd",
        "metadata": {},
    });
    site.hears([
        &invoice_paid(Shape::Old, "evt_1", "in_1", "cus_1", 2_000),
        &event(Shape::Old, "evt_2", "checkout.session.completed", checkout),
    ]);
    assert_eq!(site.finds(), ["duplicate_grant in_1"]);
}

#[test]
fn what_is_called_granted_twice_is_what_repair_would_reverse() {
    let mut site = site();
    let errand = Errand::new(
        ingest::Rules { policy: site.rules.policy.clone(), metadata_key: "account_id".into() },
        "operator:alice",
    );
    // Rows for a payment that no grant is of yet, two rows for another one, and two units of one invoice.
    let table = "account_id,unit,amount,source_event_id,source_object\n\
                 cus_1,credits,100,evt_a,pi_of_in_1\n\
                 cus_1,credits,40,evt_b,pi_5\n\
                 cus_1,credits,40,evt_c,pi_5\n\
                 cus_1,credits,70,evt_e,in_3\n\
                 cus_1,tokens,5,evt_f,in_3\n";
    let rows = import_ledger::read(table.as_bytes()).expect("a table");
    import_ledger::apply(&mut site.connection, &rows, &errand, site.now * 1000).expect("an import");
    site.has_invoice("in_1", &json!({}));
    site.hears([&invoice_paid(Shape::Old, "evt_1", "in_1", "cus_1", 2_000)]);
    assert_eq!(site.finds(), ["duplicate_grant in_1", "duplicate_grant pi_5"]);
    let told = site.rows("SELECT expected FROM v_findings ORDER BY subject");
    assert_eq!(told[0], "grant:invoice:in_1 alone");
    let repaired = repair::apply(&mut site.connection, &errand, site.now * 1000).expect("a repair");
    let named = |one: &repair::Duplicate| format!("also {}", one.extra.fact);
    let reversed: Vec<String> = repaired.duplicates.iter().map(named).collect();
    assert_eq!(site.rows("SELECT actual FROM v_findings ORDER BY subject"), reversed);
    assert_eq!(site.finds(), NOTHING);
}

#[test]
fn a_paid_checkout_without_a_grant() {
    let mut site = site();
    let checkout = json!({
        "id": "cs_1", "object": "checkout.session", "mode": "payment", "payment_status": "paid", "status": "complete",
        "customer": "cus_1", "payment_intent": "pi_1", "invoice": null, "amount_total": 700, "currency": "usd",
        "metadata": {}, "created": NOW - DAY,
    });
    site.has(checkout.clone());
    assert_eq!(site.finds(), ["missing_grant cs_1"]);
    site.now += 30 * DAY;
    site.hears([&event(Shape::New, "evt_1", "checkout.session.completed", checkout)]);
    assert_eq!(site.finds(), NOTHING);
}

fn endpoint(status: &str) -> Value {
    json!({
        "id": "we_1", "object": "webhook_endpoint", "url": "https://a.example/webhooks/stripe", "status": status,
        "enabled_events": ["customer.updated"], "created": NOW - 90 * DAY, "livemode": false,
    })
}

#[test]
fn an_endpoint_that_is_off() {
    let mut site = site();
    site.has(endpoint("disabled"));
    assert_eq!(site.finds(), ["endpoint_disabled we_1"]);
    site.has(endpoint("enabled"));
    assert_eq!(site.finds(), NOTHING);
}

#[test]
fn silence_of_the_webhooks() {
    let mut site = site();
    site.has(endpoint("enabled"));
    let at = |id: &str, kind: &str, at: i64| {
        let object = json!({ "id": format!("of_{id}"), "object": "customer", "metadata": {} });
        let mut one = event(Shape::New, id, kind, object);
        one["created"] = json!(at);
        one
    };
    let (heard, missed) = (at("evt_1", "customer.created", NOW - 2 * DAY), at("evt_2", "customer.updated", NOW + DAY));
    let not_wanted = at("evt_3", "customer.deleted", NOW + 2 * DAY);
    site.hears([&heard]);
    site.has(heard);
    site.has(missed.clone());
    site.has(not_wanted);
    site.now += 2 * DAY + 601;
    assert_eq!(site.finds(), ["silence /webhooks/stripe"], "an endpoint that wants it did not get it");
    assert_eq!(site.rows("SELECT actual FROM v_findings WHERE kind = 'silence'"), [format!("none since {NOW}")]);
    assert_eq!(site.condition("silence"), ["Stripe has 1 event for us, and has delivered nothing for 2d 0h"]);
    acknowledge(&mut site.connection, 1, None, "the proxy is moved today", "ann", NOW * 1000).unwrap();
    site.has(at("evt_4", "customer.updated", NOW + DAY + 1));
    site.now += 60;
    assert_eq!(site.finds(), NOTHING, "the same silence, one event longer");
    let counts = site.rows("SELECT counts ->> 'silent', counts ->> 'silent_since' FROM reconciliation_runs");
    assert_eq!(counts, [format!("1|{NOW}"), format!("2|{NOW}")]);
    assert_eq!(site.condition("silence"), [""; 0], "it is acknowledged");
    site.hears([&missed]);
    assert_eq!(site.finds(), NOTHING, "what was fetched first and delivered then was delivered");
}

/// Most deliveries of the day come, some do not.
#[test]
fn what_stripe_does_not_get_delivered_is_counted_by_the_day() {
    let mut site = site();
    site.has(endpoint("enabled"));
    let all: Vec<Value> = (0..30)
        .map(|number| {
            let object = json!({ "id": format!("cus_{number}"), "object": "customer", "metadata": {} });
            let mut one = event(Shape::New, &format!("evt_{number}"), "customer.updated", object);
            // The first eleven are of the day before.
            one["created"] = json!(NOW - DAY - 601 + (number - 10) * 3_600);
            one
        })
        .collect();
    all.iter().for_each(|one| site.has(one.clone()));
    site.hears(all.iter().skip(2).filter(|one| one["id"] != "evt_20"));
    site.finds();
    let counted = site.rows("SELECT counts ->> 'of_day', counts ->> 'of_day_undelivered' FROM reconciliation_runs");
    assert_eq!(counted, ["19|1"], "what is as old as a day, and the grace, counts no more");
    let told = "Stripe could not deliver 1 of 19 events of the 24 h before the reconciliation 0s ago";
    assert_eq!(site.condition("undelivered"), [told]);
    site.now += 2 * DAY + 1;
    assert_eq!(site.condition("undelivered"), [""; 0], "that was long ago");
}

#[test]
fn a_gap_that_stripe_has_forgotten() {
    let mut site = site();
    assert_eq!(site.finds(), NOTHING, "before the first run, nothing is known to be missing");
    site.now += 31 * DAY;
    let gap = ["events_beyond_reach /v1/events"];
    assert_eq!(site.finds(), gap);
    site.now += DAY;
    assert_eq!(site.finds(), gap, "the events are as lost as before");
    acknowledge(&mut site.connection, 1, None, "looked through the logs", "ann", site.now * 1000).unwrap();
    assert_eq!(site.finds(), NOTHING);
    site.now += 31 * DAY;
    assert_eq!(site.finds(), gap, "another gap");
}

#[test]
fn books_that_do_not_add_up() {
    let mut site = site();
    site.has_invoice("in_1", &json!({}));
    site.hears([&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000)]);
    site.runs_sql("UPDATE balances SET balance = balance + 1");
    assert_eq!(site.finds(), ["books_broken every balance is the sum of its lines"]);
    site.runs_sql("UPDATE balances SET balance = balance - 1");
    assert_eq!(site.finds(), NOTHING);
}

#[test]
fn what_is_acknowledged_stays_so_until_it_is_something_else() {
    let mut site = site();
    site.hears([&subscribed("active", "price_basic")]);
    site.has(subscription("sub_1", "active", "price_pro"));
    assert_eq!(site.finds(), ["subscription_tier sub_1"]);
    let refused = acknowledge(&mut site.connection, 1, None, " ", "ann", NOW * 1000);
    assert_eq!(refused.unwrap_err().to_string(), "a reason is needed, so that others can see why it is left as it is");
    acknowledge(&mut site.connection, 1, None, "agreed by phone", "ann", NOW * 1000).unwrap();
    assert_eq!(site.finds(), NOTHING);
    let row = "SELECT status, reason FROM v_findings";
    assert_eq!(site.rows(row), ["acknowledged|agreed by phone"]);
    let audit = "SELECT actor, subject FROM v_audit WHERE action = 'finding.acknowledge'";
    assert_eq!(site.rows(audit), ["operator:ann|sub_1"]);
    site.hears([&event(Shape::New, "evt_3", "customer.subscription.updated", {
        let mut changed = subscription("sub_1", "active", "price_team");
        changed["created"] = json!(NOW - 10);
        changed
    })]);
    assert_eq!(site.finds(), ["subscription_tier sub_1"], "here it is something else now");
    site.fake.remove("sub_1");
    site.has(subscription("sub_1", "active", "price_team"));
    assert_eq!(site.finds(), NOTHING);
    let error = acknowledge(&mut site.connection, 1, None, "late", "ann", NOW * 1000).unwrap_err();
    assert!(error.to_string().contains("is resolved"), "{error}");
}

#[test]
fn what_is_acknowledged_is_told_again_when_stripes_side_changes() {
    let mut site = site();
    site.hears([&subscribed("active", "price_basic")]);
    site.has(subscription("sub_1", "past_due", "price_basic"));
    assert_eq!(site.finds(), ["subscription_state sub_1"]);
    acknowledge(&mut site.connection, 1, None, "they pay tomorrow", "ann", NOW * 1000).unwrap();
    assert_eq!(site.finds(), NOTHING);
    site.has(subscription("sub_1", "canceled", "price_basic"));
    assert_eq!(site.finds(), ["subscription_state sub_1"]);
    assert_eq!(site.rows("SELECT actual, reason FROM v_findings"), ["status active|"]);
}
