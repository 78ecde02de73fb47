//! Takes over a running Stripe account.

use clap::Args;
use serde::Serialize;

use crate::clock;
use crate::config::Config;
use crate::domain::words::counted;
use crate::ops::adopt::{self, Adopted, Place};
use crate::store::files;

use super::output::{Output, plain};
use super::progress::Progress;
use super::{DONE, FOUND};

#[derive(Debug, Args)]
pub(super) struct AdoptArguments {
    /// Do it; without this, only show what it would do
    #[arg(long)]
    apply: bool,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    adopted: &'a Adopted,
    warnings: Vec<&'static str>,
}

const NO_CUTOVER: &str = "[credits] since is empty: an invoice that was paid before the move grants as soon as an event of \
                          it comes; set it to the day of the move";

pub(super) fn run(arguments: &AdoptArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let client = super::stripe(config)?;
    let errand = super::errand(config, arguments.operator.as_deref())?;
    let mut connection = super::beside(config)?;
    let mut progress = Progress::new("customers and subscriptions read", None);
    let place = Place { books: &*connection, folder: files::folder_of(&config.database.path), api: &client };
    let plan = adopt::plan(place, &errand, clock::now(), &mut |read| progress.at(count(read)))?;
    drop(progress);
    let mut progress = Progress::new("events", Some(count(plan.events())));
    let mut ran = |events: usize| progress.at(count(events));
    let adopted = if arguments.apply {
        adopt::apply(&mut connection, &errand, plan, clock::now(), &mut ran)?
    } else {
        adopt::rehearse(&mut connection, &errand, plan, clock::now(), &mut ran)?
    };
    drop(progress);
    let warnings = if config.credits.since.is_none() { vec![NO_CUTOVER] } else { Vec::new() };
    output.show(&Shown { adopted: &adopted, warnings }, render)?;
    Ok(if adopted.problems.is_empty() { DONE } else { FOUND })
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn render(shown: &Shown<'_>) -> String {
    let Shown { adopted, warnings } = shown;
    let mut text = format!(
        "at Stripe: {}, {}",
        counted(adopted.customers, "customer"),
        counted(adopted.subscriptions, "subscription")
    );
    if adopted.left_out > 0 {
        text.push_str(&format!("; left out, because they ended with a deleted customer: {}", adopted.left_out));
    }
    text.push_str("\n\n");
    let changes = [
        (adopted.accounts_opened, "new account"),
        (adopted.references_set, "new reference"),
        (adopted.subscriptions_changed, "subscription"),
        (adopted.tiers_changed, "tier"),
    ]
    .map(|(number, what)| counted(number, what));
    let done = if adopted.applied { "changed" } else { "would change" };
    text.push_str(&format!("{done}: {}\n", changes.join(", ")));
    text.push_str(&format!(
        "\nknown as they are at Stripe: {}; a webhook told something newer: {}\n",
        adopted.as_known, adopted.told_later
    ));
    for one in &adopted.problems {
        text.push_str(&format!("problem: {}: {}\n", plain(&one.event_id), plain(&one.problem)));
    }
    for warning in warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    if !adopted.applied {
        text.push_str("nothing is changed yet; run the same with --apply\n");
    }
    text
}
