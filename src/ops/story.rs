//! The whole story of an account and of an event, as every door tells it.

use rusqlite::Connection;
use serde::Serialize;

use crate::ops::adjust::{AdjustError, find_account};
use crate::ops::remedy;
use crate::store::events::{self, EventRow, Filter};
use crate::store::found::Edge;
use crate::store::views::{
    self, AccountRow, AuditFilter, AuditRow, BalanceRow, LedgerRow, MoneyBackRow, SubscriptionRow, TierChangeRow,
};
use crate::store::{StoreError, payload};

/// So many rows of the audit log are told of an event.
const AUDIT_OF_EVENT_MAX: i64 = 100;

/// What an account has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccountState {
    /// Itself.
    #[serde(flatten)]
    pub account: AccountRow,
    /// One for each unit.
    pub balances: Vec<BalanceRow>,
    /// All of them, by id.
    pub subscriptions: Vec<SubscriptionRow>,
}

/// What the account has that an id or a reference names.
///
/// # Errors
/// As [`find_account`].
pub fn state_of(connection: &Connection, name: &str) -> Result<AccountState, AdjustError> {
    let id = find_account(connection, name)?;
    let account = views::account(connection, id.as_str())?.ok_or_else(|| AdjustError::UnknownAccount(name.into()))?;
    Ok(AccountState {
        account,
        balances: views::balances(connection, id.as_str())?,
        subscriptions: views::subscriptions(connection, id.as_str())?,
    })
}

/// What an account has, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccountStory {
    /// Itself.
    #[serde(flatten)]
    pub account: AccountRow,
    /// One for each unit.
    pub balances: Vec<BalanceRow>,
    /// All of them, by id.
    pub subscriptions: Vec<SubscriptionRow>,
    /// All of them, the oldest first.
    pub tier_changes: Vec<TierChangeRow>,
    /// The newest lines of its ledger, the oldest of them first.
    pub entries: Vec<LedgerRow>,
    /// Refunds and disputes of what granted credits to it.
    pub money_back: Vec<MoneyBackRow>,
    /// The newest, the one received last first.
    pub events: Vec<EventRow>,
    /// Where the search for events ended before `limit` were found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_edge: Option<Edge>,
    /// The newest rows, the oldest of them first.
    pub audit: Vec<AuditRow>,
    /// Where the search for audit rows ended before `limit` were found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_edge: Option<Edge>,
}

/// The story of an account, with at most `limit` entries, events and audit rows.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn of_account(connection: &Connection, id: &str, limit: i64) -> Result<Option<AccountStory>, StoreError> {
    let Some(account) = views::account(connection, id)? else { return Ok(None) };
    let of_it = || Some(id.to_owned());
    let events = events::list(connection, &Filter { account: of_it(), limit, ..Filter::default() })?;
    let audit = views::audit(connection, &AuditFilter { account: of_it(), limit, ..AuditFilter::default() })?;
    Ok(Some(AccountStory {
        account,
        balances: views::balances(connection, id)?,
        subscriptions: views::subscriptions(connection, id)?,
        tier_changes: views::tier_changes(connection, id)?,
        entries: views::ledger(connection, id, limit)?,
        money_back: views::money_back(connection, id)?,
        events: events.rows,
        events_edge: events.edge,
        audit: audit.rows,
        audit_edge: audit.edge,
    }))
}

/// What became of an event, and what it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventStory {
    /// Its row.
    pub event: EventRow,
    /// Its payload is still there.
    pub payload_kept: bool,
    /// Any of these would have it run again.
    pub waits_for: Vec<Wait>,
    /// The entries that it made, those of events derived from it too.
    pub entries: Vec<LedgerRow>,
    /// The changes of tiers that it made.
    pub tier_changes: Vec<TierChangeRow>,
    /// What the audit log says of it.
    pub audit: Vec<AuditRow>,
}

/// Something that an event waits for, and what would bring it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Such as `payment:pi_1`.
    pub need: String,
    /// In words.
    pub resolved_by: &'static str,
}

/// The story of an event.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn of_event(connection: &Connection, id: &str) -> Result<Option<EventStory>, StoreError> {
    let Some(event) = events::find(connection, id)? else { return Ok(None) };
    let filter = AuditFilter { event: Some(id.to_owned()), limit: AUDIT_OF_EVENT_MAX, ..AuditFilter::default() };
    let needs = event.needs.as_deref().unwrap_or_default();
    let waits_for = remedy::of_needs(needs).map(|(need, resolved_by)| Wait { need: need.to_owned(), resolved_by });
    Ok(Some(EventStory {
        payload_kept: payload::is_kept(connection, id)?,
        waits_for: waits_for.collect(),
        entries: views::ledger_of_event(connection, id)?,
        tier_changes: views::tier_changes_of_event(connection, id)?,
        audit: views::audit(connection, &filter)?.rows,
        event,
    }))
}
