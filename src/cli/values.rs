//! How values of arguments are read. What is none is a usage error, and says what is.

use crate::domain::ids::{EventId, NotAnId};

/// An amount that changes something, in whole units.
pub(super) fn amount(text: &str) -> Result<i64, &'static str> {
    match text.parse() {
        Ok(0) => Err("an amount of 0 changes nothing; write a whole number such as 100 or -40"),
        Ok(amount) => Ok(amount),
        Err(_) => Err("not an amount; write a whole number such as 100 or -40"),
    }
}

/// A text that says something.
pub(super) fn text(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() { Err("it is empty; write a text") } else { Ok(text.to_owned()) }
}

/// The id of an event.
pub(super) fn event(text: &str) -> Result<EventId, NotAnId> {
    EventId::parse(text)
}
