//! What arrived, and what became of it.

mod dismiss;
mod import;
mod replay;
mod show;

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::clock;
use crate::config::{self, Config};
use crate::domain::ids::EventId;
use crate::store::events::{self, EventRow, Filter};
use crate::store::found::Found;
use crate::store::unfinished::{self, Group};
use crate::store::{StoreError, payload};
use crate::stripe::wire;

use super::output::{self, Output, Table, age, or_dash, time};
use super::{DONE, values};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List events, the newest first
    #[command(
        after_help = "Examples:\n  billingd events list --status failed\n  billingd events list --type invoice.paid --since 7d"
    )]
    List(ListArguments),
    /// Tell all about one event
    #[command(after_help = "Example:\n  billingd events show evt_123")]
    Show {
        /// The event's id
        #[arg(value_parser = values::event)]
        id: EventId,
        /// Print the payload as it was received, and nothing else
        #[arg(long)]
        payload: bool,
    },
    /// Run events again, by id or all that are chosen
    #[command(
        after_help = "Examples:\n  billingd events replay evt_123 --dry-run\n  billingd events replay --failed --type invoice.paid\n  \
        billingd events replay --outcome ignored"
    )]
    Replay(replay::ReplayArguments),
    /// Complete events that are not ours as ignored
    #[command(after_help = "Example:\n  billingd events dismiss evt_123 --reason \"another shop\"")]
    Dismiss(dismiss::DismissArguments),
    /// Read events from a file, as Stripe's API prints them
    #[command(
        after_help = "Examples:\n  stripe events list --limit 100 > events.json && billingd events import events.json\n  \
        zcat events.ndjson.gz | billingd events import -"
    )]
    Import(import::ImportArguments),
    /// List the Stripe event types to subscribe to
    #[command(after_help = "Example:\n  billingd events types")]
    Types,
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only events of this status; dead letters are failed ones, too
    #[arg(long, value_parser = events::STATUSES)]
    status: Option<String>,
    /// Only events of this outcome
    #[arg(long, value_parser = events::OUTCOMES)]
    outcome: Option<String>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events of this account (id or reference)
    #[arg(long)]
    account: Option<String>,
    /// Only events received in this time, such as 24h or 7d
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
    since: Option<Duration>,
    /// Only events that come after this one in the list
    #[arg(long, value_name = "EVENT", value_parser = values::event)]
    before: Option<EventId>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

pub(super) fn types(output: &Output) -> anyhow::Result<u8> {
    let types = wire::event_types();
    output.show(&types, |types| {
        let mut table = Table::new(&["TYPE", "WHAT FOR"]);
        types.iter().for_each(|(kind, purpose)| table.row(&[kind, purpose]));
        table.render("")
    })?;
    Ok(DONE)
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    match command {
        Command::Types => types(output),
        Command::List(arguments) => list(arguments, config, output),
        Command::Show { id, payload: true } => print_payload(id, config),
        Command::Show { id, payload: false } => show::run(id.as_str(), config, output),
        Command::Replay(arguments) => replay::run(arguments, config, output),
        Command::Dismiss(arguments) => dismiss::run(arguments, config, output),
        Command::Import(arguments) => import::run(arguments, config, output),
    }
}

fn list(arguments: &ListArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let reader = super::reader(config)?;
    let account = match &arguments.account {
        Some(name) => Some(super::account_named(&reader, name)?),
        None => None,
    };
    let filter = Filter {
        status: arguments.status.clone(),
        outcome: arguments.outcome.clone(),
        kind: arguments.kind.clone(),
        account,
        since: super::moment(arguments.since),
        before: arguments.before.as_ref().map(ToString::to_string),
        limit: arguments.limit,
    };
    let Found { rows, edge } = reader.read(|connection| events::list(connection, &filter))?;
    if matches!(filter.status.as_deref(), Some("failed" | "pending" | "dead_letter")) && !rows.is_empty() {
        let groups = reader.read(|connection| unfinished::groups(connection, &filter))?;
        output.say(&format!("{}\n", render_groups(&groups, clock::now() / 1000)))?;
    }
    output.show(&rows, |rows| render_list(rows))?;
    output.edge(edge.as_ref());
    Ok(DONE)
}

fn render_groups(groups: &[Group], now_s: i64) -> String {
    let mut table = Table::new(&[">EVENTS", ">DEAD LETTERS", "TYPE", "WHY", ">OLDEST", ">NEWEST"]);
    for group in groups {
        let (oldest, newest) = (age(now_s - group.oldest), age(now_s - group.newest));
        table.row(&[&group.count, &group.dead_letters, &group.kind, &group.why, &oldest, &newest]);
    }
    table.render("no events")
}

fn render_list(rows: &[EventRow]) -> String {
    let mut table = Table::new(&["RECEIVED", "EVENT", "TYPE", "STATUS", "OUTCOME", "WHY", ">REPEATS"]);
    for row in rows {
        let status = if row.dead_letter { "dead letter" } else { row.status.as_str() };
        let why = [&row.error_code, &row.needs, &row.reason].into_iter().flatten().next();
        table.row(&[
            &time(row.received_at),
            &row.event_id,
            &row.kind,
            &status,
            &or_dash(row.outcome.as_deref()),
            &or_dash(why.map(|why| shortened(why)).as_deref()),
            &row.duplicates,
        ]);
    }
    table.render("no events")
}

/// Short enough for a line; `events show` tells all.
fn shortened(why: &str) -> String {
    const CHARS_MAX: usize = 40;
    let shown: String = why.chars().take(CHARS_MAX).collect();
    if shown == why { shown } else { format!("{}…", shown.trim_end()) }
}

fn print_payload(id: &EventId, config: &Config) -> anyhow::Result<u8> {
    let body = super::reader(config)?.read(|connection| -> Result<_, StoreError> { payload::read(connection, id) })?;
    let Some(body) = body else {
        anyhow::bail!(if id.as_str().starts_with("evt_") {
            format!("the payload of {id} is not kept; Stripe has it for 30 days: `stripe events retrieve {id}`")
        } else {
            format!("{id} is an event of billingd's own, which has no payload; `billingd events show {id}` tells all")
        })
    };
    output::print(&String::from_utf8_lossy(&body))?;
    Ok(DONE)
}
