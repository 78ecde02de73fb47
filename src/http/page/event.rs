//! The story of an event, and what a person can do about it.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use maud::{Markup, html};
use serde::Deserialize;

use super::books::{errand, read, write};
use super::fault::Fault;
use super::parts::{
    Field, account, code, command, event as event_link, facts, moment, nothing, or_dash, path, sentence, table, text,
    told,
};
use super::shell::{Frame, answer, to_the_story, was_done};
use super::{audit, events};
use crate::domain::event::UnixSeconds;
use crate::domain::ids::EventId;
use crate::domain::words::quoted;
use crate::http::private::{Operator, Private};
use crate::ops::dismiss::{self, DismissError};
use crate::ops::replay::{self, How, Replayed};
use crate::ops::story::{self, EventStory};
use crate::ops::words::amount;
use crate::store::StoreError;
use crate::store::views::{LedgerRow, TierChangeRow};
use crate::store::written::Written;

/// What was done before the page was asked for.
const DONE: [(&str, &str); 6] = [
    ("ran", "It has run again; below is what became of it."),
    ("not_run", "It was completed before, so it was not run again: nothing is applied twice."),
    ("cannot_run", "It cannot run: its payload is not kept any more, or cannot be read."),
    ("failed", "It has run again, and failed again; below is why."),
    ("dismissed", "It is dismissed: completed as ignored."),
    ("completed", "It was completed before; nothing has changed."),
];

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    done: Option<String>,
}

/// What stands on the page besides the story.
#[derive(Default)]
struct Beside<'a> {
    done: Option<&'static str>,
    problem: Option<&'a str>,
    rehearsed: Option<&'a Replayed>,
    reason: &'a str,
}

pub(super) async fn show(
    private: web::Data<Private>,
    frame: Frame,
    id: web::Path<String>,
    asked: web::Query<Asked>,
) -> Result<HttpResponse, Fault> {
    let beside = Beside { done: was_done(&DONE, asked.done.as_deref()), ..Beside::default() };
    page(&private, &frame, id.into_inner(), StatusCode::OK, &beside).await
}

/// Shows what a run would do now.
pub(super) async fn rehearse(
    private: web::Data<Private>,
    operator: Operator,
    id: web::Path<String>,
    form: web::Form<Run>,
) -> Result<HttpResponse, Fault> {
    let now = (private.clock)();
    let (id, errand, how) = (known(&id)?, errand(&private, &operator), form.how());
    let frame = Frame { operator, now: now / 1000 };
    require(&private, &id).await?;
    let asked = id.clone();
    let rehearsed = write(&private, move |desk| replay::rehearse(desk, &errand, &asked, how, now)).await??;
    let beside = Beside { rehearsed: Some(&rehearsed), ..Beside::default() };
    page(&private, &frame, id.to_string(), StatusCode::OK, &beside).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Run {
    /// Also if it was dismissed.
    #[serde(default)]
    dismissed: String,
}

impl Run {
    fn how(&self) -> How {
        How { dismissed: self.dismissed == "yes" }
    }
}

/// Runs it again.
pub(super) async fn replay(
    private: web::Data<Private>,
    operator: Operator,
    id: web::Path<String>,
    form: web::Form<Run>,
) -> Result<HttpResponse, Fault> {
    let now = (private.clock)();
    let (id, errand, how) = (known(&id)?, errand(&private, &operator), form.how());
    require(&private, &id).await?;
    let asked = id.clone();
    let ran = write(&private, move |desk| {
        let ran = replay::replay(desk, &errand, &[asked], Vec::new(), how, now)?;
        // What has run stands. Whom it woke is marked so in the books, and the writer runs them in any case.
        if let Err(error) = errand.run_woken(desk, now) {
            tracing::warn!(%error, "what a replay has woken was not run at once; the writer runs it");
        }
        Ok::<_, StoreError>(ran)
    });
    let end = ran.await??.pop().map(|ran| ran.end);
    let done = match end {
        Some(replay::End::AlreadyCompleted | replay::End::Dismissed) | None => "not_run",
        Some(replay::End::NoPayload | replay::End::Damaged) => "cannot_run",
        Some(end) if end.is_bad() => "failed",
        Some(_) => "ran",
    };
    Ok(to_the_story(&path(&["events", id.as_str()]), done))
}

#[derive(Debug, Deserialize)]
pub(super) struct Dismissal {
    #[serde(default)]
    reason: String,
}

/// Completes it as not ours.
pub(super) async fn dismiss(
    private: web::Data<Private>,
    operator: Operator,
    id: web::Path<String>,
    form: web::Form<Dismissal>,
) -> Result<HttpResponse, Fault> {
    let now = (private.clock)();
    let (id, errand) = (known(&id)?, errand(&private, &operator));
    let frame = Frame { operator, now: now / 1000 };
    let (asked, given) = (id.clone(), form.reason.clone());
    match write(&private, move |desk| dismiss::dismiss(desk, &errand, &[asked], &given, now)).await? {
        Ok(dismissed) => {
            let done = if dismissed.iter().any(|one| one.dismissed) { "dismissed" } else { "completed" };
            Ok(to_the_story(&path(&["events", id.as_str()]), done))
        }
        Err(DismissError::Store(error)) => Err(error.into()),
        Err(DismissError::Unknown(_)) => Err(unknown(id.as_str())),
        Err(error @ DismissError::NoReason) => {
            let problem = error.to_string();
            let beside = Beside { problem: Some(&problem), reason: &form.reason, ..Beside::default() };
            page(&private, &frame, id.to_string(), StatusCode::UNPROCESSABLE_ENTITY, &beside).await
        }
    }
}

/// What cannot be an id is the id of no event.
fn known(id: &str) -> Result<EventId, Fault> {
    EventId::parse(id).map_err(|_| unknown(id))
}

fn unknown(id: &str) -> Fault {
    Fault::not_found(format!("there is no event {}", quoted(id)))
}

async fn require(private: &web::Data<Private>, id: &EventId) -> Result<(), Fault> {
    let asked = vec![id.clone()];
    let missing = read(private, move |connection| replay::unknown(connection, &asked)).await?;
    if missing.is_empty() { Ok(()) } else { Err(unknown(id.as_str())) }
}

async fn page(
    private: &web::Data<Private>,
    frame: &Frame,
    id: String,
    status: StatusCode,
    beside: &Beside<'_>,
) -> Result<HttpResponse, Fault> {
    let asked = id.clone();
    let story = read(private, move |connection| story::of_event(connection, &asked)).await?;
    let Some(story) = story else { return Err(unknown(&id)) };
    Ok(answer(status, &frame.page("/events", "Event", &render(&story, beside, frame))))
}

fn render(story: &EventStory, beside: &Beside<'_>, frame: &Frame) -> Markup {
    html! {
        h1 { "Event " (code(&story.event.event_id)) }
        @if let Some(done) = beside.done { p.done role="status" { (done) } }
        @if let Some(problem) = beside.problem { p.problem role="alert" { (sentence(problem)) } }
        @if let Some(rehearsed) = beside.rehearsed { (rehearsal(rehearsed, frame.now)) }
        (itself(story, frame.now))
        (actions(story, beside, frame))
        @if !story.entries.is_empty() { h2 { "Entries" } (entries(&story.entries, frame.now)) }
        @if !story.tier_changes.is_empty() { h2 { "Changes of tier" } (tier_changes(&story.tier_changes, frame.now)) }
        h2 { "Audit" }
        (audit::table_of(&story.audit, frame.now))
    }
}

fn itself(story: &EventStory, now: UnixSeconds) -> Markup {
    let event = &story.event;
    let count = |number: i64| (number > 0).then(|| html! { (number) });
    let waits = (!story.waits_for.is_empty()).then(|| {
        html! {
            ul { @for wait in &story.waits_for { li { (code(&wait.need)) ": " (sentence(wait.resolved_by)) } } }
        }
    });
    facts(vec![
        ("State", Some(events::state(event))),
        ("Type", Some(text(&event.kind))),
        ("Reason", event.reason.as_deref().map(text)),
        ("Waits for any of", waits),
        ("Error", event.error_code.as_deref().map(code)),
        ("Last error", event.last_error.as_deref().map(sentence)),
        ("Failures", count(event.attempts)),
        ("Repeats", count(event.duplicates)),
        ("Late repeats", count(event.late_duplicates)),
        ("Account", event.account_id.as_deref().map(account)),
        ("Object", event.object_id.as_deref().map(code)),
        ("Connected account", event.stripe_account.as_deref().map(code)),
        ("Source", Some(text(&event.source))),
        ("Mode", Some(html! { @if event.livemode { "live" } @else { "test" } })),
        ("API version", event.api_version.as_deref().map(text)),
        ("Created at Stripe", Some(moment(event.created_at, now))),
        ("Received", Some(moment(event.received_at, now))),
        ("Last run", Some(moment(event.tried_at, now))),
        ("Processed", event.processed_at.map(|at| moment(at, now))),
        ("Payload", Some(payload(story))),
    ])
}

/// It is never shown here: it is the one text that may hold anything about a customer.
fn payload(story: &EventStory) -> Markup {
    if story.payload_kept {
        return html! { "kept; only " (command("billingd events show ID --payload")) " on the machine prints it" };
    }
    html! { "not kept" }
}

fn actions(story: &EventStory, beside: &Beside<'_>, frame: &Frame) -> Markup {
    let event = &story.event;
    let id = event.event_id.as_str();
    let is_open = event.status != "completed";
    let runs = is_open || event.outcome.as_deref() == Some("ignored");
    html! {
        @if runs {
            section aria-labelledby="actions" {
                h2 id="actions" { "What you can do" }
                @if story.payload_kept || event.source == "job" {
                    div.actions {
                        form method="post" action=(path(&["events", id, "try"])) {
                            (frame.csrf())
                            @if event.dismissed { input type="hidden" name="dismissed" value="yes"; }
                            button { "Try (changes nothing)" }
                        }
                        form method="post" action=(path(&["events", id, "replay"])) {
                            (frame.csrf())
                            @if event.dismissed { input type="hidden" name="dismissed" value="yes"; }
                            button { @if event.dismissed { "Run it although it was dismissed" } @else { "Run it again" } }
                        }
                    }
                } @else {
                    p {
                        "Its payload is not kept any more. With an API key " (command(&format!("billingd events replay {id}")))
                        " fetches it from Stripe, which has it for 30 days, and runs it."
                    }
                }
                @if is_open {
                    form method="post" action=(path(&["events", id, "dismiss"])) {
                        (frame.csrf())
                        (Field { name: "reason", label: "It is not ours, because", value: beside.reason, required: true }.render())
                        button { "Dismiss" }
                    }
                }
            }
        }
    }
}

fn rehearsal(rehearsed: &Replayed, now: UnixSeconds) -> Markup {
    let Written { entries: posted, tier_changes: changes, audit: rows } = &rehearsed.written;
    html! {
        section.card aria-labelledby="rehearsal" {
            h2 id="rehearsal" { "Trial: " (rehearsed.end.words(true)) }
            @if let Some(why) = &rehearsed.why { p { (told(why)) } }
            @if !posted.is_empty() { h3 { "Entries" } (entries(posted, now)) }
            @if !changes.is_empty() { h3 { "Changes of tier" } (tier_changes(changes, now)) }
            @if !rows.is_empty() { h3 { "Audit" } (audit::table_of(rows, now)) }
            p.faint { "This was a trial: nothing was written." }
        }
    }
}

/// Lines of the ledger.
pub(super) fn entries(rows: &[LedgerRow], now: UnixSeconds) -> Markup {
    let rows = rows.iter().map(|row| {
        vec![
            moment(row.created_at, now),
            html! { (row.entry_id) },
            text(&row.kind),
            html! { span.amount { (text(&amount(row.amount, &row.unit))) } @if let Some(from) = converted_from(row) { " " span.faint { (text(&from)) } } },
            account(&row.account_id),
            code(&row.fact),
            event_link(&row.source_event_id),
        ]
    });
    table("Entries", &["Posted", "Entry", "Kind", "Amount", "Account", "Fact", "By event"], rows.collect(), "None.")
}

fn converted_from(row: &LedgerRow) -> Option<String> {
    let (paid, currency) = (row.original_amount?, row.original_currency.as_deref()?);
    Some(format!("{} at {} of {}", amount(paid, currency), row.fx_rate.as_deref()?, row.fx_date.as_deref()?))
}

/// Changes of tiers.
pub(super) fn tier_changes(rows: &[TierChangeRow], now: UnixSeconds) -> Markup {
    let rows = rows.iter().map(|row| {
        vec![
            moment(row.at, now),
            account(&row.account_id),
            or_dash(row.from_tier.as_deref()),
            row.to_tier.as_deref().map_or_else(nothing, text),
            event_link(&row.source_event_id),
        ]
    });
    table("Changes of tier", &["At", "Account", "From", "To", "By event"], rows.collect(), "None.")
}
