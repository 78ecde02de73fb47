//! What the reading commands show, read through the stable views.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::Serialize;

use crate::domain::event::UnixSeconds;
use crate::store::found::{self, Edge, Found};
use crate::store::{StoreError, audit};

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_accounts")]
pub struct AccountRow {
    pub account_id: String,
    pub reference: Option<String>,
    pub tier: Option<String>,
    pub deleted: bool,
}

/// A balance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_balances")]
pub struct BalanceRow {
    pub account_id: String,
    pub unit: String,
    pub balance: i64,
    pub available: i64,
}

/// A line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_ledger")]
pub struct LedgerRow {
    pub entry_id: i64,
    pub account_id: String,
    pub kind: String,
    pub fact: String,
    pub root: String,
    pub unit: String,
    pub amount: i64,
    pub source_event_id: String,
    pub reverses: Option<i64>,
    pub created_at: UnixSeconds,
    pub original_amount: Option<i64>,
    pub original_currency: Option<String>,
    pub fx_rate: Option<String>,
    pub fx_date: Option<String>,
}

/// A row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_audit")]
pub struct AuditRow {
    pub seq: i64,
    pub at: UnixSeconds,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub event_id: Option<String>,
    pub detail: String,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_subscriptions")]
pub struct SubscriptionRow {
    pub subscription_id: String,
    pub status: String,
    pub tier: Option<String>,
    pub price_ids: Option<String>,
    pub quantity: Option<i64>,
    pub current_period_end: Option<UnixSeconds>,
    pub ends_at: Option<UnixSeconds>,
    pub collection_paused: bool,
    pub pending_tier: Option<String>,
    pub pending_tier_at: Option<UnixSeconds>,
    pub source_event_id: String,
}

/// Which accounts to list. An empty filter lists all.
#[derive(Debug, Clone, Default)]
pub struct AccountFilter {
    /// Only those whose id or reference begins so.
    pub search: Option<String>,
    /// Only those that come after this id.
    pub after: Option<String>,
    /// At most so many.
    pub limit: i64,
}

/// Accounts by id.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn accounts(connection: &Connection, filter: &AccountFilter) -> Result<Vec<AccountRow>, StoreError> {
    collect(
        connection,
        "SELECT account_id, reference, tier, deleted FROM v_accounts
         WHERE account_id > coalesce(:after, '')
           AND (:search IS NULL OR substr(account_id, 1, length(:search)) = :search
                OR substr(reference, 1, length(:search)) = :search)
         ORDER BY account_id LIMIT :limit",
        named_params! { ":search": filter.search, ":after": filter.after, ":limit": filter.limit },
        account_row,
    )
}

/// One account.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn account(connection: &Connection, account: &str) -> Result<Option<AccountRow>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT account_id, reference, tier, deleted FROM v_accounts WHERE account_id = :account")?
        .query_row(named_params! { ":account": account }, account_row)
        .optional()?)
}

fn account_row(row: &Row<'_>) -> rusqlite::Result<AccountRow> {
    Ok(AccountRow {
        account_id: row.get("account_id")?,
        reference: row.get("reference")?,
        tier: row.get("tier")?,
        deleted: row.get("deleted")?,
    })
}

/// The balances of an account.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn balances(connection: &Connection, account: &str) -> Result<Vec<BalanceRow>, StoreError> {
    collect(
        connection,
        "SELECT account_id, unit, balance, available FROM v_balances WHERE account_id = :account ORDER BY unit",
        named_params! { ":account": account },
        |row| {
            Ok(BalanceRow {
                account_id: row.get("account_id")?,
                unit: row.get("unit")?,
                balance: row.get("balance")?,
                available: row.get("available")?,
            })
        },
    )
}

/// The newest lines of an account's ledger, the oldest of them first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn ledger(connection: &Connection, account: &str, limit: i64) -> Result<Vec<LedgerRow>, StoreError> {
    collect(
        connection,
        "SELECT * FROM (SELECT * FROM v_ledger WHERE account_id = :account ORDER BY entry_id DESC, unit LIMIT :limit)
         ORDER BY entry_id, unit",
        named_params! { ":account": account, ":limit": limit },
        ledger_row,
    )
}

/// The entries that an event made, those of the events derived from it too.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn ledger_of_event(connection: &Connection, event: &str) -> Result<Vec<LedgerRow>, StoreError> {
    collect(
        connection,
        "SELECT * FROM v_ledger
         WHERE source_event_id = :event
            OR (source_event_id > 'job:correct:' || :event || ':' AND source_event_id < 'job:correct:' || :event || ';')
         ORDER BY entry_id, unit",
        named_params! { ":event": event },
        ledger_row,
    )
}

pub(super) fn ledger_row(row: &Row<'_>) -> rusqlite::Result<LedgerRow> {
    Ok(LedgerRow {
        entry_id: row.get("entry_id")?,
        account_id: row.get("account_id")?,
        kind: row.get("kind")?,
        fact: row.get("fact")?,
        root: row.get("root")?,
        unit: row.get("unit")?,
        amount: row.get("amount")?,
        source_event_id: row.get("source_event_id")?,
        reverses: row.get("reverses")?,
        created_at: row.get("created_at")?,
        original_amount: row.get("original_amount")?,
        original_currency: row.get("original_currency")?,
        fx_rate: row.get("fx_rate")?,
        fx_date: row.get("fx_date")?,
    })
}

/// The subscriptions of an account.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn subscriptions(connection: &Connection, account: &str) -> Result<Vec<SubscriptionRow>, StoreError> {
    collect(
        connection,
        "SELECT * FROM v_subscriptions WHERE account_id = :account ORDER BY subscription_id",
        named_params! { ":account": account },
        |row| {
            Ok(SubscriptionRow {
                subscription_id: row.get("subscription_id")?,
                status: row.get("status")?,
                tier: row.get("tier")?,
                price_ids: row.get("price_ids")?,
                quantity: row.get("quantity")?,
                current_period_end: row.get("current_period_end")?,
                ends_at: row.get("ends_at")?,
                collection_paused: row.get("collection_paused")?,
                pending_tier: row.get("pending_tier")?,
                pending_tier_at: row.get("pending_tier_at")?,
                source_event_id: row.get("source_event_id")?,
            })
        },
    )
}

/// A change of an account's tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_tier_changes")]
pub struct TierChangeRow {
    pub account_id: String,
    pub from_tier: Option<String>,
    pub to_tier: Option<String>,
    pub source_event_id: String,
    pub at: UnixSeconds,
}

/// The changes of an account's tier, the oldest first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn tier_changes(connection: &Connection, account: &str) -> Result<Vec<TierChangeRow>, StoreError> {
    collect(
        connection,
        "SELECT account_id, from_tier, to_tier, source_event_id, at FROM v_tier_changes
         WHERE account_id = :account ORDER BY at",
        named_params! { ":account": account },
        tier_change_row,
    )
}

/// The changes of tiers that an event made.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn tier_changes_of_event(connection: &Connection, event: &str) -> Result<Vec<TierChangeRow>, StoreError> {
    collect(
        connection,
        "SELECT account_id, from_tier, to_tier, source_event_id, at FROM v_tier_changes
         WHERE source_event_id = :event ORDER BY account_id",
        named_params! { ":event": event },
        tier_change_row,
    )
}

pub(super) fn tier_change_row(row: &Row<'_>) -> rusqlite::Result<TierChangeRow> {
    Ok(TierChangeRow {
        account_id: row.get("account_id")?,
        from_tier: row.get("from_tier")?,
        to_tier: row.get("to_tier")?,
        source_event_id: row.get("source_event_id")?,
        at: row.get("at")?,
    })
}

/// A refund or a dispute of what granted credits to an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MoneyBackRow {
    /// `refund` or `dispute`.
    pub kind: String,
    /// `re_…` or `dp_…`.
    pub id: String,
    /// The fact whose grant it takes back.
    pub root: String,
    /// Minor units.
    pub amount: i64,
    /// The currency.
    pub currency: String,
    /// Stripe's word.
    pub status: Option<String>,
}

/// The refunds and disputes of what granted credits to an account.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn money_back(connection: &Connection, account: &str) -> Result<Vec<MoneyBackRow>, StoreError> {
    collect(
        connection,
        "WITH roots AS (SELECT DISTINCT root FROM v_ledger WHERE account_id = :account AND kind <> 'adjustment'),
              names AS (SELECT r.root, p.payment_id AS name FROM roots r
                        JOIN invoice_payments p ON p.invoice_id = substr(r.root, length('grant:invoice:') + 1)
                        WHERE r.root LIKE 'grant:invoice:%'
                        UNION
                        SELECT r.root, c.payment_intent FROM roots r
                        JOIN checkouts c ON c.checkout_id = substr(r.root, length('grant:checkout:') + 1)
                        WHERE r.root LIKE 'grant:checkout:%'
                        UNION
                        SELECT r.root, p.payment_id FROM roots r
                        JOIN checkout_invoices c ON c.checkout_id = substr(r.root, length('grant:checkout:') + 1)
                        JOIN invoice_payments p ON p.invoice_id = c.invoice_id
                        WHERE r.root LIKE 'grant:checkout:%')
         SELECT 'refund' AS kind, refund_id AS id, root, amount, currency, status
         FROM names CROSS JOIN refunds ON payment_intent = name
         UNION
         SELECT 'refund', refund_id, root, amount, currency, status FROM names CROSS JOIN refunds ON charge_id = name
         UNION
         SELECT 'dispute', dispute_id, root, amount, currency, status FROM names CROSS JOIN disputes ON payment_intent = name
         UNION
         SELECT 'dispute', dispute_id, root, amount, currency, status FROM names CROSS JOIN disputes ON charge_id = name
         ORDER BY 1, 2",
        named_params! { ":account": account },
        |row| {
            Ok(MoneyBackRow {
                kind: row.get("kind")?,
                id: row.get("id")?,
                root: row.get("root")?,
                amount: row.get("amount")?,
                currency: row.get("currency")?,
                status: row.get("status")?,
            })
        },
    )
}

/// Which rows of the audit log to list. An empty filter lists all.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only about this account.
    pub account: Option<String>,
    /// Only by this event.
    pub event: Option<String>,
    /// Only at or after this time.
    pub since: Option<UnixSeconds>,
    /// Only rows before this one, by its number.
    pub before: Option<i64>,
    /// At most so many, the newest ones.
    pub limit: i64,
}

/// Rows of the audit log, the oldest first. Those of an event are looked up. Those of an account are looked for from the
/// newest row on, and so is the time from which on rows are asked for; that walk has an end.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn audit(connection: &Connection, filter: &AuditFilter) -> Result<Found<AuditRow>, StoreError> {
    audit_within(connection, filter, found::ROWS_MAX)
}

fn audit_within(connection: &Connection, filter: &AuditFilter, rows_max: i64) -> Result<Found<AuditRow>, StoreError> {
    let before = filter.before.unwrap_or(audit::head(connection)?.seq.saturating_add(1));
    let is_searched = filter.event.is_none() && (filter.account.is_some() || filter.since.is_some());
    let end = if is_searched { before.saturating_sub(rows_max) } else { 0 };
    let of_event = if filter.event.is_some() { OF_EVENT } else { "" };
    let rows = collect(
        connection,
        &format!(
            "SELECT * FROM (
                 SELECT seq, at, actor, action, subject, event_id, detail FROM v_audit a
                 WHERE seq >= :end AND seq < :before AND (:since IS NULL OR at >= :since)
                   AND (:account IS NULL OR subject = :account
                        OR (SELECT account_id FROM events e WHERE e.event_id = a.event_id) = :account)
                   AND (:event IS NULL OR event_id = :event) {of_event}
                 ORDER BY seq DESC LIMIT :limit)
             ORDER BY seq"
        ),
        named_params! {
            ":account": filter.account, ":event": filter.event, ":since": filter.since, ":before": before, ":end": end,
            ":limit": filter.limit,
        },
        audit_row,
    )?;
    let edge =
        if end > 1 { edge_at(connection, end)?.filter(|edge| filter.since <= Some(edge.looked_back_to)) } else { None };
    Ok(Found::new(rows, filter.limit, edge))
}

/// An event that ran wrote its rows when it was processed. What else became of it is rare, and is called `event.…`.
const OF_EVENT: &str = "AND seq IN (
    SELECT seq FROM audit_log INDEXED BY audit_log_at
    WHERE event_id = :event AND at = (SELECT processed_at / 1000 FROM events WHERE event_id = :event)
    UNION ALL
    SELECT seq FROM audit_log INDEXED BY audit_log_event
    WHERE event_id = :event AND action >= 'event.' AND action < 'event/')";

fn edge_at(connection: &Connection, seq: i64) -> Result<Option<Edge>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT at FROM audit_log WHERE seq = :seq")?
        .query_row(named_params! { ":seq": seq }, |row| {
            Ok(Edge { looked_back_to: row.get("at")?, before: seq.to_string() })
        })
        .optional()?)
}

pub(super) fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        seq: row.get("seq")?,
        at: row.get("at")?,
        actor: row.get("actor")?,
        action: row.get("action")?,
        subject: row.get("subject")?,
        event_id: row.get("event_id")?,
        detail: row.get("detail")?,
    })
}

pub(super) fn collect<T>(
    connection: &Connection,
    sql: &str,
    parameters: &[(&str, &dyn rusqlite::ToSql)],
    from_row: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| from_row(row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::audit::Record;
    use crate::store::open::{self, Binding};

    #[test]
    fn a_search_through_the_audit_log_says_where_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let binding = Binding { livemode: true, connected_account: None };
        let books = open::server(&folder.path().join("books.db"), &binding).unwrap().connection;
        for at in 1..=30 {
            let subject = if at % 10 == 1 { "cus_1" } else { "cus_2" };
            let record = Record { at, actor: "stripe", action: "grant", subject, event_id: None, detail: "{}" };
            audit::append(&books, audit::head(&books).unwrap(), &record).unwrap();
        }
        let seen = |filter: AuditFilter| {
            let found = audit_within(&books, &filter, 12).unwrap();
            let edge = found.edge.map(|edge| (edge.looked_back_to, edge.before));
            (found.rows.iter().map(|row| row.seq).collect::<Vec<_>>(), edge)
        };
        let of = |before| AuditFilter { account: Some("cus_1".into()), before, limit: 9, ..AuditFilter::default() };
        assert_eq!(seen(of(None)), (vec![21], Some((19, "19".into()))));
        assert_eq!(seen(of(Some(19))), (vec![11], Some((7, "7".into()))));
        assert_eq!(seen(of(Some(7))), (vec![1], None));
        assert_eq!(seen(AuditFilter { limit: 1, ..of(None) }), (vec![21], None), "it found enough");
        let since = |since| AuditFilter { since: Some(since), limit: 99, ..AuditFilter::default() };
        assert_eq!(seen(since(29)), (vec![29, 30], None), "all since then was looked through");
        assert_eq!(seen(since(5)).1, Some((19, "19".into())));
        assert_eq!(seen(AuditFilter { limit: 99, ..AuditFilter::default() }).0.len(), 30, "nothing is searched for");
    }
}
