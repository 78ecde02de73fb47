//! The operations: each owns its transaction, and is the only place where the rules of [`crate::domain`] and the
//! tables of [`crate::store`] meet. HTTP, command line and jobs are three doors to the same operations.

pub mod adjust;
mod apply;
pub mod dismiss;
mod facts;
pub mod import;
pub mod ingest;
pub mod reap;
pub mod remedy;
pub mod replay;
pub mod verify;
