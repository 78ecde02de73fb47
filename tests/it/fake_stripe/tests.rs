//! The fake itself, through the door that needs no network.

use serde_json::{Value, json};

use super::super::fixtures::{self, Shape};
use super::super::harness::NOW;
use super::*;

fn get(fake: &FakeStripe, path: &str, query: &[(&str, &str)]) -> Value {
    serde_json::from_slice(&fake.get(path, query).unwrap().told).unwrap()
}

fn ids(fake: &FakeStripe, path: &str, query: &[(&str, &str)]) -> Vec<String> {
    let list = get(fake, path, query);
    list["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// One of each kind that has filters of its own.
fn world() -> FakeStripe {
    let fake = FakeStripe::default();
    for (number, kind, pending) in [(1, "invoice.paid", 0), (2, "customer.created", 1), (3, "invoice.voided", 0)] {
        fake.put(json!({
            "id": format!("evt_{number}"), "object": "event", "created": NOW + number, "type": kind,
            "pending_webhooks": pending,
        }));
    }
    for (id, status) in [("sub_1", "active"), ("sub_2", "canceled"), ("sub_3", "incomplete_expired")] {
        fake.put(json!({
            "id": id, "object": "subscription", "created": NOW, "status": status, "customer": { "id": "cus_1" },
            "items": { "data": [{ "id": format!("si_of_{id}") }] },
        }));
    }
    fake.put_shapes(
        fixtures::invoice(Shape::Old, "in_1", "cus_1", 700),
        fixtures::invoice(Shape::New, "in_1", "cus_1", 700),
    );
    for (id, payment) in [
        ("inpay_1", json!({ "type": "payment_intent", "payment_intent": "pi_1" })),
        ("inpay_2", json!({ "type": "charge", "charge": "ch_1" })),
    ] {
        fake.put(json!({
            "id": id, "object": "invoice_payment", "created": NOW, "invoice": "in_1", "status": "paid",
            "payment": payment,
        }));
    }
    fake.put(json!({ "id": "re_1", "object": "refund", "created": NOW, "charge": "ch_1", "payment_intent": null }));
    fake.put(json!({ "id": "cus_1", "object": "customer", "created": NOW }));
    fake.put(json!({ "id": "cus_2", "object": "customer", "deleted": true }));
    fake.put(json!({ "id": "price_1", "object": "price", "created": NOW, "active": true }));
    fake
}

#[test]
fn lists_are_filtered() {
    let fake = world();
    let (second, third) = ((NOW + 2).to_string(), (NOW + 3).to_string());
    for (path, query, listed) in [
        ("/v1/events", &[][..], &["evt_3", "evt_2", "evt_1"][..]),
        ("/v1/events", &[("created", &*second)], &["evt_2"]),
        ("/v1/events", &[("created[gt]", &*second)], &["evt_3"]),
        ("/v1/events", &[("created[gte]", &*second), ("created[lt]", &*third)], &["evt_2"]),
        ("/v1/events", &[("created[lte]", &*second)], &["evt_2", "evt_1"]),
        ("/v1/events", &[("type", "invoice.*")], &["evt_3", "evt_1"]),
        ("/v1/events", &[("types[]", "invoice.paid"), ("types[]", "customer.created")], &["evt_2", "evt_1"]),
        ("/v1/events", &[("delivery_success", "false")], &["evt_2"]),
        ("/v1/events", &[("delivery_success", "true"), ("type", "*")], &["evt_3", "evt_1"]),
        ("/v1/subscriptions", &[], &["sub_3", "sub_1"]),
        ("/v1/subscriptions", &[("status", "all")], &["sub_3", "sub_2", "sub_1"]),
        ("/v1/subscriptions", &[("status", "ended")], &["sub_3", "sub_2"]),
        ("/v1/subscriptions", &[("status", "canceled"), ("customer", "cus_1")], &["sub_2"]),
        ("/v1/subscriptions", &[("customer", "cus_2")], &[]),
        ("/v1/subscription_items", &[("subscription", "sub_2")], &["si_of_sub_2"]),
        ("/v1/invoices", &[("subscription", "sub_of_cus_1"), ("status", "paid")], &["in_1"]),
        ("/v1/invoices", &[("status", "open")], &[]),
        ("/v1/invoice_payments", &[("payment[type]", "charge"), ("payment[charge]", "ch_1")], &["inpay_2"]),
        ("/v1/invoice_payments", &[("payment[payment_intent]", "pi_1"), ("invoice", "in_1")], &["inpay_1"]),
        ("/v1/refunds", &[("charge", "ch_1")], &["re_1"]),
        ("/v1/refunds", &[("payment_intent", "pi_1")], &[]),
        ("/v1/customers", &[], &["cus_1"]),
        ("/v1/prices", &[("active", "true")], &["price_1"]),
        ("/v1/disputes", &[], &[]),
    ] {
        assert_eq!(ids(&fake, path, query), listed, "{path} {query:?}");
    }
}

#[test]
fn lists_have_pages() {
    let fake = FakeStripe::default();
    for number in 0..12 {
        fake.put(json!({ "id": format!("ch_{number:02}"), "object": "charge", "created": NOW }));
    }
    let page = |query: &[(&str, &str)]| {
        let list = get(&fake, "/v1/charges", query);
        (ids(&fake, "/v1/charges", query), list["has_more"].as_bool().unwrap())
    };
    let numbers = |range: std::ops::RangeInclusive<i32>| -> Vec<String> {
        range.rev().map(|number| format!("ch_{number:02}")).collect()
    };
    assert_eq!(page(&[]), (numbers(2..=11), true));
    assert_eq!(page(&[("starting_after", "ch_02")]), (numbers(0..=1), false));
    assert_eq!(page(&[("starting_after", "ch_05"), ("limit", "5")]), (numbers(0..=4), false));
    assert_eq!(page(&[("ending_before", "ch_04"), ("limit", "3")]), (numbers(5..=7), true));
    assert_eq!(page(&[("ending_before", "ch_09")]), (numbers(10..=11), false));
    fake.page_max(2);
    assert_eq!(page(&[("limit", "100")]), (numbers(10..=11), true));
}

#[test]
fn what_stripe_does_not_take_is_refused() {
    let fake = world();
    let many: Vec<_> = (0..21).map(|_| ("types[]", "invoice.paid")).collect();
    for (path, query) in [
        ("/v1/events", &[("customer", "cus_1")][..]),
        ("/v1/events", &[("limit", "0")]),
        ("/v1/events", &[("limit", "101")]),
        ("/v1/events", &[("starting_after", "evt_1"), ("ending_before", "evt_2")]),
        ("/v1/events", &[("starting_after", "evt_gone")]),
        ("/v1/events", &[("type", "invoice.paid"), ("types[]", "invoice.paid")]),
        ("/v1/events", &many),
        ("/v1/subscription_items", &[]),
        ("/v1/webhook_endpoints", &[("created[gt]", "1")]),
    ] {
        assert_eq!(fake.get(path, query).unwrap_err().kind, Kind::Rejected, "{path} {query:?}");
    }
    for (path, kind) in [
        ("/v1/invoices/in_2", Kind::NotFound),
        ("/v1/invoices/in_2/lines", Kind::NotFound),
        ("/v2/core/events/evt_1", Kind::NotFound),
        ("/v1/balloons", Kind::Unknown),
        ("/v1/invoices/in_1/balloons", Kind::Unknown),
    ] {
        assert_eq!(fake.get(path, &[]).unwrap_err().kind, kind, "{path}");
    }
}

#[test]
fn objects_have_the_shape_of_the_version() {
    let fake = world();
    let is_new = || get(&fake, "/v1/invoices/in_1", &[]).get("parent").is_some();
    assert!(is_new());
    fake.always(Shape::Old);
    assert!(!is_new());
    let lists_new = get(&fake, "/v1/invoices", &[])["data"][0].get("parent").is_some();
    assert!(!lists_new);
    assert!(get(&fake, "/v1/invoices/in_1/lines", &[])["data"][0].get("price").is_some());
}

#[test]
fn lists_inside_objects_are_what_was_put_or_what_the_object_carries() {
    let fake = world();
    assert_eq!(ids(&fake, "/v1/invoices/in_1/lines", &[]), ["il_of_price_basic"]);
    for id in ["il_1", "il_2"] {
        fake.put_inside("/v1/invoices/in_1/lines", json!({ "id": id }), json!({ "id": id }));
    }
    assert_eq!(ids(&fake, "/v1/invoices/in_1/lines", &[]), ["il_1", "il_2"]);
    fake.put(json!({ "id": "cs_1", "object": "checkout.session", "created": NOW }));
    assert_eq!(ids(&fake, "/v1/checkout/sessions/cs_1/line_items", &[]), Vec::<String>::new());
    fake.put(json!({ "id": "si_9", "object": "subscription_item", "created": NOW, "subscription": "sub_1" }));
    assert_eq!(ids(&fake, "/v1/subscription_items", &[("subscription", "sub_1")]), ["si_9"]);
}

#[test]
fn objects_come_and_go() {
    let fake = world();
    assert_eq!(get(&fake, "/v1/account", &[])["id"], ACCOUNT);
    assert_eq!(get(&fake, "/v1/customers/cus_2", &[])["deleted"], true);
    fake.put(json!({ "id": "evt_v2", "object": "v2.core.event", "type": "v1.billing.meter.no_meter_found" }));
    assert_eq!(get(&fake, "/v2/core/events/evt_v2", &[])["object"], "v2.core.event");
    fake.put(json!({ "id": "cus_1", "object": "customer", "created": NOW, "name": "new" }));
    assert_eq!(get(&fake, "/v1/customers/cus_1", &[])["name"], "new");
    assert_eq!(ids(&fake, "/v1/customers", &[]), ["cus_1"]);
    fake.remove("cus_1");
    assert_eq!(fake.get("/v1/customers/cus_1", &[]).unwrap_err().kind, Kind::NotFound);
}

#[test]
fn faults_strike_when_they_are_ordered_to() {
    let fake = world();
    let kind = |query: &[(&str, &str)]| fake.get("/v1/events", query).map(|_| ()).map_err(|error| error.kind);
    fake.order(Fault::at("/v1/ev*").after(1).times(2).status(500));
    assert_eq!((0..4).map(|_| kind(&[]).is_ok()).collect::<Vec<_>>(), [true, false, false, true]);
    fake.page_max(1);
    fake.order(Fault::at("/v1/events").page(3).body(200, "{"));
    assert_eq!(kind(&[]), Ok(()));
    assert_eq!(kind(&[("starting_after", "evt_3")]), Ok(()));
    assert_eq!(kind(&[("starting_after", "evt_2")]), Err(Kind::Garbage));
    fake.order(Fault::at("/v1/events").page(1).cut());
    assert_eq!(kind(&[]), Err(Kind::Unavailable));
    fake.heal();
    assert_eq!(kind(&[("starting_after", "evt_2")]), Ok(()));
    let statuses: Vec<_> = fake.calls_of("/v1/events").iter().map(|call| call.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == Some(500)).count(), 2);
    assert_eq!(statuses.iter().filter(|status| status.is_none()).count(), 1);
}
