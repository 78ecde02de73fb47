//! How results are shown: tables for people, one JSON document for programs.

use std::fmt::Display;
use std::io::Write as _;

use serde::Serialize;

pub(super) use crate::domain::words::age;
pub(super) use crate::ops::words::{amount, plain, size, time};
use crate::store::found::Edge;

/// Where a command shows its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Shows `value` as JSON, or what `people` makes of it.
    pub(super) fn show<T: Serialize>(self, value: &T, people: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string_pretty(value)? } else { people(value) };
        print(&text)
    }

    /// Shows people something before the result; programs get only the result.
    pub(super) fn say(self, text: &str) -> anyhow::Result<()> {
        if self.json { Ok(()) } else { print(text) }
    }

    /// Tells, beside the result, where a search ended and how it goes on.
    #[expect(clippy::print_stderr, reason = "programs that read the result must not read this")]
    pub(super) fn edge(self, edge: Option<&Edge>) {
        if let Some(Edge { looked_back_to, before }) = edge {
            eprintln!("looked back to {}; the same with `--before {}` goes on", time(*looked_back_to), plain(before));
        }
    }

    /// Tells why a command could not do its work.
    #[expect(clippy::print_stderr, reason = "this is where commands tell their errors")]
    pub(super) fn error(self, error: &anyhow::Error) {
        if self.json {
            eprintln!("{}", serde_json::json!({ "error": format!("{error:#}") }));
        } else {
            eprintln!("billingd: {error:#}");
        }
    }
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') || text.is_empty() { Ok(()) } else { stdout.write_all(b"\n") })
    {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A table with aligned columns; numbers stand to the right.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with these column heads; a head that starts with `>` makes its column stand to the right.
    pub(super) fn new(heads: &[&str]) -> Self {
        let right = heads.iter().map(|head| head.starts_with('>')).collect();
        let heads = heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![heads], right }
    }

    pub(super) fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().map(|cell| plain(&cell.to_string())).collect());
    }

    /// The lines of the table, or `otherwise` if it has no rows.
    pub(super) fn render(&self, otherwise: &str) -> String {
        if self.rows.len() == 1 {
            return format!("{otherwise}\n");
        }
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .zip(&self.right)
                .map(
                    |((cell, width), right)| if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") },
                )
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A text, or a dash.
pub(super) fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}
