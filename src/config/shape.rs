//! Which keys exist and what each of them holds, read from `config/billingd.toml` itself.
//!
//! The documentation is the schema: a line that begins with `#` and no space is a key that exists but is switched
//! off. So a key cannot be known and undocumented, or documented and unknown.

use std::collections::BTreeMap;

use figment::value::{Dict, Num, Value};

use super::problem::{Problem, nearest};

/// Keys of text that may also come from any source of a secret.
const CALLED_URLS: [&str; 4] = ["stripe.api_base", "fx.url", "alerts.webhook_url", "alerts.heartbeat_url"];

const SECRET_KEYS: [&str; 3] = ["env", "file", "credential"];

/// What a key holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Flag,
    Whole,
    Fraction,
    /// With the documented example.
    Text(String),
    Secret,
    List(Box<Self>),
    Table(BTreeMap<String, Self>),
}

/// The documentation with everything switched on that is switched off in it.
pub(super) fn switched_on(documentation: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()) => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    documentation.lines().map(line).collect()
}

impl Shape {
    /// The shape of a documented table.
    pub(super) fn of_table(dict: &Dict, at: &str) -> Self {
        Self::Table(dict.iter().map(|(key, value)| (key.clone(), Self::of(value, &join(at, key)))).collect())
    }

    fn of(value: &Value, at: &str) -> Self {
        match value {
            Value::Bool(..) => Self::Flag,
            Value::Num(_, Num::F32(_) | Num::F64(_)) => Self::Fraction,
            Value::Num(..) => Self::Whole,
            Value::Dict(_, dict) if dict.keys().all(|key| SECRET_KEYS.contains(&key.as_str())) => Self::Secret,
            Value::Dict(_, dict) => Self::of_table(dict, at),
            Value::Array(_, values) => {
                Self::List(Box::new(values.first().map_or(Self::Text("name".to_owned()), |value| Self::of(value, at))))
            }
            _ if CALLED_URLS.contains(&at) => Self::Secret,
            _ => Self::Text(value.as_str().unwrap_or_default().to_owned()),
        }
    }

    /// The settable keys with their paths: `server.listen`, and lists of tables as a whole.
    pub(super) fn keys(&self) -> Vec<(String, &Self)> {
        let mut keys = Vec::new();
        self.collect("", &mut keys);
        keys
    }

    fn collect<'a>(&'a self, at: &str, keys: &mut Vec<(String, &'a Self)>) {
        match self {
            Self::Table(fields) => fields.iter().for_each(|(key, shape)| shape.collect(&join(at, key), keys)),
            _ => keys.push((at.to_owned(), self)),
        }
    }

    /// What a value of this shape looks like, for people.
    pub(super) fn expected(&self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Whole => "a whole number".to_owned(),
            Self::Fraction => "a number".to_owned(),
            Self::Text(example) if example.is_empty() => "text in quotes".to_owned(),
            Self::Text(example) => format!("text in quotes, such as \"{example}\""),
            Self::Secret => {
                "{ env = \"NAME\" }, { file = \"PATH\" }, { credential = \"NAME\" } or text in quotes".to_owned()
            }
            Self::List(element) if matches!(**element, Self::Table(_)) => "a list of tables".to_owned(),
            Self::List(element) => format!("a list in brackets, each element {}", element.expected()),
            Self::Table(_) => "a section with keys".to_owned(),
        }
    }
}

/// Compares what was set with what exists. Takes out what does not fit, so that the rest can still be judged.
pub(super) struct Inspection<'a> {
    pub(super) root: &'a Shape,
    pub(super) problems: Vec<Problem>,
}

impl Inspection<'_> {
    /// Inspects one table, which is found at the path `at`.
    pub(super) fn table(&mut self, fields: &BTreeMap<String, Shape>, dict: &mut Dict, at: &str) {
        let keys: Vec<String> = dict.keys().cloned().collect();
        for key in keys {
            let path = join(at, &key);
            let fits = match (fields.get(&key), dict.get_mut(&key)) {
                (Some(shape), Some(value)) => self.value(shape, value, &path),
                _ => self.unknown(fields, &key, &path),
            };
            if !fits {
                dict.remove(&key);
            }
        }
    }

    fn value(&mut self, shape: &Shape, value: &mut Value, at: &str) -> bool {
        match (shape, value) {
            (Shape::Flag, Value::Bool(..))
            | (Shape::Text(_) | Shape::Secret, Value::String(..))
            | (Shape::Fraction, Value::Num(..)) => true,
            (Shape::Whole, Value::Num(_, number)) if !matches!(number, Num::F32(_) | Num::F64(_)) => true,
            (Shape::Secret, Value::Dict(_, dict)) => self.secret(dict, at),
            (Shape::Table(fields), Value::Dict(_, dict)) => {
                self.table(fields, dict, at);
                true
            }
            (Shape::List(element), Value::Array(_, values)) => {
                let mut fits = true;
                for (index, value) in values.iter_mut().enumerate() {
                    fits &= self.value(element, value, &format!("{at}[{index}]"));
                }
                fits
            }
            (_, value) => {
                self.report(at, format!("this is {}; write {}", kind(value), shape.expected()));
                false
            }
        }
    }

    fn secret(&mut self, dict: &Dict, at: &str) -> bool {
        if let Some(key) = dict.keys().find(|key| !SECRET_KEYS.contains(&key.as_str())) {
            self.report(&join(at, key), unknown_key(nearest(key, SECRET_KEYS), &Shape::Secret.expected()));
            return false;
        }
        let fits = dict.len() == 1 && dict.values().all(|value| value.as_str().is_some());
        if !fits {
            self.report(at, format!("this is no single source of a secret; write {}", Shape::Secret.expected()));
        }
        fits
    }

    fn unknown(&mut self, fields: &BTreeMap<String, Shape>, key: &str, path: &str) -> bool {
        let near = nearest(key, fields.keys().map(String::as_str)).map(|near| join(parent(path), near));
        let elsewhere = || self.elsewhere(key);
        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
        let meant = near.or_else(elsewhere);
        self.report(path, unknown_key(meant.as_deref(), &format!("one of {}", names.join(", "))));
        false
    }

    /// The same key in another section: `livemode` in a webhook was meant for `stripe.livemode`.
    fn elsewhere(&self, key: &str) -> Option<String> {
        let suffix = format!(".{key}");
        self.root.keys().into_iter().map(|(path, _)| path).find(|path| path.ends_with(&suffix))
    }

    fn report(&mut self, at: &str, message: String) {
        self.problems.push(Problem::new(at, message));
    }
}

fn unknown_key(meant: Option<&str>, choices: &str) -> String {
    match meant {
        Some(meant) => format!("unknown key; did you mean `{meant}`?"),
        None => format!("unknown key; take it out, or write {choices}"),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(..) | Value::Char(..) => "text",
        Value::Bool(..) => "true or false",
        Value::Num(_, Num::F32(_) | Num::F64(_)) => "a fraction",
        Value::Num(..) => "a whole number",
        Value::Array(..) => "a list",
        Value::Dict(..) => "a table",
        Value::Empty(..) => "nothing",
    }
}

/// `a` and `b` to `a.b`.
pub(super) fn join(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}
