//! The three layers of the configuration: defaults, file, environment.
//!
//! Each is compared with the known keys before they are merged, while it is still known who said what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::problem::{ConfigError, Problem, Source, nearest};
use super::shape::{Inspection, Shape, switched_on};

/// The documentation of every key, which is also the layer of defaults.
pub(super) const DOCUMENTATION: &str = include_str!("../../config/billingd.toml");

/// What starts the name of an environment variable that sets a key.
const PREFIX: &str = "BILLINGD__";

/// What was set, layer by layer, without what does not fit.
pub(super) struct Layers {
    defaults: Dict,
    file: Option<(PathBuf, Dict)>,
    environment: Dict,
    /// Key to variable.
    variables: BTreeMap<String, String>,
}

struct Layer<'a>(&'static str, &'a Dict);

impl Provider for Layer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.1.clone()))
    }
}

impl Layers {
    /// Reads all layers and lists what is unknown or of the wrong type in them.
    pub(super) fn read(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<(Self, Vec<Problem>), ConfigError> {
        let documented = parse(&switched_on(DOCUMENTATION), &Source::Defaults)?;
        let root = Shape::of_table(&documented, "");
        let mut layers = Self {
            defaults: parse(DOCUMENTATION, &Source::Defaults)?,
            file: None,
            environment: Dict::new(),
            variables: BTreeMap::new(),
        };
        let mut problems = Vec::new();
        if let Some(path) = file {
            problems.extend(layers.add_file(path, &root)?);
        }
        let mut variables: Vec<_> = env.filter(|(name, _)| name.starts_with(PREFIX)).collect();
        variables.sort();
        for (name, text) in variables {
            problems.extend(layers.add_variable(name, &text, &root));
        }
        Ok((layers, problems))
    }

    /// The layers, the later ones over the earlier ones.
    pub(super) fn merged(&self) -> Figment {
        let figment = Figment::new().merge(Layer("defaults", &self.defaults));
        let figment = match &self.file {
            Some((_, dict)) => figment.merge(Layer("file", dict)),
            None => figment,
        };
        figment.merge(Layer("environment", &self.environment))
    }

    /// The default of a key, if it has one.
    pub(super) fn default_of(&self, path: &str) -> Option<Value> {
        lookup(&self.defaults, path).cloned()
    }

    /// Who set a key, or the list that it stands in.
    pub(super) fn source_of(&self, key: &str) -> Source {
        let stem = key.split('[').next().unwrap_or(key);
        if let Some(name) = self.variables.get(stem) {
            return Source::Environment(name.clone());
        }
        match &self.file {
            Some((path, dict)) if lookup(dict, stem).is_some() => Source::File(path.clone()),
            _ => Source::Defaults,
        }
    }

    fn add_file(&mut self, path: &Path, root: &Shape) -> Result<Vec<Problem>, ConfigError> {
        let source = Source::File(path.to_owned());
        let text =
            std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        let mut dict = parse(&text, &source)?;
        let problems = inspect(root, &mut dict, &source);
        self.file = Some((path.to_owned(), dict));
        Ok(problems)
    }

    fn add_variable(&mut self, name: String, text: &str, root: &Shape) -> Vec<Problem> {
        let source = Source::Environment(name.clone());
        let keys = root.keys();
        let Some((path, shape)) = keys.iter().find(|(path, _)| variable(path) == name) else {
            return vec![unknown_variable(&name, &keys).at(source)];
        };
        let Some(value) = value_of(shape, text) else {
            let message = format!("the text does not fit; write {}", expected(shape));
            return vec![Problem::new(path, message).at(source)];
        };
        let mut dict = Dict::new();
        insert(&mut dict, path, value);
        let problems = inspect(root, &mut dict, &source);
        if let Some(value) = lookup(&dict, path) {
            insert(&mut self.environment, path, value.clone());
        }
        self.variables.insert(path.clone(), name);
        problems
    }
}

fn inspect(root: &Shape, dict: &mut Dict, source: &Source) -> Vec<Problem> {
    let mut inspection = Inspection { root, problems: Vec::new() };
    if let Shape::Table(fields) = root {
        inspection.table(fields, dict, "");
    }
    inspection.problems.into_iter().map(|problem| problem.at(source.clone())).collect()
}

fn parse(text: &str, origin: &Source) -> Result<Dict, ConfigError> {
    Toml::from_str(text)
        .map_err(|error| ConfigError::Syntax { origin: origin.clone(), message: without_text(&error.to_string()) })
}

/// The parser's message without the lines that show the text, for it may hold a secret.
fn without_text(message: &str) -> String {
    let shows_text =
        |line: &str| line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|');
    let lines: Vec<&str> = message.lines().filter(|line| !shows_text(line)).map(str::trim).collect();
    lines.join("; ")
}

/// The variable that sets a key.
fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "__").to_uppercase())
}

fn unknown_variable(name: &str, keys: &[(String, &Shape)]) -> Problem {
    let names: Vec<String> = keys.iter().map(|(path, _)| variable(path)).collect();
    let key = name.trim_start_matches(PREFIX).replace("__", ".").to_lowercase();
    let message = match nearest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("{name} is no key; did you mean {meant}?"),
        None => format!("{name} is no key; unset it, or name a key as {PREFIX}SECTION__KEY"),
    };
    Problem::new(key, message)
}

/// Reads the text of a variable as the type of its key.
fn value_of(shape: &Shape, text: &str) -> Option<Value> {
    let word = text.trim();
    match shape {
        Shape::Text(_) => Some(Value::from(text)),
        Shape::Secret if !word.starts_with('{') => Some(Value::from(text)),
        Shape::Flag => word.parse::<bool>().ok().map(Value::from),
        Shape::Whole => word.parse::<i64>().ok().map(Value::from),
        Shape::Fraction => word.parse::<f64>().ok().map(Value::from),
        Shape::Secret | Shape::List(_) | Shape::Table(_) => {
            let mut dict: Dict = Toml::from_str(&format!("value = {word}")).ok()?;
            if dict.len() == 1 { dict.remove("value") } else { None }
        }
    }
}

fn expected(shape: &Shape) -> String {
    match shape {
        Shape::List(_) => "a list as in TOML, such as [\"first\", \"second\"]".to_owned(),
        _ => shape.expected(),
    }
}

fn insert(dict: &mut Dict, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        dict.insert(path.to_owned(), value);
        return;
    };
    let inner = dict.entry(first.to_owned()).or_insert_with(|| Value::from(Dict::new()));
    if let Value::Dict(_, inner) = inner {
        insert(inner, rest, value);
    }
}

fn lookup<'a>(dict: &'a Dict, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((first, rest)) => lookup(dict.get(first)?.as_dict()?, rest),
        None => dict.get(path),
    }
}
