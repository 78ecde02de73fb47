//! One pass over what did not get through.

use std::time::Duration;

use clap::Args;

use crate::clock;
use crate::config::{self, Config};
use crate::domain::words::counted;
use crate::ops::reap::{self, Reaped};

use super::output::{Output, plain};
use super::{DONE, FOUND};

#[derive(Debug, Args)]
pub(super) struct ReapArguments {
    /// Put aside what is unfinished for so long, such as 12h (default: reaper.pending_after of the config)
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
    older_than: Option<Duration>,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(arguments: &ReapArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let pending_after = arguments.older_than.unwrap_or(config.reaper.pending_after);
    let pending_after = i64::try_from(pending_after.as_millis()).unwrap_or(i64::MAX);
    let errand = super::errand(config, arguments.operator.as_deref())?;
    let reaped = reap::reap(&mut super::beside(config)?, &errand, pending_after, clock::now())?;
    output.show(&reaped, render)?;
    Ok(if reaped.dead_letters.is_empty() { DONE } else { FOUND })
}

fn render(reaped: &Reaped) -> String {
    let mut text = format!(
        "{} ran again: {} completed, {} still waiting, {} failed; {} ended\n",
        reaped.ran,
        reaped.completed,
        reaped.pending,
        reaped.failed,
        counted(reaped.downgrades, "held tier")
    );
    if reaped.dead_letters.is_empty() {
        text.push_str("no new dead letters\n");
        return text;
    }
    text.push_str(&format!("{}, for a person to look at:\n", counted(reaped.dead_letters.len(), "new dead letter")));
    for id in &reaped.dead_letters {
        text.push_str(&format!("  {}\n", plain(id)));
    }
    text.push_str(
        "`billingd events show ID` tells why; then `billingd events replay ID` or `billingd events dismiss ID`\n",
    );
    text
}
