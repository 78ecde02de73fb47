//! The configuration that `billingd init` writes.
//!
//! It is the documentation with every key switched off, so that later versions may still change their defaults, and
//! with admin tokens of its own, which are on. It holds secrets: whoever writes it to a file sees to the file's mode.

use super::layers::DOCUMENTATION;
use super::secret::Secret;

/// How many random bytes three tokens take.
const RANDOM_BYTES: usize = 96;

/// Where the documentation begins to speak of every configuration and not of the file of defaults.
const BEGINS_WITH: &str = "# How to read it";

/// Fresh admin tokens, one for each scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StarterTokens {
    /// Opens everything.
    pub operator: Secret,
    /// For the user's own app.
    pub app: Secret,
    /// For a scraper of the metrics.
    pub metrics: Secret,
}

impl StarterTokens {
    /// Makes tokens of 256 bits each from bytes of the system's generator.
    #[must_use]
    pub fn from_random(bytes: &[u8; RANDOM_BYTES]) -> Self {
        let (operator, rest) = bytes.split_at(RANDOM_BYTES / 3);
        let (app, metrics) = rest.split_at(RANDOM_BYTES / 3);
        let [operator, app, metrics] =
            [operator, app, metrics].map(|part| Secret::new(base16ct::lower::encode_string(part)));
        Self { operator, app, metrics }
    }
}

/// The text of a first configuration with these tokens. It needs `STRIPE_WEBHOOK_SECRET` in the environment.
#[must_use]
pub fn starter(tokens: &StarterTokens) -> String {
    let mut text = String::from(
        "# The configuration of this billingd, made by `billingd init`: every key, switched off, but for three admin tokens,\n\
         # which are on. They are secrets: keep this file to its owner (chmod 600). The signing secret comes from the\n\
         # environment variable STRIPE_WEBHOOK_SECRET; a [[webhook]] block below takes it from elsewhere.\n#\n",
    );
    for line in DOCUMENTATION.lines().skip_while(|line| !line.starts_with(BEGINS_WITH)) {
        if line == "[database]" {
            text.push_str(&token_blocks(tokens));
        }
        let is_key = line.starts_with(|c: char| c.is_ascii_lowercase());
        text.push_str(if is_key { "#" } else { "" });
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn token_blocks(tokens: &StarterTokens) -> String {
    [("ops", "operator", &tokens.operator), ("app", "app", &tokens.app), ("metrics", "metrics", &tokens.metrics)]
        .map(|(name, scope, token)| {
            let token = token.expose();
            format!("[[admin.token]]\nname = \"{name}\"\nscope = \"{scope}\"\nsecret = \"{token}\"\n\n")
        })
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let mut bytes = [0; RANDOM_BYTES];
        bytes.iter_mut().zip(0..).for_each(|(byte, index)| *byte = index);
        let tokens = StarterTokens::from_random(&bytes);
        assert!(tokens.operator.expose().starts_with("000102") && tokens.operator.expose().len() == 64);
        assert_ne!(tokens.operator, tokens.app);
        assert_ne!(tokens.app, tokens.metrics);
        assert!(!format!("{tokens:?}").contains("000102"));
    }

    #[test]
    fn every_documented_key_stands_in_it_switched_off() {
        let text = starter(&StarterTokens::from_random(&[7; RANDOM_BYTES]));
        assert!(text.contains("\n#listen = \"127.0.0.1:8787\"\n"), "{text}");
        let set: Vec<&str> = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())).collect();
        assert_eq!(set.len(), 9, "{set:?}");
    }
}
