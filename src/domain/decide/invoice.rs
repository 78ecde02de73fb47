//! Invoices: what settles grants, what else comes is remembered.

use std::borrow::Cow;

use super::{Draft, failure, is_before_cutover, not_at_stripe, payment, reference_of, subscription};
use crate::domain::decision::{Decision, Effect, InvoiceRow, Need, Outcome};
use crate::domain::event::{Event, Invoice, Lines, Price, PriceRef, Unit, UnixSeconds};
use crate::domain::fact::Fact;
use crate::domain::facts::{Asked, Facts, InvoiceHeld, is_final};
use crate::domain::grant::{self, Grant, GrantLine, Missing};
use crate::domain::ids::AccountId;
use crate::domain::money::Currency;
use crate::domain::policy::{Basis, Policy};
use crate::domain::subscription::PaidPeriod;

/// Decides about one snapshot of an invoice.
pub(super) fn decide(event: &Event, invoice: &Invoice, facts: &Facts, policy: &Policy, now: UnixSeconds) -> Decision {
    let completed = completed(invoice, facts);
    let invoice = completed.as_ref();
    let settled = invoice.status == "paid";
    let fact = Fact::invoice(&invoice.id);
    let newer = supersedes(event, &invoice.status, facts.invoice.as_ref());
    let mut draft = learn_prices(snapshot(event, invoice, newer), invoice, policy);
    let Some(account) = &invoice.customer else {
        draft.arrivals.push(Need::Grant(fact));
        return draft.complete(Outcome::Ignored, Some("the invoice has no customer".into()));
    };
    if !grant::is_foreign(invoice, policy) {
        draft.extend(reference_of(event, account, facts, invoice.reference.as_ref(), None));
    }
    if !settled {
        if is_final(&invoice.status) {
            draft.arrivals.push(Need::Grant(fact));
        }
        return if newer {
            draft.finish(Outcome::NoEffect, "the invoice is not settled")
        } else {
            draft.finish(Outcome::Stale, told_later(facts.invoice.as_ref()))
        };
    }
    if lacks_paid_periods(invoice, facts, policy) {
        return Decision::Wait(vec![Need::Lines(invoice.id.clone())]);
    }
    draft.extend(keep_paid_periods(invoice, facts, policy, now));
    if let Some(by) = &facts.granted_by {
        payment::follow_invoice(&mut draft, invoice, newer, facts);
        return draft.finish(Outcome::NoEffect, format!("{fact} was granted by {by}"));
    }
    let decided = Need::Grant(fact.clone());
    let settled_at = grant::settled_at(event, invoice);
    if is_before_cutover(settled_at, policy) {
        draft.arrivals.push(decided);
        return draft.finish(Outcome::NoEffect, "before cutover");
    }
    match grant::of_invoice(invoice, settled_at, policy, &facts.prices, &facts.rates) {
        Grant::Lines(lines) => {
            draft.arrivals.push(decided);
            let paid = (grant::money_paid(invoice), Some(invoice.currency));
            grant_to(account, fact, lines, paid, draft, facts)
        }
        Grant::Nothing(reason) => {
            draft.arrivals.push(decided);
            draft.finish(Outcome::NoEffect, reason)
        }
        Grant::Foreign => {
            draft.arrivals.push(decided);
            draft.complete(Outcome::Ignored, Some("only prices of another product".into()))
        }
        Grant::Needs(Missing::Lines) if facts.lines == Asked::Gone => {
            Decision::Fail(not_at_stripe("invoice", invoice.id.as_str()))
        }
        Grant::Needs(Missing::Lines) => Decision::Wait(vec![Need::Lines(invoice.id.clone())]),
        Grant::Needs(Missing::UnitAmount(price)) => Decision::Wait(vec![Need::Price(price)]),
        Grant::Needs(Missing::Rate(currency)) => Decision::Wait(vec![Need::Rate(currency)]),
        Grant::Refused(refusal) => Decision::Fail(failure(&refusal, "invoice", invoice.id.as_str())),
    }
}

/// The invoice with all of its lines, as far as they are known: events embed only the first ones.
fn completed<'a>(invoice: &'a Invoice, facts: &Facts) -> Cow<'a, Invoice> {
    match (&invoice.lines, &facts.lines) {
        (Lines::Truncated, Asked::Told(lines)) => {
            Cow::Owned(Invoice { lines: Lines::Complete(lines.clone()), ..invoice.clone() })
        }
        _ => Cow::Borrowed(invoice),
    }
}

/// The snapshot and its payments, as for an invoice that grants nothing.
pub(super) fn dismiss(event: &Event, invoice: &Invoice, facts: &Facts) -> Vec<Effect> {
    snapshot(event, invoice, supersedes(event, &invoice.status, facts.invoice.as_ref())).effects
}

/// The snapshot, if it is the newest, and the payments and prices that it names, whatever its age.
fn snapshot(event: &Event, invoice: &Invoice, newer: bool) -> Draft {
    let mut draft = Draft { effects: Vec::with_capacity(4), arrivals: Vec::with_capacity(2) };
    if newer {
        draft.push(Effect::SaveInvoice(InvoiceRow {
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
    draft.link(&invoice.id, &invoice.payments);
    draft
}

/// What the lines tell of prices that only snapshots tell of: the prorations of another invoice may wait for it.
fn learn_prices(draft: Draft, invoice: &Invoice, policy: &Policy) -> Draft {
    let Lines::Complete(lines) = &invoice.lines else { return draft };
    if policy.credits.basis != Basis::Catalogue || !policy.credits.prorate {
        return draft;
    }
    lines.iter().fold(draft, |draft, line| match &line.price {
        Some(price) if line.unit != Unit::Untold && needs_snapshots(price, policy) => {
            draft.learn(Price { price: price.clone(), currency: line.currency, unit: line.unit.clone() })
        }
        _ => draft,
    })
}

fn needs_snapshots(price: &PriceRef, policy: &Policy) -> bool {
    policy.catalogue.rule(price).is_some_and(|rule| !rule.foreign && rule.credits > 0 && rule.unit_amount.is_none())
}

/// Paid and void are final, and money that came beats a cancellation; among the others, and among two alike, the newer
/// snapshot wins; in one second the later status, then the greater event id, so that the order of arrival does not
/// matter.
fn supersedes(event: &Event, status: &str, held: Option<&InvoiceHeld>) -> bool {
    let Some(held) = held else { return true };
    let finality = |status: &str| if status == "paid" { 2 } else { u8::from(is_final(status)) };
    let progress = |status: &str| ["draft", "open"].iter().position(|early| *early == status).unwrap_or(2);
    (finality(status), event.created, progress(status), &event.id)
        > (finality(&held.status), held.snapshot_at, progress(&held.status), &held.source)
}

fn told_later(held: Option<&InvoiceHeld>) -> String {
    match held {
        Some(held) => format!("{} told the later status {}", held.source, held.status),
        None => "older than what we hold".into(),
    }
}

/// Under `downgrade = "period_end"` the lines count, whatever the credits come from.
fn lacks_paid_periods(invoice: &Invoice, facts: &Facts, policy: &Policy) -> bool {
    policy.tiers.keep_until_period_end
        && policy.asks_stripe
        && invoice.subscription.is_some()
        && invoice.lines == Lines::Truncated
        && facts.lines == Asked::NotYet
}

/// Under `downgrade = "period_end"`: what the invoice paid for, and how its subscription stands with that.
fn keep_paid_periods(invoice: &Invoice, facts: &Facts, policy: &Policy, now: UnixSeconds) -> Vec<Effect> {
    let (Some(id), Lines::Complete(lines)) = (&invoice.subscription, &invoice.lines) else { return Vec::new() };
    if !policy.tiers.keep_until_period_end {
        return Vec::new();
    }
    let paid = lines.iter().filter(|line| line.amount > 0).filter_map(|line| {
        Some(PaidPeriod {
            invoice: invoice.id.clone(),
            price: line.price.clone()?,
            starts_at: line.period_start?,
            ends_at: line.period_end?,
        })
    });
    let paid: Vec<PaidPeriod> = paid.collect();
    let mut periods = facts.subscription.periods.clone();
    periods.extend(paid.iter().filter(|period| !facts.subscription.periods.contains(period)).cloned());
    let mut effects = vec![Effect::SavePaidPeriods(id.clone(), paid)];
    effects.extend(subscription::stand(id, &facts.subscription.known, &periods, facts, policy, now).effects());
    effects
}

/// Grants, and takes back at once what was refunded of the money that was `paid`.
pub(super) fn grant_to(
    account: &AccountId,
    fact: Fact,
    lines: Vec<GrantLine>,
    paid: (i64, Option<Currency>),
    mut draft: Draft,
    facts: &Facts,
) -> Decision {
    if facts.account.is_none() {
        draft.effects.insert(0, Effect::OpenAccount(account.clone()));
    }
    let corrections = payment::corrections_after_grant(account, &fact, &lines, paid, facts);
    draft.push(Effect::Grant(account.clone(), fact, lines));
    draft.extend(corrections);
    draft.complete(Outcome::Applied, None)
}
