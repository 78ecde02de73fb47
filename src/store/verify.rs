//! The proofs that the books are whole, as queries. `ops::verify` runs them in their order.

use rusqlite::{Connection, ErrorCode, Row, named_params};

use crate::store::{StoreError, audit, migrations};

/// Tables that must exist with their guards against UPDATE and DELETE.
const APPEND_ONLY: [&str; 5] = ["ledger_entries", "ledger_lines", "audit_log", "tier_changes", "fx_rates"];

/// At most so many violations of one kind are told.
const TOLD_MAX: usize = 20;

/// A proof: what holds if it finds nothing, and the query that finds what breaks it.
struct Proof {
    name: &'static str,
    sql: &'static str,
}

const PROOFS: &[Proof] = &[
    Proof {
        name: "every balance is the sum of its lines",
        sql:
            "SELECT 'balance of ' || account_id || ' in ' || unit || ' is ' || balance || ', its lines sum to ' || total
              FROM (SELECT account_id, unit, sum(balance) AS balance, sum(total) AS total FROM (
                        SELECT account_id, unit, balance, 0 AS total FROM balances
                        UNION ALL
                        SELECT e.account_id, l.unit, 0, l.amount
                        FROM ledger_lines l JOIN ledger_entries e ON e.entry_id = l.entry_id)
                    GROUP BY account_id, unit)
              WHERE balance <> total",
    },
    Proof {
        name: "every entry has an event that is completed",
        sql: "SELECT 'entry ' || e.entry_id || ' has no completed event ' || e.source_event_id
              FROM ledger_entries e LEFT JOIN events v ON v.event_id = e.source_event_id AND v.status = 'completed'
              WHERE v.event_id IS NULL",
    },
    Proof {
        name: "every entry has lines, every line an entry",
        sql: "SELECT 'entry ' || e.entry_id || ' has no lines' FROM ledger_entries e
              WHERE NOT EXISTS (SELECT 1 FROM ledger_lines l WHERE l.entry_id = e.entry_id)
              UNION ALL
              SELECT 'a line names entry ' || l.entry_id || ', which does not exist' FROM ledger_lines l
              WHERE NOT EXISTS (SELECT 1 FROM ledger_entries e WHERE e.entry_id = l.entry_id)",
    },
    Proof {
        name: "one grant per fact, one entry per event",
        sql: "SELECT 'fact ' || fact || ' has ' || count(*) || ' entries' FROM ledger_entries
              GROUP BY fact HAVING count(*) > 1
              UNION ALL
              SELECT 'event ' || source_event_id || ' has ' || count(*) || ' entries' FROM ledger_entries
              GROUP BY source_event_id HAVING count(*) > 1",
    },
    Proof {
        name: "nothing stands of what is reversed",
        sql: "SELECT 'entry ' || r.entry_id || ' of ' || r.account_id || ' reverses entry ' || r.reverses || ' of '
                     || e.account_id
              FROM ledger_entries r JOIN ledger_entries e ON e.entry_id = r.reverses
              WHERE r.account_id <> e.account_id
              UNION ALL
              SELECT 'entry ' || entry_id || ' is reversed, and ' || standing || ' ' || unit || ' stand of it'
              FROM (SELECT e.entry_id, l.unit,
                           l.amount + (SELECT coalesce(sum(c.amount), 0)
                                       FROM ledger_lines c JOIN ledger_entries o ON o.entry_id = c.entry_id
                                       WHERE c.root = l.root AND c.is_root = 0 AND c.unit = l.unit
                                         AND c.entry_id <> l.entry_id AND o.account_id = e.account_id) AS standing
                    FROM ledger_entries r
                    JOIN ledger_entries e ON e.entry_id = r.reverses
                    JOIN ledger_lines l ON l.entry_id = e.entry_id)
              WHERE standing <> 0",
    },
    Proof {
        name: "every account's tier is the one of its last change",
        sql:
            "SELECT 'account ' || a.account_id || ' is on ' || coalesce(a.tier, 'no tier') || ', its last change says '
                     || coalesce(c.to_tier, 'no tier')
              FROM accounts a
              LEFT JOIN tier_changes c ON c.change_id =
                  (SELECT max(change_id) FROM tier_changes WHERE account_id = a.account_id)
              WHERE a.tier IS NOT c.to_tier",
    },
    Proof {
        name: "foreign keys",
        sql: "SELECT 'a row of ' || \"table\" || ' names a row of ' || parent || ' that does not exist'
              FROM pragma_foreign_key_check",
    },
    Proof { name: "SQLite's own integrity check", sql: "PRAGMA integrity_check" },
];

/// The result of one proof.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Proven {
    /// What was to be proven.
    pub name: String,
    /// What breaks it; empty if it holds.
    pub violations: Vec<String>,
}

/// Runs all proofs; on one consistent state of the database, if the caller holds a transaction.
///
/// # Errors
/// [`StoreError::Sql`] when the database cannot be read, for other reasons than damage.
pub fn all(connection: &Connection) -> Result<Vec<Proven>, StoreError> {
    let mut proven = vec![
        prove("the audit log is an unbroken chain", || chain(connection))?,
        prove("append-only tables are guarded", || guards(connection))?,
    ];
    for proof in PROOFS {
        proven.push(prove(proof.name, || ask(connection, proof.sql))?);
    }
    Ok(proven)
}

/// A database that is too damaged to be asked is violated, too.
fn prove(name: &str, find: impl FnOnce() -> Result<Vec<String>, StoreError>) -> Result<Proven, StoreError> {
    let violations = match find() {
        Err(StoreError::Sql(error)) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            vec![format!("this cannot be read: {error}")]
        }
        other => other?,
    };
    Ok(Proven { name: name.into(), violations })
}

fn ask(connection: &Connection, sql: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row: &Row<'_>| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for row in rows.take(TOLD_MAX) {
        match row {
            // How SQLite's own check says that it found nothing.
            Ok(row) if row == "ok" => {}
            Ok(row) => found.push(row),
            // What was found before the damage says more than the damage.
            Err(_) if !found.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn chain(connection: &Connection) -> Result<Vec<String>, StoreError> {
    Ok(match audit::walk(connection)? {
        Ok(_) => Vec::new(),
        Err((seq, problem)) => vec![format!("audit row {seq} is the first broken link: {problem}")],
    })
}

/// Each guard is there with the very text of the migration, and nothing else is triggered at what it guards.
fn guards(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut violations = Vec::new();
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
                violations.push(format!("{table} has lost its guard against {}", guard.to_uppercase()));
            }
        }
        violations
            .extend(strange.into_iter().map(|(name, _)| format!("{table} has a trigger that is not ours: {name}")));
    }
    Ok(violations)
}
