use super::*;

const NOW: UnixSeconds = 1_000_000;

const THRESHOLDS: Thresholds = Thresholds {
    pending_count: 5,
    pending_age_s: 300,
    failed_age_s: 3_600,
    success_rate_millionths: 990_000,
    mismatched_count: DELIVERIES_MIN,
    mismatched_hours: MISMATCHED_HOURS_MIN,
};

fn open(count: i64, age_s: i64) -> Open {
    Open { count, first: (count > 0).then(|| ("evt_1".to_owned(), NOW - age_s)) }
}

fn answers(good: i64, bad: i64, mismatched: i64) -> Readings {
    Readings { answers: Answers { good, bad, mismatched }, ..Readings::default() }
}

fn mismatched(count: i64, hours: i64) -> Readings {
    Readings { mismatched_hours: hours, ..answers(0, 0, count) }
}

fn missed(events: i64, undelivered: i64, run_age_s: i64) -> Readings {
    Readings { missed: Some(Missed { run_at: NOW - run_age_s, events, undelivered }), ..Readings::default() }
}

fn findings(counts: &[(&str, i64, i64)]) -> Readings {
    let findings = counts.iter().map(|(kind, count, age_s)| Findings {
        kind: (*kind).to_owned(),
        count: *count,
        since: NOW - age_s,
    });
    Readings { findings: findings.collect(), ..Readings::default() }
}

fn silence(events: Option<i64>) -> Option<Silence> {
    Some(Silence { events, since: NOW - 108_000 })
}

fn overdue(last: Option<UnixSeconds>) -> Readings {
    Readings { overdue: vec![Overdue { job: "backup", due: NOW - 7_200, last }], ..Readings::default() }
}

fn room(free: u64, database: u64) -> Readings {
    Readings { room: Some(Room { free: free << 20, database: database << 20 }), ..Readings::default() }
}

#[track_caller]
fn check(seen: &Readings, told: &[&str]) {
    let conditions = conditions(seen, &THRESHOLDS, NOW);
    let texts: Vec<String> = conditions.iter().map(|one| format!("{}: {}", one.name, one.text)).collect();
    assert_eq!(texts, told);
    assert!(conditions.iter().all(|one| !one.remedy.is_empty()));
}

#[test]
fn nothing_seen_is_nothing_told() {
    check(&Readings::default(), &[]);
}

#[test]
fn events_that_are_not_done() {
    let none = Readings::default;
    check(&Readings { pending: open(5, 400), ..none() }, &[]);
    check(
        &Readings { pending: open(6, 7_380), ..none() },
        &["pending: 6 events pending for 5m or longer; the oldest is evt_1, received 2h 3m ago"],
    );
    check(
        &Readings { failed: open(1, 3_600), ..none() },
        &["failed: 1 event failed for 1h 0m or longer; it is evt_1, received 1h 0m ago"],
    );
    check(
        &Readings { dead_letters: open(1, 60), ..none() },
        &["dead_letter: 1 dead letter; it is evt_1, received 1m ago"],
    );
    check(
        &Readings { dead_letters: open(3, 180_000), ..none() },
        &["dead_letter: 3 dead letters; the oldest is evt_1, received 2d 2h ago"],
    );
}

#[test]
fn what_calls_nobody_yet_is_told_too() {
    let early = |failed: Open, seen: Readings| {
        let told = early(&failed, &seen, &THRESHOLDS, NOW);
        told.iter().map(|one| format!("{}: {}. {}", one.name, one.text, one.remedy)).collect::<Vec<_>>()
    };
    let pending = |count| Readings { pending: open(count, 300), ..Readings::default() };
    assert_eq!(early(open(0, 0), Readings::default()), [""; 0]);
    assert_eq!(
        early(open(1, 180), Readings::default()),
        [
            "failed: 1 event failed; it is evt_1, received 3m ago. Stripe will try again. No alert yet: it comes once an \
          event has failed for 1h 0m"
        ]
    );
    assert_eq!(
        early(open(0, 0), pending(5)),
        [
            "pending: 5 events pending for 5m or longer; the oldest is evt_1, received 5m ago. No alert yet: it comes once \
          more than 5 wait for so long"
        ]
    );
    assert_eq!(early(open(0, 0), pending(6)), [""; 0], "that is a condition");
    let both = Readings { failed: open(1, 3_600), ..Readings::default() };
    assert_eq!(early(open(2, 3_600), both), [""; 0], "that is a condition");
}

#[test]
fn without_an_age_all_count() {
    let seen = Readings { failed: open(2, 60), pending: open(1, 60), ..Readings::default() };
    let told = conditions(&seen, &Thresholds::default(), NOW);
    let texts: Vec<&str> = told.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(
        texts,
        ["2 events failed; the oldest is evt_1, received 1m ago", "1 event pending; it is evt_1, received 1m ago"]
    );
}

#[test]
fn findings_are_one_condition() {
    check(&findings(&[]), &[]);
    check(&findings(&[("missing_grant", 1, 60)]), &["findings: 1 open finding (1 missing_grant), first seen 1m ago"]);
    check(
        &findings(&[("missing_grant", 2, 60), ("surplus_credit", 1, 90_000)]),
        &["findings: 3 open findings (2 missing_grant, 1 surplus_credit), first seen 1d 1h ago"],
    );
}

#[test]
fn silence_tells_how_much_is_not_heard() {
    for (events, text) in [(Some(1), "1 event"), (Some(12), "12 events"), (None, "events")] {
        check(
            &Readings { silence: silence(events), ..Readings::default() },
            &[&format!("silence: Stripe has {text} for us, and has delivered nothing for 1d 6h")],
        );
    }
    check(
        &Readings { silence: silence(None), ..missed(100, 100, 60) },
        &["silence: Stripe has events for us, and has delivered nothing for 1d 6h"],
    );
}

#[test]
fn a_rate_is_judged_from_ten_deliveries_on() {
    check(&answers(0, 9, 0), &[]);
    check(&answers(99, 1, 0), &[]);
    check(&answers(9_900, 100, 0), &[]);
    check(
        &answers(0, 10, 0),
        &["success_rate: 10 of 10 deliveries of the last 24 h failed: 0.0 % went well, 99.0 % should"],
    );
    check(
        &answers(9_899, 101, 7),
        &["success_rate: 101 of 10000 deliveries of the last 24 h failed: 98.9 % went well, 99.0 % should"],
    );
}

#[test]
fn wrong_signatures_count_only_where_nothing_else_comes_and_they_keep_coming() {
    check(&Readings { mismatched_hours: 24, ..answers(1, 0, 500) }, &[]);
    check(&Readings { mismatched_hours: 24, ..answers(0, 1, 500) }, &[]);
    // A scanner: one request at night, or many at once.
    check(&mismatched(1, 1), &[]);
    check(&mismatched(500, 2), &[]);
    check(&mismatched(9, 9), &[]);
    check(
        &mismatched(10, 3),
        &["signature: every one of 10 requests of the last 24 h failed its signature: is the signing secret right?"],
    );
}

#[test]
fn who_looks_with_no_thresholds_is_told_of_one_wrong_signature() {
    let told = |seen: &Readings| -> Vec<String> {
        let told = conditions(seen, &Thresholds::default(), NOW);
        told.into_iter().map(|one| one.text).collect()
    };
    assert_eq!(told(&mismatched(0, 0)), [""; 0]);
    assert_eq!(
        told(&mismatched(1, 1)),
        ["the only request of the last 24 h failed its signature: is the signing secret right?"]
    );
}

#[test]
fn what_stripe_could_not_deliver() {
    check(&missed(9, 9, 60), &[]);
    check(&missed(100, 1, 60), &[]);
    check(&missed(100, 2, RUN_AGE_MAX_S + 1), &[]);
    check(
        &missed(100, 2, 7_200),
        &["undelivered: Stripe could not deliver 2 of 100 events of the 24 h before the reconciliation 2h 0m ago"],
    );
}

#[test]
fn jobs_and_the_machine() {
    check(&overdue(None), &["job:backup: the job backup was due 2h 0m ago, and ran well never"]);
    check(&overdue(Some(NOW - 86_400)), &["job:backup: the job backup was due 2h 0m ago, and ran well 1d 0h ago"]);
    check(&room(164, 100), &[]);
    check(&room(163, 100), &["disk: 163 MiB free beside a database of 100 MiB"]);
    let wal = |mib: u64| Wal { bytes: mib << 20, bytes_max: 64 << 20 };
    check(&Readings { wal: wal(64), ..Readings::default() }, &[]);
    check(
        &Readings { wal: wal(80), ..Readings::default() },
        &[
            "wal: the write-ahead log has grown to 80 MiB: something has read the database for long, such as a backup, a \
           `billingd verify` or another program",
        ],
    );
    check(
        &Readings { storage: Some("the writer has not moved for 21 s".into()), ..Readings::default() },
        &["storage: the database takes no writes, so deliveries are answered 503: the writer has not moved for 21 s"],
    );
}

#[test]
fn the_most_urgent_comes_first() {
    let seen = Readings {
        storage: Some("the disk is full".into()),
        dead_letters: open(1, 60),
        pending: open(9, 400),
        ..findings(&[("missing_grant", 1, 60)])
    };
    let told = conditions(&seen, &THRESHOLDS, NOW);
    let names: Vec<&str> = told.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["storage", "dead_letter", "pending", "findings"]);
    let since: Vec<Option<UnixSeconds>> = told.iter().map(|one| one.since).collect();
    assert_eq!(since, [None, Some(NOW - 60), Some(NOW - 400), Some(NOW - 60)]);
}
