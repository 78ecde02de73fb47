//! The runs of the jobs.

use actix_web::{HttpResponse, web};
use maud::{Markup, html};

use super::books::read;
use super::fault::Fault;
use super::parts::{moment, nothing, or_dash, table};
use super::shell::Frame;
use crate::domain::event::UnixSeconds;
use crate::domain::words::age;
use crate::http::private::Private;
use crate::store::jobs::{self, Run};

/// So many runs are shown.
const RUNS: i64 = 200;

pub(super) async fn show(private: web::Data<Private>, frame: Frame) -> Result<HttpResponse, Fault> {
    let runs = read(&private, |connection| jobs::runs(connection, RUNS)).await?;
    let body = html! {
        h1 { "Jobs" }
        p.faint { "The newest " (RUNS) " runs. The overview tells what is due." }
        (render(&runs, frame.now))
    };
    Ok(frame.answer("/jobs", "Jobs", &body))
}

fn render(runs: &[Run], now: UnixSeconds) -> Markup {
    let rows = runs.iter().map(|run| {
        vec![
            html! { strong { (run.job) } },
            moment(run.started_at, now),
            run.finished_at.map_or_else(nothing, |at| html! { (age(at - run.started_at)) }),
            result(run),
            or_dash(run.result.as_deref()),
        ]
    });
    table("Runs of jobs", &["Job", "Began", "Took", "Result", "What it did"], rows.collect(), "No job has run yet.")
}

/// How a run came out, in a word.
pub(super) fn result(run: &Run) -> Markup {
    match run.finished_at {
        None if run.result.is_none() => html! { span.mark.waits { "runs" } },
        Some(_) if run.succeeded => html! { span.mark.good { "done" } },
        _ => html! { span.mark.bad { "failed" } },
    }
}
