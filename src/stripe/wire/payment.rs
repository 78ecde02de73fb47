//! Money that moves: charges, payment intents, refunds, disputes, and payments attached to invoices.

use std::borrow::Cow;

use serde::Deserialize;

use super::field::{Field, List, Reference, Shape, object_shapes, unreadable};
use super::price::currency;
use crate::domain::event::{Charge, Dispute, InvoicePayment, PaymentIntent, PaymentRef, Refund, Unreadable};
use crate::domain::ids::{AccountId, ChargeId, DisputeId, InvoiceId, PaymentId, RefundId};
use crate::domain::money::Currency;

/// The names of one payment, wherever they stand.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawPaymentRef<'a> {
    #[serde(borrow)]
    payment_intent: Field<Reference<'a>>,
    charge: Field<Reference<'a>>,
}

impl RawPaymentRef<'_> {
    /// `None` where neither is named.
    pub(super) fn read(&self) -> Option<PaymentRef> {
        Self::named(&self.payment_intent, &self.charge)
    }

    pub(super) fn named(payment_intent: &Field<Reference<'_>>, charge: &Field<Reference<'_>>) -> Option<PaymentRef> {
        let payment = payment_ref(payment_intent, charge);
        (payment != PaymentRef::default()).then_some(payment)
    }
}

fn payment_ref(payment_intent: &Field<Reference<'_>>, charge: &Field<Reference<'_>>) -> PaymentRef {
    PaymentRef { payment_intent: payment_intent.id(PaymentId::parse), charge: charge.id(ChargeId::parse) }
}

fn own_id<T, E>(id: &Field<Cow<'_, str>>, parse: impl Fn(&str) -> Result<T, E>) -> Result<T, Unreadable> {
    parse(id.need("id")?).map_err(|_| unreadable("id", "not an id"))
}

/// A charge as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawCharge<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    payment_intent: Field<Reference<'a>>,
    invoice: Field<Reference<'a>>,
    customer: Field<Reference<'a>>,
    customer_account: Field<Reference<'a>>,
    currency: Field<Cow<'a, str>>,
    amount: Field<i64>,
    amount_captured: Field<i64>,
    amount_refunded: Field<i64>,
    captured: Field<bool>,
    paid: Field<bool>,
    status: Field<Cow<'a, str>>,
    refunds: Field<List<RawRefund<'a>>>,
}

impl RawCharge<'_> {
    pub(super) fn read(&self) -> Result<Charge, Unreadable> {
        let id = own_id(&self.id, ChargeId::parse)?;
        let payment_intent = self.payment_intent.id(PaymentId::parse);
        let amount = *self.amount.need("amount")?;
        Ok(Charge {
            refunds: self.refunds(&id, payment_intent.as_ref()),
            id,
            payment_intent,
            invoice: self.invoice.id(InvoiceId::parse),
            customer: self.customer.id(AccountId::parse).or_else(|| self.customer_account.id(AccountId::parse)),
            currency: currency(&self.currency, "currency")?,
            amount,
            amount_captured: self.amount_captured(amount)?,
            amount_refunded: self.amount_refunded.allow_null("amount_refunded")?.copied().unwrap_or_default(),
            status: self.status.told().map(|status| status.clone().into_owned()).unwrap_or_default(),
        })
    }

    /// Without the field: all of a captured charge, unless it is known to have failed.
    fn amount_captured(&self, amount: i64) -> Result<i64, Unreadable> {
        if let Some(captured) = self.amount_captured.allow_null("amount_captured")? {
            return Ok(*captured);
        }
        let failed = match self.status.told() {
            Some(status) => status == "failed",
            None => self.paid.told() == Some(&false),
        };
        let captured = self.captured.allow_null("captured")? != Some(&false) && !failed;
        Ok(if captured { amount } else { 0 })
    }

    /// Those that can be told apart; the charge's own total counts the others too.
    fn refunds(&self, charge: &ChargeId, payment_intent: Option<&PaymentId>) -> Vec<Refund> {
        let embedded = self.refunds.items().unwrap_or_default().iter().filter_map(Field::told);
        let readable = embedded.filter_map(|refund| refund.read().ok());
        readable
            .map(|mut refund| {
                let intent = refund.payment.payment_intent.take();
                refund.payment =
                    PaymentRef { payment_intent: intent.or(payment_intent.cloned()), charge: Some(charge.clone()) };
                refund
            })
            .collect()
    }
}

/// A refund as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawRefund<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    payment_intent: Field<Reference<'a>>,
    charge: Field<Reference<'a>>,
    amount: Field<i64>,
    currency: Field<Cow<'a, str>>,
    status: Field<Cow<'a, str>>,
    created: Field<i64>,
}

impl RawRefund<'_> {
    pub(super) fn read(&self) -> Result<Refund, Unreadable> {
        Ok(Refund {
            id: own_id(&self.id, RefundId::parse)?,
            payment: payment_ref(&self.payment_intent, &self.charge),
            amount: *self.amount.need("amount")?,
            currency: currency(&self.currency, "currency")?,
            status: self.status.allow_null("status")?.map(|status| status.clone().into_owned()),
            created: *self.created.need("created")?,
        })
    }
}

/// A dispute as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawDispute<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    payment_intent: Field<Reference<'a>>,
    charge: Field<Reference<'a>>,
    amount: Field<i64>,
    currency: Field<Cow<'a, str>>,
    status: Field<Cow<'a, str>>,
}

impl RawDispute<'_> {
    pub(super) fn read(&self) -> Result<Dispute, Unreadable> {
        Ok(Dispute {
            id: self.id()?,
            payment: payment_ref(&self.payment_intent, &self.charge),
            amount: *self.amount.need("amount")?,
            currency: currency(&self.currency, "currency")?,
            status: self.status.need("status")?.clone().into_owned(),
        })
    }

    /// Versions before 2015 give disputes no id: a charge had one at most, whose name serves.
    fn id(&self) -> Result<DisputeId, Unreadable> {
        match self.charge.id(DisputeId::parse) {
            Some(charge) if self.id.is_empty() => Ok(charge),
            _ => own_id(&self.id, DisputeId::parse),
        }
    }
}

/// A payment intent as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawPaymentIntent<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    invoice: Field<Reference<'a>>,
    latest_charge: Field<Reference<'a>>,
    /// Before 2022-11-15; the newest comes first.
    charges: Field<List<Reference<'a>>>,
}

impl RawPaymentIntent<'_> {
    pub(super) fn read(&self) -> Result<PaymentIntent, Unreadable> {
        let newest = || self.charges.items()?.first()?.id(ChargeId::parse);
        Ok(PaymentIntent {
            id: own_id(&self.id, PaymentId::parse)?,
            invoice: self.invoice.id(InvoiceId::parse),
            latest_charge: self.latest_charge.id(ChargeId::parse).or_else(newest),
        })
    }
}

/// The link between an invoice and one of its payments.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawInvoicePayment<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    invoice: Field<Reference<'a>>,
    status: Field<Cow<'a, str>>,
    amount_paid: Field<i64>,
    currency: Field<Cow<'a, str>>,
    payment: Field<RawPaymentRef<'a>>,
}

impl RawInvoicePayment<'_> {
    pub(super) fn read(&self) -> Result<InvoicePayment, Unreadable> {
        self.invoice.need("invoice")?;
        Ok(InvoicePayment {
            id: own_id(&self.id, |id| InvoiceId::parse(id).map(|id| id.as_str().to_owned()))?,
            invoice: self.invoice.id(InvoiceId::parse).ok_or_else(|| unreadable("invoice", "not an id"))?,
            status: self.status.need("status")?.clone().into_owned(),
            amount_paid: self.amount_paid.allow_null("amount_paid")?.copied(),
            currency: self.currency.told().and_then(|code| Currency::parse(code).ok()),
            payment: self.payment.told().and_then(RawPaymentRef::read),
        })
    }
}

object_shapes!(RawPaymentRef<'a> RawRefund<'a>);
