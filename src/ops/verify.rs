//! The proof that the books are whole.

use rusqlite::Connection;
use serde::Serialize;

use crate::store::audit::{self, Head};
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
    let proofs = verify::all(connection)?;
    let Head { seq, hash } = audit::head(connection)?;
    Ok(Report {
        clean: proofs.iter().all(|proof| proof.violations.is_empty()),
        proofs,
        audit_rows: seq,
        audit_head: base16ct::lower::encode_string(&hash),
        balances: views::balances(connection, None)?.len(),
    })
}
