//! How deliveries were answered since the start, counted without a lock: the hot path pays for a few atomic additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ops::ingest::Answer;
use crate::stripe::wire;

/// The words for the answers, in the order of [`place_of`].
const ANSWERS: [&str; 8] =
    ["applied", "no_effect", "stale", "ignored", "duplicate", "pending", "failed", "dead_letter"];

const DUPLICATE: usize = 4;

/// What every other type is counted as.
const OTHER: &str = "other";

/// The upper bounds of the histogram, in microseconds; what is longer comes last.
pub(super) const BOUNDS_US: [u64; 12] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];

/// Counts answers to deliveries.
#[derive(Debug)]
pub struct Deliveries {
    answers: [AtomicU64; ANSWERS.len()],
    /// One for each type that billingd acts on, and one for all others.
    types: Box<[AtomicU64]>,
    durations: [AtomicU64; BOUNDS_US.len() + 1],
    duration_us: AtomicU64,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            answers: Default::default(),
            types: (0..=wire::event_types().len()).map(|_| AtomicU64::new(0)).collect(),
            durations: Default::default(),
            duration_us: AtomicU64::new(0),
        }
    }
}

impl Deliveries {
    /// One more that a reader answered, since it was completed before.
    pub(super) fn count_duplicate(&self, kind: &str, took: Duration) {
        self.add(DUPLICATE, kind, took);
    }

    /// One more that the writer answered.
    pub(super) fn count(&self, answer: &Answer, kind: &str, took: Duration) {
        self.add(place_of(answer), kind, took);
    }

    /// How many there were of each answer.
    pub(super) fn by_answer(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ANSWERS.into_iter().zip(self.answers.iter().map(read))
    }

    /// How many there were of each type.
    pub(super) fn by_type(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = wire::event_types().iter().map(|(name, _)| *name).chain([OTHER]);
        names.zip(self.types.iter().map(read))
    }

    /// How many took up to each of [`BOUNDS_US`], then how many there were at all, and how long all of them took.
    pub(super) fn durations(&self) -> (Vec<u64>, u64) {
        let up_to = self.durations.iter().map(read).scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        (up_to.collect(), read(&self.duration_us))
    }

    fn add(&self, answer: usize, kind: &str, took: Duration) {
        let types = wire::event_types();
        let of_type = types.iter().position(|(name, _)| *name == kind).unwrap_or(types.len());
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let of_duration = BOUNDS_US.iter().position(|bound| took <= *bound).unwrap_or(BOUNDS_US.len());
        for counter in [self.answers.get(answer), self.types.get(of_type), self.durations.get(of_duration)] {
            counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
        }
        self.duration_us.fetch_add(took, Ordering::Relaxed);
    }
}

fn place_of(answer: &Answer) -> usize {
    let word = match answer {
        Answer::Completed { outcome, .. } => outcome.as_str(),
        Answer::Duplicate { .. } => "duplicate",
        Answer::Pending { .. } => "pending",
        Answer::Failed { .. } => "failed",
        Answer::DeadLetter { .. } => "dead_letter",
    };
    ANSWERS.iter().position(|known| *known == word).unwrap_or(ANSWERS.len())
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::decision::Outcome;

    #[test]
    fn each_answer_type_and_duration_has_its_place() {
        let deliveries = Deliveries::default();
        let completed = |outcome| Answer::Completed { outcome, reason: None };
        for (answer, kind, us) in [
            (completed(Outcome::Applied), "invoice.paid", 0),
            (completed(Outcome::NoEffect), "invoice.paid", 500),
            (completed(Outcome::Stale), "credit_note.created", 501),
            (completed(Outcome::Ignored), "of.a.merchant", 1_000),
            (Answer::Pending { needs: "lines:in_1".into() }, "INVOICE.PAID", 5_000_000),
            (Answer::Failed { code: "x", attempts: 1 }, "", 5_000_001),
            (Answer::DeadLetter { code: "x", attempts: 5 }, "other", 9_000_000),
            (Answer::Duplicate { outcome: "applied".into() }, "invoice.paid", 1),
        ] {
            deliveries.count(&answer, kind, Duration::from_micros(us));
        }
        deliveries.count_duplicate("invoice.paid", Duration::ZERO);
        let answers: Vec<_> = deliveries.by_answer().map(|(word, count)| format!("{word} {count}")).collect();
        let expected = ["applied 1", "no_effect 1", "stale 1", "ignored 1", "duplicate 2", "pending 1", "failed 1"];
        assert_eq!(answers[..7], expected);
        assert_eq!(answers[7], "dead_letter 1");
        let types: Vec<_> = deliveries.by_type().filter(|(_, count)| *count > 0).collect();
        assert_eq!(types, [("invoice.paid", 4), ("credit_note.created", 1), ("other", 4)]);
        let (up_to, sum_us) = deliveries.durations();
        assert_eq!(up_to, [4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 9]);
        assert_eq!(sum_us, 500 + 501 + 1_000 + 5_000_000 + 5_000_001 + 9_000_000 + 1);
    }
}
