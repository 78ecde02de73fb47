//! How an answer reads in the log.

use super::Answer;

impl Answer {
    /// What became of the event, and why where that is known; ids and our own words only.
    #[must_use]
    pub fn told(&self) -> (&str, &str) {
        match self {
            Self::Completed { outcome, reason } => (outcome.as_str(), reason.as_deref().unwrap_or_default()),
            Self::Duplicate { outcome } => ("duplicate", outcome),
            Self::Pending { needs } => ("pending", needs),
            Self::Failed { code, .. } => ("failed", code),
            Self::DeadLetter { code, .. } => ("dead_letter", code),
        }
    }
}
