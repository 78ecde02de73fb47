//! Money of one currency in another one, by rates against a base. All of it is exact until the one rounding at the end.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use crate::domain::event::UnixSeconds;
use crate::domain::money::Currency;

/// A day in UTC, as days since the Unix epoch.
pub type Day = i64;

/// The day of a moment.
#[must_use]
pub fn day_of(at: UnixSeconds) -> Day {
    at.div_euclid(86_400)
}

/// How many of a currency one of the base is. More than 0, and exact: `digits ÷ 10^decimals`, without trailing zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    digits: i64,
    decimals: u32,
}

/// A text that is no rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotARate;

impl fmt::Display for NotARate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a rate: must be more than 0, with at most nine digits before and nine after the point")
    }
}

impl std::error::Error for NotARate {}

impl Rate {
    /// The rate of the base itself.
    const ONE: Self = Self { digits: 1, decimals: 0 };
    /// Before the point, and after it: so that a quotient of two rates stays far within 128 bits.
    const DIGITS_MAX: usize = 9;

    /// Reads `1.0876` or `163`.
    ///
    /// # Errors
    /// [`NotARate`] for 0, a sign, an exponent, white space, or more digits than [`NotARate`] tells.
    pub fn parse(text: &str) -> Result<Self, NotARate> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number =
            |part: &str| (1..=Self::DIGITS_MAX).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) {
            return Err(NotARate);
        }
        let decimals = decimals.trim_end_matches('0');
        let digits = format!("{whole}{decimals}").parse().map_err(|_| NotARate)?;
        if digits == 0 {
            return Err(NotARate);
        }
        Ok(Self { digits, decimals: u32::try_from(decimals.len()).map_err(|_| NotARate)? })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal(i128::from(self.digits), self.decimals))
    }
}

/// What one of the base was on a day, in one currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayRate {
    /// The day that the rate is of.
    pub day: Day,
    /// The currency.
    pub currency: Currency,
    /// How many of it one of the base is.
    pub rate: Rate,
}

/// How payments are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// The currency of what is granted.
    pub into: Currency,
    /// The currency that the rates are told in.
    pub base: Currency,
    /// How many days a rate may be older than the payment; from 0 on.
    pub max_age_days: i64,
}

impl Conversion {
    /// The days whose rates may count for what was paid at a moment.
    #[must_use]
    pub fn days(&self, paid_at: UnixSeconds) -> RangeInclusive<Day> {
        let day = day_of(paid_at);
        day.saturating_sub(self.max_age_days)..=day
    }

    /// The rates that count: those of the last day before the payment's that has both of them, else those of that day
    /// itself. So it does not matter whether a payment of the morning is run before or after the rates of its day are
    /// told in the afternoon. `None`: there are none that are new enough.
    #[must_use]
    pub fn quote(&self, from: Currency, paid_at: UnixSeconds, known: &[DayRate]) -> Option<Quote> {
        let (today, days) = (day_of(paid_at), self.days(paid_at));
        let told: BTreeSet<Day> = known.iter().map(|rate| rate.day).filter(|day| days.contains(day)).collect();
        let rate = |day, currency| match known.iter().find(|rate| rate.day == day && rate.currency == currency) {
            _ if currency == self.base => Some(Rate::ONE),
            told => told.map(|told| told.rate),
        };
        let quote = |day| Some(Quote { day, from: (from, rate(day, from)?), into: (self.into, rate(day, self.into)?) });
        told.range(..today).rev().copied().find_map(quote).or_else(|| quote(today))
    }

    /// The currency whose rate an event waits for.
    #[must_use]
    pub fn missing(&self, from: Currency) -> Currency {
        if from == self.base { self.into } else { from }
    }
}

/// Two currencies and their rates of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// The day of the rates.
    pub day: Day,
    from: (Currency, Rate),
    into: (Currency, Rate),
}

impl Quote {
    /// Minor units of the one currency in minor units of the other, rounded down. `None`: more than can be counted.
    #[must_use]
    pub fn convert(&self, amount: i64) -> Option<i64> {
        let ((from, _), (into, _)) = (self.from, self.into);
        let (numerator, denominator) = self.ratio();
        let numerator = numerator * 10_i128.pow(into.exponent());
        let denominator = denominator * 10_i128.pow(from.exponent());
        i64::try_from(i128::from(amount).checked_mul(numerator)?.div_euclid(denominator)).ok()
    }

    /// How many of the one currency one of the other is, as a decimal. Where it has no end, it is rounded up in the 18th
    /// decimal: then `original amount × rate`, rounded down, is still the amount that was granted.
    #[must_use]
    pub fn rate(&self) -> String {
        const DECIMALS: u32 = 18;
        let (numerator, denominator) = self.ratio();
        let (mut digits, mut rest) = (numerator / denominator, numerator % denominator);
        for _ in 0..DECIMALS {
            digits = digits * 10 + rest * 10 / denominator;
            rest = rest * 10 % denominator;
        }
        decimal(digits + i128::from(rest > 0), DECIMALS)
    }

    /// Neither number has more than 27 digits, and the quotient not more than 18 before the point.
    fn ratio(&self) -> (i128, i128) {
        let ((_, from), (_, into)) = (self.from, self.into);
        (i128::from(into.digits) * 10_i128.pow(from.decimals), i128::from(from.digits) * 10_i128.pow(into.decimals))
    }
}

/// `digits ÷ 10^decimals` as text; neither is negative.
fn decimal(digits: i128, decimals: u32) -> String {
    let scale = 10_i128.pow(decimals);
    let (whole, rest) = (digits / scale, digits % scale);
    let text = format!("{whole}.{rest:0width$}", width = decimals as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
