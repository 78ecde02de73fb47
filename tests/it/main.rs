//! All integration tests in one binary, one module each.

#![expect(clippy::unwrap_used, reason = "a helper of a test that fails ends the test")]
#![allow(clippy::expect_used, reason = "a test that finds something missing ends there")]

mod adjust;
mod adopt;
mod alerts;
mod api;
mod beside;
mod books;
mod cli;
mod client;
mod corpus;
mod crash;
mod dictionary;
mod doctor;
mod fake_stripe;
mod fixtures;
mod fx;
mod harness;
mod http;
mod import;
mod incident;
mod keep;
mod metrics;
mod model;
mod order_free;
mod page;
mod plans;
mod private;
mod reap;
mod reconcile;
mod references;
mod repair;
mod repair_subscription;
mod replay;
mod resolve;
mod samples;
mod sim;
mod store;
mod stored;
mod tidy;
mod visitor;
mod waiting;
