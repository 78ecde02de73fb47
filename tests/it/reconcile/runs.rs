//! Runs that are cut short, restored books, look-alikes, and many events.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use billingd::domain::policy::{Basis, Policy};
use billingd::ops::reconcile::{Ended, Options};
use billingd::stop::Stop;
use billingd::stripe::client::{Api, ApiError, Dated, Kind};
use serde_json::{Value, json};

use super::{DAY, Site};
use crate::books::{differences, policy};
use crate::fake_stripe::Fault;
use crate::fixtures::{SHAPES, Shape, event, invoice, invoice_paid, merge};
use crate::harness::{NOW, rows, spawn};

fn test_mode() -> Policy {
    Policy { livemode: false, asks_stripe: true, ..policy(Basis::AmountPaid(None), false) }
}

/// A day old, so that it is no change in flight.
fn dated(mut event: Value, at: i64) -> Value {
    event["created"] = json!(at);
    event
}

fn subscription(id: &str, status: &str) -> Value {
    json!({
        "id": id, "object": "subscription", "customer": "cus_1", "status": status, "created": NOW - 9 * DAY,
        "livemode": false, "metadata": {}, "cancel_at_period_end": false,
        "items": { "object": "list", "has_more": false, "data": [{
            "id": "si_1", "quantity": 1, "current_period_end": NOW + DAY,
            "price": { "id": "price_basic", "object": "price", "product": "prod_1", "currency": "usd" },
        }] },
    })
}

/// Five of each: events that never came, with their invoices, and subscriptions that are canceled here.
fn full_of_differences() -> Site {
    full_of_differences_at(NOW)
}

fn full_of_differences_at(now: i64) -> Site {
    let mut site = Site::under(test_mode(), now);
    for number in 0..5 {
        let (shape, id) = (SHAPES[number % 2], format!("in_{number}"));
        let at = now - DAY - i64::try_from(number).unwrap();
        let paid = |shape| {
            let mut paid = invoice(shape, &id, "cus_1", 2_000);
            merge(&mut paid, json!({ "created": at }));
            paid
        };
        site.fake.put(dated(event(shape, &format!("evt_{number}"), "invoice.paid", paid(shape)), at));
        site.fake.put_shapes(paid(Shape::Old), paid(Shape::New));
        let of_it = format!("sub_{number}");
        site.fake.put(subscription(&of_it, "active"));
        site.hears([&event(
            Shape::New,
            &format!("evt_of_{of_it}"),
            "customer.subscription.deleted",
            subscription(&of_it, "canceled"),
        )]);
        site.fake.put(json!({
            "id": format!("re_{number}"), "object": "refund", "charge": format!("ch_{number}"), "amount": 1,
            "payment_intent": null, "currency": "usd", "status": "succeeded", "created": now - DAY,
        }));
    }
    site.fake.page_max(2);
    site
}

#[test]
fn a_run_that_is_cut_short_concludes_nothing_from_absence() {
    for (path, pages) in [("/v1/events", 3), ("/v1/subscriptions", 3), ("/v1/invoices", 3), ("/v1/refunds", 3)] {
        for page in 1..=pages {
            let mut site = full_of_differences();
            // Here and not at Stripe: nobody may conclude that before the end of the list.
            site.hears([&event(Shape::New, "evt_x", "customer.subscription.created", subscription("sub_x", "active"))]);
            site.runs_sql(&format!(
                "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at)
                 VALUES ('subscription_tier', 'sub_0', 'open', {NOW}, {NOW}), ('invoice_status', 'in_0', 'open', {NOW}, {NOW})"
            ));
            site.fake.order(Fault::at(path).page(page).status(500));
            let report = site.reconcile();
            assert_eq!(report.result, Ended::Partial, "{path} page {page}");
            assert!(report.cut_short[0].contains(path), "{:?}", report.cut_short);
            let gone = site.rows("SELECT subject FROM v_findings WHERE status = 'resolved'");
            assert_eq!(gone, Vec::<String>::new(), "{path} page {page}");
            let absent = site.findings().contains(&"subscription_missing_at_stripe sub_x".to_owned());
            // Another list may be cut short, but not that of events: what differs could still be on its way.
            assert_eq!(absent, path == "/v1/invoices" || path == "/v1/refunds", "{path} page {page}");
            let known = site.rows("SELECT result, known_until FROM reconciliation_runs");
            let until = if path == "/v1/events" { String::new() } else { NOW.to_string() };
            assert_eq!(known, [format!("partial|{until}")], "{path} page {page}");
            site.fake.heal();
            assert_eq!(site.reconcile().result, Ended::Ok);
            let gone = site.rows("SELECT kind || ' ' || subject FROM v_findings WHERE status = 'resolved' ORDER BY 1");
            assert_eq!(gone, ["invoice_status in_0", "subscription_tier sub_0"], "{path} page {page}");
        }
    }
}

#[test]
fn a_second_run_changes_nothing() {
    let mut site = full_of_differences();
    let first = site.reconcile();
    assert_eq!((first.counts.missing, first.counts.completed, first.counts.found), (5, 5, 5));
    let books = "SELECT event_id, status, duplicates FROM events";
    let told = "SELECT kind, subject, expected, actual, status, first_seen_at FROM v_findings";
    let (totals, events, findings) = (site.totals(), site.rows(books), site.rows(told));
    let second = site.reconcile();
    assert_eq!((second.counts.missing, second.counts.found, second.counts.found_again), (0, 0, 5));
    assert_eq!((site.totals(), site.rows(books), site.rows(told)), (totals, events, findings));
    let audit = "SELECT actor || ' ' || subject FROM v_audit WHERE action = 'reconcile'";
    assert_eq!(site.rows(audit), ["job:reconcile run 1", "job:reconcile run 2"]);
}

#[test]
fn a_change_in_flight_is_left_for_the_next_run() {
    let mut site = Site::under(test_mode(), NOW);
    site.hears([&event(Shape::New, "evt_1", "customer.subscription.created", subscription("sub_1", "active"))]);
    let gone = subscription("sub_1", "canceled");
    site.fake.put(gone.clone());
    site.fake.put(dated(event(Shape::New, "evt_2", "customer.subscription.deleted", gone), NOW - 5));
    let report = site.reconcile_with(Options { since_s: None, no_backfill: true });
    assert_eq!((report.result, report.counts.in_flight, site.findings().len()), (Ended::Ok, 1, 0));
    site.now += 601;
    site.reconcile_with(Options { since_s: None, no_backfill: true });
    assert_eq!(site.findings(), ["subscription_state sub_1"], "it never came");
}

/// A look at the waiting events sees the first and the last of them.
#[test]
fn what_a_fetched_event_waits_for_is_asked_wherever_it_stands_in_the_line() {
    let by_lines = Policy { livemode: false, asks_stripe: true, ..policy(Basis::Catalogue, false) };
    let mut site = Site::under(by_lines, NOW);
    site.runs_sql(&format!(
        "WITH RECURSIVE n(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM n WHERE n < 1599)
         INSERT INTO events (event_id, source, type, status, needs, livemode, created_at, received_at, tried_at)
         SELECT iif(n < 1300, 'evt_a', 'evt_z') || n, 'import', 't', 'pending', 'grant:x', 0, {NOW}, {NOW} * 1000, 0 FROM n;
         INSERT INTO event_needs SELECT needs, event_id FROM events"
    ));
    let mut paid = invoice_paid(Shape::Old, "evt_m", "in_1", "cus_1", 2_000);
    site.fake.put(paid["data"]["object"].clone());
    paid["data"]["object"]["lines"]["has_more"] = json!(true);
    site.fake.put(dated(paid, NOW - DAY));
    let report = site.reconcile();
    assert_eq!((report.counts.missing, report.counts.pending), (1, 1));
    assert_eq!(site.rows("SELECT status FROM events WHERE event_id = 'evt_m'"), ["completed"]);
}

#[test]
fn the_wrong_mode_ends_a_run_before_it_concludes_anything() {
    let mut site = Site::under(test_mode(), NOW);
    let mut live = subscription("sub_1", "active");
    live["livemode"] = json!(true);
    site.fake.put(live);
    let report = site.reconcile();
    assert_eq!(report.result, Ended::Partial);
    assert!(report.cut_short[0].contains("stripe.api_key opens the live mode"), "{:?}", report.cut_short);
    assert_eq!(site.rows("SELECT known_until FROM reconciliation_runs"), [""], "its events are not ours");
    assert_eq!(site.findings(), Vec::<String>::new());
}

#[test]
fn the_key_of_another_account_writes_nothing_into_the_books() {
    let mut site = Site::under(test_mode(), NOW);
    site.hears([&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000)]);
    site.fake.remove("evt_1");
    site.fake.put(dated(invoice_paid(Shape::New, "evt_9", "in_9", "cus_9", 2_000), NOW - DAY));
    let report = site.reconcile();
    assert_eq!((report.result, report.counts.events, report.cut_short.len()), (Ended::Failed, 0, 1));
    assert!(report.cut_short[0].contains("stripe.api_key opens another account"), "{:?}", report.cut_short);
    assert_eq!((site.rows("SELECT event_id FROM events"), site.findings().len()), (vec!["evt_1".to_owned()], 0));
    assert_eq!(site.rows("SELECT known_until FROM reconciliation_runs"), [""]);
    site.fake.order(Fault::at("/v1/events/evt_1").status(403));
    assert_eq!(site.reconcile().counts.completed, 1, "nobody can tell");
    let mut site = Site::under(test_mode(), NOW);
    site.hears([&dated(invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000), NOW - 30 * DAY)]);
    site.fake.remove("evt_1");
    assert_eq!(site.reconcile().result, Ended::Ok, "Stripe has forgotten it");
    let mut site = Site::under(test_mode(), NOW);
    site.hears([&event(Shape::New, "evt_1", "a.new.thing", json!({ "id": "n_1", "object": "n" }))]);
    site.fake.remove("evt_1");
    assert_eq!(site.reconcile().result, Ended::Ok, "what is not for us proves nothing");
}

#[test]
fn a_key_that_may_not_read_everything_still_compares_the_rest() {
    let mut site = full_of_differences();
    for path in ["/v1/webhook_endpoints", "/v1/disputes", "/v1/checkout/sessions"] {
        site.fake.order(Fault::at(path).status(403));
    }
    let report = site.reconcile();
    assert_eq!((report.result, report.cannot_tell.len(), report.counts.found), (Ended::Ok, 3, 5));
}

#[test]
fn what_another_part_cannot_tell_opens_no_gap_of_events() {
    let mut site = Site::under(test_mode(), NOW);
    site.fake.order(Fault::at("/v1/subscriptions").status(403));
    for _ in 0..3 {
        assert_eq!(site.reconcile().result, Ended::Partial);
        site.now += 20 * DAY;
    }
    assert_eq!(site.findings(), Vec::<String>::new(), "all events were seen, every time");
}

#[test]
fn many_old_findings_are_looked_at_as_far_as_the_limit_leaves_room() {
    let mut site = Site::under(test_mode(), NOW);
    site.runs_sql(&format!(
        "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at)
         SELECT kind, prefix || value, 'open', {NOW}, {NOW}
         FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 1100) SELECT value FROM n),
              (SELECT 'subscription_state' AS kind, 'sub_' AS prefix
              UNION ALL SELECT 'invoice_status', 'in_' UNION ALL SELECT 'refund_not_applied', 're_')"
    ));
    let report = site.reconcile();
    assert_eq!((report.result, report.cut_short), (Ended::Ok, Vec::new()));
    assert_eq!((report.counts.resolved, report.counts.open), (3_000, 300));
    assert_eq!((site.reconcile().counts.resolved, site.findings().len()), (300, 0), "the next run looks at the rest");
}

#[test]
fn one_thing_that_cannot_be_read_stops_nothing_else() {
    let mut site = full_of_differences();
    site.fake.put(json!({ "id": "sub_2", "object": "subscription", "created": NOW - DAY, "status": 7 }));
    site.fake.put(json!({ "id": "in_8", "object": "invoice", "created": NOW - DAY, "status": "paid", "total": "x" }));
    site.fake.put(json!({ "id": "evt_2", "object": "event", "created": NOW - 2 * DAY, "type": 7 }));
    site.fake.remove("in_2");
    let report = site.reconcile();
    assert_eq!((report.result, report.counts.completed, report.counts.found), (Ended::Partial, 4, 4), "{report:?}");
    let told = report.cut_short.join("; ");
    assert!(
        ["/v1/events/evt_2: ", "/v1/subscriptions/sub_2: ", "/v1/invoices/in_8: "].iter().all(|id| told.contains(id)),
        "{told}"
    );
    let until = (NOW - 2 * DAY).to_string();
    assert_eq!(site.rows("SELECT known_until FROM reconciliation_runs"), [until], "the event may still come");
}

#[test]
fn events_of_a_connected_account_are_its_own() {
    let mut site = Site::under(Policy { connected_account: Some("acct_1".into()), ..test_mode() }, NOW);
    site.fake.put(dated(invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000), NOW - DAY));
    assert_eq!(site.reconcile().counts.completed, 1);
    assert_eq!(site.rows("SELECT outcome, stripe_account FROM v_events"), ["applied|acct_1"]);
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_has_and_the_next_one_goes_on() {
    let mut site = full_of_differences();
    let stop = Stop::default();
    stop.set();
    let report = site.reconcile_until(&site.fake.clone(), Options::default(), &stop);
    assert_eq!((report.result, report.counts.missing, report.counts.completed), (Ended::Failed, 5, 0));
    assert!(report.cut_short[0].contains("being stopped"), "{:?}", report.cut_short);
    assert_eq!(site.reconcile().counts.completed, 5);
}

/// localstripe, as far as it matters here: events oldest first, no such thing as filters by time, and no payments of
/// invoices.
#[test]
fn a_look_alike_that_cannot_tell_finds_nothing() {
    for is_filtering in [false, true] {
        let mut site = full_of_differences();
        site.fake.oldest_first();
        site.fake.order(Fault::at("/v1/invoice_payments").body(404, "not found"));
        site.fake.order(Fault::at("/v1/webhook_endpoints").body(404, "not found"));
        for path in ["/v1/events", "/v1/invoices", "/v1/refunds", "/v1/disputes", "/v1/checkout/sessions"] {
            if !is_filtering {
                site.fake.order(Fault::at(path).status(500));
            }
        }
        let report = site.reconcile();
        if is_filtering {
            assert_eq!((report.result, report.counts.completed), (Ended::Ok, 5));
            assert_eq!(report.cannot_tell.len(), 1, "{:?}", report.cannot_tell);
        } else {
            assert_eq!((report.result, report.counts.events), (Ended::Partial, 0));
            assert_eq!(site.findings(), Vec::<String>::new(), "nobody can tell what is on its way");
        }
    }
}

#[test]
fn events_of_other_types_are_not_walked_through() {
    let mut site = Site::under(test_mode(), NOW);
    for number in 0..300 {
        let kind = if number % 3 == 0 { "customer.created" } else { "payout.paid" };
        let object = json!({ "id": format!("x_{number}"), "object": "customer", "metadata": {} });
        site.fake.put(dated(event(Shape::New, &format!("evt_{number:03}"), kind, object), NOW - DAY - number));
    }
    let report = site.reconcile();
    assert_eq!((report.counts.events, report.counts.missing, report.counts.completed), (100, 100, 100));
    let calls = site.fake.calls_of("/v1/events");
    // One look, and a list for each twenty types of ours; one more for the last minutes would come with a difference.
    assert_eq!(calls.len(), 4 + usize::from(report.counts.found > 0));
    assert!(calls[1].parameter("types[]").is_some());
}

#[test]
fn a_restored_backup_is_brought_back_by_one_run() {
    let (mut twin, mut site) = (Site::under(test_mode(), NOW), Site::under(test_mode(), NOW));
    let mut at = 0;
    let mut tell = |sites: &mut [&mut Site], numbers: std::ops::Range<usize>| {
        for number in numbers {
            at += 600;
            let (shape, customer) = (SHAPES[number % 2], format!("cus_{}", number % 3));
            let mut paid = invoice(shape, &format!("in_{number}"), &customer, 2_000);
            merge(&mut paid, json!({ "created": NOW + at, "status_transitions": { "paid_at": NOW + at } }));
            let paid = dated(event(shape, &format!("evt_{number}"), "invoice.paid", paid.clone()), NOW + at);
            for one in sites.iter_mut() {
                one.fake.put(paid.clone());
                one.fake.put(paid["data"]["object"].clone());
                one.hears([&paid]);
            }
        }
    };
    tell(&mut [&mut twin, &mut site], 0..20);
    (twin.now, site.now) = (NOW + 20 * 600 + 700, NOW + 20 * 600 + 700);
    assert_eq!((twin.reconcile().result, site.reconcile().result), (Ended::Ok, Ended::Ok));
    // The backup of the night; then a day, and the disk is gone.
    let backup = site.folder.path().join("backup.db");
    site.runs_sql(&format!("VACUUM INTO '{}'", backup.display()));
    tell(&mut [&mut twin, &mut site], 20..60);
    let now = NOW + 2 * DAY;
    (twin.now, site.now) = (now, now);
    assert_eq!(differences(&twin.totals(), &site.totals()), Vec::<String>::new());
    let binding = billingd::store::open::Binding { livemode: false, connected_account: None };
    site.connection = billingd::store::open::beside(&backup, &binding).unwrap();
    for side in ["books.db-wal", "books.db-shm"] {
        drop(fs::remove_file(site.folder.path().join(side)));
    }
    fs::copy(&backup, site.path()).unwrap();
    site.connection = billingd::store::open::beside(&site.path(), &binding).unwrap();
    assert!(differences(&twin.totals(), &site.totals()).len() > 40, "the day is lost");
    let report = site.reconcile();
    assert_eq!((report.result, report.counts.missing), (Ended::Ok, 40));
    assert_eq!(differences(&twin.totals(), &site.totals()), Vec::<String>::new());
    assert_eq!(site.findings(), ["silence /webhooks/stripe"], "no webhook came to these books since");
}

#[test]
fn the_command_tells_what_it_found() {
    let site = full_of_differences_at(billingd::clock::now() / 1000);
    let served = site.fake.serve();
    let billing = spawn();
    let run = |arguments: &[&str], key: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_billingd"));
        command.env_clear().env("BILLINGD__STRIPE__API_BASE", served.url()).env("LOGNAME", "ann");
        if let Some(key) = key {
            command.env("BILLINGD__STRIPE__API_KEY", key);
        }
        let output = command.arg("--config").arg(billing.config_file()).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (status, _, error) = run(&["reconcile"], None);
    assert!(status == 1 && error.contains("there is no [stripe] api_key"), "{status} {error}");
    let (status, out, error) = run(&["reconcile"], Some("rk_test_1"));
    assert_eq!((status, error.as_str()), (3, ""), "{out}");
    for text in
        ["5 had never arrived here (5 completed", "subscription_missing_here", "billingd repair subscription sub_0"]
    {
        assert!(out.contains(text), "{text} is not in\n{out}");
    }
    let (status, out, _) = run(&["reconcile", "--no-backfill", "--json"], Some("rk_test_1"));
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &told["result"], &told["found"], &told["open"]), (3, &json!("ok"), &json!(0), &json!(5)));
    assert_eq!(told["findings"][0]["command"], "billingd repair subscription sub_4");
    let (status, out, _) = run(&["findings", "acknowledge", "1", "--reason", "agreed"], None);
    assert!(status == 0 && out.contains("is acknowledged"), "{status} {out}");
    let (status, out, _) = run(&["findings", "list", "--status", "acknowledged"], None);
    assert!(status == 0 && out.contains("acknowledged: agreed"), "{status} {out}");
    let (status, _, error) = run(&["findings", "acknowledge", "99", "--reason", "agreed"], None);
    assert!(status == 1 && error.contains("there is no finding 99"), "{status} {error}");
    site.fake.order(Fault::at("/v1/subscriptions").status(401));
    let (status, out, _) = run(&["reconcile"], Some("rk_test_1"));
    assert!(status == 1 && out.contains("CUT SHORT    subscriptions"), "{status} {out}");
}

/// A Stripe of any size that takes no memory: all is computed when it is asked for.
struct Endless {
    events: usize,
    subscriptions: usize,
    pages: AtomicUsize,
}

impl Endless {
    fn page(&self, total: usize, after: Option<&str>, render: impl Fn(usize) -> Value) -> Vec<u8> {
        self.pages.fetch_add(1, Ordering::Relaxed);
        let first = after.map_or(0, |id| id.rsplit('_').next().unwrap().parse::<usize>().unwrap() + 1);
        let last = total.min(first + 100);
        let data: Vec<Value> = (first..last).map(render).collect();
        json!({ "object": "list", "has_more": last < total, "data": data }).to_string().into_bytes()
    }
}

/// The n-th newest event of thirty days.
fn nth_event(number: usize, of: usize) -> Value {
    let at = NOW - DAY - i64::try_from(number * 28 * 86_400 / of).unwrap();
    let customer = format!("cus_{}", number % 20_000);
    dated(invoice_paid(Shape::New, &format!("evt_{number}"), &format!("in_{number}"), &customer, 2_000), at)
}

impl Api for Endless {
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
        let value = |wanted: &str| query.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let after = value("starting_after");
        let told = match path {
            "/v1/events" if value("created[gte]") == Some(&(NOW - 600).to_string()) => {
                self.page(0, None, |_| json!({}))
            }
            "/v1/events" => self.page(self.events, after, |number| nth_event(number, self.events)),
            "/v1/invoices" => self.page(self.events, after, |number| {
                let mut invoice = nth_event(number, self.events)["data"]["object"].clone();
                merge(&mut invoice, json!({ "livemode": false }));
                invoice
            }),
            "/v1/subscriptions" => {
                self.page(self.subscriptions, after, |number| subscription(&format!("sub_{number}"), "canceled"))
            }
            "/v1/refunds" | "/v1/disputes" | "/v1/checkout/sessions" => self.page(0, None, |_| json!({})),
            _ => return Err(ApiError::new(Kind::Unknown, path, "no such thing here")),
        };
        Ok(Dated { told, date: None })
    }
}

/// The most memory that this process ever held, in KiB.
fn memory_kib() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// `BILLINGD_EVENTS=100000 cargo test --release --test it many_events -- --nocapture` for the real size, by itself.
#[test]
fn many_events_take_few_pages_and_little_memory() {
    let events: usize = std::env::var("BILLINGD_EVENTS").map_or(1_000, |text| text.parse().unwrap());
    let api = Endless { events, subscriptions: events / 5, pages: AtomicUsize::new(0) };
    let mut site = Site::under(test_mode(), NOW);
    let options = Options { since_s: Some(30 * DAY), no_backfill: false };
    for (name, missing) in [("all missing", events), ("none missing", 0)] {
        let (before, pages, started) = (memory_kib(), api.pages.load(Ordering::Relaxed), Instant::now());
        let report = site.reconcile_at(&api, options);
        let (took, pages) = (started.elapsed(), api.pages.load(Ordering::Relaxed) - pages);
        assert_eq!((report.result, report.counts.missing), (Ended::Ok, missing as u64), "{:?}", report.cut_short);
        assert_eq!(report.counts.completed, missing as u64);
        let minimum = events.div_ceil(100) * 2 + (events / 5).div_ceil(100) + 3;
        let tail = usize::from(report.counts.found + report.counts.in_flight > 0);
        assert_eq!(pages, minimum + tail, "{name}");
        let grown = memory_kib() - before;
        println!(
            "{name}: {events} events, {} subscriptions: {pages} pages, {took:?} ({:?} per 1,000 events), {grown} KiB more",
            events / 5,
            took * 1_000 / u32::try_from(events).unwrap()
        );
        assert!(events < 100_000 || grown < 60 << 10, "{name}: {grown} KiB");
    }
    assert_eq!(rows(&site.connection, "SELECT count(*) FROM ledger_entries"), [events.to_string()]);
}
