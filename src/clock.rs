//! The only place that reads the time of day. The doors (HTTP, command line, scheduler, writer) ask here; everything
//! below them is told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
pub type UnixMillis = i64;

/// The Unix second that lies `time` before `now`.
#[must_use]
pub fn seconds_before(now: UnixMillis, time: Duration) -> i64 {
    (now / 1000).saturating_sub(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// The time of day.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> UnixMillis {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
