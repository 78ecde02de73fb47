//! The one screen: what is wrong, what waits, what runs, and what happened lately.

use actix_web::{HttpResponse, web};
use maud::{Markup, html};

use super::books::read;
use super::fault::Fault;
use super::parts::{
    account, away, code, command, event, facts, moment, moment_or_dash, nothing, or_dash, query, table, text,
};
use super::shell::{Frame, mode};
use super::{events, jobs, verdict};
use crate::domain::event::UnixSeconds;
use crate::domain::words::counted;
use crate::http::private::{Operator, Private};
use crate::ops::findings::Advised;
use crate::ops::overview::{self, Job, Overview, Pile, Reconciliation, Webhook};
use crate::ops::words::{amount, size, time};

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
            (mode(seen.mode == "live"))
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
            _ => "no delivery since the restart",
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
    html! {
        (facts(vec![("Began", Some(moment(run.started_at, now))), ("Result", Some(word))]))
        @for line in words(&run.counts) { p { (text(&line)) } }
    }
}

/// What a run looked at and found, what is zero left out.
fn words(counts: &serde_json::Map<String, serde_json::Value>) -> Vec<String> {
    let count = |name: &str| counts.get(name).and_then(serde_json::Value::as_i64).unwrap_or_default();
    let some = |pairs: &[(i64, String)]| {
        let told: Vec<&str> = pairs.iter().filter(|(count, _)| *count > 0).map(|(_, words)| words.as_str()).collect();
        (!told.is_empty()).then(|| told.join(", "))
    };
    let nouns = |names: &[(&str, &str)]| {
        some(&names.iter().map(|(name, noun)| (count(name), counted(count(name), noun))).collect::<Vec<_>>())
    };
    let states = |names: &[(&str, &str)]| {
        some(&names.iter().map(|(name, word)| (count(name), format!("{} {word}", count(name)))).collect::<Vec<_>>())
    };
    let compared = nouns(&[
        ("events", "event"),
        ("subscriptions", "subscription"),
        ("invoices", "invoice"),
        ("checkouts", "checkout session"),
        ("refunds", "refund"),
        ("disputes", "dispute"),
    ]);
    let since = counts.get("since").and_then(serde_json::Value::as_i64);
    let since = since.map(|since| format!(" since {}", time(since))).unwrap_or_default();
    let came = states(&[("completed", "completed"), ("pending", "waiting"), ("failed", "failed")]);
    let missing = (count("missing") > 0).then(|| {
        let came = came.map(|came| format!(": {came}")).unwrap_or_default();
        format!("{} had never come{came}", counted(count("missing"), "event"))
    });
    let found = states(&[("found", "new"), ("found_again", "known"), ("resolved", "gone")]);
    let lines = [
        Some(format!("{} compared{since}", compared.unwrap_or_else(|| "Nothing".into()))),
        missing,
        nouns(&[("undelivered", "event")]).map(|events| format!("{events} not delivered by Stripe")),
        Some(found.map_or_else(|| "No findings".into(), |found| format!("Findings: {found}"))),
        nouns(&[("in_flight", "difference")]).map(|differences| format!("{differences} left for the next run")),
    ];
    lines.into_iter().flatten().chain(cut_short(counts)).collect()
}

fn cut_short(counts: &serde_json::Map<String, serde_json::Value>) -> impl Iterator<Item = String> {
    let parts = counts.get("cut_short").and_then(serde_json::Value::as_array).into_iter().flatten();
    parts.filter_map(|part| part.as_str().map(|part| format!("Cut short: {part}")))
}

fn findings(listed: &[Advised], now: UnixSeconds) -> Markup {
    let rows = listed.iter().map(|Advised { row, command: remedy }| {
        let stake = row.amount.zip(row.currency.as_deref());
        vec![
            html! { a href={ "/findings#finding-" (row.finding_id) } { (row.finding_id) ": " (text(&row.kind)) } },
            html! { (code(&row.subject)) @if let Some(id) = &row.account_id { " of " (account(id)) } },
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
    html! { div.jobs { (table("Jobs", &heads, rows.collect(), "No job has a schedule.")) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = 1_790_000_000;

    #[test]
    fn a_webhook_tells_which_secret_verified_last() {
        let webhook = Webhook { path: "/w".into(), secrets: 2, secret: None, verified_at: None };
        assert!(verified(&webhook, NOW).into_string().ends_with(": no delivery since the restart"));
        let webhook = Webhook { secret: Some(1), verified_at: Some(NOW - 60), ..webhook };
        assert!(verified(&webhook, NOW).into_string().ends_with(": secret 1 of 2 verified last, 1m ago"));
    }

    #[test]
    fn a_reconciliation_tells_in_words_what_it_did() {
        let told = |counts: serde_json::Value| words(counts.as_object().expect("an object")).join("; ");
        for (counts, expected) in [
            (serde_json::json!({}), "Nothing compared; No findings"),
            (
                serde_json::json!({ "run": 7, "since": 1_790_000_000, "events": 4, "subscriptions": 3, "invoices": 1,
                    "missing": 0, "found_again": 1, "open": 1 }),
                "4 events, 3 subscriptions, 1 invoice compared since 2026-09-21 14:13:20; Findings: 1 known",
            ),
            (
                serde_json::json!({ "events": 9, "missing": 3, "completed": 2, "pending": 1, "undelivered": 4,
                    "found": 2, "resolved": 1, "in_flight": 1, "cut_short": ["invoices: timed out"] }),
                "9 events compared; 3 events had never come: 2 completed, 1 waiting; 4 events not delivered by Stripe; \
                 Findings: 2 new, 1 gone; 1 difference left for the next run; Cut short: invoices: timed out",
            ),
        ] {
            assert_eq!(told(counts), expected);
        }
    }

    #[test]
    fn what_cut_a_reconciliation_short_is_text() {
        let counts = serde_json::json!({ "cut_short": ["<b>"] });
        let run = Reconciliation {
            started_at: NOW,
            result: "partial".into(),
            counts: counts.as_object().cloned().unwrap_or_default(),
        };
        let shown = reconciliation(Some(&run), NOW).into_string();
        assert!(shown.contains("<span class=\"mark bad\">cut short</span>"), "{shown}");
        assert!(shown.contains("<bdi>Cut short: &lt;b&gt;</bdi>"), "{shown}");
    }
}
