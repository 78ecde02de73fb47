//! Reconciliation with a Stripe that may know other things than the books.
//!
//! - `kinds.rs`: each kind of finding comes, and goes
//! - `lives.rs`: whole lives of customers under drops and outages
//! - `runs.rs`: runs that are cut short, restored books, look-alikes, many events

mod kinds;
mod lives;
mod runs;

use std::path::PathBuf;
use std::sync::Arc;

use billingd::domain::alert::{self, Thresholds};
use billingd::domain::policy::Policy;
use billingd::ops::alerts::{self, Scope};
use billingd::ops::ingest::{Delivery, Duplicates, Ingest};
use billingd::ops::reconcile::{self, Options, Place, Report, Rules};
use billingd::ops::resolve::Resolver;
use billingd::stop::Stop;
use billingd::store::events::Source;
use billingd::store::open::{self, Binding, CommandConnection};
use billingd::store::payload::{self, Payload};
use billingd::store::reader::Reader;
use billingd::store::writer::Batch as _;
use billingd::stripe::client::Api;
use billingd::stripe::wire;
use rusqlite::TransactionBehavior;
use serde_json::Value;

use crate::books::{Totals, drain, totals};
use crate::fake_stripe::FakeStripe;
use crate::harness::rows;

const DAY: i64 = 86_400;

/// Books, and a Stripe to compare them with.
struct Site {
    folder: tempfile::TempDir,
    connection: CommandConnection,
    fake: FakeStripe,
    rules: Rules,
    /// Seconds.
    now: i64,
}

impl Site {
    fn under(policy: Policy, now: i64) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let path = folder.path().join("books.db");
        let binding = Binding { livemode: policy.livemode, connected_account: policy.connected_account.clone() };
        payload::keep_dictionary(open::server(&path, &binding).unwrap().connection()).unwrap();
        let connection = open::beside(&path, &binding).unwrap();
        let rules = Rules {
            policy: policy.into(),
            metadata_key: "account_id".into(),
            lookback_s: 3 * DAY,
            grace_s: 600,
            paths: vec!["/webhooks/stripe".into()],
        };
        Self { folder, connection, fake: FakeStripe::default(), rules, now }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("books.db")
    }

    /// Stripe delivers events, now. It knows them, but does not list them unless they are put there.
    fn hears<'a>(&mut self, bodies: impl IntoIterator<Item = &'a Value>) {
        let received = self.now * 1000;
        let fake = self.fake.clone();
        let delivery = |body: &Value| {
            fake.put_unlisted(body.clone());
            let body = body.to_string();
            Delivery {
                event: wire::read(body.as_bytes(), "account_id").expect("an event"),
                payload: Some(Payload::pack(body.as_bytes()).unwrap()),
                source: Source::Webhook,
                received,
            }
        };
        let jobs = bodies.into_iter().map(delivery).collect();
        let mut ingest = Ingest::new(self.rules.policy.clone(), "account_id".into(), Duplicates::default());
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        ingest.run(&transaction, jobs, received).expect("a batch");
        drain(&mut ingest, &transaction, self.now);
        transaction.commit().unwrap();
        self.asks_what_events_wait_for();
    }

    /// As the server does beside everything else.
    fn asks_what_events_wait_for(&mut self) {
        let (now, mut resolver) = (self.now * 1000, Resolver::new(1));
        loop {
            resolver.look(&self.connection, now).unwrap();
            let fake = self.fake.clone();
            let passed = resolver.pass(&fake, &mut self.connection, &move || now, &Stop::default());
            if passed.unwrap().answered == 0 {
                return;
            }
            let mut ingest = Ingest::new(self.rules.policy.clone(), "account_id".into(), Duplicates::default());
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            drain(&mut ingest, &transaction, self.now);
            transaction.commit().unwrap();
        }
    }

    fn reconcile(&mut self) -> Report {
        self.reconcile_with(Options::default())
    }

    fn reconcile_with(&mut self, options: Options) -> Report {
        let fake = self.fake.clone();
        self.reconcile_at(&fake, options)
    }

    fn reconcile_at(&mut self, api: &dyn Api, options: Options) -> Report {
        self.reconcile_until(api, options, &Stop::default())
    }

    fn reconcile_until(&mut self, api: &dyn Api, options: Options, stop: &Stop) -> Report {
        // Between any two rows the books may be other ones.
        let (now, reader) = (self.now * 1000, Reader::open(&self.path(), 1).unwrap().seeing_at_most(1));
        let place = Place {
            api,
            reader: &reader,
            folder: self.folder.path(),
            clock: &move || now,
            stop,
            actor: "job:reconcile",
            progress: &|_, _| (),
        };
        reconcile::run(place, &mut self.connection, &self.rules, options).expect("a run")
    }

    fn rows(&self, sql: &str) -> Vec<String> {
        rows(&self.connection, sql)
    }

    /// `kind subject` of what is open.
    fn findings(&self) -> Vec<String> {
        self.rows("SELECT kind || ' ' || subject FROM v_findings WHERE status = 'open' ORDER BY 1")
    }

    /// What a person is told under this name now.
    fn condition(&self, name: &str) -> Vec<String> {
        let thresholds = Thresholds { success_rate_millionths: 990_000, ..Thresholds::default() };
        let scope = Scope { database: self.path(), thresholds, due: Arc::new(|_| Vec::new()) };
        let seen = alerts::read(&self.connection, &scope, self.now * 1000).expect("readings");
        let told = alert::conditions(&seen, &thresholds, self.now).into_iter();
        told.filter(|condition| condition.name == name).map(|condition| condition.text).collect()
    }

    fn totals(&self) -> Totals {
        totals(&self.connection)
    }

    fn runs_sql(&self, sql: &str) {
        self.connection.execute_batch(sql).expect(sql);
    }
}
