//! Numbers and times in words, for texts that people read.

use std::fmt::Display;

/// How many of something: `1 event`, `2 events`.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// How long something has lasted, in seconds, by its two largest units.
#[must_use]
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

/// A text from outside within a sentence of ours: without backquotes, between which such a sentence has its commands.
#[must_use]
pub fn quoted(text: &str) -> String {
    text.replace('`', "'")
}

/// How long ago that was, in seconds.
#[must_use]
pub fn ago(seconds: i64) -> String {
    if seconds < 1 { "just now".to_owned() } else { format!("{} ago", age(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_never_looks_like_a_command() {
        assert_eq!(quoted("a`rm -rf /`b"), "a'rm -rf /'b");
    }

    #[test]
    fn numbers_and_times_read_well() {
        for (count, words) in [(0, "0 events"), (1, "1 event"), (2, "2 events")] {
            assert_eq!(counted(count, "event"), words);
        }
        for (seconds, words) in [
            (-5, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_599, "59m"),
            (3_600, "1h 0m"),
            (86_399, "23h 59m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(age(seconds), words);
        }
        assert_eq!((ago(0), ago(60)), ("just now".to_owned(), "1m ago".to_owned()));
    }
}
