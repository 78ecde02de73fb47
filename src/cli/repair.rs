//! Cleans up what went wrong before.

use clap::{Args, Subcommand};

use crate::clock;
use crate::config::Config;
use crate::ops::repair::{self, Report, Terms};
use crate::store::ledger::Held;

use super::output::{Output, Table, amount};
use super::{DONE, FOUND};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Find what was granted twice; keep the first grant, reverse what still stands of the others
    #[command(
        after_help = "Examples:\n  billingd repair duplicates            what it would do\n  billingd repair duplicates --apply    do it"
    )]
    Duplicates(DuplicatesArguments),
}

#[derive(Debug, Args)]
pub(super) struct DuplicatesArguments {
    /// Do it; without this, only show what it would do
    #[arg(long)]
    apply: bool,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    match command {
        Command::Duplicates(arguments) => duplicates(arguments, config, output),
    }
}

fn duplicates(arguments: &DuplicatesArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let mut connection = super::beside(config)?;
    let operator = super::operator(arguments.operator.as_deref());
    let terms = Terms { operator: &operator, livemode: config.stripe.livemode };
    let report = if arguments.apply {
        repair::apply(&mut connection, terms, clock::now())?
    } else {
        repair::rehearse(&mut connection, &config.database.path, terms, clock::now())?
    };
    output.show(&report, render)?;
    Ok(if report.duplicates.is_empty() || report.applied { DONE } else { FOUND })
}

fn render(report: &Report) -> String {
    if report.duplicates.is_empty() {
        return "nothing was granted twice\n".into();
    }
    let mut entries = Table::new(&["PAID", "STAYS", "REVERSED", "ACCOUNT", ">AMOUNT", "BY EVENT"]);
    for one in &report.duplicates {
        for line in &one.lines {
            entries.row(&[
                &one.paid,
                &entry(&one.kept),
                &entry(&one.extra),
                &one.extra.account_id,
                &amount(line.amount, &line.unit),
                &one.event_id,
            ]);
        }
    }
    let mut balances = Table::new(&["ACCOUNT", ">BEFORE", ">AFTER"]);
    for row in &report.balances {
        balances.row(&[&row.account_id, &amount(row.before, &row.unit), &amount(row.after, &row.unit)]);
    }
    let done = if report.applied {
        format!("{} reversed\n", report.duplicates.len())
    } else {
        format!("{} to reverse; nothing is changed yet, run the same with --apply\n", report.duplicates.len())
    };
    format!("{}\n{}\n{done}", entries.render("none"), balances.render("none"))
}

fn entry(held: &Held) -> String {
    format!("entry {} {}", held.entry_id, held.fact)
}
