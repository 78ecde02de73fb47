//! Requests under way, each in a thread of its own: what is asked, and what is heard, in whatever order it comes.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Scope;
use std::time::Duration;

use super::{Question, Told, ask};
use crate::clock::UnixMillis;
use crate::stripe::ask::NoAnswer;
use crate::stripe::client::Api;

/// Asks what it is given, all at the same time.
pub struct Asking<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    api: &'env dyn Api,
    clock: &'env (dyn Fn() -> UnixMillis + Sync),
    tell: Sender<Heard>,
    told: Receiver<Heard>,
}

/// What became of a question.
pub struct Heard {
    pub(super) question: Question,
    /// Before the request was sent.
    pub(super) asked_at: UnixMillis,
    pub(super) told: Result<Told, NoAnswer>,
}

impl<'scope, 'env> Asking<'scope, 'env> {
    /// Nothing is under way yet. The scope ends only once all that was asked is answered.
    #[must_use]
    pub fn new(
        scope: &'scope Scope<'scope, 'env>,
        api: &'env dyn Api,
        clock: &'env (dyn Fn() -> UnixMillis + Sync),
    ) -> Self {
        let (tell, told) = mpsc::channel();
        Self { scope, api, clock, tell, told }
    }

    /// Waits so long for whatever is heard next.
    #[must_use]
    pub fn hear_within(&self, time: Duration) -> Option<Heard> {
        self.told.recv_timeout(time).ok()
    }

    pub(super) fn ask(&self, question: Question) {
        let (api, clock, tell) = (self.api, self.clock, self.tell.clone());
        self.scope.spawn(move || {
            let asked_at = clock();
            let told = ask(api, &question);
            // Nobody listens any more once all is over.
            let _ = tell.send(Heard { question, asked_at, told });
        });
    }

    /// Waits for whatever is heard next; something must be under way.
    pub(super) fn hear(&self) -> Option<Heard> {
        self.told.recv().ok()
    }
}
