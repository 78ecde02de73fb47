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
        let to_tell = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.entry(code).or_default().more(now)
        };
        if let Some(count) = to_tell {
            tracing::warn!(reason = code, count, "{} were refused", self.what);
        }
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

impl Count {
    /// One more; returns how many there were since it was told last, if it is time to tell again. If the clock was set
    /// back it is.
    fn more(&mut self, now: UnixMillis) -> Option<u64> {
        self.all += 1;
        self.untold += 1;
        if self.told_at.is_some_and(|told_at| (0..LOG_EVERY_MS).contains(&(now - told_at))) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_ten_seconds_tells_how_many_there_were_whatever_the_clock_does() {
        const NOW: UnixMillis = 1_790_000_000_000;
        let mut count = Count::default();
        for (after_ms, told) in [
            (0, Some(1)),
            (0, None),
            (9_999, None),
            (10_000, Some(3)),
            (19_999, None),
            (9_999, Some(2)),
            (-86_400_000, Some(1)),
            (-86_400_000 + 9_999, None),
            (-86_400_000 + 10_000, Some(2)),
        ] {
            assert_eq!(count.more(NOW + after_ms), told, "after {after_ms} ms");
        }
        assert_eq!((count.all, count.untold), (9, 0));
    }
}
