//! The one screen: what is wrong, what waits, what runs, and what happened lately.

use actix_web::{HttpResponse, web};
use maud::{Markup, html};

use super::books::read;
use super::fault::Fault;
use super::parts::{away, code, command, event, facts, moment, moment_or_dash, nothing, or_dash, query, table, text};
use super::shell::Frame;
use super::{events, jobs, verdict};
use crate::domain::event::UnixSeconds;
use crate::domain::words::counted;
use crate::http::private::{Operator, Private};
use crate::ops::findings::Advised;
use crate::ops::overview::{self, Job, Overview, Pile, Reconciliation, Webhook};
use crate::ops::words::{amount, size};

pub(super) async fn show(private: web::Data<Private>, operator: Operator) -> Result<HttpResponse, Fault> {
    let now = (private.clock)();
    let storage = private.writer.health().check().err();
    let scene = private.scene.clone();
    let overview = read(&private, move |connection| overview::read(connection, &scene, storage, now)).await?;
    let frame = Frame { operator, now: now / 1000 };
    Ok(frame.answer("/", verdict::title(&overview), &render(&overview)))
}

fn render(seen: &Overview) -> Markup {
    let now = seen.at;
    html! {
        h1 {
            "billingd " (seen.version) " "
            span class={ "mark " @if seen.mode == "live" { "live" } @else { "plain" } } { (seen.mode) " mode" }
            @if let Some(account) = &seen.account { " " (code(account)) }
        }
        (verdict::render(seen))
        div.cards {
            section.card aria-labelledby="open" { h2 id="open" { "Not done" } (open(seen, now)) }
            section.card aria-labelledby="deliveries" { h2 id="deliveries" { "Deliveries" } (deliveries(seen, now)) }
            section.card aria-labelledby="books" { h2 id="books" { "Books" } (books(seen, now)) }
            section.card aria-labelledby="reconciliation" {
                h2 id="reconciliation" { "Reconciliation" }
                (reconciliation(seen.reconciliation.as_ref(), now))
            }
        }
        @if seen.findings_open > 0 {
            h2 id="findings" { a href="/findings" { (counted(seen.findings_open, "open finding")) } }
            (findings(&seen.findings, now))
        }
        h2 { a href="/jobs" { "Jobs" } }
        (jobs_table(&seen.jobs, now))
        h2 { a href="/events" { "Lately" } }
        (events::table_of(&seen.lately, now))
    }
}

fn open(seen: &Overview, now: UnixSeconds) -> Markup {
    let piles = [
        ("dead letters", "failed", &seen.dead_letters),
        ("failed", "failed", &seen.failed),
        ("pending", "pending", &seen.pending),
    ];
    if piles.iter().all(|(_, _, pile)| pile.count == 0) {
        return html! { p { "Nothing: every event is completed." } };
    }
    html! {
        dl {
            @for (name, status, pile) in piles {
                div {
                    dt { a href=(query("/events", &[("status", status)])) { (name) } }
                    dd { strong { (pile.count) } (oldest(pile, now)) }
                }
            }
        }
    }
}

fn oldest(pile: &Pile, now: UnixSeconds) -> Markup {
    html! {
        @if let (Some(id), Some(since)) = (&pile.oldest, pile.since) {
            ", oldest " (event(id)) " " span.ago { "(" (away(since, now)) ")" }
        }
    }
}

fn deliveries(seen: &Overview, now: UnixSeconds) -> Markup {
    let received = seen.received;
    html! {
        (facts(vec![
            ("Last new event", Some(moment_or_dash(received.last_at, now))),
            ("New events, last hour", Some(html! { (received.hour) })),
            ("New events, last 24 h", Some(html! { (received.day) })),
            ("Answered, last 24 h", Some(html! { (received.answered_good) " well, " (received.answered_bad) " not" })),
        ]))
        @for webhook in &seen.webhooks { p { (verified(webhook, now)) } }
    }
}

/// After a change of secrets: which one does Stripe sign with?
fn verified(Webhook { path, secrets, secret, verified_at }: &Webhook, now: UnixSeconds) -> Markup {
    html! {
        (code(path)) ": "
        @match (secret, verified_at) {
            (Some(secret), Some(at)) => { "secret " (secret) " of " (secrets) " verified last, " (away(*at, now)) },
            _ => "no secret has verified anything since the server started",
        }
    }
}

fn books(seen: &Overview, now: UnixSeconds) -> Markup {
    let bytes = |bytes: Option<u64>| bytes.map_or_else(nothing, |bytes| html! { (size(bytes)) });
    facts(vec![
        ("Newest backup", Some(seen.backup_at.map_or_else(|| html! { "there is none" }, |at| moment(at, now)))),
        ("Disk free", Some(bytes(seen.room.disk_free))),
        ("Database", Some(bytes(seen.room.database))),
        ("Write-ahead log", Some(html! { (size(seen.room.wal)) })),
        ("Audit head", Some(html! { a href="/audit" { "row " (seen.audit.seq) } " " code.hash { (seen.audit.hash) } })),
    ])
}

fn reconciliation(run: Option<&Reconciliation>, now: UnixSeconds) -> Markup {
    let Some(run) = run else {
        return html! { p { "None has ended yet. " (command("billingd reconcile")) " compares the books with Stripe; it needs an API key." } };
    };
    let word = match run.result.as_str() {
        "ok" => html! { span.mark.good { "complete" } },
        "partial" => html! { span.mark.bad { "cut short" } },
        other => html! { span.mark.bad { (text(other)) } },
    };
    let counts =
        run.counts.iter().filter_map(|(name, count)| Some((name, count.as_i64().filter(|count| *count != 0)?)));
    html! {
        (facts(vec![("Began", Some(moment(run.started_at, now))), ("Result", Some(word))]))
        p.counts {
            @for (index, (name, count)) in counts.enumerate() {
                @if index > 0 { ", " }
                (text(&name.replace('_', " "))) " " (count)
            }
        }
    }
}

fn findings(listed: &[Advised], now: UnixSeconds) -> Markup {
    let rows = listed.iter().map(|Advised { row, command: remedy }| {
        let stake = row.amount.zip(row.currency.as_deref());
        vec![
            html! { a href={ "/findings#finding-" (row.finding_id) } { (text(&row.kind)) } },
            code(&row.subject),
            or_dash(row.expected.as_deref()),
            or_dash(row.actual.as_deref()),
            stake.map_or_else(nothing, |(sum, currency)| html! { span.amount { (text(&amount(sum, currency))) } }),
            html! { span.whole { (away(row.first_seen_at, now)) } },
            command(remedy),
        ]
    });
    let heads = ["Kind", "Subject", "At Stripe", "Here", "At stake", "First seen", "Remedy"];
    table("Open findings", &heads, rows.collect(), "None.")
}

fn jobs_table(listed: &[Job], now: UnixSeconds) -> Markup {
    let rows = listed.iter().map(|job| {
        vec![
            html! { strong { (job.job) } @if job.overdue { " " span.mark.bad { "overdue" } } },
            job.schedule
                .as_deref()
                .map_or_else(|| html! { "only when asked for" }, |schedule| html! { code.whole { (schedule) } }),
            job.last.as_ref().map_or_else(|| html! { "never" }, |run| moment(run.started_at, now)),
            job.last.as_ref().map_or_else(nothing, |run| {
                html! { (jobs::result(run)) @if let Some(result) = &run.result { " " (text(result)) } }
            }),
            job.next_at.map_or_else(nothing, |at| html! { span.whole { (away(at, now)) } }),
        ]
    });
    let heads = ["Job", "Schedule", "Last run", "Result", "Next"];
    table("Jobs", &heads, rows.collect(), "No job has a schedule.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = 1_790_000_000;

    #[test]
    fn a_reconciliation_tells_its_counts_but_for_zeros() {
        let counts = serde_json::json!({ "events": 7, "missing": 0, "found_again": 2, "<b>": 1 });
        let run = Reconciliation {
            started_at: NOW,
            result: "partial".into(),
            counts: counts.as_object().cloned().unwrap_or_default(),
        };
        let shown = reconciliation(Some(&run), NOW).into_string();
        assert!(shown.contains("<span class=\"mark bad\">cut short</span>"), "{shown}");
        assert!(shown.contains("<bdi>&lt;b&gt;</bdi> 1, <bdi>events</bdi> 7, <bdi>found again</bdi> 2"), "{shown}");
        assert!(!shown.contains("missing"), "{shown}");
    }
}
