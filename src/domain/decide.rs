//! What one event does to the books: facts in, plain data out.
//!
//! [`decide`] is one flat list of named cases; the order of the checks is the order of precedence. It never sees a
//! balance, so nothing can depend on one. What it returns is carried out by `ops` in one transaction or not at all.

use std::borrow::Cow;
use std::fmt;

use crate::domain::event::{Body, Checkout, Customer, Event, Invoice, PaymentRef, Price, UnixSeconds};
use crate::domain::grant::{self, Grant, GrantLine, KnownPrices, Missing, Refusal};
use crate::domain::ids::{AccountId, CheckoutId, EventId, InvoiceId, SubscriptionId};
use crate::domain::money::Currency;
use crate::domain::policy::{Basis, Policy};

/// What the books hold about the subject of an event, read in the transaction that will change them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The invoice of the event, as the newest snapshot told it.
    pub invoice: Option<InvoiceHeld>,
    /// The event that granted the fact of this event, if any did.
    pub granted_by: Option<EventId>,
    /// The account of the event.
    pub account: Option<AccountHeld>,
    /// Prices that earlier snapshots told, as far as this event's lines need them.
    pub prices: KnownPrices,
}

/// An invoice as we hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceHeld {
    /// Its status.
    pub status: String,
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
    /// It stays pending until this is known, and leaves nothing else behind.
    Wait(Need),
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
    /// The customer was deleted at Stripe; its books stay.
    CloseAccount(AccountId, UnixSeconds),
    /// An entry in the ledger.
    Grant(AccountId, Fact, Vec<GrantLine>),
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
    Price(crate::domain::ids::PriceId),
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
pub fn decide(event: &Event, facts: &Facts, policy: &Policy) -> Decision {
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
        Body::Invoice(invoice) => decide_invoice(event, invoice, facts, policy),
        Body::Checkout(checkout) => decide_checkout(event, checkout, facts, policy),
        Body::Customer(customer) => decide_customer(event, customer, facts),
        Body::Price(price) => no_effect("the price is remembered", vec![Effect::LearnPrice(price.clone())]),
        Body::Thin(thin) => match &thin.related_url {
            Some(path) if event.kind.starts_with("v1.") && acts_on(&event.kind["v1.".len()..]) => {
                Decision::Wait(Need::Object(path.clone()))
            }
            _ => ignored("thin event of a type without rule"),
        },
        Body::InvoicePayment(_)
        | Body::Subscription(_)
        | Body::Charge(_)
        | Body::PaymentIntent(_)
        | Body::Refund(_)
        | Body::Dispute(_)
        | Body::CreditNote(_)
        | Body::Other => ignored("no rule for this type"),
    }
}

fn acts_on(kind: &str) -> bool {
    ["invoice.", "checkout.session.", "customer.", "price."].iter().any(|prefix| kind.starts_with(prefix))
}

fn decide_invoice(event: &Event, invoice: &Invoice, facts: &Facts, policy: &Policy) -> Decision {
    let Some(account) = &invoice.customer else { return ignored("the invoice has no customer") };
    let settled = invoice.status == "paid";
    let fact = Fact::invoice(&invoice.id);
    let newer = supersedes(event, &invoice.status, facts.invoice.as_ref());
    let mut effects = invoice_snapshot(event, invoice, newer);
    effects.extend(reference_of(event, account, facts, invoice.reference.as_ref(), None));
    if settled && let Some(by) = &facts.granted_by {
        return finish(effects, Outcome::NoEffect, format!("{fact} was granted by {by}"));
    }
    if !settled {
        return if newer {
            finish(effects, Outcome::NoEffect, "the invoice is not settled")
        } else {
            finish(effects, Outcome::Stale, later(facts.invoice.as_ref()))
        };
    }
    if is_before_cutover(invoice.paid_at.unwrap_or(event.created), policy) {
        return finish(effects, Outcome::NoEffect, "before cutover");
    }
    match grant::of_invoice(invoice, policy, &facts.prices) {
        Grant::Lines(lines) => grant_to(account, fact, lines, effects, facts),
        Grant::Nothing(reason) => finish(effects, Outcome::NoEffect, reason),
        Grant::Foreign => ignored("only prices of another product"),
        Grant::Needs(Missing::Lines) => Decision::Wait(Need::Lines(invoice.id.clone())),
        Grant::Needs(Missing::UnitAmount(price)) => Decision::Wait(Need::Price(price)),
        Grant::Needs(Missing::Rate(currency)) => Decision::Wait(Need::Rate(currency)),
        Grant::Refused(refusal) => Decision::Fail(failure(&refusal, "invoice", invoice.id.as_str())),
    }
}

fn decide_checkout(event: &Event, checkout: &Checkout, facts: &Facts, policy: &Policy) -> Decision {
    let Some(account) = &checkout.customer else { return ignored("the session has no customer") };
    let fact = Fact::checkout(&checkout.id);
    let references = (checkout.reference.as_ref(), checkout.client_reference_id.as_ref());
    let effects: Vec<Effect> = reference_of(event, account, facts, references.0, references.1).into_iter().collect();
    if checkout.mode != "payment" {
        return finish(effects, Outcome::NoEffect, "only sessions in mode payment are settled by themselves");
    }
    if let Some(invoice) = &checkout.invoice {
        return finish(effects, Outcome::NoEffect, format!("left to invoice {invoice}"));
    }
    if !["paid", "no_payment_required"].contains(&checkout.payment_status.as_str()) {
        return finish(effects, Outcome::NoEffect, "the session is not paid");
    }
    if let Some(by) = &facts.granted_by {
        return finish(effects, Outcome::NoEffect, format!("{fact} was granted by {by}"));
    }
    if is_before_cutover(event.created, policy) {
        return finish(effects, Outcome::NoEffect, "before cutover");
    }
    match checkout_grant(checkout, policy) {
        Ok(Grant::Lines(lines)) => grant_to(account, fact, lines, effects, facts),
        Ok(Grant::Nothing(reason)) => finish(effects, Outcome::NoEffect, reason),
        Ok(Grant::Foreign) => ignored("only prices of another product"),
        Ok(Grant::Needs(Missing::Rate(currency))) => Decision::Wait(Need::Rate(currency)),
        Ok(Grant::Needs(Missing::Lines | Missing::UnitAmount(_))) => {
            Decision::Wait(Need::Session(checkout.id.clone()))
        }
        Ok(Grant::Refused(refusal)) => Decision::Fail(failure(&refusal, "checkout", checkout.id.as_str())),
        Err(failure) => Decision::Fail(failure),
    }
}

fn checkout_grant(checkout: &Checkout, policy: &Policy) -> Result<Grant, Failure> {
    if let Basis::AmountPaid(into) = policy.credits.basis {
        return Ok(match (checkout.amount_total, checkout.currency) {
            (Some(amount), Some(currency)) => grant::of_amount(amount, currency, into),
            _ => Grant::Nothing("nothing was paid"),
        });
    }
    let quantity = match &checkout.metadata_quantity {
        Some(Err(unreadable)) => {
            return Err(Failure {
                code: "unreadable_object",
                message: format!(
                    "checkout {}: {} is {}; correct it where the session is made",
                    checkout.id, unreadable.field, unreadable.problem
                ),
            });
        }
        Some(Ok(quantity)) => *quantity,
        None => 1,
    };
    Ok(match &checkout.metadata_price {
        Some(price) => grant::of_sale(price, quantity, policy),
        None => Grant::Needs(Missing::Lines),
    })
}

fn decide_customer(event: &Event, customer: &Customer, facts: &Facts) -> Decision {
    let gone = customer.deleted || event.kind == "customer.deleted";
    let mut effects: Vec<Effect> =
        reference_of(event, &customer.id, facts, customer.reference.as_ref(), None).into_iter().collect();
    if facts.account.is_none() {
        effects.insert(0, Effect::OpenAccount(customer.id.clone()));
    }
    if gone && !facts.account.as_ref().is_some_and(|held| held.deleted) {
        effects.push(Effect::CloseAccount(customer.id.clone(), event.created));
    }
    finish(effects, Outcome::NoEffect, "nothing that we keep of the customer changed")
}

/// The snapshot of an invoice, if it is the newest, and the payments that it names, whatever its age.
fn invoice_snapshot(event: &Event, invoice: &Invoice, newer: bool) -> Vec<Effect> {
    let mut effects = Vec::with_capacity(4);
    if newer {
        effects.push(Effect::SaveInvoice(InvoiceRow {
            id: invoice.id.clone(),
            account: invoice.customer.clone(),
            subscription: invoice.subscription.clone(),
            status: invoice.status.clone(),
            currency: invoice.currency,
            total: invoice.total,
            amount_paid: grant::money_paid(invoice),
            created: invoice.created,
            snapshot_at: event.created,
        }));
    }
    if !invoice.payments.is_empty() {
        effects.push(Effect::LinkPayments(invoice.id.clone(), invoice.payments.clone()));
    }
    effects
}

/// Paid and void are final; among the others, and among two final ones, the newer snapshot wins; in one second the
/// final one, then the greater event id, so that the order of arrival does not matter.
fn supersedes(event: &Event, status: &str, held: Option<&InvoiceHeld>) -> bool {
    let Some(held) = held else { return true };
    let is_final = |status: &str| matches!(status, "paid" | "void");
    (is_final(status), event.created, &event.id) > (is_final(&held.status), held.snapshot_at, &held.source)
}

/// The change of an account's reference that this event makes, if it makes one.
fn reference_of(
    event: &Event,
    account: &AccountId,
    facts: &Facts,
    metadata: Option<&String>,
    client_reference_id: Option<&String>,
) -> Option<Effect> {
    let told = |text: &String, strength| Reference { text: text.clone(), strength, at: event.created };
    let reference = metadata
        .map(|text| told(text, ReferenceStrength::Metadata))
        .or_else(|| client_reference_id.map(|text| told(text, ReferenceStrength::ClientReferenceId)))?;
    let held = facts.account.as_ref().and_then(|held| held.reference.as_ref());
    let replaces = held.is_none_or(|held| {
        reference.text != held.text
            && (reference.strength > held.strength
                || (reference.strength == held.strength && reference.at < held.at))
    });
    replaces.then(|| Effect::SetReference(account.clone(), reference))
}

fn is_before_cutover(settled_at: UnixSeconds, policy: &Policy) -> bool {
    policy.credits.since.is_some_and(|since| settled_at < since)
}

fn grant_to(
    account: &AccountId,
    fact: Fact,
    lines: Vec<GrantLine>,
    mut effects: Vec<Effect>,
    facts: &Facts,
) -> Decision {
    if facts.account.is_none() {
        effects.insert(0, Effect::OpenAccount(account.clone()));
    }
    effects.push(Effect::Grant(account.clone(), fact, lines));
    Decision::Complete(Completion { outcome: Outcome::Applied, reason: None, effects })
}

/// Completes with `outcome`, or as applied if an account changes after all.
fn finish(effects: Vec<Effect>, outcome: Outcome, reason: impl Into<Cow<'static, str>>) -> Decision {
    let applied = effects.iter().any(|effect| {
        matches!(effect, Effect::OpenAccount(_) | Effect::SetReference(..) | Effect::CloseAccount(..))
    });
    Decision::Complete(Completion {
        outcome: if applied { Outcome::Applied } else { outcome },
        reason: Some(reason.into()),
        effects,
    })
}

fn no_effect(reason: &'static str, effects: Vec<Effect>) -> Decision {
    finish(effects, Outcome::NoEffect, reason)
}

fn ignored(reason: &'static str) -> Decision {
    finish(Vec::new(), Outcome::Ignored, reason)
}

fn later(held: Option<&InvoiceHeld>) -> Cow<'static, str> {
    match held {
        Some(held) => Cow::from(format!("{} told the later status {}", held.source, held.status)),
        None => Cow::from("older than what we hold"),
    }
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
