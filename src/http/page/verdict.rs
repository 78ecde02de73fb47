//! The first line of the one screen: whether anything needs a person, and where to look.

use maud::{Markup, html};

use super::parts::{code, moment, path, query, sentence, text};
use crate::domain::event::UnixSeconds;
use crate::domain::reconcile::Kind;
use crate::domain::words::counted;
use crate::ops::overview::{Overview, Pile, Standing};

/// What a browser's tab says.
pub(super) fn title(seen: &Overview) -> &'static str {
    match (seen.conditions.is_empty(), seen.early.is_empty()) {
        (true, true) => "All is well",
        (true, false) => "Not all is done",
        (false, _) => "Something is wrong",
    }
}

/// All is well; or what is wrong, the most urgent first; or what is not done and calls nobody yet.
pub(super) fn render(seen: &Overview) -> Markup {
    if seen.conditions.is_empty() && seen.early.is_empty() {
        return html! { p.verdict.well role="status" { strong { "All is well." } " Nothing needs you." } };
    }
    let things = i64::try_from(seen.conditions.len()).unwrap_or(i64::MAX);
    html! {
        @if things > 0 {
            section.verdict.wrong role="alert" aria-label="What is wrong" {
                p {
                    strong { (counted(things, "thing")) @if things == 1 { " is" } @else { " are" } " wrong" }
                    @if things > 1 { ", the most urgent first" }
                }
                ol { @for condition in &seen.conditions { li { (wrong(condition, seen, seen.at)) } } }
            }
        }
        @if !seen.early.is_empty() {
            section.verdict.early role="status" aria-label="What is not done" {
                @for condition in &seen.early {
                    p { a href=(detail(&condition.name, seen)) { (text(&condition.text)) } ". " (sentence(&condition.remedy)) "." }
                }
            }
        }
    }
}

fn wrong(condition: &Standing, seen: &Overview, now: UnixSeconds) -> Markup {
    html! {
        a href=(detail(&condition.name, seen)) { (text(&condition.text)) }
        div.remedy {
            (code(&condition.name))
            @if let Some(since) = condition.since { " since " (moment(since, now)) }
        }
        div.remedy { "What helps: " (sentence(&condition.remedy)) }
    }
}

/// Where more is to be seen of a condition: the one event or finding that it is about, or a list.
fn detail(name: &str, seen: &Overview) -> String {
    match name {
        "dead_letter" => of_events(&seen.dead_letters, "failed"),
        "failed" => of_events(&seen.failed, "failed"),
        "pending" => of_events(&seen.pending, "pending"),
        "findings" | "silence" => of_findings(name, seen),
        "signature" | "success_rate" | "undelivered" => "#deliveries".into(),
        job if job.starts_with("job:") => "/jobs".into(),
        _ => "#books".into(),
    }
}

fn of_events(pile: &Pile, status: &str) -> String {
    match &pile.oldest {
        Some(event) if pile.count == 1 => path(&["events", event]),
        _ => query("/events", &[("status", status)]),
    }
}

fn of_findings(name: &str, seen: &Overview) -> String {
    let is_meant = |kind: &str| (kind == Kind::Silence.as_str()) == (name == "silence");
    let mut meant = seen.findings.iter().filter(|finding| is_meant(&finding.row.kind));
    match (meant.next(), meant.next()) {
        (Some(finding), None) => format!("/findings#finding-{}", finding.row.finding_id),
        _ => "/findings".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::findings::Advised;
    use crate::store::findings::FindingRow;

    const NOW: UnixSeconds = 1_790_000_000;

    fn standing(name: &str, text: &str, since: Option<UnixSeconds>) -> Standing {
        Standing { name: name.into(), text: text.into(), remedy: "`billingd doctor` tells".into(), since }
    }

    fn seen(conditions: Vec<Standing>, early: Vec<Standing>) -> Overview {
        Overview { at: NOW, conditions, early, ..Overview::default() }
    }

    fn pile(count: i64) -> Pile {
        Pile { count, oldest: Some("evt/1".into()), since: Some(NOW) }
    }

    fn finding(finding_id: i64, kind: &str) -> Advised {
        let row = FindingRow {
            finding_id,
            kind: kind.into(),
            subject: "in_1".into(),
            expected: None,
            actual: None,
            status: "open".into(),
            first_seen_at: NOW,
            last_seen_at: NOW,
            amount: None,
            currency: None,
            event_id: None,
            reason: None,
            account_id: None,
        };
        Advised::new(row)
    }

    #[test]
    fn the_first_line_says_whether_all_is_well() {
        let well = "<p class=\"verdict well\" role=\"status\"><strong>All is well.</strong> Nothing needs you.</p>";
        assert_eq!(render(&seen(vec![], vec![])).into_string(), well);
        let one = render(&seen(vec![standing("wal", "the log has grown", None)], vec![])).into_string();
        assert_eq!(
            one,
            "<section class=\"verdict wrong\" role=\"alert\" aria-label=\"What is wrong\"><p><strong>1 thing is wrong</strong></p>\
             <ol><li><a href=\"#books\"><bdi>the log has grown</bdi></a><div class=\"remedy\"><code><bdi>wal</bdi></code></div>\
             <div class=\"remedy\">What helps: <bdi></bdi><code>billingd doctor</code><bdi> tells</bdi></div></li></ol></section>"
        );
        let two = vec![standing("dead_letter", "1 dead letter", Some(NOW - 180)), standing("job:<b>", "late", None)];
        let two = render(&seen(two, vec![])).into_string();
        assert!(two.contains("<strong>2 things are wrong</strong>, the most urgent first"), "{two}");
        assert!(two.contains("since <time datetime=\"2026-09-21T14:10:20Z\">2026-09-21 14:10:20</time>"), "{two}");
        assert!(two.contains("job:&lt;b&gt;") && two.find("dead letter") < two.find("late"), "{two}");
    }

    #[test]
    fn what_calls_nobody_yet_is_not_all_well() {
        let failed = Overview { failed: pile(1), ..seen(vec![], vec![standing("failed", "1 event failed", None)]) };
        let shown = render(&failed).into_string();
        assert!(shown.contains("verdict early") && shown.contains("<a href=\"/events/evt%2F1\">"), "{shown}");
        assert!(!shown.contains("All is well") && !shown.contains("wrong"), "{shown}");
        assert_eq!(title(&failed), "Not all is done");
        let both = seen(vec![standing("wal", "x", None)], vec![standing("failed", "1 event failed", None)]);
        let shown = render(&both).into_string();
        assert!(shown.find("verdict wrong") < shown.find("verdict early"), "{shown}");
        assert_eq!(title(&both), "Something is wrong");
    }

    #[test]
    fn each_condition_leads_to_its_details() {
        let many = Overview {
            findings: vec![finding(3, "silence"), finding(4, "missing_grant"), finding(5, "missing_grant")],
            dead_letters: pile(2),
            failed: pile(2),
            pending: pile(2),
            ..Overview::default()
        };
        let single = Overview {
            findings: vec![finding(3, "silence"), finding(4, "missing_grant")],
            dead_letters: pile(1),
            failed: pile(1),
            pending: pile(1),
            ..Overview::default()
        };
        for (name, of_many, of_one) in [
            ("dead_letter", "/events?status=failed", "/events/evt%2F1"),
            ("failed", "/events?status=failed", "/events/evt%2F1"),
            ("pending", "/events?status=pending", "/events/evt%2F1"),
            ("findings", "/findings", "/findings#finding-4"),
            ("silence", "/findings#finding-3", "/findings#finding-3"),
            ("job:backup", "/jobs", "/jobs"),
            ("success_rate", "#deliveries", "#deliveries"),
            ("disk", "#books", "#books"),
        ] {
            assert_eq!((detail(name, &many).as_str(), detail(name, &single).as_str()), (of_many, of_one), "{name}");
        }
    }
}
