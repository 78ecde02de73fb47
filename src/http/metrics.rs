//! `/metrics`: what was counted since the start, and what the books say now. Few series, and no ids.

use actix_web::{HttpResponse, Resource, web};

use crate::http::deliveries::BOUNDS_US;
use crate::http::exposition::{CONTENT_TYPE, Exposition, Kind};
use crate::http::private::{Private, reads};
use crate::ops::gauges::{self, Gauges};
use crate::store::disk;

/// Why nothing of a delivery is stored, as the answers of the public side have it.
const UNDELIVERED: [&str; 13] = [
    "signature_missing",
    "signature_malformed",
    "signature_mismatch",
    "timestamp_too_old",
    "timestamp_in_future",
    "body_not_json",
    "not_an_event",
    "body_broken",
    "body_too_large",
    "unsupported_encoding",
    "overloaded",
    "storage_unavailable",
    "timeout",
];

/// Why the private side turns somebody away.
const TURNED_AWAY: [&str; 6] = ["token_missing", "token_unknown", "session_invalid", "scope", "host", "csrf"];

/// The numbers at `path`.
pub(super) fn resource(path: &str) -> Resource {
    reads(path, scrape)
}

/// The database may be what is broken, so its numbers may be missing and the others are told all the same.
async fn scrape(private: web::Data<Private>) -> HttpResponse {
    let now = (private.clock)();
    let gauges = private.quick.read(move |reader| reader.read(|connection| gauges::read(connection, now))).await;
    let mut text = Exposition::default();
    process(&private, &mut text);
    traffic(&private, &mut text);
    files(&private, &mut text);
    let readable = u8::from(gauges.is_ok());
    text.single("billingd_database_readable", Kind::Gauge, "1: the numbers of the books are here.", readable);
    if let Ok(gauges) = gauges {
        books(gauges, &mut text);
    }
    HttpResponse::Ok().content_type(CONTENT_TYPE).body(text.into_text())
}

fn process(private: &Private, text: &mut Exposition) {
    let version = [(env!("CARGO_PKG_VERSION"), 1)];
    text.labelled("billingd_build_info", Kind::Gauge, "Always 1; tells the version.", "version", version);
    let started = private.started / 1000;
    text.single("billingd_start_time_seconds", Kind::Gauge, "When the server started, Unix time.", started);
    let healthy = u8::from(private.writer.health().check().is_ok());
    let help = "1: the writer lives and the database takes writes.";
    text.single("billingd_writer_healthy", Kind::Gauge, help, healthy);
}

fn traffic(private: &Private, text: &mut Exposition) {
    let public = &private.public;
    let deliveries = &public.deliveries;
    let help = "Authentic deliveries by their answer.";
    text.labelled("billingd_deliveries_total", Kind::Counter, help, "answer", deliveries.by_answer());
    let help = "Authentic deliveries by the type of their event.";
    text.labelled("billingd_deliveries_by_type_total", Kind::Counter, help, "type", deliveries.by_type());
    let help = "Deliveries of which nothing was stored, by reason.";
    text.labelled(
        "billingd_deliveries_refused_total",
        Kind::Counter,
        help,
        "reason",
        public.rejections.counts(&UNDELIVERED),
    );
    let help = "Requests to the private listener that were turned away, by reason.";
    text.labelled(
        "billingd_private_refused_total",
        Kind::Counter,
        help,
        "reason",
        private.refusals.counts(&TURNED_AWAY),
    );
    let (up_to, sum_us) = deliveries.durations();
    let help = "How long authentic deliveries took, the commit included.";
    text.histogram("billingd_delivery_duration_seconds", help, &BOUNDS_US, &up_to, sum_us);
}

fn files(private: &Private, text: &mut Exposition) {
    if let Ok(room) = disk::room(&private.database) {
        text.single("billingd_disk_free_bytes", Kind::Gauge, "Room on the disk of the database.", room.free);
        text.single("billingd_database_bytes", Kind::Gauge, "The size of the database.", room.database);
    }
    let wal = disk::wal(&private.database).bytes;
    text.single("billingd_wal_bytes", Kind::Gauge, "The size of the write-ahead log.", wal);
}

fn books(books: Gauges, text: &mut Exposition) {
    let help = "Events that are not completed, by status.";
    text.labelled("billingd_events_unfinished", Kind::Gauge, help, "status", books.unfinished);
    let help = "How long the oldest pending event has waited; 0: none.";
    text.single("billingd_oldest_pending_age_seconds", Kind::Gauge, help, books.oldest_pending_s);
    let help = "Findings that are open, by kind.";
    text.labelled("billingd_findings_open", Kind::Gauge, help, "kind", books.findings);
    if let Some(at) = books.last_delivery {
        let help = "When an event came last by webhook for the first time, Unix time.";
        text.single("billingd_last_delivery_timestamp_seconds", Kind::Gauge, help, at);
    }
    let help = "When the last run of each job began that succeeded, Unix time.";
    text.labelled("billingd_job_last_success_timestamp_seconds", Kind::Gauge, help, "job", books.successes);
    text.single("billingd_ledger_entries", Kind::Gauge, "Entries of the ledger.", books.entries);
}
