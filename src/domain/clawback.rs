//! What is taken back of a grant after refunds and disputes.
//!
//! Absolute and order-free: the target follows from the set of what is known about all payments of the fact, never
//! from the balance and never from what arrived last. The entry is the target less what was taken already.

use crate::domain::event::{PaymentRef, UnixSeconds};
use crate::domain::ids::{AccountId, ChargeId, DisputeId, EventId, PaymentId, RefundId};
use crate::domain::money::Currency;

/// A grant with what was taken back of it so far, per unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Whose books.
    pub account: AccountId,
    /// Each unit by itself.
    pub units: Vec<UnitGranted>,
}

/// One unit of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitGranted {
    /// The unit.
    pub unit: String,
    /// What was granted; more than 0.
    pub granted: i64,
    /// What is taken back of it now; from 0 on.
    pub taken: i64,
    /// How much of that an old table says to have taken back. Only who took it knows why, so it is not given again.
    pub taken_before: i64,
}

/// All that is known about one payment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payment {
    /// Its intent, where it has one.
    pub intent: Option<PaymentId>,
    /// The charges that are known to belong to it.
    pub charges: Vec<ChargeId>,
    /// The newest snapshot of each charge.
    pub snapshots: Vec<ChargeHeld>,
    /// Its refunds.
    pub refunds: Vec<RefundHeld>,
    /// Its disputes.
    pub disputes: Vec<DisputeHeld>,
}

/// The newest snapshot of a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeHeld {
    /// `ch_…`
    pub id: ChargeId,
    /// Its intent, as told.
    pub intent: Option<PaymentId>,
    /// The customer, as told.
    pub account: Option<AccountId>,
    /// The currency.
    pub currency: Currency,
    /// Minor units.
    pub captured: i64,
    /// Minor units, cumulative, less what a partial capture released.
    pub refunded: i64,
    /// `created` of the event that told it.
    pub at: UnixSeconds,
    /// That event.
    pub source: EventId,
}

impl ChargeHeld {
    /// The newer snapshot; in one second the larger refund, then what captured more, then the greater event id.
    #[must_use]
    pub fn newest(self, other: Self) -> Self {
        let key = |one: &Self| (one.at, one.refunded, one.captured, one.source.clone());
        if key(&self) < key(&other) { other } else { self }
    }
}

/// A refund as its newest snapshot tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundHeld {
    /// `re_…`
    pub id: RefundId,
    /// The payment, as told.
    pub payment: PaymentRef,
    /// Minor units.
    pub amount: i64,
    /// The currency.
    pub currency: Currency,
    /// Stripe's word; `None` before there were statuses.
    pub status: Option<String>,
    /// When the refund was made.
    pub created: UnixSeconds,
    /// `created` of the first event that told of its failure.
    pub failed_at: Option<UnixSeconds>,
    /// `created` of the newest event that told it.
    pub at: UnixSeconds,
    /// That event.
    pub source: EventId,
}

impl RefundHeld {
    /// The money did not go, or came back.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        is_failed(self.status.as_deref())
    }

    /// The newer snapshot, in one second the more final state, then the greater event id; and the first failure that
    /// either of them tells.
    #[must_use]
    pub fn newest(self, other: Self) -> Self {
        let failed_at = match (self.failed_at, other.failed_at) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
        let key = |one: &Self| (one.at, finality(one.status.as_deref()), one.source.clone());
        let payment = PaymentRef {
            payment_intent: self.payment.payment_intent.clone().or_else(|| other.payment.payment_intent.clone()),
            charge: self.payment.charge.clone().or_else(|| other.payment.charge.clone()),
        };
        let newer = if key(&self) < key(&other) { other } else { self };
        Self { failed_at, payment, ..newer }
    }
}

/// Whether a refund in this state counts for nothing.
#[must_use]
pub fn is_failed(status: Option<&str>) -> bool {
    matches!(status, Some("failed" | "canceled"))
}

fn finality(status: Option<&str>) -> u8 {
    match status {
        Some("failed" | "canceled") => 3,
        Some("succeeded") => 2,
        Some(_) => 1,
        None => 0,
    }
}

/// A dispute as its newest snapshot tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisputeHeld {
    /// `dp_…`
    pub id: DisputeId,
    /// The payment, as told.
    pub payment: PaymentRef,
    /// Minor units.
    pub amount: i64,
    /// The currency, which may be another one than the payment's.
    pub currency: Currency,
    /// Stripe's word.
    pub status: String,
    /// The last time that its money was withdrawn.
    pub withdrawn_at: Option<UnixSeconds>,
    /// The last time that its money was given back.
    pub reinstated_at: Option<UnixSeconds>,
    /// `created` of the newest event that told it.
    pub at: UnixSeconds,
    /// That event.
    pub source: EventId,
}

impl DisputeHeld {
    /// The newer snapshot, in one second won before lost before the rest, then the greater event id; and the last
    /// movements that either of them tells.
    #[must_use]
    pub fn newest(self, other: Self) -> Self {
        let withdrawn_at = self.withdrawn_at.max(other.withdrawn_at);
        let reinstated_at = self.reinstated_at.max(other.reinstated_at);
        let verdict = |status: &str| match status {
            "won" => 2,
            "lost" => 1,
            _ => 0,
        };
        let key = |one: &Self| (one.at, verdict(&one.status), one.source.clone());
        let payment = PaymentRef {
            payment_intent: self.payment.payment_intent.clone().or_else(|| other.payment.payment_intent.clone()),
            charge: self.payment.charge.clone().or_else(|| other.payment.charge.clone()),
        };
        let newer = if key(&self) < key(&other) { other } else { self };
        Self { withdrawn_at, reinstated_at, payment, ..newer }
    }

    /// The money is with the bank now.
    fn money_is_out(&self) -> bool {
        let back = match (self.withdrawn_at, self.reinstated_at) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(withdrawn), Some(reinstated)) => reinstated >= withdrawn,
        };
        // An inquiry moves no money; whatever is new counts as a dispute until it is known.
        !back && !self.status.starts_with("warning_") && !matches!(self.status.as_str(), "prevented" | "won")
    }
}

impl Payment {
    /// Either of the names is one of this payment's.
    #[must_use]
    pub fn is_named(&self, names: &PaymentRef) -> bool {
        let by_intent = names.payment_intent.is_some() && names.payment_intent == self.intent;
        by_intent || names.charge.as_ref().is_some_and(|charge| self.charges.contains(charge))
    }

    /// All of its names, each charge with the intent.
    #[must_use]
    pub fn names(&self) -> Vec<PaymentRef> {
        let named =
            |charge: Option<&ChargeId>| PaymentRef { payment_intent: self.intent.clone(), charge: charge.cloned() };
        if self.charges.is_empty() {
            vec![named(None)]
        } else {
            self.charges.iter().map(|one| named(Some(one))).collect()
        }
    }

    /// Minor units that its charges captured, in this currency.
    fn captured(&self, currency: Currency) -> i64 {
        let ours = self.snapshots.iter().filter(|charge| charge.currency == currency);
        ours.fold(0_i64, |sum, charge| sum.saturating_add(charge.captured))
    }

    /// Minor units that were refunded: what the newest snapshots of the charges say, the refunds that were made after
    /// them, less those that they still counted and that failed since.
    fn refunded(&self) -> i128 {
        let told: i128 = self.snapshots.iter().map(|charge| i128::from(charge.refunded)).sum();
        let corrections: i128 = self.refunds.iter().map(|refund| self.correction(refund)).sum();
        (told + corrections).max(0)
    }

    fn correction(&self, refund: &RefundHeld) -> i128 {
        let amount = i128::from(refund.amount);
        match self.snapshot_of(refund) {
            None if refund.is_failed() => 0,
            None => amount,
            Some(charge) if refund.created > charge.at => {
                if refund.is_failed() {
                    0
                } else {
                    amount
                }
            }
            Some(charge) if refund.is_failed() && refund.failed_at.is_some_and(|failed| failed >= charge.at) => -amount,
            Some(_) => 0,
        }
    }

    /// The charge that a refund is of: the one that it names, else the only one.
    fn snapshot_of(&self, refund: &RefundHeld) -> Option<&ChargeHeld> {
        match (&refund.payment.charge, self.snapshots.as_slice()) {
            (Some(named), all) => all.iter().find(|charge| charge.id == *named),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// Minor units that are disputed; `None`: in another currency, which takes all.
    fn disputed(&self, currency: Currency) -> Option<i128> {
        let out = self.disputes.iter().filter(|dispute| dispute.money_is_out());
        out.map(|dispute| (dispute.currency == currency).then_some(i128::from(dispute.amount))).sum()
    }
}

/// How much of one unit of a grant should stand less, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// The unit.
    pub unit: String,
    /// Negative takes back, positive gives again; never 0.
    pub amount: i64,
}

/// What a grant needs to be corrected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// These corrections; none if all is as it should be.
    Corrections(Vec<Correction>),
    /// Money went back, and nobody knows of how much: a charge of one of these payments must be known first.
    Unknown(Vec<PaymentRef>),
}

/// Computes what is to be corrected of a grant over `amount_paid` minor units of `currency`.
#[must_use]
pub fn corrections(granted: &Granted, amount_paid: i64, currency: Currency, payments: &[Payment]) -> Outcome {
    let refunded: i128 = payments.iter().map(Payment::refunded).sum();
    let disputed: Option<i128> = payments.iter().map(|payment| payment.disputed(currency)).sum();
    let captured = payments.iter().fold(0_i64, |sum, payment| sum.saturating_add(payment.captured(currency)));
    let paid = i128::from(if amount_paid > 0 { amount_paid } else { captured });
    let back = disputed.map(|disputed| refunded + disputed);
    let share = match back {
        Some(0) => (0, 1),
        Some(_) if paid <= 0 => return Outcome::Unknown(payments.iter().flat_map(Payment::names).collect()),
        Some(back) => (back.min(paid), paid),
        None => (1, 1),
    };
    let correction = |unit: &UnitGranted| {
        // Within i64: the share is at most 1.
        let target = i64::try_from(i128::from(unit.granted) * share.0 / share.1).unwrap_or(unit.granted);
        Correction { unit: unit.unit.clone(), amount: unit.taken - target.max(unit.taken_before) }
    };
    Outcome::Corrections(granted.units.iter().map(correction).filter(|one| one.amount != 0).collect())
}

/// A dispute of these payments is in another currency than the grant's: a person should look.
#[must_use]
pub fn disputes_in_other_currency(payments: &[Payment], currency: Currency) -> Vec<&DisputeHeld> {
    let all = payments.iter().flat_map(|payment| &payment.disputes);
    all.filter(|dispute| dispute.money_is_out() && dispute.currency != currency).collect()
}

#[cfg(test)]
mod tests;
