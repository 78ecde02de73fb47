use super::super::decide;
use super::super::tests::{NOW, account, by_money, currency, event, event_id, invoice_with, told_whole};
use super::*;
use crate::domain::event::Body;
use crate::domain::facts::{AccountHeld, InvoiceHeld, MoneyFacts};
use crate::domain::ids::{ChargeId, CheckoutId, CreditNoteId, DisputeId, PaymentId, RefundId};

/// The names of a payment; an empty one is not told.
fn of(intent: &str, charge: &str) -> PaymentRef {
    PaymentRef { payment_intent: PaymentId::parse(intent).ok(), charge: ChargeId::parse(charge).ok() }
}

fn charge_id(text: &str) -> ChargeId {
    ChargeId::parse(text).expect("an id")
}

fn invoice_id(text: &str) -> InvoiceId {
    InvoiceId::parse(text).expect("an id")
}

/// `pi_1` with its charge `ch_1`, and nothing known of either.
fn payment() -> Payment {
    Payment { intent: PaymentId::parse("pi_1").ok(), charges: vec![charge_id("ch_1")], ..Payment::default() }
}

/// A snapshot of a charge over 2000 by `evt_0`.
fn snapshot(id: &str, refunded: i64, at: UnixSeconds) -> ChargeHeld {
    ChargeHeld {
        id: charge_id(id),
        intent: None,
        account: None,
        currency: currency("usd"),
        captured: 2_000,
        refunded,
        at,
        source: event_id("evt_0"),
    }
}

/// A refund of second 90, told by `evt_0`.
fn refund_held(id: &str, amount: i64, status: &str, at: UnixSeconds) -> RefundHeld {
    RefundHeld {
        id: RefundId::parse(id).expect("an id"),
        payment: of("pi_1", "ch_1"),
        amount,
        currency: currency("usd"),
        status: Some(status.into()),
        created: 90,
        failed_at: clawback::is_failed(Some(status)).then_some(at),
        at,
        source: event_id("evt_0"),
    }
}

/// A dispute that is out, told by `evt_0`.
fn dispute_held(id: &str, amount: i64, code: &str, at: UnixSeconds) -> DisputeHeld {
    DisputeHeld {
        id: DisputeId::parse(id).expect("an id"),
        payment: of("pi_1", "ch_1"),
        amount,
        currency: currency(code),
        status: "needs_response".into(),
        withdrawn_at: None,
        reinstated_at: None,
        at,
        source: event_id("evt_0"),
    }
}

fn with_snapshot(one: ChargeHeld) -> Payment {
    Payment { snapshots: vec![one], ..payment() }
}

fn with_refunds(refunds: &[RefundHeld]) -> Payment {
    Payment { refunds: refunds.to_vec(), ..payment() }
}

fn with_disputes(disputes: &[DisputeHeld]) -> Payment {
    Payment { disputes: disputes.to_vec(), ..payment() }
}

/// An invoice over 2000 usd, paid by this payment.
fn root(id: &str, decided: Decided, payments: &[Payment]) -> Root {
    Root {
        fact: Fact::invoice(&invoice_id(id)),
        decided,
        amount_paid: 2_000,
        currency: Some(currency("usd")),
        payments: payments.to_vec(),
    }
}

/// 2000 were granted, and so many of them are taken back.
fn granted(taken: i64) -> Decided {
    let unit = UnitGranted { unit: "usd".into(), granted: 2_000, taken, taken_before: 0 };
    Decided::Granted(Granted { account: account(), units: vec![unit] })
}

fn facts(payment: Payment, roots: Vec<Root>) -> Facts {
    let account = Some(AccountHeld { reference: None, deleted: false });
    Facts { account, money: MoneyFacts { payment, roots, asked: false }, ..Facts::default() }
}

/// Nothing is known of what was paid.
fn untied(payment: Payment) -> Facts {
    facts(payment, vec![])
}

/// It paid `in_1`, which this became of.
fn tied(payment: Payment, decided: Decided) -> Facts {
    let root = root("in_1", decided, std::slice::from_ref(&payment));
    facts(payment, vec![root])
}

/// As [`tied`], and nobody told the amount.
fn of_untold_amount(payment: Payment, decided: Decided) -> Facts {
    let mut facts = tied(payment, decided);
    facts.money.roots.iter_mut().for_each(|root| root.amount_paid = 0);
    facts
}

fn link(status: &str, payment: Option<PaymentRef>) -> Event {
    let link = InvoicePayment {
        id: "inpay_1".into(),
        invoice: invoice_id("in_1"),
        status: status.into(),
        amount_paid: Some(2_000),
        currency: Some(currency("usd")),
        payment,
    };
    event("evt_1", "invoice_payment.paid", Body::InvoicePayment(link))
}

fn intent(invoice: &str, charge: &str) -> Event {
    let intent = PaymentIntent {
        id: PaymentId::parse("pi_1").expect("an id"),
        invoice: InvoiceId::parse(invoice).ok(),
        latest_charge: ChargeId::parse(charge).ok(),
    };
    event("evt_1", "payment_intent.succeeded", Body::PaymentIntent(intent))
}

/// `ch_1` of `pi_1` over 2000, of which so much was refunded.
fn charge(refunded: i64, change: impl FnOnce(&mut Charge)) -> Event {
    let mut charge = Charge {
        id: charge_id("ch_1"),
        payment_intent: PaymentId::parse("pi_1").ok(),
        invoice: None,
        customer: Some(account()),
        currency: currency("usd"),
        amount: 2_000,
        amount_captured: 2_000,
        amount_refunded: refunded,
        status: "succeeded".into(),
        refunds: Vec::new(),
    };
    change(&mut charge);
    event("evt_1", "charge.refunded", Body::Charge(charge))
}

/// A refund of 500 from second 90, as an object.
fn refund_of(payment: PaymentRef, status: &str) -> Refund {
    Refund {
        id: RefundId::parse("re_1").expect("an id"),
        payment,
        amount: 500,
        currency: currency("usd"),
        status: Some(status.into()),
        created: 90,
    }
}

fn refund(payment: PaymentRef, status: &str) -> Event {
    event("evt_1", "refund.updated", Body::Refund(refund_of(payment, status)))
}

/// `dp_1` of `ch_1` over 500 in this currency.
fn dispute(kind: &str, code: &str, status: &str) -> Event {
    let dispute = Dispute {
        id: DisputeId::parse("dp_1").expect("an id"),
        payment: of("", "ch_1"),
        amount: 500,
        currency: currency(code),
        status: status.into(),
    };
    event("evt_1", &format!("charge.dispute.{kind}"), Body::Dispute(dispute))
}

#[track_caller]
fn check(name: &str, given: &Facts, event: &Event, expected: &str) {
    assert_eq!(told_whole(&decide(event, given, &by_money(), NOW)), expected, "{name}");
}

const PAIR: &str = "payment:pi_1 payment:ch_1";

#[test]
fn a_payment_is_tied_to_its_invoice() {
    let nothing = "no_effect (only paid payments through Stripe tie anything): ";
    check("not paid", &untied(Payment::default()), &link("open", Some(of("pi_1", ""))), nothing);
    check("canceled", &untied(Payment::default()), &link("canceled", Some(of("pi_1", ""))), nothing);
    check("paid outside of Stripe", &untied(Payment::default()), &link("paid", None), nothing);
    let refunded = || with_refunds(&[refund_held("re_1", 500, "succeeded", 95)]);
    for (name, given, told, expected) in [
        (
            "by its intent",
            untied(Payment::default()),
            of("pi_1", ""),
            "no_effect (nothing of ours is tied to the payment): link in_1 pi_1/- -> payment:pi_1 payment:pi_1",
        ),
        (
            "by its charge",
            untied(Payment::default()),
            of("", "ch_1"),
            "no_effect (nothing of ours is tied to the payment): link in_1 -/ch_1 -> payment:ch_1 payment:ch_1",
        ),
        (
            "by its charge, whose intent is known",
            untied(payment()),
            of("", "ch_1"),
            "no_effect (nothing of ours is tied to the payment): same ch_1 pi_1; link in_1 pi_1/ch_1 \
             -> payment:pi_1 payment:ch_1 payment:pi_1 payment:ch_1",
        ),
        (
            "before the grant, which waits for nobody",
            tied(payment(), Decided::NotYet),
            of("pi_1", ""),
            "no_effect (what was paid has granted nothing yet): link in_1 pi_1/- -> payment:pi_1 payment:pi_1",
        ),
        (
            "that granted nothing",
            tied(payment(), Decided::Nothing),
            of("pi_1", ""),
            "no_effect (what was paid has granted nothing): link in_1 pi_1/- -> payment:pi_1 payment:pi_1",
        ),
        (
            "that granted",
            tied(payment(), granted(0)),
            of("pi_1", ""),
            "no_effect (the grant stands as it should): link in_1 pi_1/- -> payment:pi_1 payment:pi_1",
        ),
        (
            "after its refund",
            tied(refunded(), granted(0)),
            of("pi_1", ""),
            "applied: link in_1 pi_1/-; correct cus_1 grant:invoice:in_1 usd -500 -> payment:pi_1 payment:pi_1",
        ),
        (
            "after its refund of an untold amount, which ties without waiting",
            of_untold_amount(refunded(), granted(0)),
            of("pi_1", ""),
            "no_effect (the grant stands as it should): link in_1 pi_1/- -> payment:pi_1 payment:pi_1",
        ),
    ] {
        check(name, &given, &link("paid", Some(told)), expected);
    }
}

#[test]
fn an_intent_names_its_invoice_and_its_charge() {
    let none = "no_effect (nothing of ours is tied to the payment)";
    let nobody = untied(Payment::default());
    check(
        "both",
        &nobody,
        &intent("in_1", "ch_1"),
        &format!("{none}: same ch_1 pi_1; link in_1 pi_1/ch_1 -> {PAIR} {PAIR}"),
    );
    check("the charge", &nobody, &intent("", "ch_1"), &format!("{none}: same ch_1 pi_1 -> {PAIR}"));
    check(
        "the invoice",
        &nobody,
        &intent("in_1", ""),
        &format!("{none}: link in_1 pi_1/- -> payment:pi_1 payment:pi_1"),
    );
    check("neither", &nobody, &intent("", ""), &format!("{none}:  -> payment:pi_1"));
}

#[test]
fn a_charge_tells_what_was_captured_and_refunded() {
    let saved = |refunded: i64| format!("charge ch_1 pi_1 cus_1 usd 2000 less {refunded} by evt_1 at 100");
    let none = "no_effect (nothing of ours is tied to the payment)";
    let nothing = "no_effect (what was paid has granted nothing)";
    let stands = "no_effect (the grant stands as it should)";
    let correct = "correct cus_1 grant:invoice:in_1 usd";
    for (name, given, event, expected) in [
        (
            "that failed",
            tied(payment(), granted(0)),
            charge(500, |charge| charge.status = "failed".into()),
            "no_effect (the charge failed): ".into(),
        ),
        (
            "without refund, which nothing waits for",
            untied(Payment::default()),
            charge(0, |_| ()),
            format!("{none}: {}; same ch_1 pi_1 -> {PAIR}", saved(0)),
        ),
        (
            "that names its invoice",
            untied(Payment::default()),
            charge(0, |charge| charge.invoice = InvoiceId::parse("in_1").ok()),
            format!("{none}: {}; same ch_1 pi_1; link in_1 pi_1/ch_1 -> {PAIR} {PAIR}", saved(0)),
        ),
        (
            "with a refund, of nobody knows what",
            untied(Payment::default()),
            charge(500, |_| ()),
            "wait payment:ch_1 payment:pi_1".into(),
        ),
        (
            "with the smallest refund, too",
            untied(Payment::default()),
            charge(1, |_| ()),
            "wait payment:ch_1 payment:pi_1".into(),
        ),
        (
            "with a refund, by any name of the payment",
            untied(Payment { charges: vec![charge_id("ch_0"), charge_id("ch_1")], ..payment() }),
            charge(500, |_| ()),
            "wait payment:ch_0 payment:ch_1 payment:pi_1".into(),
        ),
        (
            "with a refund, before the grant",
            tied(payment(), Decided::NotYet),
            charge(500, |_| ()),
            "wait grant:invoice:in_1".into(),
        ),
        (
            "without refund, before the grant",
            tied(payment(), Decided::NotYet),
            charge(0, |_| ()),
            format!("no_effect (what was paid has granted nothing yet): {}; same ch_1 pi_1 -> {PAIR}", saved(0)),
        ),
        (
            "with a refund of what granted nothing",
            tied(payment(), Decided::Nothing),
            charge(500, |_| ()),
            format!("{nothing}: {}; same ch_1 pi_1 -> {PAIR}", saved(500)),
        ),
        (
            "with a refund of a grant",
            tied(payment(), granted(0)),
            charge(500, |_| ()),
            format!("applied: {}; same ch_1 pi_1; {correct} -500 -> {PAIR}", saved(500)),
        ),
        (
            "with a larger refund than before",
            tied(with_snapshot(snapshot("ch_1", 300, 99)), granted(300)),
            charge(500, |_| ()),
            format!("applied: {}; same ch_1 pi_1; {correct} -200 -> {PAIR}", saved(500)),
        ),
        (
            "with a smaller refund than before, for one failed",
            tied(with_snapshot(snapshot("ch_1", 500, 99)), granted(500)),
            charge(0, |_| ()),
            format!("applied: {}; same ch_1 pi_1; {correct} 500 -> {PAIR}", saved(0)),
        ),
        (
            "told again",
            tied(with_snapshot(ChargeHeld { source: event_id("evt_1"), ..snapshot("ch_1", 500, 100) }), granted(500)),
            charge(500, |_| ()),
            format!("{stands}: charge ch_1 - - usd 2000 less 500 by evt_1 at 100; same ch_1 pi_1 -> {PAIR}"),
        ),
        (
            "older than what we hold",
            tied(with_snapshot(snapshot("ch_1", 500, 101)), granted(500)),
            charge(0, |_| ()),
            format!("stale (older than what we hold): same ch_1 pi_1 -> {PAIR}"),
        ),
        (
            "older than what we hold, which is not yet taken back",
            tied(with_snapshot(snapshot("ch_1", 500, 101)), granted(0)),
            charge(0, |_| ()),
            format!("applied: same ch_1 pi_1; {correct} -500 -> {PAIR}"),
        ),
        (
            "beside another charge of the payment",
            tied(with_snapshot(snapshot("ch_0", 300, 101)), granted(300)),
            charge(500, |_| ()),
            format!("applied: {}; same ch_1 pi_1; {correct} -500 -> {PAIR}", saved(500)),
        ),
    ] {
        check(name, &given, &event, &expected);
    }
    let both = Payment { snapshots: vec![snapshot("ch_0", 300, 101), snapshot("ch_1", 0, 90)], ..payment() };
    check(
        "whose former snapshot is not the first one",
        &tied(both, granted(300)),
        &charge(500, |_| ()),
        &format!("applied: {}; same ch_1 pi_1; {correct} -500 -> {PAIR}", saved(500)),
    );
}

#[test]
fn what_a_partial_capture_released_is_not_refunded() {
    let captured = |captured: i64, refunded: i64| charge(refunded, |charge| charge.amount_captured = captured);
    for (name, event, expected) in [
        ("only released", captured(1_500, 500), "1500 less 0"),
        ("released, and refunded", captured(1_500, 800), "1500 less 300"),
        ("released, not yet counted", captured(1_500, 0), "1500 less 0"),
        ("captured beyond the amount", captured(2_500, 500), "2500 less 500"),
        ("captured in full", captured(2_000, 500), "2000 less 500"),
    ] {
        let expected = format!(
            "no_effect (what was paid has granted nothing): \
             charge ch_1 pi_1 cus_1 usd {expected} by evt_1 at 100; same ch_1 pi_1 -> {PAIR}"
        );
        check(name, &tied(payment(), Decided::Nothing), &event, &expected);
    }
    check(
        "only released, which nothing waits for",
        &untied(Payment::default()),
        &captured(1_500, 500),
        &format!(
            "no_effect (nothing of ours is tied to the payment): \
             charge ch_1 pi_1 cus_1 usd 1500 less 0 by evt_1 at 100; same ch_1 pi_1 -> {PAIR}"
        ),
    );
}

#[test]
fn a_charge_tells_of_its_refunds() {
    let saved = "charge ch_1 pi_1 cus_1 usd 2000 less 500 by evt_1 at 100";
    let refunded = "refund re_1 pi_1/ch_1 500 usd succeeded of 90 failed - by evt_1 at 100; same ch_1 pi_1";
    let embedded = |refunded: i64, status: &str| {
        let refund = refund_of(PaymentRef::default(), status);
        charge(refunded, |charge| charge.refunds = vec![refund])
    };
    let nothing = "no_effect (what was paid has granted nothing)";
    let told = || RefundHeld { source: event_id("evt_1"), ..refund_held("re_1", 500, "succeeded", 100) };
    for (name, given, event, expected) in [
        (
            "which the total counts already",
            tied(payment(), granted(0)),
            embedded(500, "succeeded"),
            format!(
                "applied: {saved}; {refunded}; same ch_1 pi_1; correct cus_1 grant:invoice:in_1 usd -500 -> {PAIR}"
            ),
        ),
        (
            "both are new",
            tied(payment(), Decided::Nothing),
            embedded(500, "succeeded"),
            format!("{nothing}: {saved}; {refunded}; same ch_1 pi_1 -> {PAIR}"),
        ),
        (
            "of which the total knows that it failed",
            tied(with_snapshot(snapshot("ch_1", 500, 99)), granted(500)),
            embedded(0, "failed"),
            format!(
                "applied: charge ch_1 pi_1 cus_1 usd 2000 less 0 by evt_1 at 100; \
                 refund re_1 pi_1/ch_1 500 usd failed of 90 failed 99 by evt_1 at 100; same ch_1 pi_1; \
                 same ch_1 pi_1; correct cus_1 grant:invoice:in_1 usd 500 -> {PAIR}"
            ),
        ),
        (
            "of which one failed and one did not",
            tied(payment(), granted(0)),
            charge(300, |charge| {
                let other = RefundId::parse("re_2").expect("an id");
                let other = Refund { id: other, amount: 300, ..refund_of(PaymentRef::default(), "succeeded") };
                charge.refunds = vec![refund_of(PaymentRef::default(), "failed"), other];
            }),
            format!(
                "applied: charge ch_1 pi_1 cus_1 usd 2000 less 300 by evt_1 at 100; \
                 refund re_1 pi_1/ch_1 500 usd failed of 90 failed 99 by evt_1 at 100; same ch_1 pi_1; \
                 refund re_2 pi_1/ch_1 300 usd succeeded of 90 failed - by evt_1 at 100; same ch_1 pi_1; \
                 same ch_1 pi_1; correct cus_1 grant:invoice:in_1 usd -300 -> {PAIR}"
            ),
        ),
        (
            "only the charge is new",
            tied(Payment { refunds: vec![told()], ..payment() }, Decided::Nothing),
            embedded(500, "succeeded"),
            format!("{nothing}: {saved}; same ch_1 pi_1 -> {PAIR}"),
        ),
        (
            "only the refund is new",
            tied(with_snapshot(snapshot("ch_1", 500, 101)), Decided::Nothing),
            embedded(500, "succeeded"),
            format!("{nothing}: {refunded}; same ch_1 pi_1 -> {PAIR}"),
        ),
        (
            "nothing is new",
            tied(Payment { refunds: vec![told()], ..with_snapshot(snapshot("ch_1", 500, 101)) }, Decided::Nothing),
            embedded(500, "succeeded"),
            format!("stale (older than what we hold): same ch_1 pi_1 -> {PAIR}"),
        ),
    ] {
        check(name, &given, &event, &expected);
    }
}

#[test]
fn a_refund_tells_of_itself() {
    let saved = |names: &str, status: &str, failed: &str| {
        format!("refund re_1 {names} 500 usd {status} of 90 failed {failed} by evt_1 at 100")
    };
    let correct = "correct cus_1 grant:invoice:in_1 usd";
    let stands = "no_effect (the grant stands as it should)";
    let held = |amount, status, at| refund_held("re_1", amount, status, at);
    for (name, given, event, expected) in [
        (
            "of no payment",
            untied(Payment::default()),
            refund(PaymentRef::default(), "succeeded"),
            format!("no_effect (it names no payment): {}", saved("-/-", "succeeded", "-")),
        ),
        (
            "of no payment, told before",
            untied(with_refunds(&[RefundHeld {
                payment: PaymentRef::default(),
                ..refund_held("re_1", 500, "succeeded", 101)
            }]))
            .without_names(),
            refund(PaymentRef::default(), "succeeded"),
            "stale (older than what we hold): ".into(),
        ),
        (
            "of nobody knows what",
            untied(Payment::default()),
            refund(of("", "ch_1"), "succeeded"),
            "wait payment:ch_1".into(),
        ),
        (
            "of nobody knows what, by any name of the payment",
            untied(payment()),
            refund(of("", "ch_1"), "succeeded"),
            "wait payment:ch_1 payment:pi_1".into(),
        ),
        (
            "by its intent",
            untied(payment()),
            refund(of("pi_1", ""), "succeeded"),
            "wait payment:ch_1 payment:pi_1".into(),
        ),
        (
            "before the grant",
            tied(payment(), Decided::NotYet),
            refund(of("", "ch_1"), "succeeded"),
            "wait grant:invoice:in_1".into(),
        ),
        (
            "of what granted nothing",
            tied(payment(), Decided::Nothing),
            refund(of("", "ch_1"), "succeeded"),
            format!(
                "no_effect (what was paid has granted nothing): {}; same ch_1 pi_1 -> {PAIR}",
                saved("-/ch_1", "succeeded", "-")
            ),
        ),
        (
            "of a grant",
            tied(payment(), granted(0)),
            refund(of("", "ch_1"), "succeeded"),
            format!("applied: {}; same ch_1 pi_1; {correct} -500 -> {PAIR}", saved("-/ch_1", "succeeded", "-")),
        ),
        (
            "with both names",
            tied(payment(), granted(0)),
            refund(of("pi_1", "ch_1"), "pending"),
            format!(
                "applied: {}; same ch_1 pi_1; same ch_1 pi_1; {correct} -500 -> {PAIR}",
                saved("pi_1/ch_1", "pending", "-")
            ),
        ),
        (
            "that failed at once",
            tied(payment(), granted(0)),
            refund(of("pi_1", ""), "failed"),
            format!("{stands}: {} -> payment:pi_1", saved("pi_1/-", "failed", "100")),
        ),
        (
            "that fails after it was taken back",
            tied(with_refunds(&[held(500, "succeeded", 95)]), granted(500)),
            refund(of("pi_1", ""), "failed"),
            format!("applied: {}; same ch_1 pi_1; {correct} 500 -> payment:pi_1", saved("pi_1/ch_1", "failed", "100")),
        ),
        (
            "beside another refund of the payment",
            tied(with_refunds(&[refund_held("re_0", 300, "succeeded", 101)]), granted(300)),
            refund(of("pi_1", ""), "succeeded"),
            format!("applied: {}; {correct} -500 -> payment:pi_1", saved("pi_1/-", "succeeded", "-")),
        ),
        (
            "whose former snapshot is not the first one",
            tied(with_refunds(&[refund_held("re_0", 300, "succeeded", 95), held(500, "pending", 95)]), granted(800)),
            refund(of("pi_1", ""), "failed"),
            format!("applied: {}; same ch_1 pi_1; {correct} 500 -> payment:pi_1", saved("pi_1/ch_1", "failed", "100")),
        ),
        (
            "older than what we hold",
            tied(with_refunds(&[held(500, "succeeded", 101)]), granted(500)),
            refund(of("pi_1", ""), "pending"),
            "stale (older than what we hold):  -> payment:pi_1".into(),
        ),
        (
            "older than what we hold, which is not yet taken back",
            tied(with_refunds(&[held(500, "succeeded", 101)]), granted(0)),
            refund(of("pi_1", ""), "pending"),
            format!("applied: {correct} -500 -> payment:pi_1"),
        ),
        (
            "older, but the first to tell of its failure",
            tied(with_refunds(&[held(500, "failed", 101)]), granted(0)),
            refund(of("pi_1", ""), "failed"),
            format!(
                "{stands}: refund re_1 pi_1/ch_1 500 usd failed of 90 failed 100 by evt_0 at 101; same ch_1 pi_1 \
                 -> payment:pi_1"
            ),
        ),
        (
            "of a grant whose charge counts it already",
            tied(with_snapshot(snapshot("ch_1", 500, 95)), granted(500)),
            refund(of("pi_1", ""), "succeeded"),
            format!("{stands}: {} -> payment:pi_1", saved("pi_1/-", "succeeded", "-")),
        ),
        (
            "of an untold amount",
            of_untold_amount(payment(), granted(0)),
            refund(of("pi_1", ""), "succeeded"),
            "wait payment:ch_1 payment:pi_1".into(),
        ),
        (
            "of an untold amount, of which a charge captured 2000",
            of_untold_amount(with_snapshot(snapshot("ch_1", 0, 80)), granted(0)),
            refund(of("pi_1", ""), "succeeded"),
            format!("applied: {}; {correct} -500 -> payment:pi_1", saved("pi_1/-", "succeeded", "-")),
        ),
    ] {
        check(name, &given, &event, &expected);
    }
}

impl Facts {
    /// The payment is found by its refunds only.
    fn without_names(mut self) -> Self {
        (self.money.payment.intent, self.money.payment.charges) = (None, Vec::new());
        self
    }
}

#[test]
fn a_dispute_tells_which_way_its_money_went() {
    let saved = |status: &str, out: &str, back: &str| {
        format!("dispute dp_1 -/ch_1 500 usd {status} out {out} back {back} by evt_1 at 100")
    };
    let correct = "correct cus_1 grant:invoice:in_1 usd";
    let same = "resolve dispute_currency dp_1";
    let held = |at| DisputeHeld { payment: of("", "ch_1"), ..dispute_held("dp_1", 500, "usd", at) };
    for (name, given, event, expected) in [
        (
            "of nobody knows what",
            untied(payment()),
            dispute("created", "usd", "needs_response"),
            "wait payment:ch_1 payment:pi_1".into(),
        ),
        (
            "before the grant",
            tied(payment(), Decided::NotYet),
            dispute("created", "usd", "needs_response"),
            "wait grant:invoice:in_1".into(),
        ),
        (
            "of what granted nothing",
            tied(payment(), Decided::Nothing),
            dispute("created", "usd", "needs_response"),
            format!(
                "no_effect (what was paid has granted nothing): {}; same ch_1 pi_1 -> {PAIR}",
                saved("needs_response", "-", "-")
            ),
        ),
        (
            "opened",
            tied(payment(), granted(0)),
            dispute("created", "usd", "needs_response"),
            format!("applied: {}; same ch_1 pi_1; {same}; {correct} -500 -> {PAIR}", saved("needs_response", "-", "-")),
        ),
        (
            "an inquiry",
            tied(payment(), granted(0)),
            dispute("created", "usd", "warning_needs_response"),
            format!(
                "no_effect (the grant stands as it should): {}; same ch_1 pi_1; {same} -> {PAIR}",
                saved("warning_needs_response", "-", "-")
            ),
        ),
        (
            "withdrawn",
            tied(payment(), granted(0)),
            dispute("funds_withdrawn", "usd", "needs_response"),
            format!(
                "applied: {}; same ch_1 pi_1; {same}; {correct} -500 -> {PAIR}",
                saved("needs_response", "100", "-")
            ),
        ),
        (
            "reinstated",
            tied(with_disputes(&[DisputeHeld { withdrawn_at: Some(95), ..held(95) }]), granted(500)),
            dispute("funds_reinstated", "usd", "under_review"),
            format!("applied: {}; same ch_1 pi_1; {same}; {correct} 500 -> {PAIR}", saved("under_review", "95", "100")),
        ),
        (
            "won",
            tied(with_disputes(&[held(95)]), granted(500)),
            dispute("closed", "usd", "won"),
            format!("applied: {}; same ch_1 pi_1; {same}; {correct} 500 -> {PAIR}", saved("won", "-", "-")),
        ),
        (
            "older than what we hold",
            tied(with_disputes(&[held(101)]), granted(500)),
            dispute("created", "usd", "needs_response"),
            format!("stale (older than what we hold): same ch_1 pi_1; {same} -> {PAIR}"),
        ),
        (
            "older than what we hold, but it tells when the money went",
            tied(with_disputes(&[held(101)]), granted(500)),
            dispute("funds_withdrawn", "usd", "needs_response"),
            format!(
                "no_effect (the grant stands as it should): \
                 dispute dp_1 -/ch_1 500 usd needs_response out 100 back - by evt_0 at 101; \
                 same ch_1 pi_1; {same} -> {PAIR}"
            ),
        ),
        (
            "whose intent was told before",
            tied(with_disputes(&[dispute_held("dp_1", 500, "usd", 95)]), granted(500)),
            dispute("updated", "usd", "under_review"),
            format!(
                "no_effect (the grant stands as it should): \
                 dispute dp_1 pi_1/ch_1 500 usd under_review out - back - by evt_1 at 100; same ch_1 pi_1; \
                 same ch_1 pi_1; {same} -> {PAIR}"
            ),
        ),
        (
            "beside another one of the payment",
            tied(with_disputes(&[dispute_held("dp_0", 300, "usd", 101)]), granted(300)),
            dispute("created", "usd", "needs_response"),
            format!(
                "applied: {}; same ch_1 pi_1; resolve dispute_currency dp_0; {same}; {correct} -500 -> {PAIR}",
                saved("needs_response", "-", "-")
            ),
        ),
        (
            "in another currency, which takes all",
            tied(payment(), granted(0)),
            dispute("created", "eur", "needs_response"),
            format!(
                "applied: dispute dp_1 -/ch_1 500 eur needs_response out - back - by evt_1 at 100; same ch_1 pi_1; \
                 open dispute_currency dp_1; {correct} -2000 -> {PAIR}"
            ),
        ),
        (
            "in another currency, won",
            tied(
                with_disputes(&[DisputeHeld { payment: of("", "ch_1"), ..dispute_held("dp_1", 500, "eur", 95) }]),
                granted(2_000),
            ),
            dispute("closed", "eur", "won"),
            format!(
                "applied: dispute dp_1 -/ch_1 500 eur won out - back - by evt_1 at 100; same ch_1 pi_1; \
                 {same}; {correct} 2000 -> {PAIR}"
            ),
        ),
        (
            "of an untold amount",
            of_untold_amount(payment(), granted(0)),
            dispute("created", "usd", "needs_response"),
            "wait payment:ch_1 payment:pi_1".into(),
        ),
    ] {
        check(name, &given, &event, &expected);
    }
}

#[test]
fn a_dispute_in_another_currency_is_told_with_both() {
    let event = dispute("created", "eur", "needs_response");
    let Decision::Complete(completion) = decide(&event, &tied(payment(), granted(0)), &by_money(), NOW) else {
        panic!("complete")
    };
    let found = Effect::OpenFinding(Finding {
        kind: "dispute_currency",
        subject: "dp_1".into(),
        expected: "an amount in usd; until then the whole grant is taken back".into(),
        actual: "an amount in eur".into(),
    });
    assert!(completion.effects.contains(&found), "{completion:?}");
}

#[test]
fn a_credit_note_moves_nothing_by_itself() {
    let note = |kind: &str, to_balance: bool, out_of_band: i64| {
        let id = CreditNoteId::parse("cn_1").expect("an id");
        event("evt_1", kind, Body::CreditNote(CreditNote { id, customer: Some(account()), to_balance, out_of_band }))
    };
    let given = tied(payment(), granted(0));
    let reason = "no_effect (the money of a credit note moves as refunds)";
    for (name, event, effects) in [
        ("as a refund", note("credit_note.created", false, 0), ""),
        ("to the balance", note("credit_note.created", true, 0), "open credit_note cn_1"),
        ("out of band", note("credit_note.created", false, 1), "open credit_note cn_1"),
        ("both", note("credit_note.updated", true, 1), "open credit_note cn_1"),
        ("not less than nothing", note("credit_note.created", false, -1), ""),
        ("voided", note("credit_note.voided", true, 1), "resolve credit_note cn_1"),
    ] {
        check(name, &given, &event, &format!("{reason}: {effects}"));
    }
}

/// What was paid is what all of its payments paid, each counted once.
#[test]
fn all_payments_of_an_invoice_count_once() {
    let event = refund(of("pi_1", ""), "succeeded");
    let saved = "refund re_1 pi_1/- 500 usd succeeded of 90 failed - by evt_1 at 100";
    let other = |intent: &str, charge: &str| Payment {
        intent: PaymentId::parse(intent).ok(),
        charges: ChargeId::parse(charge).into_iter().collect(),
        ..Payment::default()
    };
    let refunds = |ids: &[&str]| ids.iter().map(|id| refund_held(id, 300, "succeeded", 95)).collect::<Vec<_>>();
    let disputes = |ids: &[&str]| ids.iter().map(|id| dispute_held(id, 300, "usd", 95)).collect::<Vec<_>>();
    for (name, others, disputed, expected) in [
        ("no other", vec![], vec![], "correct cus_1 grant:invoice:in_1 usd -500"),
        ("itself, as it was", vec![payment()], vec![], "correct cus_1 grant:invoice:in_1 usd -500"),
        (
            "itself by its intent, with a refund that it does not have any more",
            vec![Payment { refunds: refunds(&["re_2"]), ..other("pi_1", "") }],
            vec![],
            "correct cus_1 grant:invoice:in_1 usd -500",
        ),
        (
            "itself by its charge, with a refund that it does not have any more",
            vec![Payment { refunds: refunds(&["re_2"]), ..other("", "ch_1") }],
            vec![],
            "correct cus_1 grant:invoice:in_1 usd -500",
        ),
        (
            "another payment",
            vec![Payment { refunds: refunds(&["re_2"]), ..other("pi_2", "ch_2") }],
            vec![],
            "correct cus_1 grant:invoice:in_1 usd -800",
        ),
        (
            "the same refund under another name",
            vec![Payment { refunds: refunds(&["re_1"]), ..other("pi_2", "") }],
            vec![],
            "correct cus_1 grant:invoice:in_1 usd -500",
        ),
        (
            "the same refund under another name, and one more",
            vec![Payment { refunds: refunds(&["re_1", "re_2"]), ..other("pi_2", "") }],
            vec![],
            "correct cus_1 grant:invoice:in_1 usd -800",
        ),
        (
            "the same dispute under another name",
            vec![Payment { disputes: disputes(&["dp_1"]), ..other("pi_2", "") }],
            disputes(&["dp_1"]),
            "resolve dispute_currency dp_1; correct cus_1 grant:invoice:in_1 usd -800",
        ),
        (
            "the same dispute under another name, and one more",
            vec![Payment { disputes: disputes(&["dp_1", "dp_2"]), ..other("pi_2", "") }],
            disputes(&["dp_1"]),
            "resolve dispute_currency dp_2; resolve dispute_currency dp_1; \
             correct cus_1 grant:invoice:in_1 usd -1100",
        ),
    ] {
        let given = facts(with_disputes(&disputed), vec![root("in_1", granted(0), &others)]);
        check(name, &given, &event, &format!("applied: {saved}; {expected} -> payment:pi_1"));
    }
}

#[test]
fn a_payment_of_several_invoices_moves_all_of_them() {
    let event = refund(of("pi_1", ""), "succeeded");
    let saved = "refund re_1 pi_1/- 500 usd succeeded of 90 failed - by evt_1 at 100";
    let of_roots = |roots: [(&str, Decided); 2]| {
        facts(payment(), roots.map(|(id, decided)| root(id, decided, &[payment()])).to_vec())
    };
    check(
        "both granted",
        &of_roots([("in_1", granted(0)), ("in_2", granted(300))]),
        &event,
        &format!(
            "applied: {saved}; correct cus_1 grant:invoice:in_1 usd -500; correct cus_1 grant:invoice:in_2 usd -200 \
             -> payment:pi_1"
        ),
    );
    check(
        "one granted nothing",
        &of_roots([("in_1", Decided::Nothing), ("in_2", granted(0))]),
        &event,
        &format!("applied: {saved}; correct cus_1 grant:invoice:in_2 usd -500 -> payment:pi_1"),
    );
    check(
        "one is not decided",
        &of_roots([("in_1", granted(0)), ("in_2", Decided::NotYet)]),
        &event,
        "wait grant:invoice:in_2",
    );
}

#[test]
fn each_unit_of_a_grant_is_taken_back_by_itself() {
    let unit = |unit: &str, granted| UnitGranted { unit: unit.into(), granted, taken: 0, taken_before: 0 };
    let units = vec![unit("calls", 3), unit("credits", 100), unit("few", 1)];
    let decided = Decided::Granted(Granted { account: account(), units });
    check(
        "a quarter",
        &tied(payment(), decided),
        &refund(of("pi_1", ""), "succeeded"),
        "applied: refund re_1 pi_1/- 500 usd succeeded of 90 failed - by evt_1 at 100; \
         correct cus_1 grant:invoice:in_1 credits -25 -> payment:pi_1",
    );
}

#[test]
fn a_grant_in_no_known_currency_is_corrected_once_a_charge_tells_it() {
    let unknown = |payment: Payment| {
        let mut facts = tied(payment, granted(0));
        facts.money.roots.iter_mut().for_each(|root| root.currency = None);
        facts
    };
    let saved = "refund re_1 pi_1/- 500 usd succeeded of 90 failed - by evt_1 at 100";
    check(
        "unknown",
        &unknown(payment()),
        &refund(of("pi_1", ""), "succeeded"),
        &format!("no_effect (the grant stands as it should): {saved} -> payment:pi_1"),
    );
    check(
        "told by a charge",
        &unknown(with_snapshot(snapshot("ch_1", 0, 80))),
        &refund(of("pi_1", ""), "succeeded"),
        &format!("applied: {saved}; correct cus_1 grant:invoice:in_1 usd -500 -> payment:pi_1"),
    );
}

#[test]
fn a_later_snapshot_of_an_invoice_may_tell_another_amount() {
    let refunded = || with_refunds(&[refund_held("re_1", 500, "succeeded", 95)]);
    let held_at = |at, mut facts: Facts| {
        facts.granted_by = Some(event_id("evt_0"));
        let source = event_id("evt_0");
        facts.invoice = Some(InvoiceHeld { status: "paid".into(), amount_paid: 2_000, snapshot_at: at, source });
        facts
    };
    let half = invoice_with(|invoice| invoice.amount_paid = 1_000);
    let reason = "no_effect (grant:invoice:in_1 was granted by evt_0)";
    let correct = "correct cus_1 grant:invoice:in_1 usd";
    for (name, given, event, expected) in [
        (
            "another amount",
            held_at(99, tied(refunded(), granted(500))),
            &half,
            format!("applied: save in_1 paid 1000; {correct} -500 -> {PAIR}"),
        ),
        (
            "the same amount",
            held_at(99, tied(refunded(), granted(1_000))),
            &half,
            format!("{reason}: save in_1 paid 1000 -> {PAIR}"),
        ),
        ("older than what we hold", held_at(101, tied(refunded(), granted(500))), &half, format!("{reason}: ")),
        (
            "older than what we hold, which is not yet taken back",
            held_at(101, tied(refunded(), granted(0))),
            &half,
            format!("applied: {correct} -500"),
        ),
        (
            "the amount was not told before",
            held_at(99, of_untold_amount(refunded(), granted(0))),
            &half,
            format!("applied: save in_1 paid 1000; {correct} -1000 -> {PAIR}"),
        ),
        (
            "the amount is not told yet",
            held_at(101, of_untold_amount(refunded(), granted(0))),
            &half,
            format!("{reason}: "),
        ),
        ("no payment is known", held_at(99, facts(payment(), vec![])), &half, format!("{reason}: save in_1 paid 1000")),
    ] {
        check(name, &given, event, &expected);
    }
    let mut given = held_at(99, tied(with_disputes(&[dispute_held("dp_1", 500, "eur", 95)]), granted(0)));
    given.money.roots.iter_mut().for_each(|root| root.currency = Some(currency("eur")));
    check(
        "another currency",
        &given,
        &half,
        &format!("applied: save in_1 paid 1000; open dispute_currency dp_1; {correct} -2000 -> {PAIR}"),
    );
}

#[test]
fn a_grant_that_comes_after_its_refunds_is_corrected_at_once() {
    let refunded = || with_refunds(&[refund_held("re_1", 500, "succeeded", 95)]);
    let grant = "save in_1 paid 2000; grant cus_1 grant:invoice:in_1 usd 2000";
    let event = invoice_with(|_| ());
    let arrived = "-> grant:invoice:in_1";
    let checkout = Root {
        fact: Fact::checkout(&CheckoutId::parse("cs_1").expect("an id")),
        ..root("in_1", granted(0), &[with_refunds(&[refund_held("re_1", 900, "succeeded", 95)])])
    };
    for (name, roots, expected) in [
        ("no payment is known", vec![], format!("applied: {grant} {arrived}")),
        (
            "nothing was refunded",
            vec![root("in_1", Decided::NotYet, &[payment()])],
            format!("applied: {grant} {arrived}"),
        ),
        (
            "a part was refunded",
            vec![root("in_1", Decided::NotYet, &[refunded()])],
            format!("applied: {grant}; correct cus_1 grant:invoice:in_1 usd -500 {arrived}"),
        ),
        (
            "the payment paid something else, too",
            vec![checkout.clone(), root("in_1", Decided::Nothing, &[refunded()])],
            format!("applied: {grant}; correct cus_1 grant:invoice:in_1 usd -500 {arrived}"),
        ),
        ("the payment paid something else only", vec![checkout], format!("applied: {grant} {arrived}")),
        (
            "another amount was known before",
            vec![Root { amount_paid: 1_000, ..root("in_1", Decided::NotYet, &[refunded()]) }],
            format!("applied: {grant}; correct cus_1 grant:invoice:in_1 usd -500 {arrived}"),
        ),
        (
            "another currency was known before",
            vec![Root {
                currency: Some(currency("eur")),
                ..root("in_1", Decided::NotYet, &[with_disputes(&[dispute_held("dp_1", 500, "eur", 95)])])
            }],
            format!(
                "applied: {grant}; open dispute_currency dp_1; correct cus_1 grant:invoice:in_1 usd -2000 {arrived}"
            ),
        ),
    ] {
        check(name, &facts(payment(), roots), &event, &expected);
    }
}
