//! Looks at everything that could be wrong, and tells what it means and how to put it right. Changes nothing.

pub mod books;
pub mod files;
pub mod stripe;

use serde::Serialize;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All is well.
    Ok,
    /// Worth knowing.
    Note,
    /// Something is wrong.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at, in a word.
    pub check: &'static str,
    /// How it came out.
    pub health: Health,
    /// What was seen.
    pub seen: String,
    /// Why that matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    /// All is well.
    #[must_use]
    pub fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, health: Health::Ok, seen: seen.into(), why: None, fix: None }
    }

    /// Worth knowing.
    #[must_use]
    pub fn note(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, health: Health::Note, seen: seen.into(), why: None, fix: None }
    }

    /// Something is wrong: what, why it matters, and what to do.
    #[must_use]
    pub fn problem(check: &'static str, seen: impl Into<String>, why: &'static str, fix: impl Into<String>) -> Self {
        Self { check, health: Health::Problem, seen: seen.into(), why: Some(why), fix: Some(fix.into()) }
    }
}
