//! What an old table or an event says that something was paid for.

use rusqlite::Connection;

use crate::domain::fact::Fact;
use crate::domain::facts::Root;
use crate::domain::ids::{CheckoutId, InvoiceId};
use crate::store::{StoreError, ledger, payments};

/// Something that is paid, and has one grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Paid {
    /// An invoice.
    Invoice(InvoiceId),
    /// A checkout without one.
    Checkout(CheckoutId),
}

impl Paid {
    /// What an object is by its prefix, which is all that an old table tells of it.
    pub(super) fn of_object(object: &str) -> Option<Self> {
        if object.starts_with("in_") {
            return InvoiceId::parse(object).ok().map(Self::Invoice);
        }
        if object.starts_with("cs_") {
            return CheckoutId::parse(object).ok().map(Self::Checkout);
        }
        None
    }

    /// The key of its grant.
    pub(super) fn fact(&self) -> Fact {
        match self {
            Self::Invoice(invoice) => Fact::invoice(invoice),
            Self::Checkout(checkout) => Fact::checkout(checkout),
        }
    }

    /// A session and the invoice that it made are one purchase: the one of them whose grant stands, else the one that is
    /// granted, else the invoice.
    pub(super) fn as_granted(&self, connection: &Connection) -> Result<Self, StoreError> {
        let Some(invoice) = self.invoice(connection)? else { return Ok(self.clone()) };
        let sessions = payments::sessions_of(connection, &invoice)?.into_iter().map(Self::Checkout);
        let names: Vec<Self> = [Self::Invoice(invoice)].into_iter().chain(sessions).collect();
        let mut granted = None;
        for name in &names {
            if ledger::held(connection, name.fact().as_str())?.is_some() {
                return Ok(name.clone());
            }
            if granted.is_none() && ledger::granted_by(connection, &name.fact())?.is_some() {
                granted = Some(name);
            }
        }
        Ok(granted.unwrap_or(&names[0]).clone())
    }

    /// What the books know about it.
    pub(super) fn roots(&self, connection: &Connection) -> Result<Vec<Root>, StoreError> {
        match (self, self.invoice(connection)?) {
            (Self::Checkout(checkout), None) => Ok(vec![payments::checkout_root(connection, checkout, None)?]),
            (_, invoice) => {
                invoice.map_or(Ok(Vec::new()), |invoice| payments::invoice_roots(connection, &invoice, &[]))
            }
        }
    }

    fn invoice(&self, connection: &Connection) -> Result<Option<InvoiceId>, StoreError> {
        match self {
            Self::Invoice(invoice) => Ok(Some(invoice.clone())),
            Self::Checkout(checkout) => payments::invoice_of(connection, checkout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_invoices_and_checkouts_are_known_by_their_prefix() {
        let fact = |object| Paid::of_object(object).map(|paid| paid.fact().to_string());
        assert_eq!(fact("in_1").as_deref(), Some("grant:invoice:in_1"));
        assert_eq!(fact("cs_test_1").as_deref(), Some("grant:checkout:cs_test_1"));
        for other in ["use_1", "pi_1", "order in_1", "IN_1", ""] {
            assert_eq!(fact(other), None, "{other}");
        }
    }
}
