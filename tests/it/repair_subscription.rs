//! One subscription is brought to the state at Stripe, or to a former one.

use billingd::domain::ids::{EventId, SubscriptionId};
use billingd::ops::repair_subscription::{self, RepairError, Repaired, Wanted};
use billingd::store::open::{self, CommandConnection};
use serde_json::{Value, json};

use super::adopt::{CATALOGUE, errand, says};
use super::fake_stripe::FakeStripe;
use super::fixtures::{SHAPES, Shape, event, merge, subscription};
use super::harness::{Billing, NOW, Setup, binding};

fn told(id: &str, kind: &str, at: i64, price: &str, status: &str) -> Value {
    let mut event = event(Shape::New, id, kind, subscription(Shape::New, "sub_1", "cus_1", price, status));
    merge(&mut event, json!({ "created": at }));
    event
}

/// The books know a basic plan.
fn basic() -> Billing {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    billing.stripe_sends(&told("evt_1", "customer.subscription.created", NOW - 100, "price_basic", "active"));
    billing
}

/// Stripe has a pro plan by now, and nobody told.
fn pro(shape: Shape) -> FakeStripe {
    let fake = FakeStripe::default();
    fake.always(shape);
    fake.put_shapes(
        subscription(Shape::Old, "sub_1", "cus_1", "price_pro", "past_due"),
        subscription(Shape::New, "sub_1", "cus_1", "price_pro", "past_due"),
    );
    fake
}

fn sub_1() -> SubscriptionId {
    SubscriptionId::parse("sub_1").unwrap()
}

fn beside(billing: &Billing) -> CommandConnection {
    open::beside(&billing.database(), &binding()).expect("a connection beside the server")
}

fn brings(billing: &Billing, wanted: &Wanted, id: &str) -> Result<Repaired, RepairError> {
    let id = EventId::parse(id).unwrap();
    repair_subscription::apply(&mut beside(billing), &errand(billing), wanted, &id, NOW * 1000)
}

const STATE: &str = "SELECT status, tier, price_ids, source_event_id FROM v_subscriptions";

#[test]
fn the_state_at_stripe_is_brought_and_later_webhooks_win() {
    for shape in SHAPES {
        let billing = basic();
        let wanted = repair_subscription::at_stripe(&beside(&billing), &pro(shape), &sub_1(), NOW * 1000).unwrap();
        let repaired = brings(&billing, &wanted, "op_1").unwrap();
        let columns: Vec<&str> = repaired.differences.iter().map(|one| one.column).collect();
        assert_eq!(columns, ["status", "items", "tier", "account_tier"], "{shape:?}");
        assert_eq!(billing.row(STATE), "past_due|pro|price_pro|op_1");
        assert_eq!(
            billing.row("SELECT actor, action FROM v_audit WHERE event_id = 'op_1' LIMIT 1"),
            "operator:alice|subscription"
        );
        let repaired = brings(&billing, &wanted, "op_2").unwrap();
        assert_eq!((repaired.differences, repaired.event_id), (Vec::new(), None), "nothing to do, and no event");
        assert_eq!(billing.rows("SELECT event_id FROM v_events WHERE event_id = 'op_2'"), [""; 0]);
        billing.stripe_sends(&told("evt_2", "customer.subscription.updated", NOW - 10, "price_basic", "active"));
        assert_eq!(billing.row(STATE), "past_due|pro|price_pro|op_1", "older");
        billing.stripe_sends(&told("evt_3", "customer.subscription.updated", NOW + 1, "price_basic", "active"));
        assert_eq!(billing.row(STATE), "active|basic|price_basic|evt_3", "newer");
    }
}

/// A webhook was from a moment that this machine's clock has not reached: what Stripe tells after it is newer.
#[test]
fn a_slow_clock_does_not_make_it_old() {
    let billing = basic();
    billing.stripe_sends(&told("evt_2", "customer.subscription.updated", NOW + 90, "price_basic", "unpaid"));
    let wanted = repair_subscription::at_stripe(&beside(&billing), &pro(Shape::New), &sub_1(), NOW * 1000).unwrap();
    brings(&billing, &wanted, "op_1").unwrap();
    assert_eq!(billing.row(STATE), "past_due|pro|price_pro|op_1");
}

/// The webhook came between the question and the change.
#[test]
fn a_newer_webhook_is_not_turned_back() {
    let billing = basic();
    let wanted = repair_subscription::at_stripe(&beside(&billing), &pro(Shape::New), &sub_1(), NOW * 1000).unwrap();
    billing.stripe_sends(&told("evt_2", "customer.subscription.deleted", NOW + 1, "price_basic", "canceled"));
    assert!(matches!(brings(&billing, &wanted, "op_1"), Err(RepairError::Newer(_))));
    assert_eq!(billing.row(STATE), "canceled|basic|price_basic|evt_2");
    assert_eq!(billing.rows("SELECT event_id FROM v_events WHERE source = 'operator'"), [""; 0]);
}

#[test]
fn a_former_state_comes_back_whole() {
    let billing = basic();
    let columns =
        "SELECT account_id, status, tier, price_ids, quantity, current_period_end, ends_at, collection_paused,
                   (SELECT tier FROM v_accounts) FROM v_subscriptions";
    let (before, items) = (billing.row(columns), billing.row("SELECT item_id FROM subscription_items"));
    let known = "SELECT newest ->> '$[0].items' FROM subscription_snapshots";
    let whole = billing.row(known);
    billing.stripe_sends(&told("evt_2", "customer.subscription.updated", NOW - 50, "price_pro", "past_due"));
    let seq = "SELECT min(seq) FROM v_audit WHERE action = 'subscription'";
    let seq: i64 = billing.row(seq).parse().unwrap();
    let wanted = repair_subscription::audited(&beside(&billing), &sub_1(), seq, NOW * 1000).unwrap();
    let repaired = brings(&billing, &wanted, "op_1").unwrap();
    assert_eq!(repaired.compared_with, format!("row {seq} of the audit log"));
    assert_eq!(billing.row(columns), before);
    assert_eq!((billing.row("SELECT item_id FROM subscription_items"), billing.row(known)), (items, whole));
    for other in [seq + 1_000, seq + 1] {
        let refused = repair_subscription::audited(&beside(&billing), &sub_1(), other, NOW * 1000);
        assert!(matches!(refused, Err(RepairError::NotAudited { .. })), "{other}");
    }
}

#[test]
fn repair_subscription_tells_people_and_programs() {
    let billing = basic();
    let served = pro(Shape::New).serve();
    let url = served.url();
    let key = [("BILLINGD__STRIPE__API_KEY", "rk_test_hush"), ("BILLINGD__STRIPE__API_BASE", &url)];
    let differs = "\
sub_1 is not as Stripe tells it

COLUMN        HERE                           THERE
status        active                         past_due
items         price_basic × 1 (si_of_sub_1)  price_pro × 1 (si_of_sub_1)
tier          basic                          pro
account_tier  basic                          pro

nothing is changed yet; run the same with --apply
";
    let (status, told) = says(&billing, &["repair", "subscription", "sub_1"], &key);
    assert_eq!((status, told), (3, differs.to_owned()));
    assert_eq!(billing.row(STATE), "active|basic|price_basic|evt_1");
    let (status, told) = says(&billing, &["repair", "subscription", "sub_1", "--apply", "--as", "bob", "--json"], &key);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let event = told["event_id"].as_str().expect("an event");
    assert!(status == 0 && event.starts_with("op_"), "{told}");
    assert_eq!(told["differences"][0], json!({ "column": "status", "here": "active", "there": "past_due" }));
    assert_eq!(billing.row(STATE), format!("past_due|pro|price_pro|{event}"));
    let (status, told) = says(&billing, &["repair", "subscription", "sub_1"], &key);
    assert_eq!((status, told.as_str()), (0, "sub_1 is as Stripe tells it\n"));
    let (status, told) = says(&billing, &["repair", "subscription", "sub_9"], &key);
    let missing =
        "billingd: Stripe has no subscription sub_9; if you know it, the key belongs to another account or mode\n";
    assert_eq!((status, told.as_str()), (1, missing));
    let (status, told) = says(&billing, &["repair", "subscription", "sub_1"], &[]);
    assert!(status == 1 && told.contains("there is no [stripe] api_key"), "{told}");
    let (status, told) = says(&billing, &["repair", "subscription", "sub_1", "--to", "9999"], &[]);
    assert!(status == 1 && told.contains("row 9999 of the audit log tells no state of subscription sub_1"), "{told}");
}
