//! Why there is no answer, told apart by what a caller does next.
//!
//! Of what Stripe says only its own words are kept (`type`, `code`, `param`, the name of a missing permission), never
//! its sentences: those may quote the data of a customer, or a part of the key.

use std::fmt;

/// What became of a request that has no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Stripe has no such object in this account and mode.
    NotFound,
    /// Whoever answers does not know this question: a look-alike, a proxy, or a wrong `stripe.api_base`.
    Unknown,
    /// Stripe refuses the request itself; the same again would be refused again.
    Rejected,
    /// The key is wrong or may not do this; somebody has to change that.
    Refused,
    /// Too many requests, by anyone who uses this Stripe account.
    Limited,
    /// No connection, no answer in time, or trouble at Stripe.
    Unavailable,
    /// Success was told, but with something else than what was asked for.
    Garbage,
    /// billingd is being stopped.
    Stopped,
}

/// A request without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// What a caller goes by.
    pub kind: Kind,
    /// The path that was asked, without its query.
    pub path: String,
    /// The HTTP status; none: there was no answer.
    pub status: Option<u16>,
    /// What happened, in our words.
    pub reason: &'static str,
    /// What Stripe said.
    pub told: Box<Told>,
}

/// Stripe's own words about an error. Each is short and made of letters, digits and `_ . - [ ]`, or left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The `type`, such as `invalid_request_error`.
    pub kind: Option<String>,
    /// The `code`, such as `resource_missing`.
    pub code: Option<String>,
    /// The parameter that is wrong.
    pub param: Option<String>,
    /// The permission that the key lacks, such as `rak_charge_read`.
    pub permission: Option<String>,
    /// The `Request-Id`, for Stripe's logs and support.
    pub request_id: Option<String>,
}

impl ApiError {
    /// An error without an answer.
    #[must_use]
    pub fn new(kind: Kind, path: &str, reason: &'static str) -> Self {
        Self { kind, path: path.to_owned(), status: None, reason, told: Box::default() }
    }

    /// Asking again is pointless: the answer is about what was asked, not about the moment.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self.kind, Kind::NotFound | Kind::Unknown | Kind::Rejected)
    }

    fn remedy(&self) -> String {
        match (self.kind, &self.told.permission) {
            (Kind::NotFound, _) => "if it exists, the key belongs to another account or mode than it does".to_owned(),
            (Kind::Unknown, _) => "check stripe.api_base, and whatever stands between".to_owned(),
            (Kind::Rejected, _) => "the same request will be refused again; report it with the words above".to_owned(),
            (Kind::Refused, Some(permission)) => {
                format!("give the restricted key the permission {permission}, at Stripe under Developers, API keys")
            }
            (Kind::Refused, None) if self.status == Some(401) => {
                "check stripe.api_key: it may be mistyped, expired or revoked".to_owned()
            }
            (Kind::Refused, None) => format!(
                "let the restricted key read {}, and check stripe.connected_account",
                self.path.split('/').nth(2).unwrap_or("this")
            ),
            (Kind::Limited, _) => {
                "ask again later; if it goes on, look for what else uses this account's limit".to_owned()
            }
            (Kind::Unavailable, _) => {
                "ask again later; if it goes on, check the network and status.stripe.com".to_owned()
            }
            (Kind::Garbage, _) => {
                "ask again; if it goes on, check stripe.api_base, and whatever stands between".to_owned()
            }
            (Kind::Stopped, _) => "it will be asked again after the next start".to_owned(),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)?;
        let status = self.status.map(|status| status.to_string());
        let param = self.told.param.as_ref().map(|param| format!("parameter {param}"));
        let words = [&status, &self.told.kind, &self.told.code, &param, &self.told.request_id];
        let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
        if !words.is_empty() {
            write!(f, " ({})", words.join(", "))?;
        }
        write!(f, "; {}", self.remedy())
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: Kind, status: Option<u16>, told: Told) -> ApiError {
        ApiError { status, told: Box::new(told), ..ApiError::new(kind, "/v1/charges/ch_1", "why") }
    }

    #[test]
    fn an_error_says_what_happened_where_and_what_to_do() {
        let word = |text: &str| Some(text.to_owned());
        let told = Told {
            kind: word("invalid_request_error"),
            code: word("resource_missing"),
            param: word("id"),
            permission: None,
            request_id: word("req_7"),
        };
        assert_eq!(
            error(Kind::NotFound, Some(404), told).to_string(),
            "/v1/charges/ch_1: why (404, invalid_request_error, resource_missing, parameter id, req_7); if it exists, the \
             key belongs to another account or mode than it does"
        );
        let lacks = Told { permission: word("rak_charge_read"), ..Told::default() };
        for (kind, status, told, remedy) in [
            (Kind::Refused, Some(403), lacks, "give the restricted key the permission rak_charge_read"),
            (Kind::Refused, Some(403), Told::default(), "let the restricted key read charges"),
            (Kind::Refused, Some(401), Told::default(), "check stripe.api_key"),
            (Kind::Unknown, Some(404), Told::default(), "check stripe.api_base"),
            (Kind::Unavailable, None, Told::default(), "check the network"),
        ] {
            let text = error(kind, status, told).to_string();
            assert!(text.contains(remedy), "{text}");
        }
        assert!(error(Kind::Unavailable, None, Told::default()).to_string().starts_with("/v1/charges/ch_1: why; ask"));
    }

    #[test]
    fn what_is_final_is_about_the_question() {
        for (kind, is_final) in [
            (Kind::NotFound, true),
            (Kind::Unknown, true),
            (Kind::Rejected, true),
            (Kind::Refused, false),
            (Kind::Limited, false),
            (Kind::Unavailable, false),
            (Kind::Garbage, false),
            (Kind::Stopped, false),
        ] {
            assert_eq!(error(kind, None, Told::default()).is_final(), is_final, "{kind:?}");
        }
    }
}
