//! Exchange rates: what there is, and getting more.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;

use crate::clock;
use crate::config::Config;
use crate::domain::money::Currency;
use crate::domain::words::counted;
use crate::ecb::{feed, fetch};
use crate::ops::fx::{self, Told, Updated};
use crate::store::fx::{self as rates, RateRow};

use super::output::{Output, Table};
use super::{DONE, FOUND};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Fetch the rates of [fx] url, keep what is new, and run what waited for it
    #[command(after_help = "Examples:\n  billingd --config prod.toml fx update\n  \
        billingd --config prod.toml fx update --file eurofxref-hist-90d.xml")]
    Update {
        /// Read this file, of the same form, and fetch nothing
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
        /// Who does this, for the audit log (default: the login name)
        #[arg(long = "as", value_name = "NAME")]
        operator: Option<String>,
    },
    /// List the rates, the newest first
    #[command(after_help = "Example:\n  billingd fx list --currency jpy --limit 10")]
    List {
        /// Only of this currency
        #[arg(long, value_parser = Currency::parse)]
        currency: Option<Currency>,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
        limit: i64,
    },
}

pub(super) fn run(command: &Command, config: &Config, output: &Output) -> anyhow::Result<u8> {
    match command {
        Command::Update { file, operator } => update(file.as_deref(), operator.as_deref(), config, output),
        Command::List { currency, limit } => list(*currency, *limit, config, output),
    }
}

fn update(file: Option<&Path>, operator: Option<&str>, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let mut connection = super::beside(config)?;
    let (bytes, source) = match file {
        Some(path) => read(path)?,
        None => download(config)?,
    };
    let rates = feed::parse(&bytes).with_context(|| format!("{source} holds no file of rates"))?;
    let base = Currency::parse(&config.fx.base).context("[fx] base")?;
    let errand = super::errand(config, operator)?;
    let updated = fx::update(&mut connection, Told { rates, base, source: source.clone() }, &errand, clock::now())
        .with_context(|| format!("the rates of {source} are not taken"))?;
    output.show(&updated, render_updated)?;
    Ok(if updated.differing.is_empty() { DONE } else { FOUND })
}

/// The content of a file, no more than may be read, and the name of it that is kept.
fn read(path: &Path) -> anyhow::Result<(Vec<u8>, String)> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.display().to_string());
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(feed::BYTES_MAX + 1).read_to_end(&mut bytes))
        .with_context(|| format!("{} cannot be read", path.display()))?;
    Ok((bytes, format!("file {name}")))
}

/// What [fx] url gives, and the part of that URL that may be shown.
fn download(config: &Config) -> anyhow::Result<(Vec<u8>, String)> {
    let url = config.fx.url.resolve(&|name| std::env::var(name).ok()).context("[fx] url")?;
    let bytes = fetch::fetch(url.expose()).with_context(|| {
        format!("no rates from [fx] url, {}; nothing changed; try again, or use --file", url.origin())
    })?;
    Ok((bytes, url.origin().to_owned()))
}

fn render_updated(updated: &Updated) -> String {
    let Updated { source, newest, new, known, differing, woken, waiting } = updated;
    let mut text = format!("{source}: {}, {known} known before; the newest of {newest}\n", counted(*new, "new rate"));
    for one in differing {
        let (date, currency) = (&one.date, one.currency.to_ascii_uppercase());
        text.push_str(&format!("{date} {currency}: {} was told before and stays, not {}\n", one.kept, one.told));
    }
    if woken + usize::from(*waiting > 0) > 0 {
        text.push_str(&format!(
            "{} that waited for rates ran again; still waiting for one: {waiting}\n",
            counted(*woken, "event")
        ));
    }
    text
}

fn list(currency: Option<Currency>, limit: i64, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let rows = super::reader(config)?.read(|connection| rates::list(connection, currency, limit))?;
    output.show(&rows, |rows| render_list(rows))?;
    Ok(DONE)
}

fn render_list(rows: &[RateRow]) -> String {
    let mut table = Table::new(&["DATE", ">RATE", "FOR", "SOURCE"]);
    for row in rows {
        let (currency, base) = (row.currency.to_ascii_uppercase(), row.base.to_ascii_uppercase());
        table.row(&[&row.date, &format!("{} {currency}", row.rate), &format!("1 {base}"), &row.source]);
    }
    table.render("no rates; `billingd fx update` fetches them")
}
