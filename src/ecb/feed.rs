//! The file of rates: one `Cube` for each day, and in it one for each currency. The daily file has one day, the one of
//! 90 days is of the same form.

use std::str::FromStr as _;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use thiserror::Error;

use crate::domain::event::UnixSeconds;
use crate::domain::exchange::{Day, DayRate, NotARate, Rate, day_of};
use crate::domain::money::Currency;

/// No file is read that is larger: the one of 90 days has an eighth of it.
pub const BYTES_MAX: u64 = 1 << 20;

/// No more of a bad value is told.
const TOLD_MAX: usize = 40;

/// Why a file is none of rates.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FeedError {
    /// More than [`BYTES_MAX`].
    #[error("more than {} KiB; the file of the last 90 days has less", BYTES_MAX >> 10)]
    TooLarge,
    /// Other bytes than UTF-8.
    #[error("no text in UTF-8")]
    NotText,
    /// Broken XML.
    #[error("broken XML near byte {at}: {problem}")]
    Broken {
        /// Where.
        at: u64,
        /// What.
        problem: String,
    },
    /// XML, or no XML, without any rate.
    #[error("no rates in it; it should have <Cube time=\"…\"> with <Cube currency=\"…\" rate=\"…\"/> inside")]
    Empty,
    /// A `time` that is no day.
    #[error("{0:?} is no day; it should be like 2026-11-27")]
    NoDay(String),
    /// A `currency` that is none.
    #[error("{0:?} is no currency; it should be three letters")]
    NoCurrency(String),
    /// A currency without a rate, or without a day around it.
    #[error("{0} has no {1}")]
    Lacks(Currency, &'static str),
    /// A `rate` that is none.
    #[error("the rate {text:?} of {currency} is {problem}")]
    NoRate {
        /// Whose.
        currency: Currency,
        /// As told.
        text: String,
        /// What is wrong.
        problem: NotARate,
    },
}

/// Reads all rates of a file, in its order; at least one.
///
/// # Errors
/// [`FeedError`] for the first thing that is wrong: then none of it should be used.
pub fn parse(bytes: &[u8]) -> Result<Vec<DayRate>, FeedError> {
    if u64::try_from(bytes.len()).is_ok_and(|bytes| bytes > BYTES_MAX) {
        return Err(FeedError::TooLarge);
    }
    let mut reader = Reader::from_str(std::str::from_utf8(bytes).map_err(|_| FeedError::NotText)?);
    let (mut rates, mut day, mut open) = (Vec::new(), None, 0_usize);
    loop {
        let event = reader
            .read_event()
            .map_err(|error| FeedError::Broken { at: reader.error_position(), problem: error.to_string() })?;
        match event {
            Event::Start(tag) => {
                open += 1;
                rates.extend(cube(&tag, &mut day)?);
            }
            Event::Empty(tag) => rates.extend(cube(&tag, &mut day)?),
            Event::End(_) => open -= 1,
            Event::Eof if open > 0 => {
                return Err(FeedError::Broken {
                    at: reader.buffer_position(),
                    problem: "it ends in the middle".into(),
                });
            }
            Event::Eof if rates.is_empty() => return Err(FeedError::Empty),
            Event::Eof => return Ok(rates),
            _ => {}
        }
    }
}

/// The rate that a `Cube` tells, if it is one of a rate; one of a day sets the day of those that follow.
fn cube(tag: &BytesStart<'_>, day: &mut Option<Day>) -> Result<Option<DayRate>, FeedError> {
    if tag.local_name().as_ref() != b"Cube" {
        return Ok(None);
    }
    if let Some(time) = attribute(tag, "time") {
        *day = Some(day_from(&time).ok_or_else(|| FeedError::NoDay(short(&time)))?);
    }
    let Some(currency) = attribute(tag, "currency") else { return Ok(None) };
    let currency = Currency::parse(&currency).map_err(|_| FeedError::NoCurrency(short(&currency)))?;
    let day = day.ok_or(FeedError::Lacks(currency, "day"))?;
    let text = attribute(tag, "rate").ok_or(FeedError::Lacks(currency, "rate"))?;
    let rate = Rate::parse(&text).map_err(|problem| FeedError::NoRate { currency, text: short(&text), problem })?;
    Ok(Some(DayRate { day, currency, rate }))
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = tag.try_get_attribute(name).ok().flatten()?;
    Some(String::from_utf8_lossy(&attribute.value).into_owned())
}

fn day_from(text: &str) -> Option<Day> {
    let date = (text.len() == 10).then(|| Date::from_str(text).ok())??;
    let midnight: UnixSeconds = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_second();
    Some(day_of(midnight))
}

fn short(text: &str) -> String {
    text.chars().take(TOLD_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAILY: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
	<gesmes:subject>Reference rates</gesmes:subject>
	<gesmes:Sender>
		<gesmes:name>European Central Bank</gesmes:name>
	</gesmes:Sender>
	<Cube>
		<Cube time='2026-11-27'>
			<Cube currency='USD' rate='1.0876'/>
			<Cube currency='JPY' rate='163.25'/>
			<Cube currency='XYZ' rate='17000'/>
		</Cube>
	</Cube>
</gesmes:Envelope>"#;

    fn told(text: &str) -> Vec<String> {
        let rates = parse(text.as_bytes()).expect("rates");
        rates.iter().map(|one| format!("{} {} {}", one.day, one.currency, one.rate)).collect()
    }

    #[test]
    fn one_day_or_several() {
        assert_eq!(told(DAILY), ["20784 usd 1.0876", "20784 jpy 163.25", "20784 xyz 17000"]);
        let history = "<e><Cube><Cube time='1970-01-02'><Cube currency='usd' rate='1.10'></Cube></Cube>\
                       <Cube time=\"1970-01-01\"><Cube rate=\"0.9\" currency=\"usd\"/></Cube></Cube></e>";
        assert_eq!(told(history), ["1 usd 1.1", "0 usd 0.9"]);
    }

    #[test]
    fn what_is_no_file_of_rates_is_refused() {
        let usd = |rate: &str| format!("<Cube time='2026-11-27'><Cube currency='USD' rate='{rate}'/></Cube>");
        for (text, problem) in [
            ("", "no rates in it"),
            ("<html><p>Moved</p></html>", "no rates in it"),
            ("<Cube><Cube time='2026-11-27'></Cube></Cube>", "no rates in it"),
            ("{\"usd\": 1.1}", "no rates in it"),
            (&DAILY[..DAILY.len() - 20], "broken XML near byte"),
            (&DAILY[..DAILY.len() - 60], "broken XML near byte"),
            (&DAILY.replacen("</Cube>", "</Cubes>", 1), "broken XML near byte"),
            (&DAILY.replace("2026-11-27", "2026-02-30"), "\"2026-02-30\" is no day"),
            (&DAILY.replace("2026-11-27", "27.11.2026"), "\"27.11.2026\" is no day"),
            (&DAILY.replace("time=", "date="), "usd has no day"),
            (&DAILY.replace("rate='163.25'", ""), "jpy has no rate"),
            (&DAILY.replace("USD", "US$"), "\"US$\" is no currency"),
            (&usd("0"), "the rate \"0\" of usd is not a rate"),
            (&usd("-1.1"), "the rate \"-1.1\" of usd"),
            (&usd("1,1"), "the rate \"1,1\" of usd"),
            (&usd(&"9".repeat(99)), "of usd is not a rate"),
        ] {
            let error = parse(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
            assert!(error.len() < 200, "{error}");
        }
        assert_eq!(parse(b"<Cube \xff/>"), Err(FeedError::NotText));
        assert_eq!(parse(&vec![b' '; (1 << 20) + 1]), Err(FeedError::TooLarge));
    }
}
