//! When a person is called: what was seen in, conditions out, in words for somebody who reads them on a phone at night.
//!
//! A condition is told once, and once more when it is gone; so its name stays the same for as long as it lasts, whatever
//! its text says. Duplicates alone are no condition: they prove that the guard works.

mod told;

use crate::domain::event::UnixSeconds;
use crate::domain::words::{age, ago, counted, quoted};

pub use told::{Alert, Alerts, Notice, OVER_AFTER_S, State};

/// What a backup or a migration needs besides the size of the database, in bytes; with less than this, new deliveries
/// are better sent elsewhere.
pub const DISK_BYTES_MIN: u64 = 64 << 20;

/// Of fewer deliveries in a day no rate is judged: a single one that a restart has cost is a tenth of ten, and Stripe
/// sends it again.
pub const DELIVERIES_MIN: i64 = 10;

/// Over so many hours wrong signatures must be spread: a stranger who tries something is gone by then, while Stripe tries
/// each event again after minutes and after hours.
pub const MISMATCHED_HOURS_MIN: i64 = 3;

/// What the last reconciliation saw of Stripe's side tells nothing about today when it is older, in seconds.
const RUN_AGE_MAX_S: i64 = 2 * 86_400;

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// Why the database takes no writes now, if it does not.
    pub storage: Option<String>,
    /// The disk of the database, if it can be asked.
    pub room: Option<Room>,
    /// The write-ahead log.
    pub wal: Wal,
    /// Our answers of the last 24 h.
    pub answers: Answers,
    /// In how many of these hours something was signed with none of our secrets.
    pub mismatched_hours: i64,
    /// What Stripe did not deliver, as the last complete reconciliation saw it.
    pub missed: Option<Missed>,
    /// The open finding that Stripe delivers nothing at all.
    pub silence: Option<Silence>,
    /// Events that a person must look at.
    pub dead_letters: Open,
    /// Events that failed, and were received at least [`Thresholds::failed_age_s`] ago.
    pub failed: Open,
    /// Events that wait, and were received at least [`Thresholds::pending_age_s`] ago.
    pub pending: Open,
    /// Other open findings, by kind.
    pub findings: Vec<Findings>,
    /// The jobs that are overdue.
    pub overdue: Vec<Overdue>,
}

/// Events that are not completed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Open {
    /// How many.
    pub count: i64,
    /// The one that was received first, and when.
    pub first: Option<(String, UnixSeconds)>,
}

/// Room on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// For this user.
    pub free: u64,
    /// The size of the database.
    pub database: u64,
}

/// The size of a write-ahead log, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wal {
    /// Now.
    pub bytes: u64,
    /// To what it is cut back once no reader needs more of it.
    pub bytes_max: u64,
}

/// How deliveries were answered. What anybody could cause is neither good nor bad.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// Authentic, and answered 2xx.
    pub good: i64,
    /// Authentic, and refused or answered 5xx.
    pub bad: i64,
    /// Signed with none of our secrets.
    pub mismatched: i64,
}

/// Events that Stripe has for us, of the last 24 h before a run of reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// When the run began.
    pub run_at: UnixSeconds,
    /// How many there were.
    pub events: i64,
    /// How many of them Stripe did not get delivered here.
    pub undelivered: i64,
}

/// No delivery, although Stripe has events for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// How many events, if the run that found it tells.
    pub events: Option<i64>,
    /// When the last delivery came, or when it was found out.
    pub since: UnixSeconds,
}

/// Open findings of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Their kind.
    pub kind: String,
    /// How many.
    pub count: i64,
    /// When the first of them was seen first.
    pub since: UnixSeconds,
}

/// A job that should have run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// Its name.
    pub job: &'static str,
    /// When it should have begun.
    pub due: UnixSeconds,
    /// When its last good run began.
    pub last: Option<UnixSeconds>,
}

/// From when on something is a condition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// So many events may be pending.
    pub pending_count: i64,
    /// The age from which a pending event counts, in seconds.
    pub pending_age_s: i64,
    /// The age from which a failed event counts, in seconds.
    pub failed_age_s: i64,
    /// The share of good answers, in millionths.
    pub success_rate_millionths: u32,
    /// So many deliveries must be signed wrongly.
    pub mismatched_count: i64,
    /// In so many different hours.
    pub mismatched_hours: i64,
}

/// Something that a person should know now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What it is, in a word that stays: `dead_letter`, `job:backup`.
    pub name: String,
    /// What, how many, and for how long.
    pub text: String,
    /// The command that helps, and what it tells.
    pub remedy: String,
    /// Since when, if that is known.
    pub since: Option<UnixSeconds>,
}

/// What a person should know of what was seen, the most urgent first.
#[must_use]
pub fn conditions(seen: &Readings, thresholds: &Thresholds, now: UnixSeconds) -> Vec<Condition> {
    let mut conditions = Vec::new();
    conditions.extend(seen.storage.as_deref().map(storage));
    conditions.extend(seen.room.and_then(disk));
    conditions.extend(signature(seen, thresholds));
    conditions.extend(success_rate(seen.answers, thresholds));
    conditions.extend(seen.silence.map(|silence| silent(silence, now)));
    // Of silence all of it is undelivered; once is enough.
    conditions.extend(seen.missed.filter(|_| seen.silence.is_none()).and_then(|seen| missed(seen, thresholds, now)));
    conditions.extend(dead_letter(&seen.dead_letters, now));
    conditions.extend(failed(&seen.failed, thresholds, now));
    conditions.extend(pending(&seen.pending, thresholds, now));
    conditions.extend(findings(&seen.findings, now));
    conditions.extend(seen.overdue.iter().map(|seen| overdue(seen, now)));
    conditions.extend(wal(seen.wal));
    conditions
}

/// What is not done and is no condition yet, with what is to come. `failed`: the failed events of any age.
#[must_use]
pub fn early(failed: &Open, seen: &Readings, thresholds: &Thresholds, now: UnixSeconds) -> Vec<Condition> {
    let lately = self::failed(failed, &Thresholds { failed_age_s: 0, ..*thresholds }, now);
    let lately = lately.filter(|_| seen.failed.count == 0).map(|condition| {
        let alert = age(thresholds.failed_age_s);
        let remedy = format!("Stripe will try again. No alert yet: it comes once an event has failed for {alert}");
        Condition { remedy, ..condition }
    });
    let few = pending(&seen.pending, &Thresholds { pending_count: 0, ..*thresholds }, now);
    let few = few.filter(|_| seen.pending.count <= thresholds.pending_count).map(|condition| {
        let count = thresholds.pending_count;
        Condition { remedy: format!("No alert yet: it comes once more than {count} wait for so long"), ..condition }
    });
    lately.into_iter().chain(few).collect()
}

impl Condition {
    fn new(name: &str, since: Option<UnixSeconds>, text: String, remedy: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text, remedy: remedy.into(), since }
    }
}

/// The books cannot be read, so nobody knows what else there is.
#[must_use]
pub fn unreadable(why: &str) -> Condition {
    Condition::new(
        "database",
        None,
        format!("the database cannot be read, so nothing of the books is watched: {why}"),
        "`journalctl -u billingd` and `billingd doctor` tell more",
    )
}

fn storage(why: &str) -> Condition {
    Condition::new(
        "storage",
        None,
        format!("the database takes no writes, so deliveries are answered 503: {why}"),
        "`journalctl -u billingd` tells since when; look at the disk, then `billingd doctor`",
    )
}

/// A disk with less than a backup or a migration needs.
#[must_use]
pub fn disk(room: Room) -> Option<Condition> {
    let (free, database) = (room.free >> 20, room.database >> 20);
    (room.free < room.database.saturating_add(DISK_BYTES_MIN)).then(|| {
        Condition::new(
            "disk",
            None,
            format!("{free} MiB free beside a database of {database} MiB"),
            "make room, or move the database to another disk",
        )
    })
}

/// Nothing at all was authentic, and wrong signatures keep coming: then it is hardly somebody else who signs wrongly.
fn signature(seen: &Readings, thresholds: &Thresholds) -> Option<Condition> {
    let Answers { good, bad, mismatched } = seen.answers;
    let keep_coming =
        mismatched >= thresholds.mismatched_count.max(1) && seen.mismatched_hours >= thresholds.mismatched_hours;
    let requests =
        if mismatched == 1 { "the only request".into() } else { format!("every one of {mismatched} requests") };
    (good == 0 && bad == 0 && keep_coming).then(|| {
        Condition::new(
            "signature",
            None,
            format!("{requests} of the last 24 h failed its signature: is the signing secret right?"),
            "compare [[webhook]] signing_secrets with the endpoint's secret in Stripe's dashboard, then restart billingd",
        )
    })
}

fn success_rate(answers: Answers, thresholds: &Thresholds) -> Option<Condition> {
    let Answers { good, bad, .. } = answers;
    let all = good.saturating_add(bad);
    is_below(good, all, thresholds).then(|| {
        let (is, expected) = (percent(share(good, all)), percent(thresholds.success_rate_millionths.into()));
        Condition::new(
            "success_rate",
            None,
            format!("{bad} of {all} deliveries of the last 24 h failed: {is} went well, {expected} should"),
            "`billingd events list --status failed` and `journalctl -u billingd` tell why",
        )
    })
}

fn silent(silence: Silence, now: UnixSeconds) -> Condition {
    let events = silence.events.map_or_else(|| "events".into(), |events| counted(events, "event"));
    Condition::new(
        "silence",
        Some(silence.since),
        format!("Stripe has {events} for us, and has delivered nothing for {}", age(now - silence.since)),
        "`billingd doctor` tells whether the endpoint is enabled and leads here; `billingd reconcile` fetches what is \
         missing",
    )
}

fn missed(seen: Missed, thresholds: &Thresholds, now: UnixSeconds) -> Option<Condition> {
    let Missed { run_at, events, undelivered } = seen;
    let counts = now - run_at <= RUN_AGE_MAX_S && is_below(events.saturating_sub(undelivered), events, thresholds);
    counts.then(|| {
        Condition::new(
            "undelivered",
            None,
            format!(
                "Stripe could not deliver {undelivered} of {} of the 24 h before the reconciliation {} ago",
                counted(events, "event"),
                age(now - run_at)
            ),
            "`billingd doctor` looks at the endpoint; Stripe's dashboard shows how it was answered",
        )
    })
}

fn dead_letter(events: &Open, now: UnixSeconds) -> Option<Condition> {
    let (first, since) = events.first.as_ref()?;
    let text = format!("{}; {}", counted(events.count, "dead letter"), oldest(events.count, first, now - since));
    let first = quoted(first);
    let remedy = format!(
        "`billingd events show {first}` tells why; remove the cause, then `billingd events replay {first}`, or dismiss it"
    );
    Some(Condition::new("dead_letter", Some(*since), text, remedy))
}

fn failed(events: &Open, thresholds: &Thresholds, now: UnixSeconds) -> Option<Condition> {
    let (first, since) = events.first.as_ref()?;
    let (count, oldest) = (counted(events.count, "event"), oldest(events.count, first, now - since));
    let for_so_long = at_least(thresholds.failed_age_s);
    let remedy = "`billingd events list --status failed` tells why; remove the cause, then `billingd events replay ID`, or \
                  dismiss it";
    Some(Condition::new("failed", Some(*since), format!("{count} failed{for_so_long}; {oldest}"), remedy))
}

fn pending(events: &Open, thresholds: &Thresholds, now: UnixSeconds) -> Option<Condition> {
    let (first, since) = events.first.as_ref().filter(|_| events.count > thresholds.pending_count)?;
    let (count, oldest) = (counted(events.count, "event"), oldest(events.count, first, now - since));
    let for_so_long = at_least(thresholds.pending_age_s);
    let remedy = "`billingd events list --status pending` tells for what";
    Some(Condition::new("pending", Some(*since), format!("{count} pending{for_so_long}; {oldest}"), remedy))
}

fn findings(seen: &[Findings], now: UnixSeconds) -> Option<Condition> {
    let since = seen.iter().map(|one| one.since).min()?;
    let kinds: Vec<String> = seen.iter().map(|one| format!("{} {}", one.count, one.kind)).collect();
    let all = counted(seen.iter().map(|one| one.count).sum::<i64>(), "open finding");
    let text = format!("{all} ({}), first seen {}", kinds.join(", "), ago(now - since));
    Some(Condition::new("findings", Some(since), text, "`billingd findings list` tells what to do about each"))
}

fn overdue(seen: &Overdue, now: UnixSeconds) -> Condition {
    let Overdue { job, due, last } = *seen;
    let last = last.map_or_else(|| "never".into(), |at| format!("{} ago", age(now - at)));
    Condition::new(
        &format!("job:{job}"),
        Some(due),
        format!("the job {job} was due {} ago, and ran well {last}", age(now - due)),
        "the log of the server tells why: `journalctl -u billingd`",
    )
}

fn wal(Wal { bytes, bytes_max }: Wal) -> Option<Condition> {
    (bytes > bytes_max).then(|| {
        Condition::new(
            "wal",
            None,
            format!(
                "the write-ahead log has grown to {} MiB: something has read the database for long, such as a backup, a \
                 `billingd verify` or another program",
                bytes >> 20
            ),
            "a backup and a verify end by themselves; of other programs `fuser -v` with the path of the database shows \
             which; end it",
        )
    })
}

fn oldest(count: i64, id: &str, seconds: i64) -> String {
    let which = if count == 1 { "it is" } else { "the oldest is" };
    format!("{which} {id}, received {} ago", age(seconds))
}

fn at_least(seconds: i64) -> String {
    if seconds > 0 { format!(" for {} or longer", age(seconds)) } else { String::new() }
}

fn is_below(good: i64, all: i64, thresholds: &Thresholds) -> bool {
    all >= DELIVERIES_MIN && share(good, all) < thresholds.success_rate_millionths.into()
}

/// In millionths, rounded down.
fn share(part: i64, all: i64) -> i128 {
    i128::from(part) * 1_000_000 / i128::from(all.max(1))
}

fn percent(millionths: i128) -> String {
    format!("{}.{} %", millionths / 10_000, millionths / 1_000 % 10)
}

#[cfg(test)]
mod tests;
