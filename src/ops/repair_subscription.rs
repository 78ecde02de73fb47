//! Brings one subscription to the state that Stripe tells now, or to one that it had before, by an event of an operator
//! under the same rules: it counts as the newest snapshot, and whatever Stripe tells later wins.

use jiff::Timestamp;
use rusqlite::{Connection, Transaction};
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::event::{Body, Event, Subscription, SubscriptionItem, Trace, Unit, UnixSeconds};
use crate::domain::facts::Asked;
use crate::domain::ids::{EventId, SubscriptionId};
use crate::domain::subscription::{Item, State};
use crate::ops::ingest::{Answer, Delivery, Errand};
use crate::store::events::Source;
use crate::store::{Desk, StoreError, accounts, savepoint, subscriptions};
use crate::stripe::ask::{self, NoAnswer};
use crate::stripe::client::{Api, Dated};

/// A state that a subscription should have.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// What it is.
    subscription: Subscription,
    /// Since when it counts.
    at: UnixSeconds,
    /// Who tells it, for people.
    told_by: String,
}

/// How a subscription differs, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// `sub_…`
    pub subscription_id: String,
    /// What it was compared with.
    pub compared_with: String,
    /// What differs; empty: nothing.
    pub differences: Vec<Difference>,
    /// The event that brought the other state; `None`: nothing was changed.
    pub event_id: Option<String>,
}

/// A column that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name, as in `v_subscriptions`; `account_tier` is the tier of its account.
    pub column: &'static str,
    /// What it is here.
    pub here: Option<String>,
    /// What it would be, or is now.
    pub there: Option<String>,
}

/// Why it was not compared, or not repaired.
#[derive(Debug, Error)]
pub enum RepairError {
    /// Stripe does not have it.
    #[error("Stripe has no subscription {0}; if you know it, the key belongs to another account or mode")]
    NotAtStripe(SubscriptionId),
    /// The row of the audit log is none of it.
    #[error(
        "row {seq} of the audit log tells no state of subscription {id}; `billingd audit list` shows the rows of the \
         action `subscription`"
    )]
    NotAudited {
        /// The subscription.
        id: SubscriptionId,
        /// The row.
        seq: i64,
    },
    /// What is known beats it.
    #[error(
        "subscription {0} stays as it is: an event told something later, or it has ended for good; nothing is changed"
    )]
    Newer(SubscriptionId),
    /// The rules did not decide.
    #[error("the state of subscription {id} cannot be taken: {why}; nothing is changed")]
    Undecided {
        /// The subscription.
        id: SubscriptionId,
        /// Why.
        why: String,
    },
    /// Stripe did not tell.
    #[error("Stripe did not tell of the subscription: {0}")]
    NoAnswer(NoAnswer),
    /// The database did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<NoAnswer> for RepairError {
    fn from(error: NoAnswer) -> Self {
        Self::NoAnswer(error)
    }
}

/// The state at Stripe, now.
///
/// # Errors
/// [`RepairError`].
pub fn at_stripe(
    connection: &Connection,
    api: &dyn Api,
    id: &SubscriptionId,
    now: UnixMillis,
) -> Result<Wanted, RepairError> {
    // Read before Stripe is asked: what is known by then is in the answer.
    let known_at = known_at(connection, id)?;
    let Asked::Told(Dated { told: subscription, date }) = ask::subscription(api, id)? else {
        return Err(RepairError::NotAtStripe(id.clone()));
    };
    // A clock that is ahead must not put this before what Stripe tells in the next minutes.
    let asked_at = date.map_or(now / 1000, |told| told.min(now / 1000));
    Ok(Wanted { subscription, at: after(known_at, asked_at), told_by: "Stripe".into() })
}

/// The state that row `seq` of the audit log tells.
///
/// # Errors
/// [`RepairError::NotAudited`] or [`RepairError::Store`].
pub fn audited(connection: &Connection, id: &SubscriptionId, seq: i64, now: UnixMillis) -> Result<Wanted, RepairError> {
    let state = subscriptions::audited(connection, id, seq)?;
    let state = state.ok_or_else(|| RepairError::NotAudited { id: id.clone(), seq })?;
    let at = after(known_at(connection, id)?, now / 1000);
    Ok(Wanted { subscription: as_told(id, state), at, told_by: format!("row {seq} of the audit log") })
}

fn known_at(connection: &Connection, id: &SubscriptionId) -> Result<Option<UnixSeconds>, StoreError> {
    Ok(subscriptions::held(connection, id)?.0.newest.first().map(|snapshot| snapshot.at))
}

/// Newer than what is known, even if the clock of this machine is behind Stripe's.
fn after(known_at: Option<UnixSeconds>, now: UnixSeconds) -> UnixSeconds {
    known_at.map_or(now, |at| now.max(at + 1))
}

fn as_told(id: &SubscriptionId, state: State) -> Subscription {
    let item = |item: Item| SubscriptionItem {
        id: item.id,
        price: item.price,
        unit: Unit::Untold,
        currency: None,
        quantity: item.quantity,
    };
    Subscription {
        id: id.clone(),
        customer: state.account,
        status: state.status,
        items: state.items.into_iter().map(item).collect(),
        items_truncated: false,
        current_period_end: state.current_period_end,
        cancel_at: None,
        cancel_at_period_end: false,
        ended_at: state.ends_at,
        collection_paused: state.collection_paused,
        reference: None,
        trace: Trace::default(),
    }
}

/// Brings the state, if anything differs. `event` is a fresh id; it is used only then.
///
/// # Errors
/// [`RepairError`]; then nothing has changed.
pub fn apply(
    desk: &mut impl Desk,
    errand: &Errand,
    wanted: &Wanted,
    event: &EventId,
    now: UnixMillis,
) -> Result<Repaired, RepairError> {
    let mut repaired = run(desk, errand, wanted, event, now, |repaired| !repaired.differences.is_empty())?;
    if !repaired.differences.is_empty() {
        errand.run_woken(desk, now)?;
        repaired.event_id = Some(event.to_string());
    }
    Ok(repaired)
}

/// Shows what [`apply`] would do, by doing it and taking it back.
///
/// # Errors
/// [`RepairError`].
pub fn rehearse(
    desk: &mut impl Desk,
    errand: &Errand,
    wanted: &Wanted,
    event: &EventId,
    now: UnixMillis,
) -> Result<Repaired, RepairError> {
    run(desk, errand, wanted, event, now, |_| false)
}

/// Runs the event in one transaction; what `is_kept` does not want is taken back.
fn run(
    desk: &mut impl Desk,
    errand: &Errand,
    wanted: &Wanted,
    event: &EventId,
    now: UnixMillis,
    is_kept: fn(&Repaired) -> bool,
) -> Result<Repaired, RepairError> {
    let (errand, wanted, event) = (errand.clone(), wanted.clone(), event.clone());
    desk.write(move |transaction| {
        savepoint::begin(transaction)?;
        let repaired = match bring(transaction, &errand, &wanted, &event, now) {
            Err(RepairError::Store(error)) => return Err(error),
            other => other,
        };
        if repaired.as_ref().is_ok_and(is_kept) {
            savepoint::keep(transaction)?;
        } else {
            savepoint::take_back(transaction)?;
        }
        Ok(repaired)
    })?
}

fn bring(
    transaction: &Transaction<'_>,
    errand: &Errand,
    wanted: &Wanted,
    event: &EventId,
    now: UnixMillis,
) -> Result<Repaired, RepairError> {
    let id = &wanted.subscription.id;
    let before = columns(transaction, id)?;
    let answers = errand.run(transaction, &[delivery(errand, wanted, event, now)], now)?.answers;
    let undecided = |why: String| RepairError::Undecided { id: id.clone(), why };
    match answers.into_iter().next() {
        Some(Answer::Completed { outcome: Outcome::Stale, .. }) => return Err(RepairError::Newer(id.clone())),
        Some(Answer::Completed { outcome: Outcome::Ignored, reason }) => {
            return Err(undecided(reason.unwrap_or_else(|| "it is not for these books".into())));
        }
        Some(Answer::Completed { .. }) => {}
        Some(Answer::Pending { needs }) => return Err(undecided(format!("it would wait for {needs}"))),
        Some(Answer::Failed { code, .. } | Answer::DeadLetter { code, .. }) => return Err(undecided(code.into())),
        Some(Answer::Duplicate { .. }) | None => {
            return Err(undecided("the id of this command was used before; try again".into()));
        }
    }
    let after = columns(transaction, id)?;
    let differences = before.into_iter().zip(after).filter(|((_, here), (_, there))| here != there);
    Ok(Repaired {
        subscription_id: id.to_string(),
        compared_with: wanted.told_by.clone(),
        differences: differences.map(|((column, here), (_, there))| Difference { column, here, there }).collect(),
        event_id: None,
    })
}

fn delivery(errand: &Errand, wanted: &Wanted, event: &EventId, now: UnixMillis) -> Delivery {
    let policy = &errand.rules().policy;
    let event = Event {
        id: event.clone(),
        kind: "operator.repair".into(),
        created: wanted.at,
        livemode: policy.livemode,
        stripe_account: policy.connected_account.clone(),
        api_version: None,
        object_id: Some(wanted.subscription.id.to_string()),
        body: Body::Subscription(wanted.subscription.clone()),
    };
    Delivery { event, payload: None, source: Source::Operator, received: now }
}

/// What people see of a subscription, column by column.
fn columns(connection: &Connection, id: &SubscriptionId) -> Result<Vec<(&'static str, Option<String>)>, StoreError> {
    let (_, standing) = subscriptions::held(connection, id)?;
    let state = standing.as_ref().map(|standing| &standing.state);
    let account = state.and_then(|state| state.account.as_ref());
    let account_tier = account.map(|account| accounts::tier(connection, account)).transpose()?.flatten();
    let pending = standing.as_ref().and_then(|standing| standing.pending.as_ref());
    Ok(vec![
        ("account_id", account.map(ToString::to_string)),
        ("status", state.map(|state| state.status.clone())),
        ("items", state.map(|state| state.items.iter().map(item).collect::<Vec<_>>().join(", "))),
        ("current_period_end", state.and_then(|state| state.current_period_end).map(time)),
        ("ends_at", state.and_then(|state| state.ends_at).map(time)),
        ("collection_paused", state.map(|state| if state.collection_paused { "yes" } else { "no" }.to_owned())),
        ("tier", standing.as_ref().and_then(|standing| standing.tier.clone())),
        ("pending_tier", pending.and_then(|pending| pending.tier.clone())),
        ("pending_tier_at", pending.map(|pending| time(pending.at))),
        ("account_tier", account_tier),
    ])
}

fn item(item: &Item) -> String {
    match item.quantity {
        Some(quantity) => format!("{} × {quantity} ({})", item.price.id, item.id),
        None => format!("{} ({})", item.price.id, item.id),
    }
}

fn time(at: UnixSeconds) -> String {
    Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}
