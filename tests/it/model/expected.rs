//! What the books must be, worked out from the objects at Stripe as they are in the end. Written from the rules of
//! money and state; it looks at no event, so it knows nothing of orders.

use std::collections::BTreeMap;

use super::Rules;
use crate::books::{MEANINGS, Totals};
use crate::sim::world::{Invoice, Line, PLANS, PRICES, Subscription, World};

const TIERS: [&str; PLANS] = ["basic", "pro", "team"];

/// All rows, as the books print them.
pub(crate) fn books(world: &World, rules: Rules, now: i64) -> Totals {
    let mut totals = Totals::new();
    for (index, one) in world.subscriptions.iter().enumerate() {
        totals.insert(format!("subscription {}", one.id), subscription(world, index, one, rules, now));
    }
    for one in &world.invoices {
        let subscription = one.subscription.map_or("-", |index| &world.subscriptions[index].id);
        let row = format!(
            "{} | {subscription} | {} | {} | {}",
            world.customers[one.customer].id, one.status, one.total, one.amount_paid
        );
        totals.insert(format!("invoice {}", one.id), row);
    }
    for one in world.refunds.iter().filter(|refund| refund.told) {
        let payment = &world.payments[one.payment];
        let name = if one.named { &payment.intent } else { &payment.charge };
        totals.insert(format!("refund {}", one.id), format!("{name} | {} | usd | {}", one.amount, one.status));
    }
    for one in &world.disputes {
        let payment = &world.payments[one.payment];
        let name = if one.named { &payment.intent } else { &payment.charge };
        let row = format!("{name} | {} | {} | {}", one.amount, one.currency, one.status);
        totals.insert(format!("dispute {}", one.id), row);
    }
    let money = money(world, rules);
    for ((customer, unit), amount) in &money.balances {
        totals.insert(format!("balance {} {unit}", world.customers[*customer].id), amount.to_string());
    }
    for ((root, unit), (customer, amount)) in &money.grants {
        totals.insert(format!("grant {root} {unit}"), format!("{} | {amount}", world.customers[*customer].id));
    }
    accounts(world, rules, now, &money, &mut totals);
    totals
}

fn accounts(world: &World, rules: Rules, now: i64, money: &Money, totals: &mut Totals) {
    for (index, one) in world.customers.iter().enumerate() {
        let own = || world.subscriptions.iter().enumerate().filter(|(_, held)| held.customer == index);
        let known = one.told
            || own().next().is_some()
            || world.namings.iter().any(|naming| naming.customer == index)
            || money.balances.keys().any(|(customer, _)| *customer == index);
        if !known {
            continue;
        }
        let tier = own()
            .filter(|(_, held)| matches!(held.status.as_str(), "active" | "trialing" | "past_due"))
            .filter_map(|(at, held)| tier(world, at, held, rules, now).0)
            .max();
        let mut names: Vec<_> = world.namings.iter().filter(|naming| naming.customer == index).collect();
        names.sort_by_key(|naming| (!naming.by_merchant, naming.at, &naming.text));
        let reference = names.first().map_or("-", |naming| &naming.text);
        let row = format!("{} | {reference} | {}", tier.map_or("-", |rank| TIERS[rank]), i64::from(one.deleted));
        totals.insert(format!("account {}", one.id), row);
    }
}

// Subscriptions.

/// The highest plan among its items, and that item.
fn plan(one: &Subscription) -> Option<(usize, i64)> {
    let mut best: Option<(usize, i64)> = None;
    for item in one.items.iter().filter(|item| item.price < PLANS) {
        if best.is_none_or(|(price, _)| item.price > price) {
            best = Some((item.price, item.quantity));
        }
    }
    best
}

/// The rank of its tier, and, if a higher one is held, until when.
fn tier(world: &World, index: usize, one: &Subscription, rules: Rules, now: i64) -> (Option<usize>, Option<i64>) {
    let own = plan(one).map(|(rank, _)| rank);
    let over = matches!(one.status.as_str(), "canceled" | "incomplete_expired");
    if !rules.keeps_tiers || over {
        return (own, None);
    }
    let paid: Vec<&Line> = world
        .invoices
        .iter()
        .filter(|invoice| invoice.subscription == Some(index) && invoice.status == "paid")
        .flat_map(|invoice| invoice.lines.iter().filter(|line| line.amount > 0))
        .collect();
    for rank in (0..PLANS).rev().take_while(|rank| Some(*rank) > own) {
        let until = paid.iter().filter(|line| line.price == rank).map(|line| line.period.1).max();
        let Some(until) = until.filter(|until| *until > now) else { continue };
        if !paid.iter().any(|line| Some(line.price) == own && line.period.0 >= until) {
            return (Some(rank), Some(until));
        }
    }
    (own, None)
}

fn subscription(world: &World, index: usize, one: &Subscription, rules: Rules, now: i64) -> String {
    let (rank, held_until) = tier(world, index, one, rules, now);
    let own = plan(one);
    let show = |rank: Option<usize>| rank.map_or("-", |rank| TIERS[rank]);
    let number = |number: Option<i64>| number.map_or_else(|| "-".into(), |number: i64| number.to_string());
    let mut prices: Vec<&str> = one.items.iter().map(|item| PRICES[item.price].id).collect();
    prices.sort_unstable();
    let quantity = own.map(|(_, quantity)| quantity).or(one.items.first().map(|item| item.quantity));
    let scheduled = one.cancel_at.or(one.cancel_at_period_end.then_some(one.end));
    [
        world.customers[one.customer].id.clone(),
        one.status.clone(),
        show(rank).into(),
        prices.join(","),
        number(quantity),
        one.end.to_string(),
        number(one.ended_at.or(scheduled)),
        i64::from(one.paused).to_string(),
        if held_until.is_some() { show(own.map(|(rank, _)| rank)).into() } else { "-".into() },
        number(held_until),
    ]
    .join(" | ")
}

// Money.

#[derive(Default)]
struct Money {
    /// By customer and unit.
    balances: BTreeMap<(usize, String), i64>,
    /// By root and unit: whose it is, and what stands of it.
    grants: BTreeMap<(String, String), (usize, i64)>,
}

impl Money {
    /// Something that granted `granted` for `paid`, of which `back` went back.
    fn add(&mut self, root: String, customer: usize, granted: BTreeMap<String, i64>, paid: i64, back: i64) {
        for (unit, amount) in granted.into_iter().filter(|(_, amount)| *amount > 0) {
            let taken = if back == 0 { 0 } else { i128::from(amount) * i128::from(back.min(paid)) / i128::from(paid) };
            let stands = amount - i64::try_from(taken).unwrap();
            *self.balances.entry((customer, unit.clone())).or_default() += stands;
            self.grants.insert((root.clone(), unit), (customer, stands));
        }
    }
}

fn money(world: &World, rules: Rules) -> Money {
    let mut money = Money::default();
    for one in world.invoices.iter().filter(|invoice| invoice.status == "paid") {
        let granted = if rules.by_catalogue { by_catalogue(one) } else { by_amount(one.amount_paid) };
        let back = one.payments.iter().map(|payment| back(world, *payment)).sum();
        money.add(format!("grant:invoice:{}", one.id), one.customer, granted, one.amount_paid, back);
    }
    for one in world.checkouts.iter().filter(|one| one.mode == "payment" && one.invoice.is_none()) {
        let (Some(payment), "paid") = (one.payment, one.payment_status) else { continue };
        let amount = one.amount.unwrap_or_default();
        let granted = match one.price {
            Some(price) if rules.by_catalogue => {
                BTreeMap::from([(MEANINGS[price].2.to_owned(), MEANINGS[price].1 * one.quantity)])
            }
            _ => by_amount(amount),
        };
        money.add(format!("grant:checkout:{}", one.id), one.customer, granted, amount, back(world, payment));
    }
    money
}

/// Minor units of a payment that are with the customer or the bank.
fn back(world: &World, payment: usize) -> i64 {
    let gone = |status: &str| matches!(status, "failed" | "canceled");
    let refunds = world.refunds.iter().filter(|refund| refund.payment == payment && !gone(&refund.status));
    let disputes = world.disputes.iter().filter(|dispute| dispute.payment == payment && dispute.out);
    refunds.map(|refund| refund.amount).sum::<i64>() + disputes.map(|dispute| dispute.amount).sum::<i64>()
}

fn by_amount(paid: i64) -> BTreeMap<String, i64> {
    BTreeMap::from([("usd".to_owned(), paid)])
}

/// Whole lines for themselves; of prorations the net, exactly, rounded down and never below 0.
fn by_catalogue(invoice: &Invoice) -> BTreeMap<String, i64> {
    let common: i128 = PRICES.iter().map(|price| i128::from(price.amount)).product();
    let (mut whole, mut parts) = (BTreeMap::<String, i64>::new(), BTreeMap::<String, i128>::new());
    for line in &invoice.lines {
        let (tier, credits, unit) = MEANINGS[line.price];
        if tier.is_some() && line.subscription.is_none() {
            continue;
        }
        if line.proration {
            let each = i128::from(credits) * i128::from(line.amount) * (common / i128::from(PRICES[line.price].amount));
            *parts.entry(unit.to_owned()).or_default() += each;
        } else if line.amount > 0 {
            *whole.entry(unit.to_owned()).or_default() += credits * line.quantity;
        }
    }
    for (unit, part) in parts {
        *whole.entry(unit).or_default() += i64::try_from(part.max(0) / common).unwrap();
    }
    whole
}
