//! Findings: what a person should look at, and letting it be.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use maud::{Markup, html};
use serde::Deserialize;

use super::books::{read, write};
use super::fault::Fault;
use super::parts::{Field, account, code, command, event, facts, moment, path, query, text};
use super::shell::{Frame, answer, to_the_story};
use crate::domain::event::UnixSeconds;
use crate::http::private::{Operator, Private};
use crate::ops;
use crate::ops::findings::{AcknowledgeError, Advised};
use crate::ops::words::amount;
use crate::store::findings;

/// So many findings are shown.
const SHOWN_MAX: i64 = 200;

/// The statuses of findings, those first that a person should look at.
const STATUSES: [(&str, &str); 3] = [("open", "Open"), ("acknowledged", "Acknowledged"), ("resolved", "Resolved")];

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    status: Option<String>,
    done: Option<String>,
}

/// What the form of a finding was sent with, and why it was refused.
struct Refused<'a> {
    id: i64,
    reason: &'a str,
    problem: &'a str,
}

pub(super) async fn show(
    private: web::Data<Private>,
    frame: Frame,
    asked: web::Query<Asked>,
) -> Result<HttpResponse, Fault> {
    let status = status(asked.status.as_deref().unwrap_or_default())?;
    let listed = list(&private, status).await?;
    let body = html! {
        @if asked.done.as_deref() == Some("acknowledged") {
            p.done role="status" { "Done: the finding is acknowledged." }
        }
        (render(&listed, status, None, &frame))
    };
    Ok(frame.answer("/findings", "Findings", &body))
}

#[derive(Debug, Deserialize)]
pub(super) struct Acknowledged {
    #[serde(default)]
    reason: String,
    /// The digest of the finding that the page showed.
    #[serde(default)]
    seen: String,
}

pub(super) async fn acknowledge(
    private: web::Data<Private>,
    operator: Operator,
    id: web::Path<i64>,
    form: web::Form<Acknowledged>,
) -> Result<HttpResponse, Fault> {
    let now = (private.clock)();
    let (id, name) = (id.into_inner(), operator.name.clone());
    let Acknowledged { reason, seen } = form.into_inner();
    let frame = Frame { operator, now: now / 1000 };
    let given = reason.clone();
    let acknowledge = move |desk: &mut _| ops::findings::acknowledge(desk, id, Some(&seen), &given, &name, now);
    match write(&private, acknowledge).await? {
        Ok(_) => Ok(to_the_story("/findings", "acknowledged")),
        Err(AcknowledgeError::Store(error)) => Err(error.into()),
        Err(error @ AcknowledgeError::Unknown(_)) => Err(Fault::not_found(error.to_string())),
        Err(error) => {
            let status = match error {
                AcknowledgeError::Resolved(_) | AcknowledgeError::Changed(_) => StatusCode::CONFLICT,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            let listed = list(&private, "open").await?;
            let refused = Refused { id, reason: &reason, problem: &error.to_string() };
            let body = render(&listed, "open", Some(&refused), &frame);
            Ok(answer(status, &frame.page("/findings", "Findings", &body)))
        }
    }
}

fn status(asked: &str) -> Result<&'static str, Fault> {
    match STATUSES.iter().find(|(status, _)| *status == asked) {
        Some((status, _)) => Ok(status),
        None if asked.is_empty() => Ok("open"),
        None => Err(Fault::invalid("the status is open, acknowledged or resolved")),
    }
}

async fn list(private: &web::Data<Private>, status: &'static str) -> Result<Vec<Advised>, Fault> {
    let rows = read(private, move |connection| findings::list(connection, Some(status), SHOWN_MAX)).await?;
    Ok(rows.into_iter().map(Advised::new).collect())
}

fn render(listed: &[Advised], status: &str, refused: Option<&Refused<'_>>, frame: &Frame) -> Markup {
    html! {
        h1 { "Findings" }
        nav.pages aria-label="Status of findings" {
            @for (word, name) in STATUSES {
                a href=(query("/findings", &[("status", word)])) aria-current=[(word == status).then_some("page")] { (name) }
            }
        }
        @if let Some(refused) = refused {
            p.problem role="alert" { (text(refused.problem)) }
        }
        @if listed.is_empty() { p.faint { "None is " (status) "." } }
        @for finding in listed { (one(finding, refused, frame)) }
        @if i64::try_from(listed.len()).is_ok_and(|shown| shown >= SHOWN_MAX) {
            p.faint { "These are the first " (SHOWN_MAX) "; " (command("billingd findings list")) " shows more." }
        }
    }
}

fn one(finding: &Advised, refused: Option<&Refused<'_>>, frame: &Frame) -> Markup {
    let row = &finding.row;
    let refused = refused.filter(|refused| refused.id == row.finding_id);
    html! {
        article.card id={ "finding-" (row.finding_id) } {
            h2 { (row.finding_id) ": " (text(&row.kind)) " of " (code(&row.subject)) }
            (details(finding, frame.now))
            @if row.status != "resolved" {
                form method="post" action=(path(&["findings", &row.finding_id.to_string(), "acknowledge"])) {
                    (frame.csrf())
                    input type="hidden" name="seen" value=(ops::findings::digest(row));
                    (Field {
                        name: "reason",
                        label: "Let it be, because",
                        value: refused.map_or("", |refused| refused.reason),
                        required: true,
                    }.render())
                    button { "Acknowledge" }
                }
            }
        }
    }
}

/// What a finding says.
pub(super) fn details(Advised { row, command: remedy }: &Advised, now: UnixSeconds) -> Markup {
    let stake = row.amount.zip(row.currency.as_deref()).map(|(sum, currency)| text(&amount(sum, currency)));
    facts(vec![
        ("Status", Some(html! { (row.status) @if let Some(reason) = &row.reason { ": " (text(reason)) } })),
        ("At stake", stake),
        ("At Stripe", row.expected.as_deref().map(text)),
        ("Here", row.actual.as_deref().map(text)),
        ("First seen", Some(moment(row.first_seen_at, now))),
        ("Last seen", Some(moment(row.last_seen_at, now))),
        ("Account", row.account_id.as_deref().map(account)),
        ("Event", row.event_id.as_deref().map(event)),
        ("Remedy", Some(command(remedy))),
    ])
}
