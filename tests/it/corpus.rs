//! Real events by many hands and API versions, if `BILLINGD_CORPUS` names a folder of them.
//!
//! Every field is read a second time through plain JSON paths, which know nothing of the reader under test.

use std::fs;
use std::path::Path;

use billingd::domain::event::{Body, Charge, Dispute, Event, Invoice, Line, Lines, Refund, Subscription};
use billingd::stripe::wire;
use serde_json::Value;

/// Objects that cannot be read, by event type, API version and field, and why that is right.
const UNREADABLE: &[(&str, &str, &str)] = &[
    ("credit_note.created", "id", "an example of the specification has an empty id"),
    ("charge.updated", "amount", "one recorder stored its own decimal text instead of Stripe's integer"),
    ("checkout.session.completed", "mode", "sessions of 2019 had no mode, and nothing says what they sold"),
    ("checkout.session.completed", "payment_status", "sessions before 2020 do not say whether they were paid"),
];

#[test]
fn every_event_of_the_corpus_is_read() {
    let Some(folder) = std::env::var_os("BILLINGD_CORPUS") else {
        println!("skipped: BILLINGD_CORPUS names no folder");
        return;
    };
    let mut complaints = Vec::new();
    let mut count = 0;
    for part in ["events", "thin"] {
        for entry in fs::read_dir(Path::new(&folder).join(part)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            count += 1;
            complaints.extend(complaint(&fs::read(&path).expect("a file")).map(|text| format!("{name}: {text}")));
        }
    }
    for entry in fs::read_dir(Path::new(&folder).join("objects")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let Some(event) = wrapped(&fs::read(&path).expect("a file")) else { continue };
        count += 1;
        complaints.extend(complaint(event.as_bytes()).map(|text| format!("{}: {text}", path.display())));
    }
    assert!(count > 0, "the corpus is empty");
    assert!(complaints.is_empty(), "{} of {count}:\n{}", complaints.len(), complaints.join("\n"));
}

/// A bare object, as if it came with an event of a type that we act on.
fn wrapped(object: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(object).expect("JSON");
    let kind = match object["object"].as_str()? {
        "invoice" if object["id"].is_string() => "invoice.updated",
        "invoice_payment" => "invoice_payment.paid",
        "checkout.session" => "checkout.session.completed",
        "customer" => "customer.updated",
        "subscription" => "customer.subscription.updated",
        "charge" => "charge.updated",
        "refund" => "refund.updated",
        "dispute" => "charge.dispute.updated",
        "payment_intent" => "payment_intent.succeeded",
        "price" => "price.updated",
        "plan" => "plan.updated",
        "credit_note" => "credit_note.created",
        _ => return None,
    };
    let event = serde_json::json!({
        "id": "evt_1", "object": "event", "type": kind, "created": 1, "livemode": false, "data": {"object": object},
    });
    Some(event.to_string())
}

fn complaint(body: &[u8]) -> Option<String> {
    let json: Value = serde_json::from_slice(body).expect("JSON");
    let event = match wire::read(body, "account_id") {
        Ok(event) => event,
        Err(error) => return Some(error.to_string()),
    };
    if let Body::Unreadable(problem) = &event.body {
        let known = |(kind, field, _): &&(&str, &str, &str)| event.kind.starts_with(kind) && problem.field == *field;
        return UNREADABLE.iter().find(known).is_none().then(|| format!("{problem:?}"));
    }
    let object = &json["data"]["object"];
    envelope(&event, &json).or_else(|| match &event.body {
        Body::Invoice(invoice) => self::invoice(invoice, object),
        Body::Subscription(subscription) => self::subscription(subscription, object, &json),
        Body::Charge(charge) => self::charge(charge, object),
        Body::Refund(refund) => self::refund(refund, object),
        Body::Dispute(dispute) => self::dispute(dispute, object),
        Body::Other => unexpected_other(&event, object),
        _ => None,
    })
}

fn unexpected_other(event: &Event, object: &Value) -> Option<String> {
    let rule = wire::event_types().iter().any(|(kind, _)| *kind == event.kind);
    rule.then(|| format!("{} is no {}", event.kind, object["object"]))
}

/// Complains about the first pair that differs.
macro_rules! same {
    ($($left:expr => $right:expr,)+) => {{
        $(
            let (left, right) = (&$left, &$right);
            if left != right {
                return Some(format!("{}: {left:?}, but JSON says {right:?}", stringify!($left)));
            }
        )+
        None
    }};
}

fn text(value: &Value) -> Option<String> {
    let id = if value.is_object() { &value["id"] } else { value };
    id.as_str().map(str::to_owned)
}

fn first<'a>(object: &'a Value, pointers: &[&str]) -> &'a Value {
    pointers.iter().filter_map(|path| object.pointer(path)).find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

fn id<T: AsRef<str>>(id: Option<&T>) -> Option<String> {
    id.map(|id| id.as_ref().to_owned())
}

fn envelope(event: &Event, json: &Value) -> Option<String> {
    same! {
        Some(event.id.as_str()) => json["id"].as_str(),
        Some(event.kind.as_str()) => json["type"].as_str(),
        event.livemode => json["livemode"].as_bool().unwrap_or(false),
        event.api_version => text(&json["api_version"]),
        event.stripe_account => text(first(json, &["/account", "/user_id", "/context"])),
        Some(event.created) == json["created"].as_i64() || json["created"].is_string() => true,
    }
}

fn invoice(invoice: &Invoice, object: &Value) -> Option<String> {
    // Where the two disagree, somebody edited the status, or the zero of a voided invoice counts as paid.
    let status = object["status"].as_str();
    let lines = object["lines"]["data"].as_array().map_or(&[][..], Vec::as_slice);
    let subscription = first(
        object,
        &[
            "/parent/subscription_details/subscription",
            "/subscription",
            "/lines/data/0/parent/subscription_item_details/subscription",
            "/lines/data/0/parent/invoice_item_details/subscription",
            "/lines/data/0/subscription",
        ],
    );
    let amount_paid =
        object["amount_paid"].as_i64().or(if object["paid"] == true { object["amount_due"].as_i64() } else { Some(0) });
    let whole = object["lines"]["has_more"] != true && object["lines"]["data"].is_array();
    let read = match &invoice.lines {
        Lines::Complete(read) => read.as_slice(),
        Lines::Truncated => &[],
    };
    let payments = || invoice.payments.first();
    let differs = same! {
        Some(invoice.id.as_str()) => object["id"].as_str(),
        id(invoice.customer.as_ref()) => text(&object["customer"]),
        id(invoice.subscription.as_ref()) => text(subscription),
        invoice.status == "paid" => status.map_or(object["paid"] == true, |status| status == "paid"),
        object["status"].is_null() || object["status"] == invoice.status.as_str() => true,
        Some(invoice.currency.as_str()) => object["currency"].as_str(),
        Some(invoice.total) => object["total"].as_i64(),
        Some(invoice.amount_due) => object["amount_due"].as_i64(),
        Some(invoice.amount_paid) => amount_paid,
        invoice.paid_at => object["status_transitions"]["paid_at"].as_i64(),
        invoice.created => first(object, &["/created", "/date"]).as_i64(),
        id(payments().and_then(|payment| payment.charge.as_ref())) => text(&object["charge"]),
        id(payments().and_then(|payment| payment.payment_intent.as_ref())) => text(&object["payment_intent"]),
        matches!(invoice.lines, Lines::Complete(_)) => whole,
        read.len() => if whole { lines.len() } else { 0 },
    };
    differs.or_else(|| read.iter().zip(lines).find_map(|(read, json)| line(read, json)))
}

fn line(line: &Line, json: &Value) -> Option<String> {
    let price = first(json, &["/pricing/price_details/price", "/price", "/plan"]);
    let product = first(json, &["/pricing/price_details/product", "/price/product", "/plan/product"]);
    let proration = first(
        json,
        &["/parent/subscription_item_details/proration", "/parent/invoice_item_details/proration", "/proration"],
    );
    same! {
        id(line.price.as_ref().map(|price| &price.id)) => text(price),
        line.price.as_ref().and_then(|price| price.product.clone()) => text(product),
        Some(line.amount) => json["amount"].as_i64(),
        Some(line.currency.as_str()) => json["currency"].as_str(),
        line.quantity => json["quantity"].as_i64(),
        line.proration => proration == true,
        line.period_start => json["period"]["start"].as_i64(),
        line.period_end => json["period"]["end"].as_i64(),
        unit_text(&line.unit) => unit_amount(
            json,
            &[
                "/pricing/unit_amount_decimal",
                "/price/unit_amount_decimal",
                "/price/unit_amount",
                "/plan/amount_decimal",
                "/plan/amount",
            ],
        ),
    }
}

fn unit_text(unit: &billingd::domain::event::Unit) -> Option<String> {
    match unit {
        billingd::domain::event::Unit::Costs(amount) => Some(amount.to_string()),
        _ => None,
    }
}

fn unit_amount(json: &Value, pointers: &[&str]) -> Option<String> {
    let value = first(json, pointers);
    let text = value.as_str().map(str::to_owned).or_else(|| value.as_i64().map(|amount| amount.to_string()));
    // A credit may be a line with an ad-hoc price below zero, which is the price of nothing.
    text.filter(|text| !text.starts_with('-'))
}

fn subscription(subscription: &Subscription, object: &Value, json: &Value) -> Option<String> {
    let items = object["items"]["data"].as_array();
    let ends = items.into_iter().flatten().filter_map(|item| item["current_period_end"].as_i64());
    let prices = items.map_or_else(
        || text(&object["plan"]).into_iter().collect::<Vec<_>>(),
        |items| items.iter().filter_map(|item| text(first(item, &["/price", "/plan"]))).collect(),
    );
    let pointers: &[&str] = if prices.is_empty() { &[] } else { &["/items/data/0/quantity", "/quantity"] };
    let quantity = first(object, pointers).as_i64();
    let previous = json["data"].get("previous_attributes").is_some_and(|previous| !previous.is_null());
    same! {
        Some(subscription.id.as_str()) => first(object, &["/id", "/customer"]).as_str(),
        id(subscription.customer.as_ref()) => text(&object["customer"]),
        Some(subscription.status.as_str()) => object["status"].as_str(),
        subscription.items.iter().map(|item| item.price.id.as_str().to_owned()).collect::<Vec<_>>() => prices,
        subscription.items.first().and_then(|item| item.quantity) => quantity,
        subscription.items_truncated => object["items"]["has_more"] == true || items.is_none() && object["plan"]["id"].is_null(),
        subscription.current_period_end => ends.max().or(object["current_period_end"].as_i64()),
        subscription.cancel_at => object["cancel_at"].as_i64(),
        Some(subscription.cancel_at_period_end) => object["cancel_at_period_end"].as_bool(),
        subscription.ended_at => object["ended_at"].as_i64(),
        subscription.collection_paused => object["pause_collection"].is_object(),
        subscription.trace.previous.is_some() => previous,
        subscription.trace.values.is_sorted() && !subscription.trace.values.is_empty() => true,
    }
}

fn charge(charge: &Charge, object: &Value) -> Option<String> {
    let failed = object["status"] == "failed" || object["status"].is_null() && object["paid"] == false;
    let all = if object["captured"] == false || failed { Some(0) } else { object["amount"].as_i64() };
    let refunds = object["refunds"]["data"].as_array().map_or(0, Vec::len);
    same! {
        Some(charge.id.as_str()) => object["id"].as_str(),
        id(charge.payment_intent.as_ref()) => text(&object["payment_intent"]),
        id(charge.invoice.as_ref()) => text(&object["invoice"]),
        id(charge.customer.as_ref()) => text(&object["customer"]),
        Some(charge.currency.as_str()) => object["currency"].as_str(),
        Some(charge.amount) => object["amount"].as_i64(),
        Some(charge.amount_captured) => object["amount_captured"].as_i64().or(all),
        Some(charge.amount_refunded) => object["amount_refunded"].as_i64(),
        charge.status => object["status"].as_str().unwrap_or_default(),
        charge.refunds.len() => refunds,
    }
}

fn refund(refund: &Refund, object: &Value) -> Option<String> {
    same! {
        Some(refund.id.as_str()) => object["id"].as_str(),
        id(refund.payment.charge.as_ref()) => text(&object["charge"]),
        id(refund.payment.payment_intent.as_ref()) => text(&object["payment_intent"]),
        Some(refund.amount) => object["amount"].as_i64(),
        Some(refund.currency.as_str()) => object["currency"].as_str(),
        refund.status => text(&object["status"]),
        Some(refund.created) => object["created"].as_i64(),
    }
}

fn dispute(dispute: &Dispute, object: &Value) -> Option<String> {
    same! {
        Some(dispute.id.as_str()) => first(object, &["/id", "/charge"]).as_str(),
        id(dispute.payment.charge.as_ref()) => text(&object["charge"]),
        id(dispute.payment.payment_intent.as_ref()) => text(&object["payment_intent"]),
        Some(dispute.amount) => object["amount"].as_i64(),
        Some(dispute.currency.as_str()) => object["currency"].as_str(),
        Some(dispute.status.as_str()) => object["status"].as_str(),
    }
}
