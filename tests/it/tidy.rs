//! What the code must not contain, so that the map in `lib.rs` stays true.

use std::fs;
use std::path::{Path, PathBuf};

/// Each layer, and the layers that it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    (
        "cli",
        &[
            "app", "http", "jobs", "ops", "store", "stripe", "ecb", "notify", "domain", "config", "clock", "stop",
            "log", "outgoing", "samples",
        ],
    ),
    ("app", &["http", "jobs", "ops", "store", "stripe", "notify", "domain", "config", "clock", "stop"]),
    ("http", &["ops", "store", "stripe", "domain", "config", "clock", "stop"]),
    ("jobs", &["ops", "store", "stripe", "ecb", "notify", "domain", "config", "clock", "stop"]),
    ("ops", &["store", "stripe", "domain", "clock", "stop"]),
    ("store", &["domain", "clock", "stop"]),
    ("stripe", &["domain", "clock", "stop", "config", "outgoing"]),
    ("ecb", &["domain", "outgoing"]),
    ("notify", &["domain", "config", "outgoing"]),
    ("domain", &[]),
    ("config", &[]),
    ("clock", &[]),
    ("stop", &[]),
    ("log", &["config"]),
    ("outgoing", &[]),
    ("samples", &[]),
];

/// How a literal begins or goes on that is SQL.
const SQL: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "UPDATE ",
    "DELETE FROM ",
    "REPLACE INTO ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "CREATE TRIGGER ",
    "DROP TABLE ",
    "ALTER TABLE ",
    "PRAGMA ",
    "BEGIN IMMEDIATE",
    "SAVEPOINT ",
    "RELEASE ",
    "ROLLBACK",
    "VACUUM",
];

const LINES_MAX: usize = 600;

struct Source {
    /// Below the root of the repository, such as `src/store/open.rs`.
    name: String,
    text: String,
    /// The text without comments.
    code: String,
    /// What stands in string literals.
    literals: Vec<String>,
}

impl Source {
    /// `cli` for `src/cli.rs` and everything in `src/cli/`.
    fn layer(&self) -> &str {
        let below = self.name.strip_prefix("src/").unwrap_or(&self.name);
        below.split(['/', '.']).next().unwrap_or(below)
    }

    fn is_test(&self) -> bool {
        self.name.starts_with("tests/") || self.name.ends_with("/tests.rs") || self.name.contains("/tests/")
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<Source> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.extension() {
                None if path.is_dir() => collect(&path, found),
                Some(extension) if extension == "rs" => found.push(path),
                _ => {}
            }
        }
    }
    let mut paths = Vec::new();
    collect(&root().join(folder), &mut paths);
    paths.sort();
    assert!(paths.len() > 5, "the sources are not where this test looks");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source");
        let (code, literals) = take_apart(&text);
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        Source { name, text, code, literals }
    };
    paths.into_iter().map(read).collect()
}

/// Code without comments and literals, and the literals. Knows as much of Rust as this crate uses.
fn take_apart(text: &str) -> (String, Vec<String>) {
    let mut code = String::new();
    let mut literals = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let hashes = rest.strip_prefix('r').map_or(0, |after| after.len() - after.trim_start_matches('#').len());
        let raw = rest.starts_with('r')
            && rest.get(1 + hashes..).is_some_and(|after| after.starts_with('"'))
            && !code.ends_with(|before: char| before.is_alphanumeric() || before == '_');
        if rest.starts_with("//") {
            rest = rest.find('\n').and_then(|end| rest.get(end..)).unwrap_or_default();
        } else if raw {
            let closing = format!("\"{}", "#".repeat(hashes));
            let body = &rest[hashes + 2..];
            let end = body.find(&closing).unwrap_or(body.len());
            literals.push(body[..end].to_owned());
            rest = body.get(end + closing.len()..).unwrap_or_default();
        } else if let Some(body) = rest.strip_prefix('"') {
            let mut escaped = false;
            let ends = |letter: char| {
                let ends = letter == '"' && !escaped;
                escaped = letter == '\\' && !escaped;
                ends
            };
            let end = body.find(ends).unwrap_or(body.len());
            literals.push(body[..end].to_owned());
            rest = body.get(end + 1..).unwrap_or_default();
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            let end = rest[2..].find('\'').map_or(rest.len(), |end| end + 3);
            rest = &rest[end..];
        } else {
            code.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    (code, literals)
}

/// The words that follow `start` in a text.
fn words_after<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let word = |rest: &'a str| rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
    text.match_indices(start).filter_map(|(at, _)| word(&text[at + start.len()..])).collect()
}

#[test]
fn each_layer_uses_only_those_below_it() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        if source.name == "src/lib.rs" {
            continue;
        }
        let layer = LAYERS.iter().find(|(name, _)| *name == source.layer());
        let (name, allowed) = layer.unwrap_or_else(|| panic!("{} is in no layer; give it one in LAYERS", source.name));
        let used = words_after(&source.code, "crate::").into_iter().chain(words_after(&source.code, "billingd::"));
        // A list of modules in braces is not used in this crate.
        wrong.extend(
            used.filter(|used| used != name && !allowed.contains(used))
                .map(|used| format!("{} uses {used}", source.name)),
        );
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_map_names_every_module() {
    let map = fs::read_to_string(root().join("src/lib.rs")).expect("the map");
    let (introduction, modules) = map.split_once("\npub mod ").expect("modules");
    let modules = format!("pub mod {modules}");
    for module in words_after(&modules, "pub mod ") {
        assert!(introduction.contains(&format!("[`{module}`]")), "{module} is not on the map in lib.rs");
        assert!(LAYERS.iter().any(|(name, _)| *name == module), "{module} is in no layer");
    }
}

#[test]
fn sql_lives_in_the_store() {
    let mut wrong = Vec::new();
    for source in sources("src").iter().filter(|source| source.layer() != "store" && !source.is_test()) {
        for literal in &source.literals {
            // The words of people do not shout.
            if SQL.iter().any(|word| literal.trim_start().starts_with(word) || literal.contains(&format!(" {word}"))) {
                wrong.push(format!("{}: {literal}", source.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_rules_are_pure() {
    let banned = [
        "serde",
        "async ",
        ".await",
        "rusqlite",
        "tokio",
        "actix",
        "std::fs",
        "std::net",
        "std::time",
        "std::env",
        "jiff",
        "tracing",
        "f64",
        "f32",
    ];
    for source in sources("src").iter().filter(|source| source.layer() == "domain") {
        for word in banned {
            assert!(!source.code.contains(word), "{} has {word}", source.name);
        }
    }
}

#[test]
fn only_the_clock_reads_the_time_of_day() {
    for source in sources("src").iter().filter(|source| source.name != "src/clock.rs") {
        for word in ["SystemTime::now", "Timestamp::now", "Zoned::now"] {
            assert!(!source.code.contains(word), "{} has {word}", source.name);
        }
    }
}

#[test]
fn samples_need_nothing_of_ours() {
    for source in sources("src").iter().filter(|source| source.layer() == "samples") {
        for line in source.code.lines().filter_map(|line| line.trim_start().strip_prefix("use ")) {
            let known = ["std::", "serde::", "serde_json::", "super::"];
            assert!(known.iter().any(|known| line.starts_with(known)), "{} uses {line}", source.name);
        }
    }
}

#[test]
fn nothing_is_left_for_later_and_no_file_grows_too_long() {
    let marks = ["TO", "FIX", "XX"].map(|mark| {
        mark.to_owned()
            + if mark == "TO" {
                "DO"
            } else if mark == "FIX" {
                "ME"
            } else {
                "X"
            }
    });
    for source in sources("src").into_iter().chain(sources("tests")) {
        for mark in &marks {
            assert!(!source.text.contains(mark.as_str()), "{} has {mark}", source.name);
        }
        let lines = source.text.lines().count();
        assert!(source.is_test() || lines <= LINES_MAX, "{} has {lines} lines; split it", source.name);
    }
}

#[test]
fn the_scanner_knows_code_from_literals() {
    let (code, literals) =
        take_apart("let a = \"x \\\" y\"; // \"no\"\nlet b = r#\"raw \" z\"#; let c = '\"'; let d = \"é\";");
    assert_eq!(literals, ["x \\\" y", "raw \" z", "é"]);
    assert_eq!(code, "let a = ; \nlet b = ; let c = ; let d = ;");
}
