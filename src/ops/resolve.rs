//! Asks Stripe's API for what waiting events lack, and keeps the answers where the next run of those events finds them.
//!
//! Never in a transaction and never in a request: the questions are read, asked, and the answers written, each by
//! itself. One question serves all events that wait for the same thing, and "there is no such thing" is an answer too.

mod asking;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use rusqlite::{Connection, Transaction};

use crate::clock::UnixMillis;
use crate::domain::clawback::ChargeHeld;
use crate::domain::decision::Need;
use crate::domain::event::{Charge, Line, PaymentRef, Price, UnixSeconds};
use crate::domain::facts::Asked;
use crate::domain::ids::{ChargeId, EventId, PaymentId};
use crate::domain::subscription::State;
use crate::stop::Stop;
use crate::store::answers::{self, Open, Place};
use crate::store::payload::{self, Fetched, Payload};
use crate::store::{Desk, StoreError, events, payments, prices};
use crate::stripe::ask::{self, NoAnswer, Paid};
use crate::stripe::client::{Api, ApiError, Dated, Kind};

pub use asking::Asking;
use asking::Heard;

/// How many waiting events are looked at in one look: of those that came last, and of the others.
const PAGE: usize = 250;

/// The first wait after a question without an answer, or whose answer did not help; each further one is twice as long.
const WAIT_FIRST_MS: i64 = 1_000;

/// The longest wait.
const WAIT_MAX_MS: i64 = 600_000;

/// Something to ask of Stripe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// What is missing.
    pub need: Need,
    /// The event that waits longest for it; `None`: whoever waits for it.
    event: Option<EventId>,
    /// Of a payment whose invoice or checkout is known, only the amount is missing.
    only_amount: bool,
}

impl Question {
    fn of_anybody(&self) -> Self {
        Self { event: None, ..self.clone() }
    }
}

/// What Stripe told.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Lines(Vec<Line>),
    Prices(Vec<Price>),
    Paid(Paid),
    Charges(Vec<Charge>),
    State(Box<State>),
    Object {
        packed: Payload,
        /// By Stripe's clock, if it told the time.
        at: Option<UnixSeconds>,
    },
    Gone,
}

/// What is open and can be asked of Stripe, each thing once, in the order of the events.
fn questions(connection: &Connection, open: Vec<Open>) -> Result<Vec<Question>, StoreError> {
    let mut asked = HashSet::new();
    let mut questions = Vec::new();
    for Open { need, event } in without_other_names(open) {
        if asked.insert(need.to_string()) {
            let only_amount = match &need {
                Need::Payment(name) => is_tied(connection, name)?,
                _ => false,
            };
            questions.push(Question { need, event: Some(event), only_amount });
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
            or_gone(ask::subscription(api, id)?, |current| Told::State(Box::new(State::of(&current.told))))
        }
        Need::Payment(name) if question.only_amount => Told::Charges(ask::charges(api, name)?),
        Need::Payment(name) => Told::Paid(ask::payment(api, name)?),
        Need::Object(path) => match ask::object(api, path, &[])? {
            Asked::Told(Dated { told: json, date: at }) => {
                let packed = Payload::pack(json.as_bytes()).map_err(|_| too_large(path))?;
                Told::Object { packed, at }
            }
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
    let (object, told_at) = match told {
        Told::Object { packed, at } => (packed, at),
        _ => (Payload::pack(&[])?, None),
    };
    let fetched = Fetched { object, asked_at, told_at: told_at.unwrap_or(asked_at / 1000) };
    for event in answers::waiting_for(transaction, need, asked_at)? {
        payload::save_fetched(transaction, &event, &fetched)?;
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

/// When to ask what: remembers, as long as the process lives, what was asked in vain.
#[derive(Debug, Default)]
pub struct Resolver {
    /// How many questions may be under way at the same time.
    at_once: usize,
    /// What may be asked, in this order.
    due: VecDeque<Question>,
    /// What is under way, and how much had been heard of Stripe when it was asked.
    under_way: HashMap<Question, u64>,
    /// What was asked for an event, and when to ask it again if that event still waits then; what had no answer, for
    /// whoever waits for it.
    put_off: HashMap<Question, Pause>,
    /// Nobody answers at the moment.
    silence: Option<Pause>,
    /// How often anything was heard: an answer, or that nobody answers.
    heard: u64,
    /// How far the line of waiting events was looked through.
    place: Place,
    /// How often it was looked through to its end.
    rounds: usize,
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

    /// It goes on; not for longer than any pause, though, if the clock was set back.
    fn lasts(&self, now: UnixMillis) -> bool {
        (1..=WAIT_MAX_MS).contains(&self.until.saturating_sub(now))
    }

    /// It has been over for so long that whoever waited is gone, or may as well begin anew.
    fn is_history(&self, now: UnixMillis) -> bool {
        !self.lasts(now) && self.until.saturating_sub(now).saturating_abs() >= WAIT_MAX_MS
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
    /// Asks up to `at_once` questions at the same time.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self { at_once, ..Self::default() }
    }

    /// Looks for what may be asked. However many events wait, a look costs the same: it sees those that came last, so
    /// that their first question never waits for those of others, and a part of the line, from the longest waiting on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn look(&mut self, connection: &Connection, now: UnixMillis) -> Result<(), StoreError> {
        self.put_off.retain(|_, pause| !pause.is_history(now));
        let from_start = self.place == Place::default();
        let part = answers::open_after(connection, &self.place, PAGE)?;
        let is_all = from_start && part.next.is_none();
        let last = if is_all { Vec::new() } else { answers::open_last(connection, PAGE)? };
        let longest = self.ripe(questions(connection, part.open)?, now);
        let last = self.ripe(questions(connection, last)?, now);
        // As long as anything of this part is left to ask, the next look sees it again.
        if longest.is_empty() {
            self.rounds += usize::from(part.next.is_none());
            self.place = part.next.unwrap_or_default();
        }
        self.due = self.in_order(alternately(last, longest));
        Ok(())
    }

    /// Nobody answers at the moment, so there is no need to look.
    #[must_use]
    pub fn rests(&self, now: UnixMillis) -> bool {
        self.silence.is_some_and(|silence| silence.lasts(now))
    }

    /// How often the line of waiting events was looked through to its end.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// What the last look saw, and is not asked yet.
    pub fn due(&self) -> impl Iterator<Item = &Question> {
        self.due.iter()
    }

    /// Asks as many questions as there is room for. While nobody answers, one is enough to find out.
    pub fn ask(&mut self, asking: &Asking<'_, '_>, now: UnixMillis) {
        while let Some(question) = self.next(now) {
            asking.ask(question);
        }
    }

    /// Keeps what was heard of Stripe; whether it was an answer.
    ///
    /// # Errors
    /// [`StoreError`] when the answer cannot be written; it will be asked for again.
    pub fn keep(&mut self, heard: Heard, desk: &mut impl Desk, now: UnixMillis) -> Result<bool, StoreError> {
        let Heard { question, asked_at, told } = heard;
        let need = question.need.clone();
        let heard_before = self.under_way.remove(&question.of_anybody());
        match told {
            Ok(told) => {
                self.hears(None);
                self.put_off.remove(&question.of_anybody());
                // The same event may wait for the same thing all the same.
                self.put_off(question.clone(), now);
                desk.write(move |transaction| keep(transaction, &question, told, asked_at))?;
                tracing::info!(%need, "Stripe told what events waited for");
                Ok(true)
            }
            Err(error) if error.is_of_the_moment() => {
                if !error.is_stop() {
                    // What fails at the same time fails once, and if others were answered meanwhile, it fails alone.
                    if heard_before == Some(self.heard) {
                        self.hears(Some(self.silence_after(&question, now)));
                    }
                    self.put_off(question.of_anybody(), now);
                    tracing::warn!(%need, %error, "Stripe was asked in vain");
                }
                Ok(false)
            }
            Err(error) => {
                self.hears(None);
                self.put_off.insert(question.of_anybody(), Pause::longest(now));
                let text = format!("Stripe was asked for {need}: {error}");
                tracing::warn!(%need, %error, "Stripe has no answer that can be used");
                desk.write(move |transaction| events::note(transaction, &need, &text))?;
                Ok(false)
            }
        }
    }

    /// Asks all that the last look saw, and keeps each answer as it comes. Ends early when nobody answers, and once
    /// `stop` is set.
    ///
    /// # Errors
    /// [`StoreError`] when an answer cannot be written; it will be asked for again.
    pub fn pass(
        &mut self,
        api: &dyn Api,
        desk: &mut impl Desk,
        clock: &(dyn Fn() -> UnixMillis + Sync),
        stop: &Stop,
    ) -> Result<Passed, StoreError> {
        std::thread::scope(|scope| {
            let asking = Asking::new(scope, api, clock);
            let mut passed = Passed::default();
            let mut written = Ok(());
            loop {
                if written.is_ok() && !stop.is_set() {
                    self.ask(&asking, clock());
                }
                let heard = if self.under_way.is_empty() { None } else { asking.hear() };
                let Some(heard) = heard else { return written.map(|()| passed) };
                match self.keep(heard, desk, clock()) {
                    Ok(true) => passed.answered += 1,
                    Ok(false) => passed.unanswered += 1,
                    Err(error) => written = Err(error),
                }
            }
        })
    }

    /// The next question, if there is room for it; it is under way then.
    fn next(&mut self, now: UnixMillis) -> Option<Question> {
        let finds_out = || self.under_way.values().any(|heard| *heard == self.heard);
        let waits = self.rests(now) || self.silence.is_some() && finds_out();
        if waits || self.under_way.len() >= self.at_once {
            return None;
        }
        let question = self.due.pop_front()?;
        self.under_way.insert(question.of_anybody(), self.heard);
        Some(question)
    }

    /// What is neither put off nor under way.
    fn ripe(&self, questions: Vec<Question>, now: UnixMillis) -> Vec<Question> {
        let is_ripe = |question: &Question| {
            !self.under_way.contains_key(&question.of_anybody()) && !self.pauses(question).any(|pause| pause.lasts(now))
        };
        questions.into_iter().filter(is_ripe).collect()
    }

    /// What was asked in vain before comes last, for it may be the only one without an answer.
    fn in_order(&self, questions: impl Iterator<Item = Question>) -> VecDeque<Question> {
        let mut seen = HashSet::new();
        let mut questions: Vec<Question> = questions.filter(|one| seen.insert(one.of_anybody())).collect();
        questions.sort_by_key(|question| self.pauses(question).map(|pause| pause.tries).max());
        questions.into()
    }

    fn pauses(&self, question: &Question) -> impl Iterator<Item = &Pause> {
        [self.put_off.get(question), self.put_off.get(&question.of_anybody())].into_iter().flatten()
    }

    /// How long nobody need be asked: ever longer, unless it is always this one question that fails.
    fn silence_after(&self, failed: &Question, now: UnixMillis) -> Pause {
        let is_other = |one: &Question| one.event.is_none() && *one != failed.of_anybody();
        Pause::after(self.silence.filter(|_| self.put_off.keys().any(is_other)), now)
    }

    fn put_off(&mut self, question: Question, now: UnixMillis) {
        let pause = Pause::after(self.put_off.get(&question).copied(), now);
        self.put_off.insert(question, pause);
    }

    fn hears(&mut self, silence: Option<Pause>) {
        self.silence = silence;
        self.heard += 1;
    }
}

/// One of each in turn, and what is left of the longer one.
fn alternately<T>(first: Vec<T>, second: Vec<T>) -> impl Iterator<Item = T> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let longer = first.len().max(second.len());
    (0..longer).flat_map(move |_| [first.next(), second.next()]).flatten()
}

#[cfg(test)]
mod tests;
