//! What waits for Stripe's API, from outside: the real service, and a fake Stripe over HTTP.

use std::time::{Duration, Instant};

use billingd::domain::ids::EventId;
use billingd::ops::replay::{How, replay};
use serde_json::{Value, json};

use super::fake_stripe::{FakeStripe, Fault, Served};
use super::fixtures::{self, SHAPES, Shape, event, invoice, invoice_paid, line, merge};
use super::harness::{Billing, NOW, Setup, wait_until};

/// Longer than any request that is not held up.
const GRACE: Duration = Duration::from_secs(10);

const CATALOGUE: &str = "[tiers]\norder = [\"basic\", \"pro\"]\n[credits]\nbasis = \"catalogue\"\n\
                         [[price]]\nid = \"price_basic\"\ntier = \"basic\"\ncredits = 100\n\
                         [[price]]\nid = \"price_pro\"\ntier = \"pro\"\ncredits = 300\n\
                         [[price]]\nid = \"price_pack\"\ncredits = 100\n";

/// A service with a key for a Stripe.
struct Scene {
    fake: FakeStripe,
    billing: Billing,
    _served: Served,
}

fn scene() -> Scene {
    Scene::with(Setup::new())
}

fn by_catalogue() -> Scene {
    Scene::with(Setup::new().toml(CATALOGUE))
}

impl Scene {
    fn with(setup: Setup) -> Self {
        let fake = FakeStripe::default();
        let served = fake.serve();
        let setup = setup.with("stripe.api_key", "rk_test_hush").with("stripe.api_base", &served.url());
        // A clock that goes on, for the waits after a failure.
        let setup = setup.with("server.shutdown_grace", "10s").clock(billingd::clock::now);
        Self { billing: setup.spawn(), fake, _served: served }
    }

    fn sends(&self, event: &Value) -> String {
        self.billing.stripe_sends(event).short()
    }

    /// Waits until an event is completed; with which outcome.
    fn outcome(&self, event: &str) -> String {
        let sql = format!("SELECT outcome FROM v_events WHERE event_id = '{event}'");
        wait_until(&format!("{event} is completed"), || self.billing.rows(&sql) != [""]);
        self.billing.row(&sql)
    }

    fn balance(&self) -> String {
        self.billing.row("SELECT coalesce(sum(balance), 0) FROM v_balances")
    }

    fn tier(&self) -> String {
        self.billing.row("SELECT tier FROM v_accounts")
    }

    fn asked(&self, path: &str) -> usize {
        self.fake.calls_of(path).len()
    }
}

/// A payment, as Stripe knows it, and the invoice that it paid, if any.
fn put_payment(fake: &FakeStripe, invoice: Option<&str>) {
    let charge = |invoice: Option<&str>| {
        json!({
            "id": "ch_1", "object": "charge", "created": NOW - 60, "payment_intent": "pi_1", "customer": "cus_1",
            "currency": "usd", "amount": 2000, "amount_captured": 2000, "amount_refunded": 500, "status": "succeeded",
            "invoice": invoice,
        })
    };
    fake.put_shapes(charge(invoice), charge(None));
    if let Some(invoice) = invoice {
        fake.put(json!({
            "id": "inpay_1", "object": "invoice_payment", "created": NOW - 60, "invoice": invoice, "status": "paid",
            "payment": { "type": "payment_intent", "payment_intent": "pi_1" },
        }));
    }
}

fn refund(id: &str, intent: Option<&str>, charge: Option<&str>) -> Value {
    let object = json!({
        "id": format!("re_{id}"), "object": "refund", "amount": 500, "currency": "usd", "status": "succeeded",
        "payment_intent": intent, "charge": charge, "created": NOW - 60,
    });
    event(Shape::New, id, "refund.created", object)
}

fn subscription(status: &str, price: &str) -> Value {
    json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_1", "status": status, "created": NOW - 3_600,
        "cancel_at_period_end": false, "metadata": {},
        "items": { "object": "list", "has_more": false, "data": [{
            "id": "si_1", "object": "subscription_item", "quantity": 1, "current_period_end": NOW + 2_588_400,
            "price": { "id": price, "object": "price", "product": "prod_1", "currency": "usd", "unit_amount": 1000 },
        }] },
    })
}

fn updated(id: &str, price: &str) -> Value {
    event(Shape::New, id, "customer.subscription.updated", subscription("active", price))
}

fn thin(id: &str, kind: &str, path: &str, twin: Option<&str>) -> Value {
    json!({
        "id": id, "object": "v2.core.event", "type": kind, "created": "2026-09-21T14:12:20.000Z", "livemode": false,
        "snapshot_event": twin, "related_object": { "id": "x", "type": "x", "url": path },
    })
}

#[test]
fn truncated_lines_of_several_pages_grant_once() {
    for shape in SHAPES {
        let scene = by_catalogue();
        scene.fake.page_max(2);
        let whole = |shape| {
            let mut whole = invoice(shape, "in_1", "cus_1", 5_000);
            let lines = (0..5).map(|number| {
                let mut line = line(shape, if number == 4 { "price_pro" } else { "price_basic" }, 1_000);
                line["id"] = json!(format!("il_{number}"));
                line
            });
            whole["lines"]["data"] = lines.collect();
            whole
        };
        scene.fake.put_shapes(whole(Shape::Old), whole(Shape::New));
        let mut told = invoice_paid(shape, "evt_1", "in_1", "cus_1", 5_000);
        merge(&mut told["data"]["object"]["lines"], json!({ "has_more": true, "total_count": 5 }));
        assert_eq!(scene.sends(&told), "202 pending lines:in_1");
        assert_eq!(scene.outcome("evt_1"), "applied");
        told["id"] = json!("evt_2");
        assert_eq!(scene.sends(&told), "200 completed no_effect", "the lines are known, and granted");
        assert_eq!(scene.balance(), "700", "{shape:?}");
        assert_eq!(scene.asked("/v1/invoices/in_1/lines"), 3);
    }
}

#[test]
fn a_refund_finds_its_grant_by_the_name_of_its_payment() {
    let by_intent = refund("evt_2", Some("pi_1"), None);
    let by_charge = refund("evt_2", None, Some("ch_1"));
    let paid = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000);
    for (refund, comes_first) in [(&by_intent, false), (&by_charge, false), (&by_intent, true), (&by_charge, true)] {
        let scene = scene();
        put_payment(&scene.fake, Some("in_1"));
        if !comes_first {
            scene.sends(&paid);
        }
        assert!(scene.sends(refund).starts_with("202 pending payment:"));
        if comes_first {
            let needs = "SELECT needs FROM v_events WHERE event_id = 'evt_2'";
            wait_until("the payment is tied", || scene.billing.row(needs) == "grant:invoice:in_1");
            assert_eq!(scene.sends(&paid), "200 completed applied");
        }
        assert_eq!(scene.outcome("evt_2"), "applied");
        assert_eq!(scene.balance(), "1500");
        assert_eq!(scene.asked("/v1/invoice_payments"), 1);
    }
}

#[test]
fn a_payment_of_nothing_of_ours_takes_nothing_back() {
    let scene = scene();
    put_payment(&scene.fake, None);
    scene.sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000));
    scene.sends(&refund("evt_2", None, Some("ch_1")));
    assert_eq!(scene.outcome("evt_2"), "no_effect");
    assert_eq!(scene.balance(), "2000");
}

#[test]
fn a_proration_gets_the_price_of_one_from_stripe() {
    let scene = by_catalogue();
    scene.fake.put(json!({
        "id": "price_pro", "object": "price", "created": NOW, "currency": "usd", "product": "prod_1",
        "unit_amount": 3_000, "unit_amount_decimal": "3000",
    }));
    let mut paid = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 1_500);
    let prorated = json!({ "type": "invoice_item_details", "invoice_item_details": { "proration": true, "subscription": "sub_1" } });
    let line = &mut paid["data"]["object"]["lines"]["data"][0];
    (line["parent"], line["pricing"]["price_details"]["price"]) = (prorated, json!("price_pro"));
    line["pricing"]["unit_amount_decimal"] = Value::Null;
    assert_eq!(scene.sends(&paid), "202 pending price:price_pro");
    assert_eq!(scene.outcome("evt_1"), "applied");
    assert_eq!(scene.balance(), "150");
}

#[test]
fn a_session_grants_what_its_line_items_tell() {
    let scene = by_catalogue();
    let session = json!({
        "id": "cs_1", "object": "checkout.session", "created": NOW, "mode": "payment", "payment_status": "paid",
        "status": "complete", "customer": "cus_1", "payment_intent": "pi_1", "amount_total": 2_000, "currency": "usd",
        "invoice": null, "metadata": {},
    });
    let item = json!({
        "id": "li_1", "object": "item", "amount_subtotal": 2_000, "amount_total": 2_000, "currency": "usd",
        "quantity": 2, "price": { "id": "price_pack", "object": "price", "currency": "usd", "unit_amount": 1_000 },
    });
    scene.fake.put(session.clone());
    scene.fake.put_inside("/v1/checkout/sessions/cs_1/line_items", item.clone(), item);
    let done = event(Shape::New, "evt_1", "checkout.session.completed", session);
    assert_eq!(scene.sends(&done), "202 pending session:cs_1");
    assert_eq!(scene.outcome("evt_1"), "applied");
    assert_eq!(scene.balance(), "200");
}

#[test]
fn two_states_of_one_second_are_told_apart_by_stripe() {
    for (order, now, tier) in [
        (["evt_1 basic", "evt_2 pro"], "price_basic", "basic"),
        (["evt_2 pro", "evt_1 basic"], "price_basic", "basic"),
        (["evt_2 basic", "evt_1 pro"], "price_pro", "pro"),
    ] {
        let scene = by_catalogue();
        scene.fake.put(subscription("active", now));
        for told in order {
            let (id, price) = told.split_once(' ').unwrap();
            scene.sends(&updated(id, &format!("price_{price}")));
        }
        let ids = order.map(|told| scene.outcome(told.split_once(' ').unwrap().0));
        assert_eq!(scene.tier(), tier, "{order:?} {ids:?}");
        assert_eq!(scene.asked("/v1/subscriptions/sub_1"), 1);
    }
}

#[test]
fn a_thin_event_and_its_twin_have_one_effect() {
    let path = "/v1/invoices/in_1";
    let pointer = thin("evt_thin", "v1.invoice.paid", path, Some("evt_1"));
    let twin = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000);

    let alone = scene();
    alone.fake.put(invoice(Shape::New, "in_1", "cus_1", 2_000));
    assert_eq!(alone.sends(&pointer), "202 pending object:/v1/invoices/in_1");
    assert_eq!(alone.outcome("evt_thin"), "applied");
    assert_eq!(alone.sends(&twin), "200 completed no_effect");
    assert_eq!((alone.balance(), alone.asked(path)), ("2000".into(), 1));

    let after = scene();
    assert_eq!(after.sends(&twin), "200 completed applied");
    assert_eq!(after.sends(&pointer), "200 completed no_effect");
    assert_eq!((after.balance(), after.asked(path)), ("2000".into(), 0), "the twin told it all");
}

#[test]
fn a_thin_event_of_what_is_gone_has_no_effect_if_it_was_a_draft() {
    let scene = scene();
    scene.sends(&thin("evt_1", "v1.invoice.updated", "/v1/invoices/in_1", None));
    assert_eq!(scene.outcome("evt_1"), "no_effect");
    assert_eq!(scene.balance(), "0");
}

/// Story: the key belonged to another account. Once that is put right, a replay asks anew.
#[test]
fn money_that_stripe_does_not_know_fails_and_a_replay_asks_again() {
    let scene = scene();
    scene.sends(&thin("evt_1", "v1.invoice.paid", "/v1/invoices/in_1", None));
    let failed = "SELECT error_code FROM v_events WHERE status = 'failed'";
    wait_until("it has failed", || scene.billing.rows(failed) == ["not_at_stripe"]);
    scene.fake.put(invoice(Shape::New, "in_1", "cus_1", 2_000));
    let ids = [EventId::parse("evt_1").expect("an id")];
    let now = billingd::clock::now();
    replay(&mut scene.billing.beside(), &scene.billing.errand_of("alice"), &ids, Vec::new(), How::default(), now)
        .expect("a replay");
    assert_eq!((scene.outcome("evt_1"), scene.balance()), ("applied".into(), "2000".into()));
}

#[test]
fn the_finer_thin_types_tell_of_a_subscription_too() {
    let scene = by_catalogue();
    let path = "/v1/subscriptions/sub_1";
    scene.fake.put(subscription("active", "price_pro"));
    scene.sends(&thin("evt_1", "v1.customer.subscription.item_price_changed", path, None));
    assert_eq!((scene.outcome("evt_1"), scene.tier()), ("applied".into(), "pro".into()));
    scene.fake.put(subscription("past_due", "price_pro"));
    let mut second = thin("evt_2", "v1.customer.subscription.past_due", path, None);
    second["created"] = json!("2026-09-21T14:12:30.000Z");
    scene.sends(&second);
    assert_eq!(scene.outcome("evt_2"), "applied");
    assert_eq!(scene.billing.row("SELECT status FROM v_subscriptions"), "past_due");
}

#[test]
fn fifty_events_that_wait_for_one_thing_cost_one_request() {
    let scene = scene();
    put_payment(&scene.fake, Some("in_1"));
    scene.fake.order(Fault::at("*").hang());
    scene.sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 100_000));
    scene.sends(&refund("evt_r0", Some("pi_1"), Some("ch_1")));
    wait_until("Stripe is asked", || scene.fake.hanging() == 1);
    for number in 1..50 {
        let event = refund(&format!("evt_r{number}"), Some("pi_1"), Some("ch_1"));
        assert_eq!(scene.sends(&event), "202 pending payment:ch_1 payment:pi_1");
    }
    scene.fake.heal();
    for number in 0..50 {
        assert_eq!(scene.outcome(&format!("evt_r{number}")), "applied");
    }
    assert_eq!((scene.balance(), scene.fake.calls().len()), ("75000".into(), 1));
}

/// Story: Stripe never tells one object, and the client gives up after minutes.
#[test]
fn a_request_that_hangs_delays_nobody_else() {
    let scene = by_catalogue();
    scene.fake.order(Fault::at("/v1/subscriptions/sub_1").hang());
    for (id, price) in [("evt_1", "price_basic"), ("evt_2", "price_pro")] {
        scene.sends(&updated(id, price));
    }
    wait_until("Stripe is asked", || scene.fake.hanging() == 1);
    scene.sends(&refund("evt_3", Some("pi_1"), None));
    assert_eq!(scene.outcome("evt_3"), "no_effect");
    assert_eq!(scene.fake.hanging(), 1);
    scene.fake.heal();
    assert_eq!([scene.outcome("evt_1"), scene.outcome("evt_2")].len(), 2);
}

#[test]
fn what_waits_is_asked_for_after_a_restart() {
    let mut scene = scene();
    put_payment(&scene.fake, Some("in_1"));
    scene.fake.order(Fault::at("*").hang());
    scene.sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000));
    scene.sends(&refund("evt_2", Some("pi_1"), None));
    for number in 3..=5 {
        scene.sends(&refund(&format!("evt_{number}"), Some(&format!("pi_{number}")), None));
    }
    wait_until("Stripe is asked as much as may be at once", || scene.fake.hanging() == 4);
    let began = Instant::now();
    scene.billing.restart();
    assert!(began.elapsed() < GRACE, "requests that hang are not waited for: {:?}", began.elapsed());
    assert_eq!(scene.billing.row("SELECT status FROM v_events WHERE event_id = 'evt_2'"), "pending");
    scene.fake.heal();
    assert_eq!(scene.outcome("evt_2"), "applied");
    assert_eq!(scene.outcome("evt_5"), "no_effect");
    assert_eq!(scene.balance(), "1500");
}

#[test]
fn without_a_key_nobody_is_asked() {
    let fake = FakeStripe::default();
    let served = fake.serve();
    put_payment(&fake, Some("in_1"));
    let billing = Setup::new().with("stripe.api_base", &served.url()).spawn();
    billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000));
    assert_eq!(billing.stripe_sends(&refund("evt_2", Some("pi_1"), None)).short(), "202 pending payment:pi_1");
    let pointer = thin("evt_3", "v1.invoice.paid", "/v1/invoices/in_1", None);
    assert_eq!(billing.stripe_sends(&pointer).short(), "202 pending object:/v1/invoices/in_1");
    // Tied states have a last one without a key too.
    billing.stripe_sends(&updated("evt_4", "price_basic"));
    assert_eq!(billing.stripe_sends(&updated("evt_5", "price_pro")).short(), "200 completed applied");
    assert_eq!((fake.calls().len(), served.connections()), (0, 0));
}

#[test]
fn what_waits_while_the_api_is_down_is_caught_up() {
    let faults = [
        Fault::at("*").status(500),
        Fault::at("*").status(429),
        Fault::at("*").cut(),
        Fault::at("*").status(401),
        Fault::at("*").body(200, "<html>"),
    ];
    for fault in faults {
        let scene = scene();
        put_payment(&scene.fake, Some("in_1"));
        scene.fake.order(fault.clone());
        scene.sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000));
        scene.sends(&refund("evt_2", Some("pi_1"), None));
        wait_until("Stripe was asked", || !scene.fake.calls().is_empty());
        let other = fixtures::nth_invoice_paid(7);
        assert_eq!(scene.sends(&other), "200 completed applied", "what waits for nothing does not wait");
        assert_eq!(scene.billing.row("SELECT status FROM v_events WHERE event_id = 'evt_2'"), "pending");
        scene.fake.heal();
        assert_eq!(scene.outcome("evt_2"), "applied", "{fault:?}");
        assert_eq!(scene.balance(), "3500");
    }
}
