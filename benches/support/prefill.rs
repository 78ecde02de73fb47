//! Books that hold a lot already.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use billingd::clock::UnixMillis;
use billingd::ops::ingest::{Delivery, Duplicates, Ingest};
use billingd::store::events::Source;
use billingd::store::open::{self, Binding};
use billingd::store::payload::{self, Payload};
use billingd::store::writer::Batch as _;
use billingd::stripe::wire;
use billingd::{app, config};

use crate::server;
use crate::support::Events;

const METADATA_KEY: &str = "account_id";

/// Stores so many events by billingd's own code, in large transactions that are flushed once, at the end. They arrived
/// at `now`.
pub(crate) fn prefill(folder: &Path, count: u64, now: UnixMillis) {
    const BATCH: u64 = 10_000;
    let policy = app::policy(&config(folder)).expect("a policy");
    let mut ingest = Ingest::new(Arc::new(policy), METADATA_KEY.to_owned(), Duplicates::default());
    let binding = Binding { livemode: false, connected_account: None };
    let server = open::server(&folder.join("books.db"), &binding).expect("a database");
    let connection = server.connection();
    connection.execute_batch("PRAGMA synchronous = OFF").expect("a pragma");
    let events = Events::of(1_000);
    payload::keep_dictionary(connection).expect("a dictionary");
    for first in (0..count).step_by(usize::try_from(BATCH).expect("a batch")) {
        let deliveries = (first..count.min(first + BATCH)).map(|number| {
            let body = events.body(number);
            Delivery {
                event: wire::read(body.as_bytes(), METADATA_KEY).expect("an event"),
                payload: Some(Payload::pack(body.as_bytes()).expect("a payload")),
                source: Source::Webhook,
                received: now,
            }
        });
        let transaction = connection.unchecked_transaction().expect("a transaction");
        ingest.run(&transaction, deliveries.collect(), now).expect("a run");
        transaction.commit().expect("a commit");
    }
    drop(server);
    flush(folder);
}

/// What the system still has to write would slow the flushes that are measured.
pub(crate) fn flush(folder: &Path) {
    File::open(folder.join("books.db")).and_then(|books| books.sync_all()).expect("room on the disk");
}

fn config(folder: &Path) -> config::Config {
    config::load(Some(&server::write_config(folder, 0, None)), std::iter::empty()).expect("a config")
}
