//! Takes over an old credit table.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::clock;
use crate::config::Config;
use crate::domain::words::counted;
use crate::ops::import_ledger::{self, Report, RowResult, Taken};
use crate::store::rehearsal::Rehearsal;

use super::DONE;
use super::output::{Output, Table, amount, or_dash};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// CSV with the columns `account_id`, `unit`, `amount`, `source_event_id`, `source_object`, `created_at`; `unit` and
    /// the last two may be missing
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do it; without this, only show what it would do
    #[arg(long)]
    apply: bool,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(arguments: &Arguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let named = || arguments.file.display().to_string();
    let table = std::fs::read(&arguments.file).with_context(named)?;
    let rows = import_ledger::read(&table).with_context(named)?;
    // Also where nothing is written: the server may have another catalogue.
    let mut connection = super::beside(config)?;
    let errand = super::errand(config, arguments.operator.as_deref())?;
    let report = if arguments.apply {
        import_ledger::apply(&mut connection, &rows, &errand, clock::now())
    } else {
        import_ledger::rehearse(&mut Rehearsal::begin(&config.database.path)?, &rows, &errand, clock::now())
    }
    .with_context(named)?;
    output.show(&report, render)?;
    Ok(DONE)
}

fn render(report: &Report) -> String {
    let mut rows = Table::new(&[">LINE", "ACCOUNT", ">AMOUNT", "SOURCE EVENT", "OBJECT", "RESULT", "FACT"]);
    for row in &report.rows {
        rows.row(&[
            &row.line,
            &row.account_id,
            &amount(row.amount, &row.unit),
            &row.source_event_id,
            &or_dash(row.source_object.as_deref()),
            &result(row),
            &or_dash(row.fact.as_deref()),
        ]);
    }
    let mut balances = Table::new(&["ACCOUNT", ">BEFORE", ">ROWS", ">REVERSED", ">AFTER"]);
    for row in &report.balances {
        let shown = |number| amount(number, &row.unit);
        balances.row(&[
            &row.account_id,
            &shown(row.before),
            &shown(row.imported),
            &shown(row.reversed),
            &shown(row.after),
        ]);
    }
    let Report { imported, repeats, already_imported, empty, .. } = report;
    let mut text = format!("{}\n{}\n", rows.render("no rows"), balances.render("no balances"));
    text.push_str(&format!(
        "{imported} imported, {} reversed, {already_imported} imported before; left out, with an amount of 0: {empty}\n",
        counted(*repeats, "repeat")
    ));
    if !report.applied && imported + repeats > 0 {
        text.push_str("nothing is changed yet; run the same with --apply\n");
    }
    text
}

fn result(row: &Taken) -> String {
    match (row.result, &row.repeats) {
        (RowResult::RepeatReversed, what) => format!("reversed, repeats {}", or_dash(what.as_deref())),
        (RowResult::Imported, _) if row.corrected != 0 => {
            format!("imported, {} because of refunds", amount(row.corrected, &row.unit))
        }
        (RowResult::Imported, _) => "imported".into(),
        (RowResult::AlreadyImported, _) => "imported before".into(),
        (RowResult::Empty, _) => "nothing to import".into(),
    }
}
