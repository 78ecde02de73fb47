use super::*;

const USD: &str = "usd";

fn currency(code: &str) -> Currency {
    Currency::parse(code).expect("a currency")
}

fn event(text: &str) -> EventId {
    EventId::parse(text).expect("an id")
}

fn charge_id(text: &str) -> ChargeId {
    ChargeId::parse(text).expect("an id")
}

fn names(intent: Option<&str>, charge: Option<&str>) -> PaymentRef {
    PaymentRef {
        payment_intent: intent.map(|text| PaymentId::parse(text).expect("an id")),
        charge: charge.map(charge_id),
    }
}

fn charge(id: &str, captured: i64, refunded: i64, at: UnixSeconds) -> ChargeHeld {
    ChargeHeld {
        id: charge_id(id),
        intent: None,
        account: None,
        currency: currency(USD),
        captured,
        refunded,
        at,
        source: event("evt_charge"),
    }
}

fn refund(amount: i64, status: Option<&str>, created: UnixSeconds, failed_at: Option<UnixSeconds>) -> RefundHeld {
    RefundHeld {
        id: RefundId::parse("re_1").expect("an id"),
        payment: names(Some("pi_1"), None),
        amount,
        currency: currency(USD),
        status: status.map(str::to_owned),
        created,
        failed_at,
        at: created,
        source: event("evt_refund"),
    }
}

fn of_charge(refund: RefundHeld, charge: &str) -> RefundHeld {
    RefundHeld { payment: names(None, Some(charge)), ..refund }
}

/// A dispute over 100 in dollars that was withdrawn and reinstated at these times.
fn dispute(status: &str, withdrawn_at: Option<UnixSeconds>, reinstated_at: Option<UnixSeconds>) -> DisputeHeld {
    DisputeHeld {
        id: DisputeId::parse("dp_1").expect("an id"),
        payment: names(None, Some("ch_1")),
        amount: 100,
        currency: currency(USD),
        status: status.into(),
        withdrawn_at,
        reinstated_at,
        at: 10,
        source: event("evt_dispute"),
    }
}

fn paid(snapshots: Vec<ChargeHeld>, refunds: Vec<RefundHeld>, disputes: Vec<DisputeHeld>) -> Payment {
    Payment { intent: names(Some("pi_1"), None).payment_intent, charges: Vec::new(), snapshots, refunds, disputes }
}

fn granted(units: &[(&str, i64, i64)]) -> Granted {
    let unit = |(unit, granted, taken): &(&str, i64, i64)| UnitGranted {
        unit: (*unit).into(),
        granted: *granted,
        taken: *taken,
        taken_before: 0,
    };
    Granted { account: AccountId::parse("cus_1").expect("an id"), units: units.iter().map(unit).collect() }
}

#[test]
fn refunded_is_what_the_newest_snapshot_says_corrected_by_what_it_cannot_know() {
    let ok = Some("succeeded");
    let failed = Some("failed");
    let at_10 = |refunded| vec![charge("ch_1", 1000, refunded, 10)];
    let rows: &[(&str, Vec<ChargeHeld>, Vec<RefundHeld>, i128)] = &[
        ("nothing is known", vec![], vec![], 0),
        ("without a snapshot refunds count by themselves", vec![], vec![refund(30, ok, 1, None)], 30),
        ("a pending one too", vec![], vec![refund(30, Some("pending"), 1, None)], 30),
        ("one without status too", vec![], vec![refund(30, None, 1, None)], 30),
        ("one in a status that is new too", vec![], vec![refund(30, Some("odd"), 1, None)], 30),
        ("a failed one does not", vec![], vec![refund(30, failed, 1, Some(2))], 0),
        ("a canceled one does not", vec![], vec![refund(30, Some("canceled"), 1, Some(2))], 0),
        ("several add up", vec![], vec![refund(30, ok, 1, None), refund(12, ok, 2, None)], 42),
        ("the snapshot alone", at_10(70), vec![], 70),
        ("the snapshot knows what was made before it", at_10(70), vec![refund(30, ok, 9, None)], 70),
        ("and what was made in its second", at_10(70), vec![refund(30, ok, 10, None)], 70),
        ("but not what was made after it", at_10(70), vec![refund(30, ok, 11, None)], 100),
        ("made after it, and failed", at_10(70), vec![refund(30, failed, 11, Some(12))], 70),
        ("failed before it: it knows", at_10(70), vec![refund(30, failed, 5, Some(9))], 70),
        ("failed in its second: it counted it still", at_10(70), vec![refund(30, failed, 5, Some(10))], 40),
        ("failed after it", at_10(70), vec![refund(30, failed, 5, Some(11))], 40),
        ("made in its second, failed after it", at_10(70), vec![refund(30, failed, 10, Some(11))], 40),
        ("failed, but recovered since", at_10(70), vec![refund(30, ok, 5, Some(11))], 70),
        ("failed, nobody told when", at_10(70), vec![refund(30, failed, 5, None)], 70),
        ("never below nothing", at_10(10), vec![refund(30, failed, 5, Some(11))], 0),
        (
            "two charges add up, each refund is measured by its own",
            vec![charge("ch_1", 500, 20, 10), charge("ch_2", 500, 5, 20)],
            vec![of_charge(refund(7, ok, 15, None), "ch_1"), of_charge(refund(9, ok, 15, None), "ch_2")],
            32,
        ),
        ("a refund that names no charge is measured by the only one", at_10(70), vec![refund(30, ok, 9, None)], 70),
        (
            "with several it counts by itself",
            vec![charge("ch_1", 500, 20, 10), charge("ch_2", 500, 5, 20)],
            vec![refund(7, ok, 1, None)],
            32,
        ),
        (
            "a refund of a charge without a snapshot counts by itself",
            at_10(70),
            vec![of_charge(refund(30, ok, 5, None), "ch_2")],
            100,
        ),
    ];
    for (name, snapshots, refunds, expected) in rows {
        assert_eq!(paid(snapshots.clone(), refunds.clone(), vec![]).refunded(), *expected, "{name}");
    }
}

#[test]
fn disputed_is_what_is_out_with_the_bank() {
    let rows = [
        ("needs_response", Some(1), None, true),
        ("needs_response", None, None, true),
        ("under_review", Some(1), None, true),
        ("lost", Some(1), None, true),
        ("a status that is new", None, None, true),
        ("appeal_under_review", Some(1), None, true),
        ("won", Some(1), None, false),
        ("prevented", None, None, false),
        ("warning_needs_response", None, None, false),
        ("warning_under_review", None, None, false),
        ("warning_closed", None, None, false),
        ("lost", Some(1), Some(2), false),
        ("lost", Some(2), Some(2), false),
        ("lost", Some(3), Some(2), true),
        ("lost", None, Some(2), false),
        ("won", Some(3), Some(2), false),
    ];
    for (status, withdrawn, reinstated, out) in rows {
        let payment = paid(vec![], vec![], vec![dispute(status, withdrawn, reinstated)]);
        let expected = if out { 100 } else { 0 };
        let name = format!("{status}, withdrawn {withdrawn:?}, reinstated {reinstated:?}");
        assert_eq!(payment.disputed(currency(USD)), Some(expected), "{name}");
        assert_eq!(payment.disputed(currency("eur")), if out { None } else { Some(0) }, "{name}, in euros");
        let odd = [payment.clone()];
        assert_eq!(disputes_in_other_currency(&odd, currency("eur")).len(), usize::from(out), "{name}");
        assert!(disputes_in_other_currency(&odd, currency(USD)).is_empty(), "{name}");
    }
    let two = vec![dispute("lost", None, None), DisputeHeld { amount: 11, ..dispute("under_review", None, None) }];
    assert_eq!(paid(vec![], vec![], two).disputed(currency(USD)), Some(111));
}

#[test]
fn the_target_is_the_share_that_went_back() {
    let ok = Some("succeeded");
    let refunded = |amount| paid(vec![], vec![refund(amount, ok, 1, None)], vec![]);
    let disputed = || paid(vec![], vec![], vec![dispute("lost", None, None)]);
    let in_euros = || {
        let other = DisputeHeld { currency: currency("eur"), ..dispute("lost", None, None) };
        paid(vec![], vec![], vec![other])
    };
    // Name, units (granted, taken), paid, payments, corrections.
    type Row = (&'static str, Vec<(&'static str, i64, i64)>, i64, Vec<Payment>, Vec<(&'static str, i64)>);
    let rows: Vec<Row> = vec![
        ("nothing went back", vec![("credits", 100, 0)], 1000, vec![refunded(0)], vec![]),
        ("no payment at all", vec![("credits", 100, 0)], 1000, vec![], vec![]),
        ("a half", vec![("credits", 100, 0)], 1000, vec![refunded(500)], vec![("credits", -50)]),
        ("rounded down", vec![("credits", 100, 0)], 1000, vec![refunded(333)], vec![("credits", -33)]),
        ("less than one credit", vec![("credits", 100, 0)], 1000, vec![refunded(9)], vec![]),
        ("all", vec![("credits", 100, 0)], 1000, vec![refunded(1000)], vec![("credits", -100)]),
        ("never more than all", vec![("credits", 100, 0)], 1000, vec![refunded(1500)], vec![("credits", -100)]),
        ("what is taken already", vec![("credits", 100, 20)], 1000, vec![refunded(500)], vec![("credits", -30)]),
        ("all is as it should be", vec![("credits", 100, 50)], 1000, vec![refunded(500)], vec![]),
        ("given again", vec![("credits", 100, 80)], 1000, vec![refunded(500)], vec![("credits", 30)]),
        ("all given again", vec![("credits", 100, 80)], 1000, vec![refunded(0)], vec![("credits", 80)]),
        (
            "each unit by itself",
            vec![("credits", 100, 0), ("sms", 7, 3), ("usd", 2, 0)],
            1000,
            vec![refunded(500)],
            vec![("credits", -50), ("usd", -1)],
        ),
        ("refunds and disputes add up", vec![("c", 100, 0)], 1000, vec![refunded(300), disputed()], vec![("c", -40)]),
        ("payments add up", vec![("c", 100, 0)], 1000, vec![refunded(300), refunded(100)], vec![("c", -40)]),
        ("another currency takes all", vec![("c", 100, 30)], 1000, vec![in_euros()], vec![("c", -70)]),
        ("and beside others too", vec![("c", 100, 0)], 1000, vec![refunded(1), in_euros()], vec![("c", -100)]),
        (
            "unknown, but captured",
            vec![("c", 100, 0)],
            0,
            vec![paid(vec![charge("ch_1", 200, 50, 1)], vec![], vec![])],
            vec![("c", -25)],
        ),
        (
            "told beats captured",
            vec![("c", 100, 0)],
            400,
            vec![paid(vec![charge("ch_1", 200, 100, 1)], vec![], vec![])],
            vec![("c", -25)],
        ),
        (
            "captured by several",
            vec![("c", 100, 0)],
            0,
            vec![
                paid(vec![charge("ch_1", 150, 50, 1), charge("ch_2", 50, 0, 1)], vec![], vec![]),
                paid(vec![charge("ch_3", 200, 0, 1)], vec![], vec![]),
            ],
            vec![("c", -12)],
        ),
        ("unknown, but nothing went back", vec![("c", 100, 7)], 0, vec![refunded(0)], vec![("c", 7)]),
        (
            "numbers beyond what fits when multiplied",
            vec![("c", i64::MAX, 0)],
            i64::MAX,
            vec![refunded(i64::MAX)],
            vec![("c", -i64::MAX)],
        ),
    ];
    for (name, units, amount, payments, expected) in rows {
        let expected: Vec<Correction> =
            expected.iter().map(|(unit, amount)| Correction { unit: (*unit).into(), amount: *amount }).collect();
        let told = corrections(&granted(&units), amount, currency(USD), &payments);
        assert_eq!(told, Outcome::Corrections(expected), "{name}");
    }
}

#[test]
fn a_share_of_an_unknown_amount_waits_for_the_charges() {
    let mut one = paid(vec![], vec![refund(10, None, 1, None)], vec![]);
    let other = Payment { intent: None, charges: vec![charge_id("ch_7"), charge_id("ch_8")], ..Payment::default() };
    let grant = granted(&[("c", 100, 0)]);
    let told = corrections(&grant, 0, currency(USD), &[one.clone(), other]);
    let waits = [names(Some("pi_1"), None), names(None, Some("ch_7")), names(None, Some("ch_8"))];
    assert_eq!(told, Outcome::Unknown(waits.to_vec()));
    // Money in another currency is not known either.
    one.snapshots = vec![ChargeHeld { currency: currency("eur"), ..charge("ch_1", 100, 0, 1) }];
    one.charges = vec![charge_id("ch_1")];
    let told = corrections(&grant, 0, currency(USD), std::slice::from_ref(&one));
    assert_eq!(told, Outcome::Corrections(vec![]), "the refund is within the snapshot");
    one.refunds[0].created = 2;
    let told = corrections(&grant, -5, currency(USD), &[one]);
    assert_eq!(told, Outcome::Unknown(vec![names(Some("pi_1"), Some("ch_1"))]));
}

/// Both orders of telling give the one that is expected.
fn newest<T: Clone + PartialEq + std::fmt::Debug>(name: &str, merge: fn(T, T) -> T, one: &T, other: &T, expected: &T) {
    assert_eq!(&merge(one.clone(), other.clone()), expected, "{name}");
    assert_eq!(&merge(other.clone(), one.clone()), expected, "{name}, the other way round");
    assert_eq!(&merge(expected.clone(), one.clone()), expected, "{name}, told again");
}

#[test]
fn the_newest_snapshot_of_a_charge_counts() {
    let with = |refunded, captured, at, source: &str| ChargeHeld {
        source: event(source),
        ..charge("ch_1", captured, refunded, at)
    };
    let rows = [
        ("the later one", with(9, 9, 1, "evt_9"), with(5, 5, 2, "evt_1")),
        ("in one second the larger refund", with(5, 9, 1, "evt_9"), with(6, 5, 1, "evt_1")),
        ("then what captured more", with(5, 5, 1, "evt_9"), with(5, 6, 1, "evt_1")),
        ("then the greater id", with(5, 5, 1, "evt_1"), with(5, 5, 1, "evt_2")),
    ];
    for (name, older, newer) in &rows {
        newest(name, ChargeHeld::newest, older, newer, newer);
    }
}

#[test]
fn the_newest_snapshot_of_a_refund_counts_and_the_first_failure_stays() {
    let with = |status: Option<&str>, at, source: &str| RefundHeld {
        at,
        source: event(source),
        ..refund(10, status, 1, None)
    };
    let rows = [
        ("the later one", with(Some("failed"), 1, "evt_9"), with(Some("pending"), 2, "evt_1")),
        ("in one second failed", with(Some("succeeded"), 1, "evt_9"), with(Some("failed"), 1, "evt_1")),
        ("in one second canceled", with(Some("succeeded"), 1, "evt_9"), with(Some("canceled"), 1, "evt_1")),
        ("succeeded before the rest", with(Some("requires_action"), 1, "evt_9"), with(Some("succeeded"), 1, "evt_1")),
        ("a status before none", with(None, 1, "evt_9"), with(Some("pending"), 1, "evt_1")),
        ("then the greater id", with(Some("failed"), 1, "evt_1"), with(Some("canceled"), 1, "evt_2")),
    ];
    for (name, older, newer) in &rows {
        newest(name, RefundHeld::newest, older, newer, newer);
    }
    let failed = |at, failed_at| RefundHeld { failed_at, ..with(Some("failed"), at, "evt_1") };
    newest("the first failure", RefundHeld::newest, &failed(5, Some(5)), &failed(3, Some(3)), &failed(5, Some(3)));
    newest("the only failure", RefundHeld::newest, &failed(5, None), &failed(3, Some(3)), &failed(5, Some(3)));
    let (by_intent, by_charge) = (with(None, 1, "evt_1"), of_charge(with(None, 2, "evt_2"), "ch_1"));
    let both = RefundHeld { payment: names(Some("pi_1"), Some("ch_1")), ..by_charge.clone() };
    newest("all names of the payment", RefundHeld::newest, &by_intent, &by_charge, &both);
}

#[test]
fn the_newest_snapshot_of_a_dispute_counts_and_the_last_movements_stay() {
    let with =
        |status: &str, at, source: &str| DisputeHeld { at, source: event(source), ..dispute(status, None, None) };
    let rows = [
        ("the later one", with("won", 1, "evt_9"), with("needs_response", 2, "evt_1")),
        ("in one second won before lost", with("lost", 1, "evt_9"), with("won", 1, "evt_1")),
        ("lost before the rest", with("under_review", 1, "evt_9"), with("lost", 1, "evt_1")),
        ("then the greater id", with("needs_response", 1, "evt_1"), with("under_review", 1, "evt_2")),
    ];
    for (name, older, newer) in &rows {
        newest(name, DisputeHeld::newest, older, newer, newer);
    }
    let moved =
        |at, withdrawn_at, reinstated_at| DisputeHeld { withdrawn_at, reinstated_at, ..with("lost", at, "evt_1") };
    let (early, late) = (moved(1, Some(1), Some(4)), moved(9, Some(3), Some(2)));
    newest("the last movements", DisputeHeld::newest, &early, &late, &moved(9, Some(3), Some(4)));
    newest(
        "the only movements",
        DisputeHeld::newest,
        &moved(1, Some(1), None),
        &moved(9, None, Some(2)),
        &moved(9, Some(1), Some(2)),
    );
    let (by_charge, mut by_intent) = (with("lost", 1, "evt_1"), with("lost", 2, "evt_2"));
    by_intent.payment = names(Some("pi_1"), None);
    let both = DisputeHeld { payment: names(Some("pi_1"), Some("ch_1")), ..by_intent.clone() };
    newest("all names of the payment", DisputeHeld::newest, &by_charge, &by_intent, &both);
}

#[test]
fn a_payment_is_found_by_any_of_its_names() {
    let payment = Payment { charges: vec![charge_id("ch_1"), charge_id("ch_2")], ..paid(vec![], vec![], vec![]) };
    let rows = [
        (Some("pi_1"), None, true),
        (Some("pi_1"), Some("ch_9"), true),
        (Some("pi_9"), Some("ch_2"), true),
        (None, Some("ch_1"), true),
        (Some("pi_9"), Some("ch_9"), false),
        (None, Some("ch_9"), false),
        (None, None, false),
    ];
    for (intent, charge, is_named) in rows {
        assert_eq!(payment.is_named(&names(intent, charge)), is_named, "{intent:?} {charge:?}");
    }
    assert!(!Payment::default().is_named(&names(None, None)), "no name is nobody's");
    let both = [names(Some("pi_1"), Some("ch_1")), names(Some("pi_1"), Some("ch_2"))];
    assert_eq!(payment.names(), both);
    assert_eq!(paid(vec![], vec![], vec![]).names(), [names(Some("pi_1"), None)]);
}
