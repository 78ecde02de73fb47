//! A file of events: one, a list as Stripe's API prints it, an array, or values one after the other, a line each or
//! pretty-printed. Read in a stream: no more than one entry is held.
//!
//! Finds where entries begin and end, and no more; whether one is an event, its reader says. What is broken costs
//! itself only: reading goes on with the next entry, for which a new object at the start of a line counts as well.

use std::io::{self, BufRead};

/// No event is larger than this.
const ENTRY_BYTES_MAX: usize = 8 << 20;

/// Where an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Its number in the file, from 1 on.
    pub entry: u64,
    /// The line on which it begins, from 1 on.
    pub line: u64,
}

/// One entry: its JSON, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub position: Position,
    /// The bytes of an object, as they stand in the file.
    pub json: Result<Vec<u8>, &'static str>,
}

/// A file of events that is being read.
#[derive(Debug)]
pub struct EventsFile<R> {
    input: R,
    place: Place,
    line: u64,
    at_line_start: bool,
    entries: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between values.
    Top,
    /// Between the elements of an array.
    Array,
    /// Between the elements of the array `data` of a list object.
    Data,
}

impl<R: BufRead> EventsFile<R> {
    /// Starts at the beginning of `input`.
    pub fn new(input: R) -> Self {
        Self { input, place: Place::Top, line: 1, at_line_start: true, entries: 0, bytes: 0 }
    }

    /// How many bytes have been read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// Those of the input.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let Some(byte) = self.peek()? else {
                if self.place == Place::Top {
                    return Ok(None);
                }
                self.place = Place::Top;
                return Ok(Some(self.broken(self.line, "the list does not end")));
            };
            match (byte, self.place) {
                (b' ' | b'\t' | b'\r' | b'\n', _) | (b',', Place::Array | Place::Data) => self.take(byte),
                (b'{', _) => {
                    if let Some(entry) = self.object()? {
                        return Ok(Some(entry));
                    }
                }
                (b'[', Place::Top) => {
                    self.take(byte);
                    self.place = Place::Array;
                }
                (b']', Place::Array) => {
                    self.take(byte);
                    self.place = Place::Top;
                }
                (b']', Place::Data) => {
                    self.take(byte);
                    self.skip_rest_of_list()?;
                    self.place = Place::Top;
                }
                (0xef | 0xbb | 0xbf, Place::Top) if self.entries == 0 && self.bytes < 3 => self.take(byte),
                _ => return self.junk().map(Some),
            }
        }
    }

    /// Reads an object. `None`: it is a list, and reading goes on within.
    fn object(&mut self) -> io::Result<Option<Entry>> {
        let line = self.line;
        let mut object = Object::default();
        loop {
            let Some(byte) = self.peek()? else {
                return Ok(Some(self.broken(line, "the file ends in the middle of it")));
            };
            if self.at_line_start && byte == b'{' && object.is_closed_to_objects() {
                return Ok(Some(self.broken(line, "it does not end before another one begins")));
            }
            if byte == b'\n' && object.in_string {
                return Ok(Some(self.broken(line, "a text in it does not end")));
            }
            self.take(byte);
            match object.push(byte) {
                Step::Within => {}
                Step::List if self.place == Place::Top => {
                    self.place = Place::Data;
                    return Ok(None);
                }
                Step::List => {}
                Step::Ended if object.bytes.len() > ENTRY_BYTES_MAX => {
                    return Ok(Some(self.broken(line, "it is larger than 8 MiB")));
                }
                Step::Ended => {
                    self.entries += 1;
                    let position = Position { entry: self.entries, line };
                    return Ok(Some(Entry { position, json: Ok(object.bytes) }));
                }
            }
        }
    }

    /// What is no object, up to the end of its line or, in a list, to the next object.
    fn junk(&mut self) -> io::Result<Entry> {
        let line = self.line;
        while let Some(byte) = self.peek()? {
            let ends = if self.place == Place::Top { byte == b'\n' } else { matches!(byte, b'{' | b']') };
            if ends {
                break;
            }
            self.take(byte);
        }
        Ok(self.broken(line, "it is no JSON object"))
    }

    /// What a list says after its data.
    fn skip_rest_of_list(&mut self) -> io::Result<()> {
        let mut rest = Object::default();
        rest.push(b'{');
        while let Some(byte) = self.peek()? {
            self.take(byte);
            if rest.push(byte) == Step::Ended {
                break;
            }
            rest.bytes.clear();
        }
        Ok(())
    }

    fn broken(&mut self, line: u64, problem: &'static str) -> Entry {
        self.entries += 1;
        Entry { position: Position { entry: self.entries, line }, json: Err(problem) }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    fn take(&mut self, byte: u8) {
        self.input.consume(1);
        self.bytes += 1;
        self.at_line_start = byte == b'\n';
        self.line += u64::from(self.at_line_start);
    }
}

/// An object as far as it was read.
#[derive(Debug, Default)]
struct Object {
    bytes: Vec<u8>,
    /// The open braces and brackets.
    open: Vec<u8>,
    in_string: bool,
    is_escaped: bool,
    string_start: usize,
    /// The last byte outside of texts that is no white space.
    last: u8,
    /// The last text at the top of the object is `data`.
    is_data: bool,
    /// The value of `data` comes next.
    data_comes: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The object goes on.
    Within,
    /// The array `data` begins.
    List,
    /// The object has ended.
    Ended,
}

impl Object {
    fn push(&mut self, byte: u8) -> Step {
        let at = self.bytes.len();
        // One byte more than fits tells that it does not.
        if at <= ENTRY_BYTES_MAX {
            self.bytes.push(byte);
        }
        if self.in_string {
            self.push_text(byte);
            return Step::Within;
        }
        if byte.is_ascii_whitespace() {
            return Step::Within;
        }
        let data_comes = std::mem::take(&mut self.data_comes);
        self.last = byte;
        match byte {
            b'"' => {
                self.in_string = true;
                self.string_start = at;
            }
            b'[' if data_comes => return Step::List,
            b'{' | b'[' => self.open.push(byte),
            b'}' | b']' => {
                self.open.pop();
                if self.open.is_empty() {
                    return Step::Ended;
                }
            }
            b':' => self.data_comes = self.open.len() == 1 && self.is_data,
            _ => {}
        }
        Step::Within
    }

    fn push_text(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => {
                self.in_string = false;
                self.is_data = self.open.len() == 1 && self.bytes.get(self.string_start..) == Some(b"\"data\"");
            }
            _ => {}
        }
    }

    /// Whether an object that comes now is the beginning of another entry, because none may stand here.
    fn is_closed_to_objects(&self) -> bool {
        let in_array = self.open.last() == Some(&b'[');
        let takes_one = self.last == b':' || (in_array && matches!(self.last, b'[' | b','));
        !(self.open.is_empty() || self.in_string || takes_one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of a file in one line each: position, and the JSON or the problem.
    fn read(text: &str) -> Vec<String> {
        let mut file = EventsFile::new(text.as_bytes());
        let mut read = Vec::new();
        while let Some(Entry { position, json }) = file.next_entry().expect("a file in memory") {
            let json = match &json {
                Ok(json) => String::from_utf8_lossy(json).split_whitespace().collect(),
                Err(problem) => format!("? {problem}"),
            };
            read.push(format!("{}@{} {json}", position.entry, position.line));
        }
        read
    }

    #[test]
    fn every_form_of_file_gives_its_entries() {
        let two = [r#"1@1 {"id":1}"#, r#"2@1 {"id":2}"#].map(str::to_owned);
        for (name, text) in [
            ("array", r#"[{"id":1},{"id":2}]"#),
            ("list", r#"{"object":"list","data":[{"id":1},{"id":2}],"has_more":false,"more":{"data":[{}]}}"#),
            ("list, data last", r#"{"has_more":true,"url":"/v1/\"data\":[","data":[{"id":1},{"id":2}]}"#),
            ("values", r#"{"id":1} {"id":2}"#),
            ("two lists", r#"[{"id":1}]{"data" : [ {"id":2} ]}"#),
            ("byte order mark", "\u{feff}[{\"id\":1},{\"id\":2}]"),
        ] {
            assert_eq!(read(text), two, "{name}");
        }
        assert_eq!(read("{\"id\":1}\n\n{\"id\":2}\r\n"), [r#"1@1 {"id":1}"#, r#"2@3 {"id":2}"#]);
        let event = "{\n\"data\":\n{\n\"object\": {\"data\": [{}, [{}]]}},\n\"id\": 1\n}\n";
        let flat = r#"{"data":{"object":{"data":[{},[{}]]}},"id":1}"#;
        assert_eq!(read(&event.repeat(2)), [format!("1@1 {flat}"), format!("2@7 {flat}")], "pretty-printed");
        assert_eq!(read(r#"{"text":"a } \" ] { b"}"#).len(), 1);
        for empty in ["", " \n", "[]", r#"{"data":[]}"#] {
            assert_eq!(read(empty), [""; 0], "{empty:?}");
        }
    }

    #[test]
    fn what_is_broken_costs_itself_only() {
        for (name, text, expected) in [
            (
                "cut line",
                "{\"id\":1,\n{\"id\":2}\n",
                vec!["1@1 ? it does not end before another one begins", r#"2@2 {"id":2}"#],
            ),
            ("cut text", "{\"id\":\"1\n{\"id\":2}\n", vec!["1@1 ? a text in it does not end", r#"2@2 {"id":2}"#]),
            (
                "junk",
                "hello, world\n{\"id\":2}\n]\n",
                vec!["1@1 ? it is no JSON object", r#"2@2 {"id":2}"#, "3@3 ? it is no JSON object"],
            ),
            ("junk in a list", r#"[null, 7, {"id":2}]"#, vec!["1@1 ? it is no JSON object", r#"2@1 {"id":2}"#]),
            ("cut file", r#"{"id":1}{"id""#, vec![r#"1@1 {"id":1}"#, "2@1 ? the file ends in the middle of it"]),
            ("cut list", r#"{"data":[{"id":1}"#, vec![r#"1@1 {"id":1}"#, "2@1 ? the list does not end"]),
            (
                "cut in a list",
                "[\n{\"a\":{\"id\":1},\n{\"id\":2}\n]",
                vec!["1@2 ? it does not end before another one begins", r#"2@3 {"id":2}"#],
            ),
        ] {
            assert_eq!(read(text), expected, "{name}");
        }
        let large = format!("{{\"id\":\"{}\"}}\n{{\"id\":2}}", "x".repeat(ENTRY_BYTES_MAX));
        assert_eq!(read(&large), ["1@1 ? it is larger than 8 MiB", r#"2@2 {"id":2}"#]);
    }
}
