//! Accounts: Stripe's customers, with the user's own id for them.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use crate::domain::event::UnixSeconds;
use crate::domain::facts::{AccountHeld, Reference, ReferenceStrength};
use crate::domain::ids::AccountId;
use crate::store::StoreError;

fn strength_code(strength: ReferenceStrength) -> i64 {
    match strength {
        ReferenceStrength::ClientReferenceId => 1,
        ReferenceStrength::Metadata => 2,
        ReferenceStrength::Operator => 3,
    }
}

fn strength_of(code: i64) -> ReferenceStrength {
    match code {
        1 => ReferenceStrength::ClientReferenceId,
        2 => ReferenceStrength::Metadata,
        _ => ReferenceStrength::Operator,
    }
}

/// Reads the columns `reference`, `reference_strength`, `reference_at`, `deleted_at`.
pub(crate) fn held_from_row(row: &Row<'_>) -> rusqlite::Result<AccountHeld> {
    let reference: Option<String> = row.get("reference")?;
    let strength: i64 = row.get("reference_strength")?;
    let at: Option<UnixSeconds> = row.get("reference_at")?;
    Ok(AccountHeld {
        // Where an operator took it away there is a strength without a text.
        reference: (strength > 0).then(|| Reference {
            text: reference.unwrap_or_default(),
            strength: strength_of(strength),
            at: at.unwrap_or_default(),
        }),
        deleted: row.get::<_, Option<UnixSeconds>>("deleted_at")?.is_some(),
    })
}

/// An account as we hold it.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn held(connection: &Connection, account: &AccountId) -> Result<Option<AccountHeld>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT reference, reference_strength, reference_at, deleted_at FROM accounts WHERE account_id = :account",
        )?
        .query_row(named_params! { ":account": account }, held_from_row)
        .optional()?)
}

/// How many accounts there are.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn count(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.prepare_cached("SELECT count(*) FROM accounts")?.query_row([], |row| row.get(0))?)
}

/// The plan that an account is on.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn tier(connection: &Connection, account: &AccountId) -> Result<Option<String>, StoreError> {
    let tier: Option<Option<String>> = connection
        .prepare_cached("SELECT tier FROM accounts WHERE account_id = :account")?
        .query_row(named_params! { ":account": account }, |row| row.get("tier"))
        .optional()?;
    Ok(tier.flatten())
}

/// The account exists from now on.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open(connection: &Connection, account: &AccountId) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO accounts (account_id) VALUES (:account) ON CONFLICT (account_id) DO NOTHING")?
        .execute(named_params! { ":account": account })?;
    Ok(())
}

/// Sets the user's own id, or takes it away if the text is empty; opens the account if need be.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn set_reference(connection: &Connection, account: &AccountId, reference: &Reference) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO accounts (account_id, reference, reference_strength, reference_at)
             VALUES (:account, nullif(:reference, ''), :strength, :at)
             ON CONFLICT (account_id) DO UPDATE SET
                 reference = excluded.reference, reference_strength = excluded.reference_strength,
                 reference_at = excluded.reference_at",
        )?
        .execute(named_params! {
            ":account": account, ":reference": reference.text, ":strength": strength_code(reference.strength),
            ":at": reference.at,
        })?;
    Ok(())
}

/// The customer was deleted at Stripe.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn close(connection: &Connection, account: &AccountId, at: UnixSeconds) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE accounts SET deleted_at = coalesce(deleted_at, :at) WHERE account_id = :account")?
        .execute(named_params! { ":account": account, ":at": at })?;
    Ok(())
}

/// Another live account with the same reference.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn namesake(connection: &Connection, reference: &str, but: &AccountId) -> Result<Option<AccountId>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT account_id FROM accounts
             WHERE reference = :reference AND account_id <> :but AND deleted_at IS NULL ORDER BY account_id LIMIT 1",
        )?
        .query_row(named_params! { ":reference": reference, ":but": but }, |row| row.get("account_id"))
        .optional()?)
}

/// The accounts that an id or a reference names: at most one by id, else those with the best claim to that reference.
///
/// A live account is before a deleted one, and the stronger source before the weaker, so that nobody who may choose a
/// reference can lock out whom the merchant gave it. `v_references` holds the same for whoever reads by SQL.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn named(connection: &Connection, name: &str) -> Result<Vec<AccountId>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT account_id FROM accounts WHERE account_id = :name
         UNION ALL
         SELECT account_id
         FROM (SELECT account_id, rank() OVER (ORDER BY deleted_at IS NOT NULL, reference_strength DESC) AS place
               FROM accounts WHERE reference = :name)
         WHERE place = 1 AND NOT EXISTS (SELECT 1 FROM accounts WHERE account_id = :name)
         ORDER BY 1",
    )?;
    let rows = statement.query_map(named_params! { ":name": name }, |row| row.get("account_id"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
