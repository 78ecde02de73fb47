//! How much may be asked at a time: so many requests a second, so many at once, by all clones of a client together.

use std::num::NonZeroU32;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::pace::Pace;
use crate::stop::Stop;

/// How often one that waits for its turn looks whether to stop. Whoever is done wakes it at once.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What all clones of a client share.
#[derive(Debug)]
pub(super) struct Budget {
    /// The time that one request takes from the budget.
    interval: Duration,
    /// How far ahead of the budget a burst may get: a second's worth.
    ahead_max: Duration,
    at_once_max: u32,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    at_once: u32,
    /// The moment up to which the budget is spent.
    spent_until: Duration,
}

/// The right to make one request; ends with it.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a Budget);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.at_once = state.at_once.saturating_sub(1);
        self.0.freed.notify_one();
    }
}

impl Budget {
    pub(super) fn new(per_second: NonZeroU32, at_once: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self {
            interval,
            ahead_max: interval * (per_second.get() - 1),
            at_once_max: at_once.get(),
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Waits for its turn; none: it is to stop.
    pub(super) fn take(&self, pace: &dyn Pace, stop: &Stop) -> Option<Permit<'_>> {
        let permit = self.enter(stop)?;
        let wait = self.spend(pace.elapsed());
        if !wait.is_zero() {
            pace.wait(wait, stop);
        }
        (!stop.is_set()).then_some(permit)
    }

    fn enter(&self, stop: &Stop) -> Option<Permit<'_>> {
        let mut state = self.state();
        while state.at_once >= self.at_once_max {
            if stop.is_set() {
                return None;
            }
            state = self.freed.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.at_once += 1;
        Some(Permit(self))
    }

    /// Books one request, and tells how long it has to wait.
    fn spend(&self, now: Duration) -> Duration {
        let mut state = self.state();
        let begun = state.spent_until.max(now);
        state.spent_until = begun + self.interval;
        begun.saturating_sub(now + self.ahead_max)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::WallTime;
    use super::*;

    fn budget(per_second: u32, at_once: u32) -> Budget {
        Budget::new(NonZeroU32::new(per_second).unwrap(), NonZeroU32::new(at_once).unwrap())
    }

    #[test]
    fn a_second_s_worth_goes_at_once_and_then_one_after_the_other() {
        let budget = budget(4, 1);
        let start = Duration::from_secs(100);
        let waits: Vec<u128> = (0..7).map(|_| budget.spend(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 250, 500, 750]);
        // What was saved up is a second's worth again, and no more.
        let later = start + Duration::from_secs(60);
        let waits: Vec<u128> = (0..5).map(|_| budget.spend(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 250]);
    }

    #[test]
    fn one_a_second_never_goes_ahead() {
        let budget = budget(1, 1);
        assert_eq!(budget.spend(Duration::ZERO), Duration::ZERO);
        assert_eq!(budget.spend(Duration::ZERO), Duration::from_secs(1));
        assert_eq!(budget.spend(Duration::from_millis(1_500)), Duration::from_millis(500));
    }

    #[test]
    fn a_permit_is_given_back_when_it_ends() {
        let budget = budget(1_000, 2);
        let (pace, stop) = (WallTime::default(), Stop::default());
        let first = budget.take(&pace, &stop).unwrap();
        let second = budget.take(&pace, &stop).unwrap();
        std::thread::scope(|threads| {
            let third = threads.spawn(|| budget.take(&pace, &stop).is_some());
            assert_eq!(budget.state().at_once, 2);
            drop(first);
            assert!(third.join().unwrap());
        });
        drop(second);
        assert_eq!(budget.state().at_once, 0);
    }

    #[test]
    fn whoever_waits_for_a_turn_goes_when_it_is_to_stop() {
        let budget = budget(1_000, 1);
        let (pace, stop) = (WallTime::default(), Stop::default());
        let only = budget.take(&pace, &stop).unwrap();
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| budget.take(&pace, &stop).is_none());
            stop.set();
            assert!(waits.join().unwrap());
        });
        drop(only);
        assert!(budget.take(&pace, &stop).is_none(), "nothing begins after the stop");
        assert_eq!(budget.state().at_once, 0);
    }
}
