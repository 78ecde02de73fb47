//! Compares the books with Stripe, and tells what differs. It fetches the events that never came and runs them as any
//! others; beyond that it changes nothing but its findings.
//!
//! In the order of a run: `backfill.rs` (events, and silence), `subscriptions.rs`, `invoices.rs`, `checkouts.rs`,
//! `money.rs` (refunds and disputes), `books.rs` (what needs nobody else), `conclude.rs` (what is written down). All walk
//! through pages, and keep in memory only what differs. `run.rs` is what they share.

mod backfill;
mod books;
mod checkouts;
mod conclude;
mod invoices;
mod money;
mod run;
mod subscriptions;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::event::UnixSeconds;
use crate::domain::policy::Policy;
use crate::ops::account_of_key;
use crate::stop::Stop;
use crate::store::reader::Reader;
use crate::store::{Desk, StoreError, runs};
use crate::stripe::client::Api;

use run::{Need, Run, Trouble};

/// What is right, and how far to look.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The rules of the books.
    pub policy: Arc<Policy>,
    /// The metadata that carries the user's own id.
    pub metadata_key: String,
    /// How far back to look at least, in seconds.
    pub lookback_s: i64,
    /// What changed at Stripe within so many seconds is left for the next run.
    pub grace_s: i64,
    /// The paths that Stripe posts to.
    pub paths: Vec<String>,
}

/// What somebody asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// How far back to look, in seconds, instead of what the rules and the former runs say.
    pub since_s: Option<i64>,
    /// Fetch no events that never came; only look which objects are about to change.
    pub no_backfill: bool,
}

/// Where a run takes place.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Who is asked.
    pub api: &'a dyn Api,
    /// Our side.
    pub reader: &'a Reader,
    /// A folder on the disk of the database.
    pub folder: &'a Path,
    /// The time of day.
    pub clock: &'a (dyn Fn() -> UnixMillis + Sync),
    /// Ends the run early.
    pub stop: &'a Stop,
    /// `job:reconcile` or `operator:NAME`, for the audit log.
    pub actor: &'a str,
    /// Is told what was done, now and then: what it is about, and how many so far.
    pub progress: &'a dyn Fn(&'static str, u64),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// All was looked at that Stripe tells.
    Ok,
    /// It was cut short: what was not seen is not concluded from.
    Partial,
    /// Nothing could be looked at.
    Failed,
}

impl Ended {
    /// The word in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Its number.
    pub run: i64,
    /// How it ended.
    pub result: Ended,
    /// From when on Stripe was looked at.
    pub since: UnixSeconds,
    /// How much.
    #[serde(flatten)]
    pub counts: Counts,
    /// What was cut short, and why.
    pub cut_short: Vec<String>,
    /// What this API cannot tell, and why.
    pub cannot_tell: Vec<String>,
}

/// How much a run looked at, and what came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Events at Stripe of the types that billingd acts on.
    pub events: u64,
    /// Of those, the ones that an endpoint has not taken.
    pub undelivered: u64,
    /// Of the events of the 24 h before the run and its grace, those that Stripe should have delivered here.
    pub of_day: u64,
    /// Of those, the ones that it has not.
    pub of_day_undelivered: u64,
    /// Events that Stripe should have delivered here since it went silent; 0: it is not.
    pub silent: u64,
    /// When the last delivery came before the silence.
    pub silent_since: Option<UnixSeconds>,
    /// Of all, the ones that were not here.
    pub missing: u64,
    /// Missing events that were completed.
    pub completed: u64,
    /// Missing events that wait for something.
    pub pending: u64,
    /// Missing events that failed.
    pub failed: u64,
    /// Subscriptions that were compared.
    pub subscriptions: u64,
    /// Invoices that were compared.
    pub invoices: u64,
    /// Checkout sessions that were compared.
    pub checkouts: u64,
    /// Refunds that were compared.
    pub refunds: u64,
    /// Disputes that were compared.
    pub disputes: u64,
    /// Differences that may be changes in flight, and are left for the next run.
    pub in_flight: u64,
    /// Findings that are new.
    pub found: u64,
    /// Findings that were known.
    pub found_again: u64,
    /// Findings that are gone.
    pub resolved: u64,
    /// All findings that are open now.
    pub open: i64,
}

/// Runs once. Never in a transaction while Stripe is asked; whatever is written is written in short ones.
///
/// # Errors
/// [`StoreError`] when the database does not do its part; then the run has no end in the books. What Stripe does not
/// answer is no error but in the report.
pub fn run(place: Place<'_>, desk: &mut impl Desk, rules: &Rules, options: Options) -> Result<Report, StoreError> {
    let started = (place.clock)() / 1000;
    let known = place.reader.read(runs::known)?;
    let number = desk.write(move |transaction| runs::begin(transaction, started))?;
    let mut run = Run::begin(place, rules, options, known, started)?;
    run.part("the account", Need::IfTold, own_account)?;
    let endpoints = run.part("webhook endpoints", Need::IfTold, backfill::endpoints)?;
    let events = run.part("events", Need::Always, |run| backfill::events(run, desk, endpoints.as_deref()))?;
    // Without them our side is not what it could be, and what differs would mean nothing.
    if events.is_some() {
        compare(&mut run)?;
    }
    run.part("the books", Need::Always, books::prove)?;
    conclude::conclude(run, desk, number, events.is_some())
}

/// Nothing is compared with another account.
fn own_account(run: &mut Run<'_>) -> Result<(), Trouble> {
    let is_another = account_of_key::is_another(run.place.reader, run.place.api, &run.rules.policy, run.started)?;
    if is_another { Err(Trouble::OtherAccount) } else { Ok(()) }
}

fn compare(run: &mut Run<'_>) -> Result<(), StoreError> {
    run.knows_open_events()?;
    run.part("subscriptions", Need::Always, subscriptions::compare)?;
    run.part("invoices", Need::Always, invoices::compare)?;
    run.part("checkout sessions", Need::IfTold, checkouts::compare)?;
    run.part("refunds", Need::IfTold, money::compare_refunds)?;
    run.part("disputes", Need::IfTold, money::compare_disputes)?;
    if run.part("events of the last minutes", Need::Always, backfill::tail)?.is_none() {
        // Nobody knows which of them are changes in flight.
        run.differences.clear();
    }
    Ok(())
}
