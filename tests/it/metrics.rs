//! What Prometheus is told.

use std::collections::BTreeMap;

use serde_json::json;

use super::fixtures::{Shape, customer, event, invoice, invoice_paid, nth_invoice_paid, subscription};
use super::harness::{Billing, NOW, PATH};
use super::visitor::{APP, METRICS, OPERATOR, bearer, open_to_all};

/// Each series and its number.
fn scraped(billing: &Billing) -> BTreeMap<String, String> {
    let answer = billing.asks(METRICS, "/metrics");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.body.as_str().expect("a text").to_owned();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    series
        .map(|line| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned())).expect("a number"))
        .collect()
}

#[track_caller]
fn has(series: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(series.get(*name).map(String::as_str), Some(*value), "{name} in {series:#?}");
    }
}

#[test]
fn only_who_watches_and_operators_see_them() {
    let billing = open_to_all().spawn();
    assert_eq!(billing.asks(METRICS, "/metrics").status, 200);
    assert_eq!(billing.asks(OPERATOR, "/metrics").status, 200);
    assert_eq!(billing.asks(APP, "/metrics").status, 403);
    assert_eq!(billing.visitor("GET", "/metrics", &[], "").status, 401);
    let head = billing.visitor("HEAD", "/metrics", &[&bearer(METRICS)], "");
    assert_eq!((head.status, head.body.as_str()), (200, Some("")));
    let post = billing.visitor("POST", "/metrics", &[&bearer(METRICS)], "");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD")));
    for path in ["/metrics/", "/metrics/x", "//metrics"] {
        assert_eq!(billing.asks(METRICS, path).status, 403, "{path}");
    }
}

#[test]
fn deliveries_are_counted_by_what_became_of_them() {
    let billing = open_to_all()
        .toml("[credits]\nbasis = \"catalogue\"\n[[price]]\nid = \"price_basic\"\ncredits = 100\n[processing]\nmax_attempts = 2\n")
        .spawn();
    let before = scraped(&billing);
    has(
        &before,
        &[
            ("billingd_deliveries_total{answer=\"applied\"}", "0"),
            ("billingd_deliveries_total{answer=\"dead_letter\"}", "0"),
            ("billingd_deliveries_by_type_total{type=\"invoice.paid\"}", "0"),
            ("billingd_delivery_duration_seconds_count", "0"),
            ("billingd_ledger_entries", "0"),
            ("billingd_oldest_pending_age_seconds", "0"),
            ("billingd_database_readable", "1"),
            ("billingd_writer_healthy", "1"),
        ],
    );
    assert!(!before.contains_key("billingd_last_delivery_timestamp_seconds"));
    let paid = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000);
    let again = event(Shape::New, "evt_2", "invoice.payment_succeeded", invoice(Shape::New, "in_1", "cus_1", 1));
    let other = event(Shape::New, "evt_3", "radar.early_fraud_warning.created", json!({ "id": "issfr_1" }));
    let mut truncated = invoice_paid(Shape::Old, "evt_4", "in_4", "cus_1", 2_000);
    truncated["data"]["object"]["lines"]["has_more"] = json!(true);
    let mut unlisted = invoice_paid(Shape::New, "evt_5", "in_5", "cus_1", 2_000);
    unlisted["data"]["object"]["lines"]["data"][0]["pricing"]["price_details"]["price"] = json!("price_other");
    let mut late = invoice_paid(Shape::New, "evt_6", "in_6", "cus_1", 2_000);
    late["data"]["object"]["lines"]["data"][0]["pricing"]["price_details"]["price"] = json!("price_other");
    for sent in [&paid, &paid, &paid, &again, &other, &truncated, &unlisted, &unlisted, &late] {
        billing.stripe_sends(sent);
    }
    billing.posts(PATH, &[], b"{}");
    billing.posts(PATH, &[("Stripe-Signature", "t=1,v1=00")], b"{}");
    billing.asks("wrong", "/");
    let after = scraped(&billing);
    has(
        &after,
        &[
            ("billingd_deliveries_total{answer=\"applied\"}", "1"),
            ("billingd_deliveries_total{answer=\"no_effect\"}", "1"),
            ("billingd_deliveries_total{answer=\"stale\"}", "0"),
            ("billingd_deliveries_total{answer=\"ignored\"}", "1"),
            ("billingd_deliveries_total{answer=\"duplicate\"}", "2"),
            ("billingd_deliveries_total{answer=\"pending\"}", "1"),
            ("billingd_deliveries_total{answer=\"failed\"}", "2"),
            ("billingd_deliveries_total{answer=\"dead_letter\"}", "1"),
            ("billingd_deliveries_by_type_total{type=\"invoice.paid\"}", "7"),
            ("billingd_deliveries_by_type_total{type=\"invoice.payment_succeeded\"}", "1"),
            ("billingd_deliveries_by_type_total{type=\"other\"}", "1"),
            ("billingd_deliveries_refused_total{reason=\"signature_missing\"}", "1"),
            ("billingd_deliveries_refused_total{reason=\"signature_malformed\"}", "1"),
            ("billingd_deliveries_refused_total{reason=\"signature_mismatch\"}", "0"),
            ("billingd_private_refused_total{reason=\"csrf\"}", "0"),
            ("billingd_private_refused_total{reason=\"token_unknown\"}", "1"),
            ("billingd_delivery_duration_seconds_count", "9"),
            ("billingd_delivery_duration_seconds_bucket{le=\"+Inf\"}", "9"),
            ("billingd_events_unfinished{status=\"pending\"}", "1"),
            ("billingd_events_unfinished{status=\"failed\"}", "1"),
            ("billingd_events_unfinished{status=\"dead_letter\"}", "1"),
            ("billingd_last_delivery_timestamp_seconds", &NOW.to_string()),
            ("billingd_start_time_seconds", &NOW.to_string()),
            ("billingd_ledger_entries", "1"),
        ],
    );
    let sum: f64 = after["billingd_delivery_duration_seconds_sum"].parse().expect("seconds");
    assert!(sum > 0.0 && sum < 60.0, "{sum}");
    let bytes = |name: &str| after[name].parse::<u64>().expect("bytes");
    assert_eq!(bytes("billingd_database_bytes"), billing.database().metadata().expect("a file").len());
    assert!(bytes("billingd_wal_bytes") > 0 && bytes("billingd_disk_free_bytes") > 0);
}

#[test]
fn what_the_books_say_is_read_when_it_is_asked_for() {
    let billing = open_to_all()
        .toml("[tiers]\norder = [\"pro\"]\n[credits]\nbasis = \"catalogue\"\n[[price]]\nid = \"price_pro\"\ntier = \"pro\"\ncredits = 1\n")
        .spawn();
    let unlisted = subscription(Shape::New, "sub_1", "cus_1", "price_other", "active");
    billing.stripe_sends(&event(Shape::New, "evt_1", "customer.subscription.created", unlisted));
    let mut truncated = invoice_paid(Shape::Old, "evt_4", "in_4", "cus_1", 2_000);
    truncated["data"]["object"]["lines"]["has_more"] = json!(true);
    billing.stripe_sends(&truncated);
    billing.somebody_runs("UPDATE events SET received_at = received_at - 90500 WHERE event_id = 'evt_4'");
    billing.somebody_runs(
        "INSERT INTO job_runs (job, started_at, finished_at, succeeded) VALUES
             ('reaper', 100, 101, 1), ('reaper', 200, 201, 1), ('reaper', 300, 301, 0), ('backup', 400, 401, 0)",
    );
    let series = scraped(&billing);
    has(
        &series,
        &[
            ("billingd_findings_open{kind=\"unlisted_price\"}", "1"),
            ("billingd_oldest_pending_age_seconds", "91"),
            ("billingd_job_last_success_timestamp_seconds{job=\"reaper\"}", "200"),
        ],
    );
    assert!(!series.contains_key("billingd_job_last_success_timestamp_seconds{job=\"backup\"}"));
}

#[test]
fn the_text_is_well_formed_and_names_nobody() {
    let billing = open_to_all().spawn();
    billing.stripe_sends(&event(Shape::New, "evt_1", "customer.created", customer("cus_1", "jane@example.com")));
    billing.stripe_sends(&nth_invoice_paid(2));
    let mut own = nth_invoice_paid(3);
    own["type"] = json!("cus_type_of_a_stranger");
    billing.stripe_sends(&own);
    let answer = billing.asks(METRICS, "/metrics");
    let text = answer.body.as_str().expect("a text");
    assert!(text.ends_with('\n'));
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().expect("a name");
            assert!(family.starts_with("billingd_") && rest.ends_with('.'), "{line}");
            assert_eq!(text.matches(&format!("# HELP {family} ")).count(), 1, "{family} stands once");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, family);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a number");
            assert!(name.starts_with(family), "{line} in {family}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    for private in ["evt_", "cus_", "\"in_", "sub_", "jane", "example.com", "op_", "stranger"] {
        let found = text
            .lines()
            .find(|line| !line.starts_with('#') && line.split('{').nth(1).is_some_and(|l| l.contains(private)));
        assert_eq!(found, None, "{private}");
    }
    assert!(text.lines().count() < 200, "few series");
}

#[test]
fn a_database_that_cannot_be_read_is_told_and_the_rest_goes_on() {
    let billing = open_to_all().spawn();
    billing.stripe_sends(&nth_invoice_paid(1));
    billing.somebody_runs("ALTER TABLE job_runs RENAME TO elsewhere");
    let series = scraped(&billing);
    has(&series, &[("billingd_database_readable", "0"), ("billingd_deliveries_total{answer=\"applied\"}", "1")]);
    assert!(!series.contains_key("billingd_ledger_entries"));
    billing.somebody_runs("ALTER TABLE elsewhere RENAME TO job_runs");
    has(&scraped(&billing), &[("billingd_database_readable", "1"), ("billingd_ledger_entries", "1")]);
}
