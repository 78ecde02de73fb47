//! The thread that asks Stripe for what waiting events lack.
//!
//! It looks twice a second for something to ask, whatever is under way, so that what arrives is asked for within a
//! second; how long to wait after a failure is the resolver's matter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::clock::UnixMillis;
use crate::ops::ingest::Ingest;
use crate::ops::resolve::{Asking, Resolver};
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::reader::Reader;
use crate::store::writer::Writer;
use crate::stripe::client::{Client, Limits};

/// How often to look for open questions.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long to wait after a panic, so that one that comes back does not fill the log.
const REST_AFTER_BUG: Duration = Duration::from_secs(10);

/// Starts asking, until `stop` is set. A request that hangs need not be waited for: it will be asked again.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn start(
    client: Client,
    stop: Stop,
    reader: Reader,
    writer: Writer<Ingest>,
    clock: fn() -> UnixMillis,
) -> std::io::Result<()> {
    let at_once = usize::try_from(Limits::default().at_once.get()).unwrap_or(1);
    let asker = Asker { client, reader, writer, clock, stop, at_once };
    std::thread::Builder::new().name("resolver".into()).spawn(move || asker.run())?;
    Ok(())
}

struct Asker {
    client: Client,
    reader: Reader,
    writer: Writer<Ingest>,
    clock: fn() -> UnixMillis,
    stop: Stop,
    at_once: usize,
}

impl Asker {
    fn run(mut self) {
        let stop = self.stop.clone();
        over_and_over(&stop, REST_AFTER_BUG, || self.resolve());
    }

    fn resolve(&mut self) {
        let (client, clock) = (self.client.clone(), self.clock);
        std::thread::scope(|scope| {
            let asking = Asking::new(scope, &client, &clock);
            let mut resolver = Resolver::new(self.at_once);
            while !self.stop.is_set() {
                self.look(&mut resolver);
                if let Err(error) = self.turn(&mut resolver, &asking) {
                    tracing::error!(%error, "what Stripe told could not be kept; it will be asked again");
                    self.stop.wait(LOOK_EVERY);
                }
            }
        });
    }

    /// What could not be looked at is looked at with the next turn.
    fn look(&self, resolver: &mut Resolver) {
        let now = (self.clock)();
        if resolver.rests(now) {
            return;
        }
        if let Err(error) = self.reader.read(|connection| resolver.look(connection, now)) {
            tracing::error!(%error, "what events wait for could not be read; it is tried again");
        }
    }

    /// Asks, and keeps the answers until it is time to look again: after a while, or once all are asked and one is
    /// answered, for then there may be more that wait for one.
    fn turn(&mut self, resolver: &mut Resolver, asking: &Asking<'_, '_>) -> Result<(), StoreError> {
        let end = Instant::now() + LOOK_EVERY;
        resolver.ask(asking, (self.clock)());
        while !self.stop.is_set()
            && let Some(heard) = asking.hear_within(end.saturating_duration_since(Instant::now()))
        {
            let is_answered = resolver.keep(heard, &mut self.writer, (self.clock)())?;
            if is_answered && resolver.due().next().is_none() {
                break;
            }
            resolver.ask(asking, (self.clock)());
        }
        Ok(())
    }
}

/// Works until `stop` is set. A bug does not end it: it rests, and begins anew.
fn over_and_over(stop: &Stop, rest: Duration, mut work: impl FnMut()) {
    while !stop.is_set() {
        if catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
            tracing::error!("a bug: who asks Stripe panicked, and begins anew; please report it");
            stop.wait(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_does_not_end_the_asking() {
        let (stop, mut begun) = (Stop::default(), 0);
        over_and_over(&stop, Duration::ZERO, || {
            begun += 1;
            assert!(begun == 3, "a bug");
            stop.set();
        });
        assert_eq!(begun, 3);
    }
}
