//! All integration tests in one binary, one module each.

mod cli;
mod dictionary;
