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

impl Count {
    /// So it was, and not before the clock was set back.
    fn was_just_told(&self, now: UnixMillis) -> bool {
        self.told_at.is_some_and(|told_at| (0..LOG_EVERY_MS).contains(&(now - told_at)))
    }
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
            if count.was_just_told(now) {
                return;
            }
            count.told_at = Some(now);
            std::mem::take(&mut count.untold)
        };
        tracing::warn!(reason = code, count = untold, "{} were refused", self.what);
    }

    /// How many were refused so far, by reason.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(code, count)| (*code, count.all)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_told_now_and_then_also_after_the_clock_was_set_back() {
        let rejections = Rejections::of("deliveries");
        let untold = |now| {
            rejections.count("a_code", now);
            rejections.counts.lock().unwrap()["a_code"].untold
        };
        let six_hours = 6 * 3_600_000;
        assert_eq!([six_hours, six_hours + 9_999, six_hours + 10_000, 0, 1].map(untold), [0, 1, 0, 0, 1]);
        assert_eq!(rejections.counts(), BTreeMap::from([("a_code", 5)]));
    }
}
