//! Books that may ask Stripe: the resolver between the batches, and lives whose books must equal the model all the same.

use std::collections::HashSet;

use billingd::domain::decision::Need;
use billingd::domain::policy::Policy;
use billingd::ops::ingest::{Answer, Delivery, Ingest};
use billingd::ops::resolve::{Passed, Question, Resolver};
use billingd::stop::Stop;
use billingd::store::writer::Batch as _;
use billingd::store::{Desk, StoreError};
use rusqlite::Transaction;

use super::reserve::Reserve;
use super::{Life, Rules, courier, expected, number};
use crate::books::{Books, Counts, Totals, count, delivery, differences, exercise, totals};
use crate::fake_stripe::{FakeStripe, Fault};
use crate::sim::world::Step;
use crate::sim::{Action, Rng};

const DAY: i64 = 86_400;

/// What must have been waited for, or the test proves nothing.
const LIVED: &[&str] = &[
    "waits: lines",
    "waits: object",
    "waits: payment",
    "waits: session",
    "waits: subscription",
    "entry: clawback",
    "entry: restore",
    "held tier",
    "tied snapshots: 2",
];

/// Writes inside of a transaction that is taken back in the end.
struct Inside<'a>(&'a Transaction<'a>);

impl Desk for Inside<'_> {
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        work(self.0)
    }
}

/// Books with somebody who asks.
struct Asker<'a> {
    transaction: &'a Transaction<'a>,
    ingest: Ingest,
    resolver: Resolver,
    fake: &'a FakeStripe,
    now_ms: i64,
    answers: Vec<Answer>,
    /// All that there was to ask.
    questions: HashSet<Question>,
}

impl<'a> Asker<'a> {
    fn new(books: &Books, transaction: &'a Transaction<'a>, fake: &'a FakeStripe, now: i64) -> Self {
        let (ingest, resolver) = (books.ingest(), Resolver::new(1));
        let (answers, questions) = (Vec::new(), HashSet::new());
        Self { transaction, ingest, resolver, fake, now_ms: now * 1000, answers, questions }
    }

    fn deliver(&mut self, batch: Vec<Delivery>) {
        let batch = batch.into_iter().map(|one| Delivery { received: self.now_ms, ..one }).collect();
        self.answers.extend(self.ingest.run(self.transaction, batch, self.now_ms).expect("a batch"));
    }

    /// Asks what is due.
    fn ask(&mut self) -> Passed {
        self.resolver.look(self.transaction, self.now_ms).expect("a look");
        self.questions.extend(self.resolver.due().cloned());
        let (now, stop) = (self.now_ms, Stop::default());
        let mut desk = Inside(self.transaction);
        self.resolver.pass(self.fake, &mut desk, &|| now, &stop).expect("a pass")
    }

    /// The same, and runs what was woken.
    fn pass(&mut self) -> Passed {
        let passed = self.ask();
        self.ingest.look_around();
        for _ in 0..1000 {
            self.ingest.run(self.transaction, Vec::new(), self.now_ms).expect("a batch");
            if !self.ingest.is_urgent(self.now_ms) {
                return passed;
            }
        }
        panic!("the work that is left never ends");
    }

    /// Asks until nothing is left to ask.
    fn finish(&mut self) {
        for _ in 0..100 {
            self.now_ms += 1;
            if self.pass() == Passed::default() {
                return;
            }
        }
        panic!("there is always something to ask");
    }

    /// Requests that all questions together need, each once.
    fn least_requests(&self) -> usize {
        let of = |question: &Question| match &question.need {
            // The charge tells its intent, the intent its invoices; a look-alike has no list of those.
            Need::Payment(name) if name.starts_with("pi_") => 2,
            Need::Payment(_) => 3,
            _ => 1,
        };
        self.questions.iter().map(of).sum()
    }
}

/// A life whose events keep something back.
#[derive(Debug, Clone)]
struct Reserved {
    life: Life,
    reserve: Reserve,
    seed: u64,
}

impl Reserved {
    fn new(rng: &mut Rng) -> Self {
        let mut life = Life::new(rng);
        let reserve = Reserve::new(life.habits.shape, rng);
        // Several changes in one second, none of which moves money.
        let quiet = [Action::ChangeQuantity, Action::Pause, Action::CancelLater, Action::KeepOn, Action::AddItem];
        life.steps = std::mem::take(&mut life.steps)
            .into_iter()
            .flat_map(|step| {
                let more = if rng.percent(30) { 1 + rng.below(3) } else { 0 };
                let hasty: Vec<Step> =
                    (0..more).map(|_| Step { action: *rng.pick(&quiet), seed: rng.next(), after: 0 }).collect();
                [step].into_iter().chain(hasty)
            })
            .collect();
        Self { life, reserve, seed: rng.next() }
    }

    /// What differs between books and model; none if all is well. The API fails for `outage` seconds after the events.
    fn problems(&self, rules: Rules, books: &Books, outage: i64, counts: Option<&mut Counts>) -> Vec<String> {
        let world = self.life.live();
        let mut rng = Rng::new(self.seed);
        let now = world.now + self.life.later;
        let told = self.reserve.told(&world, &mut rng);
        let fake = self.reserve.api(&world);
        let deliveries: Vec<Delivery> = told.iter().map(|told| delivery(told, now)).collect();
        let transaction = books.begin();
        let mut asker = Asker::new(books, &transaction, &fake, now);
        if outage > 0 {
            fake.order_first(Fault::at("*").status(*rng.pick(&[429, 500, 401])));
        }
        let often = *rng.pick(&[0, 20, 100]);
        for batch in courier::deliver(deliveries.len(), &mut Rng::new(self.life.courier)) {
            asker.deliver(batch.iter().map(|index| deliveries[*index].clone()).collect());
            asker.now_ms += 1;
            if rng.percent(often) {
                asker.pass();
            }
        }
        let mut problems = Vec::new();
        if outage > 0 {
            problems.extend(outlast(&mut asker, outage));
            fake.end_first();
            let before = fake.calls().len();
            asker.now_ms += 600_000;
            asker.questions.clear();
            asker.finish();
            let (asked, least) = (fake.calls().len() - before, asker.least_requests());
            if asked > least {
                problems.push(format!("{asked} requests after the outage, where {least} are enough"));
            }
        } else {
            asker.finish();
            let (asked, least) = (fake.calls().len(), asker.least_requests());
            if asked > least {
                problems.push(format!("{asked} requests, where {least} are enough"));
            }
        }
        let books: Totals = totals(&transaction);
        problems.extend(differences(&expected::books(&world, rules, asker.now_ms / 1000), &books));
        if let Some(counts) = counts {
            exercise(&transaction, &asker.answers, counts);
            count(counts, "requests", u64::try_from(fake.calls().len()).unwrap());
            count(counts, "questions", u64::try_from(asker.questions.len()).unwrap());
        }
        transaction.rollback().unwrap();
        problems
    }

    fn shrink(mut self, rules: Rules, books: &Books, outage: i64) -> Self {
        let mut shrunk = true;
        while shrunk {
            shrunk = false;
            for at in (0..self.life.steps.len()).rev() {
                let mut shorter = self.clone();
                shorter.life.steps.remove(at);
                if !shorter.problems(rules, books, outage, None).is_empty() {
                    (self, shrunk) = (shorter, true);
                }
            }
        }
        self
    }

    fn explain(&self, rules: Rules, books: &Books, outage: i64) -> String {
        let world = self.life.live();
        let mut text = format!("{rules:?}, {:?}, {:?}\n", self.life.habits, self.reserve);
        let told = self.reserve.told(&world, &mut Rng::new(self.seed));
        for (index, told) in told.iter().enumerate() {
            text += &format!("  [{index}] {} {} {}: {}\n", told.created, told.id, told.kind, told.story);
        }
        let order = courier::deliver(told.len(), &mut Rng::new(self.life.courier));
        text += &format!("delivered as {order:?}, looked at {}; expected <> told:\n  ", world.now + self.life.later);
        text + &self.problems(rules, books, outage, None).join("\n  ")
    }
}

/// Lets time pass while nobody answers: nothing may fail, and Stripe is asked ever more rarely.
fn outlast(asker: &mut Asker<'_>, outage: i64) -> Vec<String> {
    let began = asker.now_ms;
    let before = asker.fake.calls().len();
    while asker.now_ms < began + outage * 1000 {
        let passed = asker.now_ms - began;
        asker.now_ms += if passed < 60_000 { 1_000 } else { 60_000 };
        if asker.ask().answered > 0 {
            return vec!["somebody answered".into()];
        }
    }
    let mut problems = Vec::new();
    let asked = asker.fake.calls().len() - before;
    // Ten waits up to ten minutes are 1,023 s; and one more when the first one was asked.
    let most = 12 + usize::try_from(outage / 600).unwrap();
    if asked > most {
        problems.push(format!("{asked} requests in {outage} s in which nobody answered"));
    }
    let failed: i64 = asker
        .transaction
        .query_row("SELECT count(*) FROM v_events WHERE status = 'failed'", [], |row| row.get(0))
        .unwrap();
    if failed > 0 {
        problems.push(format!("{failed} events failed while nobody answered"));
    }
    problems
}

/// The rules of a server with a key.
fn policy_of(rules: Rules) -> Policy {
    Policy { asks_stripe: true, ..rules.policy() }
}

fn lives(first: u64, lives: u64, outage: i64) -> Counts {
    let all: Vec<(Rules, Books)> = Rules::ALL.iter().map(|rules| (*rules, Books::open(policy_of(*rules)))).collect();
    let (mut counts, mut problems) = (Counts::new(), Vec::new());
    let started = std::time::Instant::now();
    for seed in first..first + lives {
        let mut rng = Rng::new(seed ^ 0xa55);
        let (rules, books) = rng.pick(&all);
        let life = Reserved::new(&mut rng);
        if !life.problems(*rules, books, outage, Some(&mut counts)).is_empty() {
            let shrunk = life.shrink(*rules, books, outage);
            problems.push(format!("seed {seed}: {}", shrunk.explain(*rules, books, outage)));
        }
        if problems.len() >= 3 {
            break;
        }
    }
    println!("{lives} lives from seed {first} in {:?}", started.elapsed());
    for (name, seen) in &counts {
        println!("{seen:>9} {name}");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    counts
}

#[test]
fn books_equal_the_model_where_stripe_is_asked() {
    let all = number("BILLINGD_HISTORIES", 1_000) / 4;
    let counts = lives(number("BILLINGD_SEED", 1), all, 0);
    let missing: Vec<_> = LIVED.iter().filter(|name| !counts.contains_key(**name)).collect();
    assert!(missing.is_empty() || all < 250, "never lived: {missing:?}");
}

/// Story: Stripe's API fails for a day; nothing is lost, nothing is wrong, and all is caught up afterwards.
#[test]
fn books_equal_the_model_after_a_day_without_the_api() {
    let all = number("BILLINGD_HISTORIES", 1_000) / 50;
    let counts = lives(number("BILLINGD_SEED", 1), all, DAY);
    assert!(counts.contains_key("waits: payment") || all < 20);
}
