use super::super::tests::{NOW, account, by_money, currency, event, event_id, invoice_with, line, told_whole};
use super::super::{decide, end_held_tier};
use super::*;
use crate::domain::event::{Body, Invoice, Line, Lines, PriceRef, SubscriptionItem, Trace};
use crate::domain::facts::{AccountHeld, Reference, ReferenceStrength, SubscriptionFacts};
use crate::domain::ids::{AccountId, InvoiceId, PriceId};
use crate::domain::money::UnitAmount;
use crate::domain::policy::{Catalogue, PriceRule, Tiers};
use crate::domain::subscription::Pending;

fn price(id: &str) -> PriceRef {
    PriceRef { id: PriceId::parse(id).expect("an id"), product: None, lookup_key: None }
}

fn id() -> SubscriptionId {
    SubscriptionId::parse("sub_1").expect("an id")
}

fn other_account() -> AccountId {
    AccountId::parse("cus_2").expect("an id")
}

/// `basic`, `pro` and `team` give the tier of their name, `addon` gives none, `other` is somebody else's.
fn policy(keep_until_period_end: bool) -> Policy {
    let rule = |name: &str| {
        let rule = PriceRule {
            tier: (!matches!(name, "addon" | "other")).then(|| name.to_owned()),
            credits: 1,
            per_invoice: false,
            unit: "credits".into(),
            unit_amount: None,
            foreign: name == "other",
        };
        (name.to_owned(), rule)
    };
    Policy {
        catalogue: Catalogue::new(["basic", "pro", "team", "addon", "other"].map(rule)),
        tiers: Tiers {
            order: ["basic", "pro", "team"].map(str::to_owned).to_vec(),
            keep_until_period_end,
            access_trialing: true,
            ..Tiers::default()
        },
        ..by_money()
    }
}

/// An active subscription to these prices.
fn to(prices: &[&str]) -> Subscription {
    let item = |name: &&str| SubscriptionItem {
        id: format!("si_{name}"),
        price: price(name),
        unit: Unit::Untold,
        currency: Some(currency("usd")),
        quantity: Some(1),
    };
    Subscription {
        id: id(),
        customer: Some(account()),
        status: "active".into(),
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

fn in_status(status: &str, prices: &[&str]) -> Subscription {
    Subscription { status: status.into(), ..to(prices) }
}

fn of(customer: Option<AccountId>, prices: &[&str]) -> Subscription {
    Subscription { customer, ..to(prices) }
}

fn told(id: &str, at: UnixSeconds, subscription: Subscription) -> Event {
    event(id, "customer.subscription.updated", Body::Subscription(subscription)).at(at)
}

fn tier(account: AccountId, tier: Option<&str>) -> AccountTier {
    AccountTier { account, tier: tier.map(Into::into), others: Vec::new() }
}

/// `cus_1` is known and is on this tier; nothing is known of its subscription.
fn on(plan: Option<&str>) -> Facts {
    Facts {
        account: Some(AccountHeld { reference: None, deleted: false }),
        subscription: SubscriptionFacts { accounts: vec![tier(account(), plan)], ..SubscriptionFacts::default() },
        ..Facts::default()
    }
}

/// As [`on`], after `evt_0` told this at this second.
fn after(plan: Option<&str>, at: UnixSeconds, subscription: Subscription) -> Facts {
    let mut facts = on(plan);
    let policy = policy(false);
    let snapshot = Snapshot::of(&told("evt_0", at, subscription.clone()), &subscription);
    facts.subscription.known = Known::default().with(&snapshot, &policy);
    facts.subscription.standing = standing(&id(), &facts.subscription.known, &[], &policy, NOW);
    facts
}

#[track_caller]
fn check(name: &str, policy: &Policy, given: &Facts, event: &Event, expected: &str) {
    assert_eq!(told_whole(&decide(event, given, policy, NOW)), expected, "{name}");
}

const FINE: &str = "resolve unlisted_price sub_1; resolve unknown_status sub_1";
const SAME: &str = "no_effect (nothing that we keep of the subscription changed)";

#[test]
fn a_snapshot_of_a_subscription() {
    let nobody = || Facts { account: None, ..on(None) };
    let named = |subscription: Subscription| Subscription { reference: Some("user-1".into()), ..subscription };
    let by_evt_1 = "by evt_1 of evt_1 listed evt_1";
    for (name, given, told, expected) in [
        (
            "with more items than are told",
            on(None),
            Subscription { items_truncated: true, ..to(&["pro"]) },
            "wait subscription:sub_1".into(),
        ),
        (
            "new",
            on(None),
            to(&["pro"]),
            format!("applied: save sub_1 cus_1 active pro of item 0 {by_evt_1}; {FINE}; tier cus_1 ->pro"),
        ),
        (
            "new, of a new account",
            nobody(),
            named(to(&["pro"])),
            format!(
                "applied: open cus_1; save sub_1 cus_1 active pro of item 0 {by_evt_1}; {FINE}; name cus_1 user-1; \
                 tier cus_1 ->pro"
            ),
        ),
        (
            "of two prices, of which the second gives the tier",
            on(None),
            to(&["basic", "pro"]),
            format!("applied: save sub_1 cus_1 active pro of item 1 {by_evt_1}; {FINE}; tier cus_1 ->pro"),
        ),
        (
            "without access",
            on(None),
            in_status("unpaid", &["pro"]),
            format!("applied: save sub_1 cus_1 unpaid pro of item 0 {by_evt_1}; {FINE}"),
        ),
        (
            "of nobody",
            nobody(),
            named(of(None, &["pro"])),
            format!("applied: save sub_1 - active pro of item 0 {by_evt_1}; {FINE}"),
        ),
        (
            "of another product, which makes no account",
            nobody(),
            named(to(&["other"])),
            format!("applied: save sub_1 cus_1 active - of item - {by_evt_1}; {FINE}"),
        ),
        (
            "of another product, which names no account",
            on(None),
            named(to(&["other"])),
            format!("applied: save sub_1 cus_1 active - of item - {by_evt_1}; {FINE}"),
        ),
        (
            "of another product, and of ours",
            nobody(),
            to(&["other", "addon"]),
            format!("applied: open cus_1; save sub_1 cus_1 active - of item - {by_evt_1}; {FINE}"),
        ),
        (
            "without items",
            nobody(),
            to(&[]),
            format!("applied: save sub_1 cus_1 active - of item - by evt_1 of evt_1 listed -; {FINE}"),
        ),
        (
            "of an unlisted price",
            nobody(),
            to(&["new"]),
            "applied: open cus_1; save sub_1 cus_1 active - of item - by evt_1 of evt_1 listed -; \
             open unlisted_price sub_1; resolve unknown_status sub_1"
                .into(),
        ),
        (
            "in a status that is new",
            on(Some("pro")),
            in_status("dormant", &["pro"]),
            format!(
                "applied: save sub_1 cus_1 dormant pro of item 0 {by_evt_1}; \
                 resolve unlisted_price sub_1; open unknown_status sub_1; tier cus_1 pro>-"
            ),
        ),
        (
            "changed",
            after(Some("basic"), 99, to(&["basic"])),
            to(&["pro"]),
            format!("applied: save sub_1 cus_1 active pro of item 0 {by_evt_1}; {FINE}; tier cus_1 basic>pro"),
        ),
        (
            "changed, but not in its tier",
            after(Some("basic"), 99, to(&["basic"])),
            Subscription { current_period_end: Some(500), ..to(&["basic"]) },
            format!("applied: save sub_1 cus_1 active basic of item 0 {by_evt_1}; {FINE}"),
        ),
        (
            "over",
            after(Some("pro"), 101, to(&["pro"])),
            in_status("canceled", &["pro"]),
            "applied: save sub_1 cus_1 canceled pro of item 0 by evt_1 of evt_1 listed evt_0; \
             resolve unlisted_price sub_1; resolve unknown_status sub_1; tier cus_1 pro>-"
                .into(),
        ),
        (
            "newer, and all as before",
            after(Some("pro"), 99, to(&["pro"])),
            to(&["pro"]),
            format!("{SAME}: save sub_1 cus_1 active pro of item 0 {by_evt_1}; {FINE}"),
        ),
        (
            "newer, and all but the name as before",
            after(Some("pro"), 99, to(&["pro"])),
            named(to(&["pro"])),
            format!("applied: save sub_1 cus_1 active pro of item 0 {by_evt_1}; {FINE}; name cus_1 user-1"),
        ),
        (
            "newer, and a tier that was not yet set",
            after(None, 99, to(&["pro"])),
            to(&["pro"]),
            format!("applied: save sub_1 cus_1 active pro of item 0 {by_evt_1}; {FINE}; tier cus_1 ->pro"),
        ),
        ("older", after(Some("pro"), 101, to(&["pro"])), to(&["basic"]), "stale (evt_0 told a later state): ".into()),
        (
            "after the end",
            after(None, 99, in_status("canceled", &["pro"])),
            to(&["pro"]),
            "stale (evt_0 told a later state): save sub_1 cus_1 canceled pro of item 0 by evt_0 of evt_0 \
             listed evt_1; resolve unlisted_price sub_1; resolve unknown_status sub_1"
                .into(),
        ),
        (
            "older, but it had a listed price",
            after(None, 101, to(&["new"])),
            to(&["pro"]),
            "applied: save sub_1 cus_1 active pro of item - by evt_0 of evt_0 listed evt_1; \
             open unlisted_price sub_1; resolve unknown_status sub_1; tier cus_1 ->pro"
                .into(),
        ),
        (
            "older, with a listed price that has no tier",
            after(None, 101, to(&["new"])),
            to(&["addon"]),
            "stale (evt_0 told a later state): save sub_1 cus_1 active - of item - by evt_0 of evt_0 listed evt_1; \
             open unlisted_price sub_1; resolve unknown_status sub_1"
                .into(),
        ),
        (
            "unlisted, after a listed one",
            after(Some("pro"), 99, to(&["pro"])),
            to(&["new"]),
            "applied: save sub_1 cus_1 active pro of item - by evt_1 of evt_1 listed evt_0; \
             open unlisted_price sub_1; resolve unknown_status sub_1"
                .into(),
        ),
        (
            "tied with another one of its second",
            after(Some("pro"), 100, to(&["pro"])),
            to(&["basic"]),
            format!(
                "applied: save sub_1 cus_1 active basic of item 0 by evt_1 of evt_0 evt_1 listed evt_1; {FINE}; \
                 tier cus_1 pro>basic"
            ),
        ),
    ] {
        check(name, &policy(false), &given, &self::told("evt_1", 100, told), &expected);
    }
}

#[test]
fn a_snapshot_that_is_told_again() {
    let again = || told("evt_0", 100, to(&["pro"]));
    check("as it stands", &policy(false), &after(Some("pro"), 100, to(&["pro"])), &again(), &format!("{SAME}: "));
    let mut promoted = policy(false);
    promoted.tiers.order.reverse();
    let mut two = after(Some("team"), 100, to(&["basic", "team"]));
    check(
        "while the order of the tiers is another one",
        &promoted,
        &two,
        &told("evt_0", 100, to(&["basic", "team"])),
        "applied: restand sub_1 cus_1 active basic of item 0 by evt_0; tier cus_1 team>basic",
    );
    two.subscription.standing = None;
    check(
        "and does not stand in the books",
        &policy(false),
        &two,
        &told("evt_0", 100, to(&["basic", "team"])),
        "applied: restand sub_1 cus_1 active team of item 1 by evt_0",
    );
}

/// Each column by itself is a change.
#[test]
fn whatever_the_books_show_is_a_change() {
    let held = after(Some("pro"), 99, to(&["pro"]));
    let alike = |change: fn(&mut Standing)| {
        let mut other = held.subscription.standing.clone();
        other.iter_mut().for_each(change);
        is_alike(held.subscription.standing.as_ref(), other.as_ref())
    };
    assert!(alike(|_| ()));
    assert!(alike(|other| other.source = event_id("evt_9")), "but for where it comes from");
    assert!(alike(|other| other.snapshot_at = 98), "and from when");
    assert!(!alike(|other| other.state.status = "unpaid".into()));
    assert!(!alike(|other| other.tier = None));
    assert!(!alike(|other| other.tier_item = None));
    assert!(!alike(|other| other.pending = Some(Pending { tier: None, at: 5 })));
    assert!(is_alike(None, None));
    assert!(!is_alike(None, held.subscription.standing.as_ref()));
    assert!(!is_alike(held.subscription.standing.as_ref(), None));
}

#[test]
fn the_tier_of_every_account_of_a_subscription_follows() {
    let contribution = |tier: &str, status: &str| Contribution {
        id: SubscriptionId::parse("sub_2").expect("an id"),
        status: status.into(),
        collection_paused: false,
        tier: Some(tier.into()),
    };
    let with = |plan: &str, tier: &str, status: &str| {
        let mut facts = on(Some(plan));
        facts.subscription.accounts.iter_mut().for_each(|held| held.others = vec![contribution(tier, status)]);
        facts
    };
    let saved = format!("applied: save sub_1 cus_1 active pro of item 0 by evt_1 of evt_1 listed evt_1; {FINE}");
    for (name, given, expected) in [
        ("below another one", with("team", "team", "active"), saved.clone()),
        ("above another one", with("basic", "basic", "active"), format!("{saved}; tier cus_1 basic>pro")),
        ("above one without access", with("team", "team", "unpaid"), format!("{saved}; tier cus_1 team>pro")),
    ] {
        check(name, &policy(false), &given, &told("evt_1", 100, to(&["pro"])), &expected);
    }
    let mut moved = after(Some("pro"), 99, to(&["pro"]));
    moved.subscription.accounts.push(tier(other_account(), None));
    check(
        "of another account than before",
        &policy(false),
        &moved,
        &told("evt_1", 100, of(Some(other_account()), &["pro"])),
        &format!(
            "applied: save sub_1 cus_2 active pro of item 0 by evt_1 of evt_1 listed evt_1; {FINE}; \
             tier cus_1 pro>-; tier cus_2 ->pro"
        ),
    );
    check(
        "of nobody any more",
        &policy(false),
        &moved,
        &told("evt_1", 100, of(None, &["pro"])),
        &format!("applied: save sub_1 - active pro of item 0 by evt_1 of evt_1 listed evt_1; {FINE}; tier cus_1 pro>-"),
    );
}

#[test]
fn findings_say_what_is_and_what_should_be() {
    let findings =
        |subscription: Subscription| match decide(&told("evt_1", 100, subscription), &on(None), &policy(false), NOW) {
            Decision::Complete(completion) => completion
                .effects
                .into_iter()
                .filter_map(|effect| match effect {
                    Effect::OpenFinding(finding) => Some(format!("{} | {}", finding.expected, finding.actual)),
                    _ => None,
                })
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
    let unlisted = |prices: &str| format!("{prices} | none of these is in [[price]]");
    let dormant = || "a status that billingd knows; until then it gives no access | dormant".to_owned();
    assert_eq!(findings(to(&["pro"])), [""; 0]);
    assert_eq!(findings(to(&["new", "newer"])), [unlisted("new, newer")]);
    assert_eq!(findings(in_status("dormant", &["pro"])), [dormant()]);
    assert_eq!(findings(in_status("dormant", &["new"])), [unlisted("new"), dormant()]);
}

#[test]
fn a_subscription_tells_of_its_prices() {
    let priced = |unit: Unit, code: Option<&str>| {
        let mut told = to(&["pro"]);
        for item in &mut told.items {
            (item.unit, item.currency) = (unit.clone(), code.map(currency));
        }
        told
    };
    let ten = || Unit::Costs(UnitAmount::whole(10).expect("an amount"));
    let given = after(Some("pro"), 101, to(&["pro"]));
    let stale = "stale (evt_0 told a later state):";
    let learned = "Costs(UnitAmount { trillionths: 10000000000000 })";
    for (name, told, expected) in [
        ("what it costs", priced(ten(), Some("eur")), format!("{stale} learn pro eur {learned} -> price:pro")),
        ("that it has none", priced(Unit::HasNone, Some("eur")), format!("{stale} learn pro eur HasNone -> price:pro")),
        ("nothing", priced(Unit::Untold, Some("eur")), format!("{stale} ")),
        ("in no currency", priced(ten(), None), format!("{stale} ")),
    ] {
        check(name, &policy(false), &given, &self::told("evt_1", 100, told), &expected);
    }
}

#[test]
fn the_first_name_stays_when_a_subscription_tells_another() {
    let mut given = after(Some("pro"), 99, to(&["pro"]));
    let reference = Reference { text: "user-0".into(), strength: ReferenceStrength::Metadata, at: 50 };
    given.account = Some(AccountHeld { reference: Some(reference), deleted: false });
    check(
        "another one",
        &policy(false),
        &given,
        &told("evt_1", 100, Subscription { reference: Some("user-1".into()), ..to(&["pro"]) }),
        &format!("{SAME}: save sub_1 cus_1 active pro of item 0 by evt_1 of evt_1 listed evt_1; {FINE}"),
    );
}

fn period(name: &str, starts_at: UnixSeconds, ends_at: UnixSeconds) -> PaidPeriod {
    let invoice = InvoiceId::parse("in_0").expect("an id");
    PaidPeriod { invoice, price: price(name), starts_at, ends_at }
}

/// `pro` is held until then, and `basic` was bought.
fn held_until(ends_at: UnixSeconds) -> Facts {
    let mut facts = after(Some("pro"), 99, to(&["basic"]));
    facts.subscription.periods = vec![period("pro", 0, ends_at)];
    if let Some(standing) = &mut facts.subscription.standing {
        standing.tier = Some("pro".into());
        standing.pending = Some(Pending { tier: Some("basic".into()), at: ends_at });
    }
    facts
}

#[test]
fn a_held_tier_ends_with_its_time() {
    let ended = |given: &Facts| told_whole(&Decision::Complete(end_held_tier(&id(), given, &policy(true), NOW)));
    let over = "applied (what was paid for is over): restand sub_1 cus_1 active basic of item 0 by evt_0";
    assert_eq!(ended(&held_until(NOW)), format!("{over}; tier cus_1 pro>basic"));
    assert_eq!(ended(&held_until(NOW + 1)), "no_effect (what was paid for is over): ", "not yet");
    let settled = after(Some("basic"), 99, to(&["basic"]));
    assert_eq!(ended(&settled), "no_effect (what was paid for is over): ", "it ended before");
    let mut alone = held_until(NOW);
    alone.subscription.accounts.clear();
    assert_eq!(ended(&alone), over, "of nobody");
    let forgotten = Facts {
        subscription: SubscriptionFacts { known: Known::default(), ..held_until(NOW).subscription },
        ..held_until(NOW)
    };
    assert_eq!(ended(&forgotten), "applied (what was paid for is over): tier cus_1 pro>-");
    assert_eq!(ended(&on(Some("pro"))), "no_effect (what was paid for is over): ", "nothing was ever known");
}

#[test]
fn what_is_paid_for_is_held() {
    let paid = |price: &str, amount, start: Option<UnixSeconds>, end: Option<UnixSeconds>| Line {
        amount,
        period_start: start,
        period_end: end,
        ..line(price)
    };
    let pro = || paid("pro", 1, Some(0), Some(NOW + 1));
    let with = |change: fn(&mut Invoice), lines: Vec<Line>| {
        invoice_with(|invoice| {
            (invoice.subscription, invoice.lines) = (Some(id()), Lines::Complete(lines));
            change(invoice);
        })
    };
    let basic = || after(Some("basic"), 99, to(&["basic"]));
    let held = format!("restand sub_1 cus_1 active pro until {} then basic of item 0 by evt_0", NOW + 1);
    let save = "save in_1 paid 2000";
    let grant = "grant cus_1 grant:invoice:in_1 usd 2000 -> grant:invoice:in_1";
    let mut paid_before = basic();
    paid_before.subscription.periods = vec![period("pro", 0, NOW + 1)];
    for (name, keep, given, event, expected) in [
        (
            "a higher tier",
            true,
            basic(),
            with(|_| (), vec![pro()]),
            format!("applied: {save}; periods sub_1 [in_1 pro 0..{}]; {held}; tier cus_1 basic>pro; {grant}", NOW + 1),
        ),
        (
            "a higher tier that was paid before",
            true,
            paid_before.clone(),
            with(|invoice| invoice.id = InvoiceId::parse("in_0").expect("an id"), vec![pro()]),
            format!(
                "applied: save in_0 paid 2000; periods sub_1 [in_0 pro 0..{}]; {held}; tier cus_1 basic>pro; \
                 grant cus_1 grant:invoice:in_0 usd 2000 -> grant:invoice:in_0",
                NOW + 1
            ),
        ),
        (
            "a higher tier that was paid before, and its end",
            true,
            held_until(NOW + 1),
            with(|_| (), vec![paid("basic", 1, Some(NOW + 1), Some(NOW + 2))]),
            format!(
                "applied: {save}; periods sub_1 [in_1 basic {}..{}]; \
                 restand sub_1 cus_1 active basic of item 0 by evt_0; tier cus_1 pro>basic; {grant}",
                NOW + 1,
                NOW + 2
            ),
        ),
        (
            "a higher tier that is over",
            true,
            basic(),
            with(|_| (), vec![paid("pro", 1, Some(0), Some(NOW))]),
            format!("applied: {save}; periods sub_1 [in_1 pro 0..{NOW}]; {grant}"),
        ),
        (
            "not where tiers change at once",
            false,
            basic(),
            with(|_| (), vec![pro()]),
            format!("applied: {save}; {grant}"),
        ),
        (
            "not without subscription",
            true,
            basic(),
            with(|invoice| invoice.subscription = None, vec![pro()]),
            format!("applied: {save}; {grant}"),
        ),
        (
            "not while lines are missing",
            true,
            basic(),
            with(|invoice| invoice.lines = Lines::Truncated, vec![]),
            format!("applied: {save}; {grant}"),
        ),
        (
            "not while it is not settled",
            true,
            basic(),
            with(|invoice| invoice.status = "open".into(), vec![pro()]),
            "no_effect (the invoice is not settled): save in_1 open 2000".into(),
        ),
        (
            "only what cost something, and only for a time",
            true,
            basic(),
            with(
                |_| (),
                vec![
                    paid("pro", 0, Some(0), Some(NOW + 1)),
                    paid("pro", -1, Some(0), Some(NOW + 1)),
                    paid("pro", 1, None, Some(NOW + 1)),
                    paid("pro", 1, Some(0), None),
                    Line { price: None, ..pro() },
                ],
            ),
            format!("applied: {save}; periods sub_1 []; {grant}"),
        ),
        (
            "also of a subscription that is not known yet",
            true,
            on(Some("pro")),
            with(|_| (), vec![pro()]),
            format!("applied: {save}; periods sub_1 [in_1 pro 0..{}]; {grant}", NOW + 1),
        ),
        (
            "also if it was granted before",
            true,
            Facts { granted_by: Some(event_id("evt_0")), ..basic() },
            with(|_| (), vec![pro()]),
            format!("applied: {save}; periods sub_1 [in_1 pro 0..{}]; {held}; tier cus_1 basic>pro", NOW + 1),
        ),
    ] {
        check(name, &policy(keep), &given, &event, &expected);
    }
}
