//! What arrived, and what became of it.

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::config::Config;
use crate::domain::ids::EventId;
use crate::store::events::{self, EventRow, Filter};
use crate::store::views::{self, AuditFilter, AuditRow, LedgerRow};
use crate::store::{StoreError, payload};
use crate::stripe::wire;

use super::output::{self, Output, Table, or_dash, plain, time};
use super::{DONE, tables};

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
        id: String,
        /// Print the payload as it was received, and nothing else
        #[arg(long)]
        payload: bool,
    },
    /// List the Stripe event types to subscribe to
    #[command(after_help = "Example:\n  billingd events types")]
    Types,
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only events of this status
    #[arg(long, value_parser = ["pending", "completed", "failed"])]
    status: Option<String>,
    /// Only events of this outcome
    #[arg(long, value_parser = ["applied", "no_effect", "stale", "ignored"])]
    outcome: Option<String>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events of this account (id or reference)
    #[arg(long)]
    account: Option<String>,
    /// Only events received in this time, such as 24h or 7d
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
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
        Command::Show { id, payload: false } => show(id, config, output),
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
        since: super::moment(arguments.since.as_deref())?,
        limit: arguments.limit,
    };
    let rows = reader.read(|connection| events::list(connection, &filter))?;
    output.show(&rows, |rows| render_list(rows))?;
    Ok(DONE)
}

fn render_list(rows: &[EventRow]) -> String {
    let mut table = Table::new(&["RECEIVED", "EVENT", "TYPE", "STATUS", "OUTCOME", "WHY", ">REPEATS"]);
    for row in rows {
        let status = if row.dead_letter { "dead letter" } else { row.status.as_str() };
        let why = [&row.needs, &row.error_code, &row.reason].into_iter().flatten().next();
        table.row(&[
            &time(row.received_at),
            &row.event_id,
            &row.kind,
            &status,
            &or_dash(row.outcome.as_deref()),
            &or_dash(why.map(String::as_str)),
            &row.duplicates,
        ]);
    }
    table.render("no events")
}

#[derive(Debug, Serialize)]
struct Story {
    event: EventRow,
    entries: Vec<LedgerRow>,
    audit: Vec<AuditRow>,
}

fn show(id: &str, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let story = super::reader(config)?.read(|connection| {
        let Some(event) = events::find(connection, id)? else { return Ok(None) };
        let filter = AuditFilter { event: Some(id.to_owned()), limit: 100, ..AuditFilter::default() };
        Ok(Some(Story {
            event,
            entries: views::ledger_of_event(connection, id)?,
            audit: views::audit(connection, &filter)?,
        }))
    })?;
    let Some(story) = story else { anyhow::bail!("there is no event {id}; `billingd events list` shows the newest") };
    output.show(&story, render_story)?;
    Ok(DONE)
}

fn render_story(story: &Story) -> String {
    let event = &story.event;
    let mut text = format!("{}  {}\n", plain(&event.event_id), plain(&event.kind));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<12} {}\n", plain(value)));
        }
    };
    line("status", if event.dead_letter { "failed, dead letter: a person must look" } else { &event.status });
    line("outcome", event.outcome.as_deref().unwrap_or_default());
    line("reason", event.reason.as_deref().unwrap_or_default());
    line("waits for", event.needs.as_deref().unwrap_or_default());
    line("error", event.error_code.as_deref().unwrap_or_default());
    line("", event.last_error.as_deref().unwrap_or_default());
    line("failures", &count(event.attempts));
    line("repeats", &count(event.duplicates));
    line("late repeats", &count(event.late_duplicates));
    line("source", &event.source);
    line("mode", if event.livemode { "live" } else { "test" });
    line("object", event.object_id.as_deref().unwrap_or_default());
    line("account", event.account_id.as_deref().unwrap_or_default());
    line("connected", event.stripe_account.as_deref().unwrap_or_default());
    line("api version", event.api_version.as_deref().unwrap_or_default());
    line("created", &time(event.created_at));
    line("received", &time(event.received_at));
    line("processed", &event.processed_at.map(time).unwrap_or_default());
    if !story.entries.is_empty() {
        text.push_str(&format!("\nentries\n{}", tables::ledger(&story.entries)));
    }
    if !story.audit.is_empty() {
        text.push_str(&format!("\naudit\n{}", tables::audit(&story.audit)));
    }
    text
}

fn count(number: i64) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}

fn print_payload(id: &str, config: &Config) -> anyhow::Result<u8> {
    let id = EventId::parse(id)?;
    let body = super::reader(config)?.read(|connection| -> Result<_, StoreError> { payload::read(connection, &id) })?;
    let Some(body) = body else {
        anyhow::bail!("the payload of {id} is not kept; Stripe has it for 30 days: `stripe events retrieve {id}`")
    };
    output::print(&String::from_utf8_lossy(&body))?;
    Ok(DONE)
}
