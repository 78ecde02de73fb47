//! Events from a file, through the same pipeline as deliveries.
//!
//! Stripe prints the newest events first. The order does not matter for the books, but in the order of time fewer
//! events wait: so a window of the file is sorted, as far as memory should be spent on it.

use std::collections::HashSet;
use std::io::{self, BufRead};

use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::decision::Outcome;
use crate::domain::ids::EventId;
use crate::ops::ingest::{Answer, Delivery, Errand};
use crate::store::events::Source;
use crate::store::payload::{self, Payload};
use crate::store::{Desk, StoreError};
use crate::stripe::events_file::{Entry, EventsFile, Position};
use crate::stripe::wire;

/// How many events are sorted at a time, at most.
const WINDOW: usize = 1_000;

/// How many bytes of the file are sorted at a time, at most; one entry more may come.
const WINDOW_BYTES: u64 = 16 << 20;

/// How many events one transaction takes, so that deliveries to a server beside it never wait long.
const BATCH: usize = 100;

/// How many problems a report tells; all are counted.
const TOLD_MAX: usize = 100;

/// What an import came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Entries in the file.
    pub read: u64,
    /// Completed by this import.
    pub new: u64,
    /// Completed before, or twice in the file.
    pub duplicate: u64,
    /// Kept, and waiting for something.
    pub pending: u64,
    /// Kept, and failed.
    pub failed: u64,
    /// Kept, and not for these books.
    pub ignored: u64,
    /// No events.
    pub unreadable: u64,
    /// The first of those that are no events.
    pub problems: Vec<Problem>,
}

/// An entry that is no event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its number in the file, from 1 on.
    pub entry: u64,
    /// The line on which it begins, from 1 on.
    pub line: u64,
    /// What is wrong with it; repeats nothing of it.
    pub problem: String,
}

/// An import that is under way.
#[derive(Debug)]
pub struct Import<R> {
    file: EventsFile<R>,
    metadata_key: String,
    /// Read and sorted, the last one first.
    window: Vec<Delivery>,
    /// Why the file cannot be read on; told once what was read before has run.
    trouble: Option<io::Error>,
    imported: Imported,
}

impl<R: BufRead> Import<R> {
    /// Starts to read a file.
    pub fn new(input: R, metadata_key: &str) -> Self {
        Self {
            file: EventsFile::new(input),
            metadata_key: metadata_key.into(),
            window: Vec::new(),
            trouble: None,
            imported: Imported::default(),
        }
    }

    /// How many bytes of the file have been read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// What it came to so far.
    #[must_use]
    pub fn imported(&self) -> &Imported {
        &self.imported
    }

    /// The next events to run; `None` at the end.
    ///
    /// # Errors
    /// Those of the input; what ran before stands.
    pub fn next_batch(&mut self, now: UnixMillis) -> io::Result<Option<Vec<Delivery>>> {
        if self.window.is_empty() {
            self.fill_window(now);
        }
        if self.window.is_empty()
            && let Some(trouble) = self.trouble.take()
        {
            return Err(trouble);
        }
        let rest = self.window.len().saturating_sub(BATCH);
        let mut batch = self.window.split_off(rest);
        batch.reverse();
        Ok(if batch.is_empty() { None } else { Some(batch) })
    }

    fn fill_window(&mut self, now: UnixMillis) {
        let end = self.file.bytes() + WINDOW_BYTES;
        while self.trouble.is_none() && self.window.len() < WINDOW {
            if self.file.bytes() >= end && !self.window.is_empty() {
                break;
            }
            let Entry { position, json } = match self.file.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    self.trouble = Some(error);
                    break;
                }
            };
            self.imported.read += 1;
            match json.map_err(str::to_owned).and_then(|json| self.delivery(&json, now)) {
                Ok(delivery) => self.window.push(delivery),
                Err(problem) => self.note(position, problem),
            }
        }
        self.window
            .sort_by(|one, other| (other.event.created, &other.event.id).cmp(&(one.event.created, &one.event.id)));
    }

    fn delivery(&self, json: &[u8], now: UnixMillis) -> Result<Delivery, String> {
        let event = wire::read(json, &self.metadata_key).map_err(|error| error.to_string())?;
        let payload = Payload::pack(json).map_err(|error| error.to_string())?;
        Ok(Delivery { event, payload: Some(payload), source: Source::Import, received: now })
    }

    fn note(&mut self, Position { entry, line }: Position, problem: String) {
        self.imported.unreadable += 1;
        if self.imported.problems.len() < TOLD_MAX {
            self.imported.problems.push(Problem { entry, line, problem });
        }
    }

    /// Runs a batch in one transaction, and counts what came of it.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of the batch is stored.
    pub fn run(
        &mut self,
        desk: &mut impl Desk,
        errand: &Errand,
        batch: Vec<Delivery>,
        now: UnixMillis,
    ) -> Result<(), StoreError> {
        let ids: Vec<EventId> = batch.iter().map(|delivery| delivery.event.id.clone()).collect();
        let to_run = errand.clone();
        let answers = desk.write(move |transaction| {
            payload::keep_dictionary(transaction)?;
            Ok(to_run.run(transaction, &batch, now)?.answers)
        })?;
        let mut seen = HashSet::new();
        for (id, answer) in ids.iter().zip(&answers) {
            let imported = &mut self.imported;
            let counter = match answer {
                _ if !seen.insert(id) => &mut imported.duplicate,
                Answer::Duplicate { .. } => &mut imported.duplicate,
                Answer::Completed { outcome: Outcome::Ignored, .. } => &mut imported.ignored,
                Answer::Completed { .. } => &mut imported.new,
                Answer::Pending { .. } => &mut imported.pending,
                Answer::Failed { .. } | Answer::DeadLetter { .. } => &mut imported.failed,
            };
            *counter += 1;
        }
        Ok(())
    }
}
