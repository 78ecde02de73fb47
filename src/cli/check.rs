//! Whether a service would start, and with what.

use serde::Serialize;

use crate::app;
use crate::config::Config;
use crate::store::reader::Reader;

use super::output::{Output, plain};
use super::{DONE, FOUND};

#[derive(Debug, Serialize)]
struct Checked {
    problems: Vec<String>,
    notes: Vec<String>,
    config: String,
}

pub(super) fn run(config: &Config, output: &Output) -> anyhow::Result<u8> {
    let environment = |name: &str| std::env::var(name).ok();
    let mut problems = Vec::new();
    let mut notes = Vec::new();
    for webhook in &config.webhooks {
        for source in &webhook.signing_secrets {
            if let Err(error) = source.resolve(&environment) {
                problems.push(format!("webhook {}: {error}", webhook.path));
            }
        }
    }
    for token in &config.admin.tokens {
        if let Err(error) = token.resolve(&environment) {
            problems.push(format!("admin token {}: {error}", token.name));
        }
    }
    match config.stripe.api_key.as_ref().map(|source| source.resolve(&environment)) {
        Some(Err(error)) => problems.push(format!("[stripe] api_key: {error}")),
        Some(Ok(_)) => {}
        None => {
            notes.push("no [stripe] api_key: nothing calls Stripe; thin events, long invoices and checkouts without metadata stay pending".into());
        }
    }
    if config.jobs.fx.is_some()
        && let Err(error) = config.fx.url.resolve(&environment)
    {
        problems.push(format!("[fx] url: {error}"));
    }
    if let Err(error) = app::policy(config) {
        problems.push(format!("{error:#}"));
    }
    let path = &config.database.path;
    if path.exists() {
        if let Err(error) = Reader::open(path, 1) {
            problems.push(error.to_string());
        }
    } else {
        notes.push(format!("{}: no database yet; `billingd serve` makes it", path.display()));
    }
    let status = if problems.is_empty() { DONE } else { FOUND };
    let checked = Checked { problems, notes, config: config.redacted() };
    output.show(&checked, render)?;
    Ok(status)
}

fn render(checked: &Checked) -> String {
    let mut text = checked.config.clone();
    text.push('\n');
    for problem in &checked.problems {
        text.push_str(&format!("problem: {}\n", plain(problem)));
    }
    for note in &checked.notes {
        text.push_str(&format!("note: {}\n", plain(note)));
    }
    text.push_str(if checked.problems.is_empty() {
        "ok: billingd would start\n"
    } else {
        "billingd would not start as it should\n"
    });
    text
}
