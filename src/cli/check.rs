//! Whether a service would start, and with what.

use serde::Serialize;

use crate::app;
use crate::config::{Basis, Config, Price, Proration, UnlistedPrice};
use crate::domain::words::counted;
use crate::store::reader::Reader;
use crate::store::{StoreError, files, open};

use super::output::{Output, plain};
use super::{DONE, FOUND};

#[derive(Debug, Serialize)]
struct Checked {
    problems: Vec<String>,
    notes: Vec<String>,
    config: String,
}

pub(super) fn run(config: &Config, output: &Output) -> anyhow::Result<u8> {
    let mut problems = problems(config);
    let mut notes = doubtful(config);
    if config.stripe.api_key.is_none() {
        notes.extend(never_resolves(config));
    }
    let path = &config.database.path;
    match database(config) {
        Err(error) => problems.push(error.to_string()),
        Ok(()) if !path.exists() => {
            notes.push(format!("{}: no database yet; `billingd serve` makes it", path.display()));
        }
        Ok(()) => {}
    }
    let status = if problems.is_empty() { DONE } else { FOUND };
    let checked = Checked { problems, notes, config: config.redacted() };
    output.show(&checked, render)?;
    Ok(status)
}

/// Whether the database is one of these books, or could be made.
fn database(config: &Config) -> Result<(), StoreError> {
    let path = &config.database.path;
    if !path.exists() {
        return files::require_folder(path);
    }
    let binding = app::binding(config);
    Reader::open(path, 1)?.read(|connection| open::is_bound(connection, path, &binding)).map(drop)
}

/// What is wrong with secrets and rules.
pub(super) fn problems(config: &Config) -> Vec<String> {
    let environment = |name: &str| std::env::var(name).ok();
    let mut problems = Vec::new();
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
    problems.extend(config.admin.shared_secret(&environment));
    if let Some(Err(error)) = config.stripe.api_key.as_ref().map(|source| source.resolve(&environment)) {
        problems.push(format!("[stripe] api_key: {error}"));
    }
    if config.jobs.fx.is_some()
        && let Err(error) = config.fx.url.resolve(&environment)
    {
        problems.push(format!("[fx] url: {error}"));
    }
    for (key, url) in [("webhook_url", &config.alerts.webhook_url), ("heartbeat_url", &config.alerts.heartbeat_url)] {
        if let Err(error) = app::sink(key, url, |name| std::env::var(name).ok()) {
            problems.push(format!("{error:#}"));
        }
    }
    if let Err(error) = app::policy(config) {
        problems.push(format!("{error:#}"));
    }
    problems
}

/// What can be read, and is probably not what was meant.
fn doubtful(config: &Config) -> Vec<String> {
    let environment = |name: &str| std::env::var(name).ok();
    let mut notes = Vec::new();
    for webhook in &config.webhooks {
        let secrets = webhook.signing_secrets.iter().filter_map(|source| source.resolve(&environment).ok());
        if secrets.into_iter().any(|secret| !secret.expose().starts_with("whsec_")) {
            notes.push(format!(
                "webhook {}: a signing secret does not begin with whsec_, as those of Stripe's endpoints do",
                webhook.path
            ));
        }
    }
    let key = config.stripe.api_key.as_ref().and_then(|source| source.resolve(&environment).ok());
    if let Some(is_live) = key.and_then(|key| is_live(key.expose()))
        && is_live != config.stripe.livemode
    {
        let mode = if is_live { "live" } else { "test" };
        let livemode = config.stripe.livemode;
        notes.push(format!("[stripe] api_key is a key of {mode} mode, and livemode = {livemode}"));
    }
    if config.credits.basis == Basis::Catalogue
        && config.prices.is_empty()
        && config.credits.unlisted_price == UnlistedPrice::Fail
    {
        notes.push("basis is catalogue and no [[price]] is listed: every paid invoice will fail".to_owned());
    }
    notes
}

/// The mode of a key, where it tells.
fn is_live(key: &str) -> Option<bool> {
    let rest = key.strip_prefix("sk_").or_else(|| key.strip_prefix("rk_"))?;
    if rest.starts_with("live_") {
        return Some(true);
    }
    rest.starts_with("test_").then_some(false)
}

/// What stays pending for good as long as there is no key to ask Stripe with.
pub(super) fn never_resolves(config: &Config) -> Vec<String> {
    let mut notes = vec![
        "no [stripe] api_key: nothing calls Stripe, and nobody finds out what it never delivered".to_owned(),
        "without a key, events of a thin destination stay pending (object:…): let the endpoint send snapshots"
            .to_owned(),
        "without a key, refunds and disputes of API versions from 2025-03-31 on stay pending (payment:…) unless \
         invoice_payment.paid is delivered: subscribe to it"
            .to_owned(),
        "without a key, subscriptions with more items than an event carries stay pending (subscription:…)".to_owned(),
    ];
    if config.credits.basis == Basis::Catalogue {
        notes.push("without a key, invoices with more lines than an event carries stay pending (lines:…)".to_owned());
        notes.push(
            "without a key, paid checkouts without invoice stay pending (session:…) unless their metadata tell price and \
             quantity"
                .to_owned(),
        );
        notes.extend(prorations(config));
    }
    notes
}

/// The prices of the list whose prorations nobody can work out.
fn prorations(config: &Config) -> Option<String> {
    let lacks = |price: &&Price| !price.foreign && price.credits.is_some() && price.unit_amount.is_none();
    let prices: Vec<&str> = config.prices.iter().filter(lacks).map(|price| price.id.as_str()).collect();
    if prices.is_empty() || config.credits.proration != Proration::Prorate {
        return None;
    }
    Some(format!(
        "without a key, prorations of {} stay pending (price:…) until an event tells their unit amount: set unit_amount",
        prices.join(", ")
    ))
}

fn render(checked: &Checked) -> String {
    let mut text = checked.config.clone();
    text.push('\n');
    for note in &checked.notes {
        text.push_str(&format!("note: {}\n", plain(note)));
    }
    for problem in &checked.problems {
        text.push_str(&format!("problem: {}\n", plain(problem)));
    }
    match checked.problems.len() {
        0 => text.push_str("ok: billingd would start\n"),
        some => text.push_str(&format!("billingd would not start: {}\n", counted(some, "problem"))),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_mode() {
        for (key, live) in [
            ("sk_live_x", Some(true)),
            ("rk_live_x", Some(true)),
            ("rk_test_x", Some(false)),
            ("sk_test_x", Some(false)),
            ("whsec_x", None),
            ("sk_x_live_", None),
        ] {
            assert_eq!(is_live(key), live, "{key}");
        }
    }
}
