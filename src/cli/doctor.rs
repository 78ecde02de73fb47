//! Everything that could be wrong, and how to put it right.

use crate::app;
use crate::clock;
use crate::config::Config;
use crate::domain::words::counted;
use crate::jobs;
use crate::ops::backup::{self, Remembered};
use crate::ops::doctor::files::{self, Backups};
use crate::ops::doctor::{Check, Health, books, stripe};
use crate::stop::Stop;
use crate::store::reader::Reader;

use super::output::{Output, plain};
use super::{DONE, FOUND, check};

pub(super) fn run(config: &Config, output: &Output) -> anyhow::Result<u8> {
    let now = clock::now();
    let mut checks = of_config(config);
    let backups = Backups { folder: jobs::shelf(config).folder, by_command: last_backup(config) };
    checks.extend(files::checks(&config.database.path, &backups, config.stripe.livemode, now));
    checks.extend(of_books(config, now));
    checks.extend(of_stripe(config));
    output.show(&checks, |checks| render(checks))?;
    let found = checks.iter().any(|check| check.health == Health::Problem);
    Ok(if found { FOUND } else { DONE })
}

/// The config could be read, or nobody would come here.
fn of_config(config: &Config) -> Vec<Check> {
    let problems = check::problems(config);
    if problems.is_empty() {
        return vec![Check::ok("config", "valid, and every secret is there")];
    }
    let fix = "`billingd check` shows the config; run this as the service's user, or as root";
    let why = "the service does not start without it";
    problems.into_iter().map(|problem| Check::problem("config", problem, why, fix)).collect()
}

/// What is wrong with the database is told with the books.
fn last_backup(config: &Config) -> Option<Remembered> {
    Reader::open(&config.database.path, 1).and_then(|reader| reader.read(backup::remembered)).ok().flatten()
}

fn of_books(config: &Config, now: i64) -> Vec<Check> {
    let path = &config.database.path;
    if !path.exists() {
        return Vec::new();
    }
    let digest = config.catalogue_digest();
    let expected = books::Expected {
        livemode: config.stripe.livemode,
        connected_account: config.stripe.connected_account.as_deref(),
        secrets: config.webhooks.iter().map(|hook| (hook.path.as_str(), hook.signing_secrets.len())).collect(),
        digest_key: app::CATALOGUE_DIGEST,
        digest: &digest,
        scope: &app::scope(config),
    };
    let checks =
        Reader::open(path, 1).and_then(|reader| reader.read(|connection| books::checks(connection, &expected, now)));
    checks.unwrap_or_else(|error| {
        let why = "nothing of the books can be looked at";
        vec![Check::problem("database", error.to_string(), why, "run the billingd that made it, as its user")]
    })
}

fn of_stripe(config: &Config) -> Vec<Check> {
    let client = match app::client(config, |name| std::env::var(name).ok(), Stop::default()) {
        Ok(Some(client)) => client,
        Ok(None) => {
            return check::never_resolves(config).into_iter().map(|note| Check::note("no key", note)).collect();
        }
        // A secret that is not there was told before.
        Err(_) => return Vec::new(),
    };
    let expected = stripe::Expected {
        livemode: config.stripe.livemode,
        paths: config.webhooks.iter().map(|webhook| webhook.path.as_str()).collect(),
        is_connected: config.stripe.connected_account.is_some(),
    };
    stripe::checks(&client, &expected, &clock::now)
}

fn render(checks: &[Check]) -> String {
    let mut text = String::new();
    for Check { check, health, seen, why, fix } in checks {
        let word = match health {
            Health::Ok => "ok",
            Health::Note => "note",
            Health::Problem => "PROBLEM",
        };
        text.push_str(&format!("{word:<8} {check:<12} {}\n", plain(seen)));
        for (label, line) in [("why", *why), ("fix", fix.as_deref())] {
            if let Some(line) = line {
                text.push_str(&format!("{:<21} {label}: {}\n", "", plain(line)));
            }
        }
    }
    let problems = checks.iter().filter(|check| check.health == Health::Problem).count();
    text.push_str(&match problems {
        0 => "\nall is well\n".to_owned(),
        some => format!("\n{}\n", counted(some, "problem")),
    });
    text
}
