//! When to ask what, on no database; and what becomes of each kind of answer, on a real one.

use std::sync::{Arc, Barrier, Mutex};

use rusqlite::TransactionBehavior;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::asking::Unanswered;
use super::*;
use crate::domain::policy::{Basis, Catalogue, Credits, Policy, PriceRule, Tiers};
use crate::ops::ingest::{Answer, Delivery, Duplicates, Ingest};
use crate::store::events::Source;
use crate::store::open::{self, Binding, ServerConnection};
use crate::store::writer::Batch as _;
use crate::stripe::wire;

/// Some second.
const START: i64 = 1_790_000_000;

/// A Stripe that answers by path alone.
#[derive(Default)]
struct Fake {
    answers: Mutex<HashMap<String, Result<Value, Kind>>>,
    asked: Mutex<Vec<String>>,
    /// The path that shows a bug.
    trap: Option<&'static str>,
    /// When it told what, by path.
    dates: HashMap<&'static str, UnixSeconds>,
    /// Where so many questions meet before any is answered.
    meeting: Option<Barrier>,
}

impl Fake {
    fn tells(&self, path: &str, answer: Value) {
        self.answers.lock().unwrap().insert(path.to_owned(), Ok(answer));
    }

    fn lists(&self, path: &str, objects: Value) {
        self.tells(path, json!({"object": "list", "has_more": false, "data": objects}));
    }

    fn fails(&self, path: &str, kind: Kind) {
        self.answers.lock().unwrap().insert(path.to_owned(), Err(kind));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Api for Fake {
    fn get(&self, path: &str, _: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
        self.asked.lock().unwrap().push(path.to_owned());
        assert!(self.trap != Some(path), "a bug");
        if let Some(meeting) = &self.meeting {
            meeting.wait();
        }
        match self.answers.lock().unwrap().get(path) {
            Some(Ok(answer)) => {
                Ok(Dated { told: answer.to_string().into_bytes(), date: self.dates.get(path).copied() })
            }
            Some(Err(kind)) => Err(ApiError::new(*kind, path, "as ordered")),
            None => Err(ApiError::new(Kind::NotFound, path, "nobody put it there")),
        }
    }
}

/// Books, a Stripe, and who asks it.
struct Scene {
    _folder: TempDir,
    server: ServerConnection,
    ingest: Ingest,
    fake: Fake,
    resolver: Resolver,
    now: UnixMillis,
}

fn policy() -> Policy {
    let rule = |tier: Option<&str>| PriceRule {
        tier: tier.map(str::to_owned),
        credits: 100,
        per_invoice: false,
        unit: "credits".into(),
        unit_amount: None,
        foreign: false,
    };
    let prices = [("price_pro", Some("pro")), ("price_team", Some("team")), ("price_pack", None)];
    Policy {
        livemode: true,
        connected_account: None,
        credits: Credits { since: None, basis: Basis::Catalogue, prorate: true, unlisted_price_fails: true },
        catalogue: Catalogue::new(prices.map(|(id, tier)| (id.to_owned(), rule(tier)))),
        tiers: Tiers { order: vec!["pro".into(), "team".into()], ..Tiers::default() },
        max_attempts: 5,
        asks_stripe: true,
    }
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let binding = Binding { livemode: true, connected_account: None };
        let server = open::server(&folder.path().join("books.db"), &binding).unwrap();
        payload::keep_dictionary(&server.connection).unwrap();
        let ingest = Ingest::new(Arc::new(policy()), "account_id".into(), Duplicates::default());
        let (fake, resolver) = (Fake::default(), Resolver::new(1));
        Self { _folder: folder, server, ingest, fake, resolver, now: START * 1000 }
    }

    /// Stripe delivers an event; what is answered.
    fn deliver(&mut self, event: &Value) -> String {
        let delivery = self.delivery(event);
        match self.batch(vec![delivery]).remove(0) {
            Answer::Completed { outcome, .. } => outcome.as_str().to_owned(),
            Answer::Duplicate { outcome } => format!("duplicate {outcome}"),
            Answer::Pending { needs } => needs,
            Answer::Failed { code, .. } | Answer::DeadLetter { code, .. } => code.to_owned(),
        }
    }

    fn delivery(&self, event: &Value) -> Delivery {
        let body = event.to_string();
        Delivery {
            event: wire::read(body.as_bytes(), "account_id").unwrap(),
            payload: Some(Payload::pack(body.as_bytes()).unwrap()),
            source: Source::Webhook,
            received: self.now,
        }
    }

    fn batch(&mut self, jobs: Vec<Delivery>) -> Vec<Answer> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.server.connection, behavior).unwrap();
        let answers = self.ingest.run(&transaction, jobs, self.now).unwrap();
        transaction.commit().unwrap();
        answers
    }

    /// What may be asked now.
    fn questions(&mut self) -> Vec<Question> {
        self.resolver.look(&self.server.connection, self.now).unwrap();
        self.resolver.due().cloned().collect()
    }

    /// Asks what is due, some seconds later; the answers wait for the next batch.
    fn ask(&mut self, later: i64) -> Passed {
        self.now += later * 1000;
        self.questions();
        self.pass(&Stop::default())
    }

    /// Asks what the last look saw.
    fn pass(&mut self, stop: &Stop) -> Passed {
        let (now, desk) = (self.now, &mut self.server.connection);
        self.resolver.pass(&self.fake, desk, &|| now, stop).unwrap()
    }

    /// Asks what is due, and runs what was woken.
    fn resolve(&mut self) -> Passed {
        let passed = self.ask(0);
        self.run_woken();
        passed
    }

    fn run_woken(&mut self) {
        self.ingest.look_around();
        self.batch(Vec::new());
    }

    fn row(&self, sql: &str) -> String {
        self.server.connection.query_row(sql, [], |row| row.get::<_, Option<String>>(0)).unwrap().unwrap_or_default()
    }

    /// `completed applied`, `pending`, `failed not_at_stripe`.
    fn became(&self, event: &str) -> String {
        self.row(&format!(
            "SELECT trim(status || ' ' || coalesce(outcome, error_code, '')) FROM v_events WHERE event_id = '{event}'"
        ))
    }

    fn balance(&self) -> String {
        self.row("SELECT CAST(coalesce(sum(balance), 0) AS TEXT) FROM v_balances")
    }
}

fn event(id: &str, kind: &str, object: Value) -> Value {
    json!({
        "id": id, "object": "event", "type": kind, "created": START - 60, "livemode": true, "data": {"object": object},
    })
}

fn thin(id: &str, kind: &str, path: &str) -> Value {
    json!({
        "id": id, "object": "v2.core.event", "type": kind, "created": "2026-09-21T13:00:00Z", "livemode": true,
        "related_object": {"id": "x", "type": "x", "url": path},
    })
}

fn line(id: &str, price: &str, amount: i64) -> Value {
    json!({
        "id": id, "object": "line_item", "amount": amount, "currency": "usd", "quantity": 1,
        "pricing": {"price_details": {"price": price, "product": "prod"}, "unit_amount_decimal": amount.to_string()},
    })
}

fn invoice(lines: Value, has_more: bool) -> Value {
    json!({
        "id": "in_1", "object": "invoice", "customer": "cus_1", "status": "paid", "currency": "usd", "total": 3000,
        "amount_due": 3000, "amount_paid": 3000, "lines": {"object": "list", "has_more": has_more, "data": lines},
    })
}

fn paid(id: &str, has_more: bool) -> Value {
    event(id, "invoice.paid", invoice(json!([line("il_1", "price_pack", 1000)]), has_more))
}

fn prorated(id: &str, currency: &str) -> Value {
    let mut line = line("il_1", "price_pack", 500);
    (line["currency"], line["pricing"]["unit_amount_decimal"]) = (json!(currency), Value::Null);
    line["parent"] = json!({"type": "invoice_item_details", "invoice_item_details": {"proration": true}});
    event(id, "invoice.paid", invoice(json!([line]), false))
}

fn session(id: &str, amount: Value) -> Value {
    let object = json!({
        "id": "cs_1", "object": "checkout.session", "mode": "payment", "payment_status": "paid", "customer": "cus_1",
        "payment_intent": "pi_1", "amount_total": amount, "currency": "usd", "metadata": {},
    });
    event(id, "checkout.session.completed", object)
}

fn refund(id: &str, intent: Option<&str>, charge: Option<&str>) -> Value {
    let object = json!({
        "id": format!("re_{id}"), "object": "refund", "payment_intent": intent, "charge": charge, "amount": 1500,
        "currency": "usd", "status": "succeeded", "created": START - 60,
    });
    event(id, "refund.created", object)
}

fn charge(id: &str) -> Value {
    json!({
        "id": id, "object": "charge", "payment_intent": "pi_1", "customer": "cus_1", "currency": "usd", "amount": 3000,
        "amount_captured": 3000, "amount_refunded": 1500, "status": "succeeded",
    })
}

fn attached(invoice: &str, status: &str) -> Value {
    json!({
        "id": format!("inpay_{invoice}"), "object": "invoice_payment", "invoice": invoice, "status": status,
        "payment": {"type": "payment_intent", "payment_intent": "pi_1"},
    })
}

fn subscription(price: &str) -> Value {
    json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_1", "status": "active",
        "items": {"object": "list", "has_more": false, "data": [
            {"id": "si_1", "price": {"id": price, "product": "prod", "currency": "usd", "unit_amount": 1}, "quantity": 1},
        ]},
    })
}

fn updated(id: &str, price: &str) -> Value {
    event(id, "customer.subscription.updated", subscription(price))
}

fn tier(scene: &Scene) -> String {
    scene.row("SELECT tier FROM v_accounts")
}

// When.

fn question(number: usize) -> Question {
    let event = EventId::parse(&format!("evt_{number}")).unwrap();
    Question { need: Need::Payment(format!("pi_{number}")), event: Some(event), only_amount: false }
}

/// A resolver that has seen these questions.
fn seen(at_once: usize, numbers: impl IntoIterator<Item = usize>) -> Resolver {
    let mut resolver = Resolver::new(at_once);
    resolver.sees(numbers, 0);
    resolver
}

impl Resolver {
    fn sees(&mut self, numbers: impl IntoIterator<Item = usize>, now: UnixMillis) {
        let ripe = self.ripe(numbers.into_iter().map(question).collect(), now);
        self.due = self.in_order(ripe.into_iter());
    }

    /// All that there is room for, by their numbers.
    fn asks(&mut self, now: UnixMillis) -> Vec<usize> {
        let numbers = std::iter::from_fn(|| self.next(now));
        let number = |question: Question| question.need.to_string().strip_prefix("payment:pi_").unwrap().parse();
        numbers.map(|question| number(question).unwrap()).collect()
    }

    /// Nobody answered this one.
    fn misses(&mut self, number: usize, now: UnixMillis) {
        let told = Err(Unanswered::NoAnswer(ApiError::new(Kind::Unavailable, "/", "as ordered").into()));
        let heard = Heard { question: question(number), asked_at: now, told };
        assert!(!self.keep(heard, &mut Nowhere, now).unwrap());
    }

    /// Stripe answered this one.
    fn hears_of(&mut self, number: usize, now: UnixMillis) {
        let heard = Heard { question: question(number), asked_at: now, told: Ok(Told::Gone) };
        assert!(self.keep(heard, &mut Nowhere, now).unwrap());
    }
}

/// Whatever is written here is let go.
struct Nowhere;

impl Desk for Nowhere {
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let mut scene = Scene::new();
        scene.server.connection.write(work)
    }
}

/// How often Stripe was asked since the last look.
fn asked_of(fake: &Fake) -> usize {
    fake.asked().len()
}

#[test]
fn a_pause_doubles_from_a_second_up_to_ten_minutes() {
    let mut pause = None;
    let waits: Vec<i64> = (0..13)
        .map(|_| {
            pause = Some(Pause::after(pause, 5_000));
            pause.unwrap().until - 5_000
        })
        .collect();
    let doubled = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600];
    assert_eq!(waits, doubled.map(|seconds| seconds * 1000));
    let longest = Pause::longest(5_000);
    assert_eq!((longest.until, Pause::after(Some(longest), 5_000).until), (605_000, 605_000));
}

/// Story: somebody sets the clock back by six hours, and nothing was to be asked for so long.
#[test]
fn a_clock_that_is_set_back_delays_nobody() {
    const SIX_HOURS: i64 = 6 * 3_600_000;
    let mut resolver = seen(1, [0]);
    assert_eq!(resolver.asks(SIX_HOURS), [0]);
    resolver.misses(0, SIX_HOURS);
    assert!(resolver.rests(SIX_HOURS + 999) && !resolver.rests(0));
    resolver.sees([0], 0);
    assert_eq!(resolver.asks(0), [0]);

    let mut scene = Scene::new();
    scene.fake.lists("/v1/invoices/in_1/lines", json!([{"id": "il_1", "currency": "usd"}]));
    scene.deliver(&paid("evt_1", true));
    assert_eq!(scene.ask(0).unanswered, 1);
    scene.now -= SIX_HOURS;
    assert_eq!(scene.ask(0).unanswered, 1);
    assert_eq!(scene.resolver.put_off.len(), 1);
}

/// Story: one request hangs, and an event comes.
#[test]
fn a_request_that_hangs_holds_up_no_other_question() {
    let mut resolver = seen(2, [0]);
    assert_eq!(resolver.asks(0), [0]);
    resolver.sees([0, 1, 2, 3], 500);
    assert_eq!(resolver.asks(500), [1], "the first is under way, and two at once are the most");
    resolver.hears_of(1, 600);
    assert_eq!(resolver.asks(600), [2], "a place is free again");
    resolver.hears_of(2, 700);
    resolver.misses(0, 240_000);
    assert_eq!(resolver.asks(240_000), [3], "others were answered meanwhile, so that one failed alone");
    resolver.sees([0], 240_999);
    assert_eq!(resolver.asks(240_999), [] as [usize; 0], "and is put off for itself");
    resolver.sees([0], 241_000);
    assert_eq!(resolver.asks(241_000), [0]);
}

#[test]
fn while_nobody_answers_one_question_finds_out_and_never_the_same_one() {
    let mut resolver = seen(4, 0..7);
    assert_eq!(resolver.asks(0), [0, 1, 2, 3]);
    for number in [0, 1, 2] {
        resolver.misses(number, 0);
    }
    assert!(resolver.rests(999) && resolver.asks(999).is_empty(), "what fails at the same time fails once");
    resolver.sees(0..7, 1_000);
    assert_eq!(resolver.asks(1_000), [4], "one finds out: the first that was not tried, although another still hangs");
    assert_eq!(resolver.asks(9_000), [] as [usize; 0], "as long as it is under way");
    resolver.misses(4, 9_000);
    resolver.misses(3, 9_500);
    assert!(resolver.rests(10_999) && !resolver.rests(11_000), "twice as long, whatever hung from before");
    resolver.sees(0..7, 11_000);
    assert_eq!(resolver.asks(11_000), [5]);
    resolver.hears_of(5, 11_000);
    assert_eq!(resolver.asks(11_000), [6, 0, 1, 2], "what was tried comes last");
}

/// Story: Stripe never manages to tell one object, and for hours nothing else is to be asked.
#[test]
fn one_question_that_always_fails_does_not_make_a_silence_of_minutes() {
    let mut resolver = seen(4, [0]);
    let mut now = 0;
    for seconds in [1, 2, 4, 8, 16] {
        assert_eq!(resolver.asks(now), [0]);
        resolver.misses(0, now);
        resolver.sees([0], now + seconds * 1_000 - 1);
        assert!(resolver.due().next().is_none(), "for itself it waits ever longer");
        now += seconds * 1_000;
        resolver.sees([0], now);
    }
    resolver.asks(now);
    resolver.misses(0, now);
    resolver.sees([1], now + 1_000);
    assert_eq!(resolver.asks(now + 1_000), [1]);
    resolver.misses(1, now + 1_000);
    assert!(resolver.rests(now + 2_999), "two fail: nobody answers");
}

#[test]
fn what_was_put_off_is_forgotten_some_time_after_it_may_be_asked() {
    let mut scene = Scene::new();
    scene.fake.fails("/v1/invoice_payments", Kind::Unavailable);
    scene.deliver(&refund("evt_1", Some("pi_1"), None));
    scene.ask(0);
    for (later, held) in [(600, 1), (1, 0)] {
        scene.now += later * 1000;
        scene.questions();
        assert_eq!(scene.resolver.put_off.len(), held);
    }
}

/// Story: Stripe has an answer for none of the payments of a long outage, and then somebody buys something.
#[test]
fn however_much_is_put_off_what_comes_now_is_asked_now() {
    let mut scene = Scene::new();
    let many = 3 * PAGE;
    let refunds = (0..many).map(|number| refund(&format!("evt_r{number}"), Some(&format!("pi_{number}")), None));
    let refunds = refunds.map(|event| scene.delivery(&event)).collect();
    scene.batch(refunds);
    scene.now += 1;
    let mut seen = 0;
    for _ in 0..8 {
        for question in scene.questions() {
            scene.resolver.put_off.insert(question.of_anybody(), Pause::longest(scene.now));
            seen += 1;
        }
    }
    assert_eq!(seen, many, "each once, and those that are put off hide no others");
    for number in 0..3 {
        scene.deliver(&paid(&format!("evt_{number}"), true));
        scene.fake.lists("/v1/invoices/in_1/lines", json!([line("il_1", "price_pack", 1000)]));
        assert_eq!(scene.resolve().answered, usize::from(number == 0));
    }
    assert_eq!(scene.fake.asked(), ["/v1/invoices/in_1/lines"]);
    scene.now += 600_000;
    assert!(!scene.questions().is_empty(), "and those may be asked again");
}

#[test]
fn what_fails_at_the_same_time_fails_once() {
    let mut scene = Scene::new();
    for number in 0..8 {
        scene.fake.fails("/v1/invoice_payments", Kind::Unavailable);
        scene.deliver(&refund(&format!("evt_{number}"), Some(&format!("pi_{number}")), None));
    }
    scene.resolver = Resolver::new(4);
    scene.ask(0);
    let asked = asked_of(&scene.fake);
    assert!((1..=4).contains(&asked), "{asked}: nobody answers, so nobody is asked any more");
    scene.now -= 1;
    scene.ask(1);
    assert_eq!(asked_of(&scene.fake), 0, "not before a second");
    scene.now += 1;
    scene.ask(0);
    assert_eq!(asked_of(&scene.fake), 1, "one finds out");
    scene.ask(1);
    assert_eq!(asked_of(&scene.fake), 0, "then after two seconds");
    scene.fake.lists("/v1/invoice_payments", json!([]));
    assert_eq!(scene.ask(1).answered, 8, "once one is answered, all others at once");
    scene.run_woken();
    assert_eq!(scene.row("SELECT CAST(count(*) AS TEXT) FROM v_events WHERE status <> 'completed'"), "0");
}

#[test]
fn a_question_that_never_has_an_answer_holds_nobody_up() {
    let mut scene = Scene::new();
    scene.fake.fails("/v1/invoices/in_1/lines", Kind::Unavailable);
    scene.fake.lists("/v1/invoice_payments", json!([]));
    scene.deliver(&paid("evt_1", true));
    for number in 0..20 {
        scene.now += 1;
        scene.deliver(&refund(&format!("evt_r{number}"), Some(&format!("pi_{number}")), None));
    }
    for _ in 0..4 {
        scene.ask(1);
        scene.run_woken();
    }
    assert_eq!(scene.row("SELECT group_concat(event_id) FROM v_events WHERE status <> 'completed'"), "evt_1");
}

/// Story: the clock was set back, so no answer counts as younger than the event.
#[test]
fn an_answer_that_does_not_help_is_asked_for_ever_more_rarely() {
    let mut scene = Scene::new();
    scene.fake.lists("/v1/invoice_payments", json!([]));
    scene.deliver(&refund("evt_1", Some("pi_1"), None));
    scene.now -= 86_400_000;
    let mut waits = Vec::new();
    for second in 0..130 {
        scene.ask(1);
        scene.run_woken();
        if asked_of(&scene.fake) > 0 {
            waits.push(second);
        }
    }
    assert_eq!(waits, [0, 1, 3, 7, 15, 31, 63, 127]);
    scene.ask(86_400);
    scene.run_woken();
    assert_eq!(scene.became("evt_1"), "completed no_effect");
}

// What.

#[test]
fn one_question_for_all_who_wait_and_of_several_names_the_intent() {
    let mut scene = Scene::new();
    scene.deliver(&refund("evt_1", Some("pi_1"), Some("ch_1")));
    scene.deliver(&refund("evt_2", Some("pi_1"), Some("ch_1")));
    scene.now += 1;
    scene.deliver(&refund("evt_3", None, Some("ch_9")));
    scene.deliver(&paid("evt_4", true));
    let needs: Vec<String> = scene.questions().iter().map(|question| question.need.to_string()).collect();
    assert_eq!(needs, ["payment:pi_1", "payment:ch_9", "lines:in_1"]);
}

#[test]
fn who_was_woken_is_not_asked_for_again_before_it_has_run() {
    let mut scene = Scene::new();
    scene.fake.lists("/v1/invoice_payments", json!([]));
    for number in 0..3 {
        scene.deliver(&refund(&format!("evt_{number}"), Some("pi_1"), None));
    }
    assert_eq!(scene.ask(0), Passed { answered: 1, unanswered: 0 });
    assert_eq!(scene.ask(60), Passed::default());
    scene.run_woken();
    assert_eq!(scene.fake.asked(), ["/v1/invoice_payments"]);
    assert_eq!(scene.row("SELECT CAST(count(*) AS TEXT) FROM v_events WHERE outcome = 'no_effect'"), "3");
}

#[test]
fn lines_are_kept_and_grant_once() {
    let mut scene = Scene::new();
    scene
        .fake
        .lists("/v1/invoices/in_1/lines", json!([line("il_1", "price_pack", 1000), line("il_2", "price_pack", 2000)]));
    assert_eq!(scene.deliver(&paid("evt_1", true)), "lines:in_1");
    assert_eq!(scene.resolve().answered, 1);
    assert_eq!((scene.became("evt_1"), scene.balance()), ("completed applied".into(), "200".into()));
    assert_eq!(scene.deliver(&paid("evt_2", true)), "no_effect", "the lines are known");
    assert_eq!(scene.fake.asked().len(), 1);
}

#[test]
fn a_price_is_kept_in_all_of_its_currencies() {
    let mut scene = Scene::new();
    let options = json!({"eur": {"unit_amount": 2000, "unit_amount_decimal": "2000"}});
    let price = json!({
        "id": "price_pack", "object": "price", "currency": "usd", "unit_amount": 1000, "currency_options": options,
    });
    scene.fake.tells("/v1/prices/price_pack", price);
    assert_eq!(scene.deliver(&prorated("evt_1", "eur")), "price:price_pack");
    assert_eq!(scene.resolve().answered, 1);
    assert_eq!((scene.became("evt_1"), scene.balance()), ("completed applied".into(), "25".into()));
    assert_eq!(scene.row("SELECT group_concat(currency || unit_amount) FROM prices"), "eur2000,usd1000");
}

#[test]
fn a_session_tells_what_it_sold() {
    let mut scene = Scene::new();
    let item = json!({
        "id": "li_1", "object": "item", "price": {"id": "price_pack"}, "quantity": 3, "amount_subtotal": 3000,
        "currency": "usd",
    });
    scene.fake.lists("/v1/checkout/sessions/cs_1/line_items", json!([item]));
    assert_eq!(scene.deliver(&session("evt_1", json!(3000))), "session:cs_1");
    scene.resolve();
    assert_eq!((scene.became("evt_1"), scene.balance()), ("completed applied".into(), "300".into()));
}

/// Story: Stripe said that nothing is tied to the payment, for a checkout is no invoice; then the checkout came.
#[test]
fn a_refund_before_its_checkout_is_taken_back_with_the_grant() {
    let mut scene = Scene::new();
    let item = json!({"id": "li_1", "price": {"id": "price_pack"}, "amount_total": 3000, "currency": "usd"});
    scene.fake.lists("/v1/invoice_payments", json!([]));
    scene.fake.lists("/v1/checkout/sessions/cs_1/line_items", json!([item]));
    scene.deliver(&refund("evt_1", Some("pi_1"), None));
    scene.resolve();
    assert_eq!(scene.became("evt_1"), "completed no_effect");
    scene.deliver(&session("evt_2", json!(3000)));
    scene.resolve();
    assert_eq!((scene.became("evt_2"), scene.balance()), ("completed applied".into(), "50".into()));
}

#[test]
fn a_tie_goes_to_the_state_at_stripe() {
    for (now, tier_then) in [("price_pro", "pro"), ("price_team", "team"), ("price_pack", "pro")] {
        let mut scene = Scene::new();
        scene.fake.tells("/v1/subscriptions/sub_1", subscription(now));
        assert_eq!(scene.deliver(&updated("evt_2", "price_pro")), "applied");
        assert_eq!(scene.deliver(&updated("evt_1", "price_team")), "subscription:sub_1");
        scene.resolve();
        assert_eq!(tier(&scene), tier_then, "{now}; neither: the greatest id");
        scene.now += 1;
        assert_eq!(scene.deliver(&updated("evt_0", "price_pro")), "subscription:sub_1", "the answer is older than it");
    }
}

#[test]
fn a_payment_is_tied_to_what_it_paid() {
    // By intent, and by charge; the list knows payments that came to nothing too.
    for (intent, by_charge) in [(Some("pi_1"), None), (None, Some("ch_1"))] {
        let mut scene = Scene::new();
        scene.fake.lists("/v1/invoice_payments", json!([attached("in_0", "canceled"), attached("in_1", "paid")]));
        scene.fake.tells("/v1/charges/ch_1", charge("ch_1"));
        scene.deliver(&paid("evt_1", false));
        let waits = scene.deliver(&refund("evt_2", intent, by_charge));
        assert!(waits.starts_with("payment:"), "{waits}");
        scene.resolve();
        assert_eq!((scene.became("evt_2"), scene.balance()), ("completed applied".into(), "50".into()), "{intent:?}");
        assert_eq!(scene.deliver(&refund("evt_3", Some("pi_1"), None)), "applied", "the tie is remembered");
    }
}

#[test]
fn who_waits_by_another_name_of_a_payment_goes_on_as_well() {
    let mut scene = Scene::new();
    scene.fake.lists("/v1/invoice_payments", json!([attached("in_1", "paid")]));
    scene.fake.tells("/v1/charges/ch_1", charge("ch_1"));
    scene.deliver(&refund("evt_2", None, Some("ch_1")));
    scene.deliver(&refund("evt_3", Some("pi_1"), None));
    assert_eq!(scene.questions().len(), 2);
    scene.resolver.due.truncate(1);
    scene.pass(&Stop::default());
    scene.run_woken();
    assert_eq!(scene.questions(), [], "both wait for the grant");
    scene.deliver(&paid("evt_1", false));
    assert_eq!(
        (scene.became("evt_2"), scene.became("evt_3")),
        ("completed applied".into(), "completed applied".into())
    );
    assert_eq!(scene.balance(), "0");
}

#[test]
fn of_a_payment_whose_sale_is_known_only_the_amount_is_asked() {
    let mut scene = Scene::new();
    let item = json!({
        "id": "li_1", "object": "item", "price": {"id": "price_pack"}, "quantity": 1, "amount_total": 3000,
        "currency": "usd",
    });
    scene.fake.lists("/v1/checkout/sessions/cs_1/line_items", json!([item]));
    scene.deliver(&session("evt_1", Value::Null));
    scene.resolve();
    assert_eq!(scene.balance(), "100");
    scene.fake.asked();
    let mut failed = charge("ch_0");
    failed["status"] = json!("failed");
    scene.fake.lists("/v1/charges", json!([charge("ch_1"), failed]));
    assert_eq!(scene.deliver(&refund("evt_2", Some("pi_1"), None)), "payment:pi_1");
    scene.resolve();
    assert_eq!(scene.fake.asked(), ["/v1/charges"]);
    assert_eq!((scene.became("evt_2"), scene.balance()), ("completed applied".into(), "50".into()));
}

/// Story: nobody knows the tie, and the invoice that Stripe names has no amount either.
#[test]
fn a_payment_may_have_to_be_asked_about_twice() {
    let mut scene = Scene::new();
    let mut free = paid("evt_1", false);
    free["data"]["object"]["amount_paid"] = json!(0);
    scene.fake.lists("/v1/invoice_payments", json!([attached("in_1", "paid")]));
    scene.fake.lists("/v1/charges", json!([charge("ch_1")]));
    assert_eq!(scene.deliver(&free), "applied");
    scene.deliver(&refund("evt_2", Some("pi_1"), None));
    scene.resolve();
    assert_eq!(scene.became("evt_2"), "pending", "of how much is it a part?");
    scene.resolve();
    assert_eq!(scene.fake.asked(), ["/v1/invoice_payments", "/v1/charges"]);
    assert_eq!((scene.became("evt_2"), scene.balance()), ("completed applied".into(), "50".into()));
}

#[test]
fn a_thin_event_gets_its_object() {
    let mut scene = Scene::new();
    scene.fake.tells("/v1/invoices/in_1", invoice(json!([line("il_1", "price_pack", 1000)]), false));
    let event = thin("evt_1", "v1.invoice.paid", "/v1/invoices/in_1");
    assert_eq!(scene.deliver(&event), "object:/v1/invoices/in_1");
    scene.resolve();
    assert_eq!((scene.became("evt_1"), scene.balance()), ("completed applied".into(), "100".into()));
    assert_eq!(scene.deliver(&paid("evt_2", false)), "no_effect", "its snapshot twin");
}

/// Story: a second thin event comes while the request for the first one is under way.
#[test]
fn an_object_is_not_kept_for_who_came_after_it_was_asked_for() {
    let mut scene = Scene::new();
    scene.fake.tells("/v1/subscriptions/sub_1", subscription("price_pro"));
    let mut event = thin("evt_1", "v1.customer.subscription.updated", "/v1/subscriptions/sub_1");
    scene.deliver(&event);
    scene.now += 5;
    (event["id"], event["created"]) = (json!("evt_2"), json!("2026-09-21T13:00:01Z"));
    scene.deliver(&event);
    scene.now -= 5;
    scene.resolve();
    assert_eq!((scene.became("evt_1"), scene.became("evt_2")), ("completed applied".into(), "pending".into()));
    scene.fake.tells("/v1/subscriptions/sub_1", subscription("price_team"));
    scene.now += 5;
    scene.resolve();
    assert_eq!(tier(&scene), "team");
}

/// Story: a charge of which half was refunded is told thinly, to a machine whose clock is wrong by a day either way. What is
/// refunded afterwards comes on top, and what was before is in the charge already.
#[test]
fn a_thin_charge_is_dated_by_stripes_clock() {
    let refunded = |number: i64, created: i64| {
        let mut event = refund(&format!("evt_{number}"), Some("pi_1"), Some("ch_1"));
        event["data"]["object"]["created"] = json!(created);
        event["data"]["object"]["amount"] = json!(750);
        event
    };
    for (told, wrong_by) in [(Some(START), 86_400), (Some(START), -86_400), (None, 0)] {
        for is_charge_first in [true, false] {
            let mut scene = Scene::new();
            scene.now += wrong_by * 1000;
            scene.fake.dates.extend(told.map(|told| ("/v1/charges/ch_1", told)));
            scene.fake.lists("/v1/invoice_payments", json!([attached("in_1", "paid")]));
            scene.fake.tells("/v1/charges/ch_1", charge("ch_1"));
            let mut events = vec![thin("evt_1", "v1.charge.refunded", "/v1/charges/ch_1"), refunded(2, START - 30)];
            events.push(refunded(3, START + 30));
            if !is_charge_first {
                events.reverse();
            }
            scene.deliver(&paid("evt_0", false));
            for event in events {
                scene.deliver(&event);
                scene.resolve();
                scene.resolve();
            }
            assert_eq!(scene.balance(), "25", "{told:?}, wrong by {wrong_by}, charge first {is_charge_first}");
        }
    }
}

/// Story: two objects were asked for at the same time, and the later answer dated both.
#[test]
fn each_object_is_dated_by_its_own_answer() {
    let mut scene = Scene::new();
    scene.resolver = Resolver::new(2);
    scene.fake.meeting = Some(Barrier::new(2));
    scene.fake.dates = HashMap::from([("/v1/charges/ch_1", START - 50), ("/v1/charges/ch_2", START + 50)]);
    for number in [1, 2] {
        let (id, path) = (format!("ch_{number}"), format!("/v1/charges/ch_{number}"));
        scene.fake.tells(&path, charge(&id));
        scene.deliver(&thin(&format!("evt_{number}"), "v1.charge.refunded", &path));
    }
    assert_eq!(scene.ask(0).answered, 2);
    let dates = "SELECT group_concat(object_told_at) FROM (SELECT * FROM event_payloads ORDER BY event_id)";
    assert_eq!(scene.row(dates), format!("{},{}", START - 50, START + 50));
}

/// Story: a refund is made, its charge is told with it, and it fails before anybody asks what the first thin event meant.
#[test]
fn a_thin_event_of_a_refund_does_not_tell_its_failure_too_early() {
    let failed = refund("evt_4", Some("pi_1"), Some("ch_1"))["data"]["object"].clone();
    let mut failed = failed.as_object().unwrap().clone();
    failed.insert("status".into(), json!("failed"));
    let mut counted = event("evt_3", "charge.updated", charge("ch_1"));
    counted["created"] = json!(START - 30);
    let mut told = event("evt_4", "refund.failed", Value::Object(failed.clone()));
    told["created"] = json!(START - 10);
    let pointer = thin("evt_5", "v1.refund.created", "/v1/refunds/re_evt_4");
    for order in [[&pointer, &told, &counted], [&counted, &told, &pointer], [&told, &pointer, &counted]] {
        let mut scene = Scene::new();
        scene.fake.lists("/v1/invoice_payments", json!([attached("in_1", "paid")]));
        scene.fake.tells("/v1/refunds/re_evt_4", Value::Object(failed.clone()));
        scene.deliver(&paid("evt_1", false));
        for event in order {
            scene.deliver(event);
            scene.resolve();
            scene.resolve();
        }
        assert_eq!(scene.row("SELECT group_concat(event_id) FROM v_events WHERE status <> 'completed'"), "");
        assert_eq!(scene.balance(), "100");
    }
}

#[test]
fn that_there_is_no_such_thing_is_an_answer() {
    let thin = |kind: &str| thin("evt_1", kind, "/v1/objects/x");
    for (event, became) in [
        (paid("evt_1", true), "failed not_at_stripe"),
        (prorated("evt_1", "usd"), "failed price_without_unit_amount"),
        (session("evt_1", json!(3000)), "failed not_at_stripe"),
        (thin("v1.customer.updated"), "failed not_at_stripe"),
        (thin("v1.invoice.updated"), "completed no_effect"),
    ] {
        let mut scene = Scene::new();
        scene.deliver(&event);
        scene.resolve();
        assert_eq!(scene.became("evt_1"), became);
        assert_eq!(scene.fake.asked().len(), 1);
        for _ in 0..3 {
            scene.ask(3_600);
            scene.run_woken();
        }
        assert_eq!(scene.fake.asked(), [""; 0], "who failed has its answer");
    }
    let mut scene = Scene::new();
    scene.deliver(&updated("evt_1", "price_team"));
    scene.deliver(&updated("evt_2", "price_pro"));
    scene.resolve();
    assert_eq!(
        (scene.became("evt_2"), tier(&scene)),
        ("completed applied".into(), "pro".into()),
        "a deleted test clock"
    );
}

/// Story: the key of another account was configured, then the right one.
#[test]
fn what_failed_is_asked_anew_when_it_is_delivered_again() {
    let mut scene = Scene::new();
    scene.deliver(&paid("evt_1", true));
    scene.resolve();
    assert_eq!(scene.became("evt_1"), "failed not_at_stripe");
    scene.fake.lists("/v1/invoices/in_1/lines", json!([line("il_1", "price_pack", 3000)]));
    scene.now += 3_600_000;
    assert_eq!(scene.deliver(&paid("evt_1", true)), "lines:in_1");
    scene.resolve();
    assert_eq!((scene.became("evt_1"), scene.balance()), ("completed applied".into(), "100".into()));
}

#[test]
fn a_charge_that_stripe_does_not_have_tells_nothing_of_its_payment() {
    let mut scene = Scene::new();
    scene.deliver(&refund("evt_1", None, Some("ch_1")));
    assert_eq!(scene.resolve(), Passed { answered: 0, unanswered: 1 });
    assert_eq!(scene.became("evt_1"), "pending");
    let told = scene.row("SELECT last_error FROM v_events");
    assert!(told.contains("/v1/charges/ch_1") && told.contains("another account or mode"), "{told}");
}

#[test]
fn an_answer_that_cannot_be_used_is_told_by_who_waits_and_asked_for_again() {
    let mut scene = Scene::new();
    scene.fake.lists("/v1/invoices/in_1/lines", json!([{"id": "il_1", "currency": "usd"}]));
    scene.fake.lists("/v1/invoice_payments", json!([]));
    scene.deliver(&paid("evt_1", true));
    scene.deliver(&refund("evt_2", Some("pi_1"), None));
    assert_eq!(scene.resolve(), Passed { answered: 1, unanswered: 1 }, "the others go on");
    assert_eq!(scene.became("evt_1"), "pending");
    assert_eq!(
        scene.row("SELECT last_error FROM v_events WHERE event_id = 'evt_1'"),
        "Stripe was asked for lines:in_1: /v1/invoices/in_1/lines: field amount of the answer is missing"
    );
    scene.fake.lists("/v1/invoices/in_1/lines", json!([line("il_1", "price_pack", 3000)]));
    assert_eq!(scene.ask(599), Passed::default());
    assert_eq!(scene.ask(1).answered, 1);
    scene.run_woken();
    assert_eq!(scene.became("evt_1"), "completed applied");
    assert_eq!(scene.row("SELECT last_error FROM v_events WHERE event_id = 'evt_1'"), "");
}

/// Story: a question shows a bug each time, and once as many had panicked as may be under way, nothing was asked any more.
#[test]
fn a_bug_fails_its_question_alone() {
    let mut scene = Scene::new();
    scene.fake.trap = Some("/v1/invoices/in_1/lines");
    scene.fake.lists("/v1/invoice_payments", json!([]));
    scene.deliver(&paid("evt_1", true));
    for _ in 0..3 {
        assert_eq!(scene.ask(600), Passed { answered: 0, unanswered: 1 });
    }
    assert_eq!((scene.ask(599), scene.resolver.under_way.len()), (Passed::default(), 0));
    scene.deliver(&refund("evt_2", Some("pi_1"), None));
    assert_eq!(scene.resolve().answered, 1);
    assert_eq!((scene.became("evt_1"), scene.became("evt_2")), ("pending".into(), "completed no_effect".into()));
    assert_eq!(
        scene.row("SELECT last_error FROM v_events WHERE event_id = 'evt_1'"),
        "Stripe was asked for lines:in_1: a bug: the question panicked; please report it"
    );
}

#[test]
fn nothing_is_asked_after_the_stop() {
    let mut scene = Scene::new();
    scene.deliver(&refund("evt_1", Some("pi_1"), None));
    let stop = Stop::default();
    stop.set();
    assert_eq!(scene.questions().len(), 1);
    let passed = scene.pass(&stop);
    assert_eq!((passed, asked_of(&scene.fake)), (Passed::default(), 0));
}
