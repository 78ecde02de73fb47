//! What pages are made of: links, texts from outside, times, tables, fields.

use maud::{Markup, html};

use crate::domain::event::UnixSeconds;
use crate::domain::words::age;
use crate::ops::words::{plain, time};
use crate::store::found::Edge;

/// So many rows stand on a page; the next ones are a link away.
pub(super) const ROWS: i64 = 50;

/// So many characters of a text stand in a table.
const TEXT_CHARS_MAX: usize = 240;

/// So many of a sentence, whose end may say what to do.
const SENTENCE_CHARS_MAX: usize = 2_000;

/// A word of more characters may be broken, so that it does not push others off the page.
const WORD_CHARS_MAX: usize = 20;

/// A path whose parts may hold anything: each becomes one segment.
pub(super) fn path(parts: &[&str]) -> String {
    parts.iter().flat_map(|part| ["/".to_owned(), encoded(part)]).collect()
}

/// A path with a query of those pairs whose value is not empty.
pub(super) fn query(path: &str, pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

fn encoded(text: &str) -> String {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|byte| if is_safe(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A text from outside: shortened, without control characters, and in its own direction of writing.
pub(super) fn text(value: &str) -> Markup {
    shortened(value, TEXT_CHARS_MAX)
}

/// A longer text from outside, which has a line of its own.
pub(super) fn passage(value: &str) -> Markup {
    shortened(value, SENTENCE_CHARS_MAX)
}

fn shortened(value: &str, chars_max: usize) -> Markup {
    let left_out = value.chars().count().saturating_sub(chars_max);
    let shown: String = plain(value).chars().take(chars_max).map(visible).collect();
    let breaks = shown.split_whitespace().any(|word| word.chars().count() > WORD_CHARS_MAX);
    html! {
        bdi class=[breaks.then_some("long")] { (shown) }
        @if left_out > 0 { "… " span.faint { "(" (left_out) " more characters)" } }
    }
}

/// Characters that change the order of those around them, or have no width, would let one text look like another.
fn visible(one: char) -> char {
    match one {
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => '\u{fffd}',
        one => one,
    }
}

/// A command to copy: never shortened, for half of it would be another one.
pub(super) fn command(value: &str) -> Markup {
    let shown: String = plain(value).chars().map(visible).collect();
    html! {
        code {
            @for word in shown.split_inclusive(' ') {
                // A line may end between two hyphens, and then it reads as another option.
                @if word.starts_with("--") { span.whole { (word) } } @else { (word) }
            }
        }
    }
}

/// An id or a path: to be read letter by letter.
pub(super) fn code(value: &str) -> Markup {
    html! { code { (text(value)) } }
}

/// As much of a text from outside as of a sentence.
pub(super) fn told(value: &str) -> Markup {
    shortened(value, SENTENCE_CHARS_MAX)
}

/// Our own sentence, whose commands stand between backquotes. What it quotes from outside has none of them (`quoted`).
pub(super) fn sentence(value: &str) -> Markup {
    html! {
        @for (index, part) in value.split('`').enumerate() {
            @if index % 2 == 1 { (command(part)) } @else { (told(part)) }
        }
    }
}

/// A text or a dash, which is read out as nothing.
pub(super) fn or_dash(value: Option<&str>) -> Markup {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => text(value),
        None => nothing(),
    }
}

pub(super) fn nothing() -> Markup {
    html! { span.faint aria-label="none" { "–" } }
}

/// A link to an event.
pub(super) fn event(id: &str) -> Markup {
    html! { a href=(path(&["events", id])) { (code(id)) } }
}

/// A link to an account.
pub(super) fn account(id: &str) -> Markup {
    html! { a href=(path(&["accounts", id])) { (code(id)) } }
}

/// A moment, and how far away it is.
pub(super) fn moment(at: UnixSeconds, now: UnixSeconds) -> Markup {
    let shown = time(at);
    let stamp = format!("{}Z", shown.replace(' ', "T"));
    html! { time datetime=(stamp) { (shown) } " " span.ago { "(" (away(at, now)) ")" } }
}

/// A moment or a dash.
pub(super) fn moment_or_dash(at: Option<UnixSeconds>, now: UnixSeconds) -> Markup {
    at.map_or_else(nothing, |at| moment(at, now))
}

/// What stands in a field of a form, unless it is blank.
pub(super) fn given(text: &str) -> Option<String> {
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Where a search ended before it had found enough.
pub(super) fn looked_back(edge: Option<&Edge>, now: UnixSeconds) -> Markup {
    html! {
        @if let Some(edge) = edge { p.faint { "Looked back to " (moment(edge.looked_back_to, now)) "; there may be older ones." } }
    }
}

/// `3m ago`, `in 2h 5m`.
pub(super) fn away(at: UnixSeconds, now: UnixSeconds) -> String {
    if at > now { format!("in {}", age(at - now)) } else { format!("{} ago", age(now - at)) }
}

/// A table that a narrow screen shows as a list of cards, without what is empty; the roles say that it still is a table.
/// A row with one cell more than there are heads has it below the others, across the whole width.
pub(super) fn table(caption: &str, heads: &[&str], rows: Vec<Vec<Markup>>, otherwise: &str) -> Markup {
    if rows.is_empty() {
        return html! { p.faint { (otherwise) } };
    }
    let none = nothing().0;
    html! {
        table role="table" aria-label=(caption) {
            thead role="rowgroup" {
                tr role="row" {
                    @for head in heads { th role="columnheader" scope="col" { (head) } }
                }
            }
            tbody role="rowgroup" {
                @for row in &rows {
                    tr role="row" {
                        @for (cell, head) in row.iter().zip(heads) {
                            td role="cell" class=[(cell.0 == none).then_some("none")] data-head=(head) { div { (cell) } }
                        }
                    }
                    @if let Some(below) = row.get(heads.len()) {
                        tr.below role="row" { td role="cell" colspan=(heads.len()) { div { (below) } } }
                    }
                }
            }
        }
    }
}

/// What belongs together by name and value, those without a value left out.
pub(super) fn facts(pairs: Vec<(&str, Option<Markup>)>) -> Markup {
    html! {
        dl {
            @for (name, value) in &pairs {
                @if let Some(value) = value { div { dt { (name) } dd { (value) } } }
            }
        }
    }
}

/// A field for one line of text.
pub(super) struct Field<'a> {
    /// Its name in the form, and its id on the page.
    pub(super) name: &'a str,
    pub(super) label: &'a str,
    pub(super) value: &'a str,
    /// It may not stay empty.
    pub(super) required: bool,
}

impl Field<'_> {
    pub(super) fn render(&self) -> Markup {
        html! {
            label {
                span { (self.label) }
                input type="text" name=(self.name) value=(self.value) required[self.required] maxlength="500"
                    autocomplete="off" autocapitalize="off" spellcheck="false";
            }
        }
    }
}

/// A field with a choice; its first word may be empty for any.
pub(super) fn choice(name: &str, label: &str, chosen: &str, options: &[(&str, &str)]) -> Markup {
    html! {
        label {
            span { (label) }
            select name=(name) {
                @for (value, words) in options {
                    option value=(value) selected[*value == chosen] { (words) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_is_one_segment_of_a_path() {
        for (id, expected) in [
            ("evt_1", "/events/evt_1"),
            ("a/b?c#d%e f", "/events/a%2Fb%3Fc%23d%25e%20f"),
            ("\"><b>", "/events/%22%3E%3Cb%3E"),
            ("é", "/events/%C3%A9"),
        ] {
            assert_eq!(path(&["events", id]), expected);
        }
        assert_eq!(
            query("/events", &[("status", "failed"), ("type", ""), ("account", "a&b")]),
            "/events?status=failed&account=a%26b"
        );
        assert_eq!(query("/events", &[("status", "")]), "/events");
    }

    #[test]
    fn texts_from_outside_are_text() {
        for (value, expected) in [
            ("<script>x()</script>", "<bdi>&lt;script&gt;x()&lt;/script&gt;</bdi>"),
            ("a\u{1b}[2J\nb", "<bdi>a\u{fffd}[2J\u{fffd}b</bdi>"),
            ("\u{202e}gpj.exe", "<bdi>\u{fffd}gpj.exe</bdi>"),
        ] {
            assert_eq!(text(value).into_string(), expected);
        }
        let long = text(&"x".repeat(1_000)).into_string();
        assert!(long.contains("(760 more characters)") && long.len() < 400, "{long}");
        assert_eq!(
            event("\"/<x>").into_string(),
            "<a href=\"/events/%22%2F%3Cx%3E\"><code><bdi>&quot;/&lt;x&gt;</bdi></code></a>"
        );
    }

    #[test]
    fn a_sentence_shows_its_commands() {
        assert_eq!(
            sentence("look: `billingd doctor`").into_string(),
            "<bdi>look: </bdi><code>billingd doctor</code><bdi></bdi>"
        );
    }

    #[test]
    fn no_line_of_a_command_ends_within_an_option() {
        assert_eq!(
            command("billingd x --reason <TEXT>").into_string(),
            "<code>billingd x <span class=\"whole\">--reason </span>&lt;TEXT&gt;</code>"
        );
    }

    #[test]
    fn a_moment_has_its_age() {
        let shown = moment(1_790_000_000, 1_790_000_180).into_string();
        assert_eq!(
            shown,
            "<time datetime=\"2026-09-21T14:13:20Z\">2026-09-21 14:13:20</time> <span class=\"ago\">(3m ago)</span>"
        );
        assert_eq!(away(1_790_003_660, 1_790_000_000), "in 1h 1m");
    }

    #[test]
    fn a_table_says_which_head_each_cell_has() {
        let shown = table("Events", &["A"], vec![vec![text("1")]], "none").into_string();
        assert!(shown.contains("<td role=\"cell\" data-head=\"A\"><div><bdi>1</bdi></div></td>"), "{shown}");
        let shown = table("Audit", &["A", "B"], vec![vec![nothing(), text("1"), text("2")]], "none").into_string();
        assert!(shown.contains("class=\"none\" data-head=\"A\"") && shown.contains("data-head=\"B\"><div>"), "{shown}");
        assert!(
            shown.contains("<tr class=\"below\" role=\"row\"><td role=\"cell\" colspan=\"2\"><div><bdi>2</bdi>"),
            "{shown}"
        );
        assert_eq!(table("Events", &["A"], Vec::new(), "none").into_string(), "<p class=\"faint\">none</p>");
    }
}
