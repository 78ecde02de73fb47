//! How values look to people, at every door.

use bytesize::ByteSize;
use jiff::Timestamp;

use crate::domain::event::UnixSeconds;
use crate::domain::money::{self, Currency};

/// An amount of a unit: money with its decimals, credits as they are.
#[must_use]
pub fn amount(amount: i64, unit: &str) -> String {
    match Currency::parse(unit) {
        Ok(currency) if unit == currency.as_str() => money::show(amount, currency),
        _ => format!("{amount} {unit}"),
    }
}

/// A time, in UTC.
#[must_use]
pub fn time(at: UnixSeconds) -> String {
    Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// A size.
#[must_use]
pub fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// A text from outside, without what could steer a terminal or vanish on a page.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_money_have_decimals_and_credits_have_none() {
        for (sum, unit, shown) in [(2000, "usd", "20.00 USD"), (5, "credits", "5 credits"), (5, "USD", "5 USD")] {
            assert_eq!(amount(sum, unit), shown);
        }
    }

    #[test]
    fn what_steers_a_terminal_is_replaced() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(time(1_790_000_000), "2026-09-21 14:13:20");
        assert_eq!(time(i64::MAX), i64::MAX.to_string());
    }
}
