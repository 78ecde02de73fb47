//! What holds for every call that leaves this process: a status is an answer and no error, redirects are not followed,
//! and nothing but https leaves this machine, or goes through a proxy that the environment names.

use std::time::Duration;

use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;

/// Settings for calls of an address; `connect` bounds the connection, `whole` everything together.
#[must_use]
pub fn settings(is_https: bool, connect: Duration, whole: Duration) -> ConfigBuilder<AgentScope> {
    let settings = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(is_https)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(connect))
        .timeout_global(Some(whole));
    if is_https { settings } else { settings.proxy(None) }
}

/// An agent with these settings and no others.
#[must_use]
pub fn agent(url: &str, connect: Duration, whole: Duration) -> Agent {
    settings(is_https(url), connect, whole).build().into()
}

/// Whether an address is one of https.
#[must_use]
pub fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_goes_through_a_proxy_and_nothing_leads_away_from_it() {
        let second = Duration::from_secs(1);
        for (url, https_only) in
            [("https://a.example/x", true), ("HTTPS://a.example", true), ("http://127.0.0.1:1", false)]
        {
            let agent = agent(url, second, second);
            assert_eq!((agent.config().https_only(), agent.config().max_redirects()), (https_only, 0), "{url}");
            assert!(https_only || agent.config().proxy().is_none(), "{url}");
        }
    }
}
