//! The text format in which Prometheus is told numbers, version 0.0.4.
//!
//! Own code, since it is so little of it: integers only, no registry, and values that are read when they are asked for.

use std::fmt::{Display, Write as _};

/// Its content type.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of number a family holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A text that grows by one family after the other.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// A family with one number.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        self.sample(name, None, value);
    }

    /// A family with a number for each value of one label.
    pub(super) fn labelled<L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) {
        self.begin(name, kind, help);
        for (value_of_label, value) in values {
            self.sample(name, Some((label, value_of_label.as_ref())), value);
        }
    }

    /// A histogram of seconds; bounds and sum in microseconds, `up_to` has one more for all.
    pub(super) fn histogram(&mut self, name: &str, help: &str, bounds_us: &[u64], up_to: &[u64], sum_us: u64) {
        self.begin(name, Kind::Histogram, help);
        let bucket = format!("{name}_bucket");
        let bounds = bounds_us.iter().map(|bound| seconds(*bound)).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(up_to) {
            self.sample(&bucket, Some(("le", &bound)), count);
        }
        self.sample(&format!("{name}_sum"), None, seconds(sum_us));
        self.sample(&format!("{name}_count"), None, up_to.last().copied().unwrap_or_default());
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a text cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, label: Option<(&str, &str)>, value: impl Display) {
        let _ = match label {
            Some((label, of)) => writeln!(self.0, "{name}{{{label}=\"{}\"}} {value}", escaped(of)),
            None => writeln!(self.0, "{name} {value}"),
        };
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Microseconds as seconds, such as `0.0025`.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_prometheus_reads_it() {
        let mut text = Exposition::default();
        text.single("a_bytes", Kind::Gauge, "How large.", 5);
        text.labelled("b_total", Kind::Counter, "How many.", "of", [("x", 1), ("a\"b\\c\nd", 2)]);
        text.labelled("c_total", Kind::Counter, "None.", "of", [] as [(&str, u64); 0]);
        text.histogram("d_seconds", "How long.", &[500, 1_000_000], &[1, 3, 4], 2_500_000);
        let expected = "# HELP a_bytes How large.\n# TYPE a_bytes gauge\na_bytes 5\n\
                        # HELP b_total How many.\n# TYPE b_total counter\n\
                        b_total{of=\"x\"} 1\nb_total{of=\"a\\\"b\\\\c\\nd\"} 2\n\
                        # HELP c_total None.\n# TYPE c_total counter\n\
                        # HELP d_seconds How long.\n# TYPE d_seconds histogram\n\
                        d_seconds_bucket{le=\"0.0005\"} 1\nd_seconds_bucket{le=\"1\"} 3\nd_seconds_bucket{le=\"+Inf\"} 4\n\
                        d_seconds_sum 2.5\nd_seconds_count 4\n";
        assert_eq!(text.into_text(), expected);
    }

    #[test]
    fn microseconds_are_seconds() {
        for (us, text) in [(0, "0"), (1, "0.000001"), (10, "0.00001"), (1_000_000, "1"), (10_500_000, "10.5")] {
            assert_eq!(seconds(us), text);
        }
    }
}
