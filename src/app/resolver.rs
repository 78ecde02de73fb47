//! The thread that asks Stripe for what waiting events lack.
//!
//! It looks twice a second for something to ask, whatever is under way, so that what arrives is asked for within a
//! second; how long to wait after a failure is the resolver's matter.

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
        let (client, clock) = (self.client.clone(), self.clock);
        std::thread::scope(|scope| {
            let asking = Asking::new(scope, &client, &clock);
            let mut resolver = Resolver::new(self.at_once);
            while !self.stop.is_set() {
                if let Err(error) = self.turn(&mut resolver, &asking) {
                    tracing::error!(%error, "what Stripe told could not be kept; it will be asked again");
                    self.stop.wait(LOOK_EVERY);
                }
            }
        });
    }

    /// Looks for questions, and asks them and keeps the answers until it is time to look again: after a while, or once
    /// all are asked and one is answered, for then there may be more that wait for one.
    fn turn(&mut self, resolver: &mut Resolver, asking: &Asking<'_, '_>) -> Result<(), StoreError> {
        let end = Instant::now() + LOOK_EVERY;
        if !resolver.rests((self.clock)()) {
            self.reader.read(|connection| resolver.look(connection, (self.clock)()))?;
        }
        resolver.ask(asking, (self.clock)());
        while !self.stop.is_set()
            && let Some(heard) = asking.hear_within(end.saturating_duration_since(Instant::now()))
        {
            let is_answered = resolver.keep(heard, &mut self.writer, (self.clock)())?;
            if is_answered && resolver.has_asked_all() {
                break;
            }
            resolver.ask(asking, (self.clock)());
        }
        Ok(())
    }
}
