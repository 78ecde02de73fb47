//! The whole story of an event.

use crate::config::Config;
use crate::ops::story::{self, EventStory};

use super::super::output::{Output, plain, time};
use super::super::{DONE, reader, tables};

pub(super) fn run(id: &str, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let story = reader(config)?.read(|connection| story::of_event(connection, id))?;
    let Some(story) = story else { anyhow::bail!("there is no event {id}; `billingd events list` shows the newest") };
    output.show(&story, render)?;
    Ok(DONE)
}

fn render(story: &EventStory) -> String {
    let event = &story.event;
    let mut text = format!("{}  {}\n", plain(&event.event_id), plain(&event.kind));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<12} {}\n", plain(value)));
        }
    };
    line("status", if event.dead_letter { "failed, a dead letter: a person must look" } else { &event.status });
    line("outcome", event.outcome.as_deref().unwrap_or_default());
    line("dismissed", if event.dismissed { "by a person" } else { "" });
    line("reason", event.reason.as_deref().unwrap_or_default());
    for (index, wait) in story.waits_for.iter().enumerate() {
        line(if index == 0 { "waits for" } else { "or for" }, &wait.need);
        line("", wait.resolved_by);
    }
    line("error", event.error_code.as_deref().unwrap_or_default());
    line("", event.last_error.as_deref().unwrap_or_default());
    line("failures", &count(event.attempts));
    line("repeats", &count(event.duplicates));
    line("late repeats", &count(event.late_duplicates));
    line("source", &event.source);
    line("mode", if event.livemode { "live" } else { "test" });
    line("object", event.object_id.as_deref().unwrap_or_default());
    line("account", event.account_id.as_deref().unwrap_or_default());
    line("connected", event.stripe_account.as_deref().unwrap_or_default());
    line("api version", event.api_version.as_deref().unwrap_or_default());
    line("created", &time(event.created_at));
    line("received", &time(event.received_at));
    line("last run", &time(event.tried_at));
    line("processed", &event.processed_at.map(time).unwrap_or_default());
    line("payload", if story.payload_kept { "kept; --payload prints it" } else { "not kept" });
    if !story.entries.is_empty() {
        text.push_str(&format!("\nentries\n{}", tables::ledger(&story.entries)));
    }
    if !story.tier_changes.is_empty() {
        text.push_str(&format!("\ntier changes\n{}", tables::tier_changes(&story.tier_changes)));
    }
    if !story.audit.is_empty() {
        text.push_str(&format!("\naudit\n{}", tables::audit(&story.audit)));
    }
    if event.status != "completed" {
        let id = plain(&event.event_id);
        text.push_str(&format!(
            "\nnext: `billingd events replay {id} --dry-run` shows what a run would do now; \
             `billingd events dismiss {id} --reason TEXT` if it is not ours\n"
        ));
    }
    text
}

fn count(number: i64) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}
