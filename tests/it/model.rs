//! The books equal a model of them.
//!
//! A simulated Stripe leads whole lives of customers; a model, written from the rules and not from the code, says what
//! the books must be in the end; a chaotic courier delivers. `BILLINGD_HISTORIES` sets how many lives, `BILLINGD_SEED`
//! where to start; a difference is shrunk by leaving out steps of the life.

mod asking;
mod courier;
mod expected;
mod operators;
mod reserve;
mod table;

use billingd::domain::policy::{Basis, Policy};

use crate::books::{Books, Counts, Totals, count, delivery, differences, policy};
use crate::sim::render::Shape;
use crate::sim::world::{Habits, MONTH, Step};
use crate::sim::{Action, Rng, World};

/// Under which rules a life is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Credits come from the price list, else from the money.
    pub(crate) by_catalogue: bool,
    /// A higher tier is kept until it is paid through.
    pub(crate) keeps_tiers: bool,
}

impl Rules {
    const ALL: [Self; 4] = [
        Self { by_catalogue: false, keeps_tiers: false },
        Self { by_catalogue: false, keeps_tiers: true },
        Self { by_catalogue: true, keeps_tiers: false },
        Self { by_catalogue: true, keeps_tiers: true },
    ];

    fn policy(self) -> Policy {
        let basis = if self.by_catalogue { Basis::Catalogue } else { Basis::AmountPaid(None) };
        policy(basis, self.keeps_tiers)
    }
}

/// A life, before it is lived.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    habits: Habits,
    customers: usize,
    steps: Vec<Step>,
    /// How long after its last event the books are looked at.
    later: i64,
    courier: u64,
}

impl Life {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let habits = Habits {
            shape: *rng.pick(&[Some(Shape::Old), Some(Shape::New), None]),
            embeds: rng.percent(50),
            refund_events: rng.percent(50),
            wild: false,
        };
        let step = |rng: &mut Rng| Step {
            action: Action::any(rng),
            seed: rng.next(),
            after: *rng.pick(&[1, 60, 3600, 86_400, 12 * 86_400]),
        };
        let steps = (0..4 + rng.below(16)).map(|_| step(rng)).collect();
        let later = *rng.pick(&[0, 1, MONTH / 2, 3 * MONTH]);
        Self { habits, customers: 1 + rng.below(3), steps, later, courier: rng.next() }
    }

    pub(crate) fn live(&self) -> World {
        let mut world = World::new(self.habits, self.customers);
        self.steps.iter().for_each(|step| world.act(step));
        world
    }

    /// What differs between books and model; none if all is well.
    fn problems(&self, rules: Rules, books: &Books, counts: Option<&mut Counts>) -> Vec<String> {
        let world = self.live();
        let now = world.now + self.later;
        let deliveries: Vec<_> = world.told.iter().map(|told| delivery(told, now)).collect();
        let rounds = courier::deliver(deliveries.len(), &mut Rng::new(self.courier));
        let batches: Vec<Vec<_>> =
            rounds.iter().map(|batch| batch.iter().map(|index| &deliveries[*index]).collect()).collect();
        let told: Totals = books.tell(&batches, now, counts);
        differences(&expected::books(&world, rules, now), &told)
    }

    /// The same life without the steps that do not matter.
    fn shrink(mut self, rules: Rules, books: &Books) -> Self {
        let mut shrunk = true;
        while shrunk {
            shrunk = false;
            for at in (0..self.steps.len()).rev() {
                let mut shorter = self.clone();
                shorter.steps.remove(at);
                if !shorter.problems(rules, books, None).is_empty() {
                    (self, shrunk) = (shorter, true);
                }
            }
        }
        self
    }

    fn explain(&self, rules: Rules, books: &Books) -> String {
        let world = self.live();
        let mut text = format!("{rules:?}, {:?}\n", self.habits);
        for (index, told) in world.told.iter().enumerate() {
            text += &format!("  [{index}] {} {} {}: {}\n", told.created, told.id, told.kind, told.story);
        }
        let order = courier::deliver(world.told.len(), &mut Rng::new(self.courier));
        text += &format!("delivered as {order:?}, looked at {}; expected <> told:\n  ", world.now + self.later);
        text + &self.problems(rules, books, None).join("\n  ")
    }
}

/// What the lives must have been about, or the test proves nothing.
const LIVED: &[&str] = &[
    "dispute: lost",
    "dispute: won",
    "entry: clawback",
    "entry: restore",
    "held tier",
    "outcome: checkout.session.async_payment_succeeded applied",
    "refund: failed",
    "tied snapshots: 2",
    "tier: basic -> team",
    "tier: pro -> basic",
    "tier: team -> -",
    "two payments on one invoice",
    "waits: price",
];

pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn books_equal_the_model() {
    let (first, lives) = (number("BILLINGD_SEED", 1), number("BILLINGD_HISTORIES", 1_000));
    let all: Vec<(Rules, Books)> = Rules::ALL.iter().map(|rules| (*rules, Books::open(rules.policy()))).collect();
    let (mut counts, mut problems) = (Counts::new(), Vec::new());
    let started = std::time::Instant::now();
    for seed in first..first + lives {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let (rules, books) = rng.pick(&all);
        let life = Life::new(&mut rng);
        count(&mut counts, format!("{rules:?}"), 1);
        if !life.problems(*rules, books, Some(&mut counts)).is_empty() {
            problems.push(format!("seed {seed}: {}", life.shrink(*rules, books).explain(*rules, books)));
        }
        if problems.len() >= 4 {
            break;
        }
    }
    println!("{lives} lives from seed {first} in {:?}", started.elapsed());
    for (name, seen) in &counts {
        println!("{seen:>9} {name}");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    let missing: Vec<_> = LIVED.iter().filter(|name| !counts.contains_key(**name)).collect();
    assert!(missing.is_empty() || lives < 1_000, "never lived: {missing:?}");
}

#[test]
fn books_equal_the_model_after_restarts() {
    let (first, lives) = (number("BILLINGD_SEED", 1), number("BILLINGD_HISTORIES", 1_000) / 20);
    for seed in first..first + lives {
        let mut rng = Rng::new(seed);
        let rules = *rng.pick(&Rules::ALL);
        let life = Life::new(&mut rng);
        let world = life.live();
        let (now, later) = (world.now + life.later, world.now + 6 * MONTH);
        let deliveries: Vec<_> = world.told.iter().map(|told| delivery(told, now)).collect();
        let rounds = courier::deliver(deliveries.len(), &mut rng);
        let batches: Vec<(Vec<_>, bool)> = rounds
            .iter()
            .map(|batch| (batch.iter().map(|index| &deliveries[*index]).collect(), rng.percent(20)))
            .collect();
        let (told, told_later) = Books::tell_for_good(rules.policy(), &batches, now, later);
        assert_eq!(differences(&expected::books(&world, rules, now), &told), Vec::<String>::new(), "seed {seed}");
        let expected = expected::books(&world, rules, later);
        assert_eq!(differences(&expected, &told_later), Vec::<String>::new(), "seed {seed}, later");
    }
}
