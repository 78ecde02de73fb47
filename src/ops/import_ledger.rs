//! Takes over an old credit table: each row once, and what the table has twice is kept as history and reversed at once.

mod table;

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Transaction};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decide;
use crate::domain::decision::{Effect, Need, Outcome};
use crate::domain::event::UnixSeconds;
use crate::domain::fact::Fact;
use crate::domain::grant::GrantLine;
use crate::domain::ids::{AccountId, EventId};
use crate::ops::apply::{Books, Cause};
use crate::ops::ingest::Errand;
use crate::ops::paid::Paid;
use crate::store::events::{self, EventMeta, Source};
use crate::store::ledger::{self, Entry, Posted};
use crate::store::rehearsal::Rehearsal;
use crate::store::{Desk, StoreError, accounts, imports, savepoint};

pub use table::{BadTable, Row, read};

/// How many rows one transaction takes over at most, so that a server beside it waits for a moment only.
const ROWS_MAX: usize = 500;

/// How many bytes of its hash name a row.
const HASH_BYTES: usize = 16;

/// What was done, or would be.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// False: it was done to a copy, and nothing has changed.
    pub applied: bool,
    /// How many rows stand in the books now.
    pub imported: usize,
    /// How many rows repeat something, and were reversed at once.
    pub repeats: usize,
    /// How many rows were taken over by an earlier run.
    pub already_imported: usize,
    /// How many rows were over 0.
    pub empty: usize,
    /// Each row, in the order of the file.
    pub rows: Vec<Taken>,
    /// Each balance that the rows are about.
    pub balances: Vec<Balance>,
}

/// A row, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// Its line in the file.
    pub line: u64,
    /// Its event.
    pub event_id: String,
    /// Whose books.
    pub account_id: String,
    /// The unit.
    pub unit: String,
    /// What it gave or took.
    pub amount: i64,
    /// The event that it says it comes from.
    pub source_event_id: String,
    /// What it says it was given or taken for.
    pub source_object: Option<String>,
    /// What became of it.
    pub result: RowResult,
    /// The key of its entry, if it made one now.
    pub fact: Option<String>,
    /// What it repeats: a fact, or the event of another row.
    pub repeats: Option<String>,
    /// What was taken back of it at once: all of a repeat, and what is known to be refunded of the rest. More than 0: it
    /// takes back what was taken back already.
    pub corrected: i64,
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowResult {
    /// It stands.
    Imported,
    /// It repeats something: it is kept as history, and was reversed at once.
    RepeatReversed,
    /// An earlier run took it over.
    AlreadyImported,
    /// It is over 0, and changes nothing.
    Empty,
}

/// A balance before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// Whose.
    pub account_id: String,
    /// The unit.
    pub unit: String,
    /// Before the first row.
    pub before: i64,
    /// What the rows gave and took, repeats included.
    pub imported: i64,
    /// What was taken back of them at once.
    pub reversed: i64,
    /// After the last row.
    pub after: i64,
}

/// Why a table was not taken over, or not all of it.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A balance is a number with an end.
    #[error(
        "line {line}: the balance of {account} would be beyond what can be counted; nothing of this row is imported; \
         correct it and run the same again, which goes on where this ended"
    )]
    TooLarge {
        /// The row.
        line: u64,
        /// Whose balance.
        account: AccountId,
    },
    /// The database did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes the rows over, in several transactions. If it is cut short, the same again goes on where it ended.
///
/// # Errors
/// [`ImportError`]; what earlier transactions took over stays.
pub fn apply(
    connection: &mut Connection,
    rows: &[Row],
    errand: &Errand,
    now: UnixMillis,
) -> Result<Report, ImportError> {
    take_everything(connection, rows, errand, now).map(|progress| progress.report(true))
}

/// Takes the rows over into a copy of the books: shows what [`apply`] would do.
///
/// # Errors
/// [`ImportError`].
pub fn rehearse(copy: &mut Rehearsal, rows: &[Row], errand: &Errand, now: UnixMillis) -> Result<Report, ImportError> {
    take_everything(copy.connection(), rows, errand, now).map(|progress| progress.report(false))
}

fn take_everything(
    desk: &mut impl Desk,
    rows: &[Row],
    errand: &Errand,
    now: UnixMillis,
) -> Result<Progress, ImportError> {
    let mut progress = Progress::default();
    for some in in_order(rows)?.chunks(ROWS_MAX) {
        let (some, errand, so_far) = (some.to_vec(), errand.clone(), progress);
        progress = desk.write(move |transaction| take_some(transaction, &some, &errand, now, so_far))??;
    }
    Ok(progress)
}

/// The rows with their events, the oldest first, so that the order of the file decides only where nothing else does.
fn in_order(rows: &[Row]) -> Result<Vec<(EventId, Row)>, StoreError> {
    let mut occurrences: HashMap<Content<'_>, u64> = HashMap::with_capacity(rows.len());
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let content = content(row);
        let occurrence = occurrences.entry(content).or_default();
        *occurrence += 1;
        all.push((event_id(&format!("import:{}", hash(&content, *occurrence)))?, row.clone()));
    }
    all.sort_by_key(|(_, row)| (row.created.unwrap_or(UnixSeconds::MAX), row.line));
    Ok(all)
}

/// What makes a row the same row in another file.
type Content<'a> = (&'a str, &'a str, i64, &'a str, Option<&'a str>, Option<UnixSeconds>);

fn content(row: &Row) -> Content<'_> {
    let source = row.source_event.as_str();
    (row.account.as_str(), &row.unit, row.amount, source, row.source_object.as_deref(), row.created)
}

fn hash(content: &Content<'_>, occurrence: u64) -> String {
    // A tuple of numbers and texts always has a JSON form.
    let text = serde_json::to_vec(&(content, occurrence)).unwrap_or_default();
    base16ct::lower::encode_string(&Sha256::digest(text)[..HASH_BYTES])
}

fn event_id(text: &str) -> Result<EventId, StoreError> {
    EventId::parse(text)
        .map_err(|error| StoreError::Damaged { what: format!("event id {text}"), problem: error.to_string() })
}

/// All of these rows, or none.
fn take_some(
    transaction: &Transaction<'_>,
    rows: &[(EventId, Row)],
    errand: &Errand,
    now: UnixMillis,
    mut progress: Progress,
) -> Result<Result<Progress, ImportError>, StoreError> {
    let books = Books { connection: transaction, now, chain: None };
    let mut run = Run { books, errand, progress: &mut progress };
    match rows.iter().try_for_each(|(event, row)| run.take(event, row)) {
        Ok(()) => Ok(Ok(progress)),
        Err(ImportError::Store(error)) => Err(error),
        Err(refused) => {
            savepoint::begin_anew(transaction)?;
            Ok(Err(refused))
        }
    }
}

/// One transaction's worth of rows.
struct Run<'a> {
    books: Books<'a>,
    errand: &'a Errand,
    progress: &'a mut Progress,
}

/// What a row is to the books.
enum Place {
    /// The first row of something that is paid; it takes the key that its webhook would take.
    First(Paid),
    /// It belongs to the grant of something that is paid: a further unit of it, or what the old system took back, perhaps
    /// before the grant comes.
    PartOf(Paid),
    /// Something of its own.
    Own,
    /// Something that the books have already.
    Repeats(String),
}

impl Run<'_> {
    fn take(&mut self, event: &EventId, row: &Row) -> Result<(), ImportError> {
        let connection = self.books.connection;
        let mut taken = Taken::of(event, row);
        let before = self.balance_of(row)?;
        self.progress.balance(row, before);
        if events::completed(connection, event)?.is_some() {
            taken.result = RowResult::AlreadyImported;
        } else if row.amount == 0 {
            let reason = Some("an amount of 0 changes nothing");
            events::complete(connection, &self.meta(event, row), Outcome::NoEffect, reason, self.books.now)?;
        } else if before.checked_add(row.amount).is_none() {
            return Err(ImportError::TooLarge { line: row.line, account: row.account.clone() });
        } else {
            self.post(event, row, &mut taken)?;
        }
        let now = self.balance_of(row)?;
        let balance = self.progress.balance(row, now);
        if taken.fact.is_some() {
            balance.imported = balance.imported.saturating_add(row.amount);
            balance.reversed = balance.reversed.saturating_add(taken.corrected);
        }
        self.progress.rows.push(taken);
        Ok(())
    }

    fn post(&mut self, event: &EventId, row: &Row, taken: &mut Taken) -> Result<(), StoreError> {
        let (connection, now) = (self.books.connection, self.books.now);
        let place = place(connection, row)?;
        let own = Fact::import(event);
        let (fact, root) = match &place {
            Place::First(paid) => (paid.fact(), paid.fact()),
            Place::PartOf(paid) => (own, paid.fact()),
            Place::Own | Place::Repeats(_) => (own.clone(), own),
        };
        let reason = match &place {
            Place::Repeats(what) => Some(format!("repeats {what}")),
            Place::First(_) | Place::PartOf(_) | Place::Own => None,
        };
        let meta = self.meta(event, row);
        let cause = Cause { event: &meta, actor: self.errand.actor() };
        events::complete(connection, &meta, Outcome::Applied, reason.as_deref(), now)?;
        accounts::open(connection, &row.account)?;
        imports::remember(connection, event, row.source_event.as_str(), row.source_object.as_deref())?;
        self.enter(cause, &fact, &root, row)?;
        (taken.result, taken.fact) = (RowResult::Imported, Some(fact.to_string()));
        match place {
            Place::First(paid) => {
                events::wake(connection, &Need::Grant(fact))?;
                taken.corrected = self.settle(cause, &paid, row)?;
            }
            Place::PartOf(paid) => taken.corrected = self.settle(cause, &paid, row)?,
            Place::Repeats(what) => {
                self.reverse(cause, &fact, &what)?;
                taken.corrected = row.amount.saturating_neg();
                (taken.result, taken.repeats) = (RowResult::RepeatReversed, Some(what));
            }
            Place::Own => {}
        }
        Ok(())
    }

    fn enter(&mut self, cause: Cause<'_>, fact: &Fact, root: &Fact, row: &Row) -> Result<(), StoreError> {
        let at = row.created.unwrap_or(self.books.now / 1000);
        let entry = Entry { account: &row.account, kind: "import", fact, root, source: cause.event.id, at };
        let line = GrantLine::plain(row.unit.clone(), row.amount);
        let posted = ledger::post(self.books.connection, &entry, &[line])?;
        let detail = Detail {
            fact: fact.as_str(),
            root: (root != fact).then_some(root.as_str()),
            lines: &posted,
            source_event_id: row.source_event.as_str(),
            source_object: row.source_object.as_deref(),
        };
        self.books.audit(cause, "import", row.account.as_str(), &detail)
    }

    /// What is known to have been paid back is taken back at once, and what was taken for that twice is given again.
    fn settle(&mut self, cause: Cause<'_>, paid: &Paid, row: &Row) -> Result<i64, StoreError> {
        let connection = self.books.connection;
        let before = self.balance_of(row)?;
        let effects: Vec<Effect> = paid.roots(connection)?.iter().flat_map(decide::settle_grant).collect();
        self.books.apply_after(1, cause, &effects)?;
        Ok(self.balance_of(row)?.saturating_sub(before))
    }

    fn balance_of(&self, row: &Row) -> Result<i64, StoreError> {
        ledger::balance(self.books.connection, &row.account, &row.unit)
    }

    /// A row is history at once.
    fn reverse(&mut self, cause: Cause<'_>, fact: &Fact, what: &str) -> Result<(), StoreError> {
        let connection = self.books.connection;
        let lost =
            || StoreError::Damaged { what: format!("{fact}"), problem: "it was posted, and is not there".into() };
        let held = ledger::held(connection, fact.as_str())?.ok_or_else(lost)?;
        let event = event_id(&format!("{}:reversal", cause.event.id))?;
        let meta = EventMeta { id: &event, kind: "import.reversal", created: self.books.now / 1000, ..*cause.event };
        let why = format!("{} repeats {what}", cause.event.id);
        events::complete(connection, &meta, Outcome::Applied, Some(&why), self.books.now)?;
        self.books.reverse(Cause { event: &meta, actor: cause.actor }, &held, &why)?;
        Ok(())
    }

    fn meta<'a>(&self, event: &'a EventId, row: &'a Row) -> EventMeta<'a> {
        EventMeta {
            id: event,
            source: Source::Import,
            kind: "import.row",
            api_version: None,
            livemode: self.errand.rules().policy.livemode,
            stripe_account: None,
            object_id: row.source_object.as_deref(),
            account: Some(&row.account),
            created: row.created.unwrap_or(self.books.now / 1000),
            received: self.books.now,
        }
    }
}

fn place(connection: &Connection, row: &Row) -> Result<Place, StoreError> {
    let Some(object) = row.source_object.as_deref() else {
        let source = row.source_event.as_str();
        let held = imports::of_same_source(connection, source, &row.account, &row.unit, row.amount)?;
        return Ok(held.map_or(Place::Own, Place::Repeats));
    };
    let Some(named) = Paid::of_object(object) else { return Ok(Place::Own) };
    let paid = named.as_granted(connection)?;
    if row.amount < 0 {
        return Ok(Place::PartOf(paid));
    }
    let fact = paid.fact();
    Ok(match ledger::granted_by(connection, &fact)? {
        None => Place::First(paid),
        // A grant of several units has several rows.
        Some(grant) if imports::lacks_unit(connection, &grant, &fact, &row.unit)? => Place::PartOf(paid),
        Some(_) => Place::Repeats(fact.to_string()),
    })
}

#[derive(Serialize)]
struct Detail<'a> {
    fact: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'a str>,
    lines: &'a [Posted],
    source_event_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_object: Option<&'a str>,
}

impl Taken {
    fn of(event: &EventId, row: &Row) -> Self {
        Self {
            line: row.line,
            event_id: event.to_string(),
            account_id: row.account.to_string(),
            unit: row.unit.clone(),
            amount: row.amount,
            source_event_id: row.source_event.to_string(),
            source_object: row.source_object.clone(),
            result: RowResult::Empty,
            fact: None,
            repeats: None,
            corrected: 0,
        }
    }
}

/// What has been done so far.
#[derive(Debug, Default)]
struct Progress {
    rows: Vec<Taken>,
    balances: BTreeMap<(String, String), Balance>,
}

impl Progress {
    /// The balance that a row is about.
    fn balance(&mut self, row: &Row, now: i64) -> &mut Balance {
        let key = (row.account.to_string(), row.unit.clone());
        let balance = self.balances.entry(key).or_insert_with(|| Balance {
            account_id: row.account.to_string(),
            unit: row.unit.clone(),
            before: now,
            imported: 0,
            reversed: 0,
            after: now,
        });
        balance.after = now;
        balance
    }

    fn report(mut self, applied: bool) -> Report {
        self.rows.sort_by_key(|row| row.line);
        let count = |result| self.rows.iter().filter(|row| row.result == result).count();
        Report {
            applied,
            imported: count(RowResult::Imported),
            repeats: count(RowResult::RepeatReversed),
            already_imported: count(RowResult::AlreadyImported),
            empty: count(RowResult::Empty),
            balances: self.balances.into_values().collect(),
            rows: self.rows,
        }
    }
}
