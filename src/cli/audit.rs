//! Who changed what.

use std::time::Duration;

use clap::Subcommand;

use crate::config::{self, Config};
use crate::domain::ids::EventId;
use crate::store::found::Found;
use crate::store::views::{self, AuditFilter};

use super::output::Output;
use super::{DONE, tables, values};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the audit log, the newest rows last
    #[command(after_help = "Example:\n  billingd audit list --account cus_123 --since 30d")]
    List {
        /// Only about this account (id or reference)
        #[arg(long)]
        account: Option<String>,
        /// Only by this event
        #[arg(long, value_parser = values::event)]
        event: Option<EventId>,
        /// Only of this time, such as 24h or 7d
        #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
        since: Option<Duration>,
        /// Only rows before this one
        #[arg(long, value_name = "SEQ")]
        before: Option<i64>,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let Command::List { account, event, since, before, limit } = command;
    let reader = super::reader(config)?;
    let account = match account {
        Some(name) => Some(super::account_named(&reader, name)?),
        None => None,
    };
    let event = event.as_ref().map(ToString::to_string);
    let filter = AuditFilter { account, event, since: super::moment(*since), before: *before, limit: *limit };
    let Found { rows, edge } = reader.read(|connection| views::audit(connection, &filter))?;
    output.show(&rows, |rows| tables::audit(rows))?;
    output.edge(edge.as_ref());
    Ok(DONE)
}
