//! Time as the client knows it: how long ago something was, and waiting. A test brings its own.

use std::time::{Duration, Instant};

use crate::stop::Stop;

/// Time, waiting and chance.
pub trait Pace: Send + Sync {
    /// How long it is since some fixed moment; never goes back.
    fn elapsed(&self) -> Duration;
    /// Waits so long, or until it is to stop.
    fn wait(&self, time: Duration, stop: &Stop);
    /// Any number.
    fn chance(&self) -> u32;
}

/// The real thing.
#[derive(Debug, Clone, Copy)]
pub struct WallTime(Instant);

impl Default for WallTime {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Pace for WallTime {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&self, time: Duration, stop: &Stop) {
        stop.wait(time);
    }

    fn chance(&self) -> u32 {
        // Without any, everybody waits equally long: slower under load, and nothing worse.
        getrandom::u32().unwrap_or(u32::MAX)
    }
}
