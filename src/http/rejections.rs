//! What was refused, counted by reason, and logged at a pace that nobody outside can set.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::clock::UnixMillis;

/// One line of the log for each reason in this time.
const LOG_EVERY_MS: i64 = 10_000;

/// Counts what was refused at one door.
#[derive(Debug)]
pub struct Rejections {
    what: &'static str,
    counts: Mutex<BTreeMap<&'static str, Count>>,
}

#[derive(Debug, Default)]
struct Count {
    all: u64,
    untold: u64,
    told_at: Option<UnixMillis>,
}

impl Rejections {
    /// None yet; `what` names in the log what comes through this door, such as "deliveries".
    #[must_use]
    pub fn of(what: &'static str) -> Self {
        Self { what, counts: Mutex::default() }
    }

    /// Counts one more; now and then also writes how many there were.
    pub(super) fn count(&self, code: &'static str, now: UnixMillis) {
        let untold = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(code).or_default();
            count.all += 1;
            count.untold += 1;
            if count.told_at.is_some_and(|told_at| now - told_at < LOG_EVERY_MS) {
                return;
            }
            count.told_at = Some(now);
            std::mem::take(&mut count.untold)
        };
        tracing::warn!(reason = code, count = untold, "{} were refused", self.what);
    }

    /// How many were refused so far, by reason; 0 for those of `known` that were none yet, so that whoever watches a
    /// counter sees its first step.
    #[must_use]
    pub fn counts(&self, known: &[&'static str]) -> BTreeMap<&'static str, u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = counts.iter().map(|(code, count)| (*code, count.all));
        known.iter().map(|code| (*code, 0)).chain(seen).collect()
    }
}
