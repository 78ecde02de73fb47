//! The operations: each owns its transaction, and is the only place where the rules of [`crate::domain`] and the
//! tables of [`crate::store`] meet. HTTP, command line and jobs are three doors to the same operations.

pub mod adjust;
mod apply;
mod facts;
pub mod findings;
pub mod fx;
pub mod ingest;
pub mod reconcile;
pub mod resolve;
pub mod verify;
