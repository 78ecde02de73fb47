//! What one event costs, step by step, without HTTP: `cargo bench --bench core`.
//!
//! `apply` is the work of the writer: a batch inside one durable transaction on a database of its own. What an index costs
//! on it: `-- --save-baseline with apply`, then without the index in `migrations/` (and the queries that name it, none of
//! which runs here) `-- --baseline with apply`, side by side on an idle machine.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on shall stop")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use billingd::app;
use billingd::config;
use billingd::domain::decide::decide;
use billingd::domain::facts::Facts;
use billingd::domain::policy::Policy;
use billingd::ops::ingest::{Delivery, Duplicates, Ingest};
use billingd::store::events::Source;
use billingd::store::open::{self, Binding};
use billingd::store::payload::Payload;
use billingd::store::writer::Batch as _;
use billingd::stripe::signature::Verifier;
use billingd::stripe::wire;

mod support;

use support::{Events, SECRET};

const NOW_S: i64 = 1_770_000_000;
const METADATA_KEY: &str = "account_id";

fn policy() -> Policy {
    let environment = [("BILLINGD__STRIPE__LIVEMODE".to_owned(), "false".to_owned())];
    app::policy(&config::load(None, environment.into_iter()).expect("the defaults")).expect("a policy")
}

fn one_event(criterion: &mut Criterion) {
    let (body, header) = Events::of(1_000).signed(1, NOW_S);
    let body = body.as_bytes();
    let verifier = Verifier::new(&[SECRET.to_owned()], 300).expect("a verifier");
    let event = wire::read(body, METADATA_KEY).expect("an event");
    let policy = policy();

    let mut group = criterion.benchmark_group("event");
    group.throughput(Throughput::Elements(1));
    group.bench_function("verify", |bencher| {
        bencher.iter(|| verifier.verify(black_box(&[header.as_bytes()]), black_box(body), NOW_S));
    });
    group.bench_function("parse", |bencher| {
        bencher.iter(|| wire::read(black_box(body), METADATA_KEY));
    });
    group.bench_function("pack", |bencher| bencher.iter(|| Payload::pack(black_box(body))));
    group.bench_function("decide", |bencher| {
        bencher.iter(|| decide(black_box(&event), black_box(&Facts::default()), black_box(&policy), NOW_S));
    });
    group.finish();
}

fn apply(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("apply");
    for (accounts, batch) in [(1_000, 1_u64), (1_000, 64), (100_000, 64)] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let binding = Binding { livemode: false, connected_account: None };
        let server = open::server(&folder.path().join("books.db"), &binding).expect("a database");
        let mut ingest = Ingest::new(Arc::new(policy()), METADATA_KEY.to_owned(), Duplicates::default());
        let events = Events::of(accounts);
        let mut number = 0;
        group.throughput(Throughput::Elements(batch));
        group.bench_function(BenchmarkId::new(format!("{accounts} accounts, batch"), batch), |bencher| {
            bencher.iter_custom(|batches| {
                let mut spent = Duration::ZERO;
                for _ in 0..batches {
                    let deliveries: Vec<_> = (number..number + batch).map(|number| delivery(&events, number)).collect();
                    number += batch;
                    let began = Instant::now();
                    let transaction = server.connection().unchecked_transaction().expect("a transaction");
                    black_box(ingest.run(&transaction, deliveries, NOW_S * 1000).expect("a run"));
                    transaction.commit().expect("a commit");
                    spent += began.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

fn delivery(events: &Events, number: u64) -> Delivery {
    let body = events.body(number);
    Delivery {
        event: wire::read(body.as_bytes(), METADATA_KEY).expect("an event"),
        payload: Some(Payload::pack(body.as_bytes()).expect("a payload")),
        source: Source::Webhook,
        received: NOW_S * 1000,
    }
}

criterion_group!(benches, one_event, apply);
criterion_main!(benches);
