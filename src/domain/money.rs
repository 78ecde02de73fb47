//! Amounts and currencies.
//!
//! Money is a signed integer of Stripe's minor units, always beside its currency; two currencies are never added, and
//! nothing is ever a float. Exponents follow Stripe's list of currencies, which differs from ISO 4217.

use std::fmt;

/// A currency as Stripe writes it: three lower-case ASCII letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

/// A text that is no currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotACurrency;

impl fmt::Display for NotACurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a currency: must be three letters, such as usd")
    }
}

impl std::error::Error for NotACurrency {}

impl Currency {
    /// Reads three ASCII letters of either case.
    ///
    /// # Errors
    /// [`NotACurrency`] for everything else.
    pub fn parse(text: &str) -> Result<Self, NotACurrency> {
        match text.as_bytes() {
            &[a, b, c] if [a, b, c].iter().all(u8::is_ascii_alphabetic) => {
                Ok(Self([a, b, c].map(|letter| letter.to_ascii_lowercase())))
            }
            _ => Err(NotACurrency),
        }
    }

    /// The lower-case code.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Three ASCII letters by construction.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// How many decimals Stripe's minor unit has. ISK and UGX count in hundredths although they have no coins for
    /// them; the three-decimal currencies count in thousandths.
    #[must_use]
    pub fn exponent(&self) -> u32 {
        match self.as_str() {
            "bif" | "clp" | "djf" | "gnf" | "jpy" | "kmf" | "krw" | "mga" | "pyg" | "rwf" | "vnd" | "vuv" | "xaf"
            | "xof" | "xpf" => 0,
            "bhd" | "jod" | "kwd" | "omr" | "tnd" => 3,
            _ => 2,
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Money for people: `20.00 USD`, `500 JPY`, `5.120 KWD`.
#[must_use]
pub fn show(amount: i64, currency: Currency) -> String {
    let code = currency.as_str().to_ascii_uppercase();
    let decimals = currency.exponent();
    if decimals == 0 {
        return format!("{amount} {code}");
    }
    let scale = 10_u64.pow(decimals);
    let sign = if amount < 0 { "-" } else { "" };
    let (whole, rest) = (amount.unsigned_abs() / scale, amount.unsigned_abs() % scale);
    format!("{sign}{whole}.{rest:0width$} {code}", width = decimals as usize)
}

/// The full price of one unit, in minor units with up to twelve decimals, as Stripe's `unit_amount_decimal` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitAmount {
    /// Trillionths of a minor unit; never negative.
    trillionths: i128,
}

/// A text that is no unit amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAUnitAmount;

impl fmt::Display for NotAUnitAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a unit amount: must be minor units from 0 on, with at most twelve decimals")
    }
}

impl std::error::Error for NotAUnitAmount {}

impl UnitAmount {
    /// How many [`UnitAmount::trillionths`] are one minor unit.
    pub const SCALE: i128 = 1_000_000_000_000;
    const DECIMALS_MAX: usize = 12;

    /// Whole minor units, from 0 on.
    ///
    /// # Errors
    /// [`NotAUnitAmount`] for a negative amount.
    pub fn whole(minor_units: i64) -> Result<Self, NotAUnitAmount> {
        if minor_units < 0 {
            return Err(NotAUnitAmount);
        }
        Ok(Self { trillionths: i128::from(minor_units) * Self::SCALE })
    }

    /// Reads `20`, `0.5`, `1999.000000000001`: digits, and at most twelve decimals.
    ///
    /// # Errors
    /// [`NotAUnitAmount`] for a sign, an exponent, white space, more decimals, or more than an `i64` before the point.
    pub fn parse(text: &str) -> Result<Self, NotAUnitAmount> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > Self::DECIMALS_MAX {
            return Err(NotAUnitAmount);
        }
        let whole: i64 = whole.parse().map_err(|_| NotAUnitAmount)?;
        let decimals: i128 =
            format!("{decimals:0<width$}", width = Self::DECIMALS_MAX).parse().map_err(|_| NotAUnitAmount)?;
        Ok(Self { trillionths: i128::from(whole) * Self::SCALE + decimals })
    }

    /// The exact value in trillionths of a minor unit.
    #[must_use]
    pub fn trillionths(self) -> i128 {
        self.trillionths
    }

    /// It costs nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.trillionths == 0
    }
}

impl fmt::Display for UnitAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.trillionths / Self::SCALE, self.trillionths % Self::SCALE);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:0width$}", width = Self::DECIMALS_MAX);
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn currency(code: &str) -> Currency {
        Currency::parse(code).expect("a currency")
    }

    #[test]
    fn money_is_shown_with_stripes_decimals() {
        let rows = [
            (2000, "usd", "20.00 USD"),
            (500, "jpy", "500 JPY"),
            (5120, "kwd", "5.120 KWD"),
            (500, "isk", "5.00 ISK"),
            (500, "ugx", "5.00 UGX"),
            (-5, "eur", "-0.05 EUR"),
            (0, "eur", "0.00 EUR"),
            (i64::MIN, "usd", "-92233720368547758.08 USD"),
            (2_999_999_999_997, "idr", "29999999999.97 IDR"),
        ];
        for (amount, code, shown) in rows {
            assert_eq!(show(amount, currency(code)), shown);
        }
    }

    #[test]
    fn a_currency_is_three_letters() {
        assert_eq!(currency("USD").as_str(), "usd");
        for odd in ["", "us", "usdt", "u5d", "€uro"] {
            assert_eq!(Currency::parse(odd), Err(NotACurrency), "{odd:?}");
        }
        assert!(NotACurrency.to_string().contains("three letters"));
        assert!(NotAUnitAmount.to_string().contains("from 0 on"));
    }

    #[test]
    fn unit_amounts_are_exact() {
        for text in ["0", "20", "0.5", "1999.000000000001", "9223372036854775807.999999999999"] {
            assert_eq!(UnitAmount::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(UnitAmount::parse("20.50"), UnitAmount::parse("20.5"));
        assert_eq!(UnitAmount::whole(20), UnitAmount::parse("20"));
        assert_eq!(UnitAmount::whole(0), UnitAmount::parse("0"));
        assert_eq!(UnitAmount::whole(-1), Err(NotAUnitAmount));
        for odd in ["", ".", "1.", ".5", "-1", "+1", "1e3", " 1", "1.0000000000001", "9223372036854775808"] {
            assert_eq!(UnitAmount::parse(odd), Err(NotAUnitAmount), "{odd:?}");
        }
    }
}
