//! Many rows at once.

use rusqlite::{Connection, Params, Row};

use crate::store::StoreError;

/// All rows of a query, each read by `from_row`.
pub(super) fn select<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    from_row: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| from_row(row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
