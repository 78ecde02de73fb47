//! Payments, refunds and disputes: each is remembered, and what it paid is computed anew.
//!
//! What moves money waits until it is known what the payment paid, and what that granted.

use std::collections::BTreeSet;

use super::{Draft, names};
use crate::domain::clawback::{
    self, ChargeHeld, DisputeHeld, Granted, Payment, RefundHeld, UnitGranted, corrections, disputes_in_other_currency,
};
use crate::domain::decision::{Decision, Effect, Finding, Need, Outcome};
use crate::domain::event::{
    Charge, CreditNote, Dispute, Event, Invoice, InvoicePayment, PaymentIntent, PaymentRef, Refund, UnixSeconds,
};
use crate::domain::fact::Fact;
use crate::domain::facts::{Decided, Facts, Root};
use crate::domain::grant::{self, GrantLine};
use crate::domain::ids::{AccountId, InvoiceId};
use crate::domain::money::Currency;

/// The finding of a credit note whose money no event tells of.
const CREDIT_NOTE: &str = "credit_note";
/// The finding of a dispute in another currency than its payment.
const DISPUTE_CURRENCY: &str = "dispute_currency";

/// A payment was attached to an invoice.
pub(super) fn decide_link(link: &InvoicePayment, facts: &Facts) -> Decision {
    let Some(payment) = link.payment.as_ref().filter(|_| link.status == "paid") else {
        return Draft::default().no_effect("only paid payments through Stripe tie anything");
    };
    settle(payment, Some(&link.invoice), facts.money.payment.clone(), Draft::default(), false, facts)
}

/// A payment intent names its invoice (older shapes) and its charge.
pub(super) fn decide_intent(intent: &PaymentIntent, facts: &Facts) -> Decision {
    let payment = PaymentRef { payment_intent: Some(intent.id.clone()), charge: intent.latest_charge.clone() };
    settle(&payment, intent.invoice.as_ref(), facts.money.payment.clone(), Draft::default(), false, facts)
}

/// A charge tells what was captured and, cumulatively, what was refunded.
pub(super) fn decide_charge(event: &Event, charge: &Charge, facts: &Facts) -> Decision {
    if charge.status == "failed" {
        return Draft::default().no_effect("the charge failed");
    }
    let told = ChargeHeld {
        id: charge.id.clone(),
        intent: charge.payment_intent.clone(),
        account: charge.customer.clone(),
        currency: charge.currency,
        captured: charge.amount_captured,
        refunded: charge.refunded(),
        at: event.created,
        source: event.id.clone(),
    };
    let moves = told.refunded > 0;
    let names = PaymentRef { payment_intent: charge.payment_intent.clone(), charge: Some(charge.id.clone()) };
    let (mut payment, mut draft) = (facts.money.payment.clone(), Draft::default());
    let held = payment.snapshots.iter().position(|held| held.id == charge.id);
    let newest = match held {
        Some(position) => payment.snapshots.remove(position).newest(told),
        None => told,
    };
    let mut newer = newest.source == event.id;
    if newer {
        draft.push(Effect::SaveCharge(newest.clone()));
    }
    payment.snapshots.push(newest);
    for refund in &charge.refunds {
        // The total beside the list knows already of what failed in it.
        newer |= remember_refund(event, refund, &names, event.created - 1, &mut payment, &mut draft);
    }
    finish_stale(settle(&names, charge.invoice.as_ref(), payment, draft, moves, facts), newer)
}

/// A refund tells of itself only.
pub(super) fn decide_refund(event: &Event, refund: &Refund, facts: &Facts) -> Decision {
    let (mut payment, mut draft) = (facts.money.payment.clone(), Draft::default());
    let newer = remember_refund(event, refund, &refund.payment, event.created, &mut payment, &mut draft);
    finish_stale(settle(&refund.payment, None, payment, draft, true, facts), newer)
}

/// A dispute tells of itself only; the type tells which way its money went.
pub(super) fn decide_dispute(event: &Event, dispute: &Dispute, facts: &Facts) -> Decision {
    let moved = |kind: &str| (event.kind == kind).then_some(event.created);
    let told = DisputeHeld {
        id: dispute.id.clone(),
        payment: dispute.payment.clone(),
        amount: dispute.amount,
        currency: dispute.currency,
        status: dispute.status.clone(),
        withdrawn_at: moved("charge.dispute.funds_withdrawn"),
        reinstated_at: moved("charge.dispute.funds_reinstated"),
        at: event.created,
        source: event.id.clone(),
    };
    let (mut payment, mut draft) = (facts.money.payment.clone(), Draft::default());
    let held = payment.disputes.iter().position(|held| held.id == dispute.id).map(|at| payment.disputes.remove(at));
    let newest = match held.clone() {
        Some(held) => held.newest(told),
        None => told,
    };
    let newer = Some(&newest) != held.as_ref();
    if newer {
        draft.push(Effect::SaveDispute(newest.clone()));
        draft.name(&newest.payment);
    }
    payment.disputes.push(newest);
    finish_stale(settle(&dispute.payment, None, payment, draft, true, facts), newer)
}

/// The money of a credit note moves as refunds; what goes elsewhere is not seen by anyone but a person.
pub(super) fn decide_credit_note(event: &Event, note: &CreditNote) -> Decision {
    let mut draft = Draft::default();
    if event.kind == "credit_note.voided" {
        draft.push(Effect::ResolveFinding(CREDIT_NOTE, note.id.to_string()));
    } else if note.to_balance || note.out_of_band > 0 {
        draft.push(Effect::OpenFinding(Finding {
            kind: CREDIT_NOTE,
            subject: note.id.to_string(),
            expected: "a refund, which takes credits back by itself".into(),
            actual: "money goes to the customer's balance or out of band; adjust the account if it should lose credits"
                .into(),
        }));
    }
    draft.no_effect("the money of a credit note moves as refunds")
}

/// Merges what is told of a refund into its payment; whether it told anything new. If it has failed, that was known
/// at `failed_at`.
fn remember_refund(
    event: &Event,
    refund: &Refund,
    names: &PaymentRef,
    failed_at: UnixSeconds,
    payment: &mut Payment,
    draft: &mut Draft,
) -> bool {
    let failed = clawback::is_failed(refund.status.as_deref());
    let told = RefundHeld {
        id: refund.id.clone(),
        payment: PaymentRef {
            payment_intent: refund.payment.payment_intent.clone().or_else(|| names.payment_intent.clone()),
            charge: refund.payment.charge.clone().or_else(|| names.charge.clone()),
        },
        amount: refund.amount,
        currency: refund.currency,
        status: refund.status.clone(),
        created: refund.created,
        failed_at: failed.then_some(failed_at),
        at: event.created,
        source: event.id.clone(),
    };
    let held = payment.refunds.iter().position(|held| held.id == refund.id).map(|at| payment.refunds.remove(at));
    let newest = match held.clone() {
        Some(held) => held.newest(told),
        None => told,
    };
    let newer = Some(&newest) != held.as_ref();
    if newer {
        draft.push(Effect::SaveRefund(newest.clone()));
        draft.name(&newest.payment);
    }
    payment.refunds.push(newest);
    newer
}

/// Ties, waits or corrects: what follows once `payment` is as it is now.
fn settle(
    told: &PaymentRef,
    invoice: Option<&InvoiceId>,
    payment: Payment,
    mut draft: Draft,
    moves: bool,
    facts: &Facts,
) -> Decision {
    let both = PaymentRef {
        payment_intent: told.payment_intent.clone().or_else(|| payment.intent.clone()),
        charge: told.charge.clone(),
    };
    if moves && both == PaymentRef::default() {
        return draft.no_effect("it names no payment");
    }
    if moves && facts.money.roots.is_empty() && !facts.money.asked {
        return Decision::Wait(every_name(&payment, &both));
    }
    if moves && let Some(root) = facts.money.roots.iter().find(|root| root.decided == Decided::NotYet) {
        return Decision::Wait(vec![Need::Grant(root.fact.clone())]);
    }
    match invoice {
        Some(invoice) => draft.link(invoice, std::slice::from_ref(&both)),
        None => draft.name(&both),
    }
    draft.arrive_payment(&both);
    for root in &facts.money.roots {
        match correct(root, &root.payments_with(&payment)) {
            Ok(effects) => draft.extend(effects),
            Err(unknown) if moves && !facts.money.asked => {
                return Decision::Wait(needs(unknown.iter().flat_map(names)));
            }
            Err(_) => {}
        }
    }
    let reason = match facts.money.roots.first().map(|root| &root.decided) {
        None => "nothing of ours is tied to the payment",
        Some(Decided::NotYet) => "what was paid has granted nothing yet",
        Some(Decided::Nothing) => "what was paid has granted nothing",
        Some(Decided::Granted(_)) => "the grant stands as it should",
    };
    draft.finish(Outcome::NoEffect, reason)
}

/// Whoever ties a payment may know it by any of its names.
fn every_name(payment: &Payment, told: &PaymentRef) -> Vec<Need> {
    let charges = payment.charges.iter().map(ToString::to_string);
    needs(names(told).chain(charges))
}

fn needs(names: impl Iterator<Item = String>) -> Vec<Need> {
    let names: BTreeSet<String> = names.collect();
    names.into_iter().map(Need::Payment).collect()
}

/// A snapshot that told nothing new, and changed nothing, was older than what we hold.
fn finish_stale(decision: Decision, newer: bool) -> Decision {
    match decision {
        Decision::Complete(mut completion) if !newer && completion.outcome == Outcome::NoEffect => {
            completion.outcome = Outcome::Stale;
            completion.reason = Some("older than what we hold".into());
            Decision::Complete(completion)
        }
        other => other,
    }
}

/// What is to be written so that the grant of a root stands as it should.
fn correct(root: &Root, payments: &[Payment]) -> Result<Vec<Effect>, Vec<PaymentRef>> {
    let Decided::Granted(granted) = &root.decided else { return Ok(Vec::new()) };
    let told = payments.iter().flat_map(|payment| &payment.snapshots).map(|charge| charge.currency).next();
    let Some(currency) = root.currency.or(told) else { return Ok(Vec::new()) };
    let mut effects = findings(payments, currency);
    match corrections(granted, root.amount_paid, currency, payments) {
        clawback::Outcome::Corrections(corrections) if corrections.is_empty() => {}
        clawback::Outcome::Corrections(corrections) => {
            effects.push(Effect::Correct(granted.account.clone(), root.fact.clone(), corrections));
        }
        clawback::Outcome::Unknown(payments) => return Err(payments),
    }
    Ok(effects)
}

fn findings(payments: &[Payment], currency: Currency) -> Vec<Effect> {
    let open = disputes_in_other_currency(payments, currency);
    let tell = |dispute: &DisputeHeld| {
        let subject = dispute.id.to_string();
        if !open.contains(&dispute) {
            return Effect::ResolveFinding(DISPUTE_CURRENCY, subject);
        }
        Effect::OpenFinding(Finding {
            kind: DISPUTE_CURRENCY,
            subject,
            expected: format!("an amount in {currency}; until then the whole grant is taken back"),
            actual: format!("an amount in {}", dispute.currency),
        })
    };
    payments.iter().flat_map(|payment| &payment.disputes).map(tell).collect()
}

/// A later snapshot of an invoice may tell another amount, or another payment.
pub(super) fn follow_invoice(draft: &mut Draft, invoice: &Invoice, newer: bool, facts: &Facts) {
    for mut root in facts.money.roots.iter().cloned() {
        if newer {
            root.amount_paid = grant::money_paid(invoice);
            root.currency = Some(invoice.currency);
            // What moves money may have waited for the amount.
            root.payments.iter().flat_map(Payment::names).for_each(|names| draft.arrive_payment(&names));
        }
        draft.extend(correct(&root, &root.payments).unwrap_or_default());
    }
}

/// A grant that comes after its refunds, because it was decided anew, is corrected at once.
pub(super) fn corrections_after_grant(
    account: &AccountId,
    fact: &Fact,
    lines: &[GrantLine],
    (amount_paid, currency): (i64, Option<Currency>),
    facts: &Facts,
) -> Vec<Effect> {
    let Some(root) = facts.money.roots.iter().find(|root| root.fact == *fact) else { return Vec::new() };
    let unit =
        |line: &GrantLine| UnitGranted { unit: line.unit.clone(), granted: line.amount, taken: 0, taken_before: 0 };
    let granted = Granted { account: account.clone(), units: lines.iter().map(unit).collect() };
    let root = Root { decided: Decided::Granted(granted), amount_paid, currency, ..root.clone() };
    correct(&root, &root.payments).unwrap_or_default()
}

/// A grant stands that these payments did not know of.
pub(super) fn settle_grant(root: &Root) -> Vec<Effect> {
    correct(root, &root.payments).unwrap_or_default()
}

#[cfg(test)]
mod tests;
