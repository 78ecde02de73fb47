//! One pass of retention.

use crate::clock;
use crate::config::Config;
use crate::domain::words::counted;
use crate::jobs;
use crate::ops::retain::{self, Pruned};
use crate::stop::Stop;

use super::DONE;
use super::output::{Output, size};

pub(super) fn run(operator: Option<&str>, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let mut connection = super::beside(config)?;
    let actor = format!("operator:{}", super::operator(operator));
    let reader = super::reader(config)?;
    let pruned = retain::prune(&reader, &mut connection, jobs::keep(config), &actor, clock::now(), &Stop::default())?;
    output.show(&pruned, render)?;
    Ok(DONE)
}

fn render(pruned: &Pruned) -> String {
    let bytes = u64::try_from(pruned.payload_bytes).unwrap_or_default();
    format!(
        "deleted {} ({}) and {}; the books stay as they are\n\
         the room is used again by what comes next; the file does not shrink\n",
        counted(pruned.payloads, "payload"),
        size(bytes),
        counted(pruned.ignored_events, "ignored event")
    )
}
