//! The thread that calls for a person: it looks, compares with what was told, and tells.
//!
//! Not on the thread of the jobs, since a stuck job must be noticed; and what it has told is written by another thread,
//! since a stuck writer must be noticed, too. What could not be written is told again by the next process.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::UnixMillis;
use crate::domain::alert::{self, Alert, Alerts, Condition, Notice, Readings, State};
use crate::domain::event::UnixSeconds;
use crate::notify::Sink;
use crate::ops::alerts::{self, Scope, Tally};
use crate::stop::Stop;
use crate::store::reader::Reader;
use crate::store::writer::Health;
use crate::store::{Desk, StoreError};

/// How often it looks: so late a call may come, besides what else takes time.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(15);

/// How long it waits after a call that was not taken, at first, in milliseconds; each further one doubles it.
const WAIT_MIN_MS: i64 = 15_000;

/// It waits no longer than this.
const WAIT_MAX_MS: i64 = 600_000;

/// What the watch goes by.
pub(super) struct Watch {
    /// What is looked at.
    pub(super) scope: Scope,
    /// Whose health is looked at.
    pub(super) health: Health,
    /// Where it looks.
    pub(super) reader: Reader,
    /// Where it tells; `None`: only in the log.
    pub(super) sink: Option<Sink>,
    /// Whose conditions these are, in words.
    pub(super) who: String,
    /// What a former process has told.
    pub(super) held: Vec<Alert>,
    /// How deliveries are answered.
    pub(super) tally: Tally,
}

/// A watch that looks.
#[derive(Debug)]
pub(super) struct Running {
    stop: Stop,
    /// It ends after [`Running::stop`], when all that was seen, and how deliveries were answered, is written.
    pub(super) thread: JoinHandle<()>,
}

impl Running {
    /// Ends the looking. What is answered afterwards is not counted any more.
    pub(super) fn stop(&self) {
        self.stop.set();
    }
}

/// Starts looking.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn start(
    watch: Watch,
    desk: impl Desk + Send + 'static,
    clock: fn() -> UnixMillis,
    every: Duration,
) -> std::io::Result<Running> {
    let Watch { scope, health, reader, sink, who, held, tally } = watch;
    let (outbox, to_keep) = Outbox::new();
    let alerts = Alerts::held(held.clone());
    let stop = Stop::default();
    let keeper = std::thread::Builder::new()
        .name("watch-keeper".into())
        .spawn(move || Keeper { desk, tally, written: held }.run(&to_keep))?;
    let caller = Caller { sink, who, patience: Patience::default(), refused: BTreeMap::new() };
    let mut watcher = Watcher { scope, health, reader, caller, alerts, untold: BTreeSet::new(), outbox };
    let ends = stop.clone();
    let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
        while !ends.wait(every) {
            let look = AssertUnwindSafe(|| watcher.look(clock(), &ends));
            if catch_unwind(look).is_err() {
                tracing::error!("a bug: a look at what a person should know panicked; please report it");
            }
        }
        watcher.outbox.hand_over(watcher.alerts.all(), clock() / 1000);
        drop(watcher);
        // It cannot do more than log.
        drop(keeper.join());
    })?;
    Ok(Running { stop, thread })
}

struct Watcher {
    scope: Scope,
    health: Health,
    reader: Reader,
    caller: Caller,
    alerts: Alerts,
    /// What was to be told at the last look, and could not.
    untold: BTreeSet<Key>,
    outbox: Outbox,
}

impl Watcher {
    fn look(&mut self, now: UnixMillis, stop: &Stop) {
        let seen = self.conditions(now);
        for condition in self.alerts.see(seen, now / 1000) {
            tracing::info!(condition, "a condition is over before anybody was told");
        }
        let notices = self.alerts.notices(now / 1000);
        for notice in notices.iter().filter(|notice| !self.untold.contains(&key(notice))) {
            log(notice);
        }
        self.untold = notices.iter().map(key).collect();
        self.caller.forget_all_but(&self.untold);
        // A call may take long, and what was counted meanwhile should not wait for it.
        self.outbox.offer(self.alerts.all(), now / 1000);
        for notice in notices {
            if stop.is_set() {
                break;
            }
            match self.caller.call(&notice, now) {
                Call::Unheard => break,
                Call::Refused => {}
                Call::Taken => {
                    self.untold.remove(&key(&notice));
                    self.alerts.told(&notice);
                }
            }
        }
        self.outbox.offer(self.alerts.all(), now / 1000);
    }

    fn conditions(&self, now: UnixMillis) -> Vec<Condition> {
        let read = self.reader.read(|connection| alerts::read(connection, &self.scope, now));
        let (seen, unread) = match read {
            Ok(seen) => (seen, None),
            Err(error) => (Readings::default(), Some(error.to_string())),
        };
        let seen = Readings { storage: self.health.check().err(), ..seen };
        let mut conditions = alert::conditions(&seen, &self.scope.thresholds, now / 1000);
        if let Some(why) = unread {
            conditions.push(alert::unreadable(&why));
            // What nobody can look at is not over.
            let standing = self.alerts.all().iter().filter(|alert| alert.gone_at.is_none());
            conditions.extend(standing.map(|alert| alert.condition.clone()));
        }
        conditions
    }
}

/// What stands, and when it was seen.
type Stand = (Vec<Alert>, UnixSeconds);

/// The way from the watcher to the keeper. It holds one stand: what does not fit is out of date soon.
struct Outbox(SyncSender<Stand>);

impl Outbox {
    fn new() -> (Self, Receiver<Stand>) {
        let (outbox, to_keep) = sync_channel(1);
        (Self(outbox), to_keep)
    }

    /// Waits for nobody: what cannot be handed over now comes with the next look.
    fn offer(&self, alerts: &[Alert], now: UnixSeconds) {
        drop(self.0.try_send((alerts.to_vec(), now)));
    }

    /// Waits until it is taken: there is no next look.
    fn hand_over(&self, alerts: &[Alert], now: UnixSeconds) {
        drop(self.0.send((alerts.to_vec(), now)));
    }
}

/// What tells one notice from another: its text changes with every look.
type Key = (String, State);

fn key(notice: &Notice) -> Key {
    (notice.condition.clone(), notice.state)
}

fn log(notice: &Notice) {
    let Notice { state, condition, text, .. } = notice;
    match state {
        State::Raised => tracing::warn!(condition, text, "a person should know"),
        State::Cleared | State::Test => tracing::info!(condition, text, "a condition is over"),
    }
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Somebody was told.
    Taken,
    /// Somebody listens, and does not take this one.
    Refused,
    /// Nobody listens.
    Unheard,
}

/// Tells, and waits ever longer where nobody listens, or where a notice is refused: the others must not wait for it.
struct Caller {
    sink: Option<Sink>,
    who: String,
    patience: Patience,
    refused: BTreeMap<Key, Patience>,
}

impl Caller {
    fn call(&mut self, notice: &Notice, now: UnixMillis) -> Call {
        let Some(sink) = &self.sink else { return Call::Taken };
        if self.patience.is_tried(now) {
            return Call::Unheard;
        }
        if self.refused.get(&key(notice)).is_some_and(|patience| patience.is_tried(now)) {
            return Call::Refused;
        }
        let Err(error) = sink.tell(&self.who, notice) else {
            self.patience = Patience::default();
            return Call::Taken;
        };
        let (call, patience) = if error.is_about_the_notice() {
            (Call::Refused, self.refused.entry(key(notice)).or_default())
        } else {
            (Call::Unheard, &mut self.patience)
        };
        let wait_s = patience.more(now) / 1000;
        tracing::warn!(condition = notice.condition, %error, wait_s, "nobody was told; it is tried again");
        call
    }

    /// What is not to be told any more is refused by nobody.
    fn forget_all_but(&mut self, to_tell: &BTreeSet<Key>) {
        self.refused.retain(|key, _| to_tell.contains(key));
    }
}

#[derive(Debug, Default)]
struct Patience {
    wait_ms: i64,
    until: UnixMillis,
}

impl Patience {
    /// It must wait; not for long, though, if the clock was set back.
    fn is_tried(&self, now: UnixMillis) -> bool {
        (1..=WAIT_MAX_MS).contains(&(self.until - now))
    }

    /// Waits twice as long as before from now on; returns how long.
    fn more(&mut self, now: UnixMillis) -> i64 {
        self.wait_ms = (self.wait_ms * 2).clamp(WAIT_MIN_MS, WAIT_MAX_MS);
        self.until = now + self.wait_ms;
        self.wait_ms
    }
}

/// Writes what was told, and how deliveries were answered.
struct Keeper<D> {
    desk: D,
    tally: Tally,
    written: Vec<Alert>,
}

impl<D: Desk> Keeper<D> {
    fn run(mut self, to_keep: &Receiver<Stand>) {
        for (alerts, now) in to_keep {
            if let Err(error) = self.keep(alerts, now) {
                tracing::warn!(%error, "what was told is not written; a restart would tell it again");
            }
        }
    }

    fn keep(&mut self, alerts: Vec<Alert>, now: UnixSeconds) -> Result<(), StoreError> {
        let changed = (alerts != self.written).then(|| alerts.clone());
        alerts::keep(&mut self.desk, changed, &self.tally, now)?;
        self.written = alerts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stand_waits_for_its_turn() {
        let (outbox, to_keep) = Outbox::new();
        let (over, is_over) = sync_channel(1);
        for now in [1, 2] {
            outbox.offer(&[], now);
        }
        std::thread::scope(|threads| {
            threads.spawn(|| {
                outbox.hand_over(&[], 3);
                over.send(())
            });
            let waits = is_over.recv_timeout(Duration::from_millis(20)).is_err();
            assert_eq!((to_keep.recv(), waits), (Ok((vec![], 1)), true), "the second one found no room");
            assert_eq!(to_keep.recv(), Ok((vec![], 3)));
        });
    }

    #[test]
    fn who_does_not_listen_is_tried_ever_more_rarely() {
        let (mut patience, mut now, mut waits) = (Patience::default(), 1_000_000, Vec::new());
        assert!(!patience.is_tried(now));
        for _ in 0..8 {
            let wait = patience.more(now);
            assert!(patience.is_tried(now) && patience.is_tried(now + wait - 1) && !patience.is_tried(now + wait));
            now += wait;
            waits.push(wait / 1000);
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 480, 600, 600]);
        patience.more(now);
        assert!(!patience.is_tried(now - 1), "the clock was set back");
    }
}
