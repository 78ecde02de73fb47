//! What one delivery says, in our own words.
//!
//! Stripe renders the same object in many shapes; `stripe::wire` reads all of them into these types, which hold
//! only what a rule needs. Texts that Stripe may extend (statuses, types) stay texts.

use crate::domain::ids::{
    AccountId, ChargeId, CheckoutId, CreditNoteId, DisputeId, EventId, InvoiceId, PaymentId, PriceId, RefundId,
    SubscriptionId,
};
use crate::domain::money::{Currency, UnitAmount};

/// Seconds since the Unix epoch, as Stripe counts them.
pub type UnixSeconds = i64;

/// One event with the part of its object that our rules look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The id that is claimed.
    pub id: EventId,
    /// Stripe's `type`, an open set.
    pub kind: String,
    /// When it happened at Stripe. Has a resolution of one second, and several events share it.
    pub created: UnixSeconds,
    /// False for test mode and sandboxes.
    pub livemode: bool,
    /// The connected account that the event belongs to; `None` for the account's own events.
    pub stripe_account: Option<String>,
    /// The version that rendered the object; told, never decided upon.
    pub api_version: Option<String>,
    /// The id of the object, if it has one.
    pub object_id: Option<String>,
    /// The object.
    pub body: Body,
}

/// The object of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// `invoice.*`
    Invoice(Invoice),
    /// `invoice_payment.*` (2025-05-28 and later)
    InvoicePayment(InvoicePayment),
    /// `checkout.session.*`
    Checkout(Checkout),
    /// `customer.created`, `.updated`, `.deleted`
    Customer(Customer),
    /// `customer.subscription.*`
    Subscription(Subscription),
    /// `charge.*`, but for refunds and disputes
    Charge(Charge),
    /// `payment_intent.*`
    PaymentIntent(PaymentIntent),
    /// `refund.*` and `charge.refund.updated`
    Refund(Refund),
    /// `charge.dispute.*`
    Dispute(Dispute),
    /// `price.*` and `plan.*`
    Price(Price),
    /// `credit_note.*`
    CreditNote(CreditNote),
    /// A thin event, which names its object and does not carry it.
    Thin(Thin),
    /// A type without a rule.
    Other,
    /// A type with a rule, whose object lacks what the rule needs.
    Unreadable(Unreadable),
}

/// Why an object could not be read. Names a field, never its value: payloads are private.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Path of the field inside the object, such as `lines.data[0].amount`.
    pub field: String,
    /// What is wrong with it, such as `missing` or `not an integer`.
    pub problem: &'static str,
}

/// An invoice at the moment of its event.
#[derive(Debug, Clone, PartialEq)]
pub struct Invoice {
    /// `in_…`
    pub id: InvoiceId,
    /// `None`: an invoice without customer, which is nobody's.
    pub customer: Option<AccountId>,
    /// The subscription that it bills, if any.
    pub subscription: Option<SubscriptionId>,
    /// `draft`, `open`, `paid`, `uncollectible`, `void`, or a text that is new. Derived from the former flags
    /// `paid`, `forgiven` and `closed` where there was no status yet.
    pub status: String,
    /// The currency of all amounts on it.
    pub currency: Currency,
    /// Minor units; may be negative.
    pub total: i64,
    /// Minor units that are collected.
    pub amount_due: i64,
    /// Minor units that were paid. Where the version has no such field: `amount_due` if paid, else 0.
    pub amount_paid: i64,
    /// Marked as paid outside of Stripe (only older shapes tell).
    pub paid_out_of_band: bool,
    /// When it was paid.
    pub paid_at: Option<UnixSeconds>,
    /// When it was made.
    pub created: Option<UnixSeconds>,
    /// The payments that the invoice itself names (older shapes, or where `payments` is embedded).
    pub payments: Vec<PaymentRef>,
    /// What was sold.
    pub lines: Lines,
    /// The user's own id for the customer, from the invoice's or its subscription's metadata.
    pub reference: Option<String>,
}

/// The lines of an invoice, as far as an event tells them.
#[derive(Debug, Clone, PartialEq)]
pub enum Lines {
    /// All of them.
    Complete(Vec<Line>),
    /// Only the first ones are embedded, or none can be read.
    Truncated,
}

/// One line of an invoice.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What was sold; `None` for an amount without price.
    pub price: Option<PriceRef>,
    /// Minor units of the line's currency; negative for unused time.
    pub amount: i64,
    /// The line's currency.
    pub currency: Currency,
    /// `None` where Stripe gives none; counts as one.
    pub quantity: Option<i64>,
    /// Part of a change in the middle of a period.
    pub proration: bool,
    /// The line belongs to a subscription.
    pub on_subscription: bool,
    /// The full price of one, as far as the line tells.
    pub unit: Unit,
    /// The start of the service period.
    pub period_start: Option<UnixSeconds>,
    /// The end of the service period.
    pub period_end: Option<UnixSeconds>,
}

/// A price as the catalogue may know it: by its own id, by its product or by its lookup key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceRef {
    /// `price_…`, or the id of a plan.
    pub id: PriceId,
    /// `prod_…`
    pub product: Option<String>,
    /// The merchant's own name for it.
    pub lookup_key: Option<String>,
}

/// The full price of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unit {
    /// It costs so much.
    Costs(UnitAmount),
    /// It has no such amount (tiered, or customer-chosen).
    HasNone,
    /// The event does not say.
    Untold,
}

/// A price, from its own event or embedded in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// Its ids.
    pub price: PriceRef,
    /// Its currency.
    pub currency: Currency,
    /// Never [`Unit::Untold`] when worth remembering.
    pub unit: Unit,
}

/// Names of one payment; at least one is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PaymentRef {
    /// `pi_…`
    pub payment_intent: Option<PaymentId>,
    /// `ch_…`, `py_…`
    pub charge: Option<ChargeId>,
}

/// A payment attached to an invoice.
#[derive(Debug, Clone, PartialEq)]
pub struct InvoicePayment {
    /// `inpay_…`
    pub id: String,
    /// The invoice.
    pub invoice: InvoiceId,
    /// `open`, `paid`, `canceled`
    pub status: String,
    /// Minor units; `None` until paid.
    pub amount_paid: Option<i64>,
    /// The currency.
    pub currency: Option<Currency>,
    /// The payment; `None` for a payment record outside of Stripe.
    pub payment: Option<PaymentRef>,
}

/// A checkout session.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkout {
    /// `cs_…`
    pub id: CheckoutId,
    /// `payment`, `subscription`, `setup`
    pub mode: String,
    /// `paid`, `unpaid`, `no_payment_required`
    pub payment_status: String,
    /// `None` for a guest.
    pub customer: Option<AccountId>,
    /// The subscription that it started.
    pub subscription: Option<SubscriptionId>,
    /// The invoice that it made, which then carries the fact.
    pub invoice: Option<InvoiceId>,
    /// The payment of a session without invoice.
    pub payment_intent: Option<PaymentId>,
    /// Minor units.
    pub amount_total: Option<i64>,
    /// The currency.
    pub currency: Option<Currency>,
    /// The user's own id for the customer, from metadata.
    pub reference: Option<String>,
    /// The same from `client_reference_id`, which a buyer can choose.
    pub client_reference_id: Option<String>,
    /// `metadata.price`: what was sold, where nobody can ask for the line items.
    pub metadata_price: Option<PriceId>,
    /// `metadata.quantity`; `Err` when it is not a whole number from 1 on.
    pub metadata_quantity: Option<Result<i64, Unreadable>>,
}

/// A customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customer {
    /// `cus_…`, or chosen by the merchant.
    pub id: AccountId,
    /// A deleted stub.
    pub deleted: bool,
    /// The user's own id, from metadata.
    pub reference: Option<String>,
}

/// A subscription at the moment of its event.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    /// `sub_…`
    pub id: SubscriptionId,
    /// `None` matches nobody.
    pub customer: Option<AccountId>,
    /// `active`, `trialing`, `past_due`, …, or a text that is new.
    pub status: String,
    /// What it sells, in Stripe's order.
    pub items: Vec<SubscriptionItem>,
    /// The list of items goes on beyond what is embedded.
    pub items_truncated: bool,
    /// The latest period end of its items, else its own.
    pub current_period_end: Option<UnixSeconds>,
    /// A scheduled end.
    pub cancel_at: Option<UnixSeconds>,
    /// It ends with its period.
    pub cancel_at_period_end: bool,
    /// The real end.
    pub ended_at: Option<UnixSeconds>,
    /// `pause_collection` is set.
    pub collection_paused: bool,
    /// The user's own id for the customer, from metadata.
    pub reference: Option<String>,
    /// What it changed, and into what.
    pub trace: Trace,
}

/// Digests of an object's values, and of the values that they replaced: enough to see which of two snapshots of one
/// second follows the other, and nothing private.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// Digests of path and value of every leaf (an array is a leaf), sorted by path.
    pub values: Vec<(u64, u64)>,
    /// The same of `previous_attributes`; `None` when the event has none.
    pub previous: Option<Vec<(u64, u64)>>,
}

impl Trace {
    /// The digest of `null`, which is also what `previous_attributes` say of a key that was not there.
    pub const NULL: u64 = 0;

    /// All that this snapshot replaced is what `other` told.
    #[must_use]
    pub fn follows(&self, other: &Self) -> bool {
        let told = |path: u64| {
            let at = other.values.binary_search_by_key(&path, |(path, _)| *path);
            at.ok().and_then(|at| other.values.get(at)).map_or(Self::NULL, |(_, value)| *value)
        };
        let replaced = self.previous.as_deref().unwrap_or_default();
        !replaced.is_empty() && replaced.iter().all(|(path, value)| told(*path) == *value)
    }
}

/// One item of a subscription.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriptionItem {
    /// `si_…`; the id of the plan where the version has no items.
    pub id: String,
    /// What it sells.
    pub price: PriceRef,
    /// The full price of one.
    pub unit: Unit,
    /// The currency of the price.
    pub currency: Option<Currency>,
    /// `None` for metered items.
    pub quantity: Option<i64>,
}

/// A charge at the moment of its event.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    /// `ch_…`, `py_…`
    pub id: ChargeId,
    /// Its payment intent, if it has one.
    pub payment_intent: Option<PaymentId>,
    /// The invoice that it paid (older shapes).
    pub invoice: Option<InvoiceId>,
    /// The customer.
    pub customer: Option<AccountId>,
    /// The currency.
    pub currency: Currency,
    /// Minor units.
    pub amount: i64,
    /// Minor units; `amount` where the version has no such field and the charge is captured.
    pub amount_captured: i64,
    /// Minor units, cumulative; includes what a partial capture released.
    pub amount_refunded: i64,
    /// `succeeded`, `pending`, `failed`; empty where the version has none.
    pub status: String,
    /// The refunds that are embedded (before 2022-11-15).
    pub refunds: Vec<Refund>,
}

impl Charge {
    /// Minor units that were refunded, less what a partial capture released and Stripe counts as refunded.
    #[must_use]
    pub fn refunded(&self) -> i64 {
        let released = self.amount.saturating_sub(self.amount_captured).max(0);
        self.amount_refunded.saturating_sub(released).max(0)
    }
}

/// A payment intent, as far as it links things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentIntent {
    /// `pi_…`
    pub id: PaymentId,
    /// The invoice that it pays (older shapes).
    pub invoice: Option<InvoiceId>,
    /// Its newest charge.
    pub latest_charge: Option<ChargeId>,
}

/// A refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refund {
    /// `re_…`, `pyr_…`
    pub id: RefundId,
    /// The payment; both names may be missing.
    pub payment: PaymentRef,
    /// Minor units.
    pub amount: i64,
    /// The currency.
    pub currency: Currency,
    /// `pending`, `requires_action`, `succeeded`, `failed`, `canceled`; `None` before there were statuses.
    pub status: Option<String>,
    /// When the refund was made.
    pub created: UnixSeconds,
}

/// A dispute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispute {
    /// `dp_…`, `du_…`; the charge's id where the version gives disputes none.
    pub id: DisputeId,
    /// The payment.
    pub payment: PaymentRef,
    /// Minor units; may differ from the charge.
    pub amount: i64,
    /// The currency.
    pub currency: Currency,
    /// `warning_…`, `needs_response`, `under_review`, `won`, `lost`, or a text that is new.
    pub status: String,
}

/// A credit note. What it gives back as refunds is told by the refunds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreditNote {
    /// `cn_…`
    pub id: CreditNoteId,
    /// The customer.
    pub customer: Option<AccountId>,
    /// A part goes to the customer's balance at Stripe.
    pub to_balance: bool,
    /// Minor units that are given back outside of Stripe.
    pub out_of_band: i64,
}

/// A thin event's pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thin {
    /// The snapshot event that announces the same.
    pub snapshot_event: Option<EventId>,
    /// Its snapshot twin is of a type that has a rule.
    pub is_acted_on: bool,
    /// Where the object can be read: a path of Stripe's API.
    pub related_url: Option<String>,
    /// Stripe was asked for the object and does not have it; an object that it has stands in the thin one's place.
    pub is_gone: bool,
}
