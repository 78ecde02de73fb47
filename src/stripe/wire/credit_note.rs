//! `credit_note.*`: only what does not move as a refund.

use std::borrow::Cow;

use serde::Deserialize;

use super::field::{Field, Reference, unreadable};
use super::price::currency;
use crate::domain::event::{CreditNote, Unreadable};
use crate::domain::ids::{AccountId, CreditNoteId, InvoiceId};

/// A credit note as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawCreditNote<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    invoice: Field<Reference<'a>>,
    customer: Field<Reference<'a>>,
    customer_account: Field<Reference<'a>>,
    currency: Field<Cow<'a, str>>,
    total: Field<i64>,
    amount: Field<i64>,
    customer_balance_transaction: Field<Reference<'a>>,
    out_of_band_amount: Field<i64>,
}

impl RawCreditNote<'_> {
    pub(super) fn read(&self) -> Result<CreditNote, Unreadable> {
        let total = self.total.allow_null("total")?;
        Ok(CreditNote {
            id: CreditNoteId::parse(self.id.need("id")?).map_err(|_| unreadable("id", "not an id"))?,
            invoice: self.invoice.id(InvoiceId::parse),
            customer: self.customer.id(AccountId::parse).or_else(|| self.customer_account.id(AccountId::parse)),
            currency: currency(&self.currency, "currency")?,
            total: *total.map_or_else(|| self.amount.need("amount"), Ok)?,
            to_balance: !self.customer_balance_transaction.is_empty(),
            out_of_band: self.out_of_band_amount.allow_null("out_of_band_amount")?.copied().unwrap_or_default(),
        })
    }
}
