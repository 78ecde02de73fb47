//! The rule of credits: what a settled invoice or checkout grants.
//!
//! A grant follows from one snapshot, the price list and what is known about prices; never from a balance and never
//! from the order of arrival.

use std::collections::BTreeMap;

use crate::domain::event::{Event, Invoice, Line, Lines, PriceRef, Unit, UnixSeconds};
use crate::domain::exchange::{Conversion, Day, DayRate};
use crate::domain::ids::PriceId;
use crate::domain::money::{Currency, UnitAmount};
use crate::domain::policy::{Basis, Credits, Policy, PriceRule};

/// What is known about prices from earlier snapshots, by price and currency.
pub type KnownPrices = BTreeMap<(PriceId, Currency), Unit>;

/// What a settled fact grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// So much of each unit, each more than 0.
    Lines(Vec<GrantLine>),
    /// Nothing, for this reason.
    Nothing(&'static str),
    /// Only prices of another product.
    Foreign,
    /// Cannot be told before this is known.
    Needs(Missing),
    /// Cannot be told at all until a person acts.
    Refused(Refusal),
}

/// One unit of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantLine {
    /// A unit of credits, or a currency.
    pub unit: String,
    /// More than 0.
    pub amount: i64,
    /// The price, where a single one gave all of it.
    pub price: Option<PriceId>,
    /// The credits of that price per unit.
    pub credits_per_unit: Option<i64>,
    /// What was paid, where it was converted.
    pub converted: Option<Converted>,
}

impl GrantLine {
    /// A line of so much of a unit, of no price.
    #[must_use]
    pub fn plain(unit: impl Into<String>, amount: i64) -> Self {
        Self { unit: unit.into(), amount, price: None, credits_per_unit: None, converted: None }
    }
}

/// Where a converted amount comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// Minor units that were paid.
    pub amount: i64,
    /// Their currency.
    pub currency: Currency,
    /// How many of the unit one of that currency is, as a decimal.
    pub rate: String,
    /// The day that the rate is of.
    pub day: Day,
}

/// Money that was paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paid {
    /// Minor units.
    pub amount: i64,
    /// Their currency.
    pub currency: Currency,
    /// When.
    pub at: UnixSeconds,
}

/// What a grant waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The other lines.
    Lines,
    /// The unit amount of a price.
    UnitAmount(PriceId),
    /// A rate of exchange for a currency.
    Rate(Currency),
}

/// Why a grant cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Money was asked for a price that is not listed.
    UnlistedPrice(PriceId),
    /// A proration of a price that has no unit amount.
    PriceWithoutUnitAmount(PriceId),
    /// The numbers are beyond what can be counted.
    TooLarge,
}

/// What a payment grants under `basis = "amount_paid"`. `rates` are those that may count for it, if it is converted.
#[must_use]
pub fn of_payment(paid: Paid, conversion: Option<&Conversion>, rates: &[DayRate]) -> Grant {
    match conversion {
        _ if paid.amount <= 0 => Grant::Nothing("nothing was paid"),
        Some(conversion) if conversion.into != paid.currency => convert(paid, conversion, rates),
        _ => Grant::Lines(vec![GrantLine::plain(paid.currency.to_string(), paid.amount)]),
    }
}

fn convert(paid: Paid, conversion: &Conversion, rates: &[DayRate]) -> Grant {
    let Some(quote) = conversion.quote(paid.currency, paid.at, rates) else {
        return Grant::Needs(Missing::Rate(conversion.missing(paid.currency)));
    };
    match quote.convert(paid.amount) {
        None => Grant::Refused(Refusal::TooLarge),
        Some(0) => Grant::Nothing("what was paid is less than one minor unit when it is converted"),
        Some(amount) => {
            let (rate, day) = (quote.rate(), quote.day);
            let converted = Some(Converted { amount: paid.amount, currency: paid.currency, rate, day });
            Grant::Lines(vec![GrantLine { converted, ..GrantLine::plain(conversion.into.to_string(), amount) }])
        }
    }
}

/// What an invoice grants that was settled at a moment. `rates` are those that may count for it, if it is converted.
#[must_use]
pub fn of_invoice(
    invoice: &Invoice,
    settled_at: UnixSeconds,
    policy: &Policy,
    known: &KnownPrices,
    rates: &[DayRate],
) -> Grant {
    if is_foreign(invoice, policy) {
        return Grant::Foreign;
    }
    match (&policy.credits.basis, &invoice.lines) {
        (Basis::AmountPaid(conversion), _) => {
            let paid = Paid { amount: money_paid(invoice), currency: invoice.currency, at: settled_at };
            of_payment(paid, conversion.as_ref(), rates)
        }
        (Basis::Catalogue, Lines::Truncated) => Grant::Needs(Missing::Lines),
        (Basis::Catalogue, Lines::Complete(lines)) => of_lines(lines, policy, known),
    }
}

/// It sells only what belongs to another product on the same Stripe account.
#[must_use]
pub fn is_foreign(invoice: &Invoice, policy: &Policy) -> bool {
    let Lines::Complete(lines) = &invoice.lines else { return false };
    let mut rules =
        lines.iter().filter_map(|line| line.price.as_ref()).map(|price| policy.catalogue.rule(price)).peekable();
    rules.peek().is_some() && rules.all(|rule| rule.is_some_and(|rule| rule.foreign))
}

/// The money that was paid for an invoice: before basil, what was paid outside of Stripe is not in `amount_paid`.
#[must_use]
pub fn money_paid(invoice: &Invoice) -> i64 {
    if invoice.paid_out_of_band && invoice.amount_paid == 0 { invoice.amount_due } else { invoice.amount_paid }
}

/// When an invoice was settled, as far as its event tells.
#[must_use]
pub fn settled_at(event: &Event, invoice: &Invoice) -> UnixSeconds {
    invoice.paid_at.unwrap_or(event.created)
}

/// What one listed price grants when it is sold `quantity` times outside of a subscription, as a checkout without an
/// invoice does.
#[must_use]
pub fn of_sale(price: &PriceId, quantity: i64, policy: &Policy) -> Grant {
    let named = PriceRef { id: price.clone(), product: None, lookup_key: None };
    let Some(rule) = policy.catalogue.rule(&named) else {
        return if policy.credits.unlisted_price_fails {
            Grant::Refused(Refusal::UnlistedPrice(price.clone()))
        } else {
            Grant::Nothing("the price is not listed")
        };
    };
    if rule.foreign {
        return Grant::Foreign;
    }
    if rule.tier.is_some() {
        return Grant::Nothing("a price with a tier grants only on a subscription");
    }
    let mut sums = Sums::default();
    match sums.add_whole(price, rule, quantity) {
        Ok(()) => sums.into_grant(),
        Err(refusal) => Grant::Refused(refusal),
    }
}

/// What lines grant under `basis = "catalogue"`.
#[must_use]
pub fn of_lines(lines: &[Line], policy: &Policy, known: &KnownPrices) -> Grant {
    let mut sums = Sums::default();
    let mut missing = None;
    let mut foreign = 0_usize;
    let mut ours = 0_usize;
    for line in lines {
        let Some(price) = &line.price else { continue };
        let Some(rule) = policy.catalogue.rule(price) else {
            if line.amount > 0 && policy.credits.unlisted_price_fails {
                return Grant::Refused(Refusal::UnlistedPrice(price.id.clone()));
            }
            continue;
        };
        if rule.foreign {
            foreign += 1;
            continue;
        }
        ours += 1;
        match count(line, price, rule, &policy.credits, known, &mut sums) {
            Ok(()) => {}
            // What nobody can cure by waiting is told first, whatever the order of the lines.
            Err(Obstacle::Refused(refusal)) => return Grant::Refused(refusal),
            Err(Obstacle::Missing(price)) => missing = missing.or(Some(price)),
        }
    }
    match missing {
        Some(price) => Grant::Needs(Missing::UnitAmount(price)),
        None if ours == 0 && foreign > 0 => Grant::Foreign,
        None => sums.into_grant(),
    }
}

enum Obstacle {
    Missing(PriceId),
    Refused(Refusal),
}

/// Adds what one line of a listed price gives.
fn count(
    line: &Line,
    price: &PriceRef,
    rule: &PriceRule,
    credits: &Credits,
    known: &KnownPrices,
    sums: &mut Sums,
) -> Result<(), Obstacle> {
    if rule.credits == 0 || (rule.tier.is_some() && !line.on_subscription) {
        return Ok(());
    }
    if !line.proration {
        let sold = line.amount > 0 || costs_nothing(line, rule);
        return if sold {
            sums.add_whole(&price.id, rule, line.quantity.unwrap_or(1)).map_err(Obstacle::Refused)
        } else {
            Ok(())
        };
    }
    if !credits.prorate || rule.per_invoice || line.amount == 0 {
        return Ok(());
    }
    match unit_amount(line, price, rule, known) {
        Unit::Costs(unit) if !unit.is_zero() => {
            sums.add_part(&price.id, rule, line.amount, unit).map_err(Obstacle::Refused)
        }
        Unit::Costs(_) | Unit::HasNone => Err(Obstacle::Refused(Refusal::PriceWithoutUnitAmount(price.id.clone()))),
        Unit::Untold => Err(Obstacle::Missing(price.id.clone())),
    }
}

/// The line tells, else the catalogue, else what earlier snapshots told.
fn unit_amount(line: &Line, price: &PriceRef, rule: &PriceRule, known: &KnownPrices) -> Unit {
    match (&line.unit, rule.unit_amount) {
        (Unit::Costs(unit), _) => Unit::Costs(*unit),
        (_, Some(unit)) => Unit::Costs(unit),
        (Unit::HasNone, None) => Unit::HasNone,
        (Unit::Untold, None) => known.get(&(price.id.clone(), line.currency)).cloned().unwrap_or(Unit::Untold),
    }
}

/// Only the line and the catalogue decide, so that it does not matter which snapshots came before.
fn costs_nothing(line: &Line, rule: &PriceRule) -> bool {
    match &line.unit {
        Unit::Costs(unit) => unit.is_zero(),
        Unit::HasNone | Unit::Untold => rule.unit_amount.is_some_and(UnitAmount::is_zero),
    }
}

/// The credits of an invoice, per unit of credits.
#[derive(Default)]
struct Sums {
    units: BTreeMap<String, Sum>,
    once: Vec<PriceId>,
}

#[derive(Default)]
struct Sum {
    whole: i64,
    parts: Fraction,
    prices: BTreeMap<PriceId, i64>,
}

impl Sums {
    fn add_whole(&mut self, price: &PriceId, rule: &PriceRule, quantity: i64) -> Result<(), Refusal> {
        let times = if rule.per_invoice {
            if self.once.contains(price) {
                return Ok(());
            }
            self.once.push(price.clone());
            1
        } else {
            quantity.max(0)
        };
        let sum = self.sum(price, rule);
        let credits = rule.credits.checked_mul(times).ok_or(Refusal::TooLarge)?;
        sum.whole = sum.whole.checked_add(credits).ok_or(Refusal::TooLarge)?;
        Ok(())
    }

    fn add_part(&mut self, price: &PriceId, rule: &PriceRule, amount: i64, unit: UnitAmount) -> Result<(), Refusal> {
        let part = Fraction::new(i128::from(rule.credits), i128::from(amount), unit).ok_or(Refusal::TooLarge)?;
        let sum = self.sum(price, rule);
        sum.parts = sum.parts.plus(part).ok_or(Refusal::TooLarge)?;
        Ok(())
    }

    fn sum(&mut self, price: &PriceId, rule: &PriceRule) -> &mut Sum {
        let sum = self.units.entry(rule.unit.clone()).or_default();
        sum.prices.entry(price.clone()).or_insert(rule.credits);
        sum
    }

    fn into_grant(self) -> Grant {
        let mut lines = Vec::new();
        for (unit, sum) in self.units {
            let Some(amount) = sum.total() else { return Grant::Refused(Refusal::TooLarge) };
            if amount > 0 {
                let mut prices = sum.prices.into_iter();
                let only = prices.next().filter(|_| prices.next().is_none());
                lines.push(GrantLine {
                    unit,
                    amount,
                    credits_per_unit: only.as_ref().map(|(_, credits)| *credits),
                    price: only.map(|(price, _)| price),
                    converted: None,
                });
            }
        }
        if lines.is_empty() { Grant::Nothing("no line grants credits") } else { Grant::Lines(lines) }
    }
}

impl Sum {
    /// The net of all prorations is rounded down once and never below 0; the rest counts on its own.
    fn total(&self) -> Option<i64> {
        self.whole.checked_add(i64::try_from(self.parts.floor().max(0)).ok()?)
    }
}

/// An exact sum of parts; the denominator is more than 0.
#[derive(Debug, Clone, Copy)]
struct Fraction {
    numerator: i128,
    denominator: i128,
}

impl Default for Fraction {
    fn default() -> Self {
        Self { numerator: 0, denominator: 1 }
    }
}

impl Fraction {
    /// `credits × amount / unit`; `None` beyond 128 bits.
    fn new(credits: i128, amount: i128, unit: UnitAmount) -> Option<Self> {
        let denominator = unit.trillionths();
        let common = gcd(UnitAmount::SCALE, denominator);
        let numerator = credits.checked_mul(amount)?.checked_mul(UnitAmount::SCALE / common)?;
        Some(Self { numerator, denominator: denominator / common }.reduced())
    }

    fn plus(self, other: Self) -> Option<Self> {
        let common = gcd(self.denominator, other.denominator);
        let left = self.numerator.checked_mul(other.denominator / common)?;
        let right = other.numerator.checked_mul(self.denominator / common)?;
        let denominator = self.denominator.checked_mul(other.denominator / common)?;
        Some(Self { numerator: left.checked_add(right)?, denominator }.reduced())
    }

    fn reduced(self) -> Self {
        let common = gcd(self.numerator, self.denominator).max(1);
        Self { numerator: self.numerator / common, denominator: self.denominator / common }
    }

    fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }
}

fn gcd(left: i128, right: i128) -> i128 {
    let (mut left, mut right) = (left.abs(), right.abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests;
