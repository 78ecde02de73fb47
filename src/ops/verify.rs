//! The proof that the books are whole.

use rusqlite::Connection;
use serde::Serialize;

use crate::store::audit::{self, GENESIS, Head};
use crate::store::verify::{self, Proven};
use crate::store::{StoreError, views};

/// What was proven, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Nothing is violated.
    pub clean: bool,
    /// Each proof in its order.
    pub proofs: Vec<Proven>,
    /// The number of the last audit row.
    pub audit_rows: i64,
    /// The hash of the last audit row, in hex: note it elsewhere, and nobody can rewrite what came before it.
    pub audit_head: String,
    /// How many accounts were summed.
    pub balances: usize,
}

/// Proves the chain, the guards, the balances, the facts, the foreign keys and the file.
///
/// # Errors
/// [`StoreError`] when the database cannot be read at all.
pub fn verify(connection: &Connection) -> Result<Report, StoreError> {
    let state = connection.unchecked_transaction()?;
    let proofs = verify::all(&state)?;
    let clean = proofs.iter().all(|proof| proof.violations.is_empty());
    // What is damaged may not tell even this; then the violations say enough.
    let head =
        audit::head(&state).or_else(|error| if clean { Err(error) } else { Ok(Head { seq: 0, hash: GENESIS }) })?;
    let balances = views::balances(&state, None).or_else(|error| if clean { Err(error) } else { Ok(Vec::new()) })?;
    Ok(Report {
        clean,
        proofs,
        audit_rows: head.seq,
        audit_head: base16ct::lower::encode_string(&head.hash),
        balances: balances.len(),
    })
}
