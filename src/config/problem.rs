//! What can be wrong with a configuration, and how it is told to a person.
//!
//! A [`Problem`] names the key, where the key was set, and what to write instead. None of them ever repeats a value
//! that could be a secret.

use std::fmt;
use std::path::PathBuf;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The defaults that the program carries.
    Defaults,
    /// The file given with `--config`.
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defaults => f.write_str("the built-in defaults"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
        }
    }
}

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The dotted path of the key, list elements counted from zero: `webhook[0].tolerance`.
    pub key: String,
    /// Where the key was set, as far as that is known.
    pub source: Option<Source>,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Problem {
    /// A problem whose place is not known yet.
    pub(super) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), source: None, message: message.into() }
    }

    /// The same problem with the place where its key was set.
    pub(super) fn at(self, source: Source) -> Self {
        Self { source: Some(source), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.key)?;
        if let Some(source) = &self.source {
            write!(f, " in {source}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {error}; check the path and its permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The text is no TOML.
    #[error("{origin} is not valid TOML: {message}")]
    Syntax {
        /// Which text.
        origin: Source,
        /// What the parser says, without the text itself.
        message: String,
    },
    /// Keys or values are wrong; at least one problem is listed.
    #[error("the configuration is not valid:{}", listed(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// The single problems, where there are some.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid(problems) => problems,
            Self::Unreadable { .. } | Self::Syntax { .. } => &[],
        }
    }
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}

/// The candidate that `name` was probably meant to be, if one is close enough.
pub(super) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let is_near = |distance: usize, candidate: &str| {
        distance <= candidate.len().max(3) / 3 || (candidate.len() > 3 && name.starts_with(candidate))
    };
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| is_near(*distance, candidate))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_key_place_and_remedy() {
        let problem = Problem::new("server.max_body", "too small; write at least \"1 KiB\"");
        assert_eq!(problem.to_string(), "`server.max_body`: too small; write at least \"1 KiB\"");
        let problem = problem.at(Source::File("prod.toml".into()));
        assert!(problem.to_string().starts_with("`server.max_body` in prod.toml: "));
    }

    #[test]
    fn the_nearest_name_must_be_near() {
        let names = ["listen", "max_body", "tolerance"];
        assert_eq!(nearest("tolerence", names), Some("tolerance"));
        assert_eq!(nearest("maxbody", names), Some("max_body"));
        assert_eq!(nearest("listen_on", names), Some("listen"));
        assert_eq!(nearest("LISTEN", names), Some("listen"));
        assert_eq!(nearest("livemode", names), None);
    }
}
