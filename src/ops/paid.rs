//! What an old table or an event says that something was paid for.

use rusqlite::Connection;

use crate::domain::decision::Fact;
use crate::domain::facts::Root;
use crate::domain::ids::{CheckoutId, InvoiceId};
use crate::store::{StoreError, payments};

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

    /// What the books know about it.
    pub(super) fn root(&self, connection: &Connection) -> Result<Root, StoreError> {
        match self {
            Self::Invoice(invoice) => payments::invoice_root(connection, invoice, &[]),
            Self::Checkout(checkout) => payments::checkout_root(connection, checkout, None),
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
