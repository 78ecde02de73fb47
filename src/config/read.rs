//! From merged layers to typed sections.
//!
//! A section with a wrong value is read again with that value's default in its place, so that one run tells of all
//! wrong values and not only of the first.

use std::collections::BTreeSet;

use figment::Figment;
use figment::error::Kind;
use figment::value::{Dict, Value};
use serde::de::DeserializeOwned;

use super::layers::Layers;
use super::problem::{ConfigError, Problem, nearest};
use super::shape::join;
use super::{Config, Price, Webhook};

struct Reader<'a> {
    layers: &'a Layers,
    merged: Figment,
    problems: Vec<Problem>,
}

/// Reads all sections. `problems` is what is known to be wrong already.
pub(super) fn config(layers: &Layers, problems: Vec<Problem>) -> Result<Config, ConfigError> {
    let mut reader = Reader { layers, merged: layers.merged(), problems };
    let config = reader.all();
    match config {
        Some(config) if reader.problems.is_empty() => Ok(config),
        _ => Err(ConfigError::Invalid(reader.problems)),
    }
}

impl Reader<'_> {
    fn all(&mut self) -> Option<Config> {
        // Every section is read before the first failure ends this function.
        let server = self.section("server");
        let admin = self.section("admin");
        let database = self.section("database");
        let webhooks = self.list::<Webhook>("webhook");
        let stripe = self.section("stripe");
        let accounts = self.section("accounts");
        let tiers = self.section("tiers");
        let access = self.section("access");
        let credits = self.section("credits");
        let prices = self.list::<Price>("price");
        let processing = self.section("processing");
        let jobs = self.section("jobs");
        let reaper = self.section("reaper");
        let reconcile = self.section("reconcile");
        let retention = self.section("retention");
        let backup = self.section("backup");
        let fx = self.section("fx");
        let alerts = self.section("alerts");
        let log = self.section("log");
        Some(Config {
            server: server?,
            admin: admin?,
            database: database?,
            webhooks: webhooks?.unwrap_or_else(|| vec![Webhook::default()]),
            stripe: stripe?,
            accounts: accounts?,
            tiers: tiers?,
            access: access?,
            credits: credits?,
            prices: prices?.unwrap_or_default(),
            processing: processing?,
            jobs: jobs?,
            reaper: reaper?,
            reconcile: reconcile?,
            retention: retention?,
            backup: backup?,
            fx: fx?,
            alerts: alerts?,
            log: log?,
        })
    }

    fn section<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.merged.find_value(name).unwrap_or_else(|_| Value::from(Dict::new()));
        self.value(name, value)
    }

    /// The outer option is the success, the inner one whether the list was set at all.
    fn list<T: DeserializeOwned>(&mut self, name: &str) -> Option<Option<Vec<T>>> {
        match self.merged.find_value(name) {
            Ok(value) => self.value(name, value).map(Some),
            Err(_) => Some(None),
        }
    }

    fn value<T: DeserializeOwned>(&mut self, at: &str, mut value: Value) -> Option<T> {
        let mut told = BTreeSet::new();
        loop {
            let error = match T::deserialize(&value) {
                Ok(read) => return Some(read),
                Err(error) => error,
            };
            let mut path = error.path.clone();
            if let Kind::MissingField(name) = &error.kind {
                path.push(name.to_string());
            }
            let key = dotted(at, &path);
            if !told.insert(key.clone()) {
                return None;
            }
            if !self.problems.iter().any(|problem| problem.key == key) {
                let source = self.layers.source_of(&key);
                self.problems.push(Problem::new(&key, message(&error.kind)).at(source));
            }
            replace(&mut value, &path, self.layers.default_of(&key));
        }
    }
}

/// `webhook`, `0`, `tolerance` to `webhook[0].tolerance`.
fn dotted(at: &str, path: &[String]) -> String {
    path.iter().fold(at.to_owned(), |at, part| match part.parse::<usize>() {
        Ok(index) => format!("{at}[{index}]"),
        Err(_) => join(&at, part),
    })
}

fn message(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.clone(),
        Kind::MissingField(_) => "this key is missing; add it".to_owned(),
        Kind::UnknownVariant(word, choices) => {
            let meant = nearest(word, choices.iter().copied()).map(|near| format!("; did you mean \"{near}\"?"));
            let choices: Vec<String> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
            format!("\"{word}\" is none of the choices: write {}{}", choices.join(" or "), meant.unwrap_or_default())
        }
        // Types were compared before; whatever is left is told without the value, which could be a secret.
        _ => "the value does not fit; config/billingd.toml explains the key".to_owned(),
    }
}

fn replace(value: &mut Value, path: &[String], default: Option<Value>) {
    match (value, path) {
        (Value::Dict(_, dict), [key]) => {
            match default {
                Some(default) => dict.insert(key.clone(), default),
                None => dict.remove(key),
            };
        }
        (Value::Dict(_, dict), [key, rest @ ..]) => {
            if let Some(inner) = dict.get_mut(key) {
                replace(inner, rest, default);
            }
        }
        (Value::Array(_, values), [index, rest @ ..]) => {
            let inner = index.parse::<usize>().ok().and_then(|index| values.get_mut(index));
            if let Some(inner) = inner {
                replace(inner, rest, default);
            }
        }
        _ => {}
    }
}
