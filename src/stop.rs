//! How long work is told to end: it looks between two steps, waits no longer, and leaves nothing half done.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Tells whoever waits to stop. All clones are one.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Ends all waiting, now and from now on.
    pub fn set(&self) {
        let (is_set, told) = &*self.0;
        *is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        told.notify_all();
    }

    /// It was set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long, or until it is set. Tells whether it is.
    pub fn wait(&self, time: Duration) -> bool {
        let (is_set, told) = &*self.0;
        let guard = is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) =
            told.wait_timeout_while(guard, time, |is_set| !*is_set).unwrap_or_else(PoisonError::into_inner);
        *guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_waiting_of_all_clones() {
        let stop = Stop::default();
        assert!(!stop.wait(Duration::from_millis(1)));
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| stop.clone().wait(Duration::from_secs(3_600)));
            stop.set();
            assert!(waits.join().unwrap());
        });
        assert!(stop.is_set() && stop.wait(Duration::ZERO));
    }
}
