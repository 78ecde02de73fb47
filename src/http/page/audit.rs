//! The audit log.

use actix_web::{HttpResponse, web};
use maud::{Markup, html};
use serde::Deserialize;

use super::books::read;
use super::fault::Fault;
use super::parts::{Field, ROWS, event, given, looked_back, moment, nothing, query, table, text};
use super::shell::Frame;
use crate::domain::event::UnixSeconds;
use crate::http::private::{Operator, Private};
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
    operator: Operator,
    asked: web::Query<Asked>,
) -> Result<HttpResponse, Fault> {
    let frame = Frame { operator, now: (private.clock)() / 1000 };
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
            text(&row.subject),
            row.event_id.as_deref().map_or_else(nothing, event),
            html! { code.detail { (text(&row.detail)) } },
        ]
    });
    let heads = ["Number", "At", "Actor", "Action", "Subject", "Event", "Detail"];
    table("Audit log", &heads, rows.collect(), "No rows.")
}
