//! Subscriptions as they stand, what orders their snapshots, and the tiers that follow.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use crate::domain::event::{PriceRef, UnixSeconds};
use crate::domain::ids::{AccountId, EventId, InvoiceId, PriceId, SubscriptionId};
use crate::domain::subscription::{Contribution, Known, PaidPeriod, Pending, Standing, State};
use crate::store::StoreError;
use crate::store::snapshots::{ListedText, SnapshotText, StateText, from_json, to_json};

/// What is known of a subscription, and how it stands in the books.
///
/// # Errors
/// [`StoreError::Sql`]; [`StoreError::Damaged`] for snapshots that were not written by [`save`].
pub fn held(connection: &Connection, id: &SubscriptionId) -> Result<(Known, Option<Standing>), StoreError> {
    let row: Option<(String, Option<String>, Option<String>)> = connection
        .prepare_cached("SELECT newest, listed, told FROM subscription_snapshots WHERE subscription_id = :id")?
        .query_row(named_params! { ":id": id }, |row| Ok((row.get("newest")?, row.get("listed")?, row.get("told")?)))
        .optional()?;
    let Some((newest, listed, told)) = row else { return Ok((Known::default(), None)) };
    let known = Known {
        newest: from_json::<Vec<SnapshotText>>(id, &newest)?
            .into_iter()
            .map(|text| text.snapshot(id))
            .collect::<Result<_, _>>()?,
        listed: match listed {
            Some(listed) => Some(from_json::<ListedText>(id, &listed)?.listed(id)?),
            None => None,
        },
        told: match told {
            Some(told) => Some(from_json::<StateText>(id, &told)?.state(id)?),
            None => None,
        },
    };
    let standing = standing(connection, id, &known)?;
    Ok((known, standing))
}

fn standing(connection: &Connection, id: &SubscriptionId, known: &Known) -> Result<Option<Standing>, StoreError> {
    let Some(current) = known.current() else { return Ok(None) };
    let tier_item: Option<i64> = connection
        .prepare_cached("SELECT position FROM subscription_items WHERE subscription_id = :id AND gives_tier = 1")?
        .query_row(named_params! { ":id": id }, |row| row.get("position"))
        .optional()?;
    Ok(connection
        .prepare_cached(
            "SELECT tier, pending_tier, pending_tier_at, snapshot_at, source_event_id,
                    EXISTS (SELECT 1 FROM findings f WHERE f.kind = 'unlisted_price'
                            AND f.subject = subscription_id AND f.status <> 'resolved') AS unlisted
             FROM subscriptions WHERE subscription_id = :id",
        )?
        .query_row(named_params! { ":id": id }, |row| {
            let pending_at: Option<UnixSeconds> = row.get("pending_tier_at")?;
            let pending_tier: Option<String> = row.get("pending_tier")?;
            Ok(Standing {
                id: id.clone(),
                state: current.state.clone(),
                tier_item: tier_item.and_then(|position| usize::try_from(position).ok()),
                tier: row.get("tier")?,
                pending: pending_at.map(|at| Pending { tier: pending_tier, at }),
                unlisted: row.get("unlisted")?,
                source: row.get("source_event_id")?,
                snapshot_at: row.get("snapshot_at")?,
            })
        })
        .optional()?)
}

/// The state that a subscription had after row `seq` of the audit log; `None`: the row tells none of it.
///
/// # Errors
/// [`StoreError::Sql`]; [`StoreError::Damaged`] when the row cannot be read.
pub fn audited(connection: &Connection, id: &SubscriptionId, seq: i64) -> Result<Option<State>, StoreError> {
    #[derive(serde::Deserialize)]
    struct Detail {
        after: StateText,
    }
    let detail: Option<String> = connection
        .prepare_cached("SELECT detail FROM audit_log WHERE seq = :seq AND action = 'subscription' AND subject = :id")?
        .query_row(named_params! { ":seq": seq, ":id": id }, |row| row.get("detail"))
        .optional()?;
    detail.map(|detail| from_json::<Detail>(id, &detail)?.after.state(id)).transpose()
}

/// Keeps what is known of a subscription, and how it stands: all columns together.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save(connection: &Connection, known: &Known, standing: &Standing) -> Result<(), StoreError> {
    restand(connection, standing)?;
    let newest: Vec<SnapshotText> = known.newest.iter().map(SnapshotText::of).collect();
    let listed = known.listed.as_ref().map(ListedText::of).map(|listed| to_json(&listed)).transpose()?;
    let told = known.told.as_ref().map(StateText::of).map(|told| to_json(&told)).transpose()?;
    connection
        .prepare_cached(
            "INSERT INTO subscription_snapshots (subscription_id, newest, listed, told)
             VALUES (:id, :newest, :listed, :told)
             ON CONFLICT (subscription_id) DO UPDATE SET newest = excluded.newest, listed = excluded.listed,
                 told = excluded.told",
        )?
        .execute(named_params! {
            ":id": standing.id, ":newest": to_json(&newest)?, ":listed": listed, ":told": told,
        })?;
    connection
        .prepare_cached("DELETE FROM subscription_items WHERE subscription_id = :id")?
        .execute(named_params! { ":id": standing.id })?;
    for (position, item) in standing.state.items.iter().enumerate() {
        connection
            .prepare_cached(
                "INSERT INTO subscription_items (subscription_id, position, item_id, price_id, quantity, gives_tier)
                 VALUES (:id, :position, :item, :price, :quantity, :gives_tier)",
            )?
            .execute(named_params! {
                ":id": standing.id, ":position": i64::try_from(position).unwrap_or(i64::MAX), ":item": item.id,
                ":price": item.price.id, ":quantity": item.quantity,
                ":gives_tier": standing.tier_item == Some(position),
            })?;
    }
    Ok(())
}

/// Keeps how a subscription stands, when its snapshots are as before.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn restand(connection: &Connection, standing: &Standing) -> Result<(), StoreError> {
    let pending = standing.pending.as_ref();
    connection
        .prepare_cached(
            "INSERT INTO subscriptions (subscription_id, account_id, status, tier, current_period_end, ends_at,
                                        collection_paused, pending_tier, pending_tier_at, snapshot_at, source_event_id)
             VALUES (:id, :account, :status, :tier, :period_end, :ends_at, :paused, :pending_tier, :pending_at, :at,
                     :source)
             ON CONFLICT (subscription_id) DO UPDATE SET
                 account_id = excluded.account_id, status = excluded.status, tier = excluded.tier,
                 current_period_end = excluded.current_period_end, ends_at = excluded.ends_at,
                 collection_paused = excluded.collection_paused, pending_tier = excluded.pending_tier,
                 pending_tier_at = excluded.pending_tier_at, snapshot_at = excluded.snapshot_at,
                 source_event_id = excluded.source_event_id",
        )?
        .execute(named_params! {
            ":id": standing.id, ":account": standing.state.account, ":status": standing.state.status,
            ":tier": standing.tier, ":period_end": standing.state.current_period_end,
            ":ends_at": standing.state.ends_at, ":paused": standing.state.collection_paused,
            ":pending_tier": pending.and_then(|pending| pending.tier.as_deref()),
            ":pending_at": pending.map(|pending| pending.at), ":at": standing.snapshot_at,
            ":source": standing.source,
        })?;
    Ok(())
}

/// The subscriptions of an account but for one, as far as they decide about its tier.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn others(
    connection: &Connection,
    account: &AccountId,
    but: &SubscriptionId,
) -> Result<Vec<Contribution>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT subscription_id, status, collection_paused, tier FROM subscriptions
         WHERE account_id = :account AND subscription_id <> :but",
    )?;
    let rows = statement.query_map(named_params! { ":account": account, ":but": but }, |row| {
        Ok(Contribution {
            id: row.get("subscription_id")?,
            status: row.get("status")?,
            collection_paused: row.get("collection_paused")?,
            tier: row.get("tier")?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Keeps what an invoice of a subscription paid for.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_paid_periods(
    connection: &Connection,
    id: &SubscriptionId,
    periods: &[PaidPeriod],
) -> Result<(), StoreError> {
    for period in periods {
        connection
            .prepare_cached(
                "INSERT INTO paid_periods (subscription_id, invoice_id, price_id, product_id, lookup_key, starts_at,
                                           ends_at)
                 VALUES (:id, :invoice, :price, :product, :lookup_key, :starts_at, :ends_at)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(named_params! {
                ":id": id, ":invoice": period.invoice, ":price": period.price.id, ":product": period.price.product,
                ":lookup_key": period.price.lookup_key, ":starts_at": period.starts_at, ":ends_at": period.ends_at,
            })?;
    }
    Ok(())
}

/// What was paid for of a subscription.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn paid_periods(connection: &Connection, id: &SubscriptionId) -> Result<Vec<PaidPeriod>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT invoice_id, price_id, product_id, lookup_key, starts_at, ends_at FROM paid_periods
         WHERE subscription_id = :id",
    )?;
    let rows = statement.query_map(named_params! { ":id": id }, |row: &Row<'_>| {
        Ok(PaidPeriod {
            invoice: row.get::<_, InvoiceId>("invoice_id")?,
            price: PriceRef {
                id: row.get::<_, PriceId>("price_id")?,
                product: row.get("product_id")?,
                lookup_key: row.get("lookup_key")?,
            },
            starts_at: row.get("starts_at")?,
            ends_at: row.get("ends_at")?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The subscriptions whose held tier ends at or before `now`, the earliest first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn due(
    connection: &Connection,
    now: UnixSeconds,
    limit: usize,
) -> Result<Vec<(SubscriptionId, UnixSeconds)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT subscription_id, pending_tier_at FROM subscriptions WHERE pending_tier_at <= :now
         ORDER BY pending_tier_at, subscription_id LIMIT :limit",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(named_params! { ":now": now, ":limit": limit }, |row| {
        Ok((row.get("subscription_id")?, row.get("pending_tier_at")?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// When the next held tier ends; `None`: none is held.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn next_due(connection: &Connection) -> Result<Option<UnixSeconds>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT min(pending_tier_at) FROM subscriptions WHERE pending_tier_at IS NOT NULL")?
        .query_row([], |row| row.get(0))?)
}

/// Changes the plan of an account, if it still is on the one that it leaves, and records the change.
///
/// # Errors
/// [`StoreError::Damaged`] when the account is on another plan: then nothing has changed.
pub fn change_tier(
    connection: &Connection,
    account: &AccountId,
    from: Option<&str>,
    to: Option<&str>,
    source: &EventId,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    let changed = connection
        .prepare_cached("UPDATE accounts SET tier = :to WHERE account_id = :account AND tier IS :from")?
        .execute(named_params! { ":account": account, ":from": from, ":to": to })?;
    if changed == 0 {
        return Err(StoreError::Damaged {
            what: format!("the tier of account {account}"),
            problem: format!("it is not {} any more", from.unwrap_or("none")),
        });
    }
    connection
        .prepare_cached(
            "INSERT INTO tier_changes (account_id, from_tier, to_tier, source_event_id, at)
             VALUES (:account, :from, :to, :source, :at)",
        )?
        .execute(named_params! { ":account": account, ":from": from, ":to": to, ":source": source, ":at": now })?;
    Ok(())
}
