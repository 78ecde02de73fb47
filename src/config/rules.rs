//! What must hold between and within values that are each well formed.
//!
//! One flat list of rules; none of them reads anything but the configuration.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::problem::Problem;
use super::secret::SecretSource;
use super::units::format_duration;
use super::{Config, Price, Webhook};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CENTURY: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

const BODY_MIN: u64 = bytesize::KIB;
const BODY_MAX: u64 = 64 * bytesize::MIB;

/// Stripe's own limit of a metadata key.
const METADATA_KEY_LENGTH_MAX: usize = 40;

/// Paths of the public listener that are taken.
const HEALTH_PATHS: [&str; 2] = ["/healthz", "/readyz"];

impl Config {
    /// Checks everything that can be checked without a secret, a file or a database.
    ///
    /// # Errors
    /// Every rule that is broken.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut rules = Rules(Vec::new());
        rules.listeners(self);
        rules.durations(self);
        rules.webhooks(&self.webhooks);
        rules.tokens(self);
        rules.stripe(self);
        rules.tiers(self);
        rules.prices(self);
        rules.rates(self);
        if rules.0.is_empty() { Ok(()) } else { Err(rules.0) }
    }
}

struct Rules(Vec<Problem>);

impl Rules {
    fn refuse(&mut self, key: &str, message: impl Into<String>) {
        self.0.push(Problem::new(key, message));
    }

    fn listeners(&mut self, config: &Config) {
        if config.server.listen == config.admin.listen && config.server.listen.port() != 0 {
            self.refuse("admin.listen", "the same address as server.listen; give the private side one of its own");
        }
        if !(BODY_MIN..=BODY_MAX).contains(&config.server.max_body.as_u64()) {
            self.refuse("server.max_body", "out of range; write a size from \"1 KiB\" to \"64 MiB\"");
        }
        for (index, host) in config.admin.hosts.iter().enumerate() {
            if !is_host_name(host) {
                let advice = "write it alone, such as \"billing.example.com\", without scheme, port or path";
                self.refuse(&format!("admin.hosts[{index}]"), format!("`{host}` is no plain host name; {advice}"));
            }
        }
        if config.database.path.as_os_str().is_empty() {
            self.refuse("database.path", "empty; write the path of a file, such as \"billingd.db\"");
        }
    }

    fn durations(&mut self, config: &Config) {
        let zero = Duration::ZERO;
        for (key, value, least, most) in [
            ("server.request_timeout", config.server.request_timeout, SECOND, 5 * MINUTE),
            ("server.shutdown_grace", config.server.shutdown_grace, SECOND, 5 * MINUTE),
            ("reaper.pending_after", config.reaper.pending_after, SECOND, CENTURY),
            ("reconcile.lookback", config.reconcile.lookback, SECOND, 30 * DAY),
            ("reconcile.grace", config.reconcile.grace, zero, DAY),
            ("retention.payloads", config.retention.payloads, zero, CENTURY),
            ("retention.ignored_events", config.retention.ignored_events, zero, CENTURY),
            ("fx.max_age", config.fx.max_age, DAY, CENTURY),
            ("alerts.pending_age", config.alerts.pending_age, zero, CENTURY),
            ("alerts.failed_age", config.alerts.failed_age, zero, CENTURY),
        ] {
            self.within(key, value, least, most);
        }
        if !(1..=100).contains(&config.processing.max_attempts) {
            self.refuse("processing.max_attempts", "out of range; write a whole number from 1 to 100");
        }
        if !(1..=1000).contains(&config.backup.keep) {
            self.refuse("backup.keep", "out of range; write a whole number from 1 to 1000");
        }
    }

    fn within(&mut self, key: &str, value: Duration, least: Duration, most: Duration) {
        if value < least || value > most {
            let [value, least, most] = [value, least, most].map(format_duration);
            self.refuse(key, format!("\"{value}\" is out of range; write a duration from \"{least}\" to \"{most}\""));
        }
    }

    fn webhooks(&mut self, webhooks: &[Webhook]) {
        if webhooks.is_empty() {
            self.refuse("webhook", "an empty list; leave it out for the default, or add a [[webhook]]");
        }
        let mut taken: BTreeSet<&str> = HEALTH_PATHS.into();
        for (index, webhook) in webhooks.iter().enumerate() {
            let at = format!("webhook[{index}]");
            let path_key = format!("{at}.path");
            if !is_path(&webhook.path) {
                let advice =
                    "write one such as \"/webhooks/stripe\", of letters, digits and -._~ between single slashes";
                self.refuse(&path_key, format!("`{}` is no path; {advice}", webhook.path));
            } else if !taken.insert(webhook.path.trim_end_matches('/')) {
                self.refuse(&path_key, format!("`{}` is taken already; give each webhook its own path", webhook.path));
            }
            self.tolerance(&format!("{at}.tolerance"), webhook.tolerance);
            if webhook.signing_secrets.is_empty() {
                let advice =
                    "nothing could be verified; name at least one, such as { env = \"STRIPE_WEBHOOK_SECRET\" }";
                self.refuse(&format!("{at}.signing_secrets"), advice);
            }
            for (index, secret) in webhook.signing_secrets.iter().enumerate() {
                self.secret(&format!("{at}.signing_secrets[{index}]"), secret);
            }
        }
    }

    fn tolerance(&mut self, key: &str, tolerance: Duration) {
        if tolerance.is_zero() {
            let message =
                "the tolerance cannot be switched off, or old deliveries could be replayed; write one such as \"5m\"";
            self.refuse(key, message);
        } else {
            self.within(key, tolerance, SECOND, DAY);
        }
    }

    fn tokens(&mut self, config: &Config) {
        let mut names = BTreeSet::new();
        for (index, token) in config.admin.tokens.iter().enumerate() {
            let at = format!("admin.token[{index}]");
            let is_name = !token.name.is_empty() && !token.name.contains(|c: char| c.is_whitespace() || c.is_control());
            if !is_name {
                self.refuse(&format!("{at}.name"), "no name; write one word, such as \"ops\": it appears in the audit");
            } else if !names.insert(token.name.as_str()) {
                let message = format!("`{}` is the name of another token already; names must be unique", token.name);
                self.refuse(&format!("{at}.name"), message);
            }
            self.secret(&format!("{at}.secret"), &token.secret);
        }
    }

    fn secret(&mut self, key: &str, source: &SecretSource) {
        if let Err(error) = source.check() {
            self.refuse(key, error.to_string());
        }
    }

    fn stripe(&mut self, config: &Config) {
        if let Some(source) = &config.stripe.api_key {
            self.secret("stripe.api_key", source);
        }
        let key = &config.accounts.metadata_key;
        if key.trim().is_empty() || key.chars().count() > METADATA_KEY_LENGTH_MAX || key.contains(['[', ']']) {
            let message =
                "no key of Stripe's metadata; write 1 to 40 characters without brackets, such as \"account_id\"";
            self.refuse("accounts.metadata_key", message);
        }
    }

    fn tiers(&mut self, config: &Config) {
        let mut names = BTreeSet::new();
        for (index, name) in config.tiers.order.iter().enumerate() {
            let key = format!("tiers.order[{index}]");
            if name.trim().is_empty() || name.trim() != name {
                self.refuse(&key, format!("`{name}` is no name of a tier; write one without white space around it"));
            } else if !names.insert(name) {
                self.refuse(&key, format!("`{name}` stands in the order twice; name each tier once"));
            }
        }
    }

    fn prices(&mut self, config: &Config) {
        let mut ids = BTreeSet::new();
        for (index, price) in config.prices.iter().enumerate() {
            let at = format!("price[{index}]");
            let id = price.id.as_str();
            if id.is_empty() || id.trim() != id {
                self.refuse(&format!("{at}.id"), "no id; write that of a price or product, or a lookup key");
            } else if !ids.insert(id) {
                self.refuse(&format!("{at}.id"), format!("`{id}` is listed already; list each id once"));
            }
            self.price(&at, price, &config.tiers.order);
        }
    }

    fn price(&mut self, at: &str, price: &Price, tiers: &[String]) {
        if price.foreign && (price.tier.is_some() || price.credits.is_some()) {
            let message = "a foreign price gives neither tier nor credits; take those out, or foreign";
            self.refuse(&format!("{at}.foreign"), message);
        }
        if let Some(tier) = price.tier.as_ref().filter(|tier| !tiers.contains(tier)) {
            self.refuse(&format!("{at}.tier"), format!("`{tier}` is not in tiers.order; add it there, or correct it"));
        }
        if price.unit.is_empty() || price.unit.contains(char::is_whitespace) {
            self.refuse(&format!("{at}.unit"), "no name of a unit; write one word, such as \"credits\"");
        }
        for (key, amount) in [("credits", price.credits), ("unit_amount", price.unit_amount)] {
            if amount.is_some_and(i64::is_negative) {
                self.refuse(&format!("{at}.{key}"), "negative; write a whole number from 0 on");
            }
        }
    }

    fn rates(&mut self, config: &Config) {
        if let Some(unit) = config.credits.unit.as_ref().filter(|_| config.jobs.fx.is_none()) {
            let message = format!("\"{unit}\" needs exchange rates, and jobs.fx is off: no rates would ever come; ");
            self.refuse("credits.unit", message + "set jobs.fx, such as \"0 0 16 * * *\", or credits.unit = \"\"");
        }
    }
}

fn is_path(path: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    path.starts_with('/')
        && path.chars().all(is_plain)
        && !path.contains("//")
        && !path.split('/').any(|part| part == "..")
}

fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.parse::<IpAddr>().is_ok() || (host.len() <= 253 && host.split('.').all(is_label))
}
