//! The operations: each owns its transaction, and is the only place where the rules of [`crate::domain`] and the
//! tables of [`crate::store`] meet. HTTP, command line and jobs are three doors to the same operations.

pub mod adjust;
pub mod adopt;
mod apply;
pub mod doctor;
mod facts;
pub mod fx;
pub mod ingest;
pub mod repair_subscription;
pub mod resolve;
pub mod verify;
