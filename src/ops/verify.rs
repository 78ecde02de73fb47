//! The proof that the books are whole.

use serde::Serialize;

use crate::store::verify::{self, FileCheck, Proofs, Proven};
use crate::store::{Look, StoreError};

/// What was proven, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Everything is proven, and nothing is violated.
    pub clean: bool,
    /// Each proof in its order.
    pub proofs: Vec<Proven>,
    /// The number of the last audit row that the unbroken chain reaches.
    pub audit_rows: i64,
    /// The hash of that row, in hex: note it elsewhere, and nobody can rewrite what came before it.
    pub audit_head: String,
    /// How many accounts were summed.
    pub balances: i64,
}

/// Proves the chain, the guards, the balances, the facts, the foreign keys and the file: in short looks, but for
/// SQLite's own check of the file.
///
/// # Errors
/// [`StoreError`] when the database cannot be read at all.
pub fn verify(books: &impl Look) -> Result<Report, StoreError> {
    let Proofs { proven, head } = verify::all(books, FileCheck::Whole)?;
    let clean = proven.iter().all(Proven::holds);
    // What is damaged may not tell even this; then the violations say enough.
    let balances = books.look(verify::balances).or_else(|error| if clean { Err(error) } else { Ok(0) })?;
    Ok(Report {
        clean,
        proofs: proven,
        audit_rows: head.seq,
        audit_head: base16ct::lower::encode_string(&head.hash),
        balances,
    })
}

/// The same beside the work of a server: also the file is checked in short looks, table by table. What takes longer
/// than a look may is cut short.
///
/// # Errors
/// As [`verify()`].
pub fn verify_in_short_looks(books: &impl Look) -> Result<Proofs, StoreError> {
    verify::all(books, FileCheck::TableByTable)
}
