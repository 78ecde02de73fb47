//! What the books hold about the subject of an event: the input of a decision, as plain data.

use crate::domain::clawback::{Granted, Payment};
use crate::domain::event::{Line, PaymentRef, UnixSeconds};
use crate::domain::exchange::DayRate;
use crate::domain::fact::Fact;
use crate::domain::grant::KnownPrices;
use crate::domain::ids::{AccountId, EventId};
use crate::domain::money::Currency;
use crate::domain::subscription::{Contribution, Known, PaidPeriod, Standing, State};

/// What the books hold about the subject of an event, read in the transaction that will change them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The invoice of the event, as the newest snapshot told it.
    pub invoice: Option<InvoiceHeld>,
    /// The event that granted the fact of this event, if any did.
    pub granted_by: Option<EventId>,
    /// The account of the event.
    pub account: Option<AccountHeld>,
    /// Another live account with the reference that the event tells.
    pub namesake: Option<AccountId>,
    /// Prices that earlier snapshots or Stripe's API told, as far as this event's lines need them.
    pub prices: KnownPrices,
    /// What was sold, where the event itself does not tell all of it.
    pub lines: Asked<Vec<Line>>,
    /// The rates that may count for the event's payment, if it is converted.
    pub rates: Vec<DayRate>,
    /// The payment of the event, and what it paid.
    pub money: MoneyFacts,
    /// The subscription of the event.
    pub subscription: SubscriptionFacts,
    /// The snapshot event that a thin event names, if it is completed.
    pub twin: Option<EventId>,
}

/// What Stripe's API answered, if it was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Asked<T> {
    /// It was not asked, or not since the event came.
    #[default]
    NotYet,
    /// It told this.
    Told(T),
    /// It knows no such thing.
    Gone,
}

/// What is held about a payment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MoneyFacts {
    /// The payment itself.
    pub payment: Payment,
    /// What it paid, as far as anything tied it.
    pub roots: Vec<Root>,
    /// Stripe's API was asked about it since the event came, and all that it told is in here.
    pub asked: bool,
}

/// Something that was paid: an invoice, or a checkout without one.
#[derive(Debug, Clone, PartialEq)]
pub struct Root {
    /// The fact that a grant of it has.
    pub fact: Fact,
    /// What became of the grant.
    pub decided: Decided,
    /// Minor units that were paid; 0: nobody told.
    pub amount_paid: i64,
    /// The currency of the amount.
    pub currency: Option<Currency>,
    /// All payments of it.
    pub payments: Vec<Payment>,
}

impl Root {
    /// Its payments, one of them as it is now. What that one has is not another's, even if both names were not known to
    /// be of one payment.
    #[must_use]
    pub fn payments_with(&self, payment: &Payment) -> Vec<Payment> {
        let is_same = |other: &Payment| {
            let names = |charge| PaymentRef { payment_intent: other.intent.clone(), charge };
            payment.is_named(&names(None))
                || other.charges.iter().any(|charge| payment.is_named(&names(Some(charge.clone()))))
        };
        let without = |mut other: Payment| {
            other.refunds.retain(|refund| payment.refunds.iter().all(|own| own.id != refund.id));
            other.disputes.retain(|dispute| payment.disputes.iter().all(|own| own.id != dispute.id));
            other
        };
        let others = self.payments.iter().filter(|other| !is_same(other)).cloned().map(without);
        others.chain([payment.clone()]).collect()
    }
}

/// What became of the grant of something that was paid.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    /// Not yet known: its event has not come, waits or has failed.
    NotYet,
    /// It granted nothing.
    Nothing,
    /// It granted this.
    Granted(Granted),
}

impl Decided {
    /// What became of the grant of an invoice in this status; `None`: nothing told of the invoice. A person may have
    /// dismissed what told of it.
    #[must_use]
    pub fn of_invoice(granted: Option<Granted>, status: Option<&str>, is_dismissed: bool) -> Self {
        match granted {
            Some(granted) => Self::Granted(granted),
            None if is_dismissed || status.is_some_and(is_final) => Self::Nothing,
            None => Self::NotYet,
        }
    }

    /// What became of the grant of a checkout; it is remembered only once it is decided.
    #[must_use]
    pub fn of_checkout(granted: Option<Granted>, is_remembered: bool) -> Self {
        match granted {
            Some(granted) => Self::Granted(granted),
            None if is_remembered => Self::Nothing,
            None => Self::NotYet,
        }
    }
}

/// What is held about a subscription and its account.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SubscriptionFacts {
    /// The snapshots that count.
    pub known: Known,
    /// How it stands in the books; `None`: it is new.
    pub standing: Option<Standing>,
    /// What was paid for, under `downgrade = "period_end"`.
    pub periods: Vec<PaidPeriod>,
    /// Its state at Stripe.
    pub at_stripe: Asked<State>,
    /// Every account that the subscription belongs to in any snapshot that counts, before or after.
    pub accounts: Vec<AccountTier>,
}

/// What decides about the plan of an account, besides one subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountTier {
    /// The account.
    pub account: AccountId,
    /// The plan that it is on.
    pub tier: Option<String>,
    /// Its other subscriptions.
    pub others: Vec<Contribution>,
}

/// An invoice as we hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceHeld {
    /// Its status.
    pub status: String,
    /// Minor units that were paid.
    pub amount_paid: i64,
    /// `created` of the event that told it.
    pub snapshot_at: UnixSeconds,
    /// That event.
    pub source: EventId,
}

/// An account as we hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountHeld {
    /// The user's own id and how it was learned.
    pub reference: Option<Reference>,
    /// The customer was deleted at Stripe.
    pub deleted: bool,
}

/// The user's own id for an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The id; empty where an operator took it away.
    pub text: String,
    /// Where it comes from.
    pub strength: ReferenceStrength,
    /// `created` of the event that told it.
    pub at: UnixSeconds,
}

/// Where a reference comes from; a stronger one replaces a weaker one, and of two alike the earlier one stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferenceStrength {
    /// `client_reference_id`, which a buyer can choose.
    ClientReferenceId,
    /// Metadata, which only the merchant can write.
    Metadata,
    /// An operator said so.
    Operator,
}

/// Nothing changes the status of an invoice that is paid or void.
#[must_use]
pub fn is_final(status: &str) -> bool {
    matches!(status, "paid" | "void")
}
