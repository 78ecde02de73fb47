//! What was given twice: the first grant of each thing that was paid stays, the others are too many. `repair` reverses
//! them, and reconciliation tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};

use rusqlite::Connection;

use crate::domain::event::PaymentRef;
use crate::domain::ids::{ChargeId, PaymentId};
use crate::ops::paid::Paid;
use crate::store::imports::{self, Row};
use crate::store::ledger::{self, Held};
use crate::store::{Look, StoreError, payments};

/// How many rows one look reads again.
const STEP: i64 = 500;

/// A grant too many, before anything is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// What was paid once, such as `invoice in_1`.
    pub(super) paid: String,
    /// The id in it.
    pub(super) subject: String,
    /// The key of the grant that stays.
    pub(super) kept: String,
    /// The key of the one that is too many.
    pub(super) extra: String,
}

/// Everything that was given twice, in short looks at the books. Keeps in memory what is given twice, and 16 bytes of
/// each imported row that was given for a payment.
///
/// # Errors
/// [`StoreError`].
pub(super) fn find(books: &impl Look) -> Result<Vec<Found>, StoreError> {
    let mut groups = Groups::default();
    imports::each_granted_as_both(books, |connection, invoice, checkout| {
        let paid = Thing::of(&format!("invoice {invoice}"), invoice);
        for fact in [format!("grant:invoice:{invoice}"), format!("grant:checkout:{checkout}")] {
            groups.add(&paid, ledger::held(connection, &fact)?);
            for part in imports::parts_of(connection, &fact)? {
                groups.add(&paid, ledger::held(connection, &part)?);
            }
        }
        Ok(())
    })?;
    let mut payments = SamePayment::default();
    imports::each_with_own_key(books, |connection, row| {
        match look_at_row(connection, &row)? {
            Some(Given::Covered { paid, by, row }) => {
                groups.add(&paid, Some(by));
                groups.add(&paid, Some(row));
            }
            Some(Given::ForPayment { names, row }) => payments.add(&names, row.entry_id),
            None => {}
        }
        Ok(())
    })?;
    let step = usize::try_from(books.rows(STEP)).unwrap_or(usize::MAX);
    for some in payments.shared().chunks(step) {
        books.look(|connection| some.iter().try_for_each(|entry| look_again(connection, *entry, &mut groups)))?;
    }
    Ok(groups.extras())
}

/// Something that is paid once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    name: String,
    id: String,
}

impl Thing {
    fn of(name: &str, id: &str) -> Self {
        Self { name: name.into(), id: id.into() }
    }

    fn paid(paid: &Paid) -> Self {
        match paid {
            Paid::Invoice(invoice) => Self::of(&format!("invoice {invoice}"), invoice.as_str()),
            Paid::Checkout(checkout) => Self::of(&format!("checkout {checkout}"), checkout.as_str()),
        }
    }
}

/// What gave something for one thing.
#[derive(Debug, Default)]
struct Groups(BTreeMap<Thing, Vec<Held>>);

impl Groups {
    fn add(&mut self, paid: &Thing, held: Option<Held>) {
        let group = self.0.entry(paid.clone()).or_default();
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
                let Thing { name, id } = paid.clone();
                found.push(Found { paid: name, subject: id, kept: kept.fact.clone(), extra: extra.fact });
            }
        }
        found
    }
}

/// Which rows were given for the same payment, in the same unit: by hashes, because few are. Two payments that are taken
/// for one make a group of one each when they are looked at again.
#[derive(Debug, Default)]
struct SamePayment {
    hasher: RandomState,
    rows: Vec<(u64, i64)>,
}

impl SamePayment {
    fn add(&mut self, names: &[Thing], entry: i64) {
        self.rows.extend(names.iter().map(|thing| (self.hasher.hash_one(&thing.name), entry)));
    }

    /// The entries of those that are not alone.
    fn shared(mut self) -> Vec<i64> {
        self.rows.sort_unstable();
        let groups = self.rows.chunk_by(|(one, _), (other, _)| one == other).filter(|group| group.len() > 1);
        let shared: BTreeSet<i64> = groups.flatten().map(|(_, entry)| *entry).collect();
        shared.into_iter().collect()
    }
}

/// What a row was given for.
enum Given {
    /// For something that a grant covers: the row is one too many.
    Covered { paid: Thing, by: Held, row: Held },
    /// For a payment that no grant is of: one too many if another row was given for it, too. One name for each unit.
    ForPayment { names: Vec<Thing>, row: Held },
}

fn look_again(connection: &Connection, entry: i64, groups: &mut Groups) -> Result<(), StoreError> {
    let Some(row) = imports::of_entry(connection, entry)? else { return Ok(()) };
    if let Some(Given::ForPayment { names, row }) = look_at_row(connection, &row)? {
        names.iter().for_each(|name| groups.add(name, Some(row.clone())));
    }
    Ok(())
}

/// A row that is a part of a grant stays or goes with it.
fn look_at_row(connection: &Connection, row: &Row) -> Result<Option<Given>, StoreError> {
    let held = ledger::held(connection, &row.fact)?.filter(|held| held.root == held.fact);
    let Some(held) = held else { return Ok(None) };
    let object = match &row.object {
        Some(object) => Some(object.clone()),
        None => imports::object_of(connection, &row.source_event)?,
    };
    let Some(object) = object else { return Ok(None) };
    if let Some(paid) = Paid::of_object(&object) {
        return covered(connection, [paid], &held);
    }
    let Some(names) = payment_named(&object) else { return Ok(None) };
    let payment = payments::payment(connection, &names)?;
    let invoices = payments::invoices_of(connection, &payment)?.into_iter().map(Paid::Invoice);
    let checkouts = match &payment.intent {
        Some(intent) => payments::checkouts_of(connection, intent)?,
        None => Vec::new(),
    };
    let given = covered(connection, invoices.chain(checkouts.into_iter().map(Paid::Checkout)), &held)?;
    if given.is_some() {
        return Ok(given);
    }
    let id = payment.intent.map_or(object, |intent| intent.to_string());
    let names = held.units.iter().map(|unit| Thing::of(&format!("payment {id} in {}", unit.unit), &id)).collect();
    Ok(Some(Given::ForPayment { names, row: held }))
}

/// The first of these whose grant covers the row.
fn covered(
    connection: &Connection,
    things: impl IntoIterator<Item = Paid>,
    row: &Held,
) -> Result<Option<Given>, StoreError> {
    for paid in things {
        let paid = paid.as_granted(connection)?;
        let grant = ledger::held(connection, paid.fact().as_str())?;
        if let Some(by) = grant.filter(|grant| covers(grant, row)) {
            return Ok(Some(Given::Covered { paid: Thing::paid(&paid), by, row: row.clone() }));
        }
    }
    Ok(None)
}

/// A grant that Stripe's event made is all that there is for what was paid; one from a table has a row for each unit.
fn covers(grant: &Held, row: &Held) -> bool {
    grant.kind == "grant" || grant.units.iter().any(|given| row.units.iter().any(|unit| unit.unit == given.unit))
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
