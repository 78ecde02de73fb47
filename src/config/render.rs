//! The effective configuration as text: for people, without secrets, and as a digest of what decides about money.
//!
//! The text is TOML with the keys in their documented order.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::address::{CalledUrl, UrlSource};
use super::secret::SecretSource;
use super::units::{Schedule, format_duration, format_size};
use super::{Config, Price};

impl Config {
    /// The effective configuration as TOML. A secret is shown as its source, or as `"[redacted]"`.
    #[must_use]
    pub fn redacted(&self) -> String {
        let mut text = Text(String::new());
        text.listeners(self);
        text.stripe(self);
        text.money(self);
        text.prices(self.prices.iter());
        text.operation(self);
        text.alerts(self);
        text.0
    }

    /// SHA-256, in hex, of what decides about money: whose events count, tiers, access, credits, which rates convert
    /// them, and the price list. Two configurations with one digest treat every event alike.
    #[must_use]
    pub fn catalogue_digest(&self) -> String {
        let mut text = Text(String::new());
        text.section("stripe");
        text.books(self);
        text.money(self);
        if self.credits.unit.is_some() {
            text.section("fx");
            text.text("base", &self.fx.base);
            text.text("max_age", &format_duration(self.fx.max_age));
        }
        let mut prices: Vec<&Price> = self.prices.iter().collect();
        prices.sort_by(|a, b| a.id.cmp(&b.id));
        text.prices(prices.into_iter());
        base16ct::lower::encode_string(&Sha256::digest(text.0.as_bytes()))
    }
}

/// TOML as it grows.
struct Text(String);

impl Text {
    fn section(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}[{name}]");
    }

    fn raw(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, quoted(value));
    }

    fn listeners(&mut self, config: &Config) {
        self.section("server");
        self.text("listen", &config.server.listen.to_string());
        self.raw("trusted_proxies", list(config.server.trusted_proxies.iter().map(|ip| quoted(&ip.to_string()))));
        self.text("max_body", &format_size(config.server.max_body));
        self.text("request_timeout", &format_duration(config.server.request_timeout));
        self.text("shutdown_grace", &format_duration(config.server.shutdown_grace));
        self.section("admin");
        self.text("listen", &config.admin.listen.to_string());
        self.raw("hosts", list(config.admin.hosts.iter().map(|host| quoted(host))));
        for token in &config.admin.tokens {
            self.section("[admin.token]");
            self.text("name", &token.name);
            self.text("scope", token.scope.as_str());
            self.raw("secret", secret(&token.secret));
        }
        self.section("database");
        self.text("path", &config.database.path.display().to_string());
        for webhook in &config.webhooks {
            self.section("[webhook]");
            self.text("path", &webhook.path);
            self.raw("signing_secrets", list(webhook.signing_secrets.iter().map(secret)));
            self.text("tolerance", &format_duration(webhook.tolerance));
        }
    }

    fn stripe(&mut self, config: &Config) {
        self.section("stripe");
        self.books(config);
        if let Some(source) = &config.stripe.api_key {
            self.raw("api_key", secret(source));
        }
        self.raw("api_base", url(&config.stripe.api_base));
    }

    /// Which books these are.
    fn books(&mut self, config: &Config) {
        self.raw("livemode", config.stripe.livemode);
        self.text("connected_account", config.stripe.connected_account.as_deref().unwrap_or_default());
    }

    fn money(&mut self, config: &Config) {
        self.section("accounts");
        self.text("metadata_key", &config.accounts.metadata_key);
        self.section("tiers");
        self.raw("order", list(config.tiers.order.iter().map(|name| quoted(name))));
        self.text("downgrade", config.tiers.downgrade.as_str());
        self.section("access");
        self.raw("trialing", config.access.trialing);
        self.raw("past_due", config.access.past_due);
        self.raw("unpaid", config.access.unpaid);
        self.raw("collection_paused", config.access.collection_paused);
        self.section("credits");
        self.text("since", &config.credits.since.map(moment).unwrap_or_default());
        self.text("basis", config.credits.basis.as_str());
        self.text("unit", config.credits.unit.as_deref().unwrap_or_default());
        self.text("proration", config.credits.proration.as_str());
        self.text("unlisted_price", config.credits.unlisted_price.as_str());
    }

    fn prices<'a>(&mut self, prices: impl Iterator<Item = &'a Price>) {
        for price in prices {
            self.section("[price]");
            self.text("id", &price.id);
            if let Some(tier) = &price.tier {
                self.text("tier", tier);
            }
            if let Some(credits) = price.credits {
                self.raw("credits", credits);
            }
            self.text("per", price.per.as_str());
            self.text("unit", &price.unit);
            if let Some(amount) = price.unit_amount {
                self.raw("unit_amount", amount);
            }
            self.raw("foreign", price.foreign);
        }
    }

    fn operation(&mut self, config: &Config) {
        self.section("processing");
        self.raw("max_attempts", config.processing.max_attempts);
        self.section("jobs");
        let jobs = &config.jobs;
        for (key, schedule) in [
            ("reaper", &jobs.reaper),
            ("reconcile", &jobs.reconcile),
            ("retention", &jobs.retention),
            ("fx", &jobs.fx),
            ("backup", &jobs.backup),
        ] {
            self.text(key, schedule.as_ref().map_or("", Schedule::as_str));
        }
        self.section("reaper");
        self.text("pending_after", &format_duration(config.reaper.pending_after));
        self.section("reconcile");
        self.text("lookback", &format_duration(config.reconcile.lookback));
        self.text("grace", &format_duration(config.reconcile.grace));
        self.section("retention");
        self.text("payloads", &format_duration(config.retention.payloads));
        self.text("ignored_events", &format_duration(config.retention.ignored_events));
        self.section("backup");
        self.text("folder", &config.backup.folder.as_ref().map_or(String::new(), |path| path.display().to_string()));
        self.raw("keep", config.backup.keep);
        self.section("fx");
        self.text("base", &config.fx.base);
        self.raw("url", url(&config.fx.url));
        self.text("max_age", &format_duration(config.fx.max_age));
    }

    fn alerts(&mut self, config: &Config) {
        self.section("alerts");
        self.raw("pending_count", config.alerts.pending_count);
        self.text("pending_age", &format_duration(config.alerts.pending_age));
        self.text("failed_age", &format_duration(config.alerts.failed_age));
        self.raw("success_rate", config.alerts.success_rate);
        self.raw("webhook_url", config.alerts.webhook_url.as_ref().map_or(quoted(""), url));
        self.raw("heartbeat_url", config.alerts.heartbeat_url.as_ref().map_or(quoted(""), url));
        self.section("log");
        self.text("format", config.log.format.as_str());
        self.text("level", config.log.level.as_str());
    }
}

fn secret(source: &SecretSource) -> String {
    match source {
        SecretSource::Env { env } => format!("{{ env = {} }}", quoted(env)),
        SecretSource::File { file } => format!("{{ file = {} }}", quoted(&file.display().to_string())),
        SecretSource::Credential { credential } => format!("{{ credential = {} }}", quoted(credential)),
        SecretSource::Plain(_) => quoted("[redacted]"),
    }
}

/// A written-out URL is shown without what may be a secret in it.
fn url(source: &UrlSource) -> String {
    match source.source() {
        SecretSource::Plain(text) => {
            quoted(&CalledUrl::parse(text.trim()).map_or("[redacted]".to_owned(), |url| url.to_string()))
        }
        elsewhere => secret(elsewhere),
    }
}

fn moment(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |moment| moment.to_string())
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
