//! Reads an old credit table: CSV with a header (RFC 4180), columns in any order.

use std::fmt;

use csv::{ByteRecord, Position, ReaderBuilder, Trim};
use jiff::Timestamp;

use crate::domain::event::UnixSeconds;
use crate::domain::ids::{AccountId, EventId, ID_BYTES_MAX};

/// The unit of a row that names none.
const DEFAULT_UNIT: &str = "credits";

/// The columns, and whether a table may be without.
const COLUMNS: [(&str, bool); 6] = [
    ("account_id", false),
    ("unit", true),
    ("amount", false),
    ("source_event_id", false),
    ("source_object", true),
    ("created_at", true),
];

/// One row of an old credit table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The line of the file on which it begins; the header is on line 1.
    pub line: u64,
    /// Whose books.
    pub account: AccountId,
    /// The unit of the amount.
    pub unit: String,
    /// What it gave; negative: took.
    pub amount: i64,
    /// The event that it says it comes from.
    pub source_event: EventId,
    /// What it says it was given or taken for.
    pub source_object: Option<String>,
    /// When.
    pub created: Option<UnixSeconds>,
}

/// Why a table cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadTable {
    line: u64,
    column: Option<&'static str>,
    problem: String,
}

impl fmt::Display for BadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}; nothing is imported", self.problem)
    }
}

impl std::error::Error for BadTable {}

/// Reads all rows, or tells the first that is bad.
///
/// # Errors
/// [`BadTable`].
pub fn read(table: &[u8]) -> Result<Vec<Row>, BadTable> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(table);
    let columns = Columns::of(reader.byte_headers().map_err(|error| unreadable(table, &error))?)?;
    let mut rows = Vec::new();
    for record in reader.byte_records() {
        let record = record.map_err(|error| unreadable(table, &error))?;
        rows.push(columns.row(&record, line_of(table, record.position()))?);
    }
    Ok(rows)
}

fn unreadable(table: &[u8], error: &csv::Error) -> BadTable {
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} cells, the header has {expected_len}; is a quotation mark missing?")
        }
        _ => error.to_string(),
    };
    BadTable { line: line_of(table, error.position()), column: None, problem }
}

/// The line on which a row begins. The reader begins it where the row before has ended, with the blank lines between.
fn line_of(table: &[u8], position: Option<&Position>) -> u64 {
    let Some(position) = position else { return 1 };
    let rest = usize::try_from(position.byte()).ok().and_then(|start| table.get(start..)).unwrap_or_default();
    let blank = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).filter(|byte| **byte == b'\n');
    position.line() + blank.map(|_| 1).sum::<u64>()
}

/// Where each column stands.
struct Columns([Option<usize>; COLUMNS.len()]);

impl Columns {
    fn of(header: &ByteRecord) -> Result<Self, BadTable> {
        let bad = |problem: String| BadTable { line: 1, column: None, problem };
        let mut places = [None; COLUMNS.len()];
        for (place, name) in header.iter().enumerate() {
            let Some(column) = COLUMNS.iter().position(|(known, _)| known.as_bytes() == name) else {
                let name = String::from_utf8_lossy(name);
                return Err(bad(format!("there is no column {name:?}; there are {}", names(|_| true))));
            };
            if places[column].replace(place).is_some() {
                return Err(bad(format!("the column {} stands there twice", COLUMNS[column].0)));
            }
        }
        let missing = COLUMNS.iter().zip(places).find(|((_, optional), place)| !optional && place.is_none());
        if let Some(((name, _), _)) = missing {
            let needed = names(|optional| !optional);
            return Err(bad(format!("the column {name} is missing; the first line must name {needed}")));
        }
        Ok(Self(places))
    }

    fn row(&self, record: &ByteRecord, line: u64) -> Result<Row, BadTable> {
        let row = Cells { columns: self, record, line };
        Ok(Row {
            line,
            account: row.needed(0, |text| AccountId::parse(text).map_err(|error| error.to_string()))?,
            unit: row.given(1, |text| Ok(text.to_owned()))?.unwrap_or_else(|| DEFAULT_UNIT.into()),
            amount: row.needed(2, amount)?,
            source_event: row.needed(3, |text| EventId::parse(text).map_err(|error| error.to_string()))?,
            source_object: row.given(4, |text| Ok(text.to_owned()))?,
            created: row.given(5, time)?,
        })
    }
}

/// The cells of one row.
struct Cells<'a> {
    columns: &'a Columns,
    record: &'a ByteRecord,
    line: u64,
}

impl Cells<'_> {
    /// A cell that may be empty or missing.
    fn given<T>(&self, column: usize, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, BadTable> {
        let bad = |problem| BadTable { line: self.line, column: Some(COLUMNS[column].0), problem };
        let Some(cell) = self.columns.0[column].and_then(|place| self.record.get(place)) else { return Ok(None) };
        let text = std::str::from_utf8(cell).map_err(|_| bad("it is not UTF-8; save the table as UTF-8".into()))?;
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > ID_BYTES_MAX || text.chars().any(char::is_control) {
            let problem = "it is longer than any id, or goes over several lines; is a quotation mark missing?";
            return Err(bad(problem.into()));
        }
        read(text).map(Some).map_err(bad)
    }

    /// A cell that must be there.
    fn needed<T>(&self, column: usize, read: impl Fn(&str) -> Result<T, String>) -> Result<T, BadTable> {
        let empty = || BadTable { line: self.line, column: Some(COLUMNS[column].0), problem: "it is empty".into() };
        self.given(column, read)?.ok_or_else(empty)
    }
}

fn names(are_meant: impl Fn(bool) -> bool) -> String {
    let meant = COLUMNS.iter().filter(|(_, optional)| are_meant(*optional));
    meant.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn amount(text: &str) -> Result<i64, String> {
    // The least number has no opposite, so it could not be reversed.
    let number = text.parse().ok().filter(|number| *number != i64::MIN);
    number.ok_or_else(|| format!("{text:?} is no whole number that can be counted; write amounts as 100 or -30"))
}

fn time(text: &str) -> Result<UnixSeconds, String> {
    let seconds = text.parse().ok().filter(|seconds| Timestamp::from_second(*seconds).is_ok());
    seconds.or_else(|| text.parse::<Timestamp>().ok().map(Timestamp::as_second)).ok_or_else(|| {
        format!("{text:?} is no time; write Unix seconds as 1790000000, or RFC 3339 as 2026-09-21T15:00:00Z")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: u64, account: &str, amount: i64, source: &str) -> Row {
        Row {
            line,
            account: AccountId::parse(account).expect("an id"),
            unit: DEFAULT_UNIT.into(),
            amount,
            source_event: EventId::parse(source).expect("an id"),
            source_object: None,
            created: None,
        }
    }

    #[test]
    fn a_table_may_look_as_its_program_wrote_it() {
        let plain = row(2, "cus_A", 100, "evt_1");
        let full = Row {
            unit: "usd".into(),
            source_object: Some("in_1".into()),
            created: Some(1_790_000_000),
            ..plain.clone()
        };
        let rows: &[(&str, &[Row])] = &[
            ("account_id,amount,source_event_id\n", &[]),
            ("account_id,amount,source_event_id\ncus_A,100,evt_1\n", std::slice::from_ref(&plain)),
            ("account_id,amount,source_event_id\ncus_A,100,evt_1", std::slice::from_ref(&plain)),
            ("\u{feff}account_id,amount,source_event_id\r\ncus_A,100,evt_1\r\n", std::slice::from_ref(&plain)),
            ("amount,source_event_id,account_id\n +100 , evt_1 ,\"cus_A\"\n", std::slice::from_ref(&plain)),
            (
                "account_id,unit,amount,source_event_id,source_object,created_at\ncus_A,,100,evt_1,,\n",
                std::slice::from_ref(&plain),
            ),
            (
                "account_id,unit,amount,source_event_id,source_object,created_at\ncus_A,usd,100,evt_1,in_1,1790000000\n",
                std::slice::from_ref(&full),
            ),
            (
                "account_id,unit,amount,source_event_id,source_object,created_at\n\
                 cus_A,usd,100,evt_1,in_1,2026-09-21T16:13:20+02:00\n",
                std::slice::from_ref(&full),
            ),
            (
                "account_id,amount,source_event_id\n\n\"a,\"\"b\"\"\",-5,evt_2\n\n\ncus_A,7,evt_3\n",
                &[row(3, "a,\"b\"", -5, "evt_2"), row(6, "cus_A", 7, "evt_3")],
            ),
        ];
        for (table, expected) in rows {
            assert_eq!(read(table.as_bytes()).as_deref(), Ok(*expected), "{table}");
        }
    }

    #[test]
    fn what_is_bad_is_told_with_its_place() {
        let rows: &[(&[u8], &str)] = &[
            (b"", "line 1: the column account_id is missing"),
            (b"account_id,source_event_id\n", "line 1: the column amount is missing"),
            (b"cus_A,100,evt_1\n", "line 1: there is no column \"cus_A\"; there are account_id, unit, amount"),
            (b"account_id,amount,amount,source_event_id\n", "line 1: the column amount stands there twice"),
            (b"account_id,amount,source_event_id\na,1,e\nb,1\n", "line 3: it has 2 cells, the header has 3"),
            (b"account_id,amount,source_event_id\na,1,e\n\nb,1,e,\n", "line 4: it has 4 cells, the header has 3"),
            (b"account_id,amount,source_event_id\na,1,\"e\nb,1,e\n", "line 2, column source_event_id: it is longer"),
            (b"account_id,amount,source_event_id\na,1.5,e\n", "line 2, column amount: \"1.5\" is no whole number"),
            (b"account_id,amount,source_event_id\na,,e\n", "line 2, column amount: it is empty"),
            (b"account_id,amount,source_event_id\na,9223372036854775808,e\n", "line 2, column amount: \"9223"),
            (b"account_id,amount,source_event_id\na,-9223372036854775808,e\n", "line 2, column amount: \"-9223"),
            (b"account_id,amount,source_event_id\n ,1,e\n", "line 2, column account_id: it is empty"),
            (b"account_id,amount,source_event_id\na,1,\n", "line 2, column source_event_id: it is empty"),
            (b"account_id,amount,source_event_id\na,1,\xff\n", "line 2, column source_event_id: it is not UTF-8"),
            (
                b"account_id,amount,source_event_id,created_at\na,1,e,yesterday\n",
                "line 2, column created_at: \"yesterday\" is no time",
            ),
            (
                b"account_id,amount,source_event_id,created_at\na,1,e,1790000000000000\n",
                "line 2, column created_at: \"1790000000000000\" is no time",
            ),
        ];
        for (table, told) in rows {
            let error = read(table).expect_err(told).to_string();
            assert!(error.starts_with(told) && error.ends_with("; nothing is imported"), "{error}");
        }
    }
}
