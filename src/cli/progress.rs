//! A line on a terminal that tells how far a long command has come. Where nobody watches, nothing is written.

use std::io::{IsTerminal as _, Write as _};

/// How wide the bar is, in characters.
const WIDTH: u64 = 30;

/// The progress of one command. The line goes away when this is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    what: &'static str,
    /// `None`: nobody knows.
    total: Option<u64>,
    shown: Option<String>,
    is_watched: bool,
}

impl Progress {
    /// Nothing is done yet of `total` things, such as `events`.
    pub(super) fn new(what: &'static str, total: Option<u64>) -> Self {
        Self { what, total, shown: None, is_watched: std::io::stderr().is_terminal() }
    }

    /// So many are done.
    pub(super) fn at(&mut self, done: u64) {
        let line = line(self.what, done, self.total);
        if self.is_watched && self.shown.as_ref() != Some(&line) {
            write_over(&line);
            self.shown = Some(line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            write_over("");
        }
    }
}

/// A terminal that went away is no reason to stop.
fn write_over(line: &str) {
    let mut stderr = std::io::stderr().lock();
    drop(write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush()));
}

fn line(what: &str, done: u64, total: Option<u64>) -> String {
    let Some(total) = total.filter(|total| *total > 0) else { return format!("{done} {what}") };
    let done = done.min(total);
    let filled = usize::try_from(WIDTH.saturating_mul(done) / total).unwrap_or_default();
    let bar = format!("{:<width$}", "#".repeat(filled), width = usize::try_from(WIDTH).unwrap_or_default());
    format!("[{bar}] {done} of {total} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_how_far_it_is() {
        for (done, total, expected) in [
            (0, Some(4), "[                              ] 0 of 4 events"),
            (2, Some(4), "[###############               ] 2 of 4 events"),
            (9, Some(4), "[##############################] 4 of 4 events"),
            (7, None, "7 events"),
            (7, Some(0), "7 events"),
        ] {
            assert_eq!(line("events", done, total), expected);
        }
    }
}
