//! A chaotic courier: it drops what it has to bring again later, brings things twice, in any order and in heaps of any
//! size; but in the end it has brought everything.

use crate::sim::Rng;

/// In which batches so many events are delivered, by their indices.
pub(crate) fn deliver(events: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    // How bad the weather is: how often a delivery is dropped, doubled, or late.
    let (dropped, doubled, late) = *rng.pick(&[(0, 0, 0), (5, 5, 10), (30, 30, 50), (0, 5, 100)]);
    let mut due: Vec<(usize, usize)> = Vec::new();
    for event in 0..events {
        let mut at = event;
        if rng.percent(late) {
            at += rng.below(1 + 2 * events);
        }
        while rng.percent(dropped) {
            at += 1 + rng.below(1 + events);
        }
        due.push((at, event));
        if rng.percent(doubled) {
            due.push((at + rng.below(1 + events), event));
        }
    }
    due.sort_by_key(|(at, _)| *at);
    let heap = *rng.pick(&[1, 3, 40]);
    let mut batches = Vec::new();
    let mut rest = due.into_iter().map(|(_, event)| event).peekable();
    while rest.peek().is_some() {
        batches.push(rest.by_ref().take(1 + rng.below(heap)).collect());
    }
    batches
}
