//! Reads of all the books in short looks, one after the other: a long read would keep the write-ahead log from being
//! reset.

use std::ops::ControlFlow;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::store::StoreError;
use crate::store::reader::Reader;

/// A place to look at the books.
pub trait Look {
    /// One look: all that it sees is of one moment. The next one may see other books.
    ///
    /// # Errors
    /// Those of `look`, and [`StoreError`] when the books cannot be read.
    fn look<T>(&self, look: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError>;

    /// How many rows one look sees of many, where `usual` would be right for most.
    fn rows(&self, usual: i64) -> i64 {
        usual
    }
}

impl Look for Connection {
    fn look<T>(&self, look: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        // Who is in a transaction sees one moment anyway.
        let _moment = self.is_autocommit().then(|| self.unchecked_transaction()).transpose()?;
        look(self)
    }
}

impl Look for Reader {
    fn look<T>(&self, look: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.read(|connection| connection.look(look))
    }

    fn rows(&self, usual: i64) -> i64 {
        self.rows_in_a_look(usual)
    }
}

/// A walk through a table in the order of a key of it, slice by slice.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    table: &'a str,
    key: &'a str,
    start: Value,
    step: i64,
}

/// The rows whose key is at least `from` and below `to`.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) from: Value,
    pub(super) to: Value,
}

impl<'a> Walk<'a> {
    /// Through a table by a key that is a text and has an index; so many rows make a slice, and all those that have the
    /// key of the last one.
    pub(super) const fn by_text(table: &'a str, key: &'a str, step: i64) -> Self {
        Self { table, key, start: Value::Text(String::new()), step }
    }

    /// The same by a key that is a number.
    pub(super) const fn by_number(table: &'a str, key: &'a str, step: i64) -> Self {
        Self { table, key, start: Value::Integer(i64::MIN), step }
    }

    /// What it walks through.
    pub(super) const fn table(&self) -> &'a str {
        self.table
    }

    /// Sees each slice in a look of its own. What is added behind the walk while it goes on is seen, too.
    pub(super) fn each(
        &self,
        books: &impl Look,
        mut see: impl FnMut(&Connection, &Slice) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.each_until(books, |connection, slice| see(connection, slice).map(|()| ControlFlow::Continue(())))
    }

    /// The same, until `see` breaks off.
    pub(super) fn each_until(
        &self,
        books: &impl Look,
        mut see: impl FnMut(&Connection, &Slice) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let step = books.rows(self.step);
        let mut next = Some(self.start.clone());
        while let Some(from) = next {
            next = books.look(|connection| {
                let next = self.next_after(connection, &from, step)?;
                // To SQLite, a blob is greater than any number and any text.
                let to = next.clone().unwrap_or(Value::Blob(Vec::new()));
                let seen = see(connection, &Slice { from, to })?;
                Ok(next.filter(|_| seen.is_continue()))
            })?;
        }
        Ok(())
    }

    /// The slice has the row at `from`, except for the first, which begins before any row.
    fn next_after(&self, connection: &Connection, from: &Value, step: i64) -> Result<Option<Value>, StoreError> {
        let Self { table, key, .. } = self;
        let sql = format!("SELECT {key} FROM {table} WHERE {key} > :from ORDER BY {key} LIMIT 1 OFFSET :step - 1");
        Ok(connection
            .prepare_cached(&sql)?
            .query_row(named_params! { ":from": from, ":step": step }, |row| row.get(0))
            .optional()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(setup: &str, walk: &Walk<'_>) -> Vec<Vec<String>> {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(setup).unwrap();
        let mut slices = Vec::new();
        walk.each(&connection, |connection, Slice { from, to }| {
            let sql = "SELECT CAST(k AS TEXT) FROM t WHERE k >= :from AND k < :to ORDER BY k";
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map(named_params! { ":from": from, ":to": to }, |row| row.get(0))?;
            slices.push(rows.collect::<Result<_, _>>()?);
            Ok(())
        })
        .unwrap();
        slices
    }

    #[test]
    fn each_row_is_in_one_slice_and_those_of_one_key_in_the_same() {
        let texts =
            "CREATE TABLE t (k TEXT) STRICT; INSERT INTO t VALUES ('b'), (''), ('a'), ('b'), ('b'), ('é'), ('c')";
        assert_eq!(seen(texts, &Walk::by_text("t", "k", 2))[..], [vec!["", "a"], vec!["b", "b", "b", "c"], vec!["é"]]);
        let one_by_one = [vec![""], vec!["a"], vec!["b", "b", "b"], vec!["c"], vec!["é"]];
        assert_eq!(seen(texts, &Walk::by_text("t", "k", 1))[..], one_by_one);
        assert_eq!(seen(texts, &Walk::by_text("t", "k", 9)), [["", "a", "b", "b", "b", "c", "é"]]);
        let numbers = "CREATE TABLE t (k INTEGER) STRICT; INSERT INTO t VALUES (3), (-9223372036854775808), (-1), (9)";
        let expected = [["-9223372036854775808", "-1"], ["3", "9"]];
        assert_eq!(seen(numbers, &Walk::by_number("t", "k", 2)), expected);
        assert_eq!(seen("CREATE TABLE t (k TEXT)", &Walk::by_text("t", "k", 2)), [Vec::<String>::new()]);
    }
}
