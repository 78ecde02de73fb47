use super::*;
use crate::domain::event::{Body, SubscriptionItem, Unit};
use crate::domain::ids::PriceId;
use crate::domain::policy::{Basis, Catalogue, Credits, PriceRule};

fn event_id(text: &str) -> EventId {
    EventId::parse(text).expect("an id")
}

fn price(id: &str) -> PriceRef {
    PriceRef { id: PriceId::parse(id).expect("an id"), product: None, lookup_key: None }
}

fn tiers() -> Tiers {
    Tiers {
        order: ["basic", "pro", "team"].map(str::to_owned).to_vec(),
        keep_until_period_end: false,
        access_trialing: true,
        access_past_due: true,
        access_unpaid: false,
        access_collection_paused: true,
    }
}

/// `basic`, `pro` and `team` give the tier of their name, `old` one that is not in the order, `addon` none.
fn policy(keep_until_period_end: bool) -> Policy {
    let rule = |name: &str| {
        let tier = (name != "addon").then(|| name.to_owned());
        let rule = PriceRule {
            tier,
            credits: 1,
            per_invoice: false,
            unit: "credits".into(),
            unit_amount: None,
            foreign: false,
        };
        (name.to_owned(), rule)
    };
    Policy {
        livemode: true,
        connected_account: None,
        credits: Credits { since: None, basis: Basis::Catalogue, prorate: true, unlisted_price_fails: true },
        catalogue: Catalogue::new(["basic", "pro", "team", "old", "addon"].map(rule)),
        tiers: Tiers { keep_until_period_end, ..tiers() },
        max_attempts: 5,
        asks_stripe: false,
    }
}

fn state(status: &str, prices: &[&str]) -> State {
    let item = |name: &&str| Item { id: format!("si_{name}"), price: price(name), quantity: Some(1) };
    State {
        account: Some(AccountId::parse("cus_1").expect("an id")),
        status: status.into(),
        items: prices.iter().map(item).collect(),
        current_period_end: None,
        ends_at: None,
        collection_paused: false,
    }
}

/// A snapshot whose one value is `value`, and which replaced the value `previous`.
fn snapshot(event: &str, at: UnixSeconds, place: Place, value: u64, previous: Option<u64>) -> Snapshot {
    let leaf = |value| vec![(1, value)];
    Snapshot {
        event: event_id(event),
        at,
        place,
        trace: Trace { values: leaf(value), previous: previous.map(leaf) },
        state: state("active", &["basic"]),
    }
}

fn with_state(snapshot: Snapshot, status: &str, prices: &[&str]) -> Snapshot {
    Snapshot { state: state(status, prices), ..snapshot }
}

/// What is known once all are, whatever the order.
fn known(snapshots: &[Snapshot], policy: &Policy) -> Known {
    let tell = |known: Known, one: &Snapshot| known.with(one, policy);
    let first = snapshots.iter().fold(Known::default(), tell);
    let mut order: Vec<&Snapshot> = snapshots.iter().chain(snapshots).collect();
    for rotation in 0..order.len() {
        order.rotate_left(1);
        for told in [order.clone(), order.iter().rev().copied().collect()] {
            let other = told.into_iter().fold(Known::default(), tell);
            assert_eq!(other.current(), first.current(), "rotation {rotation}");
            assert_eq!(other.listed, first.listed, "rotation {rotation}");
            assert_eq!(other.newest.len(), first.newest.len(), "rotation {rotation}");
        }
    }
    first
}

#[test]
fn the_snapshot_that_counts_is_the_same_in_any_order() {
    use Place::{Change, Created, Deleted, Plain};
    let plain = |event: &str, at| snapshot(event, at, Plain, 0, None);
    let rows: Vec<(&str, Vec<Snapshot>, &str)> = vec![
        ("the only one", vec![plain("evt_1", 1)], "evt_1"),
        ("the newer one", vec![plain("evt_9", 1), plain("evt_1", 2)], "evt_1"),
        (
            "canceled beats what is newer",
            vec![with_state(plain("evt_1", 1), "canceled", &[]), plain("evt_9", 9)],
            "evt_1",
        ),
        (
            "so does incomplete_expired",
            vec![with_state(plain("evt_1", 1), "incomplete_expired", &[]), plain("evt_9", 9)],
            "evt_1",
        ),
        ("unpaid does not", vec![with_state(plain("evt_1", 1), "unpaid", &[]), plain("evt_9", 9)], "evt_9"),
        (
            "of two that are over the newer one",
            vec![with_state(plain("evt_9", 1), "canceled", &[]), with_state(plain("evt_1", 2), "canceled", &[])],
            "evt_1",
        ),
        ("in one second created comes first", vec![snapshot("evt_9", 1, Created, 1, None), plain("evt_1", 1)], "evt_1"),
        (
            "what tells what it changed comes after what does not",
            vec![plain("evt_9", 1), snapshot("evt_1", 1, Change, 2, Some(1))],
            "evt_1",
        ),
        (
            "deleted comes last",
            vec![snapshot("evt_9", 1, Change, 2, Some(1)), snapshot("evt_1", 1, Deleted, 2, None)],
            "evt_1",
        ),
        (
            "of two changes the one that follows",
            vec![snapshot("evt_9", 1, Change, 2, Some(1)), snapshot("evt_1", 1, Change, 3, Some(2))],
            "evt_1",
        ),
        (
            "the end of a chain",
            vec![
                snapshot("evt_9", 1, Change, 2, Some(1)),
                snapshot("evt_1", 1, Change, 3, Some(2)),
                snapshot("evt_2", 1, Change, 4, Some(3)),
            ],
            "evt_2",
        ),
        (
            "of two ends the greater id",
            vec![
                snapshot("evt_9", 1, Change, 2, Some(1)),
                snapshot("evt_1", 1, Change, 3, Some(2)),
                snapshot("evt_2", 1, Change, 4, Some(2)),
            ],
            "evt_2",
        ),
        (
            "a round has no end: the greatest id",
            vec![snapshot("evt_9", 1, Change, 2, Some(1)), snapshot("evt_1", 1, Change, 1, Some(2))],
            "evt_9",
        ),
        ("nobody knows: the greater id", vec![plain("evt_1", 1), plain("evt_2", 1)], "evt_2"),
        (
            "a change of another second follows nothing",
            vec![snapshot("evt_1", 2, Change, 2, Some(1)), snapshot("evt_9", 1, Change, 3, Some(2))],
            "evt_1",
        ),
    ];
    for (name, snapshots, expected) in rows {
        let known = known(&snapshots, &policy(false));
        assert_eq!(known.current().map(|current| current.event.as_str()), Some(expected), "{name}");
    }
    assert_eq!(Known::default().current(), None);
}

#[test]
fn an_event_has_its_place_by_its_type_and_by_what_it_tells() {
    let rows = [
        ("customer.subscription.created", None, Place::Created),
        ("customer.subscription.created", Some(vec![]), Place::Created),
        ("customer.subscription.deleted", None, Place::Deleted),
        ("customer.subscription.updated", None, Place::Plain),
        ("customer.subscription.updated", Some(vec![]), Place::Change),
        ("customer.subscription.updated", Some(vec![(1, 1)]), Place::Change),
        ("customer.subscription.paused", None, Place::Plain),
    ];
    for (kind, previous, place) in rows {
        let (event, mut subscription) = told(kind);
        subscription.trace.previous = previous;
        let snapshot = Snapshot::of(&event, &subscription);
        assert_eq!(snapshot.place, place, "{kind}");
        assert_eq!((snapshot.event, snapshot.at), (event.id, 7));
        assert_eq!((snapshot.trace, snapshot.state), (subscription.trace.clone(), State::of(&subscription)));
    }
    assert!(Place::Created < Place::Plain && Place::Plain < Place::Change && Place::Change < Place::Deleted);
}

fn told(kind: &str) -> (Event, Subscription) {
    let event = Event {
        id: event_id("evt_1"),
        kind: kind.into(),
        created: 7,
        livemode: true,
        stripe_account: None,
        api_version: None,
        object_id: None,
        body: Body::Other,
    };
    let item = SubscriptionItem {
        id: "si_1".into(),
        price: price("pro"),
        unit: Unit::Untold,
        currency: None,
        quantity: Some(3),
    };
    let subscription = Subscription {
        id: SubscriptionId::parse("sub_1").expect("an id"),
        customer: AccountId::parse("cus_1").ok(),
        status: "active".into(),
        items: vec![item],
        items_truncated: false,
        current_period_end: Some(100),
        cancel_at: None,
        cancel_at_period_end: false,
        ended_at: None,
        collection_paused: true,
        reference: None,
        trace: Trace::default(),
    };
    (event, subscription)
}

#[test]
fn a_state_is_all_columns_of_one_snapshot() {
    let (_, subscription) = told("customer.subscription.updated");
    let expected = State {
        items: vec![Item { id: "si_1".into(), price: price("pro"), quantity: Some(3) }],
        current_period_end: Some(100),
        collection_paused: true,
        ..state("active", &[])
    };
    assert_eq!(State::of(&subscription), expected);
    // cancel_at, at the end of the period, ended at, expected end.
    let rows = [
        (None, false, None, None),
        (None, true, None, Some(100)),
        (Some(50), false, None, Some(50)),
        (Some(50), true, None, Some(50)),
        (Some(50), true, Some(40), Some(40)),
        (None, false, Some(40), Some(40)),
    ];
    for (cancel_at, cancel_at_period_end, ended_at, ends_at) in rows {
        let one = Subscription { cancel_at, cancel_at_period_end, ended_at, ..subscription.clone() };
        let name = format!("{cancel_at:?} {cancel_at_period_end} {ended_at:?}");
        assert_eq!(State::of(&one).ends_at, ends_at, "{name}");
    }
}

/// Tier and the position of its item, pending tier and time.
type Stands = (Option<&'static str>, Option<usize>, Option<(Option<&'static str>, UnixSeconds)>);

fn check(name: &str, known: &Known, periods: &[PaidPeriod], policy: &Policy, now: UnixSeconds, expected: &Stands) {
    let id = SubscriptionId::parse("sub_1").expect("an id");
    let told = standing(&id, known, periods, policy, now).expect("a standing");
    let pending = told.pending.as_ref().map(|pending| (pending.tier.as_deref(), pending.at));
    assert_eq!((told.tier.as_deref(), told.tier_item, pending), *expected, "{name}");
    let current = known.current().expect("a snapshot");
    assert_eq!((told.id, told.source, told.snapshot_at), (id, current.event.clone(), current.at), "{name}");
    assert_eq!(told.state, current.state, "{name}");
}

#[test]
fn the_tier_is_the_highest_of_its_listed_prices() {
    let policy = policy(false);
    let rows: [(&[&str], Stands, bool); 10] = [
        (&["basic"], (Some("basic"), Some(0), None), false),
        (&["basic", "team", "pro"], (Some("team"), Some(1), None), false),
        (&["addon", "pro"], (Some("pro"), Some(1), None), false),
        (&["addon"], (None, None, None), false),
        (&["pro", "pro"], (Some("pro"), Some(0), None), false),
        (&["old"], (Some("old"), Some(0), None), false),
        (&["old", "basic"], (Some("basic"), Some(1), None), false),
        (&["odd"], (None, None, None), true),
        (&["odd", "basic"], (Some("basic"), Some(1), None), false),
        (&[], (None, None, None), false),
    ];
    for (prices, expected, unlisted) in rows {
        let one = with_state(snapshot("evt_1", 1, Place::Plain, 0, None), "active", prices);
        let known = known(std::slice::from_ref(&one), &policy);
        check(&format!("{prices:?}"), &known, &[], &policy, 5, &expected);
        let id = SubscriptionId::parse("sub_1").expect("an id");
        assert_eq!(standing(&id, &known, &[], &policy, 5).map(|told| told.unlisted), Some(unlisted), "{prices:?}");
        assert_eq!(standing(&id, &Known::default(), &[], &policy, 5), None);
    }
}

#[test]
fn while_no_price_is_listed_the_newest_one_that_was_counts() {
    let policy = policy(false);
    let at =
        |event: &str, at, prices: &[&str]| with_state(snapshot(event, at, Place::Plain, 0, None), "active", prices);
    let early =
        |event: &str, prices: &[&str]| with_state(snapshot(event, 5, Place::Created, 0, None), "active", prices);
    let rows: Vec<(&str, Vec<Snapshot>, Option<&'static str>)> = vec![
        ("the one before", vec![at("evt_1", 1, &["pro"]), at("evt_2", 2, &["odd"])], Some("pro")),
        (
            "the newest before",
            vec![at("evt_1", 1, &["team"]), at("evt_2", 2, &["basic"]), at("evt_3", 3, &["odd"])],
            Some("basic"),
        ),
        (
            "several unlisted ones change nothing",
            vec![at("evt_1", 1, &["pro"]), at("evt_2", 2, &["odd"]), at("evt_3", 3, &["strange"])],
            Some("pro"),
        ),
        ("none before", vec![at("evt_1", 1, &["odd"])], None),
        (
            "a listed price without a tier is listed",
            vec![at("evt_1", 1, &["pro"]), at("evt_2", 2, &["addon"]), at("evt_3", 3, &["odd"])],
            None,
        ),
        (
            "in one second by place",
            vec![early("evt_9", &["team"]), at("evt_1", 5, &["pro"]), at("evt_3", 6, &["odd"])],
            Some("pro"),
        ),
        (
            "then by id",
            vec![at("evt_9", 5, &["team"]), at("evt_1", 5, &["pro"]), at("evt_3", 6, &["odd"])],
            Some("team"),
        ),
        ("no items at all is no unlisted price", vec![at("evt_1", 1, &["pro"]), at("evt_2", 2, &[])], None),
    ];
    for (name, snapshots, tier) in rows {
        check(name, &known(&snapshots, &policy), &[], &policy, 9, &(tier, None, None));
    }
}

#[test]
fn a_tier_is_held_until_it_is_paid_through() {
    let period = |name: &str, starts_at, ends_at| PaidPeriod {
        invoice: InvoiceId::parse("in_1").expect("an id"),
        price: price(name),
        starts_at,
        ends_at,
    };
    let pro = || period("pro", 0, 100);
    type Row = (&'static str, &'static str, &'static str, Vec<PaidPeriod>, UnixSeconds, Stands);
    let held = |tier, until| (Some(tier), Some(0), Some((Some("basic"), until)));
    let own = (Some("basic"), Some(0), None);
    let rows: Vec<Row> = vec![
        ("held", "active", "basic", vec![pro()], 99, held("pro", 100)),
        ("over", "active", "basic", vec![pro()], 100, own),
        ("nothing was paid", "active", "basic", vec![], 1, own),
        (
            "the latest end",
            "active",
            "basic",
            vec![pro(), period("pro", 0, 150), period("pro", 0, 70)],
            99,
            held("pro", 150),
        ),
        ("the highest tier first", "active", "basic", vec![pro(), period("team", 0, 50)], 9, held("team", 50)),
        ("then the next one", "active", "basic", vec![pro(), period("team", 0, 50)], 50, held("pro", 100)),
        ("an upgrade is immediate", "active", "basic", vec![period("basic", 0, 100)], 9, own),
        ("a tier out of order holds nothing", "active", "basic", vec![period("old", 0, 100)], 9, own),
        ("an unlisted price holds nothing", "active", "basic", vec![period("odd", 0, 100)], 9, own),
        ("the next period is paid", "active", "basic", vec![pro(), period("basic", 100, 200)], 9, own),
        ("it began later", "active", "basic", vec![pro(), period("basic", 101, 200)], 9, own),
        ("it began before", "active", "basic", vec![pro(), period("basic", 99, 200)], 9, held("pro", 100)),
        (
            "the next period of another price",
            "active",
            "basic",
            vec![pro(), period("addon", 100, 200)],
            9,
            held("pro", 100),
        ),
        (
            "released from one, held by the next",
            "active",
            "basic",
            vec![pro(), period("team", 0, 50), period("basic", 50, 80)],
            9,
            held("pro", 100),
        ),
        ("held while it is overdue", "past_due", "basic", vec![pro()], 9, held("pro", 100)),
        ("not when it is over", "canceled", "basic", vec![pro()], 9, own),
        ("nor when it expired", "incomplete_expired", "basic", vec![pro()], 9, own),
        ("towards no tier", "active", "addon", vec![pro()], 9, (Some("pro"), None, Some((None, 100)))),
        ("the own tier itself is not held", "active", "pro", vec![pro()], 9, (Some("pro"), Some(0), None)),
    ];
    for (name, status, price, periods, now, expected) in rows {
        let one = with_state(snapshot("evt_1", 1, Place::Plain, 0, None), status, &[price]);
        let held = known(std::slice::from_ref(&one), &policy(true));
        check(name, &held, &periods, &policy(true), now, &expected);
        let immediate = (expected.2.map_or(expected.0, |(tier, _)| tier), expected.1, None);
        check(&format!("{name}, but immediate"), &held, &periods, &policy(false), now, &immediate);
    }
}

#[test]
fn access_follows_from_the_status_and_the_config() {
    use Access::{Denied, Given, UnknownStatus};
    let all = |given| Tiers {
        access_trialing: given,
        access_past_due: given,
        access_unpaid: given,
        access_collection_paused: given,
        ..tiers()
    };
    // With everything allowed, with nothing allowed, and with nothing but one switch of its own.
    let rows = [
        ("active", Given, Given),
        ("trialing", Given, Denied),
        ("past_due", Given, Denied),
        ("unpaid", Given, Denied),
        ("incomplete", Denied, Denied),
        ("incomplete_expired", Denied, Denied),
        ("paused", Denied, Denied),
        ("canceled", Denied, Denied),
        ("hibernating", UnknownStatus, UnknownStatus),
    ];
    for (status, allowed, refused) in rows {
        assert_eq!(access(status, false, &all(true)), allowed, "{status}");
        assert_eq!(access(status, false, &all(false)), refused, "{status}");
        assert_eq!(access(status, true, &all(true)), allowed, "{status}, paused");
        let paused = if refused == Given { Denied } else { refused };
        assert_eq!(access(status, true, &all(false)), paused, "{status}, paused");
        let switches = [
            ("trialing", Tiers { access_trialing: true, ..all(false) }),
            ("past_due", Tiers { access_past_due: true, ..all(false) }),
            ("unpaid", Tiers { access_unpaid: true, ..all(false) }),
        ];
        for (of, tiers) in switches {
            let expected = if status == of { Given } else { refused };
            assert_eq!(access(status, false, &tiers), expected, "{status} where {of} gives access");
        }
    }
}

#[test]
fn an_account_has_the_highest_tier_that_gives_access() {
    let one = |tier: Option<&str>, status: &str, collection_paused| Contribution {
        id: SubscriptionId::parse("sub_1").expect("an id"),
        status: status.into(),
        collection_paused,
        tier: tier.map(str::to_owned),
    };
    let active = |tier: &str| one(Some(tier), "active", false);
    let strict = Tiers { access_collection_paused: false, ..tiers() };
    let rows: Vec<(&str, Vec<Contribution>, Option<&str>)> = vec![
        ("no subscription", vec![], None),
        ("one", vec![active("basic")], Some("basic")),
        ("the highest", vec![active("basic"), active("team"), active("pro")], Some("team")),
        ("not without access", vec![active("basic"), one(Some("team"), "canceled", false)], Some("basic")),
        ("nor paused", vec![active("basic"), one(Some("team"), "active", true)], Some("basic")),
        ("nor in an unknown status", vec![one(Some("team"), "odd", false)], None),
        ("one without tier", vec![one(None, "active", false), active("basic")], Some("basic")),
        ("a tier that is not listed any more", vec![active("old")], Some("old")),
        ("is below all", vec![active("basic"), active("old")], Some("basic")),
        ("of two such the greater name", vec![active("old"), active("ancient")], Some("old")),
    ];
    for (name, subscriptions, expected) in rows {
        assert_eq!(account_tier(&subscriptions, &strict).as_deref(), expected, "{name}");
        assert_eq!(account_tier(subscriptions.iter().rev(), &strict).as_deref(), expected, "{name}, reversed");
    }
    let standing = Standing {
        id: SubscriptionId::parse("sub_1").expect("an id"),
        state: State { collection_paused: true, ..state("past_due", &["pro"]) },
        tier_item: Some(0),
        tier: Some("pro".into()),
        pending: None,
        unlisted: false,
        source: event_id("evt_1"),
        snapshot_at: 1,
    };
    assert_eq!(Contribution::of(&standing), one(Some("pro"), "past_due", true));
}
