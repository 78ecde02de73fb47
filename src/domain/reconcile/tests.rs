use super::*;
use crate::domain::clawback::{Correction, UnitGranted};
use crate::domain::event::{Line, Lines, PriceRef, Unit};
use crate::domain::ids::CheckoutId;
use crate::domain::policy::{Catalogue, Credits, PriceRule, Tiers};
use crate::domain::subscription::Item;

fn usd() -> Currency {
    Currency::parse("usd").expect("a currency")
}

fn price(id: &str) -> PriceRef {
    PriceRef { id: PriceId::parse(id).expect("an id"), product: None, lookup_key: None }
}

/// `basic` and `pro` give the tier of their name, `other` belongs to somebody else.
fn policy() -> Policy {
    let rule = |name: &str| {
        let foreign = name == "other";
        let rule = PriceRule {
            tier: (!foreign).then(|| name.to_owned()),
            credits: 100,
            per_invoice: false,
            unit: "credits".into(),
            unit_amount: None,
            foreign,
        };
        (name.to_owned(), rule)
    };
    Policy {
        livemode: true,
        connected_account: None,
        credits: Credits { since: Some(1_000), basis: Basis::Catalogue, prorate: true, unlisted_price_fails: true },
        catalogue: Catalogue::new(["basic", "pro", "other"].map(rule)),
        tiers: Tiers { order: vec!["basic".into(), "pro".into()], ..Tiers::default() },
        max_attempts: 5,
        asks_stripe: true,
    }
}

fn state(status: &str, prices: &[&str]) -> State {
    State {
        account: AccountId::parse("cus_1").ok(),
        status: status.into(),
        items: prices.iter().map(|id| Item { id: "si_1".into(), price: price(id), quantity: Some(1) }).collect(),
        current_period_end: Some(5_000),
        ends_at: None,
        collection_paused: false,
    }
}

fn here(status: &str, tier: Option<&str>, prices: &[&str]) -> SubscriptionHere {
    SubscriptionHere {
        account: AccountId::parse("cus_1").ok(),
        status: status.into(),
        tier: tier.map(str::to_owned),
        items: prices.iter().map(|id| (price(id).id, Some(1))).collect(),
        current_period_end: Some(5_000),
        ends_at: None,
        collection_paused: false,
    }
}

/// `kind: expected | actual`, one after the other.
fn told<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> String {
    let text = |one: &Difference| format!("{}: {} | {}", one.finding.kind, one.finding.expected, one.finding.actual);
    differences.into_iter().map(text).collect::<Vec<_>>().join("; ")
}

#[test]
fn subscriptions_are_compared() {
    let basic = || here("active", Some("basic"), &["basic"]);
    let at = |ends_at| State { ends_at, ..state("active", &["basic"]) };
    let paused = State { collection_paused: true, ..state("active", &["basic"]) };
    let renewed = State { current_period_end: Some(9_000), ..state("active", &["basic"]) };
    let moved = State { account: None, ..state("active", &["basic"]) };
    for (name, at_stripe, ours, expected) in [
        ("alike", Some(state("active", &["basic"])), Some(basic()), ""),
        ("nowhere", None, None, ""),
        (
            "another status",
            Some(state("past_due", &["basic"])),
            Some(basic()),
            "subscription_state: status past_due | status active",
        ),
        (
            "over at Stripe",
            Some(state("canceled", &["pro"])),
            Some(basic()),
            "subscription_state: status canceled | status active",
        ),
        (
            "over on both sides, whatever else",
            Some(state("canceled", &["pro"])),
            Some(here("canceled", None, &["basic"])),
            "",
        ),
        (
            "over in another way",
            Some(state("incomplete_expired", &[])),
            Some(here("canceled", None, &[])),
            "subscription_state: status incomplete_expired | status canceled",
        ),
        ("it will end", Some(at(Some(7_000))), Some(basic()), "subscription_state: end 7000 | end none"),
        ("not collected", Some(paused), Some(basic()), "subscription_state: collection paused | collection on"),
        ("renewed", Some(renewed), Some(basic()), "subscription_state: period end 9000 | period end 5000"),
        ("of nobody", Some(moved), Some(basic()), "subscription_state: customer none | customer cus_1"),
        (
            "another price",
            Some(state("active", &["pro"])),
            Some(basic()),
            "subscription_tier: pro by 1 × pro | basic by 1 × basic",
        ),
        (
            "the tier of another catalogue",
            Some(state("active", &["basic"])),
            Some(here("active", Some("gold"), &["basic"])),
            "subscription_tier: basic by 1 × basic | gold by 1 × basic",
        ),
        (
            "both",
            Some(state("past_due", &["pro"])),
            Some(basic()),
            "subscription_state: status past_due | status active; subscription_tier: pro by 1 × pro | basic by 1 × basic",
        ),
        (
            "unlisted, so it keeps its tier",
            Some(state("active", &["new"])),
            Some(here("active", Some("basic"), &["new"])),
            "unlisted_price: new | none of these is in [[price]]",
        ),
        (
            "unknown here",
            Some(state("active", &["basic"])),
            None,
            "subscription_missing_here: active, basic by 1 × basic | unknown",
        ),
        ("unknown here, and over", Some(state("canceled", &["basic"])), None, ""),
        ("unknown here, and of another product", Some(state("active", &["other"])), None, ""),
        ("not at Stripe", None, Some(basic()), "subscription_missing_at_stripe: no such subscription | active"),
        ("not at Stripe, and over", None, Some(here("canceled", None, &["basic"])), ""),
    ] {
        let id = SubscriptionId::parse("sub_1").expect("an id");
        assert_eq!(told(&of_subscription(&id, at_stripe.as_ref(), ours.as_ref(), &policy())), expected, "{name}");
    }
}

#[test]
fn no_price_is_missed_where_none_is_listed() {
    let credits = Credits { basis: Basis::AmountPaid(None), ..policy().credits };
    let policy = Policy { catalogue: Catalogue::default(), credits, ..policy() };
    let id = SubscriptionId::parse("sub_1").expect("an id");
    for (name, sold, expected) in
        [("alike", "new", ""), ("another price", "old", "subscription_tier: no tier by 1 × new | no tier by 1 × old")]
    {
        let ours = here("active", None, &[sold]);
        assert_eq!(
            told(&of_subscription(&id, Some(&state("active", &["new"])), Some(&ours), &policy)),
            expected,
            "{name}"
        );
    }
    let by_list = Policy { credits: Credits { basis: Basis::Catalogue, ..policy.credits.clone() }, ..policy };
    let found = of_subscription(&id, Some(&state("active", &["new"])), Some(&here("active", None, &["new"])), &by_list);
    assert_eq!(told(&found), "unlisted_price: new | none of these is in [[price]]", "an empty list is one");
}

fn invoice(status: &str, amount_paid: i64, price_id: &str) -> Invoice {
    let line = Line {
        price: Some(price(price_id)),
        amount: amount_paid,
        currency: usd(),
        quantity: Some(1),
        proration: false,
        on_subscription: true,
        unit: Unit::Untold,
        period_start: None,
        period_end: None,
    };
    Invoice {
        id: InvoiceId::parse("in_1").expect("an id"),
        customer: AccountId::parse("cus_1").ok(),
        subscription: None,
        status: status.into(),
        currency: usd(),
        total: 2_000,
        amount_due: 2_000,
        amount_paid,
        paid_out_of_band: false,
        paid_at: Some(2_000),
        created: Some(1_500),
        payments: Vec::new(),
        lines: Lines::Complete(vec![line]),
        reference: None,
    }
}

fn granted(taken: i64) -> Option<Granted> {
    let units = vec![UnitGranted { unit: "credits".into(), granted: 100, taken, taken_before: 0 }];
    Some(Granted { account: AccountId::parse("cus_1").expect("an id"), units })
}

fn row(status: &str, amount_paid: i64) -> Option<InvoiceRowHere> {
    Some(InvoiceRowHere { status: status.into(), amount_paid, currency: usd() })
}

fn waiting() -> Option<OpenEvent> {
    Some(OpenEvent { id: EventId::parse("evt_1").expect("an id"), why: "waits for price:basic".into() })
}

#[test]
fn invoices_and_their_grants_are_compared() {
    const MISSING: &str = "missing_grant: a grant for 20.00 USD | nothing";
    let paid = || Some(invoice("paid", 2_000, "basic"));
    let unknown = InvoiceHere::default;
    let whole = || InvoiceHere { row: row("paid", 2_000), granted: granted(0), ..unknown() };
    let row_only = |status: &str| InvoiceHere { row: row(status, 2_000), ..unknown() };
    let early = Invoice { paid_at: Some(999), ..invoice("paid", 2_000, "basic") };
    let of_nobody = Invoice { customer: None, ..invoice("paid", 2_000, "basic") };
    for (name, at_stripe, ours, expected) in [
        ("alike", paid(), whole(), String::new()),
        ("granted, without a row: from an old table", paid(), InvoiceHere { row: None, ..whole() }, String::new()),
        ("paid and unknown", paid(), unknown(), format!("{MISSING}; unknown")),
        ("paid, and open here", paid(), row_only("open"), format!("{MISSING}; known as open")),
        ("paid on both sides, and granted nothing", paid(), row_only("paid"), format!("{MISSING}; known as paid")),
        (
            "its event waits",
            paid(),
            InvoiceHere { open: waiting(), ..unknown() },
            format!("{MISSING}: evt_1 waits for price:basic"),
        ),
        (
            "a reason was told",
            paid(),
            InvoiceHere { reason: Some("nothing".into()), ..row_only("paid") },
            String::new(),
        ),
        ("before cutover", Some(early), unknown(), String::new()),
        ("of nobody", Some(of_nobody), unknown(), String::new()),
        ("nothing was paid", Some(invoice("paid", 0, "basic")), unknown(), String::new()),
        ("of another product", Some(invoice("paid", 2_000, "other")), unknown(), String::new()),
        ("an unlisted price", Some(invoice("paid", 2_000, "new")), unknown(), format!("{MISSING}; unknown")),
        (
            "open, and granted here",
            Some(invoice("open", 0, "basic")),
            whole(),
            "surplus_credit: open | cus_1 has 100 credits".into(),
        ),
        ("gone, and granted here", None, whole(), "surplus_credit: no such invoice | cus_1 has 100 credits".into()),
        ("gone, and all is taken back", None, InvoiceHere { granted: granted(100), ..whole() }, String::new()),
        ("gone, a draft", None, row_only("draft"), String::new()),
        (
            "void, and open here",
            Some(invoice("void", 0, "basic")),
            row_only("open"),
            "invoice_status: void, 0.00 USD paid | open, 20.00 USD paid".into(),
        ),
        ("open, and unknown", Some(invoice("open", 0, "basic")), unknown(), String::new()),
        (
            "another amount",
            Some(invoice("paid", 1_500, "basic")),
            whole(),
            "invoice_status: paid, 15.00 USD paid | paid, 20.00 USD paid".into(),
        ),
    ] {
        let id = InvoiceId::parse("in_1").expect("an id");
        assert_eq!(told(&of_invoice(&id, at_stripe.as_ref(), &ours, &policy())), expected, "{name}");
    }
}

#[test]
fn money_is_at_stake() {
    let id = InvoiceId::parse("in_1").expect("an id");
    let ours = InvoiceHere { open: waiting(), ..InvoiceHere::default() };
    let one = of_invoice(&id, Some(&invoice("paid", 2_000, "basic")), &ours, &policy()).expect("a difference");
    assert_eq!((one.stake, one.event.as_ref().map(EventId::as_str)), (Some((2_000, usd())), Some("evt_1")));
    assert_eq!(one.kind.remedy("in_1", Some("evt_1")), "billingd events replay evt_1");
    assert_eq!(one.kind.remedy("in_1", None), "billingd events import FILE");
}

#[test]
fn checkouts_are_compared() {
    let checkout = |payment_status: &str, mode: &str| Checkout {
        id: CheckoutId::parse("cs_1").expect("an id"),
        mode: mode.into(),
        payment_status: payment_status.into(),
        customer: AccountId::parse("cus_1").ok(),
        subscription: None,
        invoice: None,
        payment_intent: None,
        amount_total: Some(500),
        currency: Some(usd()),
        reference: None,
        client_reference_id: None,
        metadata_price: None,
        metadata_quantity: None,
    };
    let by_invoice = Checkout { invoice: InvoiceId::parse("in_1").ok(), ..checkout("paid", "payment") };
    for (name, session, created, expected) in [
        ("paid", checkout("paid", "payment"), 2_000, "missing_grant: a grant for 5.00 USD | nothing; unknown"),
        ("not paid", checkout("unpaid", "payment"), 2_000, ""),
        ("of a subscription", checkout("paid", "subscription"), 2_000, ""),
        ("left to its invoice", by_invoice, 2_000, ""),
        ("before cutover", checkout("paid", "payment"), 999, ""),
    ] {
        assert_eq!(told(&of_checkout(&session, created, None, &policy())), expected, "{name}");
    }
}

#[test]
fn money_that_went_back_is_told_with_its_credits() {
    let fact = Fact::invoice(&InvoiceId::parse("in_1").expect("an id"));
    let back = MoneyBack {
        kind: Kind::RefundNotApplied,
        id: "re_1".into(),
        status: Some("succeeded".into()),
        amount: 500,
        currency: usd(),
    };
    let corrections = [(fact, vec![Correction { unit: "credits".into(), amount: -25 }])];
    assert_eq!(
        told(&back.difference(&corrections, None)),
        "refund_not_applied: 5.00 USD, succeeded: -25 credits for grant:invoice:in_1 | not applied"
    );
    assert_eq!(back.difference(&[], None), None);
}

fn endpoint(id: &str, path: &str, is_enabled: bool) -> Endpoint {
    Endpoint {
        id: id.into(),
        path: path.into(),
        is_enabled,
        types: vec!["*".into()],
        api_version: None,
        livemode: None,
    }
}

#[test]
fn endpoints_that_are_off_are_told() {
    for (name, endpoints, expected) in [
        ("on", vec![endpoint("we_1", "/in", true)], ""),
        ("off", vec![endpoint("we_1", "/in/", false)], "endpoint_disabled: enabled | disabled"),
        ("off, and replaced", vec![endpoint("we_1", "/in", false), endpoint("we_2", "/in", true)], ""),
        ("off, and not ours", vec![endpoint("we_1", "/other", false)], ""),
    ] {
        assert_eq!(told(&of_endpoints(&endpoints, &["/in".into()])), expected, "{name}");
    }
}

#[test]
fn silence_is_told_of_each_path_that_an_endpoint_leads_to() {
    let paths = ["/in".to_owned(), "/connect".to_owned()];
    let subjects = |endpoints: Option<&[Endpoint]>| {
        let silent = of_silence(&paths, endpoints, 7);
        silent.into_iter().map(|one| one.finding.subject).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(subjects(None), "/in /connect", "nobody can tell");
    assert_eq!(subjects(Some(&[])), "/in /connect");
    assert_eq!(subjects(Some(&[endpoint("we_1", "/behind/a/proxy", true)])), "/in /connect");
    assert_eq!(subjects(Some(&[endpoint("we_1", "/connect/", true)])), "/connect");
    assert_eq!(subjects(Some(&[endpoint("we_1", "/connect", false), endpoint("we_2", "/in", true)])), "/in /connect");
    let silence = of_silence(&paths[..1], None, 7);
    assert_eq!(told(&silence), "silence: deliveries of the events that Stripe has | none since 7");
}

#[test]
fn a_gap_is_what_stripe_has_forgotten() {
    assert_eq!(of_reach(7, 7), None);
    assert_eq!(told(&of_reach(6, 7)), "events_beyond_reach: all events since 6 | only those that Stripe still has");
}

#[test]
fn every_kind_has_a_word_and_a_command() {
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        assert!(kind.remedy("x_1", None).starts_with("billingd "), "{kind:?}");
    }
    assert_eq!(Kind::parse("shared_reference"), None);
}
