//! billingd receives Stripe's webhooks and keeps the books: one effect per fact, in an embedded SQLite ledger.
//!
//! # Map
//!
//! Each layer uses only those below it; `tests/it/tidy.rs` holds this.
//!
//! | layer | owns | must not know |
//! |---|---|---|
//! | [`cli`] | commands: arguments, tables for people, exit status | SQL, rules |
//! | [`app`] | the composition root: config → store → writer → jobs → listeners | rules |
//! | [`jobs`] | the schedule as a table, and its thread | SQL, rules |
//! | [`http`] | the listeners: request, one operation, answer | SQL, rules |
//! | [`ops`] | operations: transactions, where rules and tables meet | HTTP, the command line, the clock |
//! | [`stripe`] | how Stripe speaks: signature, JSON → our words, asking its API | SQL, rules |
//! | [`notify`] | calling for a person: one POST | SQL, rules |
//! | [`ecb`] | the file of exchange rates: getting it, reading it | SQL, rules |
//! | [`store`] | all SQL; the writer thread; readers | JSON of Stripe, rules |
//! | [`domain`] | the rules of money and state, pure | everything above, I/O, clock, SQL, JSON, async |
//!
//! [`config`], [`clock`], [`log`], [`outgoing`], [`samples`] and [`stop`] are leaves.

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod ecb;
pub mod http;
pub mod jobs;
pub mod log;
pub mod notify;
pub mod ops;
pub mod outgoing;
pub mod samples;
pub mod stop;
pub mod store;
pub mod stripe;
