//! Cleans up what was given twice: keeps the first grant, and reverses what still stands of the others.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, Transaction};
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::event::PaymentRef;
use crate::domain::ids::{AccountId, ChargeId, EventId, PaymentId};
use crate::ops::apply::{Books, Cause};
use crate::ops::ingest::Errand;
use crate::ops::paid::Paid;
use crate::store::events::{self, Claim, EventMeta, Source};
use crate::store::imports::Row;
use crate::store::ledger::{self, Held, Posted};
use crate::store::rehearsal::Rehearsal;
use crate::store::{Desk as _, StoreError, imports, payments};

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
    for some in find(connection)?.chunks(REVERSALS_MAX) {
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

/// A grant too many, before anything is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    paid: String,
    kept: String,
    extra: String,
}

/// Everything that was given twice, in one look at the books.
fn find(connection: &mut Connection) -> Result<Vec<Found>, StoreError> {
    let snapshot = connection.transaction()?;
    let mut groups = Groups::default();
    for (invoice, checkout) in imports::granted_as_both(&snapshot)? {
        for fact in [format!("grant:invoice:{invoice}"), format!("grant:checkout:{checkout}")] {
            groups.add(format!("invoice {invoice}"), ledger::held(&snapshot, &fact)?);
            for part in imports::parts_of(&snapshot, &fact)? {
                groups.add(format!("invoice {invoice}"), ledger::held(&snapshot, &part)?);
            }
        }
    }
    for row in imports::with_own_key(&snapshot)? {
        look_at_row(&snapshot, &row, &mut groups)?;
    }
    Ok(groups.extras())
}

/// What gave something for one thing.
#[derive(Debug, Default)]
struct Groups(BTreeMap<String, Vec<Held>>);

impl Groups {
    fn add(&mut self, paid: String, held: Option<Held>) {
        let group = self.0.entry(paid).or_default();
        group.extend(held.filter(|held| group.iter().all(|other| other.entry_id != held.entry_id)));
    }

    /// All but the first of each group and what belongs to it. A grant with the key of what was paid comes before rows
    /// with keys of their own, because refunds find it.
    fn extras(self) -> Vec<Found> {
        let mut found = Vec::new();
        let mut gone = BTreeSet::new();
        for (paid, mut group) in self.0 {
            group.retain(|held| !gone.contains(&held.entry_id));
            group.sort_by_key(|held| (held.fact.starts_with("import:"), held.entry_id));
            let mut group = group.into_iter();
            let Some(kept) = group.next() else { continue };
            for extra in group.filter(|held| held.root != kept.root) {
                gone.insert(extra.entry_id);
                found.push(Found { paid: paid.clone(), kept: kept.fact.clone(), extra: extra.fact });
            }
        }
        found
    }
}

/// A row is one too many if a grant covers what it was given for, or another row was given for the same payment. A row
/// that is a part of a grant stays or goes with it.
fn look_at_row(connection: &Connection, row: &Row, groups: &mut Groups) -> Result<(), StoreError> {
    let Some(held) = ledger::held(connection, &row.fact)?.filter(|held| held.root == held.fact) else { return Ok(()) };
    let object = match &row.object {
        Some(object) => Some(object.clone()),
        None => imports::object_of(connection, &row.source_event)?,
    };
    let Some(object) = object else { return Ok(()) };
    if let Some(paid) = Paid::of_object(&object) {
        let paid = paid.as_granted(connection)?;
        let grant = ledger::held(connection, paid.fact().as_str())?;
        if let Some(grant) = grant.filter(|grant| covers(grant, &held)) {
            groups.add(named(&paid), Some(grant));
            groups.add(named(&paid), Some(held));
        }
        return Ok(());
    }
    let Some(names) = payment_named(&object) else { return Ok(()) };
    let payment = payments::payment(connection, &names)?;
    let invoices = payments::invoices_of(connection, &payment)?.into_iter().map(Paid::Invoice);
    let checkouts = match &payment.intent {
        Some(intent) => payments::checkouts_of(connection, intent)?,
        None => Vec::new(),
    };
    for paid in invoices.chain(checkouts.into_iter().map(Paid::Checkout)) {
        let paid = paid.as_granted(connection)?;
        let grant = ledger::held(connection, paid.fact().as_str())?;
        if let Some(grant) = grant.filter(|grant| covers(grant, &held)) {
            groups.add(named(&paid), Some(grant));
            groups.add(named(&paid), Some(held));
            return Ok(());
        }
    }
    let name = payment.intent.map_or(object, |intent| intent.to_string());
    for unit in held.units.clone() {
        groups.add(format!("payment {name} in {}", unit.unit), Some(held.clone()));
    }
    Ok(())
}

/// A grant that Stripe's event made is all that there is for what was paid; one from a table has a row for each unit.
fn covers(grant: &Held, row: &Held) -> bool {
    grant.kind == "grant" || grant.units.iter().any(|given| row.units.iter().any(|unit| unit.unit == given.unit))
}

fn named(paid: &Paid) -> String {
    match paid {
        Paid::Invoice(invoice) => format!("invoice {invoice}"),
        Paid::Checkout(checkout) => format!("checkout {checkout}"),
    }
}

fn payment_named(object: &str) -> Option<PaymentRef> {
    if object.starts_with("pi_") {
        return Some(PaymentRef { payment_intent: PaymentId::parse(object).ok(), charge: None });
    }
    if object.starts_with("ch_") || object.starts_with("py_") {
        return Some(PaymentRef { payment_intent: None, charge: ChargeId::parse(object).ok() });
    }
    None
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
