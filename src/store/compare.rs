//! What the books hold about many objects of one kind, in the order of their ids, for comparing them with Stripe.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};

use crate::domain::clawback::{Granted, UnitGranted};
use crate::domain::event::UnixSeconds;
use crate::domain::ids::{AccountId, DisputeId, EventId, InvoiceId, RefundId, SubscriptionId};
use crate::domain::reconcile::{InvoiceHere, InvoiceRowHere, OpenEvent, SubscriptionHere};
use crate::store::StoreError;
use crate::store::look::{Look, Slice, Walk};
use crate::store::select::select;

/// How many rows one step of a walk reads.
const STEP: i64 = 1_000;

/// How many events one look of a walk through all of them reads.
const SEARCH_STEP: i64 = 20_000;

/// How an event came here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Stripe has delivered it, whoever was first.
    pub delivered: bool,
}

/// Which of these events are here.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn arrived(connection: &Connection, ids: &[&str]) -> Result<HashMap<String, Arrived>, StoreError> {
    let sql = "SELECT e.event_id, e.source = 'webhook' OR e.duplicates > 0 AS delivered
               FROM json_each(:ids) j CROSS JOIN events e ON e.event_id = j.value";
    let rows = select(connection, sql, named_params! { ":ids": json(ids)? }, |row| {
        Ok((row.get("event_id")?, Arrived { delivered: row.get("delivered")? }))
    })?;
    Ok(rows.into_iter().collect())
}

/// The newest events since `since` that Stripe delivered for these books, each with its object, at most five, as far as
/// the last deliveries tell; what was ignored may be of anybody.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn delivered_lately(
    connection: &Connection,
    since: UnixSeconds,
    livemode: bool,
    account: Option<&str>,
) -> Result<Vec<(EventId, Option<String>)>, StoreError> {
    let sql = "SELECT event_id, object_id
               FROM (SELECT * FROM events INDEXED BY events_delivered
                     WHERE source = 'webhook' ORDER BY received_at DESC LIMIT :step)
               WHERE created_at >= :since AND livemode = :livemode AND stripe_account IS :account
                 AND substr(event_id, 1, 4) = 'evt_' AND type NOT LIKE 'v2.%' AND outcome IS NOT 'ignored'
               ORDER BY created_at DESC, event_id LIMIT 5";
    let parameters = named_params! { ":step": STEP, ":since": since, ":livemode": livemode, ":account": account };
    select(connection, sql, parameters, |row| Ok((row.get("event_id")?, row.get("object_id")?)))
}

/// The events that are not completed, by the object that they are about; of several, the newest.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open_events(connection: &Connection) -> Result<HashMap<String, OpenEvent>, StoreError> {
    let sql = "SELECT object_id, event_id,
                      CASE WHEN status = 'pending' THEN 'waits for ' || needs
                           ELSE 'failed: ' || coalesce(error_code, 'unknown') END AS why
               FROM events INDEXED BY events_open
               WHERE status <> 'completed' AND object_id IS NOT NULL
               ORDER BY created_at, event_id";
    let rows = select(connection, sql, [], |row| {
        Ok((row.get("object_id")?, OpenEvent { id: row.get("event_id")?, why: row.get("why")? }))
    })?;
    Ok(rows.into_iter().collect())
}

/// Why events that would have granted something for these objects were not for us, or were dismissed. Walks through all
/// events, in short looks.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn reasons(books: &impl Look, objects: &[&str]) -> Result<HashMap<String, String>, StoreError> {
    let sql = "SELECT object_id, reason FROM events
               WHERE event_id >= :from AND event_id < :to AND outcome = 'ignored' AND reason IS NOT NULL
                 AND type IN ('invoice.paid', 'invoice.payment_succeeded', 'invoice.updated',
                              'checkout.session.completed', 'checkout.session.async_payment_succeeded')
                 AND object_id IN (SELECT value FROM json_each(:objects))";
    let (objects, mut found) = (json(objects)?, HashMap::new());
    Walk::by_text("events", "event_id", SEARCH_STEP).each(books, |connection, Slice { from, to }| {
        let parameters = named_params! { ":from": from, ":to": to, ":objects": objects };
        found.extend(select(connection, sql, parameters, |row| Ok((row.get("object_id")?, row.get("reason")?)))?);
        Ok(())
    })?;
    Ok(found)
}

/// These subscriptions, as far as they are known.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn subscriptions(
    connection: &Connection,
    ids: &[&str],
) -> Result<HashMap<SubscriptionId, SubscriptionHere>, StoreError> {
    let ids = json(ids)?;
    let sql = "SELECT s.subscription_id, s.account_id, s.status, s.tier, s.current_period_end, s.ends_at,
                      s.collection_paused, s.pending_tier, s.pending_tier_at
               FROM json_each(:ids) j CROSS JOIN subscriptions s ON s.subscription_id = j.value";
    let rows = select(connection, sql, named_params! { ":ids": ids }, |row| {
        let held_until: Option<UnixSeconds> = row.get("pending_tier_at")?;
        let here = SubscriptionHere {
            account: row.get("account_id")?,
            status: row.get("status")?,
            tier: if held_until.is_some() { row.get("pending_tier")? } else { row.get("tier")? },
            items: Vec::new(),
            current_period_end: row.get("current_period_end")?,
            ends_at: row.get("ends_at")?,
            collection_paused: row.get("collection_paused")?,
        };
        Ok((row.get::<_, SubscriptionId>("subscription_id")?, here))
    })?;
    let mut here: HashMap<SubscriptionId, SubscriptionHere> = rows.into_iter().collect();
    let sql = "SELECT i.subscription_id, i.price_id, i.quantity
               FROM json_each(:ids) j CROSS JOIN subscription_items i ON i.subscription_id = j.value";
    let items = select(connection, sql, named_params! { ":ids": ids }, |row| {
        Ok((row.get::<_, SubscriptionId>("subscription_id")?, (row.get("price_id")?, row.get("quantity")?)))
    })?;
    for (id, item) in items {
        if let Some(one) = here.get_mut(&id) {
            one.items.push(item);
        }
    }
    Ok(here)
}

/// The subscriptions that are not over, after `after` in the order of their ids; none: that was all.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn standing_subscriptions(connection: &Connection, after: &str) -> Result<Vec<SubscriptionId>, StoreError> {
    let sql = "SELECT subscription_id FROM subscriptions
               WHERE subscription_id > :after AND status <> 'canceled' AND status <> 'incomplete_expired'
               ORDER BY subscription_id LIMIT :step";
    select(connection, sql, named_params! { ":after": after, ":step": STEP }, |row| row.get(0))
}

/// These invoices, as far as they or their grants are known. Open events are not looked up.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn invoices(connection: &Connection, ids: &[&str]) -> Result<HashMap<InvoiceId, InvoiceHere>, StoreError> {
    let ids = json(ids)?;
    // Nobody else's reason counts for an invoice that was granted by another event.
    let sql = "SELECT i.invoice_id, i.status, i.amount_paid, i.currency,
                      CASE WHEN i.status = 'paid' AND e.outcome IN ('no_effect', 'ignored')
                                AND e.reason NOT LIKE '% was granted by %' THEN e.reason END AS reason
               FROM json_each(:ids) j CROSS JOIN invoices i ON i.invoice_id = j.value
               LEFT JOIN events e ON e.event_id = i.source_event_id";
    let rows = select(connection, sql, named_params! { ":ids": ids }, |row| {
        let here = InvoiceHere {
            row: Some(InvoiceRowHere {
                status: row.get("status")?,
                amount_paid: row.get("amount_paid")?,
                currency: row.get("currency")?,
            }),
            reason: row.get("reason")?,
            ..InvoiceHere::default()
        };
        Ok((row.get::<_, InvoiceId>("invoice_id")?, here))
    })?;
    let mut here: HashMap<InvoiceId, InvoiceHere> = rows.into_iter().collect();
    let sql = "SELECT j.value AS invoice_id, e.account_id, l.unit, l.amount,
                      (SELECT -coalesce(sum(c.amount), 0) FROM ledger_lines c
                       WHERE c.root = e.fact AND c.is_root = 0 AND c.unit = l.unit) AS taken,
                      (SELECT -coalesce(sum(c.amount), 0) FROM ledger_lines c JOIN ledger_entries k USING (entry_id)
                       WHERE c.root = e.fact AND c.is_root = 0 AND c.unit = l.unit AND k.kind = 'import') AS taken_before
               FROM json_each(:ids) j CROSS JOIN ledger_entries e ON e.fact = 'grant:invoice:' || j.value
               JOIN ledger_lines l ON l.entry_id = e.entry_id ORDER BY l.unit";
    let lines = select(connection, sql, named_params! { ":ids": ids }, |row| {
        let unit = UnitGranted {
            unit: row.get("unit")?,
            granted: row.get("amount")?,
            taken: row.get("taken")?,
            taken_before: row.get("taken_before")?,
        };
        Ok((row.get::<_, InvoiceId>("invoice_id")?, row.get::<_, AccountId>("account_id")?, unit))
    })?;
    for (id, account, unit) in lines {
        let granted = &mut here.entry(id).or_default().granted;
        granted.get_or_insert_with(|| Granted { account, units: Vec::new() }).units.push(unit);
    }
    Ok(here)
}

/// An invoice of ours that is to be seen at Stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// The invoice.
    pub id: InvoiceId,
    /// It is neither paid nor void, so it can change at any time.
    pub is_open: bool,
}

/// The invoices that were made at or after `since`, or are open, after `after` in the order of their ids.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn expected_invoices(connection: &Connection, since: UnixSeconds, after: &str) -> Result<Vec<Unseen>, StoreError> {
    let sql = "SELECT invoice_id, status NOT IN ('paid', 'void') AS is_open FROM invoices
               WHERE invoice_id > :after AND (created_at >= :since OR status NOT IN ('paid', 'void'))
               ORDER BY invoice_id LIMIT :step";
    select(connection, sql, named_params! { ":after": after, ":since": since, ":step": STEP }, |row| {
        Ok(Unseen { id: row.get("invoice_id")?, is_open: row.get("is_open")? })
    })
}

/// Which of these checkout sessions are decided.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn decided_checkouts(connection: &Connection, ids: &[&str]) -> Result<HashSet<String>, StoreError> {
    let sql = "SELECT j.value FROM json_each(:ids) j
               WHERE EXISTS (SELECT 1 FROM checkouts c WHERE c.checkout_id = j.value)
                  OR EXISTS (SELECT 1 FROM ledger_entries e WHERE e.fact = 'grant:checkout:' || j.value)";
    let rows = select(connection, sql, named_params! { ":ids": json(ids)? }, |row| row.get(0))?;
    Ok(rows.into_iter().collect())
}

/// The refunds that were made at or after `since`, or can still change, after `after` in the order of their ids.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn expected_refunds(connection: &Connection, since: UnixSeconds, after: &str) -> Result<Vec<RefundId>, StoreError> {
    let sql = "SELECT refund_id FROM refunds
               WHERE refund_id > :after
                 AND (created_at >= :since OR coalesce(status, 'succeeded') NOT IN ('succeeded', 'failed', 'canceled'))
               ORDER BY refund_id LIMIT :step";
    select(connection, sql, named_params! { ":after": after, ":since": since, ":step": STEP }, |row| row.get(0))
}

/// The disputes that were told of at or after `since`, or can still change, after `after` in the order of their ids.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn expected_disputes(
    connection: &Connection,
    since: UnixSeconds,
    after: &str,
) -> Result<Vec<DisputeId>, StoreError> {
    let sql = "SELECT dispute_id FROM disputes
               WHERE dispute_id > :after
                 AND (snapshot_at >= :since OR status NOT IN ('won', 'lost', 'warning_closed', 'prevented'))
               ORDER BY dispute_id LIMIT :step";
    select(connection, sql, named_params! { ":after": after, ":since": since, ":step": STEP }, |row| row.get(0))
}

fn json(ids: &[&str]) -> Result<String, StoreError> {
    serde_json::to_string(ids)
        .map_err(|error| StoreError::Damaged { what: "a list of ids".into(), problem: error.to_string() })
}
