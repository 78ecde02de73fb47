//! Secrets: where one comes from, and the thing itself.
//!
//! A [`SecretSource`] is resolved only when the secret is needed, so that a command asks for its own alone. A
//! [`Secret`] has no way out but [`Secret::expose`]; neither type ever prints what it guards, and every error names
//! the source and not the value.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// More than any secret is long; a source that goes on after it is a mistake.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Where systemd puts the credentials of the running unit; read by an administrator's command beside it.
const UNIT_CREDENTIALS: &str = "/run/credentials/billingd.service";

/// Where a secret comes from.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum SecretSource {
    /// An environment variable.
    Env {
        /// Its name.
        env: String,
    },
    /// A file that holds nothing else.
    File {
        /// Its path.
        file: PathBuf,
    },
    /// A credential that systemd hands over.
    Credential {
        /// Its name.
        credential: String,
    },
    /// The secret itself.
    Plain(String),
}

/// A secret that was resolved: never empty, without white space.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The environment variable does not exist.
    #[error("the environment variable {name} is not set; set it, or name another source of the secret")]
    NotSet {
        /// The variable.
        name: String,
    },
    /// The file or credential cannot be read.
    #[error("cannot read {origin} at {}: {error}; check that it exists and who may read it", path.display())]
    Unreadable {
        /// Which secret.
        origin: String,
        /// The path that was tried.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// There is text, but it cannot be a secret.
    #[error("{origin} {flaw}")]
    Unusable {
        /// Which secret.
        origin: String,
        /// What is wrong and what to do.
        flaw: &'static str,
    },
    /// The source itself is badly named.
    #[error("{0}")]
    BadSource(&'static str),
    /// The secret is shorter than it must be.
    #[error("{origin} has less than {least} characters; make one with `openssl rand -hex 32`")]
    TooShort {
        /// Which secret.
        origin: String,
        /// The fewest characters.
        least: usize,
    },
    /// The URL cannot be called.
    #[error("{origin} {flaw}")]
    Url {
        /// Which URL.
        origin: String,
        /// What is wrong and what to do.
        flaw: &'static str,
    },
}

impl SecretSource {
    /// Fetches the secret. `env` looks up an environment variable.
    ///
    /// # Errors
    /// [`SecretError`], which names the source and never the value.
    pub fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Secret, SecretError> {
        self.check_name()?;
        let text = match self {
            Self::Env { env: name } => env(name).ok_or_else(|| SecretError::NotSet { name: name.clone() })?,
            Self::File { file } => self.read(file)?,
            Self::Credential { credential } => self.read(&credential_path(credential, env))?,
            Self::Plain(text) => text.clone(),
        };
        let text = text.trim();
        match flaw(text) {
            Some(flaw) => Err(SecretError::Unusable { origin: self.to_string(), flaw }),
            None => Ok(Secret(text.to_owned())),
        }
    }

    /// What can be said about this source without fetching anything.
    pub(super) fn check(&self) -> Result<(), SecretError> {
        self.check_name()?;
        match self {
            Self::Plain(text) => match flaw(text.trim()) {
                Some(flaw) => Err(SecretError::Unusable { origin: self.to_string(), flaw }),
                None => Ok(()),
            },
            Self::Env { .. } | Self::File { .. } | Self::Credential { .. } => Ok(()),
        }
    }

    fn check_name(&self) -> Result<(), SecretError> {
        match self {
            Self::Env { env } if env.is_empty() || env.contains(['=', '\0']) => {
                Err(SecretError::BadSource("`env` is no name of a variable; write { env = \"NAME\" }"))
            }
            Self::File { file } if file.as_os_str().is_empty() => {
                Err(SecretError::BadSource("`file` is empty; write { file = \"PATH\" }"))
            }
            Self::Credential { credential }
                if credential.is_empty() || credential.starts_with('.') || credential.contains(['/', '\0']) =>
            {
                Err(SecretError::BadSource(
                    "`credential` is no name of a credential; write it as in LoadCredential=NAME:PATH",
                ))
            }
            Self::Env { .. } | Self::File { .. } | Self::Credential { .. } | Self::Plain(_) => Ok(()),
        }
    }

    fn read(&self, path: &Path) -> Result<String, SecretError> {
        let unreadable = |error| SecretError::Unreadable { origin: self.to_string(), path: path.to_owned(), error };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let text = if bytes.len() as u64 > SECRET_BYTES_MAX { None } else { String::from_utf8(bytes).ok() };
        let flaw = "holds more than a secret; put the secret alone into it";
        text.ok_or_else(|| SecretError::Unusable { origin: self.to_string(), flaw })
    }
}

fn credential_path(name: &str, env: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    Path::new(env("CREDENTIALS_DIRECTORY").as_deref().unwrap_or(UNIT_CREDENTIALS)).join(name)
}

fn flaw(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("is empty; put the secret into it")
    } else if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        Some("has white space inside; a secret is one word")
    } else {
        None
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { env } => write!(f, "the environment variable {env}"),
            Self::File { file } => write!(f, "the secret file {}", file.display()),
            Self::Credential { credential } => write!(f, "the credential {credential}"),
            Self::Plain(_) => f.write_str("the secret in the configuration"),
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { env } => f.debug_struct("Env").field("env", env).finish(),
            Self::File { file } => f.debug_struct("File").field("file", file).finish(),
            Self::Credential { credential } => f.debug_struct("Credential").field("credential", credential).finish(),
            Self::Plain(_) => f.write_str("Plain([redacted])"),
        }
    }
}

impl Secret {
    /// The secret as text, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(super) fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> SecretSource {
        SecretSource::Plain(text.to_owned())
    }

    #[test]
    fn each_source_is_read_and_trimmed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "from-a-file\n").unwrap();
        let env = |name: &str| match name {
            "KEY" => Some(" from-env ".to_owned()),
            "CREDENTIALS_DIRECTORY" => Some(folder.path().display().to_string()),
            _ => None,
        };
        for (source, secret) in [
            (SecretSource::Env { env: "KEY".into() }, "from-env"),
            (SecretSource::File { file: folder.path().join("key") }, "from-a-file"),
            (SecretSource::Credential { credential: "key".into() }, "from-a-file"),
            (plain("\tplain-text\n"), "plain-text"),
        ] {
            assert_eq!(source.resolve(&env).unwrap().expose(), secret);
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_by_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            std::fs::write(folder.path().join(name), content).unwrap();
            SecretSource::File { file: folder.path().join(name) }
        };
        let env = |name: &str| (name == "BLANK").then(|| "  ".to_owned());
        let named = |name: &str| SecretSource::Env { env: name.into() };
        for (source, message) in [
            (named("BLANK"), "the environment variable BLANK is empty"),
            (named("MISSING"), "the environment variable MISSING is not set"),
            (named(""), "`env` is no name"),
            (plain("hush hush"), "the secret in the configuration has white space inside"),
            (file("two", b"hush\nhush\n"), "two has white space inside"),
            (file("binary", &[0xff, 0xfe]), "binary holds more than a secret"),
            (file("long", &[b'x'; 70_000]), "long holds more than a secret"),
            (SecretSource::File { file: folder.path().join("none") }, "cannot read the secret file"),
            (SecretSource::File { file: PathBuf::new() }, "`file` is empty"),
            (SecretSource::Credential { credential: "../passwd".into() }, "`credential` is no name"),
        ] {
            let error = source.resolve(&env).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert!(!error.contains("hush") && !error.contains("xxx"), "{error}");
        }
    }

    #[test]
    fn without_a_credentials_folder_the_one_of_the_unit_is_read() {
        let source = SecretSource::Credential { credential: "no-such-credential".into() };
        let error = source.resolve(&|_| None).unwrap_err().to_string();
        assert!(error.contains("/run/credentials/billingd.service/no-such-credential"), "{error}");
    }

    #[test]
    fn nothing_prints_a_secret() {
        let source = plain("hush");
        let secret = source.resolve(&|_| None).unwrap();
        for printed in [format!("{source:?}"), source.to_string(), format!("{secret:?}"), secret.to_string()] {
            assert!(!printed.contains("hush"), "{printed}");
        }
        assert_eq!(format!("{secret:?} {secret}"), "[redacted] [redacted]");
    }
}
