//! What makes an effect unique.

use std::fmt;

use crate::domain::ids::{CheckoutId, EventId, InvoiceId};

/// The unique key of an effect: two events that announce one fact have one effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fact(String);

impl Fact {
    /// An invoice is settled.
    #[must_use]
    pub fn invoice(id: &InvoiceId) -> Self {
        Self(format!("grant:invoice:{id}"))
    }

    /// A checkout without invoice is settled.
    #[must_use]
    pub fn checkout(id: &CheckoutId) -> Self {
        Self(format!("grant:checkout:{id}"))
    }

    /// An operator's entry; the key makes it idempotent over all accounts.
    #[must_use]
    pub fn adjustment(key: &str) -> Self {
        Self(format!("adjust:{key}"))
    }

    /// An event takes back of a grant.
    #[must_use]
    pub fn clawback(event: &EventId) -> Self {
        Self(format!("clawback:{event}"))
    }

    /// An event gives again what was taken back.
    #[must_use]
    pub fn restore(event: &EventId) -> Self {
        Self(format!("restore:{event}"))
    }

    /// A row of an old credit table that has no other key than its event, `import:HASH`.
    #[must_use]
    pub fn import(event: &EventId) -> Self {
        Self(event.to_string())
    }

    /// An entry is reversed, which happens once at most.
    #[must_use]
    pub fn reversal(entry: i64) -> Self {
        Self(format!("reversal:{entry}"))
    }

    /// The key of an entry that stands in the books.
    #[must_use]
    pub fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
