//! Books under test: the real ingest on a real database, below HTTP, told events batch by batch.
//!
//! A telling either commits every batch, with restarts, or runs in one transaction that is taken back at its end, which
//! is faster by far and leaves the database empty for the next one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use billingd::domain::policy::{Basis, Catalogue, Credits, Policy, PriceRule, Tiers};
use billingd::ops::ingest::{Answer, Delivery, Duplicates, Errand, Ingest, Rules};
use billingd::ops::replay::{self, How};
use billingd::store::events::Source;
use billingd::store::open::{self, Binding, ServerConnection};
use billingd::store::payload::{self, Payload};
use billingd::store::unfinished::Choice;
use billingd::store::writer::Batch as _;
use billingd::stripe::wire;
use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tempfile::TempDir;

use crate::sim::Told;
use crate::sim::world::{ADDON, FOREIGN, PRICES, SMS};

/// What the listed prices mean: tier, credits, unit.
pub(crate) const MEANINGS: [(Option<&str>, i64, &str); 5] = [
    (Some("basic"), 100, "credits"),
    (Some("pro"), 301, "credits"),
    (Some("team"), 1000, "credits"),
    (None, 50, "credits"),
    (None, 7, "sms"),
];

/// The price list of the simulated Stripe: each id with its rule.
pub(crate) fn price_list() -> impl Iterator<Item = (String, PriceRule)> {
    let rule = |index: usize| {
        let (tier, credits, unit) = MEANINGS[index];
        let rule = PriceRule {
            tier: tier.map(str::to_owned),
            credits,
            per_invoice: false,
            unit: unit.into(),
            unit_amount: None,
            foreign: false,
        };
        (PRICES[index].id.to_owned(), rule)
    };
    let foreign = PriceRule {
        tier: None,
        credits: 0,
        per_invoice: false,
        unit: "credits".into(),
        unit_amount: None,
        foreign: true,
    };
    (0..=SMS.max(ADDON)).map(rule).chain([(PRICES[FOREIGN].id.to_owned(), foreign)])
}

/// A policy over the prices of the simulated Stripe.
pub(crate) fn policy(basis: Basis, keep_until_period_end: bool) -> Policy {
    Policy {
        livemode: true,
        connected_account: None,
        credits: Credits { since: None, basis, prorate: true, unlisted_price_fails: true },
        catalogue: Catalogue::new(price_list()),
        tiers: Tiers {
            order: vec!["basic".into(), "pro".into(), "team".into()],
            keep_until_period_end,
            access_trialing: true,
            access_past_due: true,
            access_unpaid: false,
            access_collection_paused: true,
        },
        max_attempts: 5,
        asks_stripe: false,
    }
}

/// Live mode, its own events.
fn binding() -> Binding {
    Binding { livemode: true, connected_account: None }
}

/// A delivery of an event.
pub(crate) fn delivery(told: &Told, now: i64) -> Delivery {
    let body = told.body.to_string();
    let event = wire::read(body.as_bytes(), "account_id").expect("an event");
    let payload = Payload::pack(body.as_bytes()).expect("a payload");
    Delivery { event, payload: Some(payload), source: Source::Webhook, received: now * 1000 }
}

/// Every row that must not depend on the order, as text, by table and key.
pub(crate) type Totals = BTreeMap<String, String>;

/// What must be the same whatever the order: P8, and beyond it what supports it.
const TOTALS: &[(&str, &str)] = &[
    ("account", "SELECT account_id, tier, reference, deleted FROM v_accounts"),
    (
        "subscription",
        "SELECT subscription_id, account_id, status, tier, price_ids, quantity, current_period_end, ends_at,
                collection_paused, pending_tier, pending_tier_at FROM v_subscriptions",
    ),
    ("balance", "SELECT account_id || ' ' || unit, balance FROM v_balances"),
    ("grant", "SELECT root || ' ' || unit, account_id, sum(amount) FROM v_ledger GROUP BY account_id, root, unit"),
    ("invoice", "SELECT invoice_id, account_id, subscription_id, status, total, amount_paid FROM v_invoices"),
    ("refund", "SELECT refund_id, payment, amount, currency, status FROM v_refunds"),
    ("dispute", "SELECT dispute_id, payment, amount, currency, status FROM v_disputes"),
    ("event", "SELECT event_id, status FROM v_events WHERE source = 'webhook' AND status <> 'completed'"),
];

/// Reads the totals.
pub(crate) fn totals(connection: &Connection) -> Totals {
    let mut totals = Totals::new();
    for (name, sql) in TOTALS {
        let mut statement = connection.prepare_cached(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<String> = (0..columns).map(|index| cell(row.get(index).unwrap())).collect();
            totals.insert(format!("{name} {}", cells[0]), cells[1..].join(" | "));
        }
    }
    totals
}

fn cell(value: Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text,
        other => format!("{other:?}"),
    }
}

/// The number at the end of a row.
pub(crate) fn number_of(row: &str) -> i64 {
    row.rsplit(' ').next().unwrap_or_default().parse().expect("a number")
}

/// What differs between two books, a line each.
pub(crate) fn differences(one: &Totals, other: &Totals) -> Vec<String> {
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    let differing = names.filter(|name| one.get(*name) != other.get(*name));
    let show = |books: &Totals, name: &str| books.get(name).cloned().unwrap_or_else(|| "(none)".into());
    differing.map(|name| format!("{name}: {} <> {}", show(one, name), show(other, name))).collect()
}

/// How often something was seen, by name.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Adds one.
pub(crate) fn count(counts: &mut Counts, name: impl Into<String>, by: u64) {
    *counts.entry(name.into()).or_default() += by;
}

/// A database with an ingest on it.
pub(crate) struct Books {
    folder: TempDir,
    server: Option<ServerConnection>,
    policy: Arc<Policy>,
}

impl Books {
    pub(crate) fn open(policy: Policy) -> Self {
        // In memory where the system has such a folder: what is tested here is not the disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let mut books = Self { folder, server: None, policy: Arc::new(policy) };
        books.restart();
        books
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("books.db")
    }

    /// Closes the database, if it is open, and opens it again.
    fn restart(&mut self) {
        self.server = None;
        let server = open::server(&self.path(), &binding()).expect("a database");
        payload::keep_dictionary(server.connection()).unwrap();
        self.server = Some(server);
    }

    fn connection(&self) -> &Connection {
        self.server.as_ref().unwrap().connection()
    }

    pub(crate) fn begin(&self) -> Transaction<'_> {
        Transaction::new_unchecked(self.connection(), TransactionBehavior::Immediate).unwrap()
    }

    pub(crate) fn ingest(&self) -> Ingest {
        Ingest::new(self.policy.clone(), "account_id".into(), Duplicates::default())
    }

    /// A person beside the server runs again all that did not get through.
    fn somebody_replays(&self, now: i64) {
        let mut connection = open::beside(&self.path(), &binding()).expect("a connection beside the server");
        let rules = Rules { policy: self.policy.clone(), metadata_key: "account_id".into() };
        let errand = Errand::new(rules, "operator:alice");
        let choice = Choice { failed: true, pending: true, ..Choice::default() };
        let plan = replay::plan(&connection, &choice).expect("a plan");
        for ids in plan.ids.chunks(replay::BATCH) {
            replay::replay(&mut connection, &errand, ids, Vec::new(), How::default(), now * 1000).expect("a replay");
        }
    }

    /// Tells the batches in one transaction that is taken back.
    pub(crate) fn tell(&self, batches: &[Vec<&Delivery>], now: i64, counts: Option<&mut Counts>) -> Totals {
        let transaction = self.begin();
        let mut ingest = self.ingest();
        let mut answers = Vec::new();
        for batch in batches {
            let jobs = batch.iter().copied().cloned().collect();
            answers.extend(ingest.run(&transaction, jobs, now * 1000).expect("a batch"));
        }
        drain(&mut ingest, &transaction, now);
        let totals = totals(&transaction);
        if let Some(counts) = counts {
            exercise(&transaction, &answers, counts);
        }
        transaction.rollback().unwrap();
        totals
    }

    /// Tells the batches to a database of its own, each one committed, some followed by replays and a restart; and, at the end,
    /// lets time pass.
    pub(crate) fn tell_for_good(
        policy: Policy,
        batches: &[(Vec<&Delivery>, bool)],
        now: i64,
        later: i64,
    ) -> (Totals, Totals) {
        let mut books = Self::open(policy);
        let mut ingest = books.ingest();
        for (batch, restarts) in batches {
            let transaction = books.begin();
            let jobs = batch.iter().copied().cloned().collect();
            ingest.run(&transaction, jobs, now * 1000).expect("a batch");
            transaction.commit().unwrap();
            if *restarts {
                books.somebody_replays(now);
                books.restart();
                ingest = books.ingest();
            }
        }
        let transaction = books.begin();
        drain(&mut ingest, &transaction, now);
        let first = totals(&transaction);
        drain(&mut ingest, &transaction, later);
        let second = totals(&transaction);
        transaction.commit().unwrap();
        let report = billingd::ops::verify::verify(books.connection()).expect("a proof");
        assert!(report.clean, "{:?}", report.proofs);
        (first, second)
    }
}

/// What the writer does when no job comes.
pub(crate) fn drain(ingest: &mut Ingest, transaction: &Transaction<'_>, now: i64) {
    for _ in 0..1000 {
        ingest.run(transaction, Vec::new(), now * 1000).expect("a batch");
        if !ingest.is_urgent(now * 1000) {
            return;
        }
    }
    panic!("the work that is left never ends");
}

/// Counts what a telling made the rules do.
pub(crate) fn exercise(connection: &Connection, answers: &[Answer], counts: &mut Counts) {
    for answer in answers {
        match answer {
            Answer::Pending { needs } => {
                let kind = needs.split(':').next().unwrap_or_default();
                count(counts, format!("waits: {kind}"), 1);
            }
            Answer::Failed { code, .. } => count(counts, format!("fails: {code}"), 1),
            Answer::DeadLetter { code, .. } => {
                count(counts, format!("fails: {code}"), 1);
                count(counts, "dead letters: failed too often", 1);
            }
            Answer::Duplicate { .. } => count(counts, "duplicate", 1),
            Answer::Completed { .. } => {}
        }
    }
    let queries = [
        "SELECT 'outcome: ' || type || ' ' || coalesce(outcome, status), count(*) FROM v_events GROUP BY 1",
        "SELECT 'reason: ' || CASE WHEN reason LIKE '%granted by%' THEN 'granted by a twin'
                                   WHEN reason LIKE '%told the later%' OR reason LIKE '%told a later%' THEN 'told later'
                                   WHEN reason LIKE 'left to%' THEN 'left to invoice'
                                   WHEN reason LIKE '% repeats %' THEN 'repeats' ELSE reason END, count(*)
         FROM v_events WHERE reason IS NOT NULL GROUP BY 1",
        "SELECT 'entry: ' || kind, count(*) FROM ledger_entries GROUP BY 1",
        "SELECT 'tier: ' || coalesce(from_tier, '-') || ' -> ' || coalesce(to_tier, '-'), count(*)
         FROM tier_changes GROUP BY 1",
        "SELECT 'finding: ' || kind, count(*) FROM findings GROUP BY 1",
        "SELECT 'held tier', count(*) FROM subscriptions WHERE pending_tier_at IS NOT NULL",
        "SELECT 'tied snapshots: ' || min(json_array_length(newest), 4), count(*) FROM subscription_snapshots
         WHERE json_array_length(newest) > 1 GROUP BY 1",
        "SELECT 'refund: ' || coalesce(status, '-'), count(*) FROM refunds GROUP BY 1",
        "SELECT 'dispute: ' || status, count(*) FROM disputes GROUP BY 1",
        "SELECT 'balance below zero', count(*) FROM balances WHERE balance < 0",
        "SELECT 'two payments on one invoice', count(*) FROM (SELECT 1 FROM invoice_payments WHERE is_intent
         GROUP BY invoice_id HAVING count(*) > 1)",
        "SELECT 'job: ' || type, count(*) FROM events WHERE source = 'job' GROUP BY 1",
    ];
    for sql in queries {
        let mut statement = connection.prepare_cached(sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let seen: u64 = u64::try_from(row.get::<_, i64>(1).unwrap()).unwrap();
            if seen > 0 {
                count(counts, row.get::<_, String>(0).unwrap(), seen);
            }
        }
    }
}
