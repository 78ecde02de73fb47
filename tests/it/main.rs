//! All integration tests in one binary, one module each.

#![expect(clippy::unwrap_used, reason = "a helper of a test that fails ends the test")]

mod cli;
mod dictionary;
mod samples;
