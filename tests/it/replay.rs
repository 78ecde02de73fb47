//! What did not get through is run again by hand, or dismissed, beside a running server.

use billingd::domain::ids::EventId;
use billingd::ops::dismiss::{self, DismissError};
use billingd::ops::replay::{self, End, Fetcher, How, Replayed};
use billingd::store::rehearsal::Rehearsal;
use billingd::store::unfinished::Choice;
use serde_json::{Value, json};

use super::adopt::says;
use super::fake_stripe::{FakeStripe, Fault};
use super::fixtures::{SHAPES, Shape, event, invoice, invoice_paid, line, merge};
use super::harness::{Billing, NOW, Setup, spawn, wait_until};

/// A catalogue of `price_basic` and more.
fn catalogue(more: &str) -> Setup {
    Setup::new().toml(&format!(
        "[tiers]\norder = [\"basic\", \"pro\"]\n[credits]\nbasis = \"catalogue\"\n\
         [[price]]\nid = \"price_basic\"\ntier = \"basic\"\ncredits = 100\n{more}"
    ))
}

const NEW: &str = "[[price]]\nid = \"price_new\"\ntier = \"pro\"\ncredits = 500\n";
const FOREIGN: &str = "[[price]]\nid = \"price_new\"\nforeign = true\n";

/// `invoice.paid` over a price.
fn paid(shape: Shape, id: &str, of_invoice: &str, price: &str) -> Value {
    let mut object = invoice(shape, of_invoice, "cus_1", 2_000);
    object["lines"]["data"] = json!([line(shape, price, 2_000)]);
    event(shape, id, "invoice.paid", object)
}

fn id(text: &str) -> EventId {
    EventId::parse(text).expect("an id")
}

fn replays(billing: &Billing, ids: &[EventId], how: How) -> Vec<Replayed> {
    let errand = billing.errand_of("alice");
    replay::replay(&mut billing.beside(), &errand, ids, Vec::new(), how, NOW * 1000).expect("a replay")
}

fn rehearses(billing: &Billing, ids: &[EventId]) -> Vec<Replayed> {
    let mut rehearsal = Rehearsal::begin(&billing.database()).expect("a copy");
    let (books, errand) = (rehearsal.connection(), billing.errand_of("alice"));
    replay::replay(books, &errand, ids, Vec::new(), How::default(), NOW * 1000).expect("a rehearsal")
}

fn ends(replayed: &[Replayed]) -> Vec<(&str, End)> {
    replayed.iter().map(|one| (one.event_id.as_str(), one.end)).collect()
}

fn chosen(billing: &Billing, choice: &Choice) -> Vec<EventId> {
    replay::plan(&billing.beside(), choice).expect("a plan").ids
}

fn failed() -> Choice {
    Choice { failed: true, ..Choice::default() }
}

fn dismisses(billing: &Billing, ids: &[&str]) -> Result<Vec<bool>, DismissError> {
    let ids: Vec<EventId> = ids.iter().map(|text| id(text)).collect();
    let errand = billing.errand_of("bob");
    let dismissed = dismiss::dismiss(&mut billing.beside(), &errand, &ids, "another shop", NOW * 1000)?;
    Ok(dismissed.iter().map(|one| one.dismissed).collect())
}

/// Every row of every table.
fn all_data(billing: &Billing) -> Vec<String> {
    let tables =
        billing.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name");
    assert!(tables.len() > 20);
    let rows = |table: String| {
        let rows = billing.rows(&format!("SELECT * FROM {table} ORDER BY 1, 2"));
        rows.into_iter().map(move |row| format!("{table}: {row}"))
    };
    tables.into_iter().flat_map(rows).collect()
}

/// Story: two products went on sale before anybody told billingd. One event became a dead letter meanwhile.
#[test]
fn after_a_change_of_the_catalogue_replaying_what_failed_is_all_it_takes() {
    let mut billing = catalogue("").spawn();
    let events = [paid(Shape::New, "evt_1", "in_1", "price_new"), paid(Shape::Old, "evt_2", "in_2", "price_new")];
    for _ in 0..5 {
        billing.stripe_sends(&events[0]);
    }
    assert_eq!(billing.stripe_sends(&events[1]).short(), "500 failed");
    let again = replays(&billing, &chosen(&billing, &failed()), How::default());
    assert_eq!(ends(&again), [("evt_1", End::DeadLetter), ("evt_2", End::Failed)], "a dead letter stays one");
    let attempts = "SELECT event_id, attempts, dead_letter, error_code FROM v_events ORDER BY 1";
    assert_eq!(billing.rows(attempts), ["evt_1|6|1|unlisted_price", "evt_2|2|0|unlisted_price"]);
    assert!(again[1].why.as_ref().is_some_and(|why| why.contains("price_new") && why.contains("replay")), "{again:?}");

    billing.restart_with(catalogue(NEW));
    let plan = replay::plan(&billing.beside(), &failed()).expect("a plan");
    let groups: Vec<_> =
        plan.groups.iter().map(|group| (group.count, group.kind.as_str(), group.why.as_str())).collect();
    assert_eq!(groups, [(2, "invoice.paid", "unlisted_price")]);
    let before = all_data(&billing);
    let dry = rehearses(&billing, &plan.ids);
    assert_eq!(all_data(&billing), before, "a dry run writes nothing");

    let wet = replays(&billing, &plan.ids, How::default());
    assert_eq!(ends(&wet), [("evt_1", End::Applied), ("evt_2", End::Applied)]);
    assert_eq!(dry, wet, "a dry run tells exactly what will be written");
    assert_eq!((dry[0].written.entries[0].amount, dry[0].written.audit.is_empty()), (500, false));
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "1000");
    assert_eq!(billing.rows("SELECT DISTINCT actor FROM v_audit WHERE action = 'grant'"), ["operator:alice"]);
    assert!(chosen(&billing, &failed()).is_empty());

    let before = all_data(&billing);
    let done = replays(&billing, &[id("evt_1")], How::default());
    assert_eq!(ends(&done), [("evt_1", End::AlreadyCompleted)]);
    assert_eq!(all_data(&billing), before, "a completed event is not applied again");
    assert_eq!(billing.stripe_sends(&events[0]).short(), "200 duplicate applied");
}

#[test]
fn a_replay_that_would_do_nothing_says_why() {
    let mut billing = catalogue("").spawn();
    billing.stripe_sends(&paid(Shape::New, "evt_1", "in_1", "price_new"));
    let mut twin = paid(Shape::New, "evt_2", "in_1", "price_basic");
    twin["type"] = json!("invoice.payment_succeeded");
    assert_eq!(billing.stripe_sends(&twin).short(), "200 completed applied");
    billing.somebody_runs(
        "UPDATE events SET status = 'failed', outcome = NULL, processed_at = NULL, reason = NULL, error_code = 'panic',
         last_error = 'x' WHERE event_id = 'evt_1'",
    );
    let dry = rehearses(&billing, &[id("evt_1")]);
    assert_eq!(ends(&dry), [("evt_1", End::NoEffect)]);
    assert_eq!(dry[0].why.as_deref(), Some("grant:invoice:in_1 was granted by evt_2"));
    assert!(dry[0].written.is_empty());
    billing.somebody_runs("DELETE FROM event_payloads WHERE event_id = 'evt_1'");
    let gone = replays(&billing, &[id("evt_1")], How::default());
    assert_eq!(ends(&gone), [("evt_1", End::NoPayload)]);
    assert!(gone[0].why.as_ref().is_some_and(|why| why.contains("resend it from the dashboard")));
    let unknown = replay::unknown(&billing.beside(), &[id("evt_1"), id("evt_9")]).expect("a look");
    assert_eq!(unknown, [id("evt_9")]);
    billing.restart();
}

/// Story: the other product on the account turns out to be ours.
#[test]
fn what_was_ignored_runs_anew_when_the_catalogue_knows_it() {
    let mut billing = catalogue(FOREIGN).spawn();
    let sold = |number: usize| paid(Shape::New, &format!("evt_{number}"), &format!("in_{number}"), "price_new");
    for number in 1..=2 {
        assert_eq!(billing.stripe_sends(&sold(number)).short(), "200 completed ignored");
    }
    billing.stripe_sends(&event(Shape::New, "evt_odd", "totally.new.thing", json!({ "id": "n_1", "object": "n" })));
    let mut poison = paid(Shape::New, "evt_3", "in_3", "price_unheard_of");
    merge(&mut poison, json!({ "created": NOW - 30 }));
    billing.stripe_sends(&poison);
    assert_eq!(dismisses(&billing, &["evt_3"]).expect("a dismissal"), [true]);
    let ignored = Choice { ignored: true, ..Choice::default() };
    let before = all_data(&billing);
    let again = replays(&billing, &chosen(&billing, &ignored), How::default());
    assert_eq!(ends(&again), [("evt_1", End::Ignored), ("evt_2", End::Ignored), ("evt_odd", End::Ignored)]);
    assert_eq!(all_data(&billing), before, "what is ignored again stays as it was");

    billing.restart_with(catalogue(NEW));
    let typed = Choice { kind: Some("invoice.paid".into()), ..ignored };
    assert_eq!(
        ends(&rehearses(&billing, &chosen(&billing, &typed))),
        [("evt_1", End::Applied), ("evt_2", End::Applied)]
    );
    assert_eq!(ends(&replays(&billing, &[id("evt_1")], How::default())), [("evt_1", End::Applied)]);
    assert_eq!(ends(&replays(&billing, &chosen(&billing, &typed), How::default())), [("evt_2", End::Applied)]);
    let audit = "SELECT actor, action FROM v_audit WHERE event_id = 'evt_2'";
    assert_eq!(billing.rows(audit), ["operator:alice|event.reopened", "operator:alice|grant"]);
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "1000");

    assert_eq!(ends(&replays(&billing, &[id("evt_3")], How::default())), [("evt_3", End::Dismissed)]);
    let forced = replays(&billing, &[id("evt_3")], How { dismissed: true });
    assert_eq!(ends(&forced), [("evt_3", End::Failed)], "it is still unlisted, and now open again");
    assert_eq!(billing.row("SELECT status, dismissed FROM v_events WHERE event_id = 'evt_3'"), "failed|0");
}

#[test]
fn a_dismissal_is_all_or_nothing_and_told_by_whom_and_why() {
    let billing = catalogue("").spawn();
    billing.stripe_sends(&paid(Shape::New, "evt_1", "in_1", "price_new"));
    billing.stripe_sends(&paid(Shape::New, "evt_2", "in_2", "price_basic"));
    let before = all_data(&billing);
    let refused = dismisses(&billing, &["evt_1", "evt_9"]).expect_err("an unknown event").to_string();
    assert!(refused.contains("evt_9") && refused.contains("nothing is dismissed"), "{refused}");
    let errand = billing.errand_of("bob");
    let no_reason = dismiss::dismiss(&mut billing.beside(), &errand, &[id("evt_1")], " ", NOW * 1000);
    assert!(matches!(no_reason, Err(DismissError::NoReason)));
    assert_eq!(all_data(&billing), before);
    let named = ["evt_1", "evt_2", "evt_1"];
    assert_eq!(dismisses(&billing, &named).expect("a dismissal"), [true, false], "each of them once");
    assert_eq!(
        billing
            .rows("SELECT status, outcome, reason, dead_letter, dismissed, attempts FROM v_events ORDER BY event_id"),
        ["completed|ignored|another shop|0|1|1", "completed|applied||0|0|0"]
    );
    let audit = "SELECT actor, subject, detail FROM v_audit WHERE action = 'event.dismissed'";
    assert_eq!(
        billing.row(audit),
        "operator:bob|in_1|{\"before\":\"failed\",\"code\":\"unlisted_price\",\"needs\":null,\"why\":\"another shop\"}"
    );
    let again = paid(Shape::New, "evt_1", "in_1", "price_new");
    assert_eq!(billing.stripe_sends(&again).short(), "200 duplicate ignored");
}

fn link(of_invoice: &str) -> Value {
    let object = json!({
        "id": format!("inpay_{of_invoice}"), "object": "invoice_payment", "invoice": of_invoice, "status": "paid",
        "amount_paid": 2_000, "currency": "usd",
        "payment": { "type": "payment_intent", "payment_intent": format!("pi_of_{of_invoice}") },
    });
    event(Shape::New, "evt_link", "invoice_payment.paid", object)
}

fn refund(of_invoice: &str) -> Value {
    let object = json!({
        "id": "re_1", "object": "refund", "amount": 500, "currency": "usd", "status": "succeeded", "charge": null,
        "payment_intent": format!("pi_of_{of_invoice}"), "created": NOW - 10,
    });
    event(Shape::New, "evt_refund", "refund.created", object)
}

/// All orders of `count` things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let insert = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, count - 1);
        order
    };
    orders(count - 1).iter().flat_map(|order| (0..count).map(|at| insert(order, at)).collect::<Vec<_>>()).collect()
}

#[test]
fn a_dismissed_grant_is_decided_in_every_order() {
    let unreadable = |shape| {
        let mut event = paid(shape, "evt_paid", "in_1", "price_basic");
        event["data"]["object"]["amount_paid"] = json!("much");
        event
    };
    let unlisted = |shape| paid(shape, "evt_paid", "in_1", "price_new");
    for shape in SHAPES {
        for (name, poison) in [("unlisted", unlisted(shape)), ("unreadable", unreadable(shape))] {
            for order in orders(4) {
                let at = |step: usize| order.iter().position(|other| *other == step);
                if at(3) < at(0) {
                    continue; // Nobody dismisses what has not come.
                }
                let billing = catalogue("").spawn();
                for step in &order {
                    match step {
                        0 => assert_eq!(billing.stripe_sends(&poison).short(), "500 failed"),
                        1 => assert_eq!(billing.stripe_sends(&link("in_1")).status, 200),
                        2 => assert!(billing.stripe_sends(&refund("in_1")).status < 300),
                        _ => assert_eq!(dismisses(&billing, &["evt_paid"]).expect("a dismissal"), [true]),
                    }
                }
                let what = format!("{name} {shape:?} {order:?}");
                wait_until(&what, || billing.rows("SELECT 1 FROM v_events WHERE status <> 'completed'").is_empty());
                let ends =
                    "SELECT outcome FROM v_events WHERE event_id IN ('evt_paid', 'evt_refund') ORDER BY event_id";
                assert_eq!(billing.rows(ends), ["ignored", "no_effect"], "{what}");
                assert!(billing.rows("SELECT 1 FROM v_ledger").is_empty());
            }
        }
    }
}

/// Older shapes name the payment in the invoice, and nothing else may come that ties it.
#[test]
fn what_a_dismissed_invoice_tells_of_its_payment_is_known() {
    for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1]] {
        let billing = catalogue("").spawn();
        for step in order {
            match step {
                0 => assert_eq!(
                    billing.stripe_sends(&paid(Shape::Old, "evt_paid", "in_1", "price_new")).short(),
                    "500 failed"
                ),
                1 => assert!(billing.stripe_sends(&refund("in_1")).status < 300),
                _ => assert_eq!(dismisses(&billing, &["evt_paid"]).expect("a dismissal"), [true]),
            }
        }
        let ends = "SELECT status, outcome FROM v_events WHERE event_id = 'evt_refund'";
        assert_eq!(billing.rows(ends), ["completed|no_effect"], "{order:?}");
    }
}

/// Story: a dismissal was a mistake; the refund came meanwhile.
#[test]
fn a_dismissal_that_is_taken_back_grants_less_what_was_refunded() {
    let mut billing = catalogue("").spawn();
    for sent in [paid(Shape::New, "evt_paid", "in_1", "price_new"), link("in_1")] {
        billing.stripe_sends(&sent);
    }
    dismisses(&billing, &["evt_paid"]).expect("a dismissal");
    assert_eq!(billing.stripe_sends(&refund("in_1")).short(), "200 completed no_effect");
    billing.restart_with(catalogue(NEW));
    let taken_back = replays(&billing, &[id("evt_paid")], How { dismissed: true });
    assert_eq!(ends(&taken_back), [("evt_paid", End::Applied)]);
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "375", "500 less a quarter");
}

#[test]
fn replays_and_deliveries_beside_each_other_have_one_effect_each() {
    let billing = spawn();
    let poison = |number: usize| {
        let mut event = invoice_paid(Shape::New, &format!("evt_{number}"), &format!("in_{number}"), "cus_1", 10);
        event["data"]["object"]["amount_paid"] = json!("much");
        event
    };
    for number in 0..30 {
        billing.stripe_sends(&poison(number));
    }
    std::thread::scope(|scope| {
        let billing = &billing;
        let ids = chosen(billing, &failed());
        scope.spawn(move || {
            for id in ids.chunks(7) {
                assert!(replays(billing, id, How::default()).iter().all(|one| one.end == End::Failed));
            }
        });
        scope.spawn(|| {
            for number in 100..130 {
                let event = invoice_paid(Shape::Old, &format!("evt_{number}"), &format!("in_{number}"), "cus_1", 10);
                assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
            }
        });
    });
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "300");
    assert_eq!(billing.row("SELECT count(*) FROM v_events WHERE status = 'failed' AND attempts = 2"), "30");
}

/// Story: an event was ignored before its type had a rule, and retention took its payload since.
#[test]
fn a_payload_that_retention_has_deleted_is_fetched_again() {
    let mut billing = catalogue(FOREIGN).spawn();
    let event = paid(Shape::New, "evt_1", "in_1", "price_new");
    assert_eq!(billing.stripe_sends(&event).short(), "200 completed ignored");
    assert_eq!(
        billing.stripe_sends(&paid(Shape::New, "evt_2", "in_2", "price_basic")).short(),
        "200 completed applied"
    );
    billing.somebody_runs("DELETE FROM event_payloads");
    billing.restart_with(catalogue(NEW));
    let ids = [id("evt_1"), id("evt_2")];
    assert_eq!(
        ends(&replays(&billing, &ids, How::default())),
        [("evt_1", End::NoPayload), ("evt_2", End::AlreadyCompleted)]
    );
    let without = replay::without_payload(&billing.beside(), &ids, How::default()).expect("a read");
    assert_eq!(without, [id("evt_1")], "what would not run is not asked for");
    let stripe = FakeStripe::default();
    let mut fetcher = Fetcher::new(Some(stripe.clone()));
    let (gone, problems) = fetcher.fetch(&without);
    assert!(gone.is_empty() && problems.is_empty(), "after 30 days Stripe has it no more");
    stripe.put(event);
    let (fetched, problems) = fetcher.fetch(&without);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(billing.row("SELECT count(*) FROM event_payloads"), "0", "nobody can delete it before it runs");
    let (mut desk, errand) = (billing.beside(), billing.errand_of("alice"));
    let ran = replay::replay(&mut desk, &errand, &without, fetched, How::default(), NOW * 1000).expect("a replay");
    assert_eq!(ends(&ran), [("evt_1", End::Applied)]);
    assert_eq!(billing.row("SELECT balance FROM v_balances WHERE account_id = 'cus_1'"), "600");
}

#[test]
fn a_stripe_that_does_not_answer_is_asked_once() {
    let stripe = FakeStripe::default();
    let ids: Vec<EventId> = (0..4).map(|number| id(&format!("evt_{number}"))).collect();
    stripe.order(Fault::at("/v1/events/evt_0").status(400).times(1));
    stripe.order(Fault::at("/v1/events/*").after(1).status(503));
    let mut fetcher = Fetcher::new(Some(stripe.clone()));
    let (fetched, problems) = fetcher.fetch(&ids);
    assert!(fetched.is_empty());
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(told.len() == 2 && told[0].starts_with("evt_0: its payload is not fetched again"), "{told:?}");
    assert!(!told[0].contains("no other") && told[1].ends_with("; no other is asked for"), "{told:?}");
    assert!(fetcher.fetch(&ids).1.is_empty(), "nor later");
    assert_eq!(stripe.calls().len(), 2);
}

/// Two events of one fact, and others of other facts, more than one transaction takes.
fn many(billing: &Billing) {
    for number in 0..70 {
        let invoice = if number == 69 { "in_0".to_owned() } else { format!("in_{number}") };
        let failed = paid(Shape::New, &format!("evt_{number:02}"), &invoice, "price_new");
        assert_eq!(billing.stripe_sends(&failed).short(), "500 failed");
    }
}

#[test]
fn a_dry_run_tells_what_the_whole_replay_will_do() {
    let mut billing = catalogue("").spawn();
    many(&billing);
    billing.restart_with(catalogue(NEW));
    let before = all_data(&billing);
    let (status, dry) = says(&billing, &["events", "replay", "--failed", "--dry-run"], &[]);
    assert!(status == 0 && dry.contains("69 would be applied, 1 not run again\ndry run"), "{dry}");
    assert_eq!(all_data(&billing), before, "a dry run writes nothing");
    let (status, wet) = says(&billing, &["events", "replay", "--failed"], &[]);
    assert!(status == 0 && wet.ends_with("\n69 applied, 1 not run again\n"), "{wet}");
}

#[test]
fn an_error_does_not_hide_what_has_run() {
    let mut billing = catalogue("").spawn();
    many(&billing);
    billing.restart_with(catalogue(NEW));
    billing.somebody_runs(
        "CREATE TRIGGER breaks BEFORE UPDATE ON events WHEN new.event_id = 'evt_66'
         BEGIN SELECT RAISE(ABORT, 'the disk breaks'); END",
    );
    let (status, told) = says(&billing, &["events", "replay", "--failed"], &[]);
    assert!(status == 1 && told.contains("\n64 applied\n6 not reached"), "{told}");
    assert!(told.contains("billingd: database: the disk breaks"), "{told}");
    assert_eq!(billing.row("SELECT count(*) FROM v_events WHERE status = 'completed'"), "65", "and evt_69, woken");
    billing.somebody_runs("DROP TRIGGER breaks");
}
