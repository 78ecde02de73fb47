//! What `send` and `demo` have in common: signed deliveries as Stripe makes them, one or many at a time.
//!
//! Plain HTTP without a proxy and without redirects: for listeners on this machine only.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;

use crate::clock;
use crate::outgoing;
use crate::stripe::signature;

/// As long as `stripe listen` waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// More than any answer of ours has.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Posts signed events to one webhook.
#[derive(Debug)]
pub(super) struct Poster {
    agent: Agent,
    url: String,
    secret: String,
}

/// What came back for one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answered {
    /// An answer: its status, and what its body says in short.
    Told { status: u16, words: String },
    /// None: says so, and why.
    Nothing(String),
}

impl Answered {
    pub(super) fn is_success(&self) -> bool {
        matches!(self, Self::Told { status: 200..=299, .. })
    }

    /// Such as `200 completed applied`.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Told { status, words } => format!("{status} {words}").trim_end().to_owned(),
            Self::Nothing(why) => why.clone(),
        }
    }
}

impl Poster {
    pub(super) fn new(url: String, secret: String) -> Self {
        let agent = outgoing::agent(&url, TIMEOUT, TIMEOUT);
        Self { agent, url, secret }
    }

    /// The value of the signature's header, made now.
    pub(super) fn signature(&self, body: &[u8]) -> String {
        signature::sign(&self.secret, clock::now() / 1000, body)
    }

    /// Delivers once.
    pub(super) fn post(&self, body: &[u8]) -> Answered {
        let request = self
            .agent
            .post(&self.url)
            .header("Content-Type", "application/json; charset=utf-8")
            .header("Stripe-Signature", self.signature(body));
        match request.send(body) {
            Ok(response) => {
                let status = response.status().as_u16();
                let mut answer = response.into_body();
                // An answer that breaks off has told its status all the same.
                let text = answer.with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
                Answered::Told { status, words: words(&text) }
            }
            Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                Answered::Nothing(format!("nothing listens at {}; start `billingd serve`", self.url))
            }
            Err(error) => Answered::Nothing(format!("not delivered: {error}")),
        }
    }

    /// Delivers all bodies in their order, so many at a time; the answers stand in the order of the bodies.
    pub(super) fn post_all(&self, bodies: &[&[u8]], at_a_time: usize) -> Vec<Answered> {
        let queue = Mutex::new(bodies.iter().enumerate());
        let answers = Mutex::new(BTreeMap::new());
        let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::thread::scope(|threads| {
            for _ in 0..at_a_time.min(bodies.len()) {
                threads.spawn(|| {
                    while let Some((index, body)) = take() {
                        let answer = self.post(body);
                        answers.lock().unwrap_or_else(PoisonError::into_inner).insert(index, answer);
                    }
                });
            }
        });
        answers.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
    }
}

/// How often each answer came, by its label.
pub(super) fn tally<'a>(answers: impl Iterator<Item = &'a Answered>) -> BTreeMap<String, usize> {
    answers.fold(BTreeMap::new(), |mut counts, answer| {
        *counts.entry(answer.label()).or_default() += 1;
        counts
    })
}

/// The parts of an answer that say what became of a delivery.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parts {
    status: Option<String>,
    outcome: Option<String>,
    error: Option<String>,
}

fn words(answer: &str) -> String {
    let parts: Parts = serde_json::from_str(answer).unwrap_or_default();
    // What became of a repeat is told by the first delivery.
    let outcome = parts.outcome.filter(|_| parts.status.as_deref() == Some("completed"));
    [parts.error, parts.status, outcome].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_a_few_words() {
        for (answer, told) in [
            (r#"{"status":"completed","outcome":"applied","event_id":"evt_1"}"#, "completed applied"),
            (r#"{"status":"duplicate","outcome":"applied","event_id":"evt_1"}"#, "duplicate"),
            (r#"{"status":"pending","needs":"payment:pi_1","event_id":"evt_1"}"#, "pending"),
            (r#"{"error":"signature_mismatch","message":"…"}"#, "signature_mismatch"),
            ("gone", ""),
        ] {
            assert_eq!(words(answer), told);
        }
    }
}
