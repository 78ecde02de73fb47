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

use crate::domain::decision::{Completion, Decision, Effect, Failure, Finding, Need, Outcome};
use crate::domain::event::{Body, Event, PaymentRef, Price, Thin, UnixSeconds};
use crate::domain::fact::Fact;
use crate::domain::facts::{Facts, Reference, ReferenceStrength, Root};
use crate::domain::grant::Refusal;
use crate::domain::ids::{AccountId, InvoiceId, SubscriptionId};
use crate::domain::policy::Policy;

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
        Body::Thin(thin) => decide_thin(event, thin, facts),
        Body::Other if event.kind.starts_with("subscription_schedule.") => {
            Draft::default().no_effect("a schedule changes nothing until its subscription does")
        }
        Body::Other => ignored("no rule for this type"),
    }
}

/// A thin event only names its object: what it has not yet been told by its snapshot twin is asked of Stripe.
fn decide_thin(event: &Event, thin: &Thin, facts: &Facts) -> Decision {
    if !thin.is_acted_on {
        return ignored("thin event of a type without rule");
    }
    if let Some(twin) = &facts.twin {
        return Draft::default().finish(Outcome::NoEffect, format!("{twin} told the same"));
    }
    match &thin.related_url {
        Some(_) if thin.is_gone && can_be_deleted(&event.kind) => {
            Draft::default().no_effect("Stripe does not have the object any more")
        }
        Some(path) if thin.is_gone => Decision::Fail(not_at_stripe("the object", path)),
        Some(path) => Decision::Wait(vec![Need::Object(path.clone())]),
        None => Decision::Fail(Failure {
            code: "unreadable_object",
            message: format!(
                "{}: related_object.url names nothing in Stripe's API; look at the event in Stripe's dashboard, then \
                 dismiss it",
                event.kind
            ),
        }),
    }
}

/// Drafts of invoices, and plans, may be deleted at Stripe; whatever moved money stays there for good.
fn can_be_deleted(kind: &str) -> bool {
    matches!(kind, "v1.invoice.created" | "v1.invoice.updated") || kind.starts_with("v1.plan.")
}

/// What follows for a subscription when the time of a held tier is over.
#[must_use]
pub fn end_held_tier(id: &SubscriptionId, facts: &Facts, policy: &Policy, now: UnixSeconds) -> Completion {
    subscription::end_held_tier(id, facts, policy, now)
}

/// What follows at once for a grant that no event of Stripe's made: refunds and disputes may be known already.
#[must_use]
pub fn settle_grant(root: &Root) -> Vec<Effect> {
    payment::settle_grant(root)
}

/// What stays of an event that a person has dismissed: it grants nothing, and whoever waits for its grant may know.
/// What it tells of payments is remembered, so that their refunds find out.
#[must_use]
pub fn dismiss(event: &Event, facts: &Facts) -> Vec<Effect> {
    match &event.body {
        _ if facts.granted_by.is_some() => Vec::new(),
        Body::Invoice(invoice) => invoice::dismiss(event, invoice, facts),
        Body::Checkout(checkout) => checkout::dismiss(checkout),
        _ => Vec::new(),
    }
}

/// What others may know once an event of this type and object is dismissed, be it readable or not.
#[must_use]
pub fn arrivals_of_dismissal(kind: &str, object_id: Option<&str>, effects: &[Effect]) -> Vec<Need> {
    let mut arrivals = Vec::new();
    if kind.strip_prefix("v1.").unwrap_or(kind).starts_with("invoice.") {
        let id = object_id.and_then(|id| InvoiceId::parse(id).ok());
        arrivals.extend(id.map(|id| Need::Grant(Fact::invoice(&id))));
    }
    for effect in effects {
        match effect {
            Effect::LinkPayments(_, payments) => arrivals.extend(payments.iter().flat_map(names).map(Need::Payment)),
            Effect::SaveCheckout(checkout) => {
                arrivals.extend(checkout.payment_intent.iter().map(|intent| Need::Payment(intent.to_string())));
            }
            _ => {}
        }
    }
    arrivals
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
pub const SHARED_REFERENCE: &str = "shared_reference";

/// An account has a reference that another live account has, too.
#[must_use]
pub fn shared_reference(account: &AccountId, other: &AccountId, reference: &str) -> Finding {
    Finding {
        kind: SHARED_REFERENCE,
        subject: account.to_string(),
        expected: "one live account for each reference: give the wrong one its own, or '' for none".into(),
        actual: format!("{other} has the reference {reference} as well"),
    }
}

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
    let shared = |other| Effect::OpenFinding(shared_reference(account, other, &reference.text));
    let finding = facts.namesake.as_ref().map(shared);
    [Effect::SetReference(account.clone(), reference)].into_iter().chain(finding).collect()
}

fn not_at_stripe(object: &str, id: &str) -> Failure {
    Failure {
        code: "not_at_stripe",
        message: format!(
            "{object} {id} is not in the Stripe account that stripe.api_key opens; if the key is right, it was test \
             data: dismiss the event"
        ),
    }
}

fn is_before_cutover(settled_at: UnixSeconds, policy: &Policy) -> bool {
    policy.credits.since.is_some_and(|since| settled_at < since)
}

fn failure(refusal: &Refusal, object: &str, id: &str) -> Failure {
    match refusal {
        Refusal::UnlistedPrice(price) => Failure {
            code: "unlisted_price",
            message: format!(
                "{object} {id} sells {price}, which is in no [[price]]; add a [[price]] for it (or one with foreign = \
                 true), restart billingd, then replay"
            ),
        },
        Refusal::PriceWithoutUnitAmount(price) => Failure {
            code: "price_without_unit_amount",
            message: format!(
                "{object} {id} prorates {price}, which has no unit amount; give its [[price]] a unit_amount, restart \
                 billingd, then replay"
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
