//! The thread that asks Stripe for what waiting events lack.
//!
//! It looks twice a second for something to ask, so that what arrives is asked for within a second; how long to wait
//! after a failure is the resolver's matter.

use std::time::Duration;

use crate::clock::UnixMillis;
use crate::ops::ingest::Ingest;
use crate::ops::resolve::{self, Resolver};
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
    let mut asker = Asker { client, reader, writer, clock, stop, at_once };
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
    fn run(&mut self) {
        let mut resolver = Resolver::default();
        while !self.stop.is_set() {
            let answered = self.pass(&mut resolver).unwrap_or_else(|error| {
                tracing::error!(%error, "what Stripe told could not be kept; it will be asked again");
                0
            });
            // As long as there are answers there may be more that wait for one.
            if answered == 0 {
                self.stop.wait(LOOK_EVERY);
            }
        }
    }

    fn pass(&mut self, resolver: &mut Resolver) -> Result<usize, StoreError> {
        let questions = self.reader.read(resolve::questions)?;
        let (at_once, clock, stop) = (self.at_once, self.clock, &self.stop);
        Ok(resolver.pass(questions, &self.client, &mut self.writer, at_once, &clock, stop)?.answered)
    }
}
