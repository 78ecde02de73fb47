//! Payments, what they paid, and their refunds and disputes, each kept as it was told. Which charges and intents are
//! one payment is worked out when they are read, so that it does not matter which name came first.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use crate::domain::clawback::{ChargeHeld, DisputeHeld, Granted, Payment, RefundHeld, UnitGranted};
use crate::domain::decision::CheckoutRow;
use crate::domain::event::PaymentRef;
use crate::domain::fact::Fact;
use crate::domain::facts::{Decided, Root};
use crate::domain::ids::{AccountId, ChargeId, CheckoutId, DisputeId, EventId, InvoiceId, PaymentId, RefundId};
use crate::domain::money::Currency;
use crate::store::select::select;
use crate::store::{StoreError, unfinished};

/// Remembers that a payment paid an invoice.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn link(connection: &Connection, invoice: &InvoiceId, payment: &PaymentRef) -> Result<(), StoreError> {
    let names = [
        payment.payment_intent.as_ref().map(|intent| (intent.as_str(), true)),
        payment.charge.as_ref().map(|charge| (charge.as_str(), false)),
    ];
    for (name, is_intent) in names.into_iter().flatten() {
        connection
            .prepare_cached(
                "INSERT INTO invoice_payments (invoice_id, payment_id, is_intent)
                 VALUES (:invoice, :payment, :is_intent)
                 ON CONFLICT (invoice_id, payment_id) DO NOTHING",
            )?
            .execute(named_params! { ":invoice": invoice, ":payment": name, ":is_intent": is_intent })?;
    }
    Ok(())
}

/// Remembers a paid checkout.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_checkout(connection: &Connection, checkout: &CheckoutRow, source: &EventId) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO checkouts (checkout_id, account_id, payment_intent, amount_paid, currency, source_event_id)
             VALUES (:checkout, :account, :intent, :amount_paid, :currency, :source)
             ON CONFLICT (checkout_id) DO NOTHING",
        )?
        .execute(named_params! {
            ":checkout": checkout.id, ":account": checkout.account, ":intent": checkout.payment_intent,
            ":amount_paid": checkout.amount_paid, ":currency": checkout.currency, ":source": source,
        })?;
    Ok(())
}

/// Remembers which invoice a session made.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn tie_checkout(connection: &Connection, checkout: &CheckoutId, invoice: &InvoiceId) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO checkout_invoices (checkout_id, invoice_id) VALUES (:checkout, :invoice)
             ON CONFLICT (checkout_id) DO NOTHING",
        )?
        .execute(named_params! { ":checkout": checkout, ":invoice": invoice })?;
    Ok(())
}

/// Remembers that a charge belongs to a payment intent.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn name(connection: &Connection, charge: &ChargeId, intent: &PaymentId) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO payment_names (charge_id, payment_intent) VALUES (:charge, :intent)
             ON CONFLICT (charge_id) DO NOTHING",
        )?
        .execute(named_params! { ":charge": charge, ":intent": intent })?;
    Ok(())
}

/// Keeps the newest snapshot of a charge.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_charge(connection: &Connection, charge: &ChargeHeld) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO payments (charge_id, payment_intent, account_id, currency, amount_captured, amount_refunded,
                                   snapshot_at, source_event_id)
             VALUES (:charge, :intent, :account, :currency, :captured, :refunded, :at, :source)
             ON CONFLICT (charge_id) DO UPDATE SET
                 payment_intent = excluded.payment_intent, account_id = excluded.account_id,
                 currency = excluded.currency, amount_captured = excluded.amount_captured,
                 amount_refunded = excluded.amount_refunded, snapshot_at = excluded.snapshot_at,
                 source_event_id = excluded.source_event_id",
        )?
        .execute(named_params! {
            ":charge": charge.id, ":intent": charge.intent, ":account": charge.account,
            ":currency": charge.currency, ":captured": charge.captured, ":refunded": charge.refunded,
            ":at": charge.at, ":source": charge.source,
        })?;
    Ok(())
}

/// Keeps what is known of a refund.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_refund(connection: &Connection, refund: &RefundHeld) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO refunds (refund_id, payment_intent, charge_id, amount, currency, status, created_at,
                                  failed_at, snapshot_at, source_event_id)
             VALUES (:refund, :intent, :charge, :amount, :currency, :status, :created, :failed_at, :at, :source)
             ON CONFLICT (refund_id) DO UPDATE SET
                 payment_intent = excluded.payment_intent, charge_id = excluded.charge_id, amount = excluded.amount,
                 currency = excluded.currency, status = excluded.status, created_at = excluded.created_at,
                 failed_at = excluded.failed_at, snapshot_at = excluded.snapshot_at,
                 source_event_id = excluded.source_event_id",
        )?
        .execute(named_params! {
            ":refund": refund.id, ":intent": refund.payment.payment_intent, ":charge": refund.payment.charge,
            ":amount": refund.amount, ":currency": refund.currency, ":status": refund.status,
            ":created": refund.created, ":failed_at": refund.failed_at, ":at": refund.at, ":source": refund.source,
        })?;
    Ok(())
}

/// Keeps what is known of a dispute.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_dispute(connection: &Connection, dispute: &DisputeHeld) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO disputes (dispute_id, payment_intent, charge_id, amount, currency, status, withdrawn_at,
                                   reinstated_at, snapshot_at, source_event_id)
             VALUES (:dispute, :intent, :charge, :amount, :currency, :status, :withdrawn_at, :reinstated_at, :at,
                     :source)
             ON CONFLICT (dispute_id) DO UPDATE SET
                 payment_intent = excluded.payment_intent, charge_id = excluded.charge_id, amount = excluded.amount,
                 currency = excluded.currency, status = excluded.status, withdrawn_at = excluded.withdrawn_at,
                 reinstated_at = excluded.reinstated_at, snapshot_at = excluded.snapshot_at,
                 source_event_id = excluded.source_event_id",
        )?
        .execute(named_params! {
            ":dispute": dispute.id, ":intent": dispute.payment.payment_intent, ":charge": dispute.payment.charge,
            ":amount": dispute.amount, ":currency": dispute.currency, ":status": dispute.status,
            ":withdrawn_at": dispute.withdrawn_at, ":reinstated_at": dispute.reinstated_at, ":at": dispute.at,
            ":source": dispute.source,
        })?;
    Ok(())
}

/// All that is known about the payment of these names.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn payment(connection: &Connection, names: &PaymentRef) -> Result<Payment, StoreError> {
    let mut payment = Payment { intent: names.payment_intent.clone(), ..Payment::default() };
    if let (None, Some(charge)) = (&payment.intent, &names.charge) {
        payment.intent = connection
            .prepare_cached("SELECT payment_intent FROM payment_names WHERE charge_id = :charge")?
            .query_row(named_params! { ":charge": charge }, |row| row.get("payment_intent"))
            .optional()?;
    }
    payment.charges.extend(names.charge.clone());
    if let Some(intent) = payment.intent.clone() {
        let by_intent = named_params! { ":intent": intent };
        let sql = "SELECT charge_id FROM payment_names WHERE payment_intent = :intent ORDER BY charge_id";
        for charge in select(connection, sql, by_intent, |row| row.get("charge_id"))? {
            if !payment.charges.contains(&charge) {
                payment.charges.push(charge);
            }
        }
        payment.snapshots = select(connection, CHARGES_BY_INTENT, by_intent, charge_from_row)?;
        payment.refunds = select(connection, REFUNDS_BY_INTENT, by_intent, refund_from_row)?;
        payment.disputes = select(connection, DISPUTES_BY_INTENT, by_intent, dispute_from_row)?;
    }
    for charge in payment.charges.clone() {
        let by_charge = named_params! { ":charge": charge };
        for one in select(connection, CHARGES_BY_CHARGE, by_charge, charge_from_row)? {
            if payment.snapshots.iter().all(|held| held.id != one.id) {
                payment.snapshots.push(one);
            }
        }
        for one in select(connection, REFUNDS_BY_CHARGE, by_charge, refund_from_row)? {
            if payment.refunds.iter().all(|held| held.id != one.id) {
                payment.refunds.push(one);
            }
        }
        for one in select(connection, DISPUTES_BY_CHARGE, by_charge, dispute_from_row)? {
            if payment.disputes.iter().all(|held| held.id != one.id) {
                payment.disputes.push(one);
            }
        }
    }
    Ok(payment)
}

/// One refund.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn refund(connection: &Connection, id: &RefundId) -> Result<Option<RefundHeld>, StoreError> {
    Ok(select(connection, REFUND_BY_ID, named_params! { ":id": id }, refund_from_row)?.pop())
}

/// One dispute.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn dispute(connection: &Connection, id: &DisputeId) -> Result<Option<DisputeHeld>, StoreError> {
    Ok(select(connection, DISPUTE_BY_ID, named_params! { ":id": id }, dispute_from_row)?.pop())
}

const REFUND_BY_ID: &str = "SELECT refund_id, payment_intent, charge_id, amount, currency, status, created_at,
    failed_at, snapshot_at, source_event_id FROM refunds WHERE refund_id = :id";
const DISPUTE_BY_ID: &str = "SELECT dispute_id, payment_intent, charge_id, amount, currency, status, withdrawn_at,
    reinstated_at, snapshot_at, source_event_id FROM disputes WHERE dispute_id = :id";
const CHARGES_BY_INTENT: &str = "SELECT charge_id, payment_intent, account_id, currency, amount_captured,
    amount_refunded, snapshot_at, source_event_id FROM payments WHERE payment_intent = :intent ORDER BY charge_id";
const CHARGES_BY_CHARGE: &str = "SELECT charge_id, payment_intent, account_id, currency, amount_captured,
    amount_refunded, snapshot_at, source_event_id FROM payments WHERE charge_id = :charge";
const REFUNDS_BY_INTENT: &str = "SELECT refund_id, payment_intent, charge_id, amount, currency, status, created_at,
    failed_at, snapshot_at, source_event_id FROM refunds WHERE payment_intent = :intent ORDER BY refund_id";
const REFUNDS_BY_CHARGE: &str = "SELECT refund_id, payment_intent, charge_id, amount, currency, status, created_at,
    failed_at, snapshot_at, source_event_id FROM refunds WHERE charge_id = :charge ORDER BY refund_id";
const DISPUTES_BY_INTENT: &str = "SELECT dispute_id, payment_intent, charge_id, amount, currency, status, withdrawn_at,
    reinstated_at, snapshot_at, source_event_id FROM disputes WHERE payment_intent = :intent ORDER BY dispute_id";
const DISPUTES_BY_CHARGE: &str = "SELECT dispute_id, payment_intent, charge_id, amount, currency, status, withdrawn_at,
    reinstated_at, snapshot_at, source_event_id FROM disputes WHERE charge_id = :charge ORDER BY dispute_id";

fn charge_from_row(row: &Row<'_>) -> rusqlite::Result<ChargeHeld> {
    Ok(ChargeHeld {
        id: row.get("charge_id")?,
        intent: row.get("payment_intent")?,
        account: row.get("account_id")?,
        currency: row.get("currency")?,
        captured: row.get("amount_captured")?,
        refunded: row.get("amount_refunded")?,
        at: row.get("snapshot_at")?,
        source: row.get("source_event_id")?,
    })
}

fn refund_from_row(row: &Row<'_>) -> rusqlite::Result<RefundHeld> {
    Ok(RefundHeld {
        id: row.get("refund_id")?,
        payment: PaymentRef { payment_intent: row.get("payment_intent")?, charge: row.get("charge_id")? },
        amount: row.get("amount")?,
        currency: row.get("currency")?,
        status: row.get("status")?,
        created: row.get("created_at")?,
        failed_at: row.get("failed_at")?,
        at: row.get("snapshot_at")?,
        source: row.get("source_event_id")?,
    })
}

fn dispute_from_row(row: &Row<'_>) -> rusqlite::Result<DisputeHeld> {
    Ok(DisputeHeld {
        id: row.get("dispute_id")?,
        payment: PaymentRef { payment_intent: row.get("payment_intent")?, charge: row.get("charge_id")? },
        amount: row.get("amount")?,
        currency: row.get("currency")?,
        status: row.get("status")?,
        withdrawn_at: row.get("withdrawn_at")?,
        reinstated_at: row.get("reinstated_at")?,
        at: row.get("snapshot_at")?,
        source: row.get("source_event_id")?,
    })
}

/// The invoices that any name of a payment is tied to.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn invoices_of(connection: &Connection, payment: &Payment) -> Result<Vec<InvoiceId>, StoreError> {
    let names = payment.intent.iter().map(PaymentId::as_str).chain(payment.charges.iter().map(ChargeId::as_str));
    let mut invoices = Vec::new();
    for name in names {
        let sql = "SELECT invoice_id FROM invoice_payments WHERE payment_id = :name ORDER BY invoice_id";
        for invoice in select(connection, sql, named_params! { ":name": name }, |row| row.get("invoice_id"))? {
            if !invoices.contains(&invoice) {
                invoices.push(invoice);
            }
        }
    }
    Ok(invoices)
}

/// The checkouts that a payment intent paid.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn checkouts_of(connection: &Connection, intent: &PaymentId) -> Result<Vec<CheckoutId>, StoreError> {
    let sql = "SELECT checkout_id FROM checkouts WHERE payment_intent = :intent ORDER BY checkout_id";
    select(connection, sql, named_params! { ":intent": intent }, |row| row.get("checkout_id"))
}

/// The sessions that made an invoice: one at most, as Stripe has it.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn sessions_of(connection: &Connection, invoice: &InvoiceId) -> Result<Vec<CheckoutId>, StoreError> {
    let sql = "SELECT checkout_id FROM checkout_invoices WHERE invoice_id = :invoice ORDER BY checkout_id";
    select(connection, sql, named_params! { ":invoice": invoice }, |row| row.get("checkout_id"))
}

/// The invoice that a session made.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn invoice_of(connection: &Connection, checkout: &CheckoutId) -> Result<Option<InvoiceId>, StoreError> {
    let sql = "SELECT invoice_id FROM checkout_invoices WHERE checkout_id = :checkout";
    Ok(select(connection, sql, named_params! { ":checkout": checkout }, |row| row.get("invoice_id"))?.pop())
}

/// What is known about an invoice that was paid, under each key that has granted it: its own, and that of its session,
/// for which an old table may have given. `told` are payments that an event ties to it now.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn invoice_roots(
    connection: &Connection,
    invoice: &InvoiceId,
    told: &[PaymentRef],
) -> Result<Vec<Root>, StoreError> {
    let own = invoice_root(connection, invoice, told)?;
    let mut roots = Vec::new();
    for session in sessions_of(connection, invoice)? {
        roots.extend(granted_as(&own, Fact::checkout(&session), connection)?);
    }
    if roots.is_empty() || matches!(own.decided, Decided::Granted(_)) {
        roots.insert(0, own);
    }
    Ok(roots)
}

/// What is known about the invoice that a session made, if the session has granted it.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn session_root(
    connection: &Connection,
    session: &CheckoutId,
    invoice: &InvoiceId,
) -> Result<Option<Root>, StoreError> {
    granted_as(&invoice_root(connection, invoice, &[])?, Fact::checkout(session), connection)
}

fn granted_as(root: &Root, fact: Fact, connection: &Connection) -> Result<Option<Root>, StoreError> {
    let granted = granted(connection, &fact)?;
    Ok(granted.map(|granted| Root { fact, decided: Decided::Granted(granted), ..root.clone() }))
}

fn invoice_root(connection: &Connection, invoice: &InvoiceId, told: &[PaymentRef]) -> Result<Root, StoreError> {
    let fact = Fact::invoice(invoice);
    let row: Option<(String, i64, Currency)> = connection
        .prepare_cached("SELECT status, amount_paid, currency FROM invoices WHERE invoice_id = :invoice")?
        .query_row(named_params! { ":invoice": invoice }, |row| {
            Ok((row.get("status")?, row.get("amount_paid")?, row.get("currency")?))
        })
        .optional()?;
    let status = row.as_ref().map(|(status, ..)| status.as_str());
    let granted = granted(connection, &fact)?;
    let is_dismissed = granted.is_none() && unfinished::is_dismissed(connection, invoice.as_str())?;
    let decided = Decided::of_invoice(granted, status, is_dismissed);
    let sql = "SELECT payment_id, is_intent FROM invoice_payments WHERE invoice_id = :invoice
               ORDER BY is_intent DESC, payment_id";
    let linked = select(connection, sql, named_params! { ":invoice": invoice }, |row| {
        Ok(if row.get("is_intent")? {
            PaymentRef { payment_intent: Some(row.get("payment_id")?), charge: None }
        } else {
            PaymentRef { payment_intent: None, charge: Some(row.get("payment_id")?) }
        })
    })?;
    let mut payments: Vec<Payment> = Vec::new();
    for names in linked.iter().chain(told) {
        if payments.iter().all(|held| !held.is_named(names)) {
            payments.push(payment(connection, names)?);
        }
    }
    Ok(Root {
        fact,
        decided,
        amount_paid: row.as_ref().map_or(0, |(_, amount_paid, _)| *amount_paid),
        currency: row.map(|(.., currency)| currency),
        payments,
    })
}

/// What is known about a paid checkout without invoice; `told` is the payment that an event ties to it now.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn checkout_root(
    connection: &Connection,
    checkout: &CheckoutId,
    told: Option<&PaymentId>,
) -> Result<Root, StoreError> {
    let fact = Fact::checkout(checkout);
    let row: Option<(i64, Option<Currency>, Option<PaymentId>)> = connection
        .prepare_cached("SELECT amount_paid, currency, payment_intent FROM checkouts WHERE checkout_id = :checkout")?
        .query_row(named_params! { ":checkout": checkout }, |row| {
            Ok((row.get("amount_paid")?, row.get("currency")?, row.get("payment_intent")?))
        })
        .optional()?;
    let decided = Decided::of_checkout(granted(connection, &fact)?, row.is_some());
    let (amount_paid, currency, intent) = row.unwrap_or_default();
    let payments = match intent.or_else(|| told.cloned()) {
        Some(intent) => vec![payment(connection, &PaymentRef { payment_intent: Some(intent), charge: None })?],
        None => Vec::new(),
    };
    Ok(Root { fact, decided, amount_paid, currency, payments })
}

/// The grant of a fact with what was taken back of it; of an old table's, also its further rows for the same thing, each
/// in a unit of its own. What is reversed has no units left that could be corrected.
fn granted(connection: &Connection, fact: &Fact) -> Result<Option<Granted>, StoreError> {
    let sql = "WITH rows AS (SELECT e.entry_id, e.account_id, e.kind, l.is_root, l.unit, l.amount
                             FROM ledger_entries e JOIN ledger_lines l ON l.entry_id = e.entry_id
                             WHERE e.fact = :fact
                             UNION ALL
                             SELECT e.entry_id, e.account_id, e.kind, l.is_root, l.unit, l.amount
                             FROM ledger_lines l JOIN ledger_entries e ON e.entry_id = l.entry_id
                             WHERE l.root = :fact AND l.is_root = 0)
               SELECT g.account_id, g.unit, g.amount, -coalesce(sum(c.amount), 0) AS taken,
                      -coalesce(sum(c.amount) FILTER (WHERE c.kind = 'import'), 0) AS taken_before,
                      EXISTS (SELECT 1 FROM ledger_entries r WHERE r.reverses = g.entry_id) AS is_reversed
               FROM rows g
               LEFT JOIN rows c ON c.unit = g.unit AND c.account_id = g.account_id AND c.entry_id <> g.entry_id
               WHERE g.amount > 0 AND (g.is_root OR g.kind = 'import')
                 AND g.account_id = (SELECT account_id FROM ledger_entries WHERE fact = :fact)
               GROUP BY g.unit ORDER BY g.unit";
    let rows: Vec<(AccountId, Option<UnitGranted>)> =
        select(connection, sql, named_params! { ":fact": fact }, |row| {
            let unit = UnitGranted {
                unit: row.get("unit")?,
                granted: row.get("amount")?,
                taken: row.get("taken")?,
                taken_before: row.get("taken_before")?,
            };
            Ok((row.get("account_id")?, (!row.get::<_, bool>("is_reversed")?).then_some(unit)))
        })?;
    let account = rows.first().map(|(account, _)| account.clone());
    Ok(account.map(|account| Granted { account, units: rows.into_iter().filter_map(|(_, unit)| unit).collect() }))
}
