//! Requests under way, each in a thread of its own: what is asked, and what is heard, in whatever order it comes.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, Scope};
use std::time::Duration;

use super::{Question, Told, ask};
use crate::clock::UnixMillis;
use crate::stripe::ask::NoAnswer;
use crate::stripe::client::{Api, Kind};

/// Enough for a request and for reading its answer.
const STACK_BYTES: usize = 2 << 20;

/// Asks what it is given, all at the same time.
pub struct Asking<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    api: &'env dyn Api,
    clock: &'env (dyn Fn() -> UnixMillis + Sync),
    stack_bytes: usize,
    tell: Sender<Heard>,
    told: Receiver<Heard>,
}

/// What became of a question.
pub struct Heard {
    pub(super) question: Question,
    /// Before the request was sent.
    pub(super) asked_at: UnixMillis,
    pub(super) told: Result<Told, Unanswered>,
}

/// Why a question is still open.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// Stripe told nothing that can be used.
    NoAnswer(NoAnswer),
    /// The system gave no thread to ask with.
    NoThread,
    /// A bug.
    Panicked,
}

impl Unanswered {
    /// It tells nothing of the question: any other would have failed now.
    pub(super) fn is_of_the_moment(&self) -> bool {
        match self {
            Self::NoAnswer(NoAnswer::Api(error)) => !error.is_final(),
            Self::NoAnswer(NoAnswer::Unreadable { .. }) | Self::Panicked => false,
            Self::NoThread => true,
        }
    }

    /// billingd is being stopped.
    pub(super) fn is_stop(&self) -> bool {
        matches!(self, Self::NoAnswer(NoAnswer::Api(error)) if error.kind == Kind::Stopped)
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer(error) => error.fmt(f),
            Self::NoThread => f.write_str("the system gives no thread to ask with; raise its limit of tasks"),
            Self::Panicked => f.write_str("a bug: the question panicked; please report it"),
        }
    }
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
        Self { scope, api, clock, stack_bytes: STACK_BYTES, tell, told }
    }

    /// Waits so long for whatever is heard next.
    #[must_use]
    pub fn hear_within(&self, time: Duration) -> Option<Heard> {
        self.told.recv_timeout(time).ok()
    }

    /// Something is heard of each question, whatever goes wrong with it.
    pub(super) fn ask(&self, question: Question) {
        let (api, asked_at, tell) = (self.api, (self.clock)(), self.tell.clone());
        let unasked = Heard { question: question.clone(), asked_at, told: Err(Unanswered::NoThread) };
        let asks = move || {
            let told = catch_unwind(AssertUnwindSafe(|| ask(api, &question).map_err(Unanswered::NoAnswer)));
            let told = told.unwrap_or(Err(Unanswered::Panicked));
            // Nobody listens any more once all is over.
            let _ = tell.send(Heard { question, asked_at, told });
        };
        let thread = Builder::new().name("question".into()).stack_size(self.stack_bytes);
        if thread.spawn_scoped(self.scope, asks).is_err() {
            let _ = self.tell.send(unasked);
        }
    }

    /// Waits for whatever is heard next; something must be under way.
    pub(super) fn hear(&self) -> Option<Heard> {
        self.told.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::decision::Need;
    use crate::stripe::client::{ApiError, Dated};

    struct Nobody;

    impl Api for Nobody {
        fn get(&self, path: &str, _: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
            Err(ApiError::new(Kind::NotFound, path, "nobody put it there"))
        }
    }

    #[test]
    fn where_the_system_gives_no_thread_the_question_stays_unanswered() {
        std::thread::scope(|scope| {
            let mut asking = Asking::new(scope, &Nobody, &|| 7);
            let question = Question { need: Need::Object("/v1/x".into()), event: None, only_amount: false };
            for (stack_bytes, is_asked) in [(usize::MAX / 2, false), (STACK_BYTES, true)] {
                asking.stack_bytes = stack_bytes;
                asking.ask(question.clone());
                let heard = asking.hear().unwrap();
                assert_eq!((heard.question, heard.asked_at), (question.clone(), 7));
                match heard.told {
                    Ok(told) => assert!(is_asked && told == Told::Gone),
                    Err(why) => assert!(!is_asked && why.is_of_the_moment(), "{why}"),
                }
            }
        });
    }
}
