//! `credit_note.*`: only what does not move as a refund.

use std::borrow::Cow;

use serde::Deserialize;

use super::field::{Field, Reference, unreadable};
use crate::domain::event::{CreditNote, Unreadable};
use crate::domain::ids::{AccountId, CreditNoteId};

/// A credit note as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawCreditNote<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    customer: Field<Reference<'a>>,
    customer_account: Field<Reference<'a>>,
    customer_balance_transaction: Field<Reference<'a>>,
    out_of_band_amount: Field<i64>,
}

impl RawCreditNote<'_> {
    pub(super) fn read(&self) -> Result<CreditNote, Unreadable> {
        Ok(CreditNote {
            id: CreditNoteId::parse(self.id.need("id")?).map_err(|_| unreadable("id", "not an id"))?,
            customer: self.customer.id(AccountId::parse).or_else(|| self.customer_account.id(AccountId::parse)),
            to_balance: !self.customer_balance_transaction.is_empty(),
            out_of_band: self.out_of_band_amount.allow_null("out_of_band_amount")?.copied().unwrap_or_default(),
        })
    }
}
