//! Cleans up what went wrong before.

mod duplicates;
mod subscription;

use clap::Subcommand;

use crate::config::Config;

use super::output::Output;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Find what was granted twice; keep the first grant, reverse what still stands of the others
    #[command(
        after_help = "Examples:\n  billingd repair duplicates            what it would do\n  billingd repair duplicates --apply    do it"
    )]
    Duplicates(duplicates::DuplicatesArguments),
    /// Compare a subscription with Stripe, or with a former state; bring it there
    #[command(
        after_help = "Examples:\n  billingd repair subscription sub_123                     what differs from Stripe\n  \
        billingd repair subscription sub_123 --apply             bring it\n  \
        billingd repair subscription sub_123 --to 417 --apply    back to what row 417 of `audit list` told"
    )]
    Subscription(subscription::SubscriptionArguments),
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    match command {
        Command::Duplicates(arguments) => duplicates::run(arguments, config, output),
        Command::Subscription(arguments) => subscription::run(arguments, config, output),
    }
}
