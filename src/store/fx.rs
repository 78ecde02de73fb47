//! Rates of exchange. What was told of a day stays; another rate for the same day is not taken.

use std::ops::RangeInclusive;

use rusqlite::{Connection, Row, named_params};
use serde::Serialize;

use crate::domain::exchange::{Day, DayRate, Rate};
use crate::domain::money::Currency;
use crate::store::StoreError;

/// What became of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is kept from now on.
    New,
    /// It was kept before.
    Known,
    /// This other one was kept before, and stays.
    Other(Rate),
}

/// Keeps what one `base` was on a day, unless that is known.
///
/// # Errors
/// [`StoreError::Sql`]; [`StoreError::Damaged`] for a rate that was not written by this function.
pub fn keep(connection: &Connection, rate: &DayRate, base: Currency, source: &str) -> Result<Kept, StoreError> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO fx_rates (date, currency, base, rate, source)
             VALUES (date(:day * 86400, 'unixepoch'), :currency, :base, :rate, :source)
             ON CONFLICT (date, currency, base) DO NOTHING",
        )?
        .execute(named_params! {
            ":day": rate.day, ":currency": rate.currency, ":base": base, ":rate": rate.rate.to_string(),
            ":source": source,
        })?;
    if inserted == 1 {
        return Ok(Kept::New);
    }
    let held = rates(connection, base, [rate.currency; 2], rate.day..=rate.day)?.first().map(|held| held.rate);
    Ok(held.filter(|held| *held != rate.rate).map_or(Kept::Known, Kept::Other))
}

/// The rates of two currencies on these days.
///
/// # Errors
/// [`StoreError::Sql`]; [`StoreError::Damaged`] for a rate that was not written by [`keep`].
pub fn rates(
    connection: &Connection,
    base: Currency,
    currencies: [Currency; 2],
    days: RangeInclusive<Day>,
) -> Result<Vec<DayRate>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT unixepoch(date) / 86400 AS day, currency, rate FROM fx_rates
         WHERE date BETWEEN date(:first * 86400, 'unixepoch') AND date(:last * 86400, 'unixepoch')
           AND currency IN (:one, :other) AND base = :base",
    )?;
    let [one, other] = currencies;
    let mut rows = statement.query(named_params! {
        ":first": days.start(), ":last": days.end(), ":one": one, ":other": other, ":base": base,
    })?;
    let mut rates = Vec::new();
    while let Some(row) = rows.next()? {
        rates.push(day_rate(row)?);
    }
    Ok(rates)
}

fn day_rate(row: &Row<'_>) -> Result<DayRate, StoreError> {
    let (currency, text): (Currency, String) = (row.get("currency")?, row.get("rate")?);
    let rate = Rate::parse(&text).map_err(|problem| StoreError::Damaged {
        what: format!("a rate of {currency}"),
        problem: problem.to_string(),
    })?;
    Ok(DayRate { day: row.get("day")?, currency, rate })
}

/// A rate, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RateRow {
    /// The day that it is of, such as `2026-11-27`.
    pub date: String,
    /// The currency.
    pub currency: String,
    /// How many of it one of the base is, as a decimal.
    pub rate: String,
    /// The base.
    pub base: String,
    /// Where it came from.
    pub source: String,
}

/// The rates of one currency or (`None`) of all, the newest first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn list(connection: &Connection, currency: Option<Currency>, limit: i64) -> Result<Vec<RateRow>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT date, currency, rate, base, source FROM fx_rates
         WHERE :currency IS NULL OR currency = :currency ORDER BY date DESC, currency, base LIMIT :limit",
    )?;
    let rows = statement.query_map(named_params! { ":currency": currency, ":limit": limit }, |row| {
        Ok(RateRow {
            date: row.get("date")?,
            currency: row.get("currency")?,
            rate: row.get("rate")?,
            base: row.get("base")?,
            source: row.get("source")?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
