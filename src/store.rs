//! The database: every SQL statement of billingd is in here, beside the function that runs it.
//!
//! A [`writer::Writer`] owns the only write connection of a server; commands open one of their own with
//! [`open::beside`]; both are a [`desk::Desk`]. Everything else reads through a [`reader::Reader`], which cannot write.
//! Nothing in here decides anything: `ops` asks for facts and tells what to write.

pub mod accounts;
pub mod alerts;
pub mod answers;
pub mod audit;
pub mod backup;
pub mod compare;
pub mod connect;
pub mod desk;
pub mod disk;
pub mod error;
pub mod events;
pub mod files;
pub mod findings;
pub mod found;
pub mod fx;
pub mod health;
pub mod imports;
pub mod invoices;
pub mod jobs;
pub mod ledger;
pub mod lock;
pub mod look;
pub mod meta;
pub mod migrations;
pub mod open;
pub(crate) mod partial;
pub mod payload;
pub mod payments;
pub mod prices;
pub mod reader;
pub mod rehearsal;
pub mod restore;
pub mod retention;
pub mod runs;
pub mod savepoint;
mod select;
pub(crate) mod snapshots;
pub mod spool;
pub mod subscriptions;
mod types;
pub mod unfinished;
pub mod verify;
pub mod views;
pub mod writer;
pub mod written;

pub use desk::Desk;
pub use error::StoreError;
pub use look::Look;
