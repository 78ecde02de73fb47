//! Keeping exchange rates, and going on with what waited for them.
//!
//! Whoever calls this has fetched the rates before: no network in here.

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::exchange::{Day, DayRate, day_of};
use crate::domain::money::Currency;
use crate::ops::apply::to_json;
use crate::ops::ingest::Ingest;
use crate::store::audit::{self, Record};
use crate::store::fx::{self, Kept};
use crate::store::writer::Batch as _;
use crate::store::{StoreError, events};

/// Rates as somebody told them.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The rates; none of the base itself.
    pub rates: &'a [DayRate],
    /// The currency that they are against.
    pub base: Currency,
    /// Where they come from.
    pub source: &'a str,
    /// Who brings them: `operator:NAME` or `job:NAME`.
    pub actor: &'a str,
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

/// Keeps rates, all or none, and then runs what waits for rates, each batch in a transaction of its own.
///
/// # Errors
/// [`FxError`]; then no rate is kept, unless the error is one of running what waited: that is marked and runs later.
pub fn update(
    connection: &mut Connection,
    told: &Told<'_>,
    ingest: &mut Ingest,
    now: UnixMillis,
) -> Result<Updated, FxError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(StoreError::from)?;
    let mut updated = keep(&transaction, told, now)?;
    transaction.commit().map_err(StoreError::from)?;
    if updated.woken > 0 {
        run_woken(connection, ingest, now)?;
    }
    updated.waiting = events::waiting_for_rates(connection)?;
    Ok(updated)
}

/// Keeps rates, and wakes what waits for any: a batch of the server or of [`update`] runs it.
///
/// # Errors
/// [`FxError`]; then the transaction is to be taken back.
pub fn keep(transaction: &Transaction<'_>, told: &Told<'_>, now: UnixMillis) -> Result<Updated, FxError> {
    check(told, now)?;
    let newest = told.rates.iter().map(|rate| rate.day).max().map(date).unwrap_or_default();
    let source = told.source.to_owned();
    let mut updated = Updated { source, newest, new: 0, known: 0, differing: Vec::new(), woken: 0, waiting: 0 };
    for rate in told.rates {
        match fx::keep(transaction, rate, told.base, told.source)? {
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
        record(transaction, told, &updated, now)?;
    }
    updated.waiting = events::waiting_for_rates(transaction)?;
    Ok(updated)
}

fn check(told: &Told<'_>, now: UnixMillis) -> Result<(), FxError> {
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

fn record(connection: &Connection, told: &Told<'_>, updated: &Updated, now: UnixMillis) -> Result<(), StoreError> {
    let detail = to_json(&Detail { source: told.source, newest: &updated.newest, new: updated.new })?;
    let record = Record {
        at: now / 1000,
        actor: told.actor,
        action: "fx.update",
        subject: told.base.as_str(),
        event_id: None,
        detail: &detail,
    };
    audit::append(connection, audit::head(connection)?, &record)?;
    Ok(())
}

fn run_woken(connection: &mut Connection, ingest: &mut Ingest, now: UnixMillis) -> Result<(), StoreError> {
    while ingest.is_urgent(now) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        ingest.run(&transaction, Vec::new(), now)?;
        transaction.commit()?;
        ingest.ended(true);
    }
    Ok(())
}

fn date(day: Day) -> String {
    let midnight = Timestamp::from_second(day.saturating_mul(86_400));
    midnight.map_or_else(|_| day.to_string(), |midnight| midnight.strftime("%Y-%m-%d").to_string())
}
