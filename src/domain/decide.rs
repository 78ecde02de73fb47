//! What one event does to the books: facts in, plain data out.
//!
//! [`decide`] is one flat list of named cases; the order of the checks is the order of precedence. It never sees a
//! balance, so nothing can depend on one. What it returns is carried out by `ops` in one transaction or not at all.
//! Each kind of object has its list in a file below: [`invoice`], [`checkout`], [`customer`], [`payment`],
//! [`subscription`].

mod checkout;
mod customer;
mod invoice;
mod payment;
mod subscription;

use std::borrow::Cow;
use std::fmt;

use crate::domain::clawback::{ChargeHeld, Correction, DisputeHeld, Granted, Payment, RefundHeld};
use crate::domain::event::{Body, Event, PaymentRef, Price, UnixSeconds};
use crate::domain::grant::{GrantLine, KnownPrices, Refusal};
use crate::domain::ids::{AccountId, ChargeId, CheckoutId, EventId, InvoiceId, PaymentId, PriceId, SubscriptionId};
use crate::domain::money::Currency;
use crate::domain::policy::Policy;
use crate::domain::subscription::{Contribution, Known, PaidPeriod, Standing};

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
    /// Prices that earlier snapshots told, as far as this event's lines need them.
    pub prices: KnownPrices,
    /// The payment of the event, and what it paid.
    pub money: MoneyFacts,
    /// The subscription of the event.
    pub subscription: SubscriptionFacts,
}

/// What is held about a payment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MoneyFacts {
    /// The payment itself.
    pub payment: Payment,
    /// What it paid, as far as anything tied it.
    pub roots: Vec<Root>,
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
    /// What became of the grant of an invoice in this status; `None`: nothing told of the invoice.
    #[must_use]
    pub fn of_invoice(granted: Option<Granted>, status: Option<&str>) -> Self {
        match granted {
            Some(granted) => Self::Granted(granted),
            None if status.is_some_and(is_final) => Self::Nothing,
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
    /// The id.
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

/// What to do with an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It is done, with these effects, all of them or none.
    Complete(Completion),
    /// It stays pending until any of these is known, and leaves nothing else behind.
    Wait(Vec<Need>),
    /// It cannot be applied until a person acts, and leaves nothing else behind.
    Fail(Failure),
}

/// A completed event.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// What became of it.
    pub outcome: Outcome,
    /// Why, where the outcome alone does not say.
    pub reason: Option<Cow<'static, str>>,
    /// What to write, in this order.
    pub effects: Vec<Effect>,
    /// What is known from now on, and others may wait for.
    pub arrivals: Vec<Need>,
}

/// What became of a completed event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// An entry, a tier change, a subscription or an account changed.
    Applied,
    /// Understood, and none of these changed.
    NoEffect,
    /// Older than what we hold.
    Stale,
    /// Not for us.
    Ignored,
}

impl Outcome {
    /// The word in answers and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NoEffect => "no_effect",
            Self::Stale => "stale",
            Self::Ignored => "ignored",
        }
    }
}

/// One change of the books.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// The newest snapshot of an invoice.
    SaveInvoice(InvoiceRow),
    /// These payments paid this invoice.
    LinkPayments(InvoiceId, Vec<PaymentRef>),
    /// A price and what one of it costs.
    LearnPrice(Price),
    /// The account exists from now on.
    OpenAccount(AccountId),
    /// The user's own id for the account.
    SetReference(AccountId, Reference),
    /// The user's own id for the account, as before, but earlier or more surely known.
    ConfirmReference(AccountId, Reference),
    /// The customer was deleted at Stripe; its books stay.
    CloseAccount(AccountId, UnixSeconds),
    /// An entry in the ledger.
    Grant(AccountId, Fact, Vec<GrantLine>),
    /// A paid checkout without invoice.
    SaveCheckout(CheckoutRow),
    /// A charge belongs to a payment intent.
    NamePayment(ChargeId, PaymentId),
    /// The newest snapshot of a charge.
    SaveCharge(ChargeHeld),
    /// What is known of a refund.
    SaveRefund(RefundHeld),
    /// What is known of a dispute.
    SaveDispute(DisputeHeld),
    /// An entry that takes back of a grant, or gives again.
    Correct(AccountId, Fact, Vec<Correction>),
    /// What is known of a subscription, and how it stands.
    SaveSubscription(Box<Known>, Box<Standing>),
    /// How a subscription stands, when nothing new is known of it but the time or what was paid.
    Restand(Box<Standing>),
    /// What was paid for by an invoice of a subscription.
    SavePaidPeriods(SubscriptionId, Vec<PaidPeriod>),
    /// The account's plan changes from one to another.
    ChangeTier(AccountId, Option<String>, Option<String>),
    /// A person should look at this.
    OpenFinding(Finding),
    /// What a person should have looked at is gone.
    ResolveFinding(&'static str, String),
}

/// One difference that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: &'static str,
    /// The object's id.
    pub subject: String,
    /// What was to be expected.
    pub expected: String,
    /// What is.
    pub actual: String,
}

/// What we keep of a paid checkout without invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutRow {
    /// `cs_…`
    pub id: CheckoutId,
    /// Whose it is.
    pub account: Option<AccountId>,
    /// Its payment.
    pub payment_intent: Option<PaymentId>,
    /// Minor units.
    pub amount_paid: i64,
    /// The currency.
    pub currency: Option<Currency>,
}

/// What we keep of an invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceRow {
    /// `in_…`
    pub id: InvoiceId,
    /// Its customer.
    pub account: Option<AccountId>,
    /// Its subscription.
    pub subscription: Option<SubscriptionId>,
    /// Its status.
    pub status: String,
    /// The currency of the amounts.
    pub currency: Currency,
    /// Minor units.
    pub total: i64,
    /// Minor units.
    pub amount_paid: i64,
    /// When the invoice was made.
    pub created: Option<UnixSeconds>,
    /// `created` of the event that told this.
    pub snapshot_at: UnixSeconds,
}

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

/// What a pending event waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// All lines of an invoice.
    Lines(InvoiceId),
    /// The unit amount of a price.
    Price(PriceId),
    /// What a payment paid; by any of its names.
    Payment(String),
    /// What became of a grant.
    Grant(Fact),
    /// The other items of a subscription.
    Subscription(SubscriptionId),
    /// What a checkout session sold.
    Session(CheckoutId),
    /// A rate of exchange.
    Rate(Currency),
    /// The object of a thin event, by its path at Stripe's API.
    Object(String),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines(id) => write!(f, "lines:{id}"),
            Self::Price(id) => write!(f, "price:{id}"),
            Self::Payment(name) => write!(f, "payment:{name}"),
            Self::Grant(fact) => write!(f, "{fact}"),
            Self::Subscription(id) => write!(f, "subscription:{id}"),
            Self::Session(id) => write!(f, "session:{id}"),
            Self::Rate(currency) => write!(f, "rate:{currency}"),
            Self::Object(path) => write!(f, "object:{path}"),
        }
    }
}

/// Why an event failed, without anything private.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Stable, so that failures can be grouped.
    pub code: &'static str,
    /// What happened, on which input, and what to do next.
    pub message: String,
}

/// Decides what one event does, given what the books hold about its subject.
#[must_use]
pub fn decide(event: &Event, facts: &Facts, policy: &Policy, now: UnixSeconds) -> Decision {
    if event.livemode != policy.livemode {
        return ignored("other mode");
    }
    if event.stripe_account != policy.connected_account {
        return ignored("other account");
    }
    match &event.body {
        Body::Unreadable(unreadable) => Decision::Fail(Failure {
            code: "unreadable_object",
            message: format!(
                "{}: field {} is {}; look at the event in Stripe's dashboard, then replay or dismiss it",
                event.kind, unreadable.field, unreadable.problem
            ),
        }),
        Body::Invoice(invoice) => invoice::decide(event, invoice, facts, policy, now),
        Body::Checkout(checkout) => checkout::decide(event, checkout, facts, policy),
        Body::Customer(customer) => customer::decide(event, customer, facts),
        Body::Subscription(subscription) => subscription::decide(event, subscription, facts, policy, now),
        Body::InvoicePayment(link) => payment::decide_link(link, facts),
        Body::PaymentIntent(intent) => payment::decide_intent(intent, facts),
        Body::Charge(charge) => payment::decide_charge(event, charge, facts),
        Body::Refund(refund) => payment::decide_refund(event, refund, facts),
        Body::Dispute(dispute) => payment::decide_dispute(event, dispute, facts),
        Body::Price(price) => Draft::default().learn(price.clone()).no_effect("the price is remembered"),
        Body::CreditNote(note) => payment::decide_credit_note(event, note),
        Body::Thin(thin) => match &thin.related_url {
            Some(path) if thin.is_acted_on => Decision::Wait(vec![Need::Object(path.clone())]),
            _ => ignored("thin event of a type without rule"),
        },
        Body::Other if event.kind.starts_with("subscription_schedule.") => {
            Draft::default().no_effect("a schedule changes nothing until its subscription does")
        }
        Body::Other => ignored("no rule for this type"),
    }
}

/// What follows for a subscription when the time of a held tier is over.
#[must_use]
pub fn end_held_tier(id: &SubscriptionId, facts: &Facts, policy: &Policy, now: UnixSeconds) -> Completion {
    subscription::end_held_tier(id, facts, policy, now)
}

/// A completion in the making: its effects, and what they let others know.
#[derive(Debug, Default)]
struct Draft {
    effects: Vec<Effect>,
    arrivals: Vec<Need>,
}

impl Draft {
    fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn extend(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.effects.extend(effects);
    }

    fn learn(mut self, price: Price) -> Self {
        self.arrivals.push(Need::Price(price.price.id.clone()));
        self.effects.push(Effect::LearnPrice(price));
        self
    }

    /// Ties payments to an invoice; whoever waited for any of their names can go on.
    fn link(&mut self, invoice: &InvoiceId, payments: &[PaymentRef]) {
        if payments.is_empty() {
            return;
        }
        for payment in payments {
            self.arrive_payment(payment);
            self.name(payment);
        }
        self.effects.push(Effect::LinkPayments(invoice.clone(), payments.to_vec()));
    }

    fn arrive_payment(&mut self, payment: &PaymentRef) {
        self.arrivals.extend(names(payment).map(Need::Payment));
    }

    /// Remembers that two names are of one payment, where both are told.
    fn name(&mut self, payment: &PaymentRef) {
        if let (Some(intent), Some(charge)) = (&payment.payment_intent, &payment.charge) {
            self.effects.push(Effect::NamePayment(charge.clone(), intent.clone()));
        }
    }

    /// Completes as applied if an entry, a tier, a subscription or an account changes, and as `otherwise`, for this
    /// reason, if not.
    fn finish(self, otherwise: Outcome, reason: impl Into<Cow<'static, str>>) -> Decision {
        let applied = self.effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::OpenAccount(_)
                    | Effect::SetReference(..)
                    | Effect::CloseAccount(..)
                    | Effect::Grant(..)
                    | Effect::Correct(..)
                    | Effect::Restand(..)
                    | Effect::ChangeTier(..)
            )
        });
        if applied { self.complete(Outcome::Applied, None) } else { self.complete(otherwise, Some(reason.into())) }
    }

    fn no_effect(self, reason: &'static str) -> Decision {
        self.finish(Outcome::NoEffect, reason)
    }

    fn complete(self, outcome: Outcome, reason: Option<Cow<'static, str>>) -> Decision {
        Decision::Complete(Completion { outcome, reason, effects: self.effects, arrivals: self.arrivals })
    }
}

/// The names of a payment.
fn names(payment: &PaymentRef) -> impl Iterator<Item = String> {
    let intent = payment.payment_intent.as_ref().map(ToString::to_string);
    intent.into_iter().chain(payment.charge.as_ref().map(ToString::to_string))
}

fn ignored(reason: &'static str) -> Decision {
    Draft::default().complete(Outcome::Ignored, Some(reason.into()))
}

/// The finding of two live accounts with one reference.
const SHARED_REFERENCE: &str = "shared_reference";

/// The change of an account's reference that this event makes, if it makes one.
fn reference_of(
    event: &Event,
    account: &AccountId,
    facts: &Facts,
    metadata: Option<&String>,
    client_reference_id: Option<&String>,
) -> Vec<Effect> {
    let told = |text: &String, strength| Reference { text: text.clone(), strength, at: event.created };
    let by_metadata = metadata.map(|text| told(text, ReferenceStrength::Metadata));
    let by_client = || client_reference_id.map(|text| told(text, ReferenceStrength::ClientReferenceId));
    let Some(reference) = by_metadata.or_else(by_client) else { return Vec::new() };
    let held = facts.account.as_ref().and_then(|held| held.reference.as_ref());
    if let Some(held) = held {
        let stronger = reference.strength > held.strength;
        let earlier = reference.strength == held.strength && (reference.at, &reference.text) < (held.at, &held.text);
        if !stronger && !earlier {
            return Vec::new();
        }
        // How surely and how early it is known decides about whatever else comes, so it counts for the same text too.
        if reference.text == held.text {
            return vec![Effect::ConfirmReference(account.clone(), reference)];
        }
    }
    let finding = facts.namesake.as_ref().map(|other| {
        Effect::OpenFinding(Finding {
            kind: SHARED_REFERENCE,
            subject: account.to_string(),
            expected: "one live account for each reference".into(),
            actual: format!("{other} has the reference {} as well", reference.text),
        })
    });
    [Effect::SetReference(account.clone(), reference)].into_iter().chain(finding).collect()
}

/// Nothing changes the status of an invoice that is paid or void.
#[must_use]
pub fn is_final(status: &str) -> bool {
    matches!(status, "paid" | "void")
}

fn is_before_cutover(settled_at: UnixSeconds, policy: &Policy) -> bool {
    policy.credits.since.is_some_and(|since| settled_at < since)
}

fn failure(refusal: &Refusal, object: &str, id: &str) -> Failure {
    match refusal {
        Refusal::UnlistedPrice(price) => Failure {
            code: "unlisted_price",
            message: format!(
                "{object} {id} sells {price}, which is in no [[price]]; add it (or foreign = true) and replay"
            ),
        },
        Refusal::PriceWithoutUnitAmount(price) => Failure {
            code: "price_without_unit_amount",
            message: format!(
                "{object} {id} prorates {price}, which has no unit amount; give its [[price]] a unit_amount and replay"
            ),
        },
        Refusal::TooLarge => Failure {
            code: "amount_too_large",
            message: format!("{object} {id} grants more than can be counted; look at its lines and its [[price]]"),
        },
    }
}

#[cfg(test)]
mod tests;
