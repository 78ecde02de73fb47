//! What the books hold about the subject of an event, read in the transaction that will change them.

use rusqlite::Connection;

use crate::domain::decide::{AccountHeld, Fact, Facts, MoneyFacts, SubscriptionFacts};
use crate::domain::event::{Body, Event, Invoice, Lines, PaymentRef, Unit};
use crate::domain::grant::{self, KnownPrices};
use crate::domain::ids::{AccountId, InvoiceId, SubscriptionId};
use crate::domain::policy::{Basis, Policy};
use crate::store::{StoreError, accounts, invoices, ledger, payments, prices, subscriptions};

/// Reads the facts for one event.
pub(super) fn load(connection: &Connection, event: &Event, policy: &Policy) -> Result<Facts, StoreError> {
    match &event.body {
        Body::Invoice(invoice) => of_invoice(connection, invoice, policy),
        Body::Checkout(checkout) => {
            let mut facts = Facts {
                granted_by: ledger::granted_by(connection, &Fact::checkout(&checkout.id))?,
                account: account(connection, checkout.customer.as_ref())?,
                ..Facts::default()
            };
            if facts.granted_by.is_none() && checkout.payment_intent.is_some() {
                facts.money.roots.push(payments::checkout_root(connection, &checkout.id)?);
            }
            Ok(facts)
        }
        Body::Customer(customer) => Ok(Facts { account: account(connection, Some(&customer.id))?, ..Facts::default() }),
        Body::Subscription(subscription) => {
            let mut facts = Facts { account: account(connection, subscription.customer.as_ref())?, ..Facts::default() };
            facts.subscription = of_subscription(connection, &subscription.id, policy)?;
            if let Some(account) = &subscription.customer {
                facts.subscription.others = subscriptions::others(connection, account, &subscription.id)?;
            }
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
        Body::Refund(refund) => of_payment(connection, &refund.payment, None),
        Body::Dispute(dispute) => of_payment(connection, &dispute.payment, None),
        Body::Price(_) | Body::CreditNote(_) | Body::Thin(_) | Body::Other | Body::Unreadable(_) => {
            Ok(Facts::default())
        }
    }
}

/// Reads the facts about one subscription and its account, for when no event tells of it.
pub(super) fn of_standing(connection: &Connection, id: &SubscriptionId, policy: &Policy) -> Result<Facts, StoreError> {
    let mut facts = Facts { subscription: of_subscription(connection, id, policy)?, ..Facts::default() };
    let standing = facts.subscription.standing.as_ref();
    if let Some(owner) = standing.and_then(|standing| standing.state.account.clone()) {
        facts.account = account(connection, Some(&owner))?;
        facts.subscription.others = subscriptions::others(connection, &owner, id)?;
    }
    Ok(facts)
}

fn of_invoice(connection: &Connection, invoice: &Invoice, policy: &Policy) -> Result<Facts, StoreError> {
    let fact = Fact::invoice(&invoice.id);
    let held = invoices::held(connection, &invoice.id, &fact, invoice.customer.as_ref())?;
    let mut facts = Facts {
        invoice: held.invoice,
        granted_by: held.granted_by,
        account: held.account,
        prices: known_prices(connection, invoice, policy)?,
        ..Facts::default()
    };
    if has_more_to_say(invoice, &facts) {
        facts.money.roots.push(payments::invoice_root(connection, &invoice.id, &invoice.payments)?);
    }
    if policy.tiers.keep_until_period_end
        && invoice.status == "paid"
        && let Some(id) = &invoice.subscription
    {
        facts.subscription = of_subscription(connection, id, policy)?;
        if let Some(account) = &invoice.customer {
            facts.subscription.others = subscriptions::others(connection, account, id)?;
        }
    }
    Ok(facts)
}

/// A settled invoice that was decided before can change what is taken back of it; one that is new cannot, because
/// what moves its money waits for the decision.
fn has_more_to_say(invoice: &Invoice, facts: &Facts) -> bool {
    let Some(held) = &facts.invoice else { return facts.granted_by.is_some() };
    if invoice.status != "paid" {
        return false;
    }
    match facts.granted_by {
        Some(_) => held.amount_paid != grant::money_paid(invoice) || !invoice.payments.is_empty(),
        None => held.status == "paid",
    }
}

/// Only prorations without a unit amount of their own need to know.
fn known_prices(connection: &Connection, invoice: &Invoice, policy: &Policy) -> Result<KnownPrices, StoreError> {
    let mut known = KnownPrices::new();
    if let (Basis::Catalogue, Lines::Complete(lines)) = (&policy.credits.basis, &invoice.lines) {
        for line in lines.iter().filter(|line| line.proration && line.unit == Unit::Untold) {
            if let Some(price) = &line.price {
                let unit = prices::unit(connection, &price.id, line.currency)?;
                known.insert((price.id.clone(), line.currency), unit);
            }
        }
    }
    Ok(known)
}

fn of_payment(connection: &Connection, names: &PaymentRef, invoice: Option<&InvoiceId>) -> Result<Facts, StoreError> {
    let payment = payments::payment(connection, names)?;
    let mut paid = payments::invoices_of(connection, &payment)?;
    paid.extend(invoice.filter(|invoice| !paid.contains(invoice)).cloned());
    let mut roots = Vec::new();
    for invoice in &paid {
        roots.push(payments::invoice_root(connection, invoice, &[])?);
    }
    if let Some(intent) = &payment.intent {
        for checkout in payments::checkouts_of(connection, intent)? {
            roots.push(payments::checkout_root(connection, &checkout)?);
        }
    }
    Ok(Facts { money: MoneyFacts { payment, roots }, ..Facts::default() })
}

fn of_subscription(
    connection: &Connection,
    id: &SubscriptionId,
    policy: &Policy,
) -> Result<SubscriptionFacts, StoreError> {
    let (known, standing) = subscriptions::held(connection, id)?;
    let periods =
        if policy.tiers.keep_until_period_end { subscriptions::paid_periods(connection, id)? } else { Vec::new() };
    Ok(SubscriptionFacts { known, standing, periods, others: Vec::new() })
}

fn account(connection: &Connection, account: Option<&AccountId>) -> Result<Option<AccountHeld>, StoreError> {
    match account {
        Some(account) => accounts::held(connection, account),
        None => Ok(None),
    }
}
