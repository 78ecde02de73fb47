//! Who has what, and why.

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::clock;
use crate::config::Config;
use crate::ops::adjust::{self, Adjusted, Adjustment};
use crate::ops::fresh;
use crate::ops::reference::{self, Named, Naming};
use crate::ops::story::{self, AccountStory};
use crate::store::found::Edge;
use crate::store::views::{self, AccountFilter, AccountRow, BalanceRow, MoneyBackRow, SubscriptionRow};

use super::output::{Output, Table, amount, or_dash, plain, time};
use super::{DONE, tables, values};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List accounts with their tier and balances
    #[command(after_help = "Example:\n  billingd accounts list --limit 20")]
    List {
        /// At most so many
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
        limit: i64,
    },
    /// Tell all about one account
    #[command(after_help = "Example:\n  billingd accounts show cus_123\n  billingd accounts show user-42")]
    Show {
        /// The customer's id, or your own reference for it
        account: String,
        /// At most so many entries, events and audit rows
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
    /// Give or take credits by hand; the same key again changes nothing
    #[command(
        after_help = "Example:\n  billingd accounts adjust cus_123 --amount -40 --reason \"spent on exports\" --key export-17"
    )]
    Adjust(AdjustArguments),
    /// Say which of your own ids an account has; Stripe's events no longer change it
    #[command(
        after_help = "Examples:\n  billingd accounts reference cus_123 user-42 --reason \"moved to a new customer\"\n  billingd accounts reference cus_456 '' --reason \"a buyer took somebody else's id\""
    )]
    Reference(ReferenceArguments),
}

#[derive(Debug, Args)]
pub(super) struct AdjustArguments {
    /// The customer's id, or your own reference for it
    account: String,
    /// How much; negative takes
    #[arg(long, allow_negative_numbers = true, value_parser = values::amount)]
    amount: i64,
    /// Why; goes into the audit log
    #[arg(long, value_parser = values::text)]
    reason: String,
    /// Names this change: repeating it changes nothing
    #[arg(long, value_parser = values::text)]
    key: String,
    /// The unit of the amount
    #[arg(long, default_value = "credits", value_parser = values::text)]
    unit: String,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ReferenceArguments {
    /// The customer's id, or your own reference for it
    account: String,
    /// Your own id for it; '' takes it away
    reference: String,
    /// Why; goes into the audit log
    #[arg(long, value_parser = values::text)]
    reason: String,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    match command {
        Command::List { limit } => list(*limit, config, output),
        Command::Show { account, limit } => show(account, *limit, config, output),
        Command::Adjust(arguments) => adjust(arguments, config, output),
        Command::Reference(arguments) => name(arguments, config, output),
    }
}

#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    account: AccountRow,
    balances: Vec<BalanceRow>,
}

fn list(limit: i64, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let listed: Vec<Listed> = super::reader(config)?.read(|connection| {
        let accounts = views::accounts(connection, &AccountFilter { limit, ..AccountFilter::default() })?;
        accounts
            .into_iter()
            .map(|account| {
                let balances = views::balances(connection, &account.account_id)?;
                Ok(Listed { account, balances })
            })
            .collect()
    })?;
    output.show(&listed, |listed| {
        let mut table = Table::new(&["ACCOUNT", "REFERENCE", "TIER", "BALANCES", ""]);
        for Listed { account, balances } in listed {
            table.row(&[
                &account.account_id,
                &or_dash(account.reference.as_deref()),
                &or_dash(account.tier.as_deref()),
                &or_dash(Some(&in_one_line(balances))),
                &if account.deleted { "deleted at Stripe" } else { "" },
            ]);
        }
        table.render("no accounts")
    })?;
    Ok(DONE)
}

fn in_one_line(balances: &[BalanceRow]) -> String {
    balances.iter().map(|row| amount(row.balance, &row.unit)).collect::<Vec<_>>().join(", ")
}

fn show(name: &str, limit: i64, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let reader = super::reader(config)?;
    let id = super::account_named(&reader, name)?;
    let story = reader.read(|connection| story::of_account(connection, &id, limit))?;
    let Some(story) = story else { anyhow::bail!("there is no account {name}") };
    output.show(&story, render_story)?;
    Ok(DONE)
}

fn render_story(story: &AccountStory) -> String {
    let account = &story.account;
    let mut text = format!(
        "{}  reference {}  tier {}{}\n\nbalances\n",
        plain(&account.account_id),
        plain(&or_dash(account.reference.as_deref())),
        or_dash(account.tier.as_deref()),
        if account.deleted { "  deleted at Stripe" } else { "" }
    );
    let mut balances = Table::new(&[">BALANCE", ">AVAILABLE"]);
    for row in &story.balances {
        balances.row(&[&amount(row.balance, &row.unit), &amount(row.available, &row.unit)]);
    }
    text.push_str(&balances.render("none"));
    if !story.subscriptions.is_empty() {
        text.push_str(&format!("\nsubscriptions\n{}", render_subscriptions(&story.subscriptions)));
    }
    if !story.tier_changes.is_empty() {
        text.push_str(&format!("\ntier changes\n{}", tables::tier_changes(&story.tier_changes)));
    }
    text.push_str(&format!("\nentries\n{}", tables::ledger(&story.entries)));
    if !story.money_back.is_empty() {
        text.push_str(&format!("\nrefunds and disputes\n{}", render_money_back(&story.money_back)));
    }
    let mut events = Table::new(&["RECEIVED", "EVENT", "TYPE", "STATUS", "OUTCOME"]);
    for row in &story.events {
        events.row(&[&time(row.received_at), &row.event_id, &row.kind, &row.status, &or_dash(row.outcome.as_deref())]);
    }
    text.push_str(&format!("\nevents\n{}{}", events.render("none"), edge(story.events_edge.as_ref(), "events")));
    text.push_str(&format!("\naudit\n{}{}", tables::audit(&story.audit), edge(story.audit_edge.as_ref(), "audit")));
    text
}

/// Where the search for rows ended, and which list goes on.
fn edge(edge: Option<&Edge>, list: &str) -> String {
    let told = |Edge { looked_back_to, before }: &Edge| {
        let at = time(*looked_back_to);
        format!("looked back to {at}; `billingd {list} list --account ID --before {}` goes on\n", plain(before))
    };
    edge.map(told).unwrap_or_default()
}

fn render_subscriptions(rows: &[SubscriptionRow]) -> String {
    let mut table = Table::new(&["SUBSCRIPTION", "STATUS", "TIER", "PRICES", "PERIOD END", "ENDS", "NEXT TIER"]);
    for row in rows {
        table.row(&[
            &row.subscription_id,
            &if row.collection_paused { format!("{} (collection paused)", row.status) } else { row.status.clone() },
            &or_dash(row.tier.as_deref()),
            &or_dash(row.price_ids.as_deref()),
            &row.current_period_end.map_or_else(|| "-".to_owned(), time),
            &row.ends_at.map_or_else(|| "-".to_owned(), time),
            &match (&row.pending_tier_at, &row.pending_tier) {
                (Some(at), tier) => format!("{} on {}", or_dash(tier.as_deref()), time(*at)),
                (None, _) => "-".to_owned(),
            },
        ]);
    }
    table.render("none")
}

fn render_money_back(rows: &[MoneyBackRow]) -> String {
    let mut table = Table::new(&["KIND", "ID", ">AMOUNT", "STATUS", "OF"]);
    for row in rows {
        let status = or_dash(row.status.as_deref());
        table.row(&[&row.kind, &row.id, &amount(row.amount, &row.currency), &status, &row.root]);
    }
    table.render("none")
}

fn adjust(arguments: &AdjustArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let mut connection = super::beside(config)?;
    let adjustment = Adjustment {
        account: arguments.account.clone(),
        amount: arguments.amount,
        unit: arguments.unit.clone(),
        reason: arguments.reason.clone(),
        key: arguments.key.clone(),
        allow_debt: true,
        operator: super::operator(arguments.operator.as_deref()),
    };
    let event = fresh::event_id(clock::now())?;
    let adjusted = adjust::adjust(&mut connection, &adjustment, &event, config.stripe.livemode, clock::now())?;
    output.show(&adjusted, render_adjusted)?;
    Ok(DONE)
}

fn render_adjusted(adjusted: &Adjusted) -> String {
    let (done, so) = if adjusted.new { ("posted", "") } else { ("was posted before", "nothing changed; ") };
    format!(
        "{}: {done} as {}; {so}balance {}\n",
        adjusted.account_id,
        adjusted.event_id,
        amount(adjusted.balance, &adjusted.unit)
    )
}

fn name(arguments: &ReferenceArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let mut connection = super::beside(config)?;
    let naming = Naming {
        account: arguments.account.clone(),
        reference: arguments.reference.clone(),
        reason: arguments.reason.clone(),
        operator: super::operator(arguments.operator.as_deref()),
    };
    let event = fresh::event_id(clock::now())?;
    let named = reference::name(&mut connection, &naming, &event, config.stripe.livemode, clock::now())?;
    output.show(&named, render_named)?;
    Ok(DONE)
}

fn render_named(named: &Named) -> String {
    let (account, now) = (plain(&named.account_id), plain(&or_dash(named.reference.as_deref())));
    let mut text = match &named.event_id {
        Some(event) => {
            format!("{account}: reference {now}, before {}; {event}\n", plain(&or_dash(named.before.as_deref())))
        }
        None => format!("{account}: an operator set the reference {now} before, nothing changed\n"),
    };
    if let Some(other) = &named.shared_with {
        let other = plain(other);
        text.push_str(&format!(
            "{other} has it as well: `billingd accounts reference {other} ''` takes it away there\n"
        ));
    }
    text
}
