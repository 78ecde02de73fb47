//! A person decides that events are not ours.

use clap::Args;

use crate::clock;
use crate::config::Config;
use crate::domain::ids::EventId;
use crate::ops::dismiss::{self, Dismissed};

use super::super::output::{Output, or_dash, plain};
use super::super::{DONE, beside, errand, values};

#[derive(Debug, Args)]
pub(in crate::cli) struct DismissArguments {
    /// The events' ids
    #[arg(required = true, value_name = "ID", value_parser = values::event)]
    ids: Vec<EventId>,
    /// Why; goes into the audit log
    #[arg(long, value_parser = values::text)]
    reason: String,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(arguments: &DismissArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let errand = errand(config, arguments.operator.as_deref())?;
    let dismissed = dismiss::dismiss(&mut beside(config)?, &errand, &arguments.ids, &arguments.reason, clock::now())?;
    output.show(&dismissed, |dismissed| render(dismissed))?;
    Ok(DONE)
}

fn render(dismissed: &[Dismissed]) -> String {
    let mut text = String::new();
    for one in dismissed {
        let done = if one.dismissed {
            "dismissed; it is completed as ignored".to_owned()
        } else {
            format!("was completed before as {}; nothing changed", or_dash(one.outcome.as_deref()))
        };
        text.push_str(&format!("{}  {}  {done}\n", plain(&one.event_id), plain(&one.kind)));
    }
    text
}
