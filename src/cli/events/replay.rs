//! Stored events run again.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args};
use rusqlite::Connection;
use serde::Serialize;

use crate::app;
use crate::clock;
use crate::config::Config;
use crate::domain::ids::EventId;
use crate::ops::ingest::Errand;
use crate::ops::replay::{self, BATCH, End, Fetched, Fetcher, How, Plan, Replayed};
use crate::stop::Stop;
use crate::store::rehearsal::Rehearsal;
use crate::store::unfinished::Choice;
use crate::store::written::Written;
use crate::stripe::client::Client;

use super::super::output::{Output, Table, amount, or_dash, plain};
use super::super::progress::Progress;
use super::super::{DONE, FOUND, beside, errand, values};

/// More results than this are summed up, and only those that a person should look at are listed.
const LISTED_MAX: usize = 20;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).multiple(true).args(["ids", "failed", "pending", "outcome", "kind"])))]
pub(in crate::cli) struct ReplayArguments {
    /// The events' ids
    #[arg(value_name = "ID", value_parser = values::event,
          conflicts_with_all = ["failed", "pending", "outcome", "kind"])]
    ids: Vec<EventId>,
    /// All failed events, dead letters too
    #[arg(long)]
    failed: bool,
    /// All pending events
    #[arg(long)]
    pending: bool,
    /// All events of this outcome; only `ignored` ones can run again, and not those that were dismissed
    #[arg(long, value_parser = ["ignored"])]
    outcome: Option<String>,
    /// Of these, only events of this type; alone: the failed and pending ones of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Also run what was dismissed; only for events that are named
    #[arg(long, requires = "ids")]
    dismissed: bool,
    /// Show exactly what it would write, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    plan: Plan,
    /// Planned, but not reached before an error.
    not_run: usize,
    counts: BTreeMap<End, usize>,
    events: Vec<Replayed>,
}

pub(super) fn run(arguments: &ReplayArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let errand = errand(config, arguments.operator.as_deref())?;
    // Also where nothing is written: the server may have another catalogue.
    let mut connection = beside(config)?;
    let plan = plan(arguments, &connection)?;
    if arguments.ids.is_empty() {
        output.say(&render_plan(&plan))?;
    }
    let how = How { dismissed: arguments.dismissed };
    let (counts, events) = (BTreeMap::new(), Vec::new());
    let mut report = Report { dry_run: arguments.dry_run, not_run: plan.ids.len(), plan, counts, events };
    let ran = if arguments.dry_run {
        let mut rehearsal = Rehearsal::begin(&config.database.path)?;
        run_all(rehearsal.connection(), &errand, None, how, &mut report, output)
    } else {
        run_all(&mut connection, &errand, Some(config), how, &mut report, output)
    };
    // What has run has run, whatever came after it.
    if ran.is_ok() || !report.events.is_empty() {
        output.show(&report, render)?;
    }
    ran?;
    Ok(if report.events.iter().any(|one| one.end.is_bad()) { FOUND } else { DONE })
}

/// `stripe`: who is asked for payloads that are not kept any more.
fn run_all(
    desk: &mut Connection,
    errand: &Errand,
    stripe: Option<&Config>,
    how: How,
    report: &mut Report,
    output: &Output,
) -> anyhow::Result<()> {
    let mut progress = Progress::new("events", u64::try_from(report.plan.ids.len()).ok());
    let mut fetcher = None;
    for ids in report.plan.ids.chunks(BATCH) {
        let fetched = match stripe {
            Some(config) => fetch_again(config, &mut fetcher, &replay::without_payload(desk, ids, how)?, output)?,
            None => Vec::new(),
        };
        for mut one in replay::replay(desk, errand, ids, fetched, how, clock::now())? {
            *report.counts.entry(one.end).or_default() += 1;
            if !report.dry_run {
                // `events show` tells it; here it would only take memory.
                one.written = Written::default();
            }
            report.events.push(one);
        }
        report.not_run = report.plan.ids.len().saturating_sub(report.events.len());
        progress.at(u64::try_from(report.events.len()).unwrap_or(u64::MAX));
    }
    errand.run_woken(desk, clock::now())?;
    Ok(())
}

/// Gets payloads back that retention has deleted. Those that Stripe does not give cannot run, and say so.
fn fetch_again(
    config: &Config,
    fetcher: &mut Option<Fetcher<Client>>,
    ids: &[EventId],
    output: &Output,
) -> anyhow::Result<Vec<Fetched>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    if fetcher.is_none() {
        *fetcher = Some(Fetcher::new(app::client(config, |name| std::env::var(name).ok(), Stop::default())?));
    }
    let (fetched, problems) = fetcher.as_mut().map(|fetcher| fetcher.fetch(ids)).unwrap_or_default();
    for problem in problems {
        output.say(&format!("{problem}\n"))?;
    }
    Ok(fetched)
}

fn plan(arguments: &ReplayArguments, connection: &Connection) -> anyhow::Result<Plan> {
    if arguments.ids.is_empty() {
        let only_kind = !(arguments.failed || arguments.pending || arguments.outcome.is_some());
        let choice = Choice {
            failed: arguments.failed || only_kind,
            pending: arguments.pending || only_kind,
            ignored: arguments.outcome.is_some(),
            kind: arguments.kind.clone(),
        };
        return Ok(replay::plan(connection, &choice)?);
    }
    let ids = EventId::each_once(&arguments.ids);
    if let Some(unknown) = replay::unknown(connection, &ids)?.first() {
        anyhow::bail!("there is no event {unknown}; nothing ran again; `billingd events list` shows the newest");
    }
    Ok(Plan { ids, groups: Vec::new() })
}

fn render_plan(plan: &Plan) -> String {
    let mut table = Table::new(&[">EVENTS", "TYPE", "WHY"]);
    for group in &plan.groups {
        table.row(&[&group.count, &group.kind, &or_dash(Some(&group.why))]);
    }
    table.render("no such events")
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    let all = report.dry_run || report.events.len() <= LISTED_MAX;
    for one in report.events.iter().filter(|one| all || one.end.is_bad()) {
        let why = one.why.as_ref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
        let end = one.end.words(report.dry_run);
        text.push_str(&format!("{}  {}  {end}{why}\n", plain(&one.event_id), plain(&one.kind)));
        text.push_str(&render_written(&one.written));
    }
    if report.events.len() > 1 {
        text.push_str(&format!("{}\n", summary(&report.counts, report.dry_run)));
    }
    if report.not_run > 0 {
        text.push_str(&format!("{} not reached; an error came before\n", report.not_run));
    }
    if report.dry_run {
        text.push_str("dry run: nothing was written\n");
    } else if report.events.iter().any(|one| one.end.is_bad()) {
        text.push_str(
            "remove the cause and replay again; what is not ours: `billingd events dismiss ID --reason TEXT`\n",
        );
    }
    text
}

/// A dead letter is a failed event, too.
fn summary(counts: &BTreeMap<End, usize>, is_dry: bool) -> String {
    let mut counts = counts.clone();
    let dead = counts.remove(&End::DeadLetter).unwrap_or_default();
    if dead > 0 {
        *counts.entry(End::Failed).or_default() += dead;
    }
    let of_them = match dead {
        0 => String::new(),
        1 => ", 1 of them a dead letter".to_owned(),
        _ => format!(", {dead} of them dead letters"),
    };
    let told = |(end, count): (&End, &usize)| {
        let of_them = if *end == End::Failed { of_them.as_str() } else { "" };
        format!("{count} {}{of_them}", end.words(is_dry))
    };
    counts.iter().map(told).collect::<Vec<_>>().join(", ")
}

fn render_written(written: &Written) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<7} {}\n", plain(&value)));
    for row in &written.entries {
        line("entry", format!("{} {}  {}  {}", row.kind, amount(row.amount, &row.unit), row.account_id, row.fact));
    }
    for row in &written.tier_changes {
        let (from, to) = (or_dash(row.from_tier.as_deref()), or_dash(row.to_tier.as_deref()));
        line("tier", format!("{}  {from} -> {to}", row.account_id));
    }
    for row in &written.audit {
        line("audit", format!("{} {} {}  {}", row.actor, row.action, row.subject, row.detail));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_count_as_failed() {
        let counts = BTreeMap::from([(End::Applied, 3), (End::Failed, 1), (End::DeadLetter, 1)]);
        assert_eq!(summary(&counts, false), "3 applied, 2 failed, 1 of them a dead letter");
        let counts = BTreeMap::from([(End::DeadLetter, 2)]);
        assert_eq!(summary(&counts, true), "2 would fail, 2 of them dead letters");
    }
}
