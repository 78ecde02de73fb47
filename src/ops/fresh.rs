//! Names that nobody else has made.

use crate::clock::UnixMillis;
use crate::domain::ids::EventId;

/// The id of an operator's event; it sorts by time.
///
/// # Errors
/// When the system gives no random bytes.
pub fn event_id(now: UnixMillis) -> Result<EventId, getrandom::Error> {
    Ok(EventId::of_operator(now, getrandom::u64()?))
}

/// A key for an adjustment that a person asks for in a form, so that sending it twice posts once.
///
/// # Errors
/// As [`event_id`].
pub fn key() -> Result<String, getrandom::Error> {
    Ok(format!("page-{:016x}", getrandom::u64()?))
}
