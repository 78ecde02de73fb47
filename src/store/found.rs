//! What a search found that has no index to go by: it walks from the newest row on, and ends after so many.

use serde::Serialize;

use crate::domain::event::UnixSeconds;

/// So many rows are looked through for one answer.
pub const ROWS_MAX: i64 = 200_000;

/// The rows of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found<T> {
    /// At most as many as were asked for.
    pub rows: Vec<T>,
    /// Where the search ended before it had found enough; `None`: all was looked through that could be meant.
    #[serde(flatten)]
    pub edge: Option<Edge>,
}

/// Where a search ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// All since then was looked through.
    pub looked_back_to: UnixSeconds,
    /// With this `before` the same search goes on.
    pub before: String,
}

impl<T> Found<T> {
    /// `rows`, of which `limit` were asked for, up to where the search would end.
    pub(super) fn new(rows: Vec<T>, limit: i64, edge: Option<Edge>) -> Self {
        let is_short = i64::try_from(rows.len()).is_ok_and(|found| found < limit);
        Self { rows, edge: edge.filter(|_| is_short) }
    }
}
