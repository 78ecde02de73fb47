//! Invoices with their one line, the link to their payment, and prices.

use serde_json::{Value, json};

use super::{Sample, Shape};

/// A month, roughly: what is sold is paid for so long.
const PERIOD_S: i64 = 30 * 86_400;

/// Not finalised yet.
pub(super) fn draft(sample: &Sample) -> Value {
    let mut invoice = invoice(sample, "draft", 0);
    for key in ["hosted_invoice_url", "invoice_pdf", "number", "effective_at"] {
        invoice[key] = Value::Null;
    }
    invoice["status_transitions"] = json!({
        "finalized_at": null, "marked_uncollectible_at": null, "paid_at": null, "voided_at": null,
    });
    invoice["next_payment_attempt"] = json!(sample.purchased_at + 3_600);
    invoice
}

/// Finalised, and to be paid.
pub(super) fn open(sample: &Sample) -> Value {
    invoice(sample, "open", 0)
}

/// Tried once, in vain.
pub(super) fn unpaid(sample: &Sample) -> Value {
    let mut invoice = invoice(sample, "open", 0);
    invoice["attempt_count"] = json!(1);
    invoice["attempted"] = json!(true);
    invoice["next_payment_attempt"] = json!(sample.now + 3 * 86_400);
    invoice
}

/// Paid in full.
pub(super) fn paid(sample: &Sample) -> Value {
    let mut invoice = invoice(sample, "paid", sample.amount());
    invoice["attempt_count"] = json!(1);
    invoice["attempted"] = json!(true);
    invoice["status_transitions"]["paid_at"] = json!(sample.purchased_at + 2);
    invoice
}

fn invoice(sample: &Sample, status: &str, paid: i64) -> Value {
    let amount = sample.amount();
    let hosted = sample.id_like("YWNjdF8xTHFUNGRYSzN2NSxfV", 8, sample.purchase);
    let mut invoice = json!({
        "id": sample.invoice_id(),
        "object": "invoice",
        "account_country": "US",
        "account_name": "Example Inc.",
        "amount_due": amount,
        "amount_paid": paid,
        "amount_remaining": amount - paid,
        "attempt_count": 0,
        "attempted": false,
        "auto_advance": false,
        "billing_reason": "subscription_cycle",
        "collection_method": "charge_automatically",
        "created": sample.purchased_at,
        "currency": sample.currency,
        "customer": sample.customer_id(),
        "customer_email": sample.email(),
        "customer_name": sample.name(),
        "default_payment_method": null,
        "description": null,
        "discounts": [],
        "due_date": null,
        "effective_at": sample.purchased_at,
        "ending_balance": 0,
        "hosted_invoice_url": format!("https://invoice.stripe.com/i/acct_1LqT4dXK3v5/test_{hosted}?s=ap"),
        "invoice_pdf": format!("https://pay.stripe.com/invoice/acct_1LqT4dXK3v5/test_{hosted}/pdf?s=ap"),
        "lines": {
            "object": "list",
            "data": [line(sample)],
            "has_more": false,
            "total_count": 1,
            "url": format!("/v1/invoices/{}/lines", sample.invoice_id()),
        },
        "livemode": sample.livemode,
        "metadata": {},
        "next_payment_attempt": null,
        "number": sample.invoice_number(),
        "period_end": sample.purchased_at,
        "period_start": sample.purchased_at - PERIOD_S,
        "starting_balance": 0,
        "status": status,
        "status_transitions": {
            "finalized_at": sample.purchased_at + 1,
            "marked_uncollectible_at": null,
            "paid_at": null,
            "voided_at": null,
        },
        "subtotal": amount,
        "total": amount,
    });
    match sample.shape {
        Shape::Current => {
            invoice["amount_overpaid"] = json!(0);
            invoice["parent"] = json!({
                "quote_details": null,
                "subscription_details": { "metadata": sample.metadata(), "subscription": sample.subscription_id() },
                "type": "subscription_details",
            });
            invoice["total_taxes"] = json!([]);
        }
        Shape::Older => {
            invoice["charge"] = if paid > 0 { json!(sample.charge_id()) } else { Value::Null };
            invoice["discount"] = Value::Null;
            invoice["paid"] = json!(status == "paid");
            invoice["paid_out_of_band"] = json!(false);
            invoice["payment_intent"] = if status == "draft" { Value::Null } else { json!(sample.payment_intent_id()) };
            invoice["subscription"] = json!(sample.subscription_id());
            invoice["subscription_details"] = json!({ "metadata": sample.metadata() });
            invoice["tax"] = Value::Null;
            invoice["total_tax_amounts"] = json!([]);
        }
    }
    invoice
}

fn line(sample: &Sample) -> Value {
    let price = || format!("{}.{:02}", sample.unit_amount / 100, sample.unit_amount % 100);
    let mut line = json!({
        "id": sample.of_purchase("il_1"),
        "object": "line_item",
        "amount": sample.amount(),
        "currency": sample.currency,
        "description": format!("{} × Example plan (at ${} / month)", sample.quantity, price()),
        "discountable": true,
        "discounts": [],
        "invoice": sample.invoice_id(),
        "livemode": sample.livemode,
        "metadata": sample.metadata(),
        "period": { "end": sample.purchased_at + PERIOD_S, "start": sample.purchased_at },
        "quantity": sample.quantity,
    });
    match sample.shape {
        Shape::Current => {
            line["parent"] = json!({
                "invoice_item_details": null,
                "subscription_item_details": {
                    "invoice_item": null,
                    "proration": false,
                    "proration_details": { "credited_items": null },
                    "subscription": sample.subscription_id(),
                    "subscription_item": sample.subscription_item_id(),
                },
                "type": "subscription_item_details",
            });
            line["pricing"] = json!({
                "price_details": { "price": sample.price, "product": product(&sample.price) },
                "type": "price_details",
                "unit_amount_decimal": sample.unit_amount.to_string(),
            });
            line["taxes"] = json!([]);
        }
        Shape::Older => {
            line["plan"] = plan(sample, &sample.price);
            line["price"] = self::price(sample, &sample.price);
            line["proration"] = json!(false);
            line["subscription"] = json!(sample.subscription_id());
            line["subscription_item"] = json!(sample.subscription_item_id());
            line["type"] = json!("subscription");
        }
    }
    line
}

/// The link between an invoice and its payment.
pub(super) fn payment(sample: &Sample) -> Value {
    json!({
        "id": sample.of_purchase("inpay_1"),
        "object": "invoice_payment",
        "amount_paid": sample.amount(),
        "amount_requested": sample.amount(),
        "created": sample.purchased_at,
        "currency": sample.currency,
        "invoice": sample.invoice_id(),
        "is_default": true,
        "livemode": sample.livemode,
        "payment": { "payment_intent": sample.payment_intent_id(), "type": "payment_intent" },
        "status": "paid",
        "status_transitions": { "canceled_at": null, "paid_at": sample.purchased_at + 2 },
    })
}

/// A monthly price with this id.
pub(super) fn price(sample: &Sample, id: &str) -> Value {
    json!({
        "id": id,
        "object": "price",
        "active": true,
        "billing_scheme": "per_unit",
        "created": sample.subscribed_at,
        "currency": sample.currency,
        "custom_unit_amount": null,
        "livemode": sample.livemode,
        "lookup_key": null,
        "metadata": {},
        "nickname": null,
        "product": product(id),
        "recurring": {
            "aggregate_usage": null,
            "interval": "month",
            "interval_count": 1,
            "trial_period_days": null,
            "usage_type": "licensed",
        },
        "tax_behavior": "unspecified",
        "tiers_mode": null,
        "transform_quantity": null,
        "type": "recurring",
        "unit_amount": sample.unit_amount,
        "unit_amount_decimal": sample.unit_amount.to_string(),
    })
}

/// The same as the plan that stands beside it in older shapes.
pub(super) fn plan(sample: &Sample, id: &str) -> Value {
    json!({
        "id": id,
        "object": "plan",
        "active": true,
        "aggregate_usage": null,
        "amount": sample.unit_amount,
        "amount_decimal": sample.unit_amount.to_string(),
        "billing_scheme": "per_unit",
        "created": sample.subscribed_at,
        "currency": sample.currency,
        "interval": "month",
        "interval_count": 1,
        "livemode": sample.livemode,
        "metadata": {},
        "meter": null,
        "nickname": null,
        "product": product(id),
        "tiers_mode": null,
        "transform_usage": null,
        "trial_period_days": null,
        "usage_type": "licensed",
    })
}

fn product(price: &str) -> String {
    format!("prod_{}", price.trim_start_matches("price_"))
}
