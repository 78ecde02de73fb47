//! One subscription against Stripe, or against what the audit log tells of it.

use clap::Args;

use crate::clock;
use crate::config::Config;
use crate::domain::ids::SubscriptionId;
use crate::ops::fresh;
use crate::ops::repair_subscription::{self, Repaired};

use super::super::output::{Output, Table, or_dash};
use super::super::{DONE, FOUND, beside, errand, stripe};

#[derive(Debug, Args)]
pub(in crate::cli) struct SubscriptionArguments {
    /// The subscription's id
    #[arg(value_name = "ID", value_parser = |text: &str| SubscriptionId::parse(text))]
    subscription: SubscriptionId,
    /// Not the state at Stripe, but the one that this row of the audit log told
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
    to: Option<i64>,
    /// Do it; without this, only show what differs
    #[arg(long)]
    apply: bool,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(arguments: &SubscriptionArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let SubscriptionArguments { subscription, to, apply, operator } = arguments;
    let errand = errand(config, operator.as_deref())?;
    let mut connection = beside(config)?;
    let now = clock::now();
    let wanted = match to {
        Some(seq) => repair_subscription::audited(&connection, subscription, *seq, now)?,
        None => repair_subscription::at_stripe(&connection, &stripe(config)?, subscription, now)?,
    };
    let event = fresh::event_id(now)?;
    let repaired = if *apply {
        repair_subscription::apply(&mut connection, &errand, &wanted, &event, now)?
    } else {
        repair_subscription::rehearse(&mut connection, &errand, &wanted, &event, now)?
    };
    output.show(&repaired, render)?;
    Ok(if repaired.differences.is_empty() || repaired.event_id.is_some() { DONE } else { FOUND })
}

fn render(repaired: &Repaired) -> String {
    let Repaired { subscription_id, compared_with, differences, event_id } = repaired;
    if differences.is_empty() {
        return format!("{subscription_id} is as {compared_with} tells it\n");
    }
    let mut table = Table::new(&["COLUMN", "HERE", "THERE"]);
    for one in differences {
        table.row(&[&one.column, &or_dash(one.here.as_deref()), &or_dash(one.there.as_deref())]);
    }
    let done = match event_id {
        Some(event) => format!("brought to it by {event}\n"),
        None => "nothing is changed yet; run the same with --apply\n".into(),
    };
    format!("{subscription_id} is not as {compared_with} tells it\n\n{}\n{done}", table.render("none"))
}
