//! Both families of shapes, odd and missing fields, and bodies that are no events.

use serde_json::{Value, json};

use super::*;
use crate::domain::event::{
    Charge, Checkout, CreditNote, Invoice, Line, Lines, PaymentRef, PriceRef, Subscription, Trace, Unit,
};
use crate::domain::ids::{AccountId, ChargeId, PaymentId, PriceId};
use crate::domain::money::UnitAmount;

fn event(kind: &str, object: &Value) -> Value {
    json!({
        "id": "evt_1", "object": "event", "type": kind, "created": 1_767_225_600, "livemode": true,
        "api_version": "2024-06-20", "request": {"id": null}, "pending_webhooks": 1, "data": {"object": object},
    })
}

fn read_json(event: &Value) -> Event {
    read(event.to_string().as_bytes(), "account_id").expect("an event")
}

fn body(kind: &str, object: &Value) -> Body {
    read_json(&event(kind, object)).body
}

/// The fixture with some values replaced, by JSON pointer; `null` is a value, `"ABSENT"` takes the key away.
fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let parent = object.pointer_mut(parent).expect("a parent");
        match (parent, key.parse::<usize>()) {
            (Value::Object(fields), _) if value == "ABSENT" => drop(fields.remove(key)),
            (Value::Object(fields), _) => drop(fields.insert(key.to_owned(), value.clone())),
            (Value::Array(items), Ok(index)) => items[index] = value.clone(),
            _ => panic!("nothing at {pointer}"),
        }
    }
    object
}

fn old_invoice() -> Value {
    json!({
        "id": "in_1", "object": "invoice", "customer": "cus_A", "subscription": "sub_1", "status": "paid", "paid": true,
        "paid_out_of_band": false, "currency": "usd", "total": 2000, "amount_due": 2000, "amount_paid": 2000,
        "created": 10, "status_transitions": {"paid_at": 20}, "charge": "ch_1", "payment_intent": "pi_1",
        "metadata": {}, "subscription_details": {"metadata": {"account_id": "user-7"}},
        "lines": {"object": "list", "has_more": false, "total_count": 1, "data": [{
            "id": "il_1", "type": "subscription", "amount": 2000, "currency": "usd", "quantity": 2,
            "subscription": "sub_1", "proration": false, "period": {"start": 100, "end": 200},
            "price": {
                "id": "price_a", "product": "prod_a", "lookup_key": "basic", "currency": "usd",
                "unit_amount": 1000, "unit_amount_decimal": "1000",
            },
            "plan": {"id": "price_a", "product": "prod_a", "amount": 1000},
        }]},
    })
}

fn new_invoice() -> Value {
    json!({
        "id": "in_1", "object": "invoice", "customer": {"id": "cus_A", "object": "customer"}, "status": "paid",
        "currency": "usd", "total": 2000, "amount_due": 2000, "amount_paid": 2000, "created": 10,
        "status_transitions": {"paid_at": 20}, "metadata": [],
        "parent": {"type": "subscription_details", "quote_details": null, "subscription_details": {
            "subscription": "sub_1", "metadata": {"account_id": "user-7"},
        }},
        "payments": {"object": "list", "has_more": false, "data": [{
            "status": "paid", "payment": {"type": "payment_intent", "payment_intent": "pi_1", "charge": "ch_1"},
        }]},
        "lines": {"object": "list", "has_more": false, "total_count": 1, "data": [{
            "id": "il_1", "amount": 2000, "currency": "usd", "quantity": 2, "period": {"start": 100, "end": 200},
            "parent": {"type": "subscription_item_details", "invoice_item_details": null, "subscription_item_details": {
                "subscription": "sub_1", "subscription_item": "si_1", "proration": false,
            }},
            "pricing": {
                "type": "price_details", "unit_amount_decimal": "1000",
                "price_details": {"price": "price_a", "product": "prod_a"},
            },
        }]},
    })
}

fn invoice(object: &Value) -> Invoice {
    match body("invoice.paid", object) {
        Body::Invoice(invoice) => invoice,
        other => panic!("{other:?}"),
    }
}

fn problem(kind: &str, object: &Value) -> (String, &'static str) {
    match body(kind, object) {
        Body::Unreadable(unreadable) => (unreadable.field, unreadable.problem),
        other => panic!("{other:?}"),
    }
}

fn only_line(object: &Value) -> Line {
    match invoice(object).lines {
        Lines::Complete(mut lines) if lines.len() == 1 => lines.remove(0),
        other => panic!("{other:?}"),
    }
}

fn costs(text: &str) -> Unit {
    Unit::Costs(UnitAmount::parse(text).expect("an amount"))
}

#[test]
fn both_shapes_of_an_invoice_say_the_same() {
    let (mut old, new) = (invoice(&old_invoice()), invoice(&new_invoice()));
    assert_eq!(old.customer.as_ref().map(AccountId::as_str), Some("cus_A"));
    assert_eq!(old.subscription.as_ref().map(AsRef::as_ref), Some("sub_1"));
    assert_eq!(old.reference.as_deref(), Some("user-7"));
    assert_eq!((old.paid_at, old.created), (Some(20), Some(10)));
    let payment = PaymentRef { payment_intent: PaymentId::parse("pi_1").ok(), charge: ChargeId::parse("ch_1").ok() };
    assert_eq!(old.payments, [payment]);
    let Lines::Complete(lines) = &mut old.lines else { panic!("truncated") };
    assert_eq!(lines[0].unit, costs("1000"));
    let price = lines[0].price.as_mut().expect("a price");
    // Only the old shape tells the lookup key.
    assert_eq!(price.lookup_key.take().as_deref(), Some("basic"));
    assert_eq!(old, new);
}

#[test]
fn a_body_may_carry_both_shapes_at_once() {
    let mut both = old_invoice();
    let new = new_invoice();
    let line = &mut both["lines"]["data"][0];
    line["pricing"] = new["lines"]["data"][0]["pricing"].clone();
    line["parent"] = new["lines"]["data"][0]["parent"].clone();
    both["parent"] = new["parent"].clone();
    both["payments"] = new["payments"].clone();
    assert_eq!(invoice(&both), invoice(&old_invoice()));
}

#[test]
fn the_status_of_an_invoice_without_one_comes_from_its_flags() {
    let rows = [
        (json!(true), json!(true), json!(false), "paid", 2000),
        (json!(false), json!(true), json!(true), "uncollectible", 0),
        (json!(false), json!(true), json!(false), "open", 0),
        (json!(false), json!(false), Value::Null, "open", 0),
    ];
    for (paid, closed, forgiven, status, amount_paid) in rows {
        let changes = [
            ("/status", json!("ABSENT")),
            ("/amount_paid", json!("ABSENT")),
            ("/created", json!("ABSENT")),
            ("/date", json!(11)),
            ("/paid", paid),
            ("/closed", closed),
            ("/forgiven", forgiven),
        ];
        let invoice = invoice(&with(old_invoice(), &changes));
        assert_eq!((invoice.status.as_str(), invoice.amount_paid, invoice.created), (status, amount_paid, Some(11)));
    }
    let silent = with(new_invoice(), &[("/status", Value::Null)]);
    assert_eq!(problem("invoice.paid", &silent), ("status".to_owned(), "missing"));
}

#[test]
fn where_the_subscription_of_an_invoice_is_found() {
    let absent = json!("ABSENT");
    let named = |object: &Value| invoice(object).subscription.map(|id| id.as_str().to_owned());
    let top = with(new_invoice(), &[("/parent", Value::Null), ("/subscription", json!({"id": "sub_2"}))]);
    assert_eq!(named(&top).as_deref(), Some("sub_2"));
    let line = with(new_invoice(), &[("/parent", absent.clone())]);
    assert_eq!(named(&line).as_deref(), Some("sub_1"));
    let old_line = with(old_invoice(), &[("/subscription", Value::Null)]);
    assert_eq!(named(&old_line).as_deref(), Some("sub_1"));
    let none = with(new_invoice(), &[("/parent", absent.clone()), ("/lines/data/0/parent", absent)]);
    assert_eq!(named(&none), None);
}

#[test]
fn lines_are_all_there_or_truncated() {
    let truncated = [
        with(new_invoice(), &[("/lines/has_more", json!(true))]),
        with(new_invoice(), &[("/lines/total_count", json!(2))]),
        with(old_invoice(), &[("/lines/total_count", json!("ABSENT")), ("/lines/count", json!(2))]),
        with(new_invoice(), &[("/lines", json!("ABSENT"))]),
        with(new_invoice(), &[("/lines", Value::Null)]),
        with(new_invoice(), &[("/lines", json!({"subscriptions": [], "invoiceitems": [], "prorations": []}))]),
        with(new_invoice(), &[("/lines/data", json!({"0": {}}))]),
    ];
    for object in truncated {
        assert_eq!(invoice(&object).lines, Lines::Truncated, "{}", object["lines"]);
    }
    let empty = with(new_invoice(), &[("/lines", json!({"data": [], "has_more": false, "total_count": 0}))]);
    assert_eq!(invoice(&empty).lines, Lines::Complete(Vec::new()));
}

#[test]
fn the_price_and_unit_of_a_line() {
    let line = "/lines/data/0";
    let at = |name: &str| format!("{line}{name}");
    let read = |object: Value, changes: &[(&str, Value)]| {
        let changes: Vec<_> = changes.iter().map(|(name, value)| (at(name), value.clone())).collect();
        let changes: Vec<_> = changes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let line = only_line(&with(object, &changes));
        (line.price.map(|price| price.id.as_str().to_owned()), line.unit)
    };
    let absent = json!("ABSENT");
    let plan_only = |amount: Value| json!({"id": "gold", "amount": amount, "currency": "usd"});
    let tiered = json!({"id": "price_t", "unit_amount": null, "unit_amount_decimal": null, "currency": "usd"});
    type Row<'a> = (Value, Vec<(&'a str, Value)>, Option<&'a str>, Unit);
    let rows: Vec<Row<'_>> = vec![
        (new_invoice(), vec![], Some("price_a"), costs("1000")),
        (new_invoice(), vec![("/pricing/unit_amount_decimal", json!("0.5"))], Some("price_a"), costs("0.5")),
        (new_invoice(), vec![("/pricing/unit_amount_decimal", Value::Null)], Some("price_a"), Unit::Untold),
        (new_invoice(), vec![("/pricing/unit_amount_decimal", json!(0.5))], Some("price_a"), Unit::Untold),
        (
            new_invoice(),
            vec![
                ("/pricing/price_details/price", json!({"id": "price_x", "unit_amount": 3})),
                ("/pricing/unit_amount_decimal", absent.clone()),
            ],
            Some("price_x"),
            costs("3"),
        ),
        (new_invoice(), vec![("/pricing", Value::Null)], None, Unit::Untold),
        // A trial of a price that costs something; a free price looks the same.
        (new_invoice(), vec![("/pricing/unit_amount_decimal", json!("0"))], Some("price_a"), Unit::Untold),
        (
            new_invoice(),
            vec![
                ("/pricing/unit_amount_decimal", json!("0")),
                ("/price", json!({"id": "price_a", "unit_amount": 1000, "currency": "usd"})),
            ],
            Some("price_a"),
            costs("1000"),
        ),
        // What a proration asks for is not what its price costs.
        (
            new_invoice(),
            vec![("/parent/subscription_item_details/proration", json!(true))],
            Some("price_a"),
            Unit::Untold,
        ),
        (
            old_invoice(),
            vec![("/price/unit_amount_decimal", json!("999.5")), ("/price/unit_amount", Value::Null)],
            Some("price_a"),
            costs("999.5"),
        ),
        (old_invoice(), vec![("/price", absent.clone()), ("/plan", plan_only(json!(700)))], Some("gold"), costs("700")),
        (old_invoice(), vec![("/price", Value::Null), ("/plan", plan_only(Value::Null))], Some("gold"), Unit::HasNone),
        (old_invoice(), vec![("/price", tiered.clone()), ("/plan", Value::Null)], Some("price_t"), Unit::HasNone),
        // Embedded with its default currency, which is not the line's.
        (old_invoice(), vec![("/price/currency", json!("eur")), ("/plan", Value::Null)], Some("price_a"), Unit::Untold),
        (old_invoice(), vec![("/price", json!("price_b")), ("/plan", Value::Null)], Some("price_b"), Unit::Untold),
        (old_invoice(), vec![("/price", Value::Null), ("/plan", Value::Null)], None, Unit::Untold),
    ];
    for (object, changes, price, unit) in rows {
        assert_eq!(read(object, &changes), (price.map(str::to_owned), unit), "{changes:?}");
    }
}

#[test]
fn what_a_line_belongs_to() {
    let flags = |object: &Value| {
        let line = only_line(object);
        (line.proration, line.on_subscription, line.quantity)
    };
    let item =
        json!({"type": "invoice_item_details", "invoice_item_details": {"proration": true, "subscription": "sub_1"}});
    let alone =
        json!({"type": "invoice_item_details", "invoice_item_details": {"proration": false, "subscription": null}});
    assert_eq!(flags(&old_invoice()), (false, true, Some(2)));
    assert_eq!(flags(&new_invoice()), (false, true, Some(2)));
    assert_eq!(flags(&with(new_invoice(), &[("/lines/data/0/parent", item)])), (true, true, Some(2)));
    assert_eq!(flags(&with(new_invoice(), &[("/lines/data/0/parent", alone)])), (false, false, Some(2)));
    let old_item = with(
        old_invoice(),
        &[
            ("/lines/data/0/type", json!("invoiceitem")),
            ("/lines/data/0/subscription", Value::Null),
            ("/lines/data/0/proration", json!(true)),
            ("/lines/data/0/quantity", Value::Null),
        ],
    );
    assert_eq!(flags(&old_item), (true, false, None));
}

#[test]
fn what_a_rule_needs_and_cannot_read_is_named() {
    let huge = serde_json::from_str::<Value>("9223372036854775808").expect("a number");
    let rows = [
        ("/id", json!("ABSENT"), "id", "missing"),
        ("/id", json!(""), "id", "not an id"),
        ("/currency", Value::Null, "currency", "missing"),
        ("/currency", json!("dollars"), "currency", "not a currency"),
        ("/amount_paid", json!(20.5), "amount_paid", "not an integer of 64 bits"),
        ("/amount_paid", json!(2e3), "amount_paid", "not an integer of 64 bits"),
        ("/amount_paid", json!("2000"), "amount_paid", "not an integer of 64 bits"),
        ("/amount_paid", huge, "amount_paid", "not an integer of 64 bits"),
        ("/total", json!("ABSENT"), "total", "missing"),
        ("/status", json!(7), "status", "not a text"),
        ("/lines/data/0/amount", json!("ABSENT"), "lines.data[0].amount", "missing"),
        ("/lines/data/0/amount", json!(1.0), "lines.data[0].amount", "not an integer of 64 bits"),
        ("/lines/data/0/quantity", json!(1.5), "lines.data[0].quantity", "not an integer of 64 bits"),
        ("/lines/data/0", json!(1), "lines.data[0]", "not an object"),
        ("/object", json!("charge"), "object", "not what events of this type carry"),
    ];
    for (pointer, value, field, complaint) in rows {
        for object in [old_invoice(), new_invoice()] {
            let object = with(object, &[(pointer, value.clone())]);
            assert_eq!(problem("invoice.paid", &object), (field.to_owned(), complaint));
            assert_eq!(body("invoice.sent", &object), Body::Other, "nothing acts on it");
        }
    }
}

#[test]
fn broken_texts_and_numbers_are_named_by_their_path() {
    let broken = |from: &str, to: &str| {
        let text = event("invoice.paid", &old_invoice()).to_string().replace(from, to);
        match read(text.as_bytes(), "account_id").expect("an event").body {
            Body::Unreadable(unreadable) => (unreadable.field, unreadable.problem),
            other => panic!("{other:?}"),
        }
    };
    let number = "not a number or text that can be read";
    assert_eq!(broken("\"amount_due\":2000", "\"amount_due\":1e999"), ("amount_due".to_owned(), number));
    assert_eq!(broken("\"cus_A\"", "\"\\ud800\""), ("customer".to_owned(), number));
    let (field, problem) = broken("\"total\":2000", "\"total\":2000,\"total\":1");
    assert_eq!((field.as_str(), problem), ("total", "given twice"));
}

#[test]
fn nothing_else_can_fail_an_invoice() {
    let unneeded = [
        "/customer",
        "/subscription",
        "/paid_out_of_band",
        "/charge",
        "/payment_intent",
        "/metadata",
        "/subscription_details",
        "/status_transitions",
        "/created",
        "/lines/data/0/price",
        "/lines/data/0/plan",
        "/lines/data/0/period",
        "/lines/data/0/proration",
        "/lines/data/0/type",
        "/lines/data/0/subscription",
        "/parent",
        "/payments",
        "/lines/data/0/parent",
        "/lines/data/0/pricing",
        "/something_new",
    ];
    let odd = [json!(null), json!([]), json!({}), json!([1, "a"]), json!(1.5), json!(-1), json!(true), json!("x\n")];
    for pointer in unneeded {
        for value in &odd {
            invoice(&with(old_invoice(), &[(pointer, value.clone())]));
            invoice(&with(new_invoice(), &[(pointer, value.clone())]));
        }
    }
}

#[test]
fn a_preview_is_no_invoice() {
    let preview = with(new_invoice(), &[("/id", json!("upcoming_in_1"))]);
    for kind in ["invoice.upcoming", "invoice.updated"] {
        let event = read_json(&event(kind, &preview));
        assert_eq!((event.object_id, event.body), (None, Body::Other));
    }
    let nameless = with(new_invoice(), &[("/id", json!("ABSENT"))]);
    assert_eq!(body("invoice.upcoming", &nameless), Body::Other);
}

#[test]
fn the_reference_is_the_invoices_own_before_its_subscriptions() {
    let own = with(new_invoice(), &[("/metadata", json!({"account_id": "own", "other": 7}))]);
    assert_eq!(invoice(&own).reference.as_deref(), Some("own"));
    let empty = with(new_invoice(), &[("/metadata", json!({"account_id": ""}))]);
    assert_eq!(invoice(&empty).reference.as_deref(), Some("user-7"));
}

fn subscription(object: &Value) -> Subscription {
    match body("customer.subscription.updated", object) {
        Body::Subscription(subscription) => subscription,
        other => panic!("{other:?}"),
    }
}

fn new_subscription() -> Value {
    let item = |id: &str, price: &str, end: i64| {
        json!({
            "id": id, "price": {"id": price, "product": {"id": "prod_a"}, "currency": "usd", "unit_amount": 5},
            "quantity": 3, "current_period_end": end,
        })
    };
    json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_A", "status": "active", "cancel_at": null,
        "cancel_at_period_end": false, "ended_at": null, "pause_collection": null, "metadata": {"account_id": "user-7"},
        "items": {"has_more": false, "total_count": 2, "data": [item("si_1", "price_a", 300), item("si_2", "price_b", 200)]},
    })
}

#[test]
fn the_period_of_a_subscription_ends_with_its_last_item() {
    let new = subscription(&new_subscription());
    assert_eq!(new.current_period_end, Some(300));
    assert_eq!(new.items.len(), 2);
    assert_eq!(new.items[0].price.product.as_deref(), Some("prod_a"));
    assert_eq!((&new.items[0].unit, new.items[0].quantity), (&costs("5"), Some(3)));
    assert_eq!(new.reference.as_deref(), Some("user-7"));
    assert!(!new.items_truncated && !new.collection_paused);
    let absent = json!("ABSENT");
    let old = with(
        new_subscription(),
        &[
            ("/items/data/0/current_period_end", absent.clone()),
            ("/items/data/1/current_period_end", absent),
            ("/current_period_end", json!(250)),
            ("/pause_collection", json!({"behavior": "void"})),
        ],
    );
    assert_eq!(subscription(&old).current_period_end, Some(250));
    assert!(subscription(&old).collection_paused);
}

#[test]
fn a_subscription_before_items_has_its_plan() {
    let ancient = json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_A", "status": "trialing", "quantity": 4,
        "plan": {"id": "gold", "amount": 900, "currency": "usd"}, "current_period_end": 9, "cancel_at_period_end": true,
    });
    let read = subscription(&ancient);
    assert_eq!(read.items.len(), 1);
    assert_eq!((read.items[0].price.id.as_str(), read.items[0].quantity), ("gold", Some(4)));
    assert_eq!(read.items[0].unit, costs("900"));
    assert!(read.cancel_at_period_end && !read.items_truncated);
    assert!(!subscription(&with(ancient.clone(), &[("/items", json!({}))])).items_truncated);
    for nothing in [Value::Null, json!({}), json!([])] {
        let nothing = subscription(&with(ancient.clone(), &[("/plan", nothing)]));
        assert!(nothing.items.is_empty() && nothing.items_truncated, "what it sells must be asked for");
    }
}

#[test]
fn a_metered_item_has_no_quantity_and_a_tiered_price_no_amount() {
    let metered = with(
        new_subscription(),
        &[("/items/data/0/quantity", json!("ABSENT")), ("/items/data/0/price/unit_amount", Value::Null)],
    );
    let item = &subscription(&metered).items[0];
    assert_eq!((item.quantity, &item.unit), (None, &Unit::HasNone));
    let truncated = with(new_subscription(), &[("/items/has_more", json!(true))]);
    assert!(subscription(&truncated).items_truncated);
    let priceless = with(new_subscription(), &[("/items/data/1/price", Value::Null)]);
    let field = "items.data[1].price".to_owned();
    assert_eq!(problem("customer.subscription.updated", &priceless), (field, "missing, or without an id"));
    let late = with(new_subscription(), &[("/ended_at", json!("soon"))]);
    assert_eq!(problem("customer.subscription.deleted", &late).0, "ended_at");
}

fn traced(object: &Value, previous: Option<Value>) -> Trace {
    let mut event = event("customer.subscription.updated", object);
    if let Some(previous) = previous {
        event["data"]["previous_attributes"] = previous;
    }
    match read_json(&event).body {
        Body::Subscription(subscription) => subscription.trace,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_trace_finds_the_snapshot_that_came_before() {
    let before = traced(&new_subscription(), None);
    assert_eq!(before.previous, None);
    let after = with(new_subscription(), &[("/status", json!("past_due")), ("/metadata/plan", json!("x"))]);
    let after =
        traced(&after, Some(json!({"status": "active", "items": {"data": new_subscription()["items"]["data"]}})));
    let previous = after.previous.expect("previous values");
    let path = |object: &str| trace::read("{}", Some(object)).expect("a trace").previous.expect("a leaf")[0].0;
    let mut told = [path(r#"{"items": {"data": 0}}"#), path(r#"{"status": 0}"#)];
    told.sort_unstable();
    assert_eq!(previous.iter().map(|(path, _)| *path).collect::<Vec<_>>(), told);
    assert!(previous.iter().all(|leaf| before.values.contains(leaf)));
    assert!(!previous.iter().all(|leaf| after.values.contains(leaf)));
    assert!(after.values.iter().any(|(told, _)| *told == path(r#"{"metadata": {"plan": 0}}"#)));
    assert!(after.values.is_sorted());
    assert_eq!(traced(&new_subscription(), Some(json!({}))).previous, Some(Vec::new()));
    assert_eq!(traced(&new_subscription(), Some(Value::Null)).previous, None);
}

#[test]
fn a_digest_is_the_same_in_every_build_and_for_every_order_of_keys() {
    let status = traced(&new_subscription(), Some(json!({"status": "active"}))).previous.expect("previous values");
    assert_eq!(status, [(0x37ce_f4ef_cc3f_2570, 0x4873_55b4_7640_e035)]);
    let values = |text: &str| trace::read(text, None).expect("a trace").values;
    assert_eq!(values(r#"{"a":[{"x":1,"y":[2]}],"b":{}}"#), values(r#"{"b": {}, "a": [{"y": [2], "x": 1}]}"#));
    assert_ne!(values(r#"{"a":[1,2]}"#), values(r#"{"a":[2,1]}"#));
}

fn charge(kind: &str, object: &Value) -> Charge {
    match body(kind, object) {
        Body::Charge(charge) => charge,
        other => panic!("{other:?}"),
    }
}

fn a_charge() -> Value {
    json!({
        "id": "ch_1", "object": "charge", "amount": 2000, "amount_captured": 1500, "amount_refunded": 500,
        "captured": true, "paid": true, "currency": "usd", "customer": null, "payment_intent": "pi_1",
        "invoice": {"id": "in_1"}, "status": "succeeded",
    })
}

#[test]
fn how_much_of_a_charge_was_captured() {
    let absent = json!("ABSENT");
    let captured = |changes: &[(&str, Value)]| {
        let without = with(a_charge(), &[("/amount_captured", absent.clone())]);
        charge("charge.succeeded", &with(without, changes)).amount_captured
    };
    assert_eq!(charge("charge.refunded", &a_charge()).amount_captured, 1500);
    assert_eq!(captured(&[]), 2000);
    assert_eq!(captured(&[("/captured", absent.clone())]), 2000);
    assert_eq!(captured(&[("/captured", json!(false))]), 0);
    assert_eq!(captured(&[("/status", json!("failed"))]), 0);
    assert_eq!(captured(&[("/status", absent.clone()), ("/paid", json!(false))]), 0);
}

#[test]
fn refunds_inside_of_an_old_charge() {
    let refund = |id: Value| json!({"id": id, "amount": 5, "currency": "usd", "created": 7});
    let list = json!({"data": [refund(json!("re_1")), refund(Value::Null), 7], "has_more": false});
    for refunds in [list, json!([refund(json!("re_1"))])] {
        let read = charge("charge.refunded", &with(a_charge(), &[("/refunds", refunds)]));
        assert_eq!(read.refunds.len(), 1);
        assert_eq!(read.refunds[0].status, None);
        assert_eq!(read.refunds[0].payment.charge, Some(read.id));
        assert_eq!(read.refunds[0].payment.payment_intent, read.payment_intent);
    }
    for odd in [Value::Null, json!({}), json!(7), json!({"data": 7})] {
        assert_eq!(charge("charge.refunded", &with(a_charge(), &[("/refunds", odd)])).refunds, []);
    }
}

#[test]
fn the_objects_own_word_decides_among_charges() {
    let refund = json!({
        "id": "re_1", "object": "refund", "amount": 5, "currency": "usd", "created": 7, "charge": null,
        "payment_intent": {"id": "pi_1"}, "status": "failed",
    });
    let dispute = json!({
        "id": "dp_1", "object": "dispute", "amount": 5, "currency": "usd", "charge": "ch_1", "status": "lost",
    });
    for kind in ["charge.refund.updated", "refund.created", "charge.updated"] {
        assert!(matches!(body(kind, &refund), Body::Refund(_)), "{kind}");
    }
    assert!(matches!(body("charge.dispute.funds_withdrawn", &dispute), Body::Dispute(_)));
    assert!(matches!(body("charge.refunded", &a_charge()), Body::Charge(_)));
    assert_eq!(problem("refund.created", &a_charge()).0, "object");
    let nameless = with(dispute, &[("/id", json!("ABSENT"))]);
    let Body::Dispute(dispute) = body("charge.dispute.created", &nameless) else { panic!("no dispute") };
    assert_eq!(dispute.id.as_str(), "ch_1");
}

#[test]
fn payment_intents_and_invoice_payments_tie_things_together() {
    let intent = json!({
        "id": "pi_1", "object": "payment_intent", "invoice": "in_1", "latest_charge": null,
        "charges": {"data": [{"id": "ch_2"}, {"id": "ch_1"}]},
    });
    let Body::PaymentIntent(intent) = body("payment_intent.succeeded", &intent) else { panic!("no intent") };
    assert_eq!(intent.latest_charge.as_ref().map(ChargeId::as_str), Some("ch_2"));
    let link = json!({
        "id": "inpay_1", "object": "invoice_payment", "invoice": {"id": "in_1"}, "status": "paid", "amount_paid": 5,
        "currency": "usd", "payment": {"type": "payment_record", "payment_record": "prec_1"},
    });
    let Body::InvoicePayment(link) = body("invoice_payment.paid", &link) else { panic!("no link") };
    assert_eq!((link.invoice.as_str(), link.amount_paid, link.payment), ("in_1", Some(5), None));
}

fn checkout(changes: &[(&str, Value)]) -> Checkout {
    let session = json!({
        "id": "cs_test_1", "object": "checkout.session", "mode": "payment", "payment_status": "paid",
        "customer": null, "payment_intent": "pi_1", "invoice": null, "subscription": null, "amount_total": 1000,
        "currency": "USD", "client_reference_id": "user-8", "metadata": {"price": "price_a", "quantity": "3"},
    });
    match body("checkout.session.completed", &with(session, changes)) {
        Body::Checkout(checkout) => checkout,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_checkout_sold() {
    let read = checkout(&[]);
    assert_eq!(read.metadata_price.as_ref().map(PriceId::as_str), Some("price_a"));
    assert_eq!(read.metadata_quantity, Some(Ok(3)));
    assert_eq!((read.reference, read.client_reference_id.as_deref()), (None, Some("user-8")));
    assert_eq!(read.currency.map(|currency| currency.to_string()).as_deref(), Some("usd"));
    for odd in ["0", "-1", "+3", "1.5", "three", "99999999999999999999", " 3"] {
        let quantity = checkout(&[("/metadata/quantity", json!(odd))]).metadata_quantity;
        let problem = quantity.expect("a quantity").expect_err(odd);
        assert_eq!(problem.field, "metadata.quantity");
    }
    assert_eq!(checkout(&[("/metadata", Value::Null)]).metadata_quantity, None);
}

#[test]
fn customers_prices_and_credit_notes() {
    let customer = json!({"id": "cus_A", "object": "customer", "metadata": {"account_id": "user-7"}});
    let Body::Customer(read) = body("customer.updated", &customer) else { panic!("no customer") };
    assert_eq!((read.deleted, read.reference.as_deref()), (false, Some("user-7")));
    let Body::Customer(read) = body("customer.deleted", &customer) else { panic!("no customer") };
    assert!(read.deleted);
    let price = json!({"id": "price_a", "object": "price", "product": "prod_a", "currency": "jpy", "unit_amount": 500});
    let Body::Price(read) = body("price.created", &price) else { panic!("no price") };
    let ids = PriceRef {
        id: PriceId::parse("price_a").expect("an id"),
        product: Some("prod_a".to_owned()),
        lookup_key: None,
    };
    assert_eq!((read.price, read.unit), (ids, costs("500")));
    let note = json!({
        "id": "cn_1", "object": "credit_note", "invoice": "in_1", "customer": "cus_A", "currency": "usd", "total": 50,
        "customer_balance_transaction": "cbtxn_1", "out_of_band_amount": null,
    });
    let Body::CreditNote(CreditNote { to_balance, out_of_band, .. }) = body("credit_note.created", &note) else {
        panic!("no credit note")
    };
    assert_eq!((to_balance, out_of_band), (true, 0));
}

#[test]
fn types_without_a_rule_carry_anything() {
    for kind in ["customer.discount.created", "customer.source.expiring", "radar.early_fraud_warning.created", "x"] {
        let event = read_json(&event(kind, &json!({"id": "a_1", "object": "whatever"})));
        assert_eq!((event.object_id.as_deref(), event.body), (Some("a_1"), Body::Other), "{kind}");
    }
    assert_eq!(read_json(&event("entitlements.active_entitlement_summary.updated", &json!({}))).object_id, None);
}

#[test]
fn a_type_that_only_begins_like_a_known_one_is_unknown() {
    for (kind, is_known) in [
        ("invoice.paid", true),
        ("invoice.sent", true),
        ("invoice.invoice.paid", false),
        ("invoice.paid.again", false),
        ("invoice.", false),
    ] {
        assert_eq!(matches!(body(kind, &new_invoice()), Body::Invoice(_)), is_known, "{kind}");
    }
    let subscription = "customer.subscription.customer.subscription.created";
    assert_eq!(body(subscription, &new_subscription()), Body::Other);
}

#[test]
fn odd_envelopes_of_real_events() {
    let base = || event("invoice.paid", &new_invoice());
    for request in [Value::Null, json!("req_1"), json!({}), json!({"id": null, "idempotency_key": "k"})] {
        assert!(matches!(read_json(&with(base(), &[("/request", request)])).body, Body::Invoice(_)));
    }
    let bare =
        with(base(), &[("/object", json!("ABSENT")), ("/livemode", json!("ABSENT")), ("/api_version", Value::Null)]);
    let bare = read_json(&bare);
    assert_eq!((bare.livemode, bare.api_version, bare.stripe_account), (false, None, None));
    for name in ["/account", "/user_id"] {
        let connected = read_json(&with(base(), &[(name, json!("acct_1"))]));
        assert_eq!(connected.stripe_account.as_deref(), Some("acct_1"));
    }
}

#[test]
fn a_thin_event_points_to_its_object() {
    let thin = json!({
        "id": "evt_test_1", "object": "v2.core.event", "type": "v1.invoice.paid", "livemode": true,
        "created": "2026-01-01T00:00:00.435Z", "context": "acct_1", "snapshot_event": "evt_1",
        "related_object": {"id": "in_1", "type": "invoice", "url": "/v1/invoices/in_1"},
    });
    let event = read_json(&thin);
    assert_eq!((event.created, event.object_id.as_deref()), (1_767_225_600, Some("in_1")));
    assert_eq!(event.stripe_account.as_deref(), Some("acct_1"));
    let Body::Thin(read) = event.body else { panic!("not thin") };
    assert_eq!(read.snapshot_event.as_ref().map(AsRef::as_ref), Some("evt_1"));
    assert_eq!(read.related_url.as_deref(), Some("/v1/invoices/in_1"));
    let Body::Thin(bare) = read_json(&with(thin, &[("/related_object", Value::Null)])).body else { panic!("not thin") };
    assert!(bare.is_acted_on);
    for (kind, acted_on) in [
        ("v1.invoice.upcoming", false),
        ("v1.customer.tax_id.created", false),
        ("v1.customer.subscription.past_due", true),
        ("v1.credit_note.created", true),
        ("v2.core.account.updated", false),
    ] {
        assert_eq!(is_acted_on_thinly(kind), acted_on, "{kind}");
    }
}

#[test]
fn bodies_that_are_no_events() {
    let code = |body: &[u8]| read(body, "account_id").expect_err("no event").code();
    let good = event("x", &json!({})).to_string();
    for body in ["", " ", "{", "nul", "{}x", "{'id':1}", "\u{feff}{}", "[1,]", "{\"id\":\"evt_1\",}"] {
        assert_eq!(code(body.as_bytes()), "body_not_json", "{body:?}");
    }
    assert_eq!(code(b"\xff\xfe{}"), "body_not_json");
    assert_eq!(code(b"{\"id\":\"\xc3\x28\"}"), "body_not_json");
    assert_eq!(code(format!("{good}{good}").as_bytes()), "body_not_json");
    assert_eq!(code(&good.as_bytes()[..good.len() - 1]), "body_not_json");
    for body in ["{}", "[]", "null", "7", "\"evt_1\"", r#"["event","evt_1"]"#, r#"{"id":"evt_1","id":"evt_2"}"#] {
        assert_eq!(code(body.as_bytes()), "not_an_event", "{body:?}");
    }
    let changes = [
        ("/id", Value::Null),
        ("/id", json!("")),
        ("/id", json!(7)),
        ("/id", json!("x".repeat(256))),
        ("/type", json!("ABSENT")),
        ("/type", json!("")),
        ("/created", json!("ABSENT")),
        ("/created", json!(1.5)),
        ("/created", json!("yesterday")),
        ("/object", json!("list")),
        ("/object", Value::Null),
        ("/data", json!("ABSENT")),
        ("/data", json!([{}])),
        ("/data/object", Value::Null),
        ("/data/object", json!([])),
        ("/data/object", json!("in_1")),
    ];
    for (pointer, value) in changes {
        let body = with(event("x", &json!({})), &[(pointer, value.clone())]);
        assert_eq!(code(body.to_string().as_bytes()), "not_an_event", "{pointer} {value}");
    }
}

#[test]
fn deep_nesting_ends_in_a_clear_answer() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = |kind: &str, object: &Value| {
        let text = event(kind, object).to_string().replace("\"DEEP\"", &deep);
        read(text.as_bytes(), "account_id").expect("an event").body
    };
    let invoice = with(new_invoice(), &[("/metadata", json!("DEEP")), ("/new", json!("DEEP"))]);
    assert!(matches!(nested("invoice.paid", &invoice), Body::Invoice(_)), "nothing needs what is nested there");
    let subscription = with(new_subscription(), &[("/new", json!("DEEP"))]);
    assert!(matches!(nested("customer.subscription.updated", &subscription), Body::Unreadable(_)));
    assert_eq!(read(deep.as_bytes(), "account_id").map_err(NotAnEvent::code), Err("not_an_event"));
    assert_eq!(read(&deep.as_bytes()[1..], "account_id").map_err(NotAnEvent::code), Err("body_not_json"));
}

#[test]
fn every_type_that_we_act_on_has_a_reader_and_is_listed_once() {
    let mut seen = std::collections::BTreeSet::new();
    for (kind, purpose) in event_types() {
        assert!(Family::of(kind).is_some(), "{kind}");
        assert!(seen.insert(kind) && !purpose.is_empty(), "{kind}");
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("below sides")
    }
}

fn fixtures() -> Vec<Value> {
    let mut updated = event("customer.subscription.updated", &new_subscription());
    updated["data"]["previous_attributes"] = json!({"status": "trialing", "items": {"data": []}});
    vec![
        event("invoice.paid", &old_invoice()),
        event("invoice.paid", &new_invoice()),
        event("charge.refunded", &with(a_charge(), &[("/refunds", json!({"data": [{"id": "re_1", "amount": 1}]}))])),
        updated,
    ]
}

#[test]
fn broken_bytes_never_panic() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for fixture in fixtures() {
        let text = fixture.to_string().into_bytes();
        for end in 0..text.len() {
            assert!(read(&text[..end], "account_id").is_err());
        }
        for _ in 0..20_000 {
            let mut bytes = text.clone();
            for _ in 0..=dice.roll(4) {
                let at = dice.roll(bytes.len());
                bytes[at] = u8::try_from(dice.roll(256)).expect("a byte");
            }
            drop(read(&bytes, "account_id"));
        }
    }
}

/// Pointers to every value inside.
fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in inside {
        let path = format!("{path}/{name}");
        found.push(path.clone());
        pointers(value, &path, found);
    }
}

#[test]
fn swapped_values_never_panic_and_never_lose_an_event() {
    let others = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(1.5),
        json!(""),
        json!("x"),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"id": {}}),
        json!({"id": "x"}),
        json!({"data": [null]}),
        json!("ABSENT"),
    ];
    for fixture in fixtures() {
        let mut found = Vec::new();
        pointers(&fixture, "", &mut found);
        for pointer in &found {
            for other in &others {
                let swapped = with(fixture.clone(), &[(pointer, other.clone())]).to_string();
                let in_object = pointer.starts_with("/data/object/");
                assert!(read(swapped.as_bytes(), "account_id").is_ok() || !in_object, "{pointer} {other}");
            }
        }
    }
}
