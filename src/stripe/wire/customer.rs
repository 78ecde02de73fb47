//! Customers, and what customers do by themselves: checkout sessions.

use std::borrow::Cow;

use serde::Deserialize;

use super::field::{Field, Metadata, Reference, unreadable};
use super::price::currency_or_null;
use crate::domain::event::{Checkout, Customer, Unreadable};
use crate::domain::ids::{AccountId, CheckoutId, InvoiceId, PaymentId, PriceId, SubscriptionId};

/// A customer as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawCustomer<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    deleted: Field<bool>,
    metadata: Field<Metadata<'a>>,
}

impl RawCustomer<'_> {
    pub(super) fn read(&self, metadata_key: &str, kind: &str) -> Result<Customer, Unreadable> {
        Ok(Customer {
            id: AccountId::parse(self.id.need("id")?).map_err(|_| unreadable("id", "not an id"))?,
            deleted: self.deleted.told() == Some(&true) || kind == "customer.deleted",
            reference: self.metadata.text(metadata_key).map(str::to_owned),
        })
    }
}

/// A checkout session as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawCheckout<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    mode: Field<Cow<'a, str>>,
    payment_status: Field<Cow<'a, str>>,
    customer: Field<Reference<'a>>,
    customer_account: Field<Reference<'a>>,
    subscription: Field<Reference<'a>>,
    invoice: Field<Reference<'a>>,
    payment_intent: Field<Reference<'a>>,
    amount_total: Field<i64>,
    currency: Field<Cow<'a, str>>,
    metadata: Field<Metadata<'a>>,
    client_reference_id: Field<Cow<'a, str>>,
}

impl RawCheckout<'_> {
    pub(super) fn read(&self, metadata_key: &str) -> Result<Checkout, Unreadable> {
        let client_reference_id = self.client_reference_id.told().filter(|text| !text.is_empty());
        Ok(Checkout {
            id: CheckoutId::parse(self.id.need("id")?).map_err(|_| unreadable("id", "not an id"))?,
            mode: self.mode.need("mode")?.clone().into_owned(),
            payment_status: self.payment_status.need("payment_status")?.clone().into_owned(),
            customer: self.customer.id(AccountId::parse).or_else(|| self.customer_account.id(AccountId::parse)),
            subscription: self.subscription.id(SubscriptionId::parse),
            invoice: self.invoice.id(InvoiceId::parse),
            payment_intent: self.payment_intent.id(PaymentId::parse),
            amount_total: self.amount_total.allow_null("amount_total")?.copied(),
            currency: currency_or_null(&self.currency, "currency")?,
            reference: self.metadata.text(metadata_key).map(str::to_owned),
            client_reference_id: client_reference_id.map(|text| text.clone().into_owned()),
            metadata_price: self.metadata.text("price").and_then(|price| PriceId::parse(price).ok()),
            metadata_quantity: self.metadata.text("quantity").map(quantity),
        })
    }
}

/// Digits only: `+5` or `5.0` is a mistake of whoever wrote it, not five.
fn quantity(text: &str) -> Result<i64, Unreadable> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| *number > 0).ok_or_else(|| unreadable("metadata.quantity", "not a whole number from 1 on"))
}
