//! Tables that several commands show.

use crate::store::views::{AuditRow, LedgerRow, TierChangeRow};

use super::output::{Table, amount, or_dash, time};

/// Lines of the ledger.
pub(super) fn ledger(rows: &[LedgerRow]) -> String {
    let mut heads = vec!["POSTED", ">ENTRY", "KIND", ">AMOUNT", "FACT", "BY EVENT"];
    if rows.iter().any(|row| row.fx_rate.is_some()) {
        heads.push("CONVERTED FROM");
    }
    let mut table = Table::new(&heads);
    for row in rows {
        table.row(&[
            &time(row.created_at),
            &row.entry_id,
            &row.kind,
            &amount(row.amount, &row.unit),
            &row.fact,
            &row.source_event_id,
            &converted_from(row),
        ]);
    }
    table.render("none")
}

/// Such as `1000 JPY at 0.0066 of 2026-11-27`; nothing for a line that was not converted.
fn converted_from(row: &LedgerRow) -> String {
    match (row.original_amount, &row.original_currency, &row.fx_rate, &row.fx_date) {
        (Some(paid), Some(currency), Some(rate), Some(date)) => {
            format!("{} at {rate} of {date}", amount(paid, currency))
        }
        _ => String::new(),
    }
}

/// Changes of tiers.
pub(super) fn tier_changes(rows: &[TierChangeRow]) -> String {
    let mut table = Table::new(&["AT", "FROM", "TO", "BY EVENT"]);
    for row in rows {
        let (from, to) = (or_dash(row.from_tier.as_deref()), or_dash(row.to_tier.as_deref()));
        table.row(&[&time(row.at), &from, &to, &row.source_event_id]);
    }
    table.render("none")
}

/// Rows of the audit log.
pub(super) fn audit(rows: &[AuditRow]) -> String {
    let mut table = Table::new(&[">SEQ", "AT", "ACTOR", "ACTION", "SUBJECT", "EVENT", "DETAIL"]);
    for row in rows {
        table.row(&[
            &row.seq,
            &time(row.at),
            &row.actor,
            &row.action,
            &row.subject,
            &or_dash(row.event_id.as_deref()),
            &row.detail,
        ]);
    }
    table.render("no rows")
}
