//! Identifiers of Stripe's objects, one type each, so that a customer cannot be passed where an invoice belongs.
//!
//! Stripe promises no prefix and no length but "up to 255 characters"; merchants choose some ids themselves.
//! Ids are case-sensitive, and nothing is ever concluded from their text.

use std::collections::BTreeSet;
use std::fmt;

/// The longest id that Stripe documents, in bytes.
pub const ID_BYTES_MAX: usize = 255;

/// The longest id of an event, in bytes: events of our own carry the id of what they are about.
pub const EVENT_ID_BYTES_MAX: usize = 512;

/// A text that cannot be an id: empty, longer than [`ID_BYTES_MAX`], or with control characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not an id: must have 1 to {ID_BYTES_MAX} bytes (an event: {EVENT_ID_BYTES_MAX}) and no control characters"
        )
    }
}

impl std::error::Error for NotAnId {}

macro_rules! id {
    ($(#[$doc:meta] $name:ident: $bytes_max:expr;)+) => {$(
        #[$doc]
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// Accepts any text from 1 byte to the longest that its kind may have, without control characters.
            ///
            /// # Errors
            /// [`NotAnId`] for everything else.
            pub fn parse(text: &str) -> Result<Self, NotAnId> {
                if text.is_empty() || text.len() > $bytes_max || text.chars().any(char::is_control) {
                    return Err(NotAnId);
                }
                Ok(Self(text.into()))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )+};
}

id! {
    /// Something that happened once: `evt_…` from Stripe, `op_…`, `import:…` or `job:…` of our own.
    EventId: EVENT_ID_BYTES_MAX;
    /// A Stripe customer, which is what an account of ours is.
    AccountId: ID_BYTES_MAX;
    /// An invoice, `in_…`.
    InvoiceId: ID_BYTES_MAX;
    /// A checkout session, `cs_…`.
    CheckoutId: ID_BYTES_MAX;
    /// A subscription, `sub_…`.
    SubscriptionId: ID_BYTES_MAX;
    /// A payment intent (`pi_…`) or, where there is none, a charge (`ch_…`, `py_…`).
    PaymentId: ID_BYTES_MAX;
    /// A charge, `ch_…` or `py_…`.
    ChargeId: ID_BYTES_MAX;
    /// A price (`price_…`) or its predecessor, a plan; merchants may have chosen the id.
    PriceId: ID_BYTES_MAX;
    /// A refund, `re_…` or `pyr_…`.
    RefundId: ID_BYTES_MAX;
    /// A dispute, `dp_…` or `du_…`.
    DisputeId: ID_BYTES_MAX;
    /// A credit note, `cn_…`.
    CreditNoteId: ID_BYTES_MAX;
}

impl EventId {
    /// The id of an operator's event at `now_ms`, in milliseconds since the Unix epoch: sorts by time, and is made twice
    /// only if `random` is.
    #[must_use]
    pub fn of_operator(now_ms: i64, random: u64) -> Self {
        Self(format!("op_{now_ms:012x}{random:016x}").into())
    }

    /// These ids in their order, each once.
    #[must_use]
    pub fn each_once(ids: &[Self]) -> Vec<Self> {
        let mut seen = BTreeSet::new();
        ids.iter().filter(|id| seen.insert(*id)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_operators_sort_by_time() {
        let id = |now_ms, random| EventId::of_operator(now_ms, random);
        assert_eq!(id(1_790_000_000_000, 7).as_str(), "op_01a0c4506c000000000000000007");
        assert!(id(1_790_000_000_000, u64::MAX) < id(1_790_000_000_001, 0));
    }

    #[test]
    fn any_text_of_sensible_length_is_an_id() {
        assert!(EventId::parse("evt_1").is_ok());
        assert!(AccountId::parse("Größe-7").is_ok());
        assert!(InvoiceId::parse(&"x".repeat(ID_BYTES_MAX)).is_ok());
        assert_eq!(EventId::parse(""), Err(NotAnId));
        assert_eq!(InvoiceId::parse(&"x".repeat(ID_BYTES_MAX + 1)), Err(NotAnId));
        assert!(EventId::parse(&"x".repeat(EVENT_ID_BYTES_MAX)).is_ok());
        assert_eq!(EventId::parse("evt\n1"), Err(NotAnId));
        assert!(NotAnId.to_string().contains("1 to 255 bytes"));
    }
}
