//! Where Stripe delivers events to, as the account has it.

use serde::Deserialize;
use ureq::http::uri::Uri;

use super::client::{Api, ApiError, Kind, Pages};

const ENDPOINTS: &str = "/v1/webhook_endpoints";

/// A webhook endpoint at Stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `we_…`
    pub id: String,
    /// The path of its URL, without a slash at the end.
    pub path: String,
    /// Stripe delivers to it.
    pub is_enabled: bool,
    /// The types that it subscribes to; `*`: nearly all.
    pub types: Vec<String>,
    /// The version that renders its events; `None`: the account's own.
    pub api_version: Option<String>,
    /// Its mode, if it is told.
    pub livemode: Option<bool>,
}

impl Endpoint {
    /// Those of some types that it does not deliver.
    #[must_use]
    pub fn missing<'a>(&self, types: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let delivers = |kind: &str| self.types.iter().any(|own| own == "*" || own == kind);
        types.into_iter().filter(|kind| !delivers(kind)).collect()
    }
}

#[derive(Deserialize)]
struct Raw {
    id: String,
    url: String,
    status: String,
    enabled_events: Vec<String>,
    api_version: Option<String>,
    livemode: Option<bool>,
}

/// All endpoints of the account.
///
/// # Errors
/// [`ApiError`].
pub fn list(api: &dyn Api) -> Result<Vec<Endpoint>, ApiError> {
    let unreadable = |_| ApiError::new(Kind::Garbage, ENDPOINTS, "the answer is no list of endpoints");
    Pages::new(api, ENDPOINTS, &[])
        .items()
        .map(|item| Ok(read(serde_json::from_str(item?.get()).map_err(unreadable)?)))
        .collect()
}

fn read(raw: Raw) -> Endpoint {
    let path = raw.url.parse().map(|url: Uri| url.path().trim_end_matches('/').to_owned());
    Endpoint {
        id: raw.id,
        path: path.unwrap_or_default(),
        is_enabled: raw.status == "enabled",
        types: raw.enabled_events,
        api_version: raw.api_version,
        livemode: raw.livemode,
    }
}
