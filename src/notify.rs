//! Everything that calls for a person: one POST to an address of the config, bounded in time, without redirects. Never
//! inside of a transaction, and never from a request.
//!
//! The addresses are secrets: errors name their origin alone.

use std::time::Duration;

use serde_json::json;
use thiserror::Error;
use ureq::Agent;

use crate::config::CalledUrl;
use crate::domain::alert::Notice;
use crate::outgoing;

/// For everything together.
const TIMEOUT: Duration = Duration::from_secs(10);

/// For the connection alone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where something is told.
#[derive(Debug, Clone)]
pub struct Sink {
    url: CalledUrl,
    agent: Agent,
}

/// Why something was not told.
#[derive(Debug, Error)]
pub enum Untold {
    /// It was not taken.
    #[error("{origin} answers {status}{}", hint(*.status))]
    Refused {
        /// Who.
        origin: String,
        /// The status of the answer.
        status: u16,
    },
    /// There is no whole answer.
    #[error("{origin} cannot be reached: {problem}")]
    Unreachable {
        /// Who.
        origin: String,
        /// Why not.
        problem: String,
    },
}

impl Untold {
    /// Another notice might be taken: the address is right, and somebody is there.
    #[must_use]
    pub fn is_about_the_notice(&self) -> bool {
        matches!(self, Self::Refused { status: 400..=499, .. })
            && !matches!(self, Self::Refused { status: 401 | 403 | 404 | 408 | 410 | 429, .. })
    }
}

impl Sink {
    /// Tells nothing yet.
    #[must_use]
    pub fn new(url: CalledUrl) -> Self {
        let agent = outgoing::agent(url.expose(), CONNECT_TIMEOUT, TIMEOUT);
        Self { url, agent }
    }

    /// What may be shown of its address.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.url.origin()
    }

    /// Tells a notice, as JSON. `who` begins its text: one channel may hear several services.
    ///
    /// # Errors
    /// [`Untold`], after ten seconds at the latest.
    pub fn tell(&self, who: &str, notice: &Notice) -> Result<(), Untold> {
        let body = json!({
            "text": format!("{who}: {}", notice.text),
            "condition": notice.condition,
            "state": notice.state.as_str(),
            "since": notice.since,
        });
        self.post("application/json", &body.to_string())
    }

    /// Tells that all is well, as plain text.
    ///
    /// # Errors
    /// As [`Self::tell`].
    pub fn beat(&self, text: &str) -> Result<(), Untold> {
        self.post("text/plain; charset=utf-8", text)
    }

    fn post(&self, content_type: &str, body: &str) -> Result<(), Untold> {
        let origin = || self.url.origin().to_owned();
        let sent = self.agent.post(self.url.expose()).header("Content-Type", content_type).send(body);
        let status = match sent {
            Ok(response) => response.status().as_u16(),
            Err(error) => return Err(Untold::Unreachable { origin: origin(), problem: problem(error) }),
        };
        if (200..300).contains(&status) { Ok(()) } else { Err(Untold::Refused { origin: origin(), status }) }
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed, so give the address that it leads to",
        401 | 403 | 404 | 410 => "; is the address right, token and all?",
        _ => "",
    }
}

/// Without the address, which some errors quote.
fn problem(error: ureq::Error) -> String {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => "its address cannot be called".into(),
        error => error.to_string(),
    }
}
