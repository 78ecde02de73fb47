//! Findings: what a person should look at, and letting it be.

use clap::{Subcommand, ValueEnum};

use crate::clock;
use crate::config::Config;
use crate::ops::findings::{Advised, acknowledge};
use crate::store::findings;

use super::output::{Output, Table, amount, or_dash, time};
use super::{DONE, values};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List them, the oldest first, each with the command that sets it right
    #[command(after_help = "Example:\n  billingd findings list --status all")]
    List {
        /// Only those that are open, acknowledged or resolved; or all
        #[arg(long, value_enum, default_value_t = Status::Open)]
        status: Status,
        /// At most so many
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
        limit: i64,
    },
    /// Let one be, for a reason: it raises no alert until something else is seen
    #[command(after_help = "Example:\n  billingd findings acknowledge 7 --reason 'refunded by bank transfer'")]
    Acknowledge {
        /// Its number
        #[arg(value_name = "ID", value_parser = clap::value_parser!(i64).range(1..))]
        id: i64,
        /// Why
        #[arg(long, value_name = "TEXT", value_parser = values::text)]
        reason: String,
        /// Who does this, for the audit log (default: the login name)
        #[arg(long = "as", value_name = "NAME")]
        operator: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Status {
    Open,
    Acknowledged,
    Resolved,
    All,
}

impl Status {
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Open => Some("open"),
            Self::Acknowledged => Some("acknowledged"),
            Self::Resolved => Some("resolved"),
            Self::All => None,
        }
    }
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    match command {
        Command::List { status, limit } => {
            let rows = super::reader(config)?.read(|connection| findings::list(connection, status.word(), *limit))?;
            let listed: Vec<Advised> = rows.into_iter().map(Advised::new).collect();
            output.show(&listed, |listed| render(listed))?;
        }
        Command::Acknowledge { id, reason, operator } => {
            let mut connection = super::beside(config)?;
            let operator = super::operator(operator.as_deref());
            let row = acknowledge(&mut connection, *id, None, reason, &operator, clock::now())?;
            output.show(&row, |row| {
                format!("finding {} ({} of {}) is acknowledged\n", row.finding_id, row.kind, row.subject)
            })?;
        }
    }
    Ok(DONE)
}

/// A table, and below it what each one says.
pub(super) fn render(listed: &[Advised]) -> String {
    let mut table =
        Table::new(&[">ID", "KIND", "SUBJECT", ">AT STAKE", "AT STRIPE", "HERE", "STATUS", "FIRST SEEN", "COMMAND"]);
    for Advised { row, command } in listed {
        let stake = row.amount.zip(row.currency.as_deref()).map(|(sum, currency)| amount(sum, currency));
        let status = match &row.reason {
            Some(reason) => format!("{}: {reason}", row.status),
            None => row.status.clone(),
        };
        table.row(&[
            &row.finding_id,
            &row.kind,
            &row.subject,
            &or_dash(stake.as_deref()),
            &or_dash(row.expected.as_deref()),
            &or_dash(row.actual.as_deref()),
            &status,
            &time(row.first_seen_at),
            command,
        ]);
    }
    table.render("no findings")
}
