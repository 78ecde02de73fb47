//! Events in the transactions of somebody else: a command beside the server, the reaper, a backfill.
//!
//! The same path as that of a delivery, on behalf of whoever asked. Each event has a savepoint, because what else
//! stands in the transaction is not ours to take back.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Transaction;

use super::{Answer, Delivery, Run, Savepoints};
use crate::clock::UnixMillis;
use crate::domain::ids::EventId;
use crate::domain::policy::Policy;
use crate::ops::apply::Books;
use crate::store::events;
use crate::store::payload;
use crate::store::{Desk, StoreError};
use crate::stripe::wire;

/// What decides about an event.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The rules of money and state.
    pub policy: Arc<Policy>,
    /// The metadata key that carries the user's own id.
    pub metadata_key: String,
}

/// Runs events on behalf of somebody. Cloning is cheap: each transaction takes a clone.
#[derive(Debug, Clone)]
pub struct Errand {
    rules: Rules,
    actor: Arc<str>,
}

/// What a transaction came to.
#[derive(Debug)]
pub struct Done {
    /// The answers in the order of the deliveries.
    pub answers: Vec<Answer>,
    /// Events were woken that have not run: there is work for another transaction.
    pub more_woken: bool,
}

impl Errand {
    /// An errand of `actor`: `stripe`, `operator:NAME` or `job:NAME`.
    #[must_use]
    pub fn new(rules: Rules, actor: &str) -> Self {
        Self { rules, actor: actor.into() }
    }

    /// What decides.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Who is in the audit log.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Runs deliveries, then what waited for them. Without deliveries: runs what was woken before.
    ///
    /// # Errors
    /// Trouble with disk, memory or locks; then nothing of the transaction may be kept.
    pub fn run(
        &self,
        transaction: &Transaction<'_>,
        deliveries: &[Delivery],
        now: UnixMillis,
    ) -> Result<Done, StoreError> {
        let ran = self.begin(transaction, now).all(deliveries, deliveries.is_empty(), None)?;
        Ok(Done { answers: ran.answers, more_woken: ran.more_woken })
    }

    /// Runs all that was woken, in as many transactions as it takes.
    ///
    /// # Errors
    /// [`StoreError`]; what earlier transactions did stands.
    pub fn run_woken(&self, desk: &mut impl Desk, now: UnixMillis) -> Result<(), StoreError> {
        loop {
            let errand = self.clone();
            if !desk.write(move |transaction| Ok(errand.run(transaction, &[], now)?.more_woken))? {
                return Ok(());
            }
        }
    }

    /// Ends held tiers whose time has come, bounded; returns how many.
    ///
    /// # Errors
    /// As [`Errand::run`].
    pub fn end_held_tiers(&self, transaction: &Transaction<'_>, now: UnixMillis) -> Result<usize, StoreError> {
        let mut run = self.begin(transaction, now);
        run.end_held_tiers(Some(0))?;
        Ok(run.ended)
    }

    fn begin<'a>(&'a self, transaction: &'a Transaction<'_>, now: UnixMillis) -> Run<'a> {
        Run {
            books: Books { connection: transaction, now, chain: None },
            savepoints: Savepoints::Each,
            went_wrong: false,
            policy: &self.rules.policy,
            metadata_key: &self.rules.metadata_key,
            actor: &self.actor,
            repeats: HashMap::new(),
            arrivals: Vec::new(),
            ended: 0,
        }
    }
}

/// What is kept of an event, so that it can run again.
#[derive(Debug)]
pub enum Stored {
    /// All of it.
    Whole(Box<Delivery>),
    /// Its row, but no payload.
    NoPayload,
    /// A payload that cannot be read; says why.
    Damaged(String),
}

/// Reads an event back from what is stored of it.
///
/// # Errors
/// Trouble with disk, memory or locks.
pub fn stored(connection: &rusqlite::Connection, id: &EventId, metadata_key: &str) -> Result<Stored, StoreError> {
    let Some((source, received)) = events::arrival(connection, id)? else { return Ok(Stored::NoPayload) };
    let body = match payload::read(connection, id) {
        Ok(Some(body)) => body,
        Ok(None) => return Ok(Stored::NoPayload),
        Err(error) if error.is_environmental() => return Err(error),
        Err(error) => return Ok(Stored::Damaged(error.to_string())),
    };
    Ok(match wire::read(&body, metadata_key) {
        Ok(event) => Stored::Whole(Box::new(Delivery { event, payload: None, source, received })),
        Err(error) => Stored::Damaged(error.to_string()),
    })
}
