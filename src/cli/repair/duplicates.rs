//! What was granted twice.

use clap::Args;

use crate::clock;
use crate::config::Config;
use crate::ops::repair::{self, Report};
use crate::store::ledger::Held;
use crate::store::rehearsal::Rehearsal;

use super::super::output::{Output, Table, amount};
use super::super::{DONE, FOUND, beside, errand};

#[derive(Debug, Args)]
pub(in crate::cli) struct DuplicatesArguments {
    /// Do it; without this, only show what it would do
    #[arg(long)]
    apply: bool,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(arguments: &DuplicatesArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    // Also where nothing is written: the server may have another catalogue.
    let mut connection = beside(config)?;
    let errand = errand(config, arguments.operator.as_deref())?;
    let report = if arguments.apply {
        repair::apply(&mut connection, &errand, clock::now())?
    } else {
        repair::rehearse(&mut Rehearsal::begin(&config.database.path)?, &errand, clock::now())?
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
