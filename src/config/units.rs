//! Values that TOML has no type for: durations, sizes, shares, moments, schedules and closed sets of words.
//!
//! Each is read once into a type that cannot hold a wrong value. Their errors say what to write instead.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};
use tokio_cron_scheduler::Job;
use tokio_cron_scheduler::job::job_data::JobAndNextTick;

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write a number with a unit (ms, s, m, h or d), such as \"90s\", \"15m\" or \"3d\"")]
pub struct NotADuration(String);

/// Reads a duration such as `15m`, `3d` or `1h30m`.
///
/// # Errors
/// [`NotADuration`] for everything else.
pub fn parse_duration(text: &str) -> Result<Duration, NotADuration> {
    milliseconds(text.trim()).map(Duration::from_millis).ok_or_else(|| NotADuration(text.to_owned()))
}

fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: Option<u64> = None;
    while !rest.is_empty() {
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit())?];
        rest = &rest[number.len()..];
        let unit = &rest[..rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len())];
        rest = &rest[unit.len()..];
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = number.parse::<u64>().ok()?.checked_mul(*factor)?;
        total = Some(total.unwrap_or(0).checked_add(part)?);
    }
    total
}

/// Writes a duration in the largest unit that is exact, as [`parse_duration`] reads it.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let total = duration.as_millis();
    if total == 0 {
        return "0s".to_owned();
    }
    let (unit, factor) =
        UNITS.iter().find(|(_, factor)| total.is_multiple_of(u128::from(*factor))).unwrap_or(&UNITS[4]);
    format!("{}{unit}", total / u128::from(*factor))
}

/// Writes a size in the largest unit that is exact.
pub(super) fn format_size(size: bytesize::ByteSize) -> String {
    let bytes = size.as_u64();
    let (unit, factor) = [("GiB", bytesize::GIB), ("MiB", bytesize::MIB), ("KiB", bytesize::KIB)]
        .into_iter()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .unwrap_or(("B", 1));
    format!("{} {unit}", bytes / factor)
}

/// A share from 0 to 1, exact to a millionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// The share in millionths, from 0 to 1 000 000.
    #[must_use]
    pub fn millionths(self) -> u32 {
        self.0
    }

    fn parse(decimal: &str) -> Option<Self> {
        let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
        let digits = format!("{whole}{fraction:0<6}");
        let millionths = digits.parse().ok()?;
        (!whole.is_empty()
            && fraction.len() <= 6
            && digits.bytes().all(|digit| digit.is_ascii_digit())
            && millionths <= 1_000_000)
            .then_some(Self(millionths))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:06}", self.0 % 1_000_000);
        let fraction = fraction.trim_end_matches('0');
        write!(f, "{}.{}", self.0 / 1_000_000, if fraction.is_empty() { "0" } else { fraction })
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let decimal = f64::deserialize(deserializer)?.to_string();
        Self::parse(&decimal)
            .ok_or_else(|| D::Error::custom(format!("{decimal} is no share; write a number from 0 to 1, such as 0.99")))
    }
}

/// A cron expression that the scheduler accepts: six fields, the first of them seconds, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(String);

impl Schedule {
    /// Reads an expression with the parser of the scheduler itself, so that what is accepted here will run.
    ///
    /// # Errors
    /// A text for the operator if it has not six fields, does not parse, or names a moment that never comes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let advice = "write second minute hour day month weekday, such as \"0 30 3 * * *\", or \"\" for never";
        if text.split_whitespace().count() != 6 {
            return Err(format!("`{text}` is no schedule of six fields; {advice}"));
        }
        let mut job = Job::new(text, |_, _| {})
            .map_err(|_| format!("`{text}` is no schedule that the scheduler understands; {advice}"))?;
        match job.job_data() {
            Ok(data) if data.next_tick == 0 => Err(format!("`{text}` never comes; {advice}")),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// The last moment up to `now` at which it came, in Unix seconds, as the scheduler's own calendar has it.
    #[must_use]
    pub fn last_due(&self, now: i64) -> Option<i64> {
        let now = JobAndNextTick::utc(u64::try_from(now).ok()?);
        let calendar = Job::new(&self.0, |_, _| {}).and_then(|mut job| job.job_data()).ok()?.schedule()?;
        calendar.find_previous_occurrence(&now, true).ok().map(|time| time.timestamp())
    }

    /// The first moment after `now` at which it comes, in Unix seconds.
    #[must_use]
    pub fn next_due(&self, now: i64) -> Option<i64> {
        let now = JobAndNextTick::utc(u64::try_from(now).ok()?);
        let calendar = Job::new(&self.0, |_, _| {}).and_then(|mut job| job.job_data()).ok()?.schedule()?;
        calendar.find_next_occurrence(&now, false).ok().map(|time| time.timestamp())
    }

    /// The expression.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A size limit in bytes.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bytesize::ByteSize, D::Error> {
    read(deserializer, |text| {
        text.parse().map_err(|_| format!("`{text}` is not a size; write a number with a unit, such as \"1 MiB\""))
    })
}

pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    read(deserializer, |text| parse_duration(text).map_err(|error| error.to_string()))
}

/// An address to listen on.
pub(super) fn listener<'de, D: Deserializer<'de>>(deserializer: D) -> Result<std::net::SocketAddr, D::Error> {
    read(deserializer, |text| {
        from_str(text, "an IP address with a port; write one such as \"127.0.0.1:8787\" or \"[::1]:8787\"")
    })
}

pub(super) fn ip_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<std::net::IpAddr>, D::Error> {
    Vec::<String>::deserialize(deserializer)?
        .iter()
        .map(|text| from_str(text, "an IP address; write one such as \"127.0.0.1\" (no names, no networks)"))
        .collect::<Result<_, String>>()
        .map_err(D::Error::custom)
}

/// `""` is no schedule at all.
pub(super) fn schedule<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Schedule>, D::Error> {
    read(deserializer, |text| match text.trim() {
        "" => Ok(None),
        text => Schedule::parse(text).map(Some),
    })
}

/// Unix seconds of a date (00:00 UTC) or an RFC 3339 time; `""` is none.
pub(super) fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    read(deserializer, |text| {
        if text.is_empty() {
            return Ok(None);
        }
        let seconds = date(text).or_else(|| jiff::Timestamp::from_str(text).ok()).map(jiff::Timestamp::as_second);
        let advice = "write a date such as \"2026-01-31\" or a time such as \"2026-01-31T12:00:00Z\"";
        seconds.map(Some).ok_or_else(|| format!("`{text}` is neither a date nor an RFC 3339 time; {advice}"))
    })
}

fn date(text: &str) -> Option<jiff::Timestamp> {
    let date = (text.len() == 10).then(|| jiff::civil::Date::from_str(text).ok())??;
    jiff::tz::TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()
}

/// A currency code in lower case.
pub(super) fn currency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    read(deserializer, currency_code)
}

/// `""` is no currency at all.
pub(super) fn optional_currency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    read(deserializer, |text| if text.is_empty() { Ok(None) } else { currency_code(text).map(Some) })
}

fn currency_code(text: &str) -> Result<String, String> {
    if text.len() == 3 && text.bytes().all(|letter| letter.is_ascii_alphabetic()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!("`{text}` is no currency; write its three letters, such as \"usd\""))
    }
}

/// `""` is no connected account.
pub(super) fn connected_account<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    read(deserializer, |text| match text.strip_prefix("acct_") {
        _ if text.is_empty() => Ok(None),
        Some(rest) if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            Ok(Some(text.to_owned()))
        }
        _ => {
            Err(format!("`{text}` is no connected account; write its id (\"acct_...\"), or \"\" for your own account"))
        }
    })
}

/// `""` is no path at all.
pub(super) fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    read(deserializer, |text| Ok(if text.is_empty() { None } else { Some(PathBuf::from(text)) }))
}

/// A count that is not negative.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = i64::deserialize(deserializer)?;
    u32::try_from(number)
        .map_err(|_| D::Error::custom(format!("{number} is out of range; write a whole number from 0 to {}", u32::MAX)))
}

fn from_str<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

fn read<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Declares an enum that is written in TOML as one of a few words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word that stands for it in the configuration.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = String::deserialize(deserializer)?;
                match word.as_str() {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(serde::de::Error::unknown_variant(&word, Self::WORDS)),
                }
            }
        }
    };
}
pub(super) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        let rows = [
            ("0s", 0, "0s"),
            ("500ms", 500, "500ms"),
            ("10s", 10_000, "10s"),
            ("90s", 90_000, "90s"),
            ("15m", 900_000, "15m"),
            ("24h", 86_400_000, "1d"),
            ("1h30m", 5_400_000, "90m"),
            (" 3d ", 259_200_000, "3d"),
        ];
        for (text, milliseconds, written) in rows {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(format_duration(duration), written);
            assert_eq!(parse_duration(written), Ok(duration));
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "5", "m", "-5m", "5 m", "5M", "1.5h", "5w", "5min", "99999999999999999999d", "300000000000000d"]
        {
            let error = parse_duration(text).unwrap_err();
            assert!(error.to_string().contains("\"15m\""), "{error}");
        }
    }

    #[test]
    fn sizes_are_written_exactly() {
        for text in ["0 B", "1500 B", "1 KiB", "1 MiB", "1025 KiB", "2 GiB"] {
            assert_eq!(format_size(text.parse().unwrap()), text);
        }
    }

    #[test]
    fn shares_are_exact_without_float_arithmetic() {
        for (decimal, millionths, written) in
            [("0", 0, "0.0"), ("1", 1_000_000, "1.0"), ("0.99", 990_000, "0.99"), ("0.000001", 1, "0.000001")]
        {
            let share = Share::parse(decimal).unwrap();
            assert_eq!((share.millionths(), share.to_string().as_str()), (millionths, written));
        }
        for decimal in ["1.000001", "-0.5", "0.1234567", "NaN", "inf", "", "+1", "2"] {
            assert_eq!(Share::parse(decimal), None, "{decimal}");
        }
    }

    #[test]
    fn a_schedule_knows_when_it_came_last() {
        // 2026-11-30 is a Monday.
        for (schedule, now, due) in [
            ("0 30 3 * * *", "2026-11-30T03:30:00Z", "2026-11-30T03:30:00Z"),
            ("0 30 3 * * *", "2026-11-30T03:29:59Z", "2026-11-29T03:30:00Z"),
            ("0 */15 * * * *", "2026-11-30T12:44:01Z", "2026-11-30T12:30:00Z"),
            ("0 0 4 * * SUN", "2026-11-30T12:00:00Z", "2026-11-29T04:00:00Z"),
            ("0 0 0 29 2 *", "2026-11-30T12:00:00Z", "2024-02-29T00:00:00Z"),
        ] {
            let [now, due] = [now, due].map(|time| time.parse::<jiff::Timestamp>().unwrap().as_second());
            assert_eq!(Schedule::parse(schedule).unwrap().last_due(now), Some(due), "{schedule}");
        }
    }

    #[test]
    fn schedules_are_what_the_scheduler_runs() {
        for text in ["0 */15 * * * *", "0 30 3 * * *", "30 0 12 1,15 * MON-FRI"] {
            assert_eq!(Schedule::parse(text).unwrap().as_str(), text);
        }
        for text in ["*/15 * * * *", "61 * * * * *", "0 0 0 30 2 *", "daily", "0 0 0 1 1 * 2020", "@daily"] {
            let error = Schedule::parse(text).unwrap_err();
            assert!(error.contains(text) && error.contains("0 30 3 * * *"), "{error}");
        }
    }
}
