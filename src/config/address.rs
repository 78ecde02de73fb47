//! URLs that billingd calls. They often carry a token, so they are secrets: only scheme and host are ever printed.
//!
//! https is required, except towards this machine.

use std::fmt;
use std::net::IpAddr;

use serde::de::{Deserialize, Deserializer, Error};
use ureq::http::Uri;

use super::secret::{SecretError, SecretSource};

/// Where a URL to call comes from: written out, or any other source of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlSource(SecretSource);

/// A URL that may be called.
#[derive(Clone, PartialEq, Eq)]
pub struct CalledUrl {
    text: String,
    /// Scheme, host and port: what may be shown.
    origin: String,
    /// Nothing follows the host.
    bare: bool,
}

impl UrlSource {
    /// Fetches and checks the URL. `env` looks up an environment variable.
    ///
    /// # Errors
    /// [`SecretError`], which names the source and never the value.
    pub fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<CalledUrl, SecretError> {
        let secret = self.0.resolve(env)?;
        CalledUrl::parse(secret.expose()).map_err(|flaw| SecretError::Url { origin: self.0.to_string(), flaw })
    }

    /// The source, for printing.
    pub(super) fn source(&self) -> &SecretSource {
        &self.0
    }

    fn checked(source: SecretSource) -> Result<Self, String> {
        source.check().map_err(|error| error.to_string())?;
        if let SecretSource::Plain(text) = &source {
            CalledUrl::parse(text.trim()).map_err(|flaw| format!("the URL {flaw}"))?;
        }
        Ok(Self(source))
    }
}

impl<'de> Deserialize<'de> for UrlSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::checked(SecretSource::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// `""` is no URL at all.
pub(super) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UrlSource>, D::Error> {
    match SecretSource::deserialize(deserializer)? {
        SecretSource::Plain(text) if text.trim().is_empty() => Ok(None),
        source => UrlSource::checked(source).map(Some).map_err(D::Error::custom),
    }
}

impl CalledUrl {
    /// Reads a URL with the parser of the HTTP client itself.
    ///
    /// # Errors
    /// What is wrong with it and what to do, without the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let no_url = "is no URL; write one such as \"https://example.com/path\"";
        let uri: Uri = text.parse().map_err(|_| no_url)?;
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host().filter(|host| !host.is_empty())) else {
            return Err(no_url);
        };
        match scheme {
            "https" => {}
            "http" if is_loopback(host) => {}
            "http" => return Err("is not https; only addresses of this machine may be called with http"),
            _ => return Err(no_url),
        }
        let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
        let bare =
            uri.path() == "/" && uri.query().is_none() && uri.authority().is_some_and(|it| !it.as_str().contains('@'));
        Ok(Self { text: text.to_owned(), origin: format!("{scheme}://{host}{port}"), bare })
    }

    /// Scheme, host and port: what may be shown and kept.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The whole URL, for the one who calls it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

impl fmt::Display for CalledUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, if self.bare { "" } else { "/[redacted]" })
    }
}

impl fmt::Debug for CalledUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_and_host_are_shown() {
        for (text, shown) in [
            ("https://api.stripe.com", "https://api.stripe.com"),
            ("https://api.stripe.com/", "https://api.stripe.com"),
            ("https://hooks.example.com/T0/hush", "https://hooks.example.com/[redacted]"),
            ("https://hooks.example.com:8443?token=hush", "https://hooks.example.com:8443/[redacted]"),
            ("https://me:hush@example.com/", "https://example.com/[redacted]"),
            ("http://127.0.0.1:4242/v1", "http://127.0.0.1:4242/[redacted]"),
            ("http://[::1]:4242", "http://[::1]:4242"),
            ("http://localhost:4242", "http://localhost:4242"),
        ] {
            let url = CalledUrl::parse(text).unwrap();
            assert_eq!(url.expose(), text);
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
        }
    }

    #[test]
    fn what_may_not_be_called_is_refused() {
        for (text, flaw) in [
            ("http://example.com/hook", "is not https"),
            ("http://localhost.example.com", "is not https"),
            ("http://10.0.0.1", "is not https"),
            ("http://127.0.0.1@example.com/", "is not https"),
            ("ftp://example.com", "is no URL"),
            ("example.com/hook", "is no URL"),
            ("https://", "is no URL"),
            ("https:///path", "is no URL"),
            ("/hook", "is no URL"),
            ("https://example.com/a b", "is no URL"),
        ] {
            let error = CalledUrl::parse(text).unwrap_err();
            assert!(error.starts_with(flaw), "{text}: {error}");
        }
    }

    #[test]
    fn a_url_from_elsewhere_is_checked_when_it_is_needed() {
        let source = UrlSource(SecretSource::Env { env: "HOOK".into() });
        assert_eq!(
            source.resolve(&|_| Some("https://example.com/x\n".into())).unwrap().expose(),
            "https://example.com/x"
        );
        let error = source.resolve(&|_| Some("http://example.com/hush".into())).unwrap_err().to_string();
        assert!(error.starts_with("the environment variable HOOK is not https"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
}
