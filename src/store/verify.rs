//! The proofs that the books are whole, as queries. `ops::verify` runs them in their order.
//!
//! Each walks through its tables in slices, a short look for each: a long read would keep the write-ahead log from being
//! reset. Deliveries go on meanwhile, so that two looks see different books. Therefore a slice has all that its proof
//! compares, such as the balance of an account and all of its lines, and one statement compares it.

use rusqlite::{Connection, ErrorCode, named_params};

use crate::store::audit::{Broken, GENESIS, Head};
use crate::store::look::{Slice, Walk};
use crate::store::select::select;
use crate::store::{Look, StoreError, audit, migrations};

/// Tables that must exist with their guards against UPDATE and DELETE.
const APPEND_ONLY: [&str; 5] = ["ledger_entries", "ledger_lines", "audit_log", "tier_changes", "fx_rates"];

/// At most so many violations of one kind are told.
const TOLD_MAX: usize = 20;

/// How many rows one look sees: a small part of a second.
const STEP: i64 = 10_000;

/// The same where each row takes a search of its own, or a hash.
const SMALL_STEP: i64 = 1_000;

/// A proof: what holds if its parts find nothing.
struct Proof {
    name: &'static str,
    parts: &'static [Part],
}

/// A part of a proof: where it walks, and the query that finds what breaks it in a slice, from `:from` to `:to`.
struct Part {
    walk: Walk<'static>,
    sql: &'static str,
}

const PROOFS: &[Proof] = &[
    Proof {
        name: "every balance is the sum of its lines",
        parts: &[Part {
            walk: Walk::by_text("ledger_entries", "account_id", STEP),
            sql: "SELECT 'balance of ' || account_id || ' in ' || unit || ' is ' || balance || ', its lines sum to '
                         || total
                  FROM (SELECT account_id, unit, sum(balance) AS balance, sum(total) AS total FROM (
                            SELECT account_id, unit, balance, 0 AS total FROM balances
                            WHERE account_id >= :from AND account_id < :to
                            UNION ALL
                            SELECT e.account_id, l.unit, 0, l.amount
                            FROM ledger_entries e CROSS JOIN ledger_lines l ON l.entry_id = e.entry_id
                            WHERE e.account_id >= :from AND e.account_id < :to)
                        GROUP BY account_id, unit)
                  WHERE balance <> total",
        }],
    },
    Proof {
        name: "every entry has an event that is completed",
        parts: &[Part {
            walk: Walk::by_number("ledger_entries", "entry_id", STEP),
            sql: "SELECT 'entry ' || e.entry_id || ' has no completed event ' || e.source_event_id
                  FROM ledger_entries e
                  LEFT JOIN events v ON v.event_id = e.source_event_id AND v.status = 'completed'
                  WHERE e.entry_id >= :from AND e.entry_id < :to AND v.event_id IS NULL",
        }],
    },
    Proof {
        name: "every entry has lines, every line an entry",
        parts: &[
            Part {
                walk: Walk::by_number("ledger_entries", "entry_id", STEP),
                sql: "SELECT 'entry ' || e.entry_id || ' has no lines' FROM ledger_entries e
                      WHERE e.entry_id >= :from AND e.entry_id < :to
                        AND NOT EXISTS (SELECT 1 FROM ledger_lines l WHERE l.entry_id = e.entry_id)",
            },
            Part {
                walk: Walk::by_number("ledger_lines", "entry_id", STEP),
                sql: "SELECT 'a line names entry ' || l.entry_id || ', which does not exist' FROM ledger_lines l
                      WHERE l.entry_id >= :from AND l.entry_id < :to
                        AND NOT EXISTS (SELECT 1 FROM ledger_entries e WHERE e.entry_id = l.entry_id)",
            },
        ],
    },
    Proof {
        name: "one grant per fact, one entry per event",
        parts: &[
            Part {
                walk: Walk::by_text("ledger_entries", "fact", STEP),
                sql: "SELECT 'fact ' || fact || ' has ' || count(*) || ' entries' FROM ledger_entries
                      WHERE fact >= :from AND fact < :to GROUP BY fact HAVING count(*) > 1",
            },
            Part {
                walk: Walk::by_text("ledger_entries", "source_event_id", STEP),
                sql: "SELECT 'event ' || source_event_id || ' has ' || count(*) || ' entries' FROM ledger_entries
                      WHERE source_event_id >= :from AND source_event_id < :to
                      GROUP BY source_event_id HAVING count(*) > 1",
            },
        ],
    },
    Proof {
        name: "nothing stands of what is reversed",
        parts: &[
            Part {
                walk: Walk::by_number("ledger_entries", "reverses", STEP),
                sql: "SELECT 'entry ' || r.entry_id || ' of ' || r.account_id || ' reverses entry ' || r.reverses
                             || ' of ' || e.account_id
                      FROM ledger_entries r CROSS JOIN ledger_entries e ON e.entry_id = r.reverses
                      WHERE r.reverses >= :from AND r.reverses < :to AND r.account_id <> e.account_id",
            },
            Part {
                walk: Walk::by_number("ledger_entries", "reverses", SMALL_STEP),
                sql: "SELECT 'entry ' || entry_id || ' is reversed, and ' || standing || ' ' || unit || ' stand of it'
                      FROM (SELECT e.entry_id, l.unit,
                                   l.amount + (SELECT coalesce(sum(c.amount), 0)
                                               FROM ledger_lines c JOIN ledger_entries o ON o.entry_id = c.entry_id
                                               WHERE c.root = l.root AND c.is_root = 0 AND c.unit = l.unit
                                                 AND c.entry_id <> l.entry_id AND o.account_id = e.account_id)
                                   AS standing
                            FROM ledger_entries r
                            CROSS JOIN ledger_entries e ON e.entry_id = r.reverses
                            CROSS JOIN ledger_lines l ON l.entry_id = e.entry_id
                            WHERE r.reverses >= :from AND r.reverses < :to)
                      WHERE standing <> 0",
            },
        ],
    },
    Proof {
        name: "every account's tier is the one of its last change",
        parts: &[Part {
            walk: Walk::by_text("accounts", "account_id", SMALL_STEP),
            sql: "SELECT 'account ' || a.account_id || ' is on ' || coalesce(a.tier, 'no tier')
                         || ', its last change says ' || coalesce(c.to_tier, 'no tier')
                  FROM accounts a
                  LEFT JOIN tier_changes c ON c.change_id =
                      (SELECT max(change_id) FROM tier_changes WHERE account_id = a.account_id)
                  WHERE a.account_id >= :from AND a.account_id < :to AND a.tier IS NOT c.to_tier",
        }],
    },
];

/// The result of one proof.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Proven {
    /// What was to be proven.
    pub name: String,
    /// What breaks it; empty if it holds.
    pub violations: Vec<String>,
    /// A look took longer than it may, and nothing is known of what it did not see.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

impl Proven {
    /// It was proven, and nothing breaks it.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty() && !self.cut_short
    }
}

/// All proofs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proofs {
    /// Each in its order.
    pub proven: Vec<Proven>,
    /// The last audit row of the unbroken chain.
    pub head: Head,
}

/// How SQLite's own check of the file is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCheck {
    /// In one read, which takes as long as it takes. Only so it sees pages that two tables claim, or none.
    Whole,
    /// Each table with its indexes in a look of its own.
    TableByTable,
}

/// Runs all proofs.
///
/// # Errors
/// [`StoreError::Sql`] when the database cannot be read, for other reasons than damage.
pub fn all(books: &impl Look, file: FileCheck) -> Result<Proofs, StoreError> {
    let mut head = Head { seq: 0, hash: GENESIS };
    let mut proven = vec![
        prove("the audit log is an unbroken chain", |found| chain(books, &mut head, found))?,
        prove("append-only tables are guarded", |found| books.look(|connection| guards(connection, found)))?,
    ];
    for Proof { name, parts } in PROOFS {
        proven.push(prove(name, |found| parts.iter().try_for_each(|part| walk(books, &part.walk, part.sql, found)))?);
    }
    proven.push(prove("foreign keys", |found| foreign_keys(books, found))?);
    proven.push(prove("SQLite's own integrity check", |found| integrity(books, file, found))?);
    Ok(Proofs { proven, head })
}

/// How many balances there are.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn balances(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.prepare_cached("SELECT count(*) FROM balances")?.query_row([], |row| row.get(0))?)
}

/// A database that is too damaged to be asked is violated, too. What was found before it says more than the damage.
fn prove(name: &str, find: impl FnOnce(&mut Vec<String>) -> Result<(), StoreError>) -> Result<Proven, StoreError> {
    let mut proven = Proven { name: name.into(), violations: Vec::new(), cut_short: false };
    match find(&mut proven.violations) {
        Err(StoreError::Sql(error)) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            if proven.violations.is_empty() {
                proven.violations.push(format!("this cannot be read: {error}"));
            }
        }
        Err(error) if error.is_timeout() => proven.cut_short = true,
        other => other?,
    }
    proven.violations.truncate(TOLD_MAX);
    Ok(proven)
}

/// Asks for what breaks a proof, slice by slice, until enough is found.
fn walk(books: &impl Look, walk: &Walk<'_>, sql: &str, found: &mut Vec<String>) -> Result<(), StoreError> {
    walk.each(books, |connection, Slice { from, to }| {
        if found.len() < TOLD_MAX {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(named_params! { ":from": from, ":to": to }, |row| row.get(0))?;
            for row in rows.take(TOLD_MAX) {
                found.push(row?);
            }
        }
        Ok(())
    })
}

fn chain(books: &impl Look, head: &mut Head, found: &mut Vec<String>) -> Result<(), StoreError> {
    loop {
        match books.look(|connection| audit::walk(connection, *head, SMALL_STEP))? {
            Ok(next) if next == *head => return Ok(()),
            Ok(next) => *head = next,
            Err(Broken { seq, problem }) => {
                found.push(format!("audit row {seq} is the first broken link: {problem}"));
                return Ok(());
            }
        }
    }
}

/// A column that names a row of another table.
struct ForeignKey {
    table: String,
    column: String,
    parent: String,
    parent_key: String,
    /// What the table is walked through by, and whether that is a number.
    key: String,
    is_number: bool,
}

/// What `PRAGMA foreign_key_check` finds, which is one long read for each table.
fn foreign_keys(books: &impl Look, found: &mut Vec<String>) -> Result<(), StoreError> {
    for one in books.look(all_foreign_keys)? {
        let ForeignKey { table, column, parent, parent_key, key, is_number } = one;
        let sql = format!(
            "SELECT 'a row of {table} names a row of {parent} that does not exist' FROM \"{table}\" c
             WHERE c.{key} >= :from AND c.{key} < :to AND c.\"{column}\" IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM \"{parent}\" p WHERE p.\"{parent_key}\" = c.\"{column}\")"
        );
        let through = if is_number { Walk::by_number(&table, &key, STEP) } else { Walk::by_text(&table, &key, STEP) };
        walk(books, &through, &sql, found)?;
    }
    Ok(())
}

fn all_foreign_keys(connection: &Connection) -> Result<Vec<ForeignKey>, StoreError> {
    let sql = "SELECT t.name AS \"table\", f.\"from\" AS column, f.\"table\" AS parent,
                      coalesce(f.\"to\", (SELECT name FROM pragma_table_info(f.\"table\") WHERE pk = 1)) AS parent_key,
                      coalesce(k.name, 'rowid') AS key, k.type IS NOT 'TEXT' AS is_number
               FROM sqlite_schema t
               JOIN pragma_foreign_key_list(t.name) f
               LEFT JOIN pragma_table_info(t.name) k ON k.pk = 1
               WHERE t.type = 'table'
               ORDER BY t.name, f.id";
    select(connection, sql, [], |row| {
        Ok(ForeignKey {
            table: row.get("table")?,
            column: row.get("column")?,
            parent: row.get("parent")?,
            parent_key: row.get("parent_key")?,
            key: row.get("key")?,
            is_number: row.get("is_number")?,
        })
    })
}

fn integrity(books: &impl Look, file: FileCheck, found: &mut Vec<String>) -> Result<(), StoreError> {
    if file == FileCheck::Whole {
        return books.look(|connection| ask_sqlite(connection, "PRAGMA integrity_check", found));
    }
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name";
    let tables: Vec<String> = books.look(|connection| select(connection, sql, [], |row| row.get("name")))?;
    for table in tables {
        let sql = format!("PRAGMA integrity_check(\"{table}\")");
        books.look(|connection| ask_sqlite(connection, &sql, found))?;
    }
    Ok(())
}

fn ask_sqlite(connection: &Connection, sql: &str, found: &mut Vec<String>) -> Result<(), StoreError> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    for row in rows.take(TOLD_MAX) {
        let row = row?;
        // How it says that it found nothing.
        if row != "ok" {
            found.push(row);
        }
    }
    Ok(())
}

/// Each guard is there with the very text of the migration, and nothing else is triggered at what it guards.
fn guards(connection: &Connection, found: &mut Vec<String>) -> Result<(), StoreError> {
    for table in APPEND_ONLY {
        let mut statement = connection
            .prepare_cached("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = :table")?;
        let rows = statement
            .query_map(named_params! { ":table": table }, |row| Ok((row.get("name")?, row.get("sql")?)))?
            .collect::<Result<Vec<(String, String)>, _>>()?;
        // One of that name that does something else is none.
        let (ours, strange): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, sql)| migrations::has_written(sql));
        for guard in ["update", "delete"] {
            if !ours.iter().any(|(name, _)| *name == format!("{table}_{guard}")) {
                found.push(format!("{table} has lost its guard against {}", guard.to_uppercase()));
            }
        }
        found.extend(strange.into_iter().map(|(name, _)| format!("{table} has a trigger that is not ours: {name}")));
    }
    Ok(())
}
