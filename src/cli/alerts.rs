//! Whether a call for a person would arrive.

use clap::Subcommand;
use serde::Serialize;

use crate::app;
use crate::config::Config;
use crate::domain::alert::{Notice, State};
use crate::notify::{Sink, Untold};

use super::output::{Output, plain};
use super::{DONE, NOT_DONE};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Send a test to `webhook_url` and `heartbeat_url`, and tell whether each was taken
    #[command(after_help = "Example:\n  billingd --config prod.toml alerts test")]
    Test,
}

/// What became of one test.
#[derive(Debug, Serialize)]
struct Tested {
    /// Its key in `[alerts]`.
    key: &'static str,
    /// What may be shown of its address; `None`: it is not set, or cannot be used.
    origin: Option<String>,
    taken: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let Command::Test = command;
    let environment = |name: &str| std::env::var(name).ok();
    let webhook = app::sink("webhook_url", &config.alerts.webhook_url, environment);
    let heartbeat = app::sink("heartbeat_url", &config.alerts.heartbeat_url, environment);
    let who = app::who(config);
    let notice = Notice {
        state: State::Test,
        condition: "test".into(),
        text: "a test; an alert would look like this".into(),
        since: None,
    };
    let tests = [
        test("webhook_url", webhook, |sink| sink.tell(&who, &notice)),
        test("heartbeat_url", heartbeat, |sink| sink.beat("billingd: a test of the heartbeat\n")),
    ];
    let tests: Vec<Tested> = tests.into_iter().flatten().collect();
    if tests.is_empty() {
        anyhow::bail!(
            "nobody would hear an alert: set [alerts] webhook_url, to a channel that people read, and heartbeat_url, to \
             a service that notices when it stays away"
        );
    }
    output.show(&tests, |tests| render(tests))?;
    Ok(if tests.iter().all(|test| test.taken) { DONE } else { NOT_DONE })
}

/// `None`: the key is not set.
fn test(
    key: &'static str,
    sink: anyhow::Result<Option<Sink>>,
    send: impl FnOnce(&Sink) -> Result<(), Untold>,
) -> Option<Tested> {
    let (origin, sent) = match sink.transpose()? {
        Ok(sink) => (Some(sink.origin().to_owned()), send(&sink).map_err(anyhow::Error::from)),
        Err(error) => (None, Err(error)),
    };
    let problem = sent.err().map(|error| format!("{error:#}"));
    Some(Tested { key, origin, taken: problem.is_none(), problem })
}

fn render(tests: &[Tested]) -> String {
    let mut text = String::new();
    for Tested { key, origin, problem, .. } in tests {
        let line = match problem {
            None => format!("taken by {}", origin.as_deref().unwrap_or_default()),
            Some(problem) => format!("NOT TAKEN: {problem}"),
        };
        text.push_str(&format!("{key:<14} {}\n", plain(&line)));
    }
    if tests.iter().any(|test| !test.taken) {
        text.push_str("\ncorrect the address in [alerts], restart billingd, and test again\n");
    } else {
        text.push_str("\nlook whether it has arrived where people read it\n");
    }
    text
}
