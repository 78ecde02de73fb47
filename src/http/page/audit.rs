//! The audit log.

use actix_web::{HttpResponse, web};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::books::read;
use super::fault::Fault;
use super::parts::{Field, ROWS, account, event, given, looked_back, moment, nothing, passage, query, table, text};
use super::shell::Frame;
use crate::domain::event::UnixSeconds;
use crate::http::private::Private;
use crate::store::found::Found;
use crate::store::views::{self, AuditFilter, AuditRow};

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    account: String,
    #[serde(default)]
    event: String,
    before: Option<i64>,
}

pub(super) async fn show(
    private: web::Data<Private>,
    frame: Frame,
    asked: web::Query<Asked>,
) -> Result<HttpResponse, Fault> {
    let filter = AuditFilter {
        account: given(&asked.account),
        event: given(&asked.event),
        since: None,
        before: asked.before,
        limit: ROWS,
    };
    let mut found = read(&private, move |connection| views::audit(connection, &filter)).await?;
    found.rows.reverse();
    let body = html! {
        h1 { "Audit log" }
        form.filter method="get" action="/audit" role="search" {
            (Field { name: "account", label: "Account (its id)", value: &asked.account, required: false }.render())
            (Field { name: "event", label: "Event (its id)", value: &asked.event, required: false }.render())
            button { "Show" }
        }
        (table_of(&found.rows, frame.now))
        (looked_back(found.edge.as_ref(), frame.now))
        (pages(&asked, &found))
    };
    Ok(frame.answer("/audit", "Audit log", &body))
}

fn pages(asked: &Asked, Found { rows, edge }: &Found<AuditRow>) -> Markup {
    let (account, event) = (asked.account.as_str(), asked.event.as_str());
    let full = rows.last().filter(|row| rows.len() >= usize::try_from(ROWS).unwrap_or(usize::MAX) && row.seq > 1);
    let older = full.map(|row| row.seq.to_string()).or(edge.as_ref().map(|edge| edge.before.clone()));
    html! {
        nav.pages aria-label="More rows" {
            @if asked.before.is_some() {
                a href=(query("/audit", &[("account", account), ("event", event)])) { "The newest" }
            }
            @if let Some(before) = older {
                a rel="next" href=(query("/audit", &[("account", account), ("event", event), ("before", &before)])) {
                    "Older"
                }
            }
        }
    }
}

/// Rows of the audit log.
pub(super) fn table_of(rows: &[AuditRow], now: UnixSeconds) -> Markup {
    let rows = rows.iter().map(|row| {
        vec![
            html! { (row.seq) },
            moment(row.at, now),
            text(&row.actor),
            text(&row.action),
            subject(row),
            row.event_id.as_deref().map_or_else(nothing, event),
            detail(&row.detail),
        ]
    });
    let heads = ["Number", "At", "Actor", "Action", "Subject", "Event"];
    table("Audit log", &heads, rows.collect(), "No rows.")
}

/// A link, where the subject is sure to have a page.
fn subject(row: &AuditRow) -> Markup {
    let is_account = match row.action.as_str() {
        "account.reference" | "account.deleted" | "adjustment" | "clawback" | "grant" | "import" | "reversal"
        | "tier" => true,
        // A backup that took the place of the database is no event's doing.
        "restore" => row.event_id.is_some(),
        _ => false,
    };
    if is_account { account(&row.subject) } else { text(&row.subject) }
}

/// Why, and then the rest as it stands in the log.
fn detail(told: &str) -> Markup {
    let Ok(mut members) = serde_json::from_str::<Map<String, Value>>(told) else {
        return html! { code.detail { (passage(told)) } };
    };
    let why = members.remove("why");
    html! {
        @if let Some(Value::String(why)) = &why { div { (passage(why)) } }
        @if !members.is_empty() { code.detail { (passage(&Value::Object(members).to_string())) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_stands_first_and_the_rest_is_whole() {
        let long = "x".repeat(1_000);
        let told = format!("{{\"before\":\"{long}<b>\",\"why\":\"lost & found\"}}");
        let shown = detail(&told).into_string();
        assert!(shown.starts_with("<div><bdi>lost &amp; found</bdi></div><code class=\"detail\">"), "{shown}");
        assert!(shown.contains(&format!("{long}&lt;b&gt;")) && !shown.contains("why"), "{shown}");
        assert!(detail("<no JSON>").into_string().contains("&lt;no JSON&gt;"));
    }

    #[test]
    fn a_subject_that_is_an_account_is_a_link() {
        let row = |action: &str| AuditRow {
            seq: 1,
            at: 0,
            actor: "stripe".into(),
            action: action.into(),
            subject: "cus/1".into(),
            event_id: None,
            detail: "{}".into(),
        };
        assert!(subject(&row("grant")).into_string().starts_with("<a href=\"/accounts/cus%2F1\">"));
        assert_eq!(subject(&row("subscription")).into_string(), "<bdi>cus/1</bdi>");
    }
}
