//! Everything that knows how the European Central Bank tells its reference rates.
//!
//! [`feed`] reads its XML into the words of [`crate::domain::exchange`]; [`fetch`](mod@fetch) gets it. Nothing here decides
//! anything, and nothing here writes.

pub mod feed;
pub mod fetch;
