//! P8: for any set of events, any order and any repetition of deliveries ends in the same books.
//!
//! Histories come from a simulated Stripe that does everything Stripe does; some of their events are lost. Each history
//! is told once as it happened and several times in another order, with repetitions, in batches of any size. A
//! difference is shrunk to few events and printed. `BILLINGD_HISTORIES` sets how many, `BILLINGD_SEED` where to start.

use billingd::domain::exchange::Conversion;
use billingd::domain::money::Currency;
use billingd::domain::policy::{Basis, Policy};
use billingd::ops::ingest::Delivery;
use billingd::store::writer::Batch as _;
use serde_json::{Value, json};

use crate::books::{Books, Counts, Totals, count, delivery, differences, drain, policy, totals};
use crate::sim::render::Shape;
use crate::sim::world::{Habits, MONTH, Step};
use crate::sim::{Action, Rng, Told, World};

/// How many other orders each history is told in.
const ORDERS: usize = 3;

/// What the histories must have made the rules do, or the test proves nothing.
const EXERCISED: &[&str] = &[
    "dispute: lost",
    "dispute: needs_response",
    "dispute: under_review",
    "dispute: warning_closed",
    "dispute: won",
    "duplicate",
    "entry: clawback",
    "entry: grant",
    "entry: restore",
    "fails: unlisted_price",
    "finding: dispute_currency",
    "finding: unlisted_price",
    "held tier",
    "outcome: charge.refunded applied",
    "outcome: charge.updated stale",
    "outcome: checkout.session.async_payment_succeeded applied",
    "outcome: customer.deleted applied",
    "outcome: customer.subscription.updated stale",
    "outcome: invoice.voided no_effect",
    "outcome: refund.failed applied",
    "reason: granted by a twin",
    "reason: only prices of another product",
    "refund: canceled",
    "refund: failed",
    "refund: pending",
    "tied snapshots: 2",
    "tied snapshots: 3",
    "tier: - -> pro",
    "tier: basic -> team",
    "tier: pro -> -",
    "tier: team -> basic",
    "two payments on one invoice",
    "waits: grant",
    "waits: lines",
    "finding: unknown_status",
    "reason: the charge failed",
    "waits: payment",
    "waits: price",
    "waits: rate",
    "waits: session",
];

/// The four ways to grant and to hold a tier.
fn policies() -> [(&'static str, Policy); 4] {
    let currency = |code| Currency::parse(code).expect("a currency");
    let into_usd = Conversion { into: currency("usd"), base: currency("eur"), max_age_days: 4 };
    [
        ("catalogue, immediate", policy(Basis::Catalogue, false)),
        ("catalogue, period_end", policy(Basis::Catalogue, true)),
        ("amount_paid, immediate", policy(Basis::AmountPaid(None), false)),
        ("amount_paid in usd, period_end", policy(Basis::AmountPaid(Some(into_usd)), true)),
    ]
}

/// Events in the order in which they happened, and when they are told.
struct History {
    events: Vec<Told>,
    deliveries: Vec<Delivery>,
    now: i64,
}

fn history(rng: &mut Rng) -> History {
    let habits = Habits {
        shape: *rng.pick(&[Some(Shape::Old), Some(Shape::New), Some(Shape::New), None]),
        embeds: rng.percent(60),
        refund_events: rng.percent(40),
        wild: true,
    };
    let mut world = World::new(habits, 1 + rng.below(2));
    // In some histories nearly all happens in one second.
    let hasty = *rng.pick(&[10, 40, 80]);
    for _ in 0..4 + rng.below(14) {
        let after = if rng.percent(hasty) { 0 } else { *rng.pick(&[1, 1, 60, 86_400, 10 * 86_400]) };
        world.act(&Step { action: Action::any(rng), seed: rng.next(), after });
    }
    let lost = *rng.pick(&[0, 0, 8, 25, 60]);
    let mut events = world.told;
    events.retain(|_| !rng.percent(lost));
    let now = world.now + *rng.pick(&[0, 1, MONTH / 2, 3 * MONTH]);
    History { deliveries: events.iter().map(|told| delivery(told, now)).collect(), events, now }
}

/// Indices of events, batch by batch.
type Telling = Vec<Vec<usize>>;

fn as_it_happened(events: usize) -> Telling {
    (0..events).map(|index| vec![index]).collect()
}

fn another_order(events: usize, rng: &mut Rng) -> Telling {
    let mut order: Vec<usize> = (0..events).collect();
    match rng.below(4) {
        0 => order.reverse(),
        1 => {
            // Nearly in order: each event may be a little late.
            for index in 1..order.len() {
                if rng.percent(40) {
                    order.swap(index, index - 1);
                }
            }
        }
        _ => rng.shuffle(&mut order),
    }
    for _ in 0..rng.below(1 + events / 3) {
        let (again, at) = (rng.below(events), rng.below(order.len() + 1));
        order.insert(at, again);
    }
    let mut telling = Vec::new();
    let size = *rng.pick(&[1, 2, 5, 64]);
    while !order.is_empty() {
        let rest = order.split_off((1 + rng.below(size)).min(order.len()));
        telling.push(std::mem::replace(&mut order, rest));
    }
    telling
}

fn tell(books: &Books, history: &History, telling: &Telling, counts: Option<&mut Counts>) -> Totals {
    let batches: Vec<Vec<&Delivery>> =
        telling.iter().map(|batch| batch.iter().map(|index| &history.deliveries[*index]).collect()).collect();
    books.tell(&batches, history.now, counts)
}

/// The telling without one event.
fn without(telling: &Telling, gone: usize) -> Telling {
    let keep = |batch: &Vec<usize>| -> Vec<usize> { batch.iter().copied().filter(|index| *index != gone).collect() };
    telling.iter().map(keep).filter(|batch| !batch.is_empty()).collect()
}

/// Leaves out all that is not needed for the difference: events, then repetitions, then batches.
fn shrink(books: &Books, history: &History, mut first: Telling, mut other: Telling) -> (Telling, Telling) {
    let differs =
        |first: &Telling, other: &Telling| tell(books, history, first, None) != tell(books, history, other, None);
    let mut shrunk = true;
    while shrunk {
        shrunk = false;
        for event in 0..history.events.len() {
            let (fewer, other_fewer) = (without(&first, event), without(&other, event));
            if fewer.len() < first.len() && differs(&fewer, &other_fewer) {
                (first, other, shrunk) = (fewer, other_fewer, true);
            }
        }
        let single: Telling = other.iter().flatten().map(|index| vec![*index]).collect();
        if single.len() > other.len() && differs(&first, &single) {
            (other, shrunk) = (single, true);
        }
        for at in (0..other.len()).rev() {
            let mut fewer = other.clone();
            let gone = fewer.remove(at);
            let told = |index: &usize| fewer.iter().flatten().any(|other| other == index);
            if gone.iter().all(told) && differs(&first, &fewer) {
                (other, shrunk) = (fewer, true);
            }
        }
        for at in 1..other.len() {
            let mut nearer = other.clone();
            nearer.swap(at - 1, at);
            if other[at] < other[at - 1] && differs(&first, &nearer) {
                (other, shrunk) = (nearer, true);
            }
        }
    }
    (first, other)
}

/// A difference in words: the events, both orders, and what came of them.
fn explain(books: &Books, history: &History, first: Telling, other: Telling) -> String {
    let (first, other) = shrink(books, history, first, other);
    let mut text = String::from("as it happened:\n");
    for index in first.iter().flatten() {
        let told = &history.events[*index];
        text += &format!("  [{index}] {} {} {}: {}\n", told.created, told.id, told.kind, told.story);
    }
    let (one, two) = (tell(books, history, &first, None), tell(books, history, &other, None));
    text += &format!("told as {other:?} at {}, the books differ:\n  ", history.now);
    text + &differences(&one, &two).join("\n  ")
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn any_order_and_any_repetition_end_in_the_same_books() {
    let (seed, histories) = (number("BILLINGD_SEED", 1), number("BILLINGD_HISTORIES", 700));
    let all: Vec<(&str, Books)> = policies().into_iter().map(|(name, policy)| (name, Books::open(policy))).collect();
    let mut counts = Counts::new();
    let started = std::time::Instant::now();
    let mut problems = Vec::new();
    for seed in seed..seed + histories {
        let mut rng = Rng::new(seed);
        let (name, books) = rng.pick(&all);
        let history = history(&mut rng);
        if history.events.is_empty() {
            continue;
        }
        let first = as_it_happened(history.events.len());
        let expected = tell(books, &history, &first, Some(&mut counts));
        count(&mut counts, format!("policy: {name}"), 1);
        for _ in 0..ORDERS {
            let other = another_order(history.events.len(), &mut rng);
            count(&mut counts, "pairs of tellings", 1);
            if tell(books, &history, &other, Some(&mut counts)) != expected {
                problems.push(format!("seed {seed}, {name}: {}", explain(books, &history, first.clone(), other)));
                break;
            }
        }
        if problems.len() >= 5 {
            break;
        }
    }
    println!("{histories} histories from seed {seed} in {:?}", started.elapsed());
    for (name, seen) in &counts {
        println!("{seen:>9} {name}");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    let missing: Vec<_> = EXERCISED.iter().filter(|name| !counts.contains_key(**name)).collect();
    assert!(missing.is_empty() || histories < 700, "never exercised: {missing:?}");
}

#[test]
fn restarts_and_time_change_nothing_about_that() {
    let (seed, histories) = (number("BILLINGD_SEED", 1), number("BILLINGD_HISTORIES", 700) / 10);
    for seed in seed..seed + histories {
        let mut rng = Rng::new(seed);
        let (name, _) = *rng.pick(&policies().map(|(name, _)| (name, ())));
        let policy = || policies().into_iter().find(|(other, _)| *other == name).expect("a policy").1;
        let history = history(&mut rng);
        if history.events.is_empty() {
            continue;
        }
        let mut tell = |telling: Telling, restarts: usize| {
            let batches: Vec<(Vec<&Delivery>, bool)> = telling
                .iter()
                .map(|batch| (batch.iter().map(|index| &history.deliveries[*index]).collect(), rng.percent(restarts)))
                .collect();
            Books::tell_for_good(policy(), &batches, history.now, history.now + 5 * MONTH)
        };
        let expected = tell(as_it_happened(history.events.len()), 0);
        let other = another_order(history.events.len(), &mut Rng::new(seed));
        let books = tell(other, 30);
        assert_eq!(differences(&expected.0, &books.0), Vec::<String>::new(), "seed {seed}, {name}");
        assert_eq!(differences(&expected.1, &books.1), Vec::<String>::new(), "seed {seed}, {name}, later");
    }
}

// What once broke the promise, each with its story. Every order of every row ends in the same books.

fn told(at: i64, kind: &'static str, object: &Value) -> Told {
    let id = format!("evt_{at}_{kind}");
    let body = json!({
        "id": id, "object": "event", "type": kind, "created": at, "livemode": true, "data": {"object": object},
    });
    Told { story: object.to_string(), id, kind, created: at, body }
}

/// All orders of a few things.
fn orders(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(of - 1);
    let at_each_place = |order: Vec<usize>| {
        (0..of).map(move |at| {
            let mut longer = order.clone();
            longer.insert(at, of - 1);
            longer
        })
    };
    shorter.into_iter().flat_map(at_each_place).collect()
}

fn customer(reference: &str) -> Value {
    json!({"id": "cus_1", "object": "customer", "metadata": {"account_id": reference}})
}

fn invoice(status: &str, amount_paid: i64, line: &Value) -> Value {
    json!({
        "id": "in_1", "object": "invoice", "customer": "cus_1", "status": status, "currency": "usd", "total": 1000,
        "amount_due": 1000, "amount_paid": amount_paid,
        "lines": {"object": "list", "has_more": false, "data": [line]},
    })
}

fn line() -> Value {
    json!({
        "amount": 1000, "currency": "usd", "quantity": 1, "pricing": {"price_details": {"price": "price_basic"}},
        "parent": {"subscription_item_details": {"subscription": "sub_1", "proration": false}},
    })
}

fn refund(payment: &str) -> Value {
    json!({
        "id": "re_1", "object": "refund", "payment_intent": payment, "amount": 500, "currency": "usd",
        "status": "succeeded", "created": 20,
    })
}

fn link(payment: &str) -> Value {
    json!({
        "id": format!("inpay_{payment}"), "object": "invoice_payment", "invoice": "in_1", "status": "paid",
        "payment": {"payment_intent": payment},
    })
}

/// A charge of 1000, of which so much was refunded, with its embedded refunds.
fn charge(refunded: i64, refunds: Value) -> Value {
    json!({
        "id": "ch_2", "object": "charge", "payment_intent": "pi_2", "currency": "usd", "amount": 1000,
        "amount_captured": 1000, "amount_refunded": refunded, "captured": true, "status": "succeeded",
        "refunds": {"object": "list", "has_more": false, "data": refunds},
    })
}

fn listed(id: &str, amount: i64, status: &str) -> Value {
    json!({"id": id, "object": "refund", "amount": amount, "currency": "usd", "status": status, "created": 20})
}

fn pro(customer: Option<&str>) -> Value {
    json!({
        "id": "sub_1", "object": "subscription", "customer": customer, "status": "active", "current_period_end": 50,
        "items": {"object": "list", "has_more": false, "data": [
            {"id": "si_1", "quantity": 1, "price": {"id": "price_pro", "currency": "usd", "unit_amount": 5000}},
        ]},
    })
}

/// The same with other values at its top.
fn but(mut object: Value, values: Value) -> Value {
    let (Value::Object(object_fields), Value::Object(fields)) = (&mut object, values) else { panic!("no objects") };
    object_fields.extend(fields);
    object
}

#[test]
fn what_once_broke_it() {
    let by_charge = json!({"type": "charge", "charge": "ch_2"});
    let buyers_choice = json!({
        "id": "cs_1", "object": "checkout.session", "mode": "setup", "payment_status": "no_payment_required",
        "customer": "cus_1", "client_reference_id": "user_1",
    });
    let mut prorated = line();
    prorated["parent"]["subscription_item_details"]["proration"] = json!(true);
    let mut long = invoice("paid", 1000, &line());
    long["metadata"] = json!({"account_id": "user_1"});
    long["lines"]["has_more"] = json!(true);
    let mut other = invoice("paid", 1000, &line());
    other["id"] = json!("in_2");
    other["lines"]["data"][0]["pricing"]["unit_amount_decimal"] = json!("1000");
    let credits = |amount: &str| [("balance cus_1 credits".to_owned(), amount.to_owned())];
    let rows = [
        (
            "a reference was kept as the buyer's when the merchant had named the same one since",
            vec![
                told(1, "checkout.session.completed", &buyers_choice),
                told(5, "customer.updated", &customer("user_1")),
                told(7, "customer.updated", &customer("user_2")),
            ],
            [("account cus_1".to_owned(), "- | user_1 | 0".to_owned())],
        ),
        (
            "a reference was kept as late as it came first, when the same one had been told earlier",
            vec![
                told(2, "customer.updated", &customer("user_1")),
                told(3, "customer.updated", &customer("user_2")),
                told(5, "customer.updated", &customer("user_1")),
            ],
            [("account cus_1".to_owned(), "- | user_1 | 0".to_owned())],
        ),
        (
            "a refund waited for the grant of an invoice that had become void",
            vec![
                told(9, "invoice_payment.paid", &link("pi_1")),
                told(20, "refund.created", &refund("pi_1")),
                told(30, "invoice.voided", &invoice("void", 0, &line())),
            ],
            [("refund re_1".to_owned(), "pi_1 | 500 | usd | succeeded".to_owned())],
        ),
        (
            "an invoice waited for its lines when its twin had granted already, and what only it told stayed unknown",
            vec![
                told(10, "invoice.paid", &long),
                told(10, "invoice.payment_succeeded", &invoice("paid", 1000, &line())),
            ],
            [("account cus_1".to_owned(), "- | user_1 | 0".to_owned())],
        ),
        (
            "a proration waited for a price that a line of another invoice had told",
            vec![
                told(10, "invoice.paid", &invoice("paid", 1000, &prorated)),
                told(10, "invoice.payment_succeeded", &other),
            ],
            credits("200"),
        ),
        (
            "a refund that a charge lists as failed was taken off its total, which knew of it",
            vec![
                told(9, "invoice_payment.paid", &link("pi_2")),
                told(10, "invoice.paid", &invoice("paid", 1000, &line())),
                told(
                    20,
                    "charge.refunded",
                    &charge(500, json!([listed("re_1", 300, "succeeded"), listed("re_2", 200, "succeeded")])),
                ),
                told(
                    30,
                    "charge.updated",
                    &charge(200, json!([listed("re_1", 300, "failed"), listed("re_2", 200, "succeeded")])),
                ),
            ],
            credits("80"),
        ),
        (
            "a refund of what had granted nothing was known before the grant came after all",
            vec![
                told(9, "invoice_payment.paid", &link("pi_1")),
                told(10, "invoice.paid", &invoice("paid", 1000, &json!({"amount": 1000}))),
                told(12, "invoice.payment_succeeded", &invoice("paid", 1000, &line())),
                told(20, "refund.created", &refund("pi_1")),
            ],
            credits("50"),
        ),
        (
            "what is paid changes what a refund is a part of",
            vec![
                told(9, "invoice_payment.paid", &link("pi_1")),
                told(10, "invoice.paid", &invoice("paid", 1000, &line())),
                told(20, "refund.created", &refund("pi_1")),
                told(30, "invoice.updated", &invoice("paid", 2000, &line())),
            ],
            credits("75"),
        ),
        (
            "a refund waited for the charge of one payment when the charge of the other had told what was paid",
            vec![
                told(9, "invoice_payment.paid", &link("pi_1")),
                told(9, "invoice_payment.attached", &link("pi_2")),
                told(10, "invoice.paid", &invoice("paid", 0, &line())),
                told(11, "charge.succeeded", &charge(0, json!([]))),
                told(20, "refund.created", &refund("pi_2")),
            ],
            credits("50"),
        ),
        (
            "a subscription that belongs to nobody now left its tier to whom it had belonged",
            vec![
                told(1, "customer.subscription.created", &pro(Some("cus_1"))),
                told(2, "customer.subscription.updated", &pro(None)),
            ],
            [("subscription sub_1".to_owned(), "- | active | pro | price_pro | 1 | 50 | - | 0 | - | -".to_owned())],
        ),
        (
            "a subscription that changed hands gave its tier to both",
            vec![
                told(1, "customer.subscription.created", &pro(Some("cus_1"))),
                told(2, "customer.subscription.updated", &pro(Some("cus_2"))),
            ],
            [("account cus_2".to_owned(), "pro | - | 0".to_owned())],
        ),
        (
            "the money of a voided invoice had come after all, and what was refunded of it stayed",
            vec![
                told(9, "invoice_payment.paid", &link("pi_1")),
                told(10, "invoice.paid", &invoice("paid", 1000, &line())),
                told(20, "refund.created", &refund("pi_1")),
                told(30, "invoice.voided", &invoice("void", 0, &line())),
            ],
            credits("50"),
        ),
        (
            "a refund waited for the name that it knew, and the invoice came by the other name",
            vec![
                told(10, "invoice.paid", &but(invoice("paid", 1000, &line()), json!({"charge": "ch_2"}))),
                told(11, "charge.succeeded", &charge(0, json!([]))),
                told(20, "refund.created", &refund("pi_2")),
            ],
            credits("50"),
        ),
        (
            "one payment paid two invoices, and the second came after the refund",
            vec![
                told(8, "invoice_payment.paid", &link("pi_1")),
                told(9, "invoice_payment.paid", &but(link("pi_1"), json!({"id": "inpay_2", "invoice": "in_2"}))),
                told(10, "invoice.paid", &invoice("paid", 1000, &line())),
                told(11, "invoice.paid", &but(invoice("paid", 1000, &line()), json!({"id": "in_2"}))),
                told(20, "refund.created", &refund("pi_1")),
            ],
            credits("100"),
        ),
        (
            "the refund of a guest's checkout waited for a fact that would never come",
            vec![
                told(
                    10,
                    "checkout.session.completed",
                    &json!({
                        "id": "cs_1", "object": "checkout.session", "mode": "payment", "payment_status": "paid",
                        "customer": null, "payment_intent": "pi_1", "amount_total": 1000, "currency": "usd",
                    }),
                ),
                told(20, "refund.created", &refund("pi_1")),
            ],
            [("refund re_1".to_owned(), "pi_1 | 500 | usd | succeeded".to_owned())],
        ),
        (
            "a refund told by its charge first and by its intent later was taken for two",
            vec![
                told(8, "invoice_payment.paid", &link("pi_2")),
                told(9, "invoice_payment.paid", &but(link("pi_2"), json!({"id": "inpay_2", "payment": by_charge}))),
                told(10, "invoice.paid", &invoice("paid", 1000, &line())),
                told(20, "refund.created", &but(refund("pi_2"), json!({"payment_intent": null, "charge": "ch_2"}))),
                told(30, "refund.failed", &but(refund("pi_2"), json!({"status": "failed"}))),
            ],
            credits("100"),
        ),
    ];
    let books = Books::open(policy(Basis::Catalogue, false));
    for (story, events, expected) in rows {
        let deliveries = events.iter().map(|told| delivery(told, 100)).collect();
        let history = History { deliveries, events, now: 100 };
        let first = as_it_happened(history.events.len());
        let in_order = tell(&books, &history, &first, None);
        for (name, row) in &expected {
            assert_eq!(in_order.get(name), Some(row), "{story}: {name}");
        }
        for order in orders(history.events.len()) {
            let other: Telling = order.into_iter().map(|index| vec![index]).collect();
            if tell(&books, &history, &other, None) != in_order {
                panic!("{story}: {}", explain(&books, &history, first, other));
            }
        }
    }
}

/// An invoice that paid for pro until second 1000.
fn paid_for_pro() -> Value {
    let pro = json!({
        "pricing": {"price_details": {"price": "price_pro"}}, "period": {"start": 1, "end": 1000},
    });
    but(invoice("paid", 1000, &but(line(), pro)), json!({"subscription": "sub_1"}))
}

fn basic(customer: Option<&str>) -> Value {
    let items = json!({"object": "list", "has_more": false, "data": [
        {"id": "si_1", "quantity": 1, "price": {"id": "price_basic", "currency": "usd", "unit_amount": 1000}},
    ]});
    but(pro(customer), json!({"items": items}))
}

/// Story: the tier of a subscription that belongs to nobody was due for ever, and the writer never slept again.
#[test]
fn a_held_tier_of_nobody_ends() {
    let events = [
        told(1, "customer.subscription.created", &pro(Some("cus_1"))),
        told(2, "invoice.paid", &paid_for_pro()),
        told(3, "customer.subscription.updated", &basic(None)),
    ];
    let deliveries: Vec<Delivery> = events.iter().map(|told| delivery(told, 100)).collect();
    let batches: Vec<_> = deliveries.iter().map(|delivery| (vec![delivery], false)).collect();
    let (held, ended) = Books::tell_for_good(policy(Basis::Catalogue, true), &batches, 100, 2000);
    let row = |totals: &Totals| totals.get("subscription sub_1").cloned().expect("a subscription");
    assert_eq!(row(&held), "- | active | pro | price_basic | 1 | 50 | - | 0 | basic | 1000");
    assert_eq!(row(&ended), "- | active | basic | price_basic | 1 | 50 | - | 0 | - | -");
}

/// Story: a clock was set back, the tier was held again until the same moment, and every batch failed from then on.
#[test]
fn a_tier_that_is_held_twice_until_one_moment_ends_twice() {
    let books = Books::open(policy(Basis::Catalogue, true));
    let mut ingest = books.ingest();
    let transaction = books.begin();
    let mut deliver = |told: &Told, now: i64| {
        ingest.run(&transaction, vec![delivery(told, now)], now * 1000).expect("a batch");
        drain(&mut ingest, &transaction, now);
    };
    deliver(&told(1, "customer.subscription.created", &pro(Some("cus_1"))), 100);
    deliver(&told(2, "invoice.paid", &paid_for_pro()), 100);
    deliver(&told(3, "customer.subscription.updated", &basic(Some("cus_1"))), 100);
    deliver(&told(4, "customer.created", &customer("user_1")), 1000);
    let tier = || totals(&transaction).get("account cus_1").cloned().expect("an account");
    assert_eq!(tier(), "basic | user_1 | 0");
    deliver(
        &told(5, "customer.subscription.updated", &but(basic(Some("cus_1")), json!({"current_period_end": 60}))),
        500,
    );
    assert_eq!(tier(), "pro | user_1 | 0", "the clock says that it is paid for");
    deliver(&told(6, "customer.created", &customer("user_1")), 1000);
    assert_eq!(tier(), "basic | user_1 | 0");
}
