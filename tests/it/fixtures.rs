//! Events as Stripe renders them, in both families of shapes: up to 2025-02-24, and later.

use serde_json::{Value, json};

use super::harness::NOW;

/// A family of shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An invoice names its subscription and its payment, a line its whole price.
    Old,
    /// An invoice names its subscription under `parent`, a line its price under `pricing`.
    New,
}

pub(crate) const SHAPES: [Shape; 2] = [Shape::Old, Shape::New];

impl Shape {
    fn version(self) -> &'static str {
        match self {
            Self::Old => "2024-06-20",
            Self::New => "2025-08-27.basil",
        }
    }
}

/// An event around an object.
pub(crate) fn event(shape: Shape, id: &str, kind: &str, object: Value) -> Value {
    json!({
        "id": id, "object": "event", "api_version": shape.version(), "created": NOW - 60, "livemode": false,
        "pending_webhooks": 1, "request": { "id": null, "idempotency_key": null }, "type": kind,
        "data": { "object": object },
    })
}

/// A paid invoice over one month of `price_basic`.
pub(crate) fn invoice(shape: Shape, id: &str, customer: &str, amount: i64) -> Value {
    let mut invoice = json!({
        "id": id, "object": "invoice", "customer": customer, "status": "paid", "currency": "usd",
        "billing_reason": "subscription_cycle", "collection_method": "charge_automatically", "livemode": false,
        "created": NOW - 3_600, "total": amount, "subtotal": amount, "amount_due": amount, "amount_paid": amount,
        "amount_remaining": 0, "starting_balance": 0, "attempt_count": 1, "metadata": {},
        "status_transitions": { "finalized_at": NOW - 1_800, "paid_at": NOW - 60, "voided_at": null },
        "lines": { "object": "list", "has_more": false, "total_count": 1, "data": [line(shape, "price_basic", amount)] },
    });
    let subscription = format!("sub_of_{customer}");
    let more = match shape {
        Shape::Old => json!({
            "subscription": subscription, "payment_intent": format!("pi_of_{id}"), "charge": format!("ch_of_{id}"),
            "paid": true, "paid_out_of_band": false, "subscription_details": { "metadata": {} },
        }),
        Shape::New => json!({
            "parent": {
                "type": "subscription_details", "quote_details": null,
                "subscription_details": { "subscription": subscription, "metadata": {} },
            },
        }),
    };
    merge(&mut invoice, more);
    invoice
}

/// One line of an invoice.
pub(crate) fn line(shape: Shape, price: &str, amount: i64) -> Value {
    let mut line = json!({
        "id": format!("il_of_{price}"), "object": "line_item", "amount": amount, "currency": "usd", "quantity": 1,
        "description": "1 × a plan", "discountable": true, "livemode": false, "metadata": {},
        "period": { "start": NOW - 3_600, "end": NOW + 2_588_400 },
    });
    let more = match shape {
        Shape::Old => json!({
            "type": "subscription", "subscription": "sub_1", "subscription_item": "si_1", "proration": false,
            "price": {
                "id": price, "object": "price", "currency": "usd", "product": "prod_1", "lookup_key": null,
                "type": "recurring", "unit_amount": amount, "unit_amount_decimal": amount.to_string(),
            },
        }),
        Shape::New => json!({
            "parent": {
                "type": "subscription_item_details", "invoice_item_details": null,
                "subscription_item_details": {
                    "subscription": "sub_1", "subscription_item": "si_1", "proration": false, "invoice_item": null,
                },
            },
            "pricing": {
                "type": "price_details", "unit_amount_decimal": amount.to_string(),
                "price_details": { "price": price, "product": "prod_1" },
            },
        }),
    };
    merge(&mut line, more);
    line
}

/// `invoice.paid`, the event that everything turns on.
pub(crate) fn invoice_paid(shape: Shape, id: &str, of_invoice: &str, customer: &str, amount: i64) -> Value {
    event(shape, id, "invoice.paid", invoice(shape, of_invoice, customer, amount))
}

/// The n-th of many: each event, invoice and customer is another one.
pub(crate) fn nth_invoice_paid(number: usize) -> Value {
    let shape = SHAPES[number % 2];
    invoice_paid(shape, &format!("evt_{number}"), &format!("in_{number}"), &format!("cus_{number}"), 2_000)
}

/// Replaces or adds the members of an object.
pub(crate) fn merge(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

/// A customer with the user's own id for it.
pub(crate) fn customer(id: &str, reference: &str) -> Value {
    json!({
        "id": id, "object": "customer", "created": NOW - 90_000, "livemode": false, "email": "jane@example.com",
        "metadata": { "account_id": reference },
    })
}

/// A subscription to one of a price.
pub(crate) fn subscription(shape: Shape, id: &str, customer: &str, price: &str, status: &str) -> Value {
    let mut item = json!({
        "id": format!("si_of_{id}"), "object": "subscription_item", "quantity": 1, "subscription": id,
        "price": {
            "id": price, "object": "price", "currency": "usd", "product": "prod_1", "lookup_key": null,
            "type": "recurring", "unit_amount": 2_000, "unit_amount_decimal": "2000",
        },
    });
    let end = json!({ "current_period_end": NOW + 2_588_400 });
    let mut subscription = json!({
        "id": id, "object": "subscription", "customer": customer, "status": status, "created": NOW - 80_000,
        "livemode": false, "cancel_at": null, "cancel_at_period_end": false, "ended_at": null, "pause_collection": null,
        "metadata": {},
    });
    merge(if shape == Shape::New { &mut item } else { &mut subscription }, end);
    merge(&mut subscription, json!({ "items": { "object": "list", "has_more": false, "data": [item] } }));
    subscription
}
