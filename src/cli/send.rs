//! Signed events for work at home: samples by their type, or files, posted to the listener of the config.
//!
//! Nothing leaves this machine, and nothing goes into live books.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use ureq::http::Uri;

use crate::clock;
use crate::config::Config;
use crate::samples::{self, Sample};

use super::output::{Output, Table, or_dash};
use super::post::{self, Answered, Poster};
use super::{DONE, FOUND, NOT_DONE, values};

#[derive(Debug, Args)]
pub(super) struct SendArguments {
    /// Types of samples, such as invoice.paid, and files that hold one event each; sent in this order. The samples of
    /// one call are about one customer and one purchase
    #[arg(required = true, value_name = "TYPE|FILE")]
    events: Vec<String>,
    /// Deliver each event so many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    times: u32,
    /// Deliver so many at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// The samples' customer has this id of yours, as metadata of Stripe's carry it
    #[arg(long, value_name = "ID", value_parser = values::text)]
    reference: Option<String>,
    /// Post to this address of this machine instead of the configured listener
    #[arg(long, value_name = "URL")]
    to: Option<String>,
}

/// An event, ready to be posted.
struct Prepared {
    kind: String,
    id: String,
    body: Vec<u8>,
}

/// What became of the deliveries of one event.
#[derive(Debug, Serialize)]
struct Sent {
    r#type: String,
    id: String,
    answers: BTreeMap<String, usize>,
}

pub(super) fn run(arguments: &SendArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    if config.stripe.livemode {
        bail!(
            "refused against live books: [stripe] livemode is true; take a config for test mode, such as config/dev.toml"
        );
    }
    let poster = poster(arguments.to.as_deref(), config)?;
    let story = Sample { reference: reference(arguments, config), ..story(config)? };
    let events = prepare(&arguments.events, story)?;
    let times = usize::try_from(arguments.times)?;
    let bodies: Vec<&[u8]> =
        events.iter().flat_map(|event| std::iter::repeat_n(event.body.as_slice(), times)).collect();
    let answers = poster.post_all(&bodies, usize::from(arguments.concurrency));
    let sent = |(event, answers): (Prepared, &[Answered])| Sent {
        r#type: event.kind,
        id: event.id,
        answers: post::tally(answers.iter()),
    };
    let report: Vec<Sent> = events.into_iter().zip(answers.chunks(times)).map(sent).collect();
    output.show(&report, |report| render(report))?;
    Ok(status(&answers))
}

fn status(answers: &[Answered]) -> u8 {
    if answers.iter().any(|answer| matches!(answer, Answered::Nothing(_))) {
        NOT_DONE
    } else if answers.iter().all(Answered::is_success) {
        DONE
    } else {
        FOUND
    }
}

fn render(report: &[Sent]) -> String {
    let mut table = Table::new(&["TYPE", "EVENT", "ANSWERS"]);
    for sent in report {
        let answers: Vec<String> = sent.answers.iter().map(|(label, count)| format!("{label} ×{count}")).collect();
        table.row(&[&or_dash(Some(&sent.r#type)), &or_dash(Some(&sent.id)), &answers.join(", ")]);
    }
    table.render("nothing was sent")
}

/// Signs with the first configured secret, and posts to its webhook.
fn poster(to: Option<&str>, config: &Config) -> anyhow::Result<Poster> {
    let webhook = config.webhooks.first().context("there is no [[webhook]]")?;
    let source = webhook.signing_secrets.first().context("the first [[webhook]] has no signing secret")?;
    let secret = source.resolve(&|name| std::env::var(name).ok())?;
    let url = match to {
        Some(to) => loopback_url(to, &webhook.path)?,
        None => format!("http://{}{}", reachable(config.server.listen)?, webhook.path),
    };
    Ok(Poster::new(url, secret.expose().to_owned()))
}

/// The address under which this machine reaches a listener of its own.
fn reachable(listen: SocketAddr) -> anyhow::Result<SocketAddr> {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip if ip.is_loopback() => ip,
        ip => bail!("[server] listen = {ip} is no loopback address; `billingd send` is for work at home"),
    };
    if listen.port() == 0 {
        bail!("[server] listen has no fixed port; name the port in use with --to");
    }
    Ok(SocketAddr::new(ip, listen.port()))
}

/// A URL of this machine; without a path it gets that of the webhook.
fn loopback_url(text: &str, path: &str) -> anyhow::Result<String> {
    let uri: Uri =
        text.parse().ok().with_context(|| format!("--to {text} is no URL; write one such as http://127.0.0.1:8787"))?;
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if !loopback {
        bail!(
            "--to {text} is refused: `billingd send` posts to loopback addresses only, such as http://127.0.0.1:8787"
        );
    }
    if uri.scheme_str() != Some("http") {
        bail!("--to {text} is refused: on loopback billingd speaks plain http; write http://{host}:PORT");
    }
    let authority = uri.authority().context("--to has no host")?;
    let path =
        uri.path_and_query().map(ToString::to_string).filter(|own| own != "/").unwrap_or_else(|| path.to_owned());
    Ok(format!("http://{authority}{path}"))
}

fn reference(arguments: &SendArguments, config: &Config) -> Option<(String, String)> {
    arguments.reference.as_ref().map(|id| (config.accounts.metadata_key.clone(), id.clone()))
}

fn prepare(events: &[String], mut story: Sample) -> anyhow::Result<Vec<Prepared>> {
    events
        .iter()
        .zip(1..)
        .map(|(name, number)| {
            story.event = number;
            if samples::types().any(|kind| kind == name) { sample(name, &story) } else { file(name) }
        })
        .collect()
}

/// What the samples of this call are about.
fn story(config: &Config) -> anyhow::Result<Sample> {
    let mut sample = Sample { seed: getrandom::u64()?, ..Sample::new(1, clock::now() / 1000) };
    sample.account.clone_from(&config.stripe.connected_account);
    // With a price list, a sample sells what is on it.
    if let Some(price) = config.prices.iter().find(|price| !price.foreign && price.id.starts_with("price_")) {
        sample.price.clone_from(&price.id);
        sample.unit_amount = price.unit_amount.unwrap_or(sample.unit_amount);
    }
    Ok(sample)
}

fn sample(kind: &str, story: &Sample) -> anyhow::Result<Prepared> {
    Ok(Prepared { kind: kind.to_owned(), id: story.event_id(), body: story.body(kind)? })
}

/// What is shown of a file; whether it is an event is for the server to say.
#[derive(Debug, Default, Deserialize)]
struct Shown {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    r#type: Option<String>,
}

/// The bytes of the file as they are.
fn file(name: &str) -> anyhow::Result<Prepared> {
    if !Path::new(name).exists() {
        let types: Vec<&str> = samples::types().collect();
        bail!("{name} is neither a file nor a type with a sample; there are samples of {}", types.join(", "));
    }
    let body = std::fs::read(name).with_context(|| format!("{name} cannot be read"))?;
    let shown: Shown = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Prepared { kind: shown.r#type.unwrap_or_default(), id: shown.id.unwrap_or_default(), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/webhooks/stripe";

    #[test]
    fn only_plain_loopback_addresses_are_posted_to() {
        for (to, url) in [
            ("http://127.0.0.1:8787", "http://127.0.0.1:8787/webhooks/stripe"),
            ("http://localhost:8787/", "http://localhost:8787/webhooks/stripe"),
            ("http://[::1]:8787/other", "http://[::1]:8787/other"),
        ] {
            assert_eq!(loopback_url(to, PATH).unwrap(), url);
        }
        for to in ["http://example.com", "http://10.0.0.1:8787", "http://127.0.0.1@example.com/", "nonsense"] {
            let error = loopback_url(to, PATH).unwrap_err().to_string();
            assert!(error.contains("loopback addresses only"), "{error}");
        }
        let error = loopback_url("https://127.0.0.1:8787", PATH).unwrap_err().to_string();
        assert!(error.contains("plain http"), "{error}");
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        assert_eq!(reachable("0.0.0.0:1".parse().unwrap()).unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(reachable("[::]:1".parse().unwrap()).unwrap().to_string(), "[::1]:1");
        assert!(reachable("192.0.2.1:1".parse().unwrap()).is_err());
        assert!(reachable("127.0.0.1:0".parse().unwrap()).is_err());
    }
}
