//! What is stored of the corpus equals its source: each event runs through the whole pipeline into books of its own,
//! and the views are compared with plain JSON paths.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use billingd::domain::policy::{Basis, Catalogue, Credits, Policy, Tiers};
use billingd::ops::ingest::{Answer, Delivery, Duplicates, Ingest};
use billingd::store::events::Source;
use billingd::store::open::{self, Binding, ServerConnection};
use billingd::store::payload::Payload;
use billingd::store::writer::Batch as _;
use billingd::stripe::wire;
use rusqlite::TransactionBehavior;
use rusqlite::types::Value as Cell;
use serde_json::{Value, json};

/// Books that start empty.
struct Books {
    _folder: tempfile::TempDir,
    server: ServerConnection,
    ingest: Ingest,
}

impl Books {
    fn new(livemode: bool, connected_account: Option<String>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let binding = Binding { livemode, connected_account: connected_account.clone() };
        let server = open::server(&folder.path().join("books.db"), &binding).expect("a database");
        let policy = Policy {
            livemode,
            connected_account,
            credits: Credits { since: None, basis: Basis::AmountPaid(None), prorate: true, unlisted_price_fails: true },
            catalogue: Catalogue::default(),
            tiers: Tiers::default(),
            max_attempts: 5,
            asks_stripe: false,
        };
        let ingest = Ingest::new(Arc::new(policy), "account_id".into(), Duplicates::default());
        Self { _folder: folder, server, ingest }
    }

    fn deliver(&mut self, event: &Value) -> Answer {
        let body = event.to_string();
        let delivery = Delivery {
            event: wire::read(body.as_bytes(), "account_id").expect("an event"),
            payload: Some(Payload::pack(body.as_bytes()).expect("a payload")),
            source: Source::Webhook,
            received: 1_800_000_000_000,
        };
        let connection = self.server.connection();
        let transaction =
            rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate).expect("a transaction");
        let answers = self.ingest.run(&transaction, vec![delivery], 1_800_000_000_000).expect("a run");
        transaction.commit().expect("a commit");
        answers.into_iter().next().expect("an answer")
    }

    fn row(&self, sql: &str) -> Option<Vec<Cell>> {
        let mut statement = self.server.connection().prepare(sql).expect("a query");
        let columns = statement.column_count();
        let mut rows = statement.query([]).expect("rows");
        let row = rows.next().expect("a row")?;
        Some((0..columns).map(|column| row.get(column).expect("a cell")).collect())
    }
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::String(text) => Cell::Text(text.clone()),
        Value::Number(number) => Cell::Integer(number.as_i64().expect("an integer")),
        Value::Bool(flag) => Cell::Integer(i64::from(*flag)),
        Value::Object(object) => object.get("id").map_or(Cell::Null, cell),
        _ => Cell::Null,
    }
}

fn first<'a>(object: &'a Value, pointers: &[&str]) -> &'a Value {
    pointers.iter().filter_map(|path| object.pointer(path)).find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

/// The row that must be there after the event, and what it must hold; `None`: nothing of the object is stored.
fn expected(object: &Value) -> Option<(&'static str, Vec<Cell>)> {
    let id = || cell(first(object, &["/id", "/customer"]));
    match object["object"].as_str()? {
        "invoice" if object["id"].is_string() && !object["id"].as_str()?.starts_with("upcoming_") => {
            let paid = object["status"].as_str().map_or(object["paid"] == true, |status| status == "paid");
            let amount_paid =
                object["amount_paid"].as_i64().or(if paid { object["amount_due"].as_i64() } else { Some(0) });
            let out_of_band = object["paid_out_of_band"] == true && amount_paid == Some(0);
            let subscription = first(
                object,
                &[
                    "/parent/subscription_details/subscription",
                    "/subscription",
                    "/lines/data/0/parent/subscription_item_details/subscription",
                    "/lines/data/0/parent/invoice_item_details/subscription",
                    "/lines/data/0/subscription",
                ],
            );
            Some((
                "SELECT invoice_id, account_id, subscription_id, currency, total, amount_paid, status = 'paid' FROM v_invoices",
                vec![
                    id(),
                    cell(&object["customer"]),
                    cell(subscription),
                    cell(&object["currency"]),
                    cell(&object["total"]),
                    if out_of_band {
                        cell(&object["amount_due"])
                    } else {
                        amount_paid.map_or(Cell::Null, Cell::Integer)
                    },
                    Cell::Integer(i64::from(paid)),
                ],
            ))
        }
        "subscription" if object["items"]["has_more"] != true => {
            let items = object["items"]["data"].as_array().cloned().unwrap_or_default();
            let ends = items.iter().filter_map(|item| item["current_period_end"].as_i64()).max();
            let mut prices: Vec<String> = items
                .iter()
                .filter_map(|item| first(item, &["/price/id", "/plan/id"]).as_str().map(str::to_owned))
                .collect();
            if items.is_empty() {
                prices.push(object["plan"]["id"].as_str()?.to_owned());
            }
            prices.sort();
            Some((
                "SELECT subscription_id, account_id, status, price_ids, current_period_end, collection_paused FROM v_subscriptions",
                vec![
                    id(),
                    cell(&object["customer"]),
                    cell(&object["status"]),
                    Cell::Text(prices.join(",")),
                    ends.map_or_else(|| cell(&object["current_period_end"]), Cell::Integer),
                    Cell::Integer(i64::from(object["pause_collection"].is_object())),
                ],
            ))
        }
        "charge" if object["status"] != "failed" && object["paid"] != false => {
            let captured = if object["captured"] == false { 0 } else { object["amount"].as_i64()? };
            let captured = object["amount_captured"].as_i64().unwrap_or(captured);
            let released = (object["amount"].as_i64()? - captured).max(0);
            Some((
                "SELECT charge_id, payment_intent, account_id, currency, amount_captured, amount_refunded FROM payments",
                vec![
                    id(),
                    cell(&object["payment_intent"]),
                    cell(&object["customer"]),
                    cell(&object["currency"]),
                    Cell::Integer(captured),
                    Cell::Integer((object["amount_refunded"].as_i64()? - released).max(0)),
                ],
            ))
        }
        "refund" => Some((
            "SELECT refund_id, amount, currency, status FROM v_refunds",
            vec![id(), cell(&object["amount"]), cell(&object["currency"]), cell(&object["status"])],
        )),
        "dispute" => Some((
            "SELECT dispute_id, amount, currency, status FROM v_disputes",
            vec![
                cell(first(object, &["/id", "/charge"])),
                cell(&object["amount"]),
                cell(&object["currency"]),
                cell(&object["status"]),
            ],
        )),
        _ => None,
    }
}

/// A paid invoice and the link of a payment to it, so that what moves money has something to take back from.
fn ties(event: &Value) -> Vec<Value> {
    let object = &event["data"]["object"];
    let envelope = |id: &str, kind: &str, object: Value| {
        json!({
            "id": id, "object": "event", "type": kind, "created": 1, "livemode": event["livemode"],
            "account": first(event, &["/account", "/user_id"]), "data": {"object": object},
        })
    };
    let payment = match (cell(&object["payment_intent"]), cell(first(object, &["/charge", "/id"]))) {
        (Cell::Text(intent), _) => json!({"type": "payment_intent", "payment_intent": intent}),
        (_, Cell::Text(charge)) => json!({"type": "charge", "charge": charge}),
        _ => return Vec::new(),
    };
    let invoice = match cell(&object["invoice"]) {
        Cell::Text(invoice) => invoice,
        _ => "in_tied".to_owned(),
    };
    vec![
        envelope(
            "evt_tie_1",
            "invoice.paid",
            json!({
                "id": invoice, "object": "invoice", "customer": "cus_tied", "status": "paid", "currency": "usd",
                "total": 1000, "amount_due": 1000, "amount_paid": 1000,
                "lines": {"object": "list", "data": [], "has_more": false},
            }),
        ),
        envelope(
            "evt_tie_2",
            "invoice_payment.paid",
            json!({"id": "inpay_tied", "object": "invoice_payment", "invoice": invoice, "status": "paid", "payment": payment}),
        ),
    ]
}

#[test]
fn what_is_stored_of_the_corpus_equals_its_source() {
    let Some(folder) = std::env::var_os("BILLINGD_CORPUS") else {
        println!("skipped: BILLINGD_CORPUS names no folder");
        return;
    };
    let acted_on: Vec<&str> = wire::event_types().iter().map(|(kind, _)| *kind).collect();
    let (mut count, mut compared, mut complaints) = (0, 0, Vec::new());
    for part in ["events", "thin"] {
        for entry in fs::read_dir(Path::new(&folder).join(part)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let event: Value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
            let connected = first(&event, &["/account", "/user_id", "/context"]).as_str().map(str::to_owned);
            let mut books = Books::new(event["livemode"] == true, connected);
            let object = &event["data"]["object"];
            if matches!(object["object"].as_str(), Some("charge" | "refund" | "dispute")) {
                ties(&event).iter().for_each(|tie| drop(books.deliver(tie)));
            }
            let answer = books.deliver(&event);
            count += 1;
            let mut complain = |text: String| complaints.push(format!("{}: {text}", path.display()));
            if matches!(answer, Answer::Failed { .. } | Answer::DeadLetter { .. }) {
                complain(format!("{answer:?}"));
            }
            if !acted_on.contains(&event["type"].as_str().unwrap_or_default())
                || matches!(answer, Answer::Pending { .. })
            {
                continue;
            }
            if let Some((sql, row)) = expected(object) {
                compared += 1;
                let key = if sql.contains("v_invoices") { " WHERE invoice_id <> 'in_tied'" } else { "" };
                let stored = books.row(&format!("{sql}{key}"));
                if stored.as_ref() != Some(&row) {
                    complain(format!("{sql}\n  stored {stored:?}\n  source {row:?} ({answer:?})"));
                }
            }
        }
    }
    println!("{count} events ran, {compared} rows compared");
    assert!(compared > 0, "the corpus has nothing to compare");
    assert!(complaints.is_empty(), "{} of {count}:\n{}", complaints.len(), complaints.join("\n"));
}
