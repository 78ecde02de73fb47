mod answers;

use super::*;
use crate::domain::clawback::{ChargeHeld, DisputeHeld, Granted, RefundHeld};
use crate::domain::decision::InvoiceRow;
use crate::domain::event::{Checkout, Customer, Invoice, Line, Lines, PriceRef, Thin, Unit, Unreadable};
use crate::domain::exchange::{Conversion, DayRate, Rate};
use crate::domain::fact::Fact;
use crate::domain::facts::{AccountHeld, Decided, InvoiceHeld};
use crate::domain::ids::{ChargeId, CheckoutId, EventId, PaymentId, PriceId};
use crate::domain::money::{Currency, UnitAmount};
use crate::domain::policy::{Basis, Catalogue, Credits, PriceRule, Tiers};
use crate::domain::subscription::{PaidPeriod, Standing};

pub(super) const NOW: UnixSeconds = 1_000_000;

pub(super) fn currency(code: &str) -> Currency {
    Currency::parse(code).expect("a currency")
}

pub(super) fn account() -> AccountId {
    AccountId::parse("cus_1").expect("an id")
}

pub(super) fn event_id(text: &str) -> EventId {
    EventId::parse(text).expect("an id")
}

pub(super) fn by_money() -> Policy {
    Policy {
        livemode: true,
        connected_account: None,
        credits: Credits { since: None, basis: Basis::AmountPaid(None), prorate: true, unlisted_price_fails: true },
        catalogue: Catalogue::default(),
        tiers: Tiers::default(),
        max_attempts: 5,
        asks_stripe: false,
    }
}

/// A pack of 50 credits, and somebody else's price.
pub(super) fn by_catalogue() -> Policy {
    let pack = PriceRule {
        tier: None,

        credits: 50,
        per_invoice: false,
        unit: "credits".into(),
        unit_amount: None,
        foreign: false,
    };
    let other = PriceRule { credits: 0, foreign: true, ..pack.clone() };
    let mut policy = by_money();
    policy.credits.basis = Basis::Catalogue;
    policy.catalogue = Catalogue::new([("pack".to_owned(), pack), ("other".to_owned(), other)]);
    policy
}

fn since(moment: UnixSeconds) -> Policy {
    let mut policy = by_money();
    policy.credits.since = Some(moment);
    policy
}

/// An event of second 100.
pub(super) fn event(id: &str, kind: &str, body: Body) -> Event {
    Event {
        id: event_id(id),
        kind: kind.into(),
        created: 100,
        livemode: true,
        stripe_account: None,
        api_version: None,
        object_id: None,
        body,
    }
}

impl Event {
    pub(super) fn at(self, created: UnixSeconds) -> Self {
        Self { created, ..self }
    }
}

/// A paid invoice over one pack.
pub(super) fn invoice() -> Invoice {
    Invoice {
        id: InvoiceId::parse("in_1").expect("an id"),
        customer: Some(account()),
        subscription: None,
        status: "paid".into(),
        currency: currency("usd"),
        total: 2_000,
        amount_due: 2_000,
        amount_paid: 2_000,
        paid_out_of_band: false,
        paid_at: None,
        created: None,
        payments: Vec::new(),
        lines: Lines::Complete(vec![line("pack")]),
        reference: None,
    }
}

fn price_ref(id: &str) -> PriceRef {
    PriceRef { id: PriceId::parse(id).expect("an id"), product: None, lookup_key: None }
}

pub(super) fn line(price: &str) -> Line {
    Line {
        price: Some(price_ref(price)),
        amount: 2_000,
        currency: currency("usd"),
        quantity: Some(1),
        proration: false,
        on_subscription: true,
        unit: Unit::Untold,
        period_start: None,
        period_end: None,
    }
}

pub(super) fn invoice_with(change: impl FnOnce(&mut Invoice)) -> Event {
    let mut invoice = invoice();
    change(&mut invoice);
    event("evt_1", "invoice.paid", Body::Invoice(invoice))
}

pub(super) fn paid() -> Event {
    invoice_with(|_| ())
}

pub(super) fn in_status(id: &str, status: &str) -> Event {
    let invoice = Invoice { status: status.into(), ..invoice() };
    event(id, "invoice.updated", Body::Invoice(invoice))
}

/// A paid session over 500.
fn checkout_with(change: impl FnOnce(&mut Checkout)) -> Event {
    let mut checkout = Checkout {
        id: CheckoutId::parse("cs_1").expect("an id"),
        mode: "payment".into(),
        payment_status: "paid".into(),
        customer: Some(account()),
        subscription: None,
        invoice: None,
        payment_intent: None,
        amount_total: Some(500),
        currency: Some(currency("usd")),
        reference: None,
        client_reference_id: None,
        metadata_price: None,
        metadata_quantity: None,
    };
    change(&mut checkout);
    event("evt_1", "checkout.session.completed", Body::Checkout(checkout))
}

fn customer(kind: &str, reference: Option<&str>) -> Event {
    let customer = Customer { id: account(), deleted: false, reference: reference.map(Into::into) };
    event("evt_1", kind, Body::Customer(customer))
}

/// The account is known, without anything else.
pub(super) fn known() -> Facts {
    Facts { account: Some(AccountHeld { reference: None, deleted: false }), ..Facts::default() }
}

fn named(text: &str, strength: ReferenceStrength, at: UnixSeconds) -> Facts {
    let reference = Some(Reference { text: text.into(), strength, at });
    Facts { account: Some(AccountHeld { reference, deleted: false }), ..Facts::default() }
}

fn deleted() -> Facts {
    Facts { account: Some(AccountHeld { reference: None, deleted: true }), ..Facts::default() }
}

pub(super) fn granted() -> Facts {
    Facts { granted_by: Some(event_id("evt_0")), ..known() }
}

pub(super) fn held(status: &str, at: UnixSeconds, by: &str) -> Facts {
    let invoice = InvoiceHeld { status: status.into(), amount_paid: 0, snapshot_at: at, source: event_id(by) };
    Facts { invoice: Some(invoice), ..known() }
}

/// `applied: save in_1 paid 2000; grant …`, `wait lines:in_1`, `fail unlisted_price`.
pub(super) fn told(decision: &Decision) -> String {
    match decision {
        Decision::Complete(completion) => {
            let effects: Vec<String> = completion.effects.iter().map(told_effect).collect();
            format!("{}: {}", completion.outcome.as_str(), effects.join("; "))
        }
        Decision::Wait(needs) => {
            let needs: Vec<String> = needs.iter().map(ToString::to_string).collect();
            format!("wait {}", needs.join(" "))
        }
        Decision::Fail(failure) => format!("fail {}", failure.code),
    }
}

fn told_effect(effect: &Effect) -> String {
    match effect {
        Effect::SaveInvoice(row) => format!("save {} {} {}", row.id, row.status, row.amount_paid),
        Effect::LinkPayments(invoice, payments) => {
            let payments: Vec<String> = payments.iter().map(told_names).collect();
            format!("link {invoice} {}", payments.join(" "))
        }
        Effect::TieCheckout(checkout, invoice) => format!("tie {checkout} {invoice}"),
        Effect::NamePayment(charge, intent) => format!("same {charge} {intent}"),
        Effect::LearnPrice(price) => format!("learn {} {} {:?}", price.price.id, price.currency, price.unit),
        Effect::SaveCharge(ChargeHeld { id, intent, account, currency, captured, refunded, at, source }) => {
            let (intent, account) = (or_dash(intent.as_ref()), or_dash(account.as_ref()));
            format!("charge {id} {intent} {account} {currency} {captured} less {refunded} by {source} at {at}")
        }
        Effect::SaveRefund(RefundHeld { id, payment, amount, currency, status, created, failed_at, at, source }) => {
            let (payment, status, failed) =
                (told_names(payment), or_dash(status.as_ref()), or_dash(failed_at.as_ref()));
            format!(
                "refund {id} {payment} {amount} {currency} {status} of {created} failed {failed} by {source} at {at}"
            )
        }
        Effect::SaveDispute(held) => {
            let DisputeHeld { id, payment, amount, currency, status, withdrawn_at, reinstated_at, at, source } = held;
            let (payment, out, back) =
                (told_names(payment), or_dash(withdrawn_at.as_ref()), or_dash(reinstated_at.as_ref()));
            format!("dispute {id} {payment} {amount} {currency} {status} out {out} back {back} by {source} at {at}")
        }
        Effect::Correct(account, fact, corrections) => {
            let lines: Vec<String> = corrections.iter().map(|one| format!("{} {}", one.unit, one.amount)).collect();
            format!("correct {account} {fact} {}", lines.join(" + "))
        }
        Effect::OpenFinding(finding) => format!("open {} {}", finding.kind, finding.subject),
        Effect::ResolveFinding(kind, subject) => format!("resolve {kind} {subject}"),
        Effect::OpenAccount(account) => format!("open {account}"),
        Effect::SetReference(account, reference) => format!("name {account} {}", reference.text),
        Effect::ConfirmReference(account, reference) => format!("confirm {account} {}", reference.text),
        Effect::CloseAccount(account, at) => format!("close {account} {at}"),
        Effect::SaveCheckout(row) => format!("save {} {}", row.id, row.amount_paid),
        Effect::Grant(account, fact, lines) => {
            let lines: Vec<String> = lines.iter().map(|line| format!("{} {}", line.unit, line.amount)).collect();
            format!("grant {account} {fact} {}", lines.join(" + "))
        }
        Effect::SaveSubscription(known, standing) => {
            let newest: Vec<&str> = known.newest.iter().map(|one| one.event.as_str()).collect();
            let listed = or_dash(known.listed.as_ref().map(|listed| &listed.event));
            format!("save {} of {} listed {listed}", told_standing(standing), newest.join(" "))
        }
        Effect::Restand(standing) => format!("restand {}", told_standing(standing)),
        Effect::SavePaidPeriods(id, periods) => {
            let tell =
                |one: &PaidPeriod| format!("{} {} {}..{}", one.invoice, one.price.id, one.starts_at, one.ends_at);
            format!("periods {id} [{}]", periods.iter().map(tell).collect::<Vec<_>>().join(", "))
        }
        Effect::ChangeTier(account, from, to) => {
            format!("tier {account} {}>{}", or_dash(from.as_ref()), or_dash(to.as_ref()))
        }
    }
}

/// `sub_1 cus_1 active pro of item 0 by evt_1`
fn told_standing(standing: &Standing) -> String {
    let Standing { id, state, tier_item, tier, pending, source, .. } = standing;
    let until = pending.as_ref().map(|next| format!(" until {} then {}", next.at, or_dash(next.tier.as_ref())));
    format!(
        "{id} {} {} {}{} of item {} by {source}",
        or_dash(state.account.as_ref()),
        state.status,
        or_dash(tier.as_ref()),
        until.unwrap_or_default(),
        or_dash(tier_item.as_ref())
    )
}

/// `pi_1/ch_1`, `pi_1/-`
fn told_names(payment: &PaymentRef) -> String {
    format!("{}/{}", or_dash(payment.payment_intent.as_ref()), or_dash(payment.charge.as_ref()))
}

fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".into(), |text| text.to_string())
}

/// As [`told`], with the reason and whoever can go on:
/// `no_effect (the charge failed): `, `applied: link in_1 pi_1/ch_1 -> payment:pi_1 payment:ch_1`.
pub(super) fn told_whole(decision: &Decision) -> String {
    let Decision::Complete(Completion { reason, arrivals, .. }) = decision else { return told(decision) };
    let told = told(decision);
    let (outcome, effects) = told.split_once(':').expect("an outcome");
    let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let arrivals: Vec<String> = arrivals.iter().map(ToString::to_string).collect();
    let arrow = if arrivals.is_empty() { "" } else { " -> " };
    format!("{outcome}{reason}:{effects}{arrow}{}", arrivals.join(" "))
}

#[track_caller]
pub(super) fn check(name: &str, policy: &Policy, given: &Facts, event: &Event, expected: &str) {
    assert_eq!(told(&decide(event, given, policy, NOW)), expected, "{name}");
}

const GRANTED: &str = "applied: save in_1 paid 2000; grant cus_1 grant:invoice:in_1 usd 2000";

#[test]
fn events_that_are_not_for_us() {
    let policy = by_money();
    let connected = Policy { connected_account: Some("acct_1".into()), ..by_money() };
    let of = |account: &str| Event { stripe_account: Some(account.into()), ..paid() };
    let thin = |kind: &str, url: Option<&str>| {
        let is_acted_on = kind == "v1.invoice.paid";
        let thin = Thin { snapshot_event: None, is_acted_on, related_url: url.map(Into::into), is_gone: false };
        event("evt_1", kind, Body::Thin(thin))
    };
    let unreadable = Body::Unreadable(Unreadable { field: "total".into(), problem: "missing" });
    for (name, policy, event, expected) in [
        ("ours", &policy, paid(), GRANTED),
        ("of the other mode", &policy, Event { livemode: false, ..paid() }, "ignored: "),
        ("of a connected account", &policy, of("acct_1"), "ignored: "),
        ("of the connected account", &connected, of("acct_1"), GRANTED),
        ("of another connected account", &connected, of("acct_2"), "ignored: "),
        ("of the account itself", &connected, paid(), "ignored: "),
        ("of a type without rule", &policy, event("evt_1", "radar.x", Body::Other), "ignored: "),
        ("of a schedule", &policy, event("evt_1", "subscription_schedule.updated", Body::Other), "no_effect: "),
        ("unreadable", &policy, event("evt_1", "invoice.paid", unreadable.clone()), "fail unreadable_object"),
        (
            "unreadable, of the other mode",
            &policy,
            Event { livemode: false, ..event("evt_1", "invoice.paid", unreadable) },
            "ignored: ",
        ),
        (
            "thin, with a rule",
            &policy,
            thin("v1.invoice.paid", Some("/v1/invoices/in_1")),
            "wait object:/v1/invoices/in_1",
        ),
        ("thin, nowhere to be read", &policy, thin("v1.invoice.paid", None), "fail unreadable_object"),
        ("thin, without rule", &policy, thin("v1.payout.paid", Some("/v1/payouts/po_1")), "ignored: "),
        ("thin, of version 2", &policy, thin("v2.core.account.updated", Some("/v2/x")), "ignored: "),
    ] {
        check(name, policy, &known(), &event, expected);
    }
}

#[test]
fn a_settled_invoice() {
    let money = by_money();
    let list = by_catalogue();
    for (name, policy, given, event, expected) in [
        ("of a known account", &money, known(), paid(), GRANTED),
        (
            "of a new account",
            &money,
            Facts::default(),
            paid(),
            "applied: open cus_1; save in_1 paid 2000; grant cus_1 grant:invoice:in_1 usd 2000",
        ),
        ("of a deleted account, whose books go on", &money, deleted(), paid(), GRANTED),
        ("under another type", &money, known(), in_status("evt_9", "paid"), GRANTED),
        (
            "by the list",
            &list,
            known(),
            paid(),
            "applied: save in_1 paid 2000; grant cus_1 grant:invoice:in_1 credits 50",
        ),
        ("that granted already", &money, granted(), paid(), "no_effect: save in_1 paid 2000"),
        (
            "of nobody",
            &money,
            Facts::default(),
            invoice_with(|invoice| invoice.customer = None),
            "ignored: save in_1 paid 2000",
        ),
        (
            "over nothing",
            &money,
            known(),
            invoice_with(|invoice| invoice.amount_paid = 0),
            "no_effect: save in_1 paid 0",
        ),
        (
            "outside of Stripe",
            &money,
            known(),
            invoice_with(|invoice| (invoice.paid_out_of_band, invoice.amount_paid) = (true, 0)),
            GRANTED,
        ),
        ("truncated", &list, known(), invoice_with(|invoice| invoice.lines = Lines::Truncated), "wait lines:in_1"),
        (
            "truncated, which money does not mind",
            &money,
            known(),
            invoice_with(|invoice| invoice.lines = Lines::Truncated),
            GRANTED,
        ),
        (
            "truncated, that granted already",
            &list,
            granted(),
            invoice_with(|invoice| invoice.lines = Lines::Truncated),
            "no_effect: save in_1 paid 2000",
        ),
        (
            "of an unlisted price",
            &list,
            known(),
            invoice_with(|invoice| invoice.lines = Lines::Complete(vec![line("new")])),
            "fail unlisted_price",
        ),
        (
            "of another product",
            &list,
            known(),
            invoice_with(|invoice| invoice.lines = Lines::Complete(vec![line("other")])),
            "ignored: save in_1 paid 2000",
        ),
        (
            "with an untold proration",
            &list,
            known(),
            invoice_with(|invoice| invoice.lines = Lines::Complete(vec![Line { proration: true, ..line("pack") }])),
            "wait price:pack",
        ),
        (
            "with a tiered proration",
            &list,
            known(),
            invoice_with(|invoice| {
                invoice.lines = Lines::Complete(vec![Line { proration: true, unit: Unit::HasNone, ..line("pack") }]);
            }),
            "fail price_without_unit_amount",
        ),
        (
            "too large",
            &list,
            known(),
            invoice_with(|invoice| {
                invoice.lines = Lines::Complete(vec![Line { quantity: Some(i64::MAX), ..line("pack") }]);
            }),
            "fail amount_too_large",
        ),
        ("just before the cutover", &since(101), known(), paid(), "no_effect: save in_1 paid 2000"),
        ("at the cutover", &since(100), known(), paid(), GRANTED),
        (
            "paid before, told after",
            &since(100),
            known(),
            invoice_with(|invoice| invoice.paid_at = Some(99)),
            "no_effect: save in_1 paid 2000",
        ),
        (
            "paid after, whatever the event's time",
            &since(100),
            known(),
            invoice_with(|invoice| invoice.paid_at = Some(100)).at(50),
            GRANTED,
        ),
    ] {
        check(name, policy, &given, &event, expected);
    }
}

#[test]
fn what_is_paid_in_another_currency_is_converted_by_the_rate_of_its_day() {
    const DAY: UnixSeconds = 86_400;
    let mut policy = by_money();
    let conversion = Conversion { into: currency("eur"), base: currency("eur"), max_age_days: 4 };
    policy.credits.basis = Basis::AmountPaid(Some(conversion));
    // Two a EUR from day 9 on, four from day 19 on.
    let rate = |day, text| DayRate { day, currency: currency("usd"), rate: Rate::parse(text).expect("a rate") };
    let given = Facts { rates: vec![rate(9, "2"), rate(19, "4")], ..known() };
    let of_invoice = |eur| format!("applied: save in_1 paid 2000; grant cus_1 grant:invoice:in_1 eur {eur}");
    let of_checkout = |eur| format!("applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 eur {eur}");
    let waits = || "wait rate:usd".to_owned();
    for (name, event, expected) in [
        ("no rate is old enough", paid(), waits()),
        (
            "by the time of payment",
            invoice_with(|invoice| invoice.paid_at = Some(10 * DAY)).at(20 * DAY),
            of_invoice(1_000),
        ),
        ("by the time of the event, where no other is told", paid().at(20 * DAY), of_invoice(500)),
        ("no rate is new enough", paid().at(30 * DAY), waits()),
        ("a checkout", checkout_with(|_| ()).at(10 * DAY), of_checkout(250)),
        ("a checkout that is too early", checkout_with(|_| ()), waits()),
    ] {
        check(name, &policy, &given, &event, &expected);
    }
}

#[test]
fn snapshots_of_an_invoice_in_every_order() {
    let policy = by_money();
    for (name, given, event, expected) in [
        ("the first", known(), in_status("evt_1", "open"), "no_effect: save in_1 open 2000"),
        ("a newer one", held("draft", 99, "evt_0"), in_status("evt_1", "open"), "no_effect: save in_1 open 2000"),
        ("an older one", held("open", 101, "evt_0"), in_status("evt_1", "draft"), "stale: "),
        ("open after paid", held("paid", 99, "evt_0"), in_status("evt_1", "open"), "stale: "),
        ("uncollectible after void", held("void", 99, "evt_0"), in_status("evt_1", "uncollectible"), "stale: "),
        ("paid after a newer open one", held("open", 101, "evt_0"), paid(), GRANTED),
        (
            "void after a newer open one",
            held("open", 101, "evt_0"),
            in_status("evt_1", "void"),
            "no_effect: save in_1 void 2000",
        ),
        ("paid after uncollectible", held("uncollectible", 99, "evt_0"), paid(), GRANTED),
        ("an older paid one after void: the money came", held("void", 101, "evt_0"), paid(), GRANTED),
        ("void after paid", held("paid", 99, "evt_0"), in_status("evt_1", "void"), "stale: "),
        ("the same second, final first", held("paid", 100, "evt_0"), in_status("evt_1", "open"), "stale: "),
        ("the same second, final last", held("open", 100, "evt_9"), paid(), GRANTED),
        (
            "the same second, the later status",
            held("draft", 100, "evt_2"),
            in_status("evt_1", "open"),
            "no_effect: save in_1 open 2000",
        ),
        ("the same second, the earlier status", held("open", 100, "evt_0"), in_status("evt_1", "draft"), "stale: "),
        (
            "the same second, the greater id",
            held("open", 100, "evt_0"),
            in_status("evt_1", "open"),
            "no_effect: save in_1 open 2000",
        ),
        ("the same event again", held("open", 100, "evt_1"), in_status("evt_1", "open"), "stale: "),
        ("the same second, the smaller id", held("open", 100, "evt_2"), in_status("evt_1", "open"), "stale: "),
        (
            "a status that is new",
            held("open", 99, "evt_0"),
            in_status("evt_1", "paused"),
            "no_effect: save in_1 paused 2000",
        ),
    ] {
        check(name, &policy, &given, &event, expected);
    }
    let mut older = held("paid", 101, "evt_0");
    older.granted_by = Some(event_id("evt_0"));
    check("an older paid one after the grant", &policy, &older, &paid(), "no_effect: ");
}

#[test]
fn a_checkout_session() {
    let money = by_money();
    let list = by_catalogue();
    let price = |text: &str| PriceId::parse(text).ok();
    let bad = || Some(Err(Unreadable { field: "metadata.quantity".into(), problem: "not a number" }));
    for (name, policy, given, event, expected) in [
        (
            "paid",
            &money,
            known(),
            checkout_with(|_| ()),
            "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 usd 500",
        ),
        (
            "of a new account",
            &money,
            Facts::default(),
            checkout_with(|_| ()),
            "applied: open cus_1; save cs_1 500; grant cus_1 grant:checkout:cs_1 usd 500",
        ),
        ("that granted already", &money, granted(), checkout_with(|_| ()), "no_effect: save cs_1 500"),
        (
            "of a guest, whose refunds must find it",
            &money,
            Facts::default(),
            checkout_with(|session| session.customer = None),
            "ignored: save cs_1 500",
        ),
        (
            "of a subscription",
            &money,
            known(),
            checkout_with(|session| session.mode = "subscription".into()),
            "no_effect: ",
        ),
        ("for later", &money, known(), checkout_with(|session| session.mode = "setup".into()), "no_effect: "),
        (
            "with an invoice",
            &money,
            known(),
            checkout_with(|session| session.invoice = InvoiceId::parse("in_1").ok()),
            "no_effect: tie cs_1 in_1",
        ),
        ("unpaid", &money, known(), checkout_with(|session| session.payment_status = "unpaid".into()), "no_effect: "),
        (
            "free of charge",
            &money,
            known(),
            checkout_with(|session| {
                (session.payment_status, session.amount_total) = ("no_payment_required".into(), Some(0));
            }),
            "no_effect: save cs_1 0",
        ),
        (
            "without amount",
            &money,
            known(),
            checkout_with(|session| session.amount_total = None),
            "no_effect: save cs_1 0",
        ),
        ("before the cutover", &since(101), known(), checkout_with(|_| ()), "no_effect: save cs_1 500"),
        (
            "at the cutover",
            &since(100),
            known(),
            checkout_with(|_| ()),
            "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 usd 500",
        ),
        ("of who knows what", &list, known(), checkout_with(|_| ()), "wait session:cs_1"),
        (
            "of a pack",
            &list,
            known(),
            checkout_with(|session| session.metadata_price = price("pack")),
            "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 credits 50",
        ),
        (
            "of a free pack",
            &list,
            known(),
            checkout_with(|session| {
                (session.payment_status, session.metadata_price) = ("no_payment_required".into(), price("pack"));
            }),
            "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 credits 50",
        ),
        (
            "of three packs",
            &list,
            known(),
            checkout_with(|session| (session.metadata_price, session.metadata_quantity) = (price("pack"), Some(Ok(3)))),
            "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 credits 150",
        ),
        (
            "of some packs",
            &list,
            known(),
            checkout_with(|session| (session.metadata_price, session.metadata_quantity) = (price("pack"), bad())),
            "fail unreadable_object",
        ),
        (
            "of some packs, which money does not mind",
            &money,
            known(),
            checkout_with(|session| session.metadata_quantity = bad()),
            "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 usd 500",
        ),
        (
            "of an unlisted price",
            &list,
            known(),
            checkout_with(|session| session.metadata_price = price("new")),
            "fail unlisted_price",
        ),
        (
            "of another product",
            &list,
            known(),
            checkout_with(|session| session.metadata_price = price("other")),
            "ignored: save cs_1 500",
        ),
    ] {
        check(name, policy, &given, &event, expected);
    }
}

#[test]
fn a_customer_is_an_account() {
    let policy = by_money();
    for (name, given, event, expected) in [
        ("new", Facts::default(), customer("customer.created", None), "applied: open cus_1"),
        ("known", known(), customer("customer.updated", None), "no_effect: "),
        ("named", known(), customer("customer.updated", Some("user-1")), "applied: name cus_1 user-1"),
        ("deleted", known(), customer("customer.deleted", None), "applied: close cus_1 100"),
        ("deleted again", deleted(), customer("customer.deleted", None), "no_effect: "),
        (
            "deleted before it was known",
            Facts::default(),
            customer("customer.deleted", None),
            "applied: open cus_1; close cus_1 100",
        ),
        ("an update after the deletion revives nothing", deleted(), customer("customer.updated", None), "no_effect: "),
    ] {
        check(name, &policy, &given, &event, expected);
    }
}

#[test]
fn the_better_source_of_a_reference_stays() {
    use ReferenceStrength::{ClientReferenceId, Metadata, Operator};
    let policy = by_money();
    let session = |metadata: Option<&str>, client: Option<&str>| {
        checkout_with(|session| {
            session.mode = "setup".into();
            session.reference = metadata.map(Into::into);
            session.client_reference_id = client.map(Into::into);
        })
    };
    for (name, given, event, expected) in [
        ("metadata beats what a buyer can choose", known(), session(Some("a"), Some("b")), "applied: name cus_1 a"),
        ("what a buyer chose, if nobody else said", known(), session(None, Some("b")), "applied: name cus_1 b"),
        (
            "also when it was there first",
            named("b", ClientReferenceId, 50),
            session(Some("a"), None),
            "applied: name cus_1 a",
        ),
        ("and not the other way round", named("a", Metadata, 150), session(None, Some("b")), "no_effect: "),
        ("an operator beats both", named("a", Operator, 150), session(Some("b"), Some("c")), "no_effect: "),
        ("the first stays", named("a", Metadata, 99), session(Some("b"), None), "no_effect: "),
        ("whenever it comes", named("b", Metadata, 101), session(Some("a"), None), "applied: name cus_1 a"),
        (
            "in one second the smaller text",
            named("b", Metadata, 100),
            session(Some("a"), None),
            "applied: name cus_1 a",
        ),
        ("in one second not the greater text", named("a", Metadata, 100), session(Some("b"), None), "no_effect: "),
        ("the same again", named("a", Metadata, 99), session(Some("a"), None), "no_effect: "),
        ("the same of the same second", named("a", Metadata, 100), session(Some("a"), None), "no_effect: "),
        (
            "the same from an earlier time is remembered",
            named("a", Metadata, 101),
            session(Some("a"), None),
            "no_effect: confirm cus_1 a",
        ),
        (
            "the same from a stronger source is remembered",
            named("a", ClientReferenceId, 50),
            session(Some("a"), None),
            "no_effect: confirm cus_1 a",
        ),
    ] {
        check(name, &policy, &given, &event, expected);
    }
}

/// Whatever the order in which they come, and however often.
#[test]
fn references_end_alike_in_every_order() {
    let told = |metadata: Option<&str>, client: Option<&str>, at: UnixSeconds| {
        checkout_with(|session| {
            session.mode = "setup".into();
            session.reference = metadata.map(Into::into);
            session.client_reference_id = client.map(Into::into);
        })
        .at(at)
    };
    let events = [
        told(Some("a"), None, 30),
        told(Some("a"), None, 10),
        told(Some("b"), None, 20),
        told(None, Some("c"), 5),
        told(None, Some("b"), 1),
        told(Some("c"), None, 10),
    ];
    let mut orders: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..events.len() {
        let longer = |order: Vec<usize>| {
            (0..events.len())
                .filter(|next| !order.contains(next))
                .map(|next| [&order[..], &[next]].concat())
                .collect::<Vec<_>>()
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    assert_eq!(orders.len(), 720);
    for order in orders {
        let mut facts = known();
        for index in order.iter().chain(&order) {
            let Decision::Complete(completion) = decide(&events[*index], &facts, &by_money(), NOW) else { panic!() };
            for effect in completion.effects {
                let (Effect::SetReference(_, reference) | Effect::ConfirmReference(_, reference)) = effect else {
                    continue;
                };
                facts.account = named(&reference.text, reference.strength, reference.at).account;
            }
        }
        assert_eq!(facts.account, named("a", ReferenceStrength::Metadata, 10).account, "{order:?}");
    }
}

#[test]
fn whoever_waited_for_a_decision_can_go_on() {
    let arrivals = |given: &Facts, event: &Event| match decide(event, given, &by_money(), NOW) {
        Decision::Complete(completion) => completion.arrivals.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(arrivals(&known(), &paid()), ["grant:invoice:in_1"]);
    let free = invoice_with(|invoice| invoice.amount_paid = 0);
    assert_eq!(arrivals(&known(), &free), ["grant:invoice:in_1"], "nothing is a decision, too");
    assert_eq!(arrivals(&known(), &checkout_with(|_| ())), ["grant:checkout:cs_1"]);
    assert_eq!(arrivals(&known(), &in_status("evt_1", "open")), [""; 0], "not decided yet");
}

#[test]
fn what_is_told_later_is_named() {
    for (name, given, event, expected) in [
        (
            "an older invoice",
            held("open", 101, "evt_0"),
            in_status("evt_1", "draft"),
            "stale (evt_0 told the later status open): ",
        ),
        (
            "an invoice after its end",
            held("paid", 99, "evt_0"),
            in_status("evt_1", "void"),
            "stale (evt_0 told the later status paid):  -> grant:invoice:in_1",
        ),
        ("a grant", granted(), paid(), "no_effect (grant:invoice:in_1 was granted by evt_0): save in_1 paid 2000"),
        (
            "a grant of a session",
            granted(),
            checkout_with(|_| ()),
            "no_effect (grant:checkout:cs_1 was granted by evt_0): save cs_1 500 -> grant:checkout:cs_1",
        ),
    ] {
        assert_eq!(told_whole(&decide(&event, &given, &by_money(), NOW)), expected, "{name}");
    }
}

#[test]
fn whatever_is_decided_lets_others_go_on() {
    let money = by_money();
    let list = by_catalogue();
    let intent = || PaymentId::parse("pi_1").ok();
    for (name, policy, event, expected) in [
        (
            "an invoice of nobody",
            &money,
            invoice_with(|invoice| invoice.customer = None),
            "ignored (the invoice has no customer): save in_1 paid 2000 -> grant:invoice:in_1",
        ),
        (
            "an invoice that is void",
            &money,
            in_status("evt_1", "void"),
            "no_effect (the invoice is not settled): save in_1 void 2000 -> grant:invoice:in_1",
        ),
        (
            "an invoice that may still be paid",
            &money,
            in_status("evt_1", "uncollectible"),
            "no_effect (the invoice is not settled): save in_1 uncollectible 2000",
        ),
        (
            "an invoice before the cutover",
            &since(101),
            paid(),
            "no_effect (before cutover): save in_1 paid 2000 -> grant:invoice:in_1",
        ),
        (
            "an invoice of another product",
            &list,
            invoice_with(|invoice| invoice.lines = Lines::Complete(vec![line("other")])),
            "ignored (only prices of another product): save in_1 paid 2000 -> grant:invoice:in_1",
        ),
        (
            "an invoice that names its payments",
            &money,
            invoice_with(|invoice| {
                let charge = ChargeId::parse("ch_1").ok();
                let first = PaymentRef { payment_intent: intent(), charge };
                let second = PaymentRef { payment_intent: PaymentId::parse("pi_2").ok(), charge: None };
                invoice.payments = vec![first, second];
            }),
            "applied: save in_1 paid 2000; same ch_1 pi_1; link in_1 pi_1/ch_1 pi_2/-; \
             grant cus_1 grant:invoice:in_1 usd 2000 -> payment:pi_1 payment:ch_1 payment:pi_2 grant:invoice:in_1",
        ),
        (
            "a session with a payment",
            &money,
            checkout_with(|session| session.payment_intent = intent()),
            "applied: save cs_1 500; grant cus_1 grant:checkout:cs_1 usd 500 -> payment:pi_1 grant:checkout:cs_1",
        ),
        (
            "a session of a guest",
            &money,
            checkout_with(|session| (session.customer, session.payment_intent) = (None, intent())),
            "ignored (the session has no customer): save cs_1 500 -> payment:pi_1 grant:checkout:cs_1",
        ),
        (
            "an unpaid session of a guest",
            &money,
            checkout_with(|session| (session.customer, session.payment_status) = (None, "unpaid".into())),
            "ignored (the session has no customer): ",
        ),
        (
            "a session of a guest with an invoice",
            &money,
            checkout_with(|session| (session.customer, session.invoice) = (None, InvoiceId::parse("in_1").ok())),
            "ignored (the session has no customer): tie cs_1 in_1",
        ),
        (
            "a session of a guest for a subscription",
            &money,
            checkout_with(|session| (session.customer, session.mode) = (None, "subscription".into())),
            "ignored (the session has no customer): ",
        ),
        (
            "a session with an invoice and a payment",
            &money,
            checkout_with(|session| {
                (session.invoice, session.payment_intent) = (InvoiceId::parse("in_1").ok(), intent());
            }),
            "no_effect (left to invoice in_1): tie cs_1 in_1; link in_1 pi_1/- -> payment:pi_1",
        ),
        (
            "a session with an invoice",
            &money,
            checkout_with(|session| session.invoice = InvoiceId::parse("in_1").ok()),
            "no_effect (left to invoice in_1): tie cs_1 in_1",
        ),
    ] {
        assert_eq!(told_whole(&decide(&event, &known(), policy, NOW)), expected, "{name}");
    }
}

#[test]
fn a_name_of_two_accounts_is_a_finding() {
    let shared = Facts { namesake: AccountId::parse("cus_2").ok(), ..known() };
    let event = customer("customer.updated", Some("user-1"));
    let Decision::Complete(completion) = decide(&event, &shared, &by_money(), NOW) else { panic!("complete") };
    let reference = Reference { text: "user-1".into(), strength: ReferenceStrength::Metadata, at: 100 };
    let finding = Finding {
        kind: "shared_reference",
        subject: "cus_1".into(),
        expected: "one live account for each reference: give the wrong one its own, or '' for none".into(),
        actual: "cus_2 has the reference user-1 as well".into(),
    };
    assert_eq!(completion.effects, [Effect::SetReference(account(), reference), Effect::OpenFinding(finding)]);
}

#[test]
fn an_invoice_of_another_product_names_no_account() {
    let named = |price: &str| {
        let lines = Lines::Complete(vec![line(price)]);
        invoice_with(|invoice| (invoice.reference, invoice.lines) = (Some("user-1".into()), lines))
    };
    let policy = by_catalogue();
    check(
        "ours",
        &policy,
        &known(),
        &named("pack"),
        "applied: save in_1 paid 2000; name cus_1 user-1; grant cus_1 grant:invoice:in_1 credits 50",
    );
    check("another product's", &policy, &known(), &named("other"), "ignored: save in_1 paid 2000");
}

/// The prorations of other invoices may wait for what the lines of this one tell.
#[test]
fn the_lines_of_an_invoice_tell_of_prices() {
    let ten = || Unit::Costs(UnitAmount::whole(10).expect("an amount"));
    let list = |change: fn(&mut Policy, &mut PriceRule)| {
        let mut policy = by_catalogue();
        let mut rule = policy.catalogue.rule(&price_ref("pack")).cloned().expect("a rule");
        change(&mut policy, &mut rule);
        policy.catalogue = Catalogue::new([("pack".to_owned(), rule)]);
        policy
    };
    let open = |price: Option<&str>, unit: Unit| {
        let line = Line { price: price.map(price_ref), unit, currency: currency("eur"), ..line("pack") };
        invoice_with(|invoice| (invoice.status, invoice.lines) = ("open".into(), Lines::Complete(vec![line])))
    };
    let saved = "no_effect (the invoice is not settled): save in_1 open 2000";
    let costs = "learn pack eur Costs(UnitAmount { trillionths: 10000000000000 }) -> price:pack";
    for (name, policy, event, expected) in [
        ("what it costs", list(|_, _| ()), open(Some("pack"), ten()), format!("{saved}; {costs}")),
        (
            "that it has no amount",
            list(|_, _| ()),
            open(Some("pack"), Unit::HasNone),
            format!("{saved}; learn pack eur HasNone -> price:pack"),
        ),
        ("nothing", list(|_, _| ()), open(Some("pack"), Unit::Untold), saved.into()),
        ("of no price", list(|_, _| ()), open(None, ten()), saved.into()),
        ("of an unlisted price", list(|_, _| ()), open(Some("new"), ten()), saved.into()),
        ("of another product's price", list(|_, rule| rule.foreign = true), open(Some("pack"), ten()), saved.into()),
        ("of a price that gives nothing", list(|_, rule| rule.credits = 0), open(Some("pack"), ten()), saved.into()),
        (
            "of a price that gives one",
            list(|_, rule| rule.credits = 1),
            open(Some("pack"), ten()),
            format!("{saved}; {costs}"),
        ),
        (
            "of a price whose amount is listed",
            list(|_, rule| rule.unit_amount = UnitAmount::whole(10).ok()),
            open(Some("pack"), ten()),
            saved.into(),
        ),
        (
            "where prorations give nothing",
            list(|policy, _| policy.credits.prorate = false),
            open(Some("pack"), ten()),
            saved.into(),
        ),
        (
            "where money counts",
            list(|policy, _| policy.credits.basis = Basis::AmountPaid(None)),
            open(Some("pack"), ten()),
            saved.into(),
        ),
    ] {
        assert_eq!(told_whole(&decide(&event, &known(), &policy, NOW)), expected, "{name}");
    }
}

#[test]
fn a_price_is_remembered() {
    let price = Price { price: price_ref("pack"), currency: currency("usd"), unit: Unit::HasNone };
    let event = event("evt_1", "price.created", Body::Price(price));
    assert_eq!(
        told_whole(&decide(&event, &known(), &by_money(), NOW)),
        "no_effect (the price is remembered): learn pack usd HasNone -> price:pack"
    );
}

#[test]
fn an_invoice_is_kept_as_it_was_told() {
    let event = invoice_with(|invoice| {
        (invoice.total, invoice.amount_due, invoice.amount_paid) = (3_000, 2_500, 0);
        (invoice.paid_out_of_band, invoice.created) = (true, Some(50));
        invoice.subscription = SubscriptionId::parse("sub_1").ok();
    });
    let Decision::Complete(completion) = decide(&event, &granted(), &by_money(), NOW) else { panic!("complete") };
    let row = InvoiceRow {
        id: InvoiceId::parse("in_1").expect("an id"),
        account: Some(account()),
        subscription: SubscriptionId::parse("sub_1").ok(),
        status: "paid".into(),
        currency: currency("usd"),
        total: 3_000,
        amount_paid: 2_500,
        created: Some(50),
        snapshot_at: 100,
    };
    assert_eq!(completion.effects, [Effect::SaveInvoice(row)]);
}

#[test]
fn the_keys_of_effects_are_stable() {
    let id = event_id("evt_1");
    for (fact, key) in [
        (Fact::invoice(&invoice().id), "grant:invoice:in_1"),
        (Fact::checkout(&CheckoutId::parse("cs_1").expect("an id")), "grant:checkout:cs_1"),
        (Fact::adjustment("ticket-7"), "adjust:ticket-7"),
        (Fact::clawback(&id), "clawback:evt_1"),
        (Fact::restore(&id), "restore:evt_1"),
    ] {
        assert_eq!((fact.as_str(), fact.to_string().as_str()), (key, key));
    }
}

#[test]
fn what_became_of_a_grant() {
    let some = || Granted { account: account(), units: Vec::new() };
    for (name, decided, expected) in [
        ("granted", Decided::of_invoice(Some(some()), Some("open"), false), Decided::Granted(some())),
        ("paid", Decided::of_invoice(None, Some("paid"), false), Decided::Nothing),
        ("void", Decided::of_invoice(None, Some("void"), false), Decided::Nothing),
        ("uncollectible", Decided::of_invoice(None, Some("uncollectible"), false), Decided::NotYet),
        ("untold", Decided::of_invoice(None, None, false), Decided::NotYet),
        ("dismissed", Decided::of_invoice(None, None, true), Decided::Nothing),
        ("granted after all", Decided::of_invoice(Some(some()), None, true), Decided::Granted(some())),
        ("a granted session", Decided::of_checkout(Some(some()), true), Decided::Granted(some())),
        ("a session that granted nothing", Decided::of_checkout(None, true), Decided::Nothing),
        ("a session that nobody told of", Decided::of_checkout(None, false), Decided::NotYet),
    ] {
        assert_eq!(decided, expected, "{name}");
    }
}

#[test]
fn a_dismissed_invoice_is_known_as_a_grant_in_either_style_of_events() {
    for kind in ["invoice.paid", "v1.invoice.paid"] {
        let known = arrivals_of_dismissal(kind, Some("in_1"), &[]);
        assert_eq!(known, [Need::Grant(Fact::invoice(&InvoiceId::parse("in_1").expect("an id")))], "{kind}");
    }
    assert_eq!(arrivals_of_dismissal("v1.customer.updated", Some("in_1"), &[]), []);
}
