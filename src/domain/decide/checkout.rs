//! Checkout sessions: one in mode payment without an invoice is a fact of its own; all others only name the account.

use super::{Draft, failure, invoice, is_before_cutover, not_at_stripe, payment, reference_of};
use crate::domain::decision::{CheckoutRow, Decision, Effect, Failure, Need, Outcome};
use crate::domain::event::{Checkout, Event, PaymentRef};
use crate::domain::fact::Fact;
use crate::domain::facts::{Asked, Facts};
use crate::domain::grant::{self, Grant, Missing, Paid};
use crate::domain::policy::{Basis, Policy};

/// Decides about one snapshot of a session.
pub(super) fn decide(event: &Event, checkout: &Checkout, facts: &Facts, policy: &Policy) -> Decision {
    let mut draft = Draft::default();
    tie(&mut draft, checkout);
    let Some(account) = &checkout.customer else {
        // A guest's payment grants nothing, which its refunds must know.
        if is_a_fact(checkout) {
            remember(&mut draft, checkout);
        }
        return draft.complete(Outcome::Ignored, Some("the session has no customer".into()));
    };
    let (reference, client_reference) = (checkout.reference.as_ref(), checkout.client_reference_id.as_ref());
    draft.extend(reference_of(event, account, facts, reference, client_reference));
    if let (Some(invoice), Some(_)) = (&checkout.invoice, &facts.granted_by) {
        // Only an old table gives for a session with an invoice; the invoice's money is what its refunds are of.
        facts.money.roots.iter().for_each(|root| draft.extend(payment::settle_grant(root)));
        draft.arrivals.push(Need::Grant(Fact::invoice(invoice)));
    }
    if checkout.mode != "payment" {
        return draft.finish(Outcome::NoEffect, "only sessions in mode payment are settled by themselves");
    }
    if let Some(invoice) = &checkout.invoice {
        let payment = PaymentRef { payment_intent: checkout.payment_intent.clone(), charge: None };
        draft.link(invoice, if checkout.payment_intent.is_some() { std::slice::from_ref(&payment) } else { &[] });
        return draft.finish(Outcome::NoEffect, format!("left to invoice {invoice}"));
    }
    if !is_a_fact(checkout) {
        return draft.finish(Outcome::NoEffect, "the session is not paid");
    }
    let fact = Fact::checkout(&checkout.id);
    remember(&mut draft, checkout);
    if let Some(by) = &facts.granted_by {
        return draft.finish(Outcome::NoEffect, format!("{fact} was granted by {by}"));
    }
    if is_before_cutover(event.created, policy) {
        return draft.finish(Outcome::NoEffect, "before cutover");
    }
    match what_it_grants(event, checkout, facts, policy) {
        Ok(Grant::Lines(lines)) => {
            let paid = (checkout.amount_total.unwrap_or_default(), checkout.currency);
            invoice::grant_to(account, fact, lines, paid, draft, facts)
        }
        Ok(Grant::Nothing(reason)) => draft.finish(Outcome::NoEffect, reason),
        Ok(Grant::Foreign) => draft.complete(Outcome::Ignored, Some("only prices of another product".into())),
        Ok(Grant::Needs(Missing::Rate(currency))) => Decision::Wait(vec![Need::Rate(currency)]),
        Ok(Grant::Needs(Missing::Lines | Missing::UnitAmount(_))) => {
            Decision::Wait(vec![Need::Session(checkout.id.clone())])
        }
        Ok(Grant::Refused(refusal)) => Decision::Fail(failure(&refusal, "checkout", checkout.id.as_str())),
        Err(failure) => Decision::Fail(failure),
    }
}

/// Its payment, as for a session that grants nothing.
pub(super) fn dismiss(checkout: &Checkout) -> Vec<Effect> {
    let mut draft = Draft::default();
    tie(&mut draft, checkout);
    if is_a_fact(checkout) {
        remember(&mut draft, checkout);
    }
    draft.effects
}

/// It is settled by itself: no invoice speaks for it.
fn is_a_fact(checkout: &Checkout) -> bool {
    checkout.mode == "payment"
        && checkout.invoice.is_none()
        && matches!(checkout.payment_status.as_str(), "paid" | "no_payment_required")
}

fn tie(draft: &mut Draft, checkout: &Checkout) {
    if let Some(invoice) = &checkout.invoice {
        draft.push(Effect::TieCheckout(checkout.id.clone(), invoice.clone()));
    }
}

fn remember(draft: &mut Draft, checkout: &Checkout) {
    draft.push(Effect::SaveCheckout(CheckoutRow {
        id: checkout.id.clone(),
        account: checkout.customer.clone(),
        payment_intent: checkout.payment_intent.clone(),
        amount_paid: checkout.amount_total.unwrap_or_default(),
        currency: checkout.currency,
    }));
    draft.arrivals.extend(checkout.payment_intent.iter().map(|intent| Need::Payment(intent.to_string())));
    draft.arrivals.push(Need::Grant(Fact::checkout(&checkout.id)));
}

fn what_it_grants(event: &Event, checkout: &Checkout, facts: &Facts, policy: &Policy) -> Result<Grant, Failure> {
    if let Basis::AmountPaid(conversion) = &policy.credits.basis {
        return Ok(match (checkout.amount_total, checkout.currency) {
            (Some(amount), Some(currency)) => {
                let paid = Paid { amount, currency, at: event.created };
                grant::of_payment(paid, conversion.as_ref(), &facts.rates)
            }
            _ => Grant::Nothing("nothing was paid"),
        });
    }
    match &facts.lines {
        Asked::Told(lines) => Ok(grant::of_lines(lines, policy, &facts.prices)),
        Asked::NotYet if policy.asks_stripe => Ok(Grant::Needs(Missing::Lines)),
        Asked::NotYet | Asked::Gone => what_its_metadata_grants(checkout, facts, policy),
    }
}

fn what_its_metadata_grants(checkout: &Checkout, facts: &Facts, policy: &Policy) -> Result<Grant, Failure> {
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
    match &checkout.metadata_price {
        Some(price) => Ok(grant::of_sale(price, quantity, policy)),
        None if facts.lines == Asked::Gone => Err(not_at_stripe("checkout", checkout.id.as_str())),
        None => Ok(Grant::Needs(Missing::Lines)),
    }
}
