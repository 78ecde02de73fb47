//! What the books of the demo hold at a moment, read as any reading command would read them.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use serde::Serialize;

use crate::store::events::{self, Filter};
use crate::store::views::AccountFilter;
use crate::store::{StoreError, views};

/// More rows than the demo ever makes.
const ROWS_MAX: i64 = 10_000;

/// A balance with the name that the user gave the account.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Balance {
    pub(super) name: String,
    pub(super) account_id: String,
    pub(super) unit: String,
    pub(super) balance: i64,
}

/// What is in the books.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) events: usize,
    pub(super) repeats: i64,
    /// How many entries there are, by their kind, and how many changes of tier.
    pub(super) effects: BTreeMap<String, usize>,
    pub(super) balances: Vec<Balance>,
}

impl Books {
    pub(super) fn read(connection: &Connection) -> Result<Self, StoreError> {
        let events = events::list(connection, &Filter { limit: ROWS_MAX, ..Filter::default() })?.rows;
        let mut books = Self {
            events: events.len(),
            repeats: events.iter().map(|event| event.duplicates).sum(),
            ..Self::default()
        };
        for account in views::accounts(connection, &AccountFilter { limit: ROWS_MAX, ..AccountFilter::default() })? {
            books.add_entries(connection, &account.account_id)?;
            books.add_tier_changes(connection, &account.account_id)?;
            let name = account.reference.unwrap_or_else(|| account.account_id.clone());
            for row in views::balances(connection, &account.account_id)? {
                let (account_id, unit, balance) = (row.account_id, row.unit, row.balance);
                books.balances.push(Balance { name: name.clone(), account_id, unit, balance });
            }
        }
        books.balances.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(books)
    }

    fn add_entries(&mut self, connection: &Connection, account: &str) -> Result<(), StoreError> {
        let lines = views::ledger(connection, account, ROWS_MAX)?;
        let entries: BTreeSet<(i64, String)> = lines.into_iter().map(|line| (line.entry_id, line.kind)).collect();
        for (_, kind) in entries {
            *self.effects.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    fn add_tier_changes(&mut self, connection: &Connection, account: &str) -> Result<(), StoreError> {
        for _ in views::tier_changes(connection, account)? {
            *self.effects.entry("tier change".to_owned()).or_default() += 1;
        }
        Ok(())
    }

    /// The effects that are not yet in `before`.
    pub(super) fn effects_since(&self, before: &Self) -> BTreeMap<String, usize> {
        let added = |(kind, count): (&String, &usize)| {
            let added = count.saturating_sub(before.effects.get(kind).copied().unwrap_or_default());
            (added > 0).then(|| (kind.clone(), added))
        };
        self.effects.iter().filter_map(added).collect()
    }

    pub(super) fn balance(&self, account: &str) -> Option<i64> {
        self.balances.iter().find(|balance| balance.account_id == account).map(|balance| balance.balance)
    }
}
