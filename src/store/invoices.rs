//! Invoices as their newest snapshots told them.

use rusqlite::{Connection, named_params};

use crate::domain::decision::InvoiceRow;
use crate::domain::fact::Fact;
use crate::domain::facts::{AccountHeld, InvoiceHeld};
use crate::domain::ids::{AccountId, EventId, InvoiceId};
use crate::store::{StoreError, accounts};

/// What is held about an invoice, its grant and its account: one look-up for the hottest event.
#[derive(Debug, Default)]
pub struct Held {
    /// The invoice.
    pub invoice: Option<InvoiceHeld>,
    /// The event that granted its fact, or the session that made it.
    pub granted_by: Option<EventId>,
    /// The account.
    pub account: Option<AccountHeld>,
    /// A payment of it is known.
    pub is_linked: bool,
}

/// Reads what is held about an invoice, the grant of `fact` and an account.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn held(
    connection: &Connection,
    invoice: &InvoiceId,
    fact: &Fact,
    account: Option<&AccountId>,
) -> Result<Held, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT i.status, i.amount_paid, i.snapshot_at, i.source_event_id,
                    coalesce(e.source_event_id,
                             (SELECT g.source_event_id FROM checkout_invoices c
                              JOIN ledger_entries g ON g.fact = 'grant:checkout:' || c.checkout_id
                              WHERE c.invoice_id = :invoice LIMIT 1)) AS granted_by,
                    a.account_id, a.reference, a.reference_strength, a.reference_at, a.deleted_at,
                    EXISTS (SELECT 1 FROM invoice_payments p WHERE p.invoice_id = :invoice) AS is_linked
             FROM (SELECT 1)
             LEFT JOIN invoices i ON i.invoice_id = :invoice
             LEFT JOIN ledger_entries e ON e.fact = :fact
             LEFT JOIN accounts a ON a.account_id = :account",
        )?
        .query_row(named_params! { ":invoice": invoice, ":fact": fact, ":account": account }, |row| {
            let status: Option<String> = row.get("status")?;
            let known = row.get::<_, Option<AccountId>>("account_id")?.is_some();
            Ok(Held {
                invoice: match status {
                    Some(status) => Some(InvoiceHeld {
                        status,
                        amount_paid: row.get("amount_paid")?,
                        snapshot_at: row.get("snapshot_at")?,
                        source: row.get("source_event_id")?,
                    }),
                    None => None,
                },
                granted_by: row.get("granted_by")?,
                is_linked: row.get("is_linked")?,
                account: if known { Some(accounts::held_from_row(row)?) } else { None },
            })
        })?)
}

/// Keeps the newest snapshot of an invoice.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save(connection: &Connection, invoice: &InvoiceRow, source: &EventId) -> Result<(), StoreError> {
    // Two statements: an upsert that may change a foreign key makes SQLite guard each insert with a journal.
    let row = named_params! {
        ":invoice": invoice.id, ":account": invoice.account, ":subscription": invoice.subscription,
        ":status": invoice.status, ":currency": invoice.currency, ":total": invoice.total,
        ":amount_paid": invoice.amount_paid, ":created": invoice.created, ":snapshot_at": invoice.snapshot_at,
        ":source": source,
    };
    let inserted = connection
        .prepare_cached(
            "INSERT INTO invoices (invoice_id, account_id, subscription_id, status, currency, total, amount_paid,
                                   created_at, snapshot_at, source_event_id)
             VALUES (:invoice, :account, :subscription, :status, :currency, :total, :amount_paid,
                     :created, :snapshot_at, :source)
             ON CONFLICT (invoice_id) DO NOTHING",
        )?
        .execute(row)?;
    if inserted == 0 {
        connection
            .prepare_cached(
                "UPDATE invoices SET
                     account_id = :account, subscription_id = :subscription, status = :status, currency = :currency,
                     total = :total, amount_paid = :amount_paid, created_at = :created, snapshot_at = :snapshot_at,
                     source_event_id = :source
                 WHERE invoice_id = :invoice",
            )?
            .execute(row)?;
    }
    Ok(())
}
