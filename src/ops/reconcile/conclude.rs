//! What a run concludes: findings, the findings that are gone, its row and its line in the audit log.

use std::collections::HashSet;

use rusqlite::Transaction;

use crate::domain::event::UnixSeconds;
use crate::domain::reconcile::{Difference, Kind};
use crate::ops::apply::to_json;
use crate::store::audit::{self, Record};
use crate::store::{Desk, StoreError, compare, findings, runs};

use super::run::Run;
use super::{Ended, Report};

/// How many findings are written in one transaction.
const BATCH: usize = 100;

/// Writes down what a run came to. `all_events`: the list of events was walked through to its end.
pub(super) fn conclude(
    mut run: Run<'_>,
    desk: &mut impl Desk,
    number: i64,
    all_events: bool,
) -> Result<Report, StoreError> {
    // A list may show one object twice, and one subject may differ in several ways: the first counts.
    let mut told = HashSet::new();
    run.differences.retain(|one| told.insert((one.kind, one.finding.subject.clone())));
    leave_what_is_in_flight(&mut run);
    leave_what_has_a_reason(&mut run)?;
    let result = match (run.cut_short.is_empty(), run.did_something) {
        (true, _) => Ended::Ok,
        (false, true) => Ended::Partial,
        (false, false) => Ended::Failed,
    };
    let now = (run.place.clock)() / 1000;
    tell(&mut run, desk, now)?;
    if result == Ended::Ok {
        resolve(&mut run, desk, now)?;
    }
    run.counts.open = run.place.reader.read(findings::count_open)?;
    // Whatever another part could not tell, the events were all seen.
    let known_until = (all_events && run.key_fits && shows_all(&run))
        .then(|| run.unread_since.map_or(run.started, |oldest| oldest.min(run.started)));
    let report = Report {
        run: number,
        result,
        since: run.since,
        counts: run.counts,
        cut_short: run.cut_short,
        cannot_tell: run.cannot_tell,
    };
    let (detail, actor, since) = (to_json(&report)?, run.place.actor.to_owned(), run.since);
    desk.write(move |transaction| {
        let ended = runs::Ended { result: result.as_str(), since, known_until, counts: &detail };
        runs::end(transaction, number, ended, now)?;
        record(transaction, &actor, number, &detail, now)
    })?;
    Ok(report)
}

/// The run looked at least as far back as was known before.
fn shows_all(run: &Run<'_>) -> bool {
    !run.options.no_backfill && run.known.until.is_none_or(|until| run.since <= until)
}

fn record(
    transaction: &Transaction<'_>,
    actor: &str,
    number: i64,
    detail: &str,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    let subject = format!("run {number}");
    let record = Record { at: now, actor, action: "reconcile", subject: &subject, event_id: None, detail };
    audit::append(transaction, audit::head(transaction)?, &record)?;
    Ok(())
}

/// What an event of the last minutes is about is looked at in the next run.
fn leave_what_is_in_flight(run: &mut Run<'_>) {
    let differences = std::mem::take(&mut run.differences);
    let is_young = |one: &Difference| one.names.iter().any(|name| run.young.contains(name));
    let (young, kept): (Vec<_>, Vec<_>) = differences.into_iter().partition(is_young);
    run.counts.in_flight = young.len() as u64;
    run.differences = kept;
    for one in young {
        let held = run.before.get_mut(&one.finding.subject).into_iter().flatten();
        held.filter(|(kind, _)| *kind == one.kind).for_each(|(_, looked)| *looked = false);
    }
}

/// What grants nothing because its event was not for us, or somebody dismissed it, lacks nothing.
fn leave_what_has_a_reason(run: &mut Run<'_>) -> Result<(), StoreError> {
    let is_asked = |one: &Difference| one.kind == Kind::MissingGrant && one.event.is_none();
    let subjects: Vec<String> =
        run.differences.iter().filter(|one| is_asked(one)).map(|one| one.finding.subject.clone()).collect();
    if subjects.is_empty() {
        return Ok(());
    }
    let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
    let reasons = compare::reasons(run.place.reader, &subjects)?;
    run.differences.retain(|one| one.kind != Kind::MissingGrant || !reasons.contains_key(&one.finding.subject));
    Ok(())
}

/// Writes all findings.
fn tell(run: &mut Run<'_>, desk: &mut impl Desk, now: UnixSeconds) -> Result<(), StoreError> {
    for one in &run.differences {
        let held = run.before.get(&one.finding.subject).into_iter().flatten();
        let is_known = held.into_iter().any(|(kind, _)| *kind == one.kind);
        let count = if is_known { &mut run.counts.found_again } else { &mut run.counts.found };
        *count += 1;
    }
    for batch in run.differences.chunks(BATCH) {
        let batch = batch.to_vec();
        desk.write(move |transaction| batch.iter().try_for_each(|one| findings::tell(transaction, one, now)))?;
    }
    Ok(())
}

/// Resolves the findings whose subjects were looked at, and which were not told again.
fn resolve(run: &mut Run<'_>, desk: &mut impl Desk, now: UnixSeconds) -> Result<(), StoreError> {
    let told: HashSet<(Kind, &str)> =
        run.differences.iter().map(|one| (one.kind, one.finding.subject.as_str())).collect();
    let mut gone = Vec::new();
    for (subject, held) in &run.before {
        let of_it = held.iter().filter(|(kind, looked)| *looked && !told.contains(&(*kind, subject)));
        gone.extend(of_it.map(|(kind, _)| (*kind, subject.clone())));
    }
    run.counts.resolved = gone.len() as u64;
    for batch in gone.chunks(BATCH) {
        let batch = batch.to_vec();
        desk.write(move |transaction| {
            batch.iter().try_for_each(|(kind, subject)| findings::resolve(transaction, kind.as_str(), subject, now))
        })?;
    }
    Ok(())
}
