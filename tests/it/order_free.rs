//! P8: for any set of events, any order and any repetition of deliveries ends in the same books.
//!
//! Histories come from a simulated Stripe that does everything Stripe does; some of their events are lost. Each history
//! is told once as it happened and several times in another order, with repetitions, in batches of any size. A
//! difference is shrunk to few events and printed. `BILLINGD_HISTORIES` sets how many, `BILLINGD_SEED` where to start.

use billingd::domain::money::Currency;
use billingd::domain::policy::{Basis, Policy};
use billingd::ops::ingest::Delivery;

use crate::books::{Books, Counts, Totals, count, delivery, differences, policy};
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
    [
        ("catalogue, immediate", policy(Basis::Catalogue, false)),
        ("catalogue, period_end", policy(Basis::Catalogue, true)),
        ("amount_paid, immediate", policy(Basis::AmountPaid(None), false)),
        ("amount_paid in usd, period_end", policy(Basis::AmountPaid(Currency::parse("usd").ok()), true)),
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
