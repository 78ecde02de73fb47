//! Asks Stripe's API for what waiting events lack, and keeps the answers where the next run of those events finds them.
//!
//! Never in a transaction and never in a request: the questions are read, asked, and the answers written, each by
//! itself. One question serves all events that wait for the same thing, and "there is no such thing" is an answer too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use rusqlite::{Connection, Transaction};

use crate::clock::UnixMillis;
use crate::domain::clawback::ChargeHeld;
use crate::domain::decision::Need;
use crate::domain::event::{Charge, Line, PaymentRef, Price};
use crate::domain::facts::Asked;
use crate::domain::ids::{ChargeId, EventId, PaymentId};
use crate::domain::subscription::State;
use crate::stop::Stop;
use crate::store::answers::{self, Open};
use crate::store::payload::{self, Payload};
use crate::store::{Desk, StoreError, events, payments, prices};
use crate::stripe::ask::{self, NoAnswer, Paid};
use crate::stripe::client::{Api, ApiError, Kind};

/// How many rows of what is open are looked at in one pass.
const OPEN_MAX: usize = 1_000;

/// The first wait after a question without an answer, or whose answer did not help; each further one is twice as long.
const WAIT_FIRST_MS: i64 = 1_000;

/// The longest wait.
const WAIT_MAX_MS: i64 = 600_000;

/// Something to ask of Stripe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// What is missing.
    pub need: Need,
    /// The event that waits longest for it.
    event: EventId,
    /// Of a payment whose invoice or checkout is known, only the amount is missing.
    only_amount: bool,
}

/// What Stripe told.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Lines(Vec<Line>),
    Prices(Vec<Price>),
    Paid(Paid),
    Charges(Vec<Charge>),
    State(Box<State>),
    Object(Payload),
    Gone,
}

/// What is open and can be asked of Stripe, the longest waiting first.
///
/// # Errors
/// [`StoreError`].
pub fn questions(connection: &Connection) -> Result<Vec<Question>, StoreError> {
    let mut asked = HashSet::new();
    let mut questions = Vec::new();
    for Open { need, event } in without_other_names(answers::open(connection, OPEN_MAX)?) {
        if asked.insert(need.to_string()) {
            let only_amount = match &need {
                Need::Payment(name) => is_tied(connection, name)?,
                _ => false,
            };
            questions.push(Question { need, event, only_amount });
        }
    }
    Ok(questions)
}

/// An event may wait for a payment by several names: one is enough, and the intent leads furthest.
fn without_other_names(open: Vec<Open>) -> Vec<Open> {
    let mut best: BTreeMap<EventId, String> = BTreeMap::new();
    for Open { need, event } in &open {
        if let Need::Payment(name) = need {
            let held = best.entry(event.clone()).or_insert_with(|| name.clone());
            if is_intent(name) && !is_intent(held) {
                held.clone_from(name);
            }
        }
    }
    let is_best = |one: &Open| match &one.need {
        Need::Payment(name) => best.get(&one.event) == Some(name),
        _ => true,
    };
    open.into_iter().filter(is_best).collect()
}

fn is_intent(name: &str) -> bool {
    name.starts_with("pi_")
}

/// The names of a payment, one of which is given.
fn payment_of(name: &str) -> PaymentRef {
    if is_intent(name) {
        PaymentRef { payment_intent: PaymentId::parse(name).ok(), charge: None }
    } else {
        PaymentRef { payment_intent: None, charge: ChargeId::parse(name).ok() }
    }
}

fn is_tied(connection: &Connection, name: &str) -> Result<bool, StoreError> {
    let payment = payments::payment(connection, &payment_of(name))?;
    if !payments::invoices_of(connection, &payment)?.is_empty() {
        return Ok(true);
    }
    match &payment.intent {
        Some(intent) => Ok(!payments::checkouts_of(connection, intent)?.is_empty()),
        None => Ok(false),
    }
}

/// Asks one question.
fn ask(api: &dyn Api, question: &Question) -> Result<Told, NoAnswer> {
    fn or_gone<T>(asked: Asked<T>, told: impl FnOnce(T) -> Told) -> Told {
        match asked {
            Asked::Told(answer) => told(answer),
            Asked::NotYet | Asked::Gone => Told::Gone,
        }
    }
    Ok(match &question.need {
        Need::Lines(invoice) => or_gone(ask::invoice_lines(api, invoice)?, Told::Lines),
        Need::Session(session) => or_gone(ask::session_lines(api, session)?, Told::Lines),
        Need::Price(price) => or_gone(ask::prices(api, price)?, Told::Prices),
        Need::Subscription(id) => {
            or_gone(ask::subscription(api, id)?, |current| Told::State(Box::new(State::of(&current))))
        }
        Need::Payment(name) if question.only_amount => Told::Charges(ask::charges(api, name)?),
        Need::Payment(name) => Told::Paid(ask::payment(api, name)?),
        Need::Object(path) => match ask::object(api, path, &[])? {
            Asked::Told(json) => Told::Object(Payload::pack(json.as_bytes()).map_err(|_| too_large(path))?),
            Asked::NotYet | Asked::Gone => Told::Gone,
        },
        Need::Grant(_) | Need::Rate(_) => Told::Gone,
    })
}

fn too_large(path: &str) -> NoAnswer {
    ApiError::new(Kind::Garbage, path, "there is no memory for the answer").into()
}

/// Keeps an answer, and wakes those who wait for it.
fn keep(
    transaction: &Transaction<'_>,
    question: &Question,
    told: Told,
    asked_at: UnixMillis,
) -> Result<(), StoreError> {
    let need = &question.need;
    match (need, told) {
        (Need::Lines(_) | Need::Session(_), Told::Lines(lines)) => {
            answers::save_lines(transaction, need, &lines, asked_at)?;
        }
        (Need::Subscription(id), Told::State(state)) => answers::save_state(transaction, id, &state, asked_at)?,
        (Need::Object(_), told) => keep_object(transaction, need, told, asked_at)?,
        (Need::Payment(name), Told::Charges(charges)) => keep_charges(transaction, name, charges, asked_at)?,
        (Need::Payment(name), Told::Paid(paid)) => keep_paid(transaction, name, &paid, asked_at)?,
        (_, told) => {
            if let Told::Prices(told) = told {
                told.iter().try_for_each(|price| prices::learn(transaction, price))?;
            }
            answers::save_asked(transaction, need, asked_at)?;
        }
    }
    events::wake(transaction, need)?;
    Ok(())
}

fn keep_object(transaction: &Transaction<'_>, need: &Need, told: Told, asked_at: UnixMillis) -> Result<(), StoreError> {
    let object = match told {
        Told::Object(object) => object,
        _ => Payload::pack(&[])?,
    };
    for event in answers::waiting_for(transaction, need, asked_at)? {
        payload::save_fetched(transaction, &event, &object, asked_at)?;
    }
    Ok(())
}

/// Ties the payment to what it paid; whoever waits for it by another of its names can go on as well. That nothing is
/// tied to it stands nowhere else; where something is, its amount may have to be asked for yet.
fn keep_paid(transaction: &Transaction<'_>, name: &str, paid: &Paid, asked_at: UnixMillis) -> Result<(), StoreError> {
    if let (Some(intent), Some(charge)) = (&paid.names.payment_intent, &paid.names.charge) {
        payments::name(transaction, charge, intent)?;
    }
    for invoice in &paid.invoices {
        payments::link(transaction, invoice, &paid.names)?;
    }
    let told = paid.names.payment_intent.as_ref().map(PaymentId::as_str).into_iter();
    for name in told.chain(paid.names.charge.as_ref().map(ChargeId::as_str)).chain([name]) {
        let need = Need::Payment(name.to_owned());
        if paid.invoices.is_empty() {
            answers::save_asked(transaction, &need, asked_at)?;
        }
        events::wake(transaction, &need)?;
    }
    Ok(())
}

/// Remembers what the charges of a payment captured, where no snapshot has told it. They stand as at their beginning,
/// before any refund, which are told by events of their own.
fn keep_charges(
    transaction: &Transaction<'_>,
    name: &str,
    charges: Vec<Charge>,
    asked_at: UnixMillis,
) -> Result<(), StoreError> {
    let need = Need::Payment(name.to_owned());
    answers::save_asked(transaction, &need, asked_at)?;
    let Some(source) = answers::waiting_for(transaction, &need, asked_at)?.into_iter().next() else { return Ok(()) };
    let known = payments::payment(transaction, &payment_of(name))?.snapshots;
    for charge in charges.into_iter().filter(|charge| known.iter().all(|held| held.id != charge.id)) {
        if let Some(intent) = &charge.payment_intent {
            payments::name(transaction, &charge.id, intent)?;
        }
        let held = ChargeHeld {
            id: charge.id,
            intent: charge.payment_intent,
            account: charge.customer,
            currency: charge.currency,
            captured: charge.amount_captured,
            refunded: 0,
            at: 0,
            source: source.clone(),
        };
        payments::save_charge(transaction, &held)?;
    }
    Ok(())
}

/// Nobody answers, whatever is asked.
fn is_silence<T>(answer: &Result<T, NoAnswer>) -> bool {
    matches!(answer, Err(NoAnswer::Api(error)) if !error.is_final())
}

/// When to ask what: remembers, as long as the process lives, what was asked in vain.
#[derive(Debug, Default)]
pub struct Resolver {
    /// What was asked for an event, and when to ask it again if that event still waits then.
    put_off: HashMap<Question, Pause>,
    /// Nobody answers at the moment.
    silence: Option<Pause>,
}

/// Ever longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    tries: u32,
    until: UnixMillis,
}

impl Pause {
    fn after(held: Option<Self>, now: UnixMillis) -> Self {
        let tries = held.map_or(0, |held| held.tries);
        let wait = WAIT_FIRST_MS << tries.min(30);
        Self { tries: tries.saturating_add(1), until: now.saturating_add(wait.min(WAIT_MAX_MS)) }
    }

    fn longest(now: UnixMillis) -> Self {
        Self { tries: u32::MAX, until: now.saturating_add(WAIT_MAX_MS) }
    }
}

/// What a pass came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Questions that were answered.
    pub answered: usize,
    /// Questions that were not.
    pub unanswered: usize,
}

impl Resolver {
    /// Asks what is due, up to `at_once` questions at the same time, and writes each answer as it comes. Ends early
    /// when nobody answers, and once `stop` is set.
    ///
    /// # Errors
    /// [`StoreError`] when an answer cannot be written; it will be asked for again.
    pub fn pass(
        &mut self,
        questions: Vec<Question>,
        api: &dyn Api,
        desk: &mut impl Desk,
        at_once: usize,
        clock: &(dyn Fn() -> UnixMillis + Sync),
        stop: &Stop,
    ) -> Result<Passed, StoreError> {
        let due = self.due(questions, clock());
        // What fails at the same time fails once.
        let before = self.silence;
        let workers = at_once.min(due.len());
        let left = Mutex::new(due.into_iter());
        let gives_up = AtomicBool::new(false);
        let next = || {
            let is_over = stop.is_set() || gives_up.load(Ordering::Relaxed);
            if is_over { None } else { left.lock().unwrap_or_else(PoisonError::into_inner).next() }
        };
        let (answers, told) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let answers = answers.clone();
                let (next, gives_up) = (&next, &gives_up);
                scope.spawn(move || {
                    while let Some(question) = next() {
                        let asked_at = clock();
                        let answer = ask(api, &question);
                        gives_up.fetch_or(is_silence(&answer), Ordering::Relaxed);
                        if answers.send((question, asked_at, answer)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(answers);
            let mut passed = Passed::default();
            for (question, asked_at, answer) in told {
                let kept = self.take(question, asked_at, answer, desk, before, clock());
                gives_up.fetch_or(kept.is_err(), Ordering::Relaxed);
                if kept? { passed.answered += 1 } else { passed.unanswered += 1 }
            }
            Ok(passed)
        })
    }

    /// What may be asked now; what was asked in vain before comes last, for it may be the only one without an answer.
    /// While nobody answers, one question is enough to find out.
    fn due(&mut self, mut questions: Vec<Question>, now: UnixMillis) -> Vec<Question> {
        let open: HashSet<&Question> = questions.iter().collect();
        self.put_off.retain(|question, pause| pause.until > now || open.contains(question));
        questions.retain(|question| self.put_off.get(question).is_none_or(|pause| pause.until <= now));
        questions.sort_by_key(|question| self.put_off.get(question).map_or(0, |pause| pause.tries));
        match self.silence {
            Some(silence) if silence.until > now => questions.clear(),
            Some(_) => questions.truncate(1),
            None => {}
        }
        questions
    }

    /// Whether the question was answered. `before`: how long nobody had answered when the pass began.
    fn take(
        &mut self,
        question: Question,
        asked_at: UnixMillis,
        answer: Result<Told, NoAnswer>,
        desk: &mut impl Desk,
        before: Option<Pause>,
        now: UnixMillis,
    ) -> Result<bool, StoreError> {
        let need = question.need.clone();
        // An answer too: the same event may wait for the same thing all the same.
        let pause = Pause::after(self.put_off.get(&question).copied(), now);
        match answer {
            Ok(told) => {
                self.silence = None;
                self.put_off.insert(question.clone(), pause);
                desk.write(move |transaction| keep(transaction, &question, told, asked_at))?;
                tracing::info!(%need, "Stripe told what events waited for");
                Ok(true)
            }
            Err(NoAnswer::Api(error)) if !error.is_final() => {
                if error.kind != Kind::Stopped {
                    self.silence = Some(Pause::after(before, now));
                    self.put_off.insert(question, pause);
                    tracing::warn!(%need, %error, "Stripe was asked in vain");
                }
                Ok(false)
            }
            Err(error) => {
                self.silence = None;
                self.put_off.insert(question, Pause::longest(now));
                let text = format!("Stripe was asked for {need}: {error}");
                tracing::warn!(%need, %error, "Stripe's answer cannot be used");
                desk.write(move |transaction| events::note(transaction, &need, &text))?;
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests;
