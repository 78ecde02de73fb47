//! What Stripe's API told fills in what an event leaves out.

use super::*;
use crate::domain::event::{Charge, Subscription, SubscriptionItem, Thin, Trace};
use crate::domain::facts::Asked;
use crate::domain::ids::{ChargeId, PaymentId, SubscriptionId};
use crate::domain::subscription::{Known, Snapshot, State};

fn asking(policy: Policy) -> Policy {
    Policy { asks_stripe: true, ..policy }
}

fn told_lines(lines: &[Line]) -> Facts {
    Facts { lines: Asked::Told(lines.to_vec()), ..known() }
}

fn gone() -> Facts {
    Facts { lines: Asked::Gone, ..known() }
}

#[test]
fn the_other_lines_of_an_invoice() {
    let policy = by_catalogue();
    let truncated = || invoice_with(|invoice| invoice.lines = Lines::Truncated);
    let two = told_lines(&[line("pack"), line("pack")]);
    for (name, facts, event, expected) in [
        ("not told", known(), truncated(), "wait lines:in_1"),
        ("told", two.clone(), truncated(), "applied: save in_1 paid 2000; grant cus_1 grant:invoice:in_1 credits 100"),
        ("not needed", two, paid(), "applied: save in_1 paid 2000; grant cus_1 grant:invoice:in_1 credits 50"),
        ("Stripe has no such invoice", gone(), truncated(), "fail not_at_stripe"),
    ] {
        check(name, &policy, &facts, &event, expected);
    }
    check(
        "by money",
        &by_money(),
        &known(),
        &truncated(),
        "applied: save in_1 paid 2000; grant cus_1 grant:invoice:in_1 usd 2000",
    );
}

#[test]
fn a_held_tier_needs_all_lines_whatever_the_credits_come_from() {
    let holding = |mut policy: Policy| {
        policy.tiers.keep_until_period_end = true;
        policy
    };
    let id = SubscriptionId::parse("sub_1").expect("an id");
    let of_subscription = invoice_with(|invoice| {
        (invoice.lines, invoice.subscription) = (Lines::Truncated, Some(id));
    });
    let alone = invoice_with(|invoice| invoice.lines = Lines::Truncated);
    let with_key = holding(asking(by_money()));
    for (name, policy, facts, event, expected) in [
        ("not told", &with_key, known(), &of_subscription, "wait lines:in_1"),
        ("not told, but granted", &with_key, granted(), &of_subscription, "wait lines:in_1"),
        ("Stripe has no such invoice", &with_key, gone(), &of_subscription, GRANTED),
        ("of no subscription", &with_key, known(), &alone, GRANTED),
        ("without a key", &holding(by_money()), known(), &of_subscription, GRANTED),
        ("no tier is held", &asking(by_money()), known(), &of_subscription, GRANTED),
    ] {
        check(name, policy, &facts, event, expected);
    }
}

#[test]
fn what_a_session_sold() {
    let with_key = asking(by_catalogue());
    let session = |metadata: Option<&str>| {
        checkout_with(|checkout| checkout.metadata_price = metadata.map(|price| PriceId::parse(price).expect("an id")))
    };
    let pack = Line { on_subscription: false, quantity: Some(3), ..line("pack") };
    let foreign = Line { price: Some(price_ref("other")), ..pack.clone() };
    let unlisted = Line { price: Some(price_ref("new")), ..pack.clone() };
    let three = "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 credits 150";
    let one = "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 credits 50";
    for (name, policy, facts, metadata, expected) in [
        ("without a key the metadata tell", &by_catalogue(), known(), Some("pack"), one),
        ("without a key and metadata", &by_catalogue(), known(), None, "wait session:cs_1"),
        ("with a key Stripe is asked", &with_key, known(), Some("pack"), "wait session:cs_1"),
        ("what Stripe told beats the metadata", &with_key, told_lines(&[pack]), Some("other"), three),
        ("somebody else's", &with_key, told_lines(&[foreign]), None, "ignored: save cs_1 500"),
        ("unlisted", &with_key, told_lines(&[unlisted]), None, "fail unlisted_price"),
        ("Stripe does not know it, the metadata do", &with_key, gone(), Some("pack"), one),
        ("nobody knows", &with_key, gone(), None, "fail not_at_stripe"),
    ] {
        check(name, policy, &facts, &session(metadata), expected);
    }
}

#[test]
fn a_thin_event() {
    let thin = |change: fn(&mut Thin)| {
        let mut thin = Thin {
            snapshot_event: None,
            is_acted_on: true,
            related_url: Some("/v1/invoices/in_1".into()),
            is_gone: false,
        };
        change(&mut thin);
        event("evt_1", "v1.invoice.paid", Body::Thin(thin))
    };
    let twin = Facts { twin: Some(event_id("evt_0")), ..Facts::default() };
    let plain = || thin(|_| ());
    let policy = asking(by_money());
    for (name, facts, event, expected) in [
        ("is asked for", Facts::default(), plain(), "wait object:/v1/invoices/in_1"),
        ("was told by its twin", twin, plain(), "no_effect: "),
        ("is gone", Facts::default(), thin(|thin| thin.is_gone = true), "fail not_at_stripe"),
        (
            "is gone, as drafts may be",
            Facts::default(),
            Event { kind: "v1.invoice.updated".into(), ..thin(|thin| thin.is_gone = true) },
            "no_effect: ",
        ),
        ("names nothing", Facts::default(), thin(|thin| thin.related_url = None), "fail unreadable_object"),
        ("is of no interest", Facts::default(), thin(|thin| thin.is_acted_on = false), "ignored: "),
    ] {
        check(name, &policy, &facts, &event, expected);
    }
}

/// `sub_1` of `cus_1` in this status, with an item for each price.
fn subscription(status: &str, prices: &[&str]) -> Subscription {
    let item = |name: &&str| SubscriptionItem {
        id: format!("si_{name}"),
        price: price_ref(name),
        unit: Unit::Untold,
        currency: None,
        quantity: Some(1),
    };
    Subscription {
        id: SubscriptionId::parse("sub_1").expect("an id"),
        customer: Some(account()),
        status: status.into(),
        items: prices.iter().map(item).collect(),
        items_truncated: false,
        current_period_end: None,
        cancel_at: None,
        cancel_at_period_end: false,
        ended_at: None,
        collection_paused: false,
        reference: None,
        trace: Trace::default(),
    }
}

fn updated(id: &str, subscription: Subscription) -> Event {
    event(id, "customer.subscription.updated", Body::Subscription(subscription))
}

/// `evt_9` told that it is past due; Stripe was asked, or not.
fn after_past_due(at_stripe: Asked<State>) -> Facts {
    let policy = by_money();
    let past_due = subscription("past_due", &["pack"]);
    let snapshot = Snapshot::of(&updated("evt_9", past_due.clone()), &past_due);
    let mut facts = known();
    facts.subscription.known = Known::default().with(&snapshot, &policy);
    facts.subscription.at_stripe = at_stripe;
    facts
}

/// The status that counts after the decision, or what else came of it.
fn status_after(decision: &Decision) -> String {
    match decision {
        Decision::Complete(completion) => completion
            .effects
            .iter()
            .find_map(|effect| match effect {
                Effect::SaveSubscription(_, standing) => Some(standing.state.status.clone()),
                _ => None,
            })
            .unwrap_or_else(|| "as before".into()),
        other => told(other),
    }
}

#[test]
fn of_two_snapshots_of_one_second_stripe_says_which_counts() {
    let (with_key, without) = (asking(by_money()), by_money());
    let state = |status: &str| Asked::Told(State::of(&subscription(status, &["pack"])));
    let active = updated("evt_1", subscription("active", &["pack"]));
    let same = updated("evt_1", subscription("past_due", &["pack"]));
    let later = updated("evt_1", subscription("active", &["pack"])).at(101);
    for (name, policy, at_stripe, event, expected) in [
        ("not asked", &with_key, Asked::NotYet, &active, "wait subscription:sub_1"),
        ("as this one tells", &with_key, state("active"), &active, "active"),
        ("as the other one tells", &with_key, state("past_due"), &active, "past_due"),
        ("as neither tells: the greatest id", &with_key, state("canceled"), &active, "past_due"),
        ("Stripe does not know it: the greatest id", &with_key, Asked::Gone, &active, "past_due"),
        ("nobody can be asked: the greatest id", &without, Asked::NotYet, &active, "past_due"),
        ("both tell the same", &with_key, Asked::NotYet, &same, "past_due"),
        ("a later second needs no answer", &with_key, Asked::NotYet, &later, "active"),
    ] {
        let decision = decide(event, &after_past_due(at_stripe), policy, NOW);
        assert_eq!(status_after(&decision), expected, "{name}");
    }
}

#[test]
fn the_other_items_of_a_subscription() {
    let policy = asking(by_money());
    let truncated = updated("evt_1", Subscription { items_truncated: true, ..subscription("active", &["pack"]) });
    let items = |at_stripe: Asked<State>| {
        let mut facts = known();
        facts.subscription.at_stripe = at_stripe;
        match decide(&truncated, &facts, &policy, NOW) {
            Decision::Complete(completion) => completion
                .effects
                .iter()
                .find_map(|effect| match effect {
                    Effect::SaveSubscription(_, standing) => Some(standing.state.items.len().to_string()),
                    _ => None,
                })
                .unwrap_or_default(),
            other => told(&other),
        }
    };
    assert_eq!(items(Asked::NotYet), "wait subscription:sub_1");
    assert_eq!(items(Asked::Told(State::of(&subscription("active", &["pack", "other", "new"])))), "3");
    assert_eq!(items(Asked::Gone), "fail not_at_stripe");
}

#[test]
fn a_payment_of_which_stripe_knows_nothing_of_ours() {
    let charge = Charge {
        id: ChargeId::parse("ch_1").expect("an id"),
        payment_intent: PaymentId::parse("pi_1").ok(),
        invoice: None,
        customer: Some(account()),
        currency: currency("usd"),
        amount: 2_000,
        amount_captured: 2_000,
        amount_refunded: 500,
        status: "succeeded".into(),
        refunds: Vec::new(),
    };
    let refunded = event("evt_1", "charge.refunded", Body::Charge(charge));
    let mut facts = known();
    facts.money.payment.intent = PaymentId::parse("pi_1").ok();
    check("not asked", &asking(by_money()), &facts, &refunded, "wait payment:ch_1 payment:pi_1");
    facts.money.asked = true;
    let expected = "no_effect: charge ch_1 pi_1 cus_1 usd 2000 less 500 by evt_1 at 100; same ch_1 pi_1";
    check("asked", &asking(by_money()), &facts, &refunded, expected);
}

#[test]
fn a_need_is_read_as_it_is_written() {
    for text in [
        "lines:in_1",
        "price:price_1",
        "payment:pi_1",
        "grant:invoice:in_1",
        "grant:checkout:cs_1",
        "subscription:sub_1",
        "session:cs_1",
        "rate:jpy",
        "object:/v1/invoices/in_1",
    ] {
        let need = Need::parse(text).expect(text);
        assert_eq!(need.to_string(), text);
    }
    assert_eq!((Need::parse("nothing"), Need::parse("weather:today")), (None, None));
}
