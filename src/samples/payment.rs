//! Money that moves: payment intents, charges, refunds and disputes.

use serde_json::{Value, json};

use super::{Sample, Shape};

/// A payment intent that succeeded.
pub(super) fn intent(sample: &Sample) -> Value {
    let mut intent = json!({
        "id": sample.payment_intent_id(),
        "object": "payment_intent",
        "amount": sample.amount(),
        "amount_capturable": 0,
        "amount_received": sample.amount(),
        "application": null,
        "automatic_payment_methods": null,
        "canceled_at": null,
        "cancellation_reason": null,
        "capture_method": "automatic",
        "confirmation_method": "automatic",
        "created": sample.purchased_at,
        "currency": sample.currency,
        "customer": sample.customer_id(),
        "description": "Subscription update",
        "last_payment_error": null,
        "latest_charge": sample.charge_id(),
        "livemode": sample.livemode,
        "metadata": {},
        "next_action": null,
        "payment_method": sample.payment_method(),
        "payment_method_types": ["card"],
        "processing": null,
        "receipt_email": null,
        "setup_future_usage": "off_session",
        "shipping": null,
        "statement_descriptor": null,
        "status": "succeeded",
        "transfer_data": null,
        "transfer_group": null,
    });
    if sample.shape == Shape::Older {
        intent["invoice"] = json!(sample.invoice_id());
    }
    intent
}

/// A charge that succeeded, of which so much was given back.
pub(super) fn charge(sample: &Sample, refunded: i64) -> Value {
    let receipt = sample.id_like("CAcaFwoVYWNjdF8xTHFUNGRYSzN2NSi", 6, sample.purchase);
    let mut charge = json!({
        "id": sample.charge_id(),
        "object": "charge",
        "amount": sample.amount(),
        "amount_captured": sample.amount(),
        "amount_refunded": refunded,
        "application": null,
        "balance_transaction": sample.of_purchase("txn_3"),
        "billing_details": {
            "address": {
                "city": null, "country": "US", "line1": null, "line2": null, "postal_code": "62701", "state": null,
            },
            "email": sample.email(),
            "name": sample.name(),
            "phone": null,
        },
        "calculated_statement_descriptor": "EXAMPLE INC",
        "captured": true,
        "created": sample.purchased_at,
        "currency": sample.currency,
        "customer": sample.customer_id(),
        "description": "Subscription update",
        "disputed": false,
        "failure_balance_transaction": null,
        "failure_code": null,
        "failure_message": null,
        "fraud_details": {},
        "livemode": sample.livemode,
        "metadata": {},
        "outcome": {
            "network_status": "approved_by_network",
            "reason": null,
            "risk_level": "normal",
            "risk_score": 32,
            "seller_message": "Payment complete.",
            "type": "authorized",
        },
        "paid": true,
        "payment_intent": sample.payment_intent_id(),
        "payment_method": sample.payment_method(),
        "payment_method_details": {
            "card": {
                "amount_authorized": sample.amount(),
                "brand": "visa",
                "checks": { "address_line1_check": null, "address_postal_code_check": "pass", "cvc_check": null },
                "country": "US",
                "exp_month": 8,
                "exp_year": 2029,
                "fingerprint": sample.id_like("", 8, sample.customer),
                "funding": "credit",
                "last4": "4242",
                "network": "visa",
                "three_d_secure": null,
                "wallet": null,
            },
            "type": "card",
        },
        "receipt_email": null,
        "receipt_number": null,
        "receipt_url": format!("https://pay.stripe.com/receipts/invoices/{receipt}?s=ap"),
        "refunded": refunded == sample.amount(),
        "review": null,
        "shipping": null,
        "source": null,
        "statement_descriptor": null,
        "status": "succeeded",
        "transfer_data": null,
        "transfer_group": null,
    });
    if sample.shape == Shape::Older {
        charge["invoice"] = json!(sample.invoice_id());
    }
    charge
}

/// The refund of the purchase, in a state.
pub(super) fn refund(sample: &Sample, status: &str) -> Value {
    let mut refund = json!({
        "id": sample.refund_id(),
        "object": "refund",
        "amount": sample.given_back(),
        "balance_transaction": sample.of_purchase("txn_3R"),
        "charge": sample.charge_id(),
        "created": sample.purchased_at + 60,
        "currency": sample.currency,
        "destination_details": {
            "card": { "reference_status": "pending", "reference_type": "acquirer_reference_number", "type": "refund" },
            "type": "card",
        },
        "metadata": {},
        "payment_intent": sample.payment_intent_id(),
        "reason": "requested_by_customer",
        "receipt_number": null,
        "source_transfer_reversal": null,
        "status": status,
        "transfer_reversal": null,
    });
    if status == "failed" {
        refund["failure_balance_transaction"] = json!(sample.of_purchase("txn_3F"));
        refund["failure_reason"] = json!("expired_or_canceled_card");
    }
    refund
}

/// What a `refund.updated` replaced.
pub(super) fn refund_before() -> Value {
    json!({ "status": "pending" })
}

/// The dispute of the whole purchase, in a state.
pub(super) fn dispute(sample: &Sample, status: &str) -> Value {
    let is_open = status == "needs_response";
    json!({
        "id": sample.dispute_id(),
        "object": "dispute",
        "amount": sample.amount(),
        "balance_transactions": [{
            "id": sample.of_purchase("txn_1D"),
            "object": "balance_transaction",
            "amount": -sample.amount(),
            "available_on": sample.purchased_at + 7 * 86_400,
            "created": sample.purchased_at + 120,
            "currency": sample.currency,
            "description": format!("Chargeback withdrawal for {}", sample.charge_id()),
            "fee": 1500,
            "net": -sample.amount() - 1500,
            "reporting_category": "dispute",
            "source": sample.dispute_id(),
            "status": "pending",
            "type": "adjustment",
        }],
        "charge": sample.charge_id(),
        "created": sample.purchased_at + 120,
        "currency": sample.currency,
        "enhanced_eligibility_types": [],
        "evidence": {
            "cancellation_rebuttal": null,
            "customer_communication": null,
            "customer_email_address": sample.email(),
            "customer_name": sample.name(),
            "product_description": null,
            "receipt": null,
            "refund_policy": null,
            "service_documentation": null,
            "uncategorized_text": null,
        },
        "evidence_details": {
            "due_by": sample.purchased_at + 9 * 86_400,
            "has_evidence": !is_open,
            "past_due": false,
            "submission_count": i64::from(!is_open),
        },
        "is_charge_refundable": false,
        "livemode": sample.livemode,
        "metadata": {},
        "payment_intent": sample.payment_intent_id(),
        "payment_method_details": { "card": { "brand": "visa", "case_type": "chargeback" }, "type": "card" },
        "reason": "fraudulent",
        "status": status,
    })
}

impl Sample {
    /// How the customer pays.
    pub(super) fn payment_method(&self) -> String {
        self.id_like("pm_1LqT4dXK3v5", 6, self.customer)
    }
}
