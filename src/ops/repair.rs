//! Cleans up what was given twice: keeps the first grant, and reverses what still stands of the others.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction};
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::ids::{AccountId, EventId};
use crate::ops::apply::{Books, Cause};
use crate::ops::duplicates::{self, Found};
use crate::ops::ingest::Errand;
use crate::store::events::{self, Claim, EventMeta, Source};
use crate::store::ledger::{self, Held, Posted};
use crate::store::rehearsal::Rehearsal;
use crate::store::{Desk as _, StoreError};

/// How many entries one transaction reverses at most, so that a server beside it waits for a moment only.
const REVERSALS_MAX: usize = 500;

/// What was found, and done, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// False: it was done to a copy, and nothing has changed.
    pub applied: bool,
    /// Each grant too many.
    pub duplicates: Vec<Duplicate>,
    /// Each balance that changes.
    pub balances: Vec<Balance>,
}

/// A grant too many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Duplicate {
    /// What was paid once, such as `invoice in_1`.
    pub paid: String,
    /// The grant that stays.
    pub kept: Held,
    /// The grant that is reversed.
    pub extra: Held,
    /// The event of the reversal.
    pub event_id: String,
    /// What it does, each unit by itself.
    pub lines: Vec<Posted>,
}

/// A balance before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// Whose.
    pub account_id: String,
    /// The unit.
    pub unit: String,
    /// Before the first reversal.
    pub before: i64,
    /// After the last one.
    pub after: i64,
}

/// Reverses what was given twice, in several transactions.
///
/// # Errors
/// [`StoreError`]; what earlier transactions reversed stays.
pub fn apply(connection: &mut Connection, errand: &Errand, now: UnixMillis) -> Result<Report, StoreError> {
    reverse_everything(connection, errand, now).map(|done| report(true, done))
}

/// Reverses it in a copy of the books: shows what [`apply`] would do.
///
/// # Errors
/// [`StoreError`].
pub fn rehearse(copy: &mut Rehearsal, errand: &Errand, now: UnixMillis) -> Result<Report, StoreError> {
    reverse_everything(copy.connection(), errand, now).map(|done| report(false, done))
}

fn reverse_everything(
    connection: &mut Connection,
    errand: &Errand,
    now: UnixMillis,
) -> Result<Vec<Duplicate>, StoreError> {
    let mut done = Vec::new();
    for some in duplicates::find(connection)?.chunks(REVERSALS_MAX) {
        let (some, errand) = (some.to_vec(), errand.clone());
        done.extend(connection.write(move |transaction| reverse_all(transaction, &some, &errand, now))?);
    }
    Ok(done)
}

fn report(applied: bool, duplicates: Vec<Duplicate>) -> Report {
    let mut balances: BTreeMap<(&str, &str), (i64, i64)> = BTreeMap::new();
    for duplicate in &duplicates {
        for line in &duplicate.lines {
            let key = (duplicate.extra.account_id.as_str(), line.unit.as_str());
            balances.entry(key).or_insert((line.before, line.after)).1 = line.after;
        }
    }
    let balance = |((account, unit), (before, after)): ((&str, &str), _)| Balance {
        account_id: account.into(),
        unit: unit.into(),
        before,
        after,
    };
    Report { applied, balances: balances.into_iter().map(balance).collect(), duplicates }
}

fn reverse_all(
    transaction: &Transaction<'_>,
    found: &[Found],
    errand: &Errand,
    now: UnixMillis,
) -> Result<Vec<Duplicate>, StoreError> {
    let mut books = Books { connection: transaction, now, chain: None };
    let mut done = Vec::new();
    for one in found {
        done.extend(reverse(&mut books, one, errand)?);
    }
    Ok(done)
}

/// Reverses an entry, if it and the one that stays still stand: somebody else may have been faster.
fn reverse(books: &mut Books<'_>, found: &Found, errand: &Errand) -> Result<Option<Duplicate>, StoreError> {
    let (connection, now) = (books.connection, books.now);
    let (Some(kept), Some(extra)) = (ledger::held(connection, &found.kept)?, ledger::held(connection, &found.extra)?)
    else {
        return Ok(None);
    };
    let damaged = |problem: String| StoreError::Damaged { what: format!("entry {}", extra.entry_id), problem };
    let account = AccountId::parse(&extra.account_id).map_err(|error| damaged(error.to_string()))?;
    // An entry is reversed once at most, so its number is enough.
    let event =
        EventId::parse(&format!("op_reversal:{}", extra.entry_id)).map_err(|error| damaged(error.to_string()))?;
    let why = format!("{}: {} stays", found.paid, kept.fact);
    let meta = EventMeta {
        id: &event,
        source: Source::Operator,
        kind: "operator.reversal",
        api_version: None,
        livemode: errand.rules().policy.livemode,
        stripe_account: None,
        object_id: None,
        account: Some(&account),
        created: now / 1000,
        received: now,
    };
    if events::complete(connection, &meta, Outcome::Applied, Some(&why), now)? == Claim::Lost {
        return Err(damaged(format!("the event {event} exists, and its reversal does not")));
    }
    let lines = books.reverse(Cause { event: &meta, actor: errand.actor() }, &extra, &why)?;
    Ok(Some(Duplicate { paid: found.paid.clone(), kept, extra, event_id: event.to_string(), lines }))
}
