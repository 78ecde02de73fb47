//! What can go wrong with the database, told apart by what the caller does about it.

use std::path::PathBuf;

use rusqlite::ErrorCode;
use rusqlite::types::Type;
use thiserror::Error;

/// An error of the store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// SQLite said no.
    #[error("database: {0}")]
    Sql(#[from] rusqlite::Error),
    /// No connection could be had.
    #[error("no connection to the database: {0}")]
    Pool(#[from] r2d2::Error),
    /// The database cannot be used as it is.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// What is stored cannot be read back.
    #[error("{what} cannot be read back: {problem}")]
    Damaged {
        /// The row or the blob.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A balance would not fit into 64 bits.
    #[error("the balance of {account} in {unit} would be beyond what can be counted")]
    TooLarge {
        /// Whose.
        account: String,
        /// The unit.
        unit: String,
    },
    /// The writer is gone, or went down with this work.
    #[error("the writer does not take this; nothing of it is stored, try again")]
    Stopped,
}

impl StoreError {
    pub(crate) fn unusable(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Unusable { path: path.into(), problem: problem.into() }
    }

    /// A read took longer than it may.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted))
    }

    /// Trouble with disk, memory or locks: it says nothing about the event at hand, and the same again may work.
    ///
    /// SQLite's general error ([`ErrorCode::Unknown`]) is none: it tells of a statement and its values, such as an
    /// overflow, and must not let one event abort every batch that it is in.
    #[must_use]
    pub fn is_environmental(&self) -> bool {
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(failure, _)) => !matches!(
                failure.code,
                ErrorCode::ConstraintViolation
                    | ErrorCode::TypeMismatch
                    | ErrorCode::TooBig
                    | ErrorCode::ApiMisuse
                    | ErrorCode::ParameterOutOfRange
                    | ErrorCode::Unknown
            ),
            Self::Sql(_) | Self::Damaged { .. } | Self::TooLarge { .. } => false,
            Self::Pool(_) | Self::Unusable { .. } | Self::Stopped => true,
        }
    }

    /// Amounts that do not fit into 64 bits: our own check of a balance, or SQLite's arithmetic. That refuses such a sum,
    /// or goes on with a REAL, which no column of ours is.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::TooLarge { .. } | Self::Sql(rusqlite::Error::InvalidColumnType(_, _, Type::Real)) => true,
            Self::Sql(rusqlite::Error::SqliteFailure(_, Some(text))) => text == "integer overflow",
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn arithmetic_that_does_not_fit_is_told_from_other_errors() {
        let connection = Connection::open_in_memory().unwrap();
        for (sql, expected) in [
            ("SELECT sum(column1) FROM (VALUES (9223372036854775807), (1))", true),
            ("SELECT 9223372036854775807 + 1", true),
            ("SELECT -column1 FROM (VALUES (-9223372036854775807 - 1))", true),
            ("SELECT 'text'", false),
            ("SELECT abs('x', 'y')", false),
        ] {
            let error = StoreError::Sql(connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap_err());
            assert_eq!((error.is_too_large(), error.is_environmental()), (expected, false), "{sql}: {error}");
        }
    }
}
