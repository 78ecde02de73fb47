//! Customers, what they subscribe to, and the checkout that they came through.

use serde_json::{Value, json};

use super::invoice::{plan, price};
use super::{Sample, Shape};

const PERIOD_S: i64 = 30 * 86_400;

const NAMES: [&str; 8] =
    ["Ada Byron", "Zoë Müller", "Jun Tanaka", "Priya Rao", "Łukasz Nowak", "Ana Souza", "Sam Reed", "Noor Haddad"];

impl Sample {
    pub(super) fn name(&self) -> &'static str {
        let names = NAMES.len() as u64;
        usize::try_from(self.customer % names).ok().and_then(|index| NAMES.get(index)).copied().unwrap_or_default()
    }

    pub(super) fn email(&self) -> String {
        format!("customer+{}@example.com", self.customer)
    }

    /// The start of all invoice numbers of the customer.
    fn invoice_prefix(&self) -> String {
        self.tail("invoice_prefix", self.customer).to_uppercase()
    }

    pub(super) fn invoice_number(&self) -> String {
        format!("{}-{:04}", self.invoice_prefix(), self.purchase % 10_000)
    }
}

/// A customer.
pub(super) fn customer(sample: &Sample) -> Value {
    json!({
        "id": sample.customer_id(),
        "object": "customer",
        "address": {
            "city": "Springfield",
            "country": "US",
            "line1": "510 Example Street",
            "line2": null,
            "postal_code": "62701",
            "state": "IL",
        },
        "balance": 0,
        "created": sample.subscribed_at,
        "currency": sample.currency,
        "default_source": null,
        "delinquent": false,
        "description": null,
        "discount": null,
        "email": sample.email(),
        "invoice_prefix": sample.invoice_prefix(),
        "invoice_settings": {
            "custom_fields": null,
            "default_payment_method": sample.payment_method(),
            "footer": null,
            "rendering_options": null,
        },
        "livemode": sample.livemode,
        "metadata": sample.metadata(),
        "name": sample.name(),
        "next_invoice_sequence": 2,
        "phone": null,
        "preferred_locales": ["en"],
        "shipping": null,
        "tax_exempt": "none",
        "test_clock": null,
    })
}

/// What a `customer.updated` replaced.
pub(super) fn customer_before(sample: &Sample) -> Value {
    json!({ "name": null, "next_invoice_sequence": 1, "email": format!("old+{}@example.com", sample.customer) })
}

/// Keys of a subscription that are null here.
const UNUSED_BY_SUBSCRIPTION: &[&str] = &[
    "application",
    "application_fee_percent",
    "billing_cycle_anchor_config",
    "cancel_at",
    "comment",
    "feedback",
    "days_until_due",
    "default_source",
    "description",
    "next_pending_invoice_item_invoice",
    "on_behalf_of",
    "pause_collection",
    "payment_method_options",
    "payment_method_types",
    "pending_invoice_item_interval",
    "pending_setup_intent",
    "pending_update",
    "schedule",
    "test_clock",
    "transfer_data",
    "trial_end",
    "trial_start",
];

/// A subscription in a state.
pub(super) fn subscription(sample: &Sample, status: &str) -> Value {
    let ended = if status == "canceled" { json!(sample.now) } else { Value::Null };
    let mut subscription = json!({
        "id": sample.subscription_id(),
        "object": "subscription",
        "automatic_tax": { "disabled_reason": null, "enabled": false, "liability": null },
        "billing_cycle_anchor": sample.subscribed_at,
        "cancel_at_period_end": false,
        "canceled_at": ended,
        "cancellation_details": {
            "comment": null,
            "feedback": null,
            "reason": if status == "canceled" { json!("cancellation_requested") } else { Value::Null },
        },
        "collection_method": "charge_automatically",
        "created": sample.subscribed_at,
        "currency": sample.currency,
        "customer": sample.customer_id(),
        "default_payment_method": sample.payment_method(),
        "default_tax_rates": [],
        "discounts": [],
        "ended_at": ended,
        "invoice_settings": { "account_tax_ids": null, "issuer": { "type": "self" } },
        "items": items(sample, &sample.price),
        "latest_invoice": sample.invoice_id(),
        "livemode": sample.livemode,
        "metadata": sample.metadata(),
        "payment_settings": {
            "payment_method_options": null,
            "payment_method_types": null,
            "save_default_payment_method": "off",
        },
        "start_date": sample.subscribed_at,
        "status": status,
        "trial_settings": { "end_behavior": { "missing_payment_method": "create_invoice" } },
    });
    for key in UNUSED_BY_SUBSCRIPTION {
        subscription[*key] = Value::Null;
    }
    match sample.shape {
        Shape::Current => subscription["billing_mode"] = json!({ "type": "flexible" }),
        Shape::Older => {
            subscription["current_period_end"] = json!(sample.purchased_at + PERIOD_S);
            subscription["current_period_start"] = json!(sample.purchased_at);
            subscription["discount"] = Value::Null;
            subscription["plan"] = plan(sample, &sample.price);
            subscription["quantity"] = json!(sample.quantity);
        }
    }
    subscription
}

/// What a `customer.subscription.updated` replaced: the price, or the invoice if there was no other price.
pub(super) fn subscription_before(sample: &Sample) -> Value {
    let Some(previous) = &sample.previous_price else {
        return json!({ "latest_invoice": sample.id_like("in_1LqT4dXK3v5", 6, sample.purchase) });
    };
    let mut before = json!({ "items": items(sample, previous) });
    if sample.shape == Shape::Older {
        before["plan"] = plan(sample, previous);
    }
    before
}

fn items(sample: &Sample, price_id: &str) -> Value {
    let mut item = json!({
        "id": sample.subscription_item_id(),
        "object": "subscription_item",
        "billing_thresholds": null,
        "created": sample.subscribed_at,
        "discounts": [],
        "metadata": {},
        "plan": plan(sample, price_id),
        "price": price(sample, price_id),
        "quantity": sample.quantity,
        "subscription": sample.subscription_id(),
        "tax_rates": [],
    });
    if sample.shape == Shape::Current {
        item["current_period_end"] = json!(sample.purchased_at + PERIOD_S);
        item["current_period_start"] = json!(sample.purchased_at);
    }
    json!({
        "object": "list",
        "data": [item],
        "has_more": false,
        "total_count": 1,
        "url": format!("/v1/subscription_items?subscription={}", sample.subscription_id()),
    })
}

/// A finished checkout of the subscription.
pub(super) fn checkout(sample: &Sample) -> Value {
    json!({
        "id": sample.checkout_id(),
        "object": "checkout.session",
        "allow_promotion_codes": null,
        "amount_subtotal": sample.amount(),
        "amount_total": sample.amount(),
        "automatic_tax": { "enabled": false, "liability": null, "status": null },
        "billing_address_collection": null,
        "cancel_url": "https://example.com/cancel",
        "client_reference_id": sample.reference.as_ref().map(|(_, value)| value),
        "consent": null,
        "created": sample.purchased_at,
        "currency": sample.currency,
        "customer": sample.customer_id(),
        "customer_creation": "always",
        "customer_details": {
            "address": null,
            "email": sample.email(),
            "name": sample.name(),
            "phone": null,
            "tax_exempt": "none",
            "tax_ids": [],
        },
        "customer_email": null,
        "expires_at": sample.purchased_at + 86_400,
        "invoice": sample.invoice_id(),
        "livemode": sample.livemode,
        "locale": null,
        "metadata": sample.metadata(),
        "mode": "subscription",
        "payment_intent": null,
        "payment_link": null,
        "payment_method_collection": "always",
        "payment_method_types": ["card"],
        "payment_status": "paid",
        "setup_intent": null,
        "shipping_address_collection": null,
        "status": "complete",
        "submit_type": null,
        "subscription": sample.subscription_id(),
        "success_url": "https://example.com/welcome",
        "total_details": { "amount_discount": 0, "amount_shipping": 0, "amount_tax": 0 },
        "ui_mode": "hosted",
        "url": null,
    })
}
