//! What arrived, the newest first.

use actix_web::{HttpResponse, web};
use maud::{Markup, html};
use serde::Deserialize;

use super::books::read;
use super::fault::Fault;
use super::parts::{Field, ROWS, account, choice, code, given, looked_back, moment, nothing, path, query, table, text};
use super::shell::Frame;
use crate::clock::{self, UnixMillis};
use crate::config;
use crate::domain::event::UnixSeconds;
use crate::domain::words::counted;
use crate::http::private::{Operator, Private};
use crate::ops::adjust::{self, AdjustError};
use crate::store::StoreError;
use crate::store::events::{self, EventRow, Filter};
use crate::store::found::Found;

const SINCES: [(&str, &str); 5] = [
    ("", "ever"),
    ("1h", "the last hour"),
    ("24h", "the last day"),
    ("7d", "the last 7 days"),
    ("30d", "the last 30 days"),
];

/// The fields of the form, as they were sent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    status: String,
    outcome: String,
    r#type: String,
    account: String,
    since: String,
    before: String,
}

pub(super) async fn show(
    private: web::Data<Private>,
    operator: Operator,
    asked: web::Query<Asked>,
) -> Result<HttpResponse, Fault> {
    let now = (private.clock)();
    let frame = Frame { operator, now: now / 1000 };
    let asked = asked.into_inner();
    let filter = filter(&asked, now)?;
    let found = read(&private, move |connection| {
        let account = match filter.account.as_deref().map(|name| adjust::find_account(connection, name)) {
            None => None,
            Some(Ok(account)) => Some(account.to_string()),
            Some(Err(AdjustError::Store(error))) => return Err::<Result<_, AdjustError>, StoreError>(error),
            Some(Err(unknown)) => return Ok(Err(unknown)),
        };
        Ok(Ok(events::list(connection, &Filter { account, ..filter })?))
    })
    .await?;
    let body = html! {
        h1 { "Events" }
        (form(&asked))
        @match &found {
            Ok(found) => { (table_of(&found.rows, frame.now)) (looked_back(found.edge.as_ref(), frame.now)) (pages(&asked, found)) },
            Err(unknown) => p.problem role="alert" { (text(&unknown.to_string())) },
        }
    };
    Ok(frame.answer("/events", "Events", &body))
}

fn filter(asked: &Asked, now: UnixMillis) -> Result<Filter, Fault> {
    let one_of = |text: &str, words: &[&str]| match text.is_empty() || words.contains(&text) {
        true => Ok(given(text)),
        false => Err(Fault::invalid("the filter has a status or an outcome that no event has; choose one in the form")),
    };
    let since = match given(&asked.since) {
        None => None,
        Some(text) => {
            let since = config::parse_duration(&text).map_err(|error| Fault::invalid(error.to_string()))?;
            Some(clock::seconds_before(now, since))
        }
    };
    Ok(Filter {
        status: one_of(&asked.status, &events::STATUSES)?,
        outcome: one_of(&asked.outcome, &events::OUTCOMES)?,
        kind: given(&asked.r#type),
        account: given(&asked.account),
        since,
        before: given(&asked.before),
        limit: ROWS,
    })
}

fn form(asked: &Asked) -> Markup {
    html! {
        form.filter method="get" action="/events" role="search" {
            (choice("status", "Status", &asked.status, &any_of(&events::STATUSES)))
            (choice("outcome", "Outcome", &asked.outcome, &any_of(&events::OUTCOMES)))
            (Field { name: "type", label: "Type", value: &asked.r#type, required: false }.render())
            (Field { name: "account", label: "Account (id or reference)", value: &asked.account, required: false }.render())
            (choice("since", "Received in", &asked.since, &SINCES))
            button { "Show" }
        }
    }
}

/// A choice of these words, or of none.
fn any_of(words: &[&'static str]) -> Vec<(&'static str, &'static str)> {
    let label = |word| match word {
        "failed" => "failed, dead letters too",
        "no_effect" => "no effect",
        other => other,
    };
    std::iter::once(("", "any")).chain(words.iter().map(|word| (*word, label(*word)))).collect()
}

fn pages(asked: &Asked, found: &Found<EventRow>) -> Markup {
    let at = |before: &str| {
        query(
            "/events",
            &[
                ("status", asked.status.as_str()),
                ("outcome", &asked.outcome),
                ("type", &asked.r#type),
                ("account", &asked.account),
                ("since", &asked.since),
                ("before", before),
            ],
        )
    };
    let full = found.rows.last().filter(|_| i64::try_from(found.rows.len()).is_ok_and(|shown| shown >= ROWS));
    let older = full.map(|row| &row.event_id).or(found.edge.as_ref().map(|edge| &edge.before));
    html! {
        nav.pages aria-label="More events" {
            @if !asked.before.is_empty() { a href=(at("")) { "The newest" } }
            @if let Some(id) = older { a rel="next" href=(at(id)) { "Older" } }
        }
    }
}

/// Events, a line each.
pub(super) fn table_of(rows: &[EventRow], now: UnixSeconds) -> Markup {
    let rows = rows.iter().map(|row| {
        vec![
            moment(row.received_at, now),
            html! { (typed(row)) " " span.id { (code(&row.event_id)) } },
            html! { (state(row)) @if let Some(why) = why(row) { " " span.why { (text(why)) } } },
            row.account_id.as_deref().map_or_else(nothing, account),
            if row.duplicates > 0 {
                html! { (counted(row.duplicates, "repeat")) }
            } else {
                nothing()
            },
        ]
    });
    let heads = ["Received", "Event", "State", "Account", "Repeats"];
    html! { div.events { (table("Events", &heads, rows.collect(), "No events.")) } }
}

/// Its type, which leads to its story.
fn typed(row: &EventRow) -> Markup {
    html! { a href=(path(&["events", &row.event_id])) { (text(&row.kind)) } }
}

/// What became of an event, in a word.
pub(super) fn state(row: &EventRow) -> Markup {
    let (class, word) = match (row.status.as_str(), row.outcome.as_deref()) {
        ("failed", _) if row.dead_letter => ("mark bad", "dead letter"),
        ("failed", _) => ("mark bad", "failed"),
        ("pending", _) => ("mark waits", "pending"),
        (_, Some("applied")) => ("mark good", "applied"),
        (_, Some("no_effect")) => ("mark plain", "no effect"),
        (_, Some("stale")) => ("mark plain", "stale"),
        _ if row.dismissed => ("mark plain", "dismissed"),
        _ => ("mark plain", "ignored"),
    };
    html! { span class=(class) { (word) } }
}

fn why(row: &EventRow) -> Option<&str> {
    [&row.error_code, &row.needs, &row.reason].into_iter().flatten().next().map(String::as_str)
}
