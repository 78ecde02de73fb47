//! The operations: each owns its transaction, and is the only place where the rules of [`crate::domain`] and the
//! tables of [`crate::store`] meet. HTTP, command line and jobs are three doors to the same operations.

mod account_of_key;
pub mod adjust;
pub mod adopt;
pub mod alerts;
mod apply;
pub mod backup;
pub mod dismiss;
pub mod doctor;
mod duplicates;
mod facts;
pub mod findings;
pub mod fresh;
pub mod fx;
pub mod gauges;
pub mod import;
pub mod import_ledger;
pub mod ingest;
pub mod overview;
mod paid;
pub mod reap;
pub mod reconcile;
pub mod reference;
pub mod remedy;
pub mod repair;
pub mod repair_subscription;
pub mod replay;
pub mod resolve;
pub mod restore;
pub mod retain;
mod reverse;
mod seen;
pub mod story;
pub mod verify;
pub mod words;
