//! What a part of a transaction has written so far, for whoever wants to show it before it is kept or taken back.

use rusqlite::{Connection, named_params};
use serde::Serialize;

use crate::store::StoreError;
use crate::store::views::{self, AuditRow, LedgerRow, TierChangeRow};

/// The ends of the append-only tables at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    entry: i64,
    change: i64,
    audit: i64,
}

/// Notes where the append-only tables end now.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn mark(connection: &Connection) -> Result<Mark, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT (SELECT coalesce(max(entry_id), 0) FROM ledger_entries) AS entry,
                    (SELECT coalesce(max(change_id), 0) FROM tier_changes) AS change,
                    (SELECT coalesce(max(seq), 0) FROM audit_log) AS audit",
        )?
        .query_row([], |row| {
            Ok(Mark { entry: row.get("entry")?, change: row.get("change")?, audit: row.get("audit")? })
        })?)
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Lines of new entries.
    pub entries: Vec<LedgerRow>,
    /// Changes of tiers.
    pub tier_changes: Vec<TierChangeRow>,
    /// Rows of the audit log; those of changed state tell before and after.
    pub audit: Vec<AuditRow>,
}

impl Written {
    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.tier_changes.is_empty() && self.audit.is_empty()
    }
}

/// What was written since a mark.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn since(connection: &Connection, mark: Mark) -> Result<Written, StoreError> {
    Ok(Written {
        entries: views::collect(
            connection,
            "SELECT * FROM v_ledger WHERE entry_id > :entry ORDER BY entry_id, unit",
            named_params! { ":entry": mark.entry },
            views::ledger_row,
        )?,
        tier_changes: views::collect(
            connection,
            "SELECT account_id, from_tier, to_tier, source_event_id, at FROM tier_changes
             WHERE change_id > :change ORDER BY change_id",
            named_params! { ":change": mark.change },
            views::tier_change_row,
        )?,
        audit: views::collect(
            connection,
            "SELECT seq, at, actor, action, subject, event_id, detail FROM v_audit WHERE seq > :audit ORDER BY seq",
            named_params! { ":audit": mark.audit },
            views::audit_row,
        )?,
    })
}
