//! An operator says which of the user's own ids an account has; nothing that Stripe tells changes it afterwards.

use rusqlite::Transaction;
use serde::Serialize;
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decide;
use crate::domain::decision::Outcome;
use crate::domain::event::UnixSeconds;
use crate::domain::facts::{Reference, ReferenceStrength};
use crate::domain::ids::{AccountId, EventId};
use crate::ops::adjust::{AdjustError, find_account};
use crate::ops::apply::{Books, Cause};
use crate::store::events::{self, Claim, EventMeta, Source};
use crate::store::{Desk, StoreError, accounts, findings};

/// A reference has at most so many characters, as a value of Stripe's metadata.
const CHARS_MAX: usize = 500;

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// An account id or its present reference.
    pub account: String,
    /// The user's own id from now on; empty: the account has none.
    pub reference: String,
    /// Why; goes into the audit log.
    pub reason: String,
    /// Who.
    pub operator: String,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// The account.
    pub account_id: String,
    /// Its reference now.
    pub reference: Option<String>,
    /// Its reference before.
    pub before: Option<String>,
    /// Another live account with that reference, which a finding tells as well.
    pub shared_with: Option<String>,
    /// The event of the change; `None`: an operator had said the same before, and nothing changed.
    pub event_id: Option<String>,
}

/// Why it was not done.
#[derive(Debug, Error)]
pub enum NamingError {
    /// The account cannot be told.
    #[error(transparent)]
    Account(AdjustError),
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(&'static str),
    /// The database did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Gives an account a reference, or takes it away, for good.
///
/// `event` is a fresh id; it is used only if something changes.
///
/// # Errors
/// [`NamingError`]; then nothing has changed.
pub fn name(
    desk: &mut impl Desk,
    naming: &Naming,
    event: &EventId,
    livemode: bool,
    now: UnixMillis,
) -> Result<Named, NamingError> {
    let naming = Naming { reference: naming.reference.trim().to_owned(), ..naming.clone() };
    validate(&naming)?;
    let event = event.clone();
    desk.write(move |transaction| match change(transaction, &naming, &event, livemode, now) {
        Err(NamingError::Store(error) | NamingError::Account(AdjustError::Store(error))) => Err(error),
        done => Ok(done),
    })?
}

fn validate(naming: &Naming) -> Result<(), NamingError> {
    if naming.reason.trim().is_empty() {
        return Err(NamingError::Invalid("the reason is empty; give a text for the audit log"));
    }
    if naming.reference.chars().count() > CHARS_MAX || naming.reference.chars().any(char::is_control) {
        return Err(NamingError::Invalid("a reference has at most 500 characters, and no control characters"));
    }
    Ok(())
}

fn change(
    transaction: &Transaction<'_>,
    naming: &Naming,
    event: &EventId,
    livemode: bool,
    now: UnixMillis,
) -> Result<Named, NamingError> {
    let account = find_account(transaction, &naming.account).map_err(NamingError::Account)?;
    let held = accounts::held(transaction, &account)?.and_then(|held| held.reference);
    let reference = Reference { text: naming.reference.clone(), strength: ReferenceStrength::Operator, at: now / 1000 };
    let is_said =
        held.as_ref().is_some_and(|held| (held.strength, &held.text) == (reference.strength, &reference.text));
    let before = text_of(held);
    if !is_said {
        let meta = EventMeta {
            id: event,
            source: Source::Operator,
            kind: "operator.reference",
            api_version: None,
            livemode,
            stripe_account: None,
            object_id: Some(account.as_str()),
            account: Some(&account),
            created: now / 1000,
            received: now,
        };
        if events::complete(transaction, &meta, Outcome::Applied, Some(&naming.reason), now)? == Claim::Lost {
            return Err(NamingError::Invalid("the id of this command was used before; try again"));
        }
        accounts::set_reference(transaction, &account, &reference)?;
        let detail = Detail { before: before.as_deref(), after: &reference.text, why: &naming.reason };
        let cause = Cause { event: &meta, actor: &format!("operator:{}", naming.operator) };
        Books { connection: transaction, now, chain: None }.audit(
            cause,
            "account.reference",
            account.as_str(),
            &detail,
        )?;
    }
    let shared_with = settle(transaction, &account, before.as_deref(), &reference.text, now / 1000)?;
    Ok(Named {
        account_id: account.to_string(),
        reference: text_of(Some(reference)),
        before,
        shared_with: shared_with.map(|other| other.to_string()),
        event_id: (!is_said).then(|| event.to_string()),
    })
}

fn text_of(reference: Option<Reference>) -> Option<String> {
    reference.map(|reference| reference.text).filter(|text| !text.is_empty())
}

/// Tells whether the reference is shared now, and no longer what the change has ended; returns with whom.
fn settle(
    transaction: &Transaction<'_>,
    account: &AccountId,
    before: Option<&str>,
    after: &str,
    now: UnixSeconds,
) -> Result<Option<AccountId>, StoreError> {
    if let Some(before) = before.filter(|before| *before != after)
        && let Some(left) = accounts::namesake(transaction, before, account)?
        && accounts::namesake(transaction, before, &left)?.is_none()
    {
        findings::resolve(transaction, decide::SHARED_REFERENCE, left.as_str(), now)?;
    }
    let other = accounts::namesake(transaction, after, account)?;
    match &other {
        Some(other) => findings::open(transaction, &decide::shared_reference(account, other, after), now)?,
        None => findings::resolve(transaction, decide::SHARED_REFERENCE, account.as_str(), now)?,
    }
    Ok(other)
}

#[derive(Serialize)]
struct Detail<'a> {
    before: Option<&'a str>,
    after: &'a str,
    why: &'a str,
}
