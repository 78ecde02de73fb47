//! The command line: one file per family of commands. A command reads its arguments, calls one operation and shows
//! the result, as a table for people or (`--json`) as one document for programs.

mod accounts;
mod adopt;
mod alerts;
mod audit;
mod backup;
mod check;
mod demo;
mod doctor;
mod events;
mod findings;
mod fx;
mod import_ledger;
mod init;
mod output;
mod post;
mod progress;
mod prune;
mod reap;
mod reconcile;
mod repair;
mod send;
mod serve;
mod tables;
mod values;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::app;
use crate::clock;
use crate::config::{self, Config};
use crate::ops::adjust;
use crate::ops::ingest::Errand;
use crate::stop::Stop;
use crate::store::meta;
use crate::store::open::{self, CommandConnection};
use crate::store::reader::Reader;
use crate::stripe::client::Client;

use output::Output;

/// Done, and nothing was found.
const DONE: u8 = 0;
/// It could not be done.
const NOT_DONE: u8 = 1;
/// Done, and something was found that a person should look at.
const FOUND: u8 = 3;

/// Receives Stripe's webhooks and keeps the books: one effect per fact, in an embedded SQLite ledger.
#[derive(Debug, Parser)]
#[command(
    name = "billingd",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  billingd demo                       see what it does, in a second
  billingd init                       write a config to start from
  billingd --config prod.toml         serve
  billingd accounts show cus_123      what an account has, and why"
)]
struct Arguments {
    /// The config file; without one, the defaults and the environment count
    #[arg(long, global = true, env = "BILLINGD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document instead of tables
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service (what happens without a command, too)
    #[command(after_help = "Example:\n  billingd --config /etc/billingd/billingd.toml serve")]
    Serve,
    /// Write a first config with fresh tokens, and say what to do next
    #[command(after_help = "Example:\n  billingd init /etc/billingd")]
    Init {
        /// The folder for it
        #[arg(default_value = ".", value_name = "DIR")]
        folder: PathBuf,
    },
    /// Replay the incident that billingd exists for, on a temporary database
    #[command(after_help = "Example:\n  billingd demo")]
    Demo,
    /// Sign sample or given events and post them to the listener on this machine
    #[command(
        after_help = "Examples:\n  billingd --config config/dev.toml send invoice.paid --times 5 --concurrency 5\n  \
        billingd --config config/dev.toml send invoice.paid invoice_payment.paid charge.refunded"
    )]
    Send(send::SendArguments),
    /// Validate config, secrets and database; print the effective config, secrets redacted
    #[command(after_help = "Example:\n  billingd --config prod.toml check")]
    Check,
    /// What arrived, and what became of it
    #[command(subcommand)]
    Events(events::Command),
    /// Who has what, and why
    #[command(subcommand)]
    Accounts(accounts::Command),
    /// Who changed what
    #[command(subcommand)]
    Audit(audit::Command),
    /// Compare the books with Stripe, fetch what never came, and tell what differs
    #[command(after_help = "Examples:\n  billingd --config prod.toml reconcile\n  \
        billingd --config prod.toml reconcile --since 30d --json")]
    Reconcile(reconcile::ReconcileArguments),
    /// Whether a call for a person would arrive
    #[command(subcommand)]
    Alerts(alerts::Command),
    /// What a person should look at
    #[command(subcommand)]
    Findings(findings::Command),
    /// Exchange rates: what there is, and getting more
    #[command(subcommand)]
    Fx(fx::Command),
    /// Take over an old credit table
    #[command(after_help = "Examples:\n  billingd import-ledger old.csv            what it would do\n  \
        billingd import-ledger old.csv --apply    do it")]
    ImportLedger(import_ledger::Arguments),
    /// Clean up what went wrong before
    #[command(subcommand)]
    Repair(repair::Command),
    /// Make one pass over what did not get through: run it again, put aside what is too old
    #[command(after_help = "Example:\n  billingd reap --older-than 12h")]
    Reap(reap::ReapArguments),
    /// Take over the customers and subscriptions of a running Stripe account
    #[command(after_help = "Examples:\n  billingd --config prod.toml adopt            what it would do\n  \
        billingd --config prod.toml adopt --apply    do it")]
    Adopt(adopt::AdoptArguments),
    /// Look at everything that could be wrong here or at Stripe, and tell how to put it right
    #[command(after_help = "Example:\n  billingd --config prod.toml doctor")]
    Doctor,
    /// Prove that the books are whole
    #[command(after_help = "Example:\n  billingd --config prod.toml verify && echo clean")]
    Verify,
    /// Delete the payloads and ignored events that `[retention]` lets go
    #[command(after_help = "Example:\n  billingd --config prod.toml prune")]
    Prune {
        /// Who does this, for the audit log (default: the login name)
        #[arg(long = "as", value_name = "NAME")]
        operator: Option<String>,
    },
    /// Write the books into one file, beside a running server; a former backup there is replaced
    #[command(after_help = "Example:\n  billingd --config prod.toml backup /var/backups/billingd.backup")]
    Backup {
        /// The file
        file: PathBuf,
    },
    /// Put a backup in place of the database of a stopped server; the former database is kept
    #[command(
        after_help = "Example:\n  systemctl stop billingd\n  billingd --config prod.toml restore /var/backups/billingd.backup"
    )]
    Restore {
        /// What `billingd backup` wrote; it stays
        file: PathBuf,
        /// Who does this, for the audit log (default: the login name)
        #[arg(long = "as", value_name = "NAME")]
        operator: Option<String>,
    },
    /// Print completions for a shell
    #[command(after_help = "Example:\n  billingd completions bash > /etc/bash_completion.d/billingd")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Runs the command that the arguments name; the exit status is that of the contract.
#[must_use]
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output::new(arguments.json);
    match dispatch(&arguments, &output) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output.error(&error);
            ExitCode::from(NOT_DONE)
        }
    }
}

fn dispatch(arguments: &Arguments, output: &Output) -> anyhow::Result<u8> {
    let command = arguments.command.as_ref().unwrap_or(&Command::Serve);
    match command {
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Arguments::command(), "billingd", &mut std::io::stdout());
            Ok(DONE)
        }
        Command::Demo => demo::run(output),
        Command::Init { folder } => init::run(folder, output),
        Command::Events(events::Command::Types) => events::types(output),
        _ => with_config(command, &load(arguments)?, output),
    }
}

fn with_config(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    match command {
        Command::Serve => serve::run(config),
        Command::Check => check::run(config, output),
        Command::Events(command) => events::run(command, config, output),
        Command::Accounts(command) => accounts::run(command, config, output),
        Command::Audit(command) => audit::run(command, config, output),
        Command::Reconcile(arguments) => reconcile::run(arguments, config, output),
        Command::Alerts(command) => alerts::run(command, config, output),
        Command::Findings(command) => findings::run(command, config, output),
        Command::Fx(command) => fx::run(command, config, output),
        Command::ImportLedger(arguments) => import_ledger::run(arguments, config, output),
        Command::Repair(command) => repair::run(command, config, output),
        Command::Reap(arguments) => reap::run(arguments, config, output),
        Command::Adopt(arguments) => adopt::run(arguments, config, output),
        Command::Doctor => doctor::run(config, output),
        Command::Verify => verify::run(config, output),
        Command::Prune { operator } => prune::run(operator.as_deref(), config, output),
        Command::Backup { file } => backup::write(file, config, output),
        Command::Restore { file, operator } => backup::restore(file, operator.as_deref(), config, output),
        Command::Send(arguments) => send::run(arguments, config, output),
        Command::Demo | Command::Init { .. } | Command::Completions { .. } => Ok(DONE),
    }
}

fn load(arguments: &Arguments) -> anyhow::Result<Config> {
    Ok(config::load(arguments.config.as_deref(), std::env::vars())?)
}

/// What the reading commands read through.
fn reader(config: &Config) -> anyhow::Result<Reader> {
    Ok(Reader::open(&config.database.path, 1)?)
}

/// What the writing commands write through, beside a server that may run.
///
/// # Errors
/// Also when the running server has another catalogue: the same event must not mean two things.
fn beside(config: &Config) -> anyhow::Result<CommandConnection> {
    let path = &config.database.path;
    let connection = open::beside(path, &app::binding(config))?;
    let held = meta::get(&connection, app::CATALOGUE_DIGEST)?;
    if held.is_some_and(|held| held != config.catalogue_digest()) {
        anyhow::bail!(
            "{}: the books were last served with another catalogue (prices, tiers, credits) than this config has; start (or restart) \
             billingd with it, then try again",
            path.display()
        );
    }
    Ok(connection)
}

/// What runs events beside a server, on behalf of a person.
fn errand(config: &Config, operator_given: Option<&str>) -> anyhow::Result<Errand> {
    Ok(Errand::new(app::rules_beside(config)?, &format!("operator:{}", operator(operator_given))))
}

/// Who asks Stripe.
///
/// # Errors
/// Also without a key.
fn stripe(config: &Config) -> anyhow::Result<Client> {
    let client = app::client(config, |name| std::env::var(name).ok(), Stop::default())?;
    client.context("this asks Stripe, and there is no [stripe] api_key; a restricted key that may only read is enough")
}

/// The id of the account that an id or a reference names.
fn account_named(reader: &Reader, name: &str) -> anyhow::Result<String> {
    Ok(reader.read(|connection| Ok(adjust::find_account(connection, name)))??.to_string())
}

/// Seconds of the moment that lies `since` before now.
fn moment(since: Option<Duration>) -> Option<i64> {
    since.map(|since| clock::seconds_before(clock::now(), since))
}

/// Whole seconds.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// The name for the audit log: as given, else the login name of whoever called `sudo`, else of this user.
fn operator(given: Option<&str>) -> String {
    let login = || ["SUDO_USER", "LOGNAME", "USER"].iter().find_map(|name| std::env::var(name).ok());
    given
        .map(str::to_owned)
        .or_else(login)
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn walk(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let leaf = command.get_subcommands().next().is_none();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!leaf || help.contains("Example"), "{path} has no example");
            command.get_subcommands().for_each(|command| walk(command, &path));
        }
        walk(&Arguments::command(), "");
    }
}
