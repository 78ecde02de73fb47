//! Whole lives of customers, most of whose events never came: after one run the books are as if all had come, or
//! findings name each difference; and nothing else is found.

use std::collections::BTreeSet;

use billingd::domain::policy::{Basis, Policy};
use billingd::ops::reconcile::{Ended, Options};
use serde_json::{Value, json};

use super::{DAY, Site};
use crate::books::{Totals, differences, policy};
use crate::fake_stripe::FakeStripe;
use crate::fixtures::Shape as Family;
use crate::model::{Life, number};
use crate::sim::render::{self, Shape};
use crate::sim::{Rng, World};

/// How many lives are lived, unless told otherwise.
const LIVES: u64 = 60;

fn lives() -> u64 {
    number("BILLINGD_HISTORIES", LIVES)
}

/// Puts all that a world has into a Stripe, as it is in the end; events only since a moment.
fn put(fake: &FakeStripe, world: &World, events_since: i64) {
    let created = |id: &str| {
        let of_it = world.told.iter().filter(|told| told.body["data"]["object"]["id"] == id);
        of_it.map(|told| told.created).min().unwrap_or(world.now)
    };
    let both = |render: &dyn Fn(Shape) -> Value| {
        let dated = |shape| {
            let mut object = render(shape);
            if object["created"].is_null() {
                object["created"] = json!(created(object["id"].as_str().unwrap()));
            }
            object["livemode"] = json!(true);
            object
        };
        fake.put_shapes(dated(Shape::Old), dated(Shape::New));
    };
    world.subscriptions.iter().for_each(|one| both(&|shape| render::subscription(world, one, shape)));
    for one in &world.invoices {
        both(&|shape| {
            let mut object = render::invoice(world, one, shape);
            object["lines"]["has_more"] = json!(false);
            object
        });
    }
    for one in &world.payments {
        both(&|shape| render::charge(world, one, shape, false));
        if !one.bare {
            both(&|shape| render::payment_intent(world, one, shape));
        }
        if one.invoice.is_some() {
            both(&|_| {
                let mut link = render::invoice_payment(world, one);
                if one.bare {
                    link["payment"] = json!({"type": "charge", "charge": one.charge});
                }
                link
            });
        }
    }
    world.refunds.iter().for_each(|one| both(&|shape| render::refund(world, one, shape)));
    world.disputes.iter().for_each(|one| both(&|shape| render::dispute(world, one, shape)));
    for one in &world.checkouts {
        both(&|_| render::checkout(world, one));
        if let Some(price) = one.price {
            let sold = json!({
                "id": format!("li_of_{}", one.id), "object": "item", "price": render::price(price), "currency": "usd",
                "quantity": one.quantity, "amount_subtotal": one.amount, "amount_total": one.amount,
            });
            fake.put_inside(&format!("/v1/checkout/sessions/{}/line_items", one.id), sold.clone(), sold);
        }
    }
    world.told.iter().filter(|told| told.created >= events_since).for_each(|told| fake.put(told.body.clone()));
    fake.put(json!({
        "id": "we_1", "object": "webhook_endpoint", "url": "https://a.example/webhooks/stripe", "status": "enabled",
        "enabled_events": ["*"], "livemode": true,
    }));
    fake.always(Family::New);
}

fn asking(seed: u64) -> Policy {
    let basis = if seed.is_multiple_of(2) { Basis::Catalogue } else { Basis::AmountPaid(None) };
    Policy { asks_stripe: true, ..policy(basis, false) }
}

/// A world, and how the books look after an hour if all of its events came.
fn life(seed: u64) -> (World, Site) {
    let world = Life::new(&mut Rng::new(seed ^ 0xbeef)).live();
    let mut twin = Site::under(asking(seed), world.now + 3_600);
    put(&twin.fake, &world, 0);
    twin.hears(world.told.iter().map(|told| &told.body));
    let report = twin.reconcile();
    assert_eq!((report.result, report.cut_short), (Ended::Ok, Vec::new()), "seed {seed}");
    assert_eq!(of_runs(&twin), Vec::<String>::new(), "seed {seed}: nothing differs where all came");
    (world, twin)
}

/// The findings that only a run can have, and no event.
fn of_runs(site: &Site) -> Vec<String> {
    let of_events = ["shared_reference", "dispute_currency", "unlisted_price", "unknown_status", "credit_note"];
    let is_of_event = |finding: &String| of_events.iter().any(|kind| finding.starts_with(kind));
    site.findings().into_iter().filter(|finding| !is_of_event(finding)).collect()
}

#[test]
fn what_was_dropped_is_fetched() {
    for seed in 0..lives() {
        let (world, twin) = life(seed);
        let mut site = Site::under(asking(seed), twin.now);
        put(&site.fake, &world, site.now - 30 * DAY);
        let mut rng = Rng::new(seed);
        let is_old = |created: i64| created < site.now - 30 * DAY;
        let came: Vec<&Value> =
            world.told.iter().filter(|told| is_old(told.created) || rng.percent(50)).map(|told| &told.body).collect();
        site.hears(came);
        let report = site.reconcile_with(Options { since_s: Some(30 * DAY), no_backfill: false });
        assert_eq!(report.result, Ended::Ok, "seed {seed}: {:?}", report.cut_short);
        assert_eq!(differences(&twin.totals(), &site.totals()), Vec::<String>::new(), "seed {seed}");
        let other: Vec<String> = of_runs(&site).into_iter().filter(|finding| !finding.starts_with("silence")).collect();
        assert_eq!(other, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn what_an_outage_of_forty_days_hides_is_named() {
    let mut named = 0;
    for seed in 0..lives() {
        let (world, twin) = life(seed);
        let mut site = Site::under(asking(seed), twin.now);
        put(&site.fake, &world, site.now - 30 * DAY);
        let since = site.now - 40 * DAY;
        site.hears(world.told.iter().filter(|told| told.created < since).map(|told| &told.body));
        site.runs_sql(&format!(
            "INSERT INTO reconciliation_runs (started_at, finished_at, result, known_until)
             VALUES ({since}, {since}, 'ok', {since})"
        ));
        let report = site.reconcile();
        assert_eq!(report.result, Ended::Ok, "seed {seed}: {:?}", report.cut_short);
        let (unnamed, unfounded, count) = against(&world, &twin.totals(), &site);
        assert_eq!((unnamed, unfounded), (Vec::new(), Vec::new()), "seed {seed}: {:?}", site.findings());
        named += count;
    }
    assert!(named * 20 > usize::try_from(lives()).unwrap(), "only {named} differences were there to be named");
}

const UNITS: [&str; 3] = ["usd", "credits", "sms"];

/// Differences that nothing names, findings of nothing, and how many differences are named.
fn against(world: &World, whole: &Totals, site: &Site) -> (Vec<String>, Vec<String>, usize) {
    let told = site.totals();
    let subject = |finding: String| finding.split_once(' ').unwrap().1.to_owned();
    let findings: BTreeSet<String> = of_runs(site).into_iter().map(subject).collect();
    let differing = |key: &str| whole.get(key) != told.get(key);
    let (mut unnamed, mut named, mut founded) =
        (Vec::new(), 0, BTreeSet::from(["/v1/events", "/webhooks/stripe"].map(str::to_owned)));
    let mut judge = |key: String, subjects: &[&str], must: bool| {
        if !differing(&key) {
            return;
        }
        founded.extend(subjects.iter().map(|subject| (*subject).to_owned()));
        if subjects.iter().any(|subject| findings.contains(*subject)) {
            named += 1;
        } else if must {
            unnamed.push(format!("{key}: {:?} <> {:?}", whole.get(&key), told.get(&key)));
        }
    };
    for one in &world.subscriptions {
        let key = format!("subscription {}", one.id);
        // What is over and was never known gives nothing.
        let is_over = matches!(one.status.as_str(), "canceled" | "incomplete_expired");
        let must = !is_over || told.contains_key(&key);
        judge(key, &[&one.id], must);
    }
    let back = |payments: &[usize]| {
        let refunds = world.refunds.iter().filter(|refund| payments.contains(&refund.payment)).map(|one| &*one.id);
        let disputes = world.disputes.iter().filter(|one| payments.contains(&one.payment)).map(|one| &*one.id);
        refunds.chain(disputes).collect::<Vec<_>>()
    };
    for one in &world.invoices {
        let key = format!("invoice {}", one.id);
        let must = told.contains_key(&key);
        judge(key, &[&one.id], must);
        let mut subjects = back(&one.payments);
        subjects.push(&one.id);
        for unit in UNITS {
            judge(format!("grant grant:invoice:{} {unit}", one.id), &subjects, true);
        }
    }
    for one in &world.checkouts {
        let mut subjects = back(&one.payment.into_iter().collect::<Vec<_>>());
        subjects.push(&one.id);
        for unit in UNITS {
            judge(format!("grant grant:checkout:{} {unit}", one.id), &subjects, true);
        }
    }
    let unfounded = findings.difference(&founded).cloned().collect();
    (unnamed, unfounded, named)
}
