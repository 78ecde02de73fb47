//! One run of reconciliation, for a person or for cron.

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::app;
use crate::clock;
use crate::config::{self, Config};
use crate::domain::words::counted;
use crate::jobs::{self, Heartbeat};
use crate::ops::findings::Advised;
use crate::ops::reconcile::{self, Counts, Ended, Options, Place, Report};
use crate::stop::Stop;
use crate::store::{files, findings};

use super::findings::render as render_findings;
use super::output::{Output, plain, time};
use super::progress::Progress;
use super::{DONE, FOUND, NOT_DONE};

/// So many findings are shown with a run; `findings list` shows more.
const SHOWN_MAX: i64 = 50;

#[derive(Debug, Args)]
pub(super) struct ReconcileArguments {
    /// Look back so far, such as 30d (default: since the last good run, and at least [reconcile] lookback)
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
    since: Option<Duration>,
    /// Fetch no missed events; only compare
    #[arg(long)]
    no_backfill: bool,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    report: Report,
    /// Only after a complete run.
    heartbeat: Option<Heartbeat>,
    findings: Vec<Advised>,
}

pub(super) fn run(arguments: &ReconcileArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let stop = Stop::default();
    let heart = app::sink("heartbeat_url", &config.alerts.heartbeat_url, |name| std::env::var(name).ok())?;
    let client = app::client(config, |name| std::env::var(name).ok(), stop.clone())?;
    let Some(client) = client else {
        anyhow::bail!(
            "there is no [stripe] api_key, so nothing can be compared; a restricted, read-only key is enough"
        );
    };
    let mut connection = super::beside(config)?;
    let reader = super::reader(config)?;
    let shown = RefCell::new(None::<(&'static str, Progress)>);
    let place = Place {
        api: &client,
        reader: &reader,
        folder: files::folder_of(&config.database.path),
        clock: &clock::now,
        stop: &stop,
        actor: &format!("operator:{}", super::operator(arguments.operator.as_deref())),
        progress: &|what, done| show(&mut shown.borrow_mut(), what, done),
    };
    let options = Options { since_s: arguments.since.map(super::seconds), no_backfill: arguments.no_backfill };
    let report =
        reconcile::run(place, &mut connection, &app::reconciliation(config, app::rules_beside(config)?), options)?;
    drop(shown.into_inner());
    let is_complete = report.result == Ended::Ok;
    let heartbeat = is_complete.then(|| jobs::heartbeat(heart.as_ref(), &reader)).transpose()?;
    let rows = reader.read(|connection| findings::list(connection, Some("open"), SHOWN_MAX))?;
    let result = Shown { report, heartbeat, findings: rows.into_iter().map(Advised::new).collect() };
    output.show(&result, render)?;
    Ok(match result.report.result {
        Ended::Ok if result.report.counts.open == 0 => DONE,
        Ended::Ok => FOUND,
        Ended::Partial | Ended::Failed => NOT_DONE,
    })
}

/// One line at a time: what is done now.
fn show(shown: &mut Option<(&'static str, Progress)>, what: &'static str, done: u64) {
    if shown.as_ref().is_none_or(|(now, _)| *now != what) {
        *shown = None;
        *shown = Some((what, Progress::new(what, None)));
    }
    if let Some((_, progress)) = shown {
        progress.at(done);
    }
}

fn render(shown: &Shown) -> String {
    let Report { run, result, since, counts, cut_short, cannot_tell } = &shown.report;
    let mut text = format!("run {run}: {}, since {}\n", word(*result), time(*since));
    text.push_str(&looked_at(counts));
    for one in cannot_tell {
        text.push_str(&format!("cannot tell  {}\n", plain(one)));
    }
    for one in cut_short {
        text.push_str(&format!("CUT SHORT    {}\n", plain(one)));
    }
    let Counts { found, found_again, resolved, in_flight, open, .. } = counts;
    text.push_str(&format!(
        "findings     {found} new, {found_again} known, {resolved} gone, {open} open; {in_flight} left for the next run\n"
    ));
    if let Some(Heartbeat { audit_rows, audit_head, heard, problem }) = &shown.heartbeat {
        let heard = match (heard, problem) {
            (Some(true), _) => "; heartbeat sent".to_owned(),
            (_, Some(problem)) => format!("\nNO HEARTBEAT {}", plain(problem)),
            _ => String::new(),
        };
        text.push_str(&format!("audit head   {audit_rows} {audit_head}{heard}\n"));
    }
    if !shown.findings.is_empty() {
        text.push('\n');
        text.push_str(&render_findings(&shown.findings));
    }
    text
}

fn looked_at(counts: &Counts) -> String {
    let Counts { events, undelivered, missing, completed, pending, failed, .. } = counts;
    let mut text = format!(
        "events       {} at Stripe, {undelivered} of them not delivered; {missing} had never arrived here \
         ({completed} completed, {pending} waiting, {failed} failed)\n\
         compared     {}, {}, {}, {}, {}\n",
        counted(*events, "event"),
        counted(counts.subscriptions, "subscription"),
        counted(counts.invoices, "invoice"),
        counted(counts.checkouts, "checkout session"),
        counted(counts.refunds, "refund"),
        counted(counts.disputes, "dispute")
    );
    if let Some(since) = counts.silent_since {
        let events = counted(counts.silent, "event");
        text.push_str(&format!(
            "SILENCE      Stripe has {events} for us, and has delivered nothing since {}\n",
            time(since)
        ));
    }
    text
}

fn word(result: Ended) -> &'static str {
    match result {
        Ended::Ok => "complete",
        Ended::Partial => "partial; nothing is concluded from what was not seen",
        Ended::Failed => "failed; nothing could be looked at",
    }
}
