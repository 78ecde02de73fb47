//! Keeping exchange rates, and going on with what waited for them.
//!
//! Whoever calls this has fetched the rates before: no network in here.

use jiff::Timestamp;
use rusqlite::{Connection, Transaction};
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::exchange::{Day, DayRate, day_of};
use crate::domain::money::Currency;
use crate::ops::apply::to_json;
use crate::ops::ingest::Errand;
use crate::store::audit::{self, Record};
use crate::store::fx::{self, Kept};
use crate::store::{Desk, StoreError, events};

/// Rates as somebody told them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The rates; none of the base itself.
    pub rates: Vec<DayRate>,
    /// The currency that they are against.
    pub base: Currency,
    /// Where they come from.
    pub source: String,
}

/// What became of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Updated {
    /// Where they come from.
    pub source: String,
    /// The newest day among them.
    pub newest: String,
    /// So many rates are kept from now on.
    pub new: usize,
    /// So many were kept before.
    pub known: usize,
    /// Another rate was kept before, and stays.
    pub differing: Vec<Differing>,
    /// So many events that waited for rates were woken.
    pub woken: usize,
    /// So many events wait for rates now.
    pub waiting: i64,
}

/// Two rates for one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// The day.
    pub date: String,
    /// The currency.
    pub currency: String,
    /// The rate that stays.
    pub kept: String,
    /// The rate that was told now.
    pub told: String,
}

/// Why none of them is kept.
#[derive(Debug, Error)]
pub enum FxError {
    /// The rates are against another base.
    #[error("they tell a rate of {0}, which is [fx] base; set that to the currency that the rates are against")]
    OfBase(Currency),
    /// A day that has not come.
    #[error("they tell rates of {0}, a day that has not come yet; correct them, or the clock of this machine")]
    Future(String),
    /// The database did not take them.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keeps rates, all or none, and then runs what waits for rates, on behalf of whoever sends the errand.
///
/// # Errors
/// [`FxError`]; then no rate is kept, unless the error is one of running what waited: that is marked and runs later.
pub fn update(desk: &mut impl Desk, told: Told, errand: &Errand, now: UnixMillis) -> Result<Updated, FxError> {
    check(&told, now)?;
    let actor = errand.actor().to_owned();
    let mut updated = desk.write(move |transaction| keep(transaction, &told, &actor, now))?;
    if updated.woken > 0 {
        errand.run_woken(desk, now)?;
        updated.waiting = desk.write(|transaction| events::waiting_for_rates(transaction))?;
    }
    Ok(updated)
}

fn keep(transaction: &Transaction<'_>, told: &Told, actor: &str, now: UnixMillis) -> Result<Updated, StoreError> {
    let newest = told.rates.iter().map(|rate| rate.day).max().map(date).unwrap_or_default();
    let source = told.source.clone();
    let mut updated = Updated { source, newest, new: 0, known: 0, differing: Vec::new(), woken: 0, waiting: 0 };
    for rate in &told.rates {
        match fx::keep(transaction, rate, told.base, &told.source)? {
            Kept::New => updated.new += 1,
            Kept::Known => updated.known += 1,
            Kept::Other(held) => updated.differing.push(Differing {
                date: date(rate.day),
                currency: rate.currency.to_string(),
                kept: held.to_string(),
                told: rate.rate.to_string(),
            }),
        }
    }
    if updated.new > 0 {
        updated.woken = events::wake_for_rates(transaction)?;
        record(transaction, told, actor, &updated, now)?;
    }
    updated.waiting = events::waiting_for_rates(transaction)?;
    Ok(updated)
}

fn check(told: &Told, now: UnixMillis) -> Result<(), FxError> {
    // What was told of a day stays, so a wrong day would keep out the right rates later.
    match told.rates.iter().find(|rate| rate.day > day_of(now / 1000)) {
        Some(rate) => Err(FxError::Future(date(rate.day))),
        None if told.rates.iter().any(|rate| rate.currency == told.base) => Err(FxError::OfBase(told.base)),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct Detail<'a> {
    source: &'a str,
    newest: &'a str,
    new: usize,
}

fn record(
    connection: &Connection,
    told: &Told,
    actor: &str,
    updated: &Updated,
    now: UnixMillis,
) -> Result<(), StoreError> {
    let detail = to_json(&Detail { source: &told.source, newest: &updated.newest, new: updated.new })?;
    let record = Record {
        at: now / 1000,
        actor,
        action: "fx.update",
        subject: told.base.as_str(),
        event_id: None,
        detail: &detail,
    };
    audit::append(connection, audit::head(connection)?, &record)?;
    Ok(())
}

fn date(day: Day) -> String {
    let midnight = Timestamp::from_second(day.saturating_mul(86_400));
    midnight.map_or_else(|_| day.to_string(), |midnight| midnight.strftime("%Y-%m-%d").to_string())
}
