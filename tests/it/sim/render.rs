//! Objects as Stripe renders them, in the two families of shapes: up to 2025-02-24, and since.

use serde_json::{Map, Value, json};

use super::world::{Checkout, Dispute, Invoice, Line, PRICES, Payment, Refund, Subscription, World};

/// A family of shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Old,
    New,
}

impl Shape {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::Old => "2022-08-01",
            Self::New => "2026-02-25.clover",
        }
    }
}

pub(crate) fn price(index: usize) -> Value {
    let price = &PRICES[index];
    json!({
        "id": price.id, "object": "price", "product": price.product, "lookup_key": null, "currency": "usd",
        "unit_amount": price.amount, "unit_amount_decimal": price.amount.to_string(),
    })
}

pub(crate) fn customer(world: &World, index: usize) -> Value {
    let customer = &world.customers[index];
    let metadata = customer.reference.as_ref().map_or_else(|| json!({}), |text| json!({"account_id": text}));
    json!({"id": customer.id, "object": "customer", "metadata": metadata})
}

pub(crate) fn subscription(world: &World, one: &Subscription, shape: Shape) -> Value {
    let items: Vec<Value> = one
        .items
        .iter()
        .map(|item| {
            let mut rendered = json!({"id": item.id, "price": price(item.price), "quantity": item.quantity});
            if shape == Shape::New {
                rendered["current_period_start"] = json!(one.start);
                rendered["current_period_end"] = json!(one.end);
            }
            rendered
        })
        .collect();
    let metadata = one.reference.as_ref().map_or_else(|| json!({}), |text| json!({"account_id": text}));
    let mut object = json!({
        "id": one.id, "object": "subscription", "customer": world.customers[one.customer].id, "status": one.status,
        "items": {"object": "list", "data": items, "has_more": false},
        "cancel_at": one.cancel_at, "cancel_at_period_end": one.cancel_at_period_end, "ended_at": one.ended_at,
        "pause_collection": if one.paused { json!({"behavior": "void"}) } else { Value::Null },
        "metadata": metadata,
    });
    if shape == Shape::Old {
        object["current_period_start"] = json!(one.start);
        object["current_period_end"] = json!(one.end);
    }
    object
}

fn line(world: &World, index: usize, line: &Line, shape: Shape) -> Value {
    let subscription = line.subscription.map(|one| world.subscriptions[one].id.clone());
    let mut object = json!({
        "id": format!("il_{index}"), "object": "line_item", "amount": line.amount, "currency": "usd",
        "quantity": line.quantity, "period": {"start": line.period.0, "end": line.period.1},
    });
    match shape {
        Shape::Old => {
            object["type"] =
                json!(if subscription.is_some() && !line.proration { "subscription" } else { "invoiceitem" });
            object["proration"] = json!(line.proration);
            object["subscription"] = json!(subscription);
            object["price"] = price(line.price);
        }
        Shape::New => {
            let details = json!({"subscription": subscription, "proration": line.proration});
            let kind = if subscription.is_some() && !line.proration { "subscription_item" } else { "invoice_item" };
            object["parent"] = json!({"type": format!("{kind}_details"), format!("{kind}_details"): details});
            let each = if line.proration { Value::Null } else { json!(PRICES[line.price].amount.to_string()) };
            let named = json!({"price": PRICES[line.price].id, "product": PRICES[line.price].product});
            object["pricing"] = json!({"type": "price_details", "price_details": named, "unit_amount_decimal": each});
        }
    }
    object
}

pub(crate) fn invoice(world: &World, one: &Invoice, shape: Shape) -> Value {
    let lines: Vec<Value> = one.lines.iter().enumerate().map(|(index, each)| line(world, index, each, shape)).collect();
    let subscription = one.subscription.map(|index| world.subscriptions[index].id.clone());
    let mut object = json!({
        "id": one.id, "object": "invoice", "customer": world.customers[one.customer].id, "status": one.status,
        "currency": one.currency, "total": one.total, "amount_due": one.total.max(0), "created": one.created,
        "amount_paid": if one.out_of_band && shape == Shape::Old { 0 } else { one.amount_paid },
        "status_transitions": {"paid_at": one.paid_at}, "metadata": {},
        "lines": {"object": "list", "data": lines, "has_more": one.truncated},
    });
    match shape {
        Shape::Old => {
            let last = one.payments.last().map(|index| &world.payments[*index]);
            object["subscription"] = json!(subscription);
            object["paid"] = json!(one.status == "paid");
            object["paid_out_of_band"] = json!(one.out_of_band);
            object["payment_intent"] = json!(last.map(intent));
            object["charge"] = json!(last.map(|payment| payment.charge.clone()));
        }
        Shape::New => {
            if let Some(subscription) = subscription {
                let details = json!({"subscription": subscription, "metadata": {}});
                object["parent"] = json!({"type": "subscription_details", "subscription_details": details});
            }
        }
    }
    object
}

/// The link between an invoice and one of its payments; new shape only.
pub(crate) fn invoice_payment(world: &World, one: &Payment) -> Value {
    let invoice = one.invoice.map(|index| world.invoices[index].id.clone());
    json!({
        "id": format!("inpay_{}", one.intent), "object": "invoice_payment", "invoice": invoice, "status": "paid",
        "amount_paid": one.amount, "amount_requested": one.amount, "currency": "usd",
        "payment": {"type": "payment_intent", "payment_intent": one.intent},
    })
}

pub(crate) fn payment_intent(world: &World, one: &Payment, shape: Shape) -> Value {
    let mut object = json!({
        "id": one.intent, "object": "payment_intent", "amount": one.amount, "status": "succeeded",
        "latest_charge": one.charge,
    });
    if shape == Shape::Old {
        object["invoice"] = json!(one.invoice.map(|index| world.invoices[index].id.clone()));
    }
    object
}

fn intent(payment: &Payment) -> Value {
    if payment.bare { Value::Null } else { json!(payment.intent) }
}

pub(crate) fn charge(world: &World, one: &Payment, shape: Shape, with_refunds: bool) -> Value {
    let mut object = json!({
        "id": one.charge, "object": "charge", "payment_intent": intent(one),
        "customer": world.customers[one.customer].id, "currency": "usd", "amount": one.amount,
        "amount_captured": one.captured, "amount_refunded": one.refunded + one.released, "captured": one.captured > 0,
        "paid": true, "status": "succeeded", "refunded": one.refunded == one.captured,
    });
    if shape == Shape::Old {
        object["invoice"] = json!(one.invoice.map(|index| world.invoices[index].id.clone()));
        if with_refunds {
            let of_it = world.refunds.iter().filter(|refund| world.payments[refund.payment].charge == one.charge);
            let refunds: Vec<Value> = of_it.map(|each| refund(world, each, shape)).collect();
            object["refunds"] = json!({"object": "list", "data": refunds, "has_more": false});
        }
    }
    object
}

pub(crate) fn refund(world: &World, one: &Refund, shape: Shape) -> Value {
    let payment = &world.payments[one.payment];
    let mut object = json!({
        "id": one.id, "object": "refund", "payment_intent": intent(payment),
        "charge": if one.chargeless { Value::Null } else { json!(payment.charge) },
        "amount": one.amount, "currency": "usd", "status": one.status, "created": one.created,
    });
    if shape == Shape::Old && one.old {
        object["payment_intent"] = Value::Null;
    }
    object
}

pub(crate) fn dispute(world: &World, one: &Dispute, shape: Shape) -> Value {
    let payment = &world.payments[one.payment];
    json!({
        "id": one.id, "object": "dispute", "charge": payment.charge,
        "payment_intent": if shape == Shape::New { intent(payment) } else { Value::Null },
        "amount": one.amount, "currency": one.currency, "status": one.status,
    })
}

pub(crate) fn checkout(world: &World, one: &Checkout) -> Value {
    let mut metadata = Map::new();
    if let Some(price) = one.price {
        metadata.insert("price".into(), json!(PRICES[price].id));
        metadata.insert("quantity".into(), json!(one.quantity.to_string()));
    }
    json!({
        "id": one.id, "object": "checkout.session", "mode": one.mode, "status": "complete",
        "payment_status": one.payment_status, "customer": world.customers[one.customer].id,
        "subscription": one.subscription.map(|index| world.subscriptions[index].id.clone()),
        "invoice": one.invoice.map(|index| world.invoices[index].id.clone()),
        "payment_intent": one.payment.map(|index| intent(&world.payments[index])),
        "amount_total": one.amount, "currency": "usd", "client_reference_id": one.client_reference_id,
        "metadata": metadata,
    })
}

/// What `previous_attributes` say: the old values of what changed, lists whole.
pub(crate) fn changed(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return Value::Null };
    let mut changes = Map::new();
    for name in new.keys().chain(old.keys().filter(|name| !new.contains_key(*name))) {
        let (was, is) = (old.get(name).unwrap_or(&Value::Null), new.get(name).unwrap_or(&Value::Null));
        if was == is {
            continue;
        }
        let change = if was.is_object() && is.is_object() { changed(was, is) } else { was.clone() };
        changes.insert(name.clone(), change);
    }
    Value::Object(changes)
}
