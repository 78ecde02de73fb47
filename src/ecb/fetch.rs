//! Gets the file of rates: one GET, without redirects, bounded in time and size. Never inside of a transaction.

use std::time::Duration;

use super::feed::BYTES_MAX;
use crate::outgoing;
use thiserror::Error;

/// For everything together.
const TIMEOUT: Duration = Duration::from_secs(30);

/// For the connection alone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no file. Never names the URL, which may be a secret.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Another status than 200.
    #[error("it answers {0}; redirects are not followed")]
    Status(u16),
    /// An answer that is too large.
    #[error("it sends more than {} KiB", BYTES_MAX >> 10)]
    TooLarge,
    /// No whole answer.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
}

/// Gets what stands at a URL; blocks for at most half a minute.
///
/// # Errors
/// [`FetchError`].
pub fn fetch(url: &str) -> Result<Vec<u8>, FetchError> {
    let agent = outgoing::agent(url, CONNECT_TIMEOUT, TIMEOUT);
    let response = agent.get(url).call().map_err(trouble)?;
    match response.status().as_u16() {
        200 => response.into_body().into_with_config().limit(BYTES_MAX).read_to_vec().map_err(trouble),
        status => Err(FetchError::Status(status)),
    }
}

fn trouble(error: ureq::Error) -> FetchError {
    match error {
        ureq::Error::BodyExceedsLimit(_) => FetchError::TooLarge,
        ureq::Error::BadUri(_) => FetchError::Unreachable("its URL cannot be called".into()),
        error => FetchError::Unreachable(error.to_string()),
    }
}
