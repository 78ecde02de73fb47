//! All integration tests in one binary, one module each.

#![expect(clippy::unwrap_used, reason = "a helper of a test that fails ends the test")]
#![allow(clippy::expect_used, reason = "a test that finds something missing ends there")]

mod books;
mod cli;
mod corpus;
mod dictionary;
mod model;
mod order_free;
mod samples;
mod sim;
mod stored;
