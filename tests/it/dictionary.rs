//! The dictionary that payloads are packed with: what it is worth, and that nothing packed is ever lost.
//!
//! To train a new one after the samples have changed much:
//! `BILLINGD_TRAIN=src/store/payload.dictionary cargo test --test it trains` (its input is fixed, so one version of zstd
//! always makes the same bytes of it).
//! Payloads packed with an older one stay readable: every database keeps each dictionary that it was served with.

use std::path::{Path, PathBuf};

use billingd::domain::decision::Outcome;
use billingd::domain::ids::EventId;
use billingd::samples::{self, Sample, Shape};
use billingd::store::events::{self, EventMeta, Source};
use billingd::store::open::{self, Binding, ServerConnection};
use billingd::store::payload::{self, Payload};
use billingd::stripe::wire;
use rusqlite::named_params;
use sha2::{Digest as _, Sha256};

const DICTIONARY_BYTES: usize = 16 * 1024;
const LEVEL: i32 = 1;

/// 2026-01-01: an event of the training set never has the time of another one.
const TRAINED_FROM: i64 = 1_767_225_600;
const TRAINED_STEP_S: i64 = 1_009;

/// How often a type stands in the training set. Invoices and subscriptions are most of what Stripe sends, and most of
/// it in the current shape.
fn weight(kind: &str, shape: Shape) -> u64 {
    let weight = match kind {
        "invoice.paid" | "invoice.payment_succeeded" => 30,
        _ if kind.starts_with("invoice.") || kind.starts_with("customer.subscription.") => 20,
        _ => 15,
    };
    if shape == Shape::Older { weight / 2 } else { weight }
}

/// An event of the training set, no two of them alike in what differs between real ones.
fn trained_on(number: u64, shape: Shape) -> Sample {
    let now = TRAINED_FROM + TRAINED_STEP_S * i64::try_from(number).unwrap();
    let pick = |choices: &[&str]| choices[usize::try_from(number).unwrap() % choices.len()].to_owned();
    let mut sample = Sample::new(number, now);
    sample.seed = number;
    sample.shape = shape;
    sample.subscribed_at = now - 86_400 * i64::try_from(number % 300).unwrap();
    sample.price = format!("price_1{}", &sample.subscription_id()[5..]);
    sample.previous_price = number.is_multiple_of(3).then(|| format!("price_1{}", &sample.invoice_id()[4..]));
    sample.quantity = if number.is_multiple_of(5) { 3 } else { 1 };
    sample.unit_amount = 500 + 100 * i64::try_from(number % 97).unwrap();
    sample.currency = pick(&["usd", "usd", "eur", "gbp"]);
    sample.refunded = number.is_multiple_of(2).then_some(300);
    sample.reference =
        (!number.is_multiple_of(4)).then(|| (pick(&["account_id", "user_id"]), format!("user-{number}")));
    sample.livemode = number.is_multiple_of(2);
    sample
}

fn training_set() -> Vec<Vec<u8>> {
    let mut number = 0;
    let mut bodies = Vec::new();
    for kind in samples::types() {
        for shape in [Shape::Current, Shape::Older] {
            for _ in 0..weight(kind, shape) {
                number += 1;
                bodies.push(trained_on(number, shape).body(kind).unwrap());
            }
        }
    }
    bodies
}

fn train(bodies: &[Vec<u8>]) -> Vec<u8> {
    zstd::dict::from_samples(bodies, DICTIONARY_BYTES).unwrap()
}

/// An event that was not trained on.
fn unseen(shape: Shape) -> Sample {
    Sample { seed: 0xfeed, shape, price: "price_1TnKq2LqT4dXK3v5Zu81Xy0a".into(), ..Sample::new(77, 1_799_123_456) }
}

#[test]
fn trains_a_new_dictionary_where_it_is_asked_to() {
    let Some(path) = std::env::var_os("BILLINGD_TRAIN").map(PathBuf::from) else { return };
    let dictionary = train(&training_set());
    assert_eq!(dictionary, train(&training_set()), "training must not depend on chance");
    std::fs::write(&path, dictionary).unwrap();
}

/// Sizes of a body as it is, compressed without a dictionary, and packed.
fn sizes(kind: &str, shape: Shape) -> [usize; 3] {
    let body = unseen(shape).body(kind).unwrap();
    let plain = zstd::bulk::compress(&body, LEVEL).unwrap().len();
    [body.len(), plain, Payload::pack(&body).unwrap().packed_bytes()]
}

/// What remains is mostly what is random in an event: its dozen ids, and the times.
#[test]
fn the_dictionary_makes_an_invoice_many_times_smaller() {
    let [body, plain, packed] = sizes("invoice.paid", Shape::Current);
    assert!(packed * 8 <= body && packed * 3 <= plain, "{body} bytes, {plain} plain, {packed} packed");
}

#[test]
fn the_dictionary_is_of_use_for_every_type() {
    for shape in [Shape::Current, Shape::Older] {
        for kind in samples::types() {
            let [body, plain, packed] = sizes(kind, shape);
            println!("{shape:?} {kind}: {body} bytes, {plain} plain, {packed} packed");
            assert!(packed < plain, "{shape:?} {kind}: {body} bytes, {plain} plain, {packed} packed");
        }
    }
}

/// A database that a server has prepared.
fn database(folder: &Path) -> ServerConnection {
    let database =
        open::server(&folder.join("books.db"), &Binding { livemode: false, connected_account: None }).unwrap();
    payload::keep_dictionary(database.connection()).unwrap();
    database
}

/// Stores the event of a body, without its payload.
fn complete(database: &ServerConnection, body: &[u8]) -> EventId {
    let event = wire::read(body, "account_id").unwrap();
    let meta = EventMeta::of(&event, Source::Webhook, None, event.created * 1000);
    events::complete(database.connection(), &meta, Outcome::Ignored, None, event.created * 1000).unwrap();
    event.id
}

#[test]
fn every_payload_comes_back_as_it_was_received() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    for (number, kind) in (1..).zip(samples::types()) {
        let body = Sample::new(number, TRAINED_FROM).body(kind).unwrap();
        let id = complete(&database, &body);
        payload::insert(database.connection(), &id, &Payload::pack(&body).unwrap()).unwrap();
        assert_eq!(payload::read(database.connection(), &id).unwrap(), Some(body), "{kind}");
    }
}

#[test]
fn a_payload_of_another_dictionary_comes_back_as_long_as_the_database_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let connection = database.connection();
    let bodies: Vec<_> =
        (1..200).map(|number| trained_on(number, Shape::Older).body("charge.succeeded").unwrap()).collect();
    let older = zstd::dict::from_samples(&bodies, 4_096).unwrap();
    let older_id = zstd::zstd_safe::get_dict_id_from_dict(&older).unwrap().get();
    connection
        .execute(
            "INSERT INTO payload_dictionaries (dictionary_id, content) VALUES (:id, :content)",
            named_params! { ":id": older_id, ":content": older },
        )
        .unwrap();

    let body = unseen(Shape::Older).body("charge.succeeded").unwrap();
    let id = complete(&database, &body);
    let packed = zstd::bulk::Compressor::with_dictionary(LEVEL, &older).unwrap().compress(&body).unwrap();
    assert_eq!(zstd::zstd_safe::get_dict_id_from_frame(&packed).unwrap().get(), older_id);
    connection
        .execute(
            "INSERT INTO event_payloads (event_id, body, digest) VALUES (:event, :body, :digest)",
            named_params! { ":event": id.as_str(), ":body": packed, ":digest": Sha256::digest(&body).to_vec() },
        )
        .unwrap();
    assert_eq!(payload::read(connection, &id).unwrap(), Some(body));
}
