//! What the books hold about the subject of an event, read in the transaction that will change them.

use std::collections::BTreeSet;

use rusqlite::Connection;

use crate::clock::UnixMillis;
use crate::domain::decision::Need;
use crate::domain::event::{Body, Event, Invoice, Line, Lines, PaymentRef, Unit, UnixSeconds};
use crate::domain::exchange::DayRate;
use crate::domain::fact::Fact;
use crate::domain::facts::{AccountHeld, AccountTier, Asked, Facts, MoneyFacts, SubscriptionFacts, is_final};
use crate::domain::grant::{self, KnownPrices};
use crate::domain::ids::{AccountId, ChargeId, InvoiceId, PaymentId, PriceId, SubscriptionId};
use crate::domain::money::Currency;
use crate::domain::policy::{Basis, Policy};
use crate::store::{StoreError, accounts, answers, events, fx, invoices, ledger, payments, prices, subscriptions};

/// Reads the facts for one event, which arrived at `received`: what Stripe was asked for before that may not know of it.
pub(super) fn load(
    connection: &Connection,
    event: &Event,
    received: UnixMillis,
    policy: &Policy,
) -> Result<Facts, StoreError> {
    let mut facts = of_body(connection, event, received, policy)?;
    if policy.asks_stripe {
        add_answers(connection, &event.body, received, &mut facts)?;
    }
    if let Some((account, reference)) = told_reference(&event.body) {
        let held = facts.account.as_ref().and_then(|held| held.reference.as_ref());
        if held.is_none_or(|held| held.text != reference) {
            facts.namesake = accounts::namesake(connection, reference, account)?;
        }
    }
    Ok(facts)
}

/// What Stripe's API told since the event came.
fn add_answers(
    connection: &Connection,
    body: &Body,
    received: UnixMillis,
    facts: &mut Facts,
) -> Result<(), StoreError> {
    match body {
        Body::Subscription(subscription) => {
            facts.subscription.at_stripe = answers::state(connection, &subscription.id, received)?;
        }
        Body::Charge(_) | Body::Refund(_) | Body::Dispute(_) => {
            let payment = &facts.money.payment;
            let names =
                payment.intent.iter().map(PaymentId::as_str).chain(payment.charges.iter().map(ChargeId::as_str));
            for name in names {
                let need = Need::Payment(name.to_owned());
                facts.money.asked = facts.money.asked || answers::was_asked(connection, &need, received)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whose reference an event tells, and which.
fn told_reference(body: &Body) -> Option<(&AccountId, &str)> {
    let (account, reference) = match body {
        Body::Invoice(invoice) => (invoice.customer.as_ref(), invoice.reference.as_ref()),
        Body::Subscription(subscription) => (subscription.customer.as_ref(), subscription.reference.as_ref()),
        Body::Customer(customer) => (Some(&customer.id), customer.reference.as_ref()),
        Body::Checkout(checkout) => {
            (checkout.customer.as_ref(), checkout.reference.as_ref().or(checkout.client_reference_id.as_ref()))
        }
        _ => (None, None),
    };
    account.zip(reference.map(String::as_str))
}

fn of_body(connection: &Connection, event: &Event, received: UnixMillis, policy: &Policy) -> Result<Facts, StoreError> {
    match &event.body {
        Body::Invoice(invoice) => {
            let mut facts = of_invoice(connection, invoice, received, policy)?;
            if invoice.status == "paid" && facts.granted_by.is_none() {
                facts.rates = rates(connection, invoice.currency, grant::settled_at(event, invoice), policy)?;
            }
            Ok(facts)
        }
        Body::Checkout(checkout) => {
            let mut facts = Facts {
                granted_by: ledger::granted_by(connection, &Fact::checkout(&checkout.id))?,
                lines: told_lines(connection, &Need::Session(checkout.id.clone()), received, policy)?,
                account: account(connection, checkout.customer.as_ref())?,
                ..Facts::default()
            };
            if let (None, Some(currency)) = (&facts.granted_by, checkout.currency) {
                facts.rates = rates(connection, currency, event.created, policy)?;
            }
            // A refund may have come before, and Stripe may have told that nothing was tied to its payment.
            if facts.granted_by.is_none() && checkout.payment_intent.is_some() {
                let told = checkout.payment_intent.as_ref();
                facts.money.roots.push(payments::checkout_root(connection, &checkout.id, told)?);
            }
            if let (Some(_), Some(invoice)) = (&facts.granted_by, &checkout.invoice) {
                facts.money.roots.extend(payments::session_root(connection, &checkout.id, invoice)?);
            }
            Ok(facts)
        }
        Body::Customer(customer) => Ok(Facts { account: account(connection, Some(&customer.id))?, ..Facts::default() }),
        Body::Subscription(subscription) => {
            let mut facts = Facts { account: account(connection, subscription.customer.as_ref())?, ..Facts::default() };
            let told = subscription.customer.as_ref();
            facts.subscription = of_subscription(connection, &subscription.id, told, policy)?;
            Ok(facts)
        }
        Body::InvoicePayment(link) => match &link.payment {
            Some(names) => of_payment(connection, names, Some(&link.invoice)),
            None => Ok(Facts::default()),
        },
        Body::PaymentIntent(intent) => {
            let names = PaymentRef { payment_intent: Some(intent.id.clone()), charge: intent.latest_charge.clone() };
            of_payment(connection, &names, intent.invoice.as_ref())
        }
        Body::Charge(charge) => {
            let names = PaymentRef { payment_intent: charge.payment_intent.clone(), charge: Some(charge.id.clone()) };
            of_payment(connection, &names, charge.invoice.as_ref())
        }
        Body::Refund(refund) => {
            let mut facts = of_payment(connection, &refund.payment, None)?;
            // It may be known by another name of its payment.
            if facts.money.payment.refunds.iter().all(|held| held.id != refund.id) {
                facts.money.payment.refunds.extend(payments::refund(connection, &refund.id)?);
            }
            Ok(facts)
        }
        Body::Dispute(dispute) => {
            let mut facts = of_payment(connection, &dispute.payment, None)?;
            if facts.money.payment.disputes.iter().all(|held| held.id != dispute.id) {
                facts.money.payment.disputes.extend(payments::dispute(connection, &dispute.id)?);
            }
            Ok(facts)
        }
        Body::Thin(thin) => {
            let twin = thin.snapshot_event.as_ref().filter(|_| thin.is_acted_on);
            let twin = twin.map(|twin| events::completed(connection, twin).map(|done| done.map(|_| twin.clone())));
            Ok(Facts { twin: twin.transpose()?.flatten(), ..Facts::default() })
        }
        Body::Price(_) | Body::CreditNote(_) | Body::Other | Body::Unreadable(_) => Ok(Facts::default()),
    }
}

/// Reads the facts about one subscription and its account, for when no event tells of it.
pub(super) fn of_standing(connection: &Connection, id: &SubscriptionId, policy: &Policy) -> Result<Facts, StoreError> {
    Ok(Facts { subscription: of_subscription(connection, id, None, policy)?, ..Facts::default() })
}

fn of_invoice(
    connection: &Connection,
    invoice: &Invoice,
    received: UnixMillis,
    policy: &Policy,
) -> Result<Facts, StoreError> {
    let fact = Fact::invoice(&invoice.id);
    let held = invoices::held(connection, &invoice.id, &fact, invoice.customer.as_ref())?;
    let lines = match invoice.lines {
        Lines::Complete(_) => Asked::NotYet,
        Lines::Truncated => told_lines(connection, &Need::Lines(invoice.id.clone()), received, policy)?,
    };
    let mut facts = Facts {
        invoice: held.invoice,
        granted_by: held.granted_by,
        account: held.account,
        prices: known_prices(connection, invoice, &lines, received, policy)?,
        lines,
        ..Facts::default()
    };
    if has_more_to_say(invoice, held.is_linked, &facts) {
        facts.money.roots = payments::invoice_roots(connection, &invoice.id, &invoice.payments)?;
    }
    if policy.tiers.keep_until_period_end
        && invoice.status == "paid"
        && let Some(id) = &invoice.subscription
    {
        facts.subscription = of_subscription(connection, id, None, policy)?;
    }
    Ok(facts)
}

/// A settled invoice that was decided before, or whose payments are known, can change what is taken back of it; one
/// that is new cannot, because what moves its money waits for the decision.
fn has_more_to_say(invoice: &Invoice, is_linked: bool, facts: &Facts) -> bool {
    if invoice.status != "paid" {
        return false;
    }
    let held = facts.invoice.as_ref();
    match facts.granted_by {
        Some(_) => {
            held.is_none_or(|held| held.amount_paid != grant::money_paid(invoice)) || !invoice.payments.is_empty()
        }
        None => is_linked || held.is_some_and(|held| is_final(&held.status)),
    }
}

/// The lines of an invoice or a checkout session, as far as Stripe's API told them.
fn told_lines(
    connection: &Connection,
    need: &Need,
    received: UnixMillis,
    policy: &Policy,
) -> Result<Asked<Vec<Line>>, StoreError> {
    if policy.asks_stripe { answers::lines(connection, need, received) } else { Ok(Asked::NotYet) }
}

/// Only prorations without a unit amount of their own need to know.
fn known_prices(
    connection: &Connection,
    invoice: &Invoice,
    told: &Asked<Vec<Line>>,
    received: UnixMillis,
    policy: &Policy,
) -> Result<KnownPrices, StoreError> {
    let mut known = KnownPrices::new();
    let lines = match (&invoice.lines, told) {
        (Lines::Complete(lines), _) | (Lines::Truncated, Asked::Told(lines)) => lines.as_slice(),
        _ => &[],
    };
    if policy.credits.basis == Basis::Catalogue {
        for line in lines.iter().filter(|line| line.proration && line.unit == Unit::Untold) {
            if let Some(price) = &line.price {
                let unit = unit(connection, &price.id, line.currency, received, policy)?;
                known.insert((price.id.clone(), line.currency), unit);
            }
        }
    }
    Ok(known)
}

/// What one of a price costs in a currency. If Stripe was asked since and did not tell, there is no such amount; a price
/// may get another currency later.
fn unit(
    connection: &Connection,
    price: &PriceId,
    currency: Currency,
    received: UnixMillis,
    policy: &Policy,
) -> Result<Unit, StoreError> {
    let unit = prices::unit(connection, price, currency)?;
    if unit == Unit::Untold
        && policy.asks_stripe
        && answers::was_asked(connection, &Need::Price(price.clone()), received)?
    {
        return Ok(Unit::HasNone);
    }
    Ok(unit)
}

/// The rates that may count for a payment of a moment; none where nothing is converted.
fn rates(
    connection: &Connection,
    paid_in: Currency,
    paid_at: UnixSeconds,
    policy: &Policy,
) -> Result<Vec<DayRate>, StoreError> {
    match &policy.credits.basis {
        Basis::AmountPaid(Some(to)) if to.into != paid_in => {
            fx::rates(connection, to.base, [paid_in, to.into], to.days(paid_at))
        }
        _ => Ok(Vec::new()),
    }
}

fn of_payment(connection: &Connection, names: &PaymentRef, invoice: Option<&InvoiceId>) -> Result<Facts, StoreError> {
    let payment = payments::payment(connection, names)?;
    let mut paid = payments::invoices_of(connection, &payment)?;
    paid.extend(invoice.filter(|invoice| !paid.contains(invoice)).cloned());
    let mut roots = Vec::new();
    for invoice in &paid {
        roots.extend(payments::invoice_roots(connection, invoice, &[])?);
    }
    if let Some(intent) = &payment.intent {
        for checkout in payments::checkouts_of(connection, intent)? {
            roots.push(payments::checkout_root(connection, &checkout, None)?);
        }
    }
    Ok(Facts { money: MoneyFacts { payment, roots, asked: false }, ..Facts::default() })
}

/// `told` is whose the subscription is, as an event tells it.
fn of_subscription(
    connection: &Connection,
    id: &SubscriptionId,
    told: Option<&AccountId>,
    policy: &Policy,
) -> Result<SubscriptionFacts, StoreError> {
    let (known, standing) = subscriptions::held(connection, id)?;
    let periods =
        if policy.tiers.keep_until_period_end { subscriptions::paid_periods(connection, id)? } else { Vec::new() };
    let in_snapshots = known.newest.iter().filter_map(|snapshot| snapshot.state.account.as_ref());
    let stands_with = standing.iter().filter_map(|standing| standing.state.account.as_ref());
    let owners: BTreeSet<&AccountId> = told.into_iter().chain(in_snapshots).chain(stands_with).collect();
    let mut accounts = Vec::with_capacity(owners.len());
    for account in owners {
        accounts.push(AccountTier {
            account: account.clone(),
            tier: accounts::tier(connection, account)?,
            others: subscriptions::others(connection, account, id)?,
        });
    }
    Ok(SubscriptionFacts { known, standing, periods, accounts, ..SubscriptionFacts::default() })
}

fn account(connection: &Connection, account: Option<&AccountId>) -> Result<Option<AccountHeld>, StoreError> {
    match account {
        Some(account) => accounts::held(connection, account),
        None => Ok(None),
    }
}
