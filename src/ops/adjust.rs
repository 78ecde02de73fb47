//! An operator's entry: credits given or taken by hand, idempotent by a key of the operator's choice.

use rusqlite::{Connection, Transaction};
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::fact::Fact;
use crate::domain::grant::GrantLine;
use crate::domain::ids::{AccountId, EventId};
use crate::domain::words::quoted;
use crate::ops::apply::to_json;
use crate::store::audit::{self, Record};
use crate::store::events::{self, Claim, EventMeta, Source};
use crate::store::ledger::{self, Entry, Posted};
use crate::store::{Desk, StoreError, accounts};

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjustment {
    /// An account id or a reference.
    pub account: String,
    /// Positive gives, negative takes; never 0.
    pub amount: i64,
    /// The unit of the amount.
    pub unit: String,
    /// Why; goes into the audit log.
    pub reason: String,
    /// Makes the entry idempotent, over all accounts.
    pub key: String,
    /// Whether it may take more than is available.
    pub allow_debt: bool,
    /// Who.
    pub operator: String,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Adjusted {
    /// The account.
    pub account_id: String,
    /// The event of the entry.
    pub event_id: String,
    /// False: the same was done before, and nothing changed.
    pub new: bool,
    /// The unit.
    pub unit: String,
    /// What was posted.
    pub amount: i64,
    /// The balance in the unit, now.
    pub balance: i64,
    /// What of it can be spent; never below 0.
    pub available: i64,
}

/// Why it was not done.
#[derive(Debug, Error)]
pub enum AdjustError {
    /// No account has this id or reference.
    #[error("there is no account {}; `billingd accounts list` shows all", quoted(.0))]
    UnknownAccount(String),
    /// Several accounts have this reference.
    #[error(
        "the reference {} belongs to several accounts ({}); name one of them by its id",
        quoted(reference),
        quoted(&accounts.join(", "))
    )]
    AmbiguousAccount {
        /// The reference.
        reference: String,
        /// Their ids.
        accounts: Vec<String>,
    },
    /// More is needed than there is, and no debt is allowed.
    #[error("{needed} {} are needed and {available} are available; nothing is posted", quoted(unit))]
    Insufficient {
        /// What was to be taken.
        needed: u64,
        /// What can be spent.
        available: i64,
        /// The unit of both.
        unit: String,
    },
    /// The key was used for something else.
    #[error("the key {} was used for {}; choose another key, or repeat exactly that", quoted(key), quoted(held))]
    KeyTaken {
        /// The key.
        key: String,
        /// What it was used for.
        held: String,
    },
    /// What was asked for makes no entry.
    #[error("{0}")]
    Invalid(&'static str),
    /// The database did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Posts an adjustment, or finds that it was posted before.
///
/// `event` is a fresh id; it is used only if the key is new.
///
/// # Errors
/// [`AdjustError`]; then nothing has changed.
pub fn adjust(
    desk: &mut impl Desk,
    adjustment: &Adjustment,
    event: &EventId,
    livemode: bool,
    now: UnixMillis,
) -> Result<Adjusted, AdjustError> {
    validate(adjustment)?;
    let (adjustment, event) = (adjustment.clone(), event.clone());
    desk.write(move |transaction| match post(transaction, &adjustment, &event, livemode, now) {
        // Only this takes back what was written; what else is refused is refused before anything is.
        Err(AdjustError::Store(error)) => Err(error),
        done => Ok(done),
    })?
}

fn post(
    transaction: &Transaction<'_>,
    adjustment: &Adjustment,
    event: &EventId,
    livemode: bool,
    now: UnixMillis,
) -> Result<Adjusted, AdjustError> {
    let account = find_account(transaction, &adjustment.account)?;
    let fact = Fact::adjustment(&adjustment.key);
    let balance = ledger::balance(transaction, &account, &adjustment.unit)?;
    if let Some(held) = ledger::standing(transaction, &fact)? {
        if (&held.account, held.unit.as_str(), held.amount) != (&account, adjustment.unit.as_str(), adjustment.amount) {
            return Err(AdjustError::KeyTaken {
                key: adjustment.key.clone(),
                held: format!("{} {} of {}", held.amount, held.unit, held.account),
            });
        }
        return Ok(adjusted(adjustment, &account, &held.source, false, balance));
    }
    if !adjustment.allow_debt {
        require(adjustment, balance)?;
    }
    if balance.checked_add(adjustment.amount).is_none() {
        return Err(AdjustError::Invalid("the balance would be beyond what can be counted; nothing is posted"));
    }
    let meta = EventMeta {
        id: event,
        source: Source::Operator,
        kind: "operator.adjustment",
        api_version: None,
        livemode,
        stripe_account: None,
        object_id: None,
        account: Some(&account),
        created: now / 1000,
        received: now,
    };
    if events::complete(transaction, &meta, Outcome::Applied, Some(&adjustment.reason), now)? == Claim::Lost {
        return Err(AdjustError::Invalid("the id of this command was used before; try again"));
    }
    let line = GrantLine::plain(&adjustment.unit, adjustment.amount);
    let entry =
        Entry { account: &account, kind: "adjustment", fact: &fact, root: &fact, source: event, at: now / 1000 };
    let posted = ledger::post(transaction, &entry, &[line])?;
    record(transaction, adjustment, &account, event, &posted, now)?;
    let balance = posted.first().map_or(balance, |line| line.after);
    Ok(adjusted(adjustment, &account, event, true, balance))
}

fn adjusted(adjustment: &Adjustment, account: &AccountId, event: &EventId, new: bool, balance: i64) -> Adjusted {
    Adjusted {
        account_id: account.to_string(),
        event_id: event.to_string(),
        new,
        unit: adjustment.unit.clone(),
        amount: adjustment.amount,
        balance,
        available: balance.max(0),
    }
}

/// What is taken must be there.
fn require(adjustment: &Adjustment, balance: i64) -> Result<(), AdjustError> {
    let available = balance.max(0);
    // Something positive and something negative always have a sum.
    if adjustment.amount < 0 && available.saturating_add(adjustment.amount) < 0 {
        let needed = adjustment.amount.unsigned_abs();
        return Err(AdjustError::Insufficient { needed, available, unit: adjustment.unit.clone() });
    }
    Ok(())
}

fn validate(adjustment: &Adjustment) -> Result<(), AdjustError> {
    if adjustment.amount == 0 {
        return Err(AdjustError::Invalid("an amount of 0 changes nothing; give a number such as -40"));
    }
    for (text, problem) in [
        (&adjustment.key, "the key is empty; give a text that names this change, such as ticket-17"),
        (&adjustment.reason, "the reason is empty; give a text for the audit log"),
        (&adjustment.unit, "the unit is empty; give a name such as credits"),
    ] {
        if text.trim().is_empty() {
            return Err(AdjustError::Invalid(problem));
        }
    }
    Ok(())
}

/// The one account that an id or a reference names.
///
/// # Errors
/// [`AdjustError::UnknownAccount`] or [`AdjustError::AmbiguousAccount`].
pub fn find_account(connection: &Connection, name: &str) -> Result<AccountId, AdjustError> {
    let mut named = accounts::named(connection, name)?;
    match (named.pop(), named.is_empty()) {
        (Some(account), true) => Ok(account),
        (None, _) => Err(AdjustError::UnknownAccount(name.into())),
        (Some(last), false) => {
            named.push(last);
            let accounts = named.iter().map(AccountId::to_string).collect();
            Err(AdjustError::AmbiguousAccount { reference: name.into(), accounts })
        }
    }
}

#[derive(Serialize)]
struct Detail<'a> {
    key: &'a str,
    lines: &'a [Posted],
    why: &'a str,
}

fn record(
    connection: &Connection,
    adjustment: &Adjustment,
    account: &AccountId,
    event: &EventId,
    posted: &[Posted],
    now: UnixMillis,
) -> Result<(), StoreError> {
    let detail = to_json(&Detail { key: &adjustment.key, lines: posted, why: &adjustment.reason })?;
    let record = Record {
        at: now / 1000,
        actor: &format!("operator:{}", adjustment.operator),
        action: "adjustment",
        subject: account.as_str(),
        event_id: Some(event.as_str()),
        detail: &detail,
    };
    audit::append(connection, audit::head(connection)?, &record)?;
    Ok(())
}
