//! The events at Stripe: those that never came are fetched and run, the oldest first; what the youngest are about is
//! noted; and if none was delivered for a time, that is told.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;

use crate::clock::UnixMillis;
use crate::domain::event::UnixSeconds;
use crate::domain::reconcile::{self, Endpoint, Kind};
use crate::ops::ingest::{Answer, Delivery, Duplicates, Ingest};
use crate::ops::resolve::Resolver;
use crate::store::events::{self, Source};
use crate::store::spool::Spool;
use crate::store::writer::Batch as _;
use crate::store::{Desk, StoreError, compare};
use crate::stripe::ask::NoAnswer;
use crate::stripe::client::{ApiError, Kind as ApiKind, Page, Pages};
use crate::stripe::lists::{self, TYPES_MAX};
use crate::stripe::wire::{self, listed};

use super::run::{REACH_S, Run, Trouble};

const PATH: &str = "/v1/events";

/// What is told of Stripe's deliveries is about so long, in seconds.
const DAY_S: i64 = 86_400;

/// How many events are run in one transaction.
const BATCH: usize = 100;

/// Of a page, so many must be of other types than ours for it to pay to ask for ours alone, which takes a list for
/// each [`TYPES_MAX`] of them.
const OTHERS_MIN: usize = 10;

/// How many times all who wait are looked at for what to ask Stripe: an answer may lead to the next question.
const ROUNDS_MAX: usize = 8;

/// How many questions are asked at a time.
const AT_ONCE: usize = 4;

/// The webhook endpoints at Stripe; one that leads here and is switched off is told.
pub(super) fn endpoints(run: &mut Run<'_>) -> Result<Vec<Endpoint>, Trouble> {
    let endpoints = lists::endpoints(run.place.api)?;
    run.differences.extend(reconcile::of_endpoints(&endpoints, &run.rules.paths));
    run.looked_at_all(Kind::EndpointDisabled);
    Ok(endpoints)
}

/// Fetches the events since the last good run, and runs those that are not here.
pub(super) fn events(run: &mut Run<'_>, desk: &mut impl Desk, endpoints: Option<&[Endpoint]>) -> Result<(), Trouble> {
    if run.options.no_backfill {
        return Ok(());
    }
    let reach = run.started - REACH_S;
    let mut walk = Walk::new(run, endpoints)?;
    let listed = walk.all(run, run.since.max(reach));
    // What was fetched is run even if the list was cut short: events may come in any order.
    let mut spool = walk.spool;
    ingest(run, desk, &mut spool)?;
    listed?;
    // What is lost stays lost, though the next run reaches far enough: so no run resolves it, only a person.
    if let Some(until) = run.known.until {
        run.differences.extend(reconcile::of_reach(until, reach));
    }
    silence(run, endpoints, &walk.undelivered, walk.newest_delivered)
}

/// What the events since a little before the run are about: the objects were looked at while they changed.
pub(super) fn tail(run: &mut Run<'_>) -> Result<(), Trouble> {
    if run.differences.is_empty() && !run.options.no_backfill {
        return Ok(());
    }
    let since = run.young_since().to_string();
    for page in Pages::new(run.place.api, PATH, &[("created[gte]", &since)]) {
        for item in page.map_err(NoAnswer::from)?.items {
            match read(&item) {
                Ok(event) => run.young.extend(event.names),
                Err(error) => run.note(error.to_string()),
            }
        }
    }
    Ok(())
}

fn read(item: &RawValue) -> Result<listed::ListedEvent, NoAnswer> {
    listed::event(item.get()).map_err(|problem| lists::unreadable_item(PATH, item.get(), problem))
}

/// A walk through the list of events.
struct Walk<'a> {
    endpoints: Option<&'a [Endpoint]>,
    spool: Spool,
    /// `created` of the events that should have been delivered and were not, from before the grace.
    undelivered: Vec<UnixSeconds>,
    /// `created` of the newest event that was delivered.
    newest_delivered: Option<UnixSeconds>,
}

impl<'a> Walk<'a> {
    fn new(run: &Run<'_>, endpoints: Option<&'a [Endpoint]>) -> Result<Self, StoreError> {
        let spool = Spool::create(run.place.folder)?;
        Ok(Self { endpoints, spool, undelivered: Vec::new(), newest_delivered: None })
    }

    /// Walks with the fewest pages: all types in one list, or, where many are not ours, ours alone.
    fn all(&mut self, run: &mut Run<'_>, since: UnixSeconds) -> Result<(), Trouble> {
        let since = since.to_string();
        let created = [("created[gte]", since.as_str())];
        let mut pages = Pages::new(run.place.api, PATH, &created);
        let Some(first) = pages.next() else { return Ok(()) };
        let first = first.map_err(NoAnswer::from)?;
        if first.has_more && others(&first) >= OTHERS_MIN {
            match self.of_our_types(run, &since) {
                Err(Trouble::Stripe(NoAnswer::Api(error))) if !knows_types(&error) => {}
                done => return done,
            }
        }
        self.page(run, first)?;
        pages.try_for_each(|page| self.page(run, page.map_err(NoAnswer::from)?))
    }

    fn of_our_types(&mut self, run: &mut Run<'_>, since: &str) -> Result<(), Trouble> {
        for types in wire::event_types().chunks(TYPES_MAX) {
            let mut query = vec![("created[gte]", since)];
            query.extend(types.iter().map(|(kind, _)| ("types[]", *kind)));
            for page in Pages::new(run.place.api, PATH, &query) {
                self.page(run, page.map_err(NoAnswer::from)?)?;
            }
        }
        Ok(())
    }

    fn page(&mut self, run: &mut Run<'_>, page: Page) -> Result<(), Trouble> {
        let mut listed = Vec::with_capacity(page.items.len());
        for item in page.items {
            let event = match read(&item) {
                Ok(event) => event,
                Err(error) => {
                    let created = listed::object(item.get()).ok().and_then(|object| object.created);
                    run.lacks_event(error.to_string(), created);
                    continue;
                }
            };
            run.check_mode(event.livemode)?;
            if event.created >= run.young_since() {
                run.young.extend(event.names.iter().cloned());
            }
            if wire::is_acted_on(&event.kind) {
                listed.push((event, item));
            }
        }
        let ids: Vec<&str> = listed.iter().map(|(event, _)| event.id.as_str()).collect();
        let arrived = run.place.reader.read(|connection| compare::arrived(connection, &ids))?;
        for (event, item) in &listed {
            let held = arrived.get(event.id.as_str());
            run.counts.events += 1;
            run.counts.undelivered += u64::from(event.is_undelivered && event.created < run.young_since());
            if held.is_none() {
                run.counts.missing += 1;
                let account = run.rules.policy.connected_account.as_deref().filter(|_| !event.names_account);
                self.spool.push(event.created, as_delivered(item.get(), account).as_bytes())?;
            }
            let is_delivered = held.is_some_and(|held| held.delivered);
            let is_missed =
                !is_delivered && event.created < run.young_since() && self.is_for_us(event, &run.rules.paths);
            if is_delivered {
                self.newest_delivered = self.newest_delivered.max(Some(event.created));
            } else if is_missed {
                self.undelivered.push(event.created);
            }
            let is_of_day = (run.young_since() - DAY_S..run.young_since()).contains(&event.created);
            run.counts.of_day += u64::from(is_of_day && (is_delivered || is_missed));
            run.counts.of_day_undelivered += u64::from(is_of_day && is_missed);
        }
        (run.place.progress)("events", run.counts.events);
        Ok(())
    }

    /// Stripe should have delivered it here.
    fn is_for_us(&self, event: &listed::ListedEvent, paths: &[String]) -> bool {
        let Some(all) = self.endpoints else { return event.is_undelivered };
        let leads_here = |one: &&Endpoint| paths.iter().any(|path| reconcile::is_same_path(path, &one.path));
        let mut ours = all.iter().filter(leads_here).peekable();
        if ours.peek().is_none() {
            // Something else leads here, such as a proxy that changes paths; only without any, nothing does.
            return all.is_empty() || event.is_undelivered;
        }
        ours.any(|one| one.wants(&event.kind))
    }
}

/// The list of a connected account does not say whose it is; a delivery does, and so does what is kept.
fn as_delivered<'a>(event: &'a str, account: Option<&str>) -> Cow<'a, str> {
    match (account, event.trim_start().strip_prefix('{')) {
        (Some(account), Some(rest)) => Cow::Owned(format!("{{\"account\":{},{rest}", json!(account))),
        _ => Cow::Borrowed(event),
    }
}

/// How many of a page are not of our types.
fn others(page: &Page) -> usize {
    let is_other = |event: &listed::ListedEvent| !wire::is_acted_on(&event.kind);
    page.items.iter().filter(|item| read(item).is_ok_and(|event| is_other(&event))).count()
}

/// Look-alikes refuse, or stumble over, filters that they do not know.
fn knows_types(error: &ApiError) -> bool {
    !matches!(error.kind, ApiKind::Rejected | ApiKind::Unknown) && error.status.is_none_or(|status| status != 500)
}

/// No delivery since Stripe has events for us.
fn silence(
    run: &mut Run<'_>,
    endpoints: Option<&[Endpoint]>,
    undelivered: &[UnixSeconds],
    newest_delivered: Option<UnixSeconds>,
) -> Result<(), Trouble> {
    run.looked_at_all(Kind::Silence);
    let is_later = |created: &&UnixSeconds| newest_delivered.is_none_or(|newest| **created > newest);
    if !undelivered.iter().any(|created| is_later(&created)) {
        return Ok(());
    }
    let last = run.place.reader.read(events::last_delivery)?;
    // Nothing was ever delivered: it counts from when somebody first looked.
    let last = last.or(run.known.first).unwrap_or(run.started);
    let silent = undelivered.iter().filter(is_later).filter(|created| **created > last).count();
    if silent > 0 {
        (run.counts.silent, run.counts.silent_since) = (silent as u64, Some(last));
        run.differences.extend(reconcile::of_silence(&run.rules.paths, endpoints, last));
    }
    Ok(())
}

/// Runs what was fetched, the oldest first, and what it waits for as far as Stripe tells.
fn ingest(run: &mut Run<'_>, desk: &mut impl Desk, spool: &mut Spool) -> Result<(), Trouble> {
    if spool.is_empty() {
        return Ok(());
    }
    let mut done = 0;
    while !spool.is_empty() {
        if run.place.stop.is_set() {
            return Err(NoAnswer::from(ApiError::new(ApiKind::Stopped, PATH, "billingd is being stopped")).into());
        }
        let received = (run.place.clock)();
        let mut deliveries = Vec::with_capacity(BATCH);
        for (body, payload) in spool.take(BATCH)? {
            match wire::read(&body, &run.rules.metadata_key) {
                Ok(event) => {
                    deliveries.push(Delivery { event, payload: Some(payload), source: Source::Backfill, received });
                }
                Err(problem) => {
                    let listed = std::str::from_utf8(&body).ok().and_then(|json| listed::event(json).ok());
                    let id = listed.as_ref().map_or("an event", |event| event.id.as_str());
                    run.lacks_event(format!("{PATH}: {id}: {problem}"), listed.as_ref().map(|event| event.created));
                }
            }
        }
        done += deliveries.len() as u64;
        for answer in deliver(run, desk, deliveries, received)? {
            match answer {
                Answer::Completed { .. } | Answer::Duplicate { .. } => run.counts.completed += 1,
                Answer::Pending { .. } => run.counts.pending += 1,
                Answer::Failed { .. } | Answer::DeadLetter { .. } => run.counts.failed += 1,
            }
        }
        (run.place.progress)("missing events", done);
    }
    answer_questions(run, desk)
}

/// Runs a batch, and whatever is woken.
fn deliver(
    run: &Run<'_>,
    desk: &mut impl Desk,
    deliveries: Vec<Delivery>,
    now: UnixMillis,
) -> Result<Vec<Answer>, StoreError> {
    let (policy, key) = (Arc::clone(&run.rules.policy), run.rules.metadata_key.clone());
    let (answers, mut more) = desk.write(move |transaction| {
        let mut ingest = Ingest::new(policy, key, Duplicates::default());
        let answers = ingest.run(transaction, deliveries, now)?;
        Ok((answers, ingest.is_urgent(now)))
    })?;
    while more {
        let (policy, key) = (Arc::clone(&run.rules.policy), run.rules.metadata_key.clone());
        more = desk.write(move |transaction| {
            let mut ingest = Ingest::new(policy, key, Duplicates::default());
            ingest.run(transaction, Vec::new(), now)?;
            Ok(ingest.is_urgent(now))
        })?;
    }
    Ok(answers)
}

/// What fetched events wait for and Stripe tells is asked at once, so that the comparison sees them done: until all who
/// wait were looked at once more and nothing was left to ask, or nobody answers.
fn answer_questions(run: &Run<'_>, desk: &mut impl Desk) -> Result<(), Trouble> {
    let (api, clock, stop) = (run.place.api, run.place.clock, run.place.stop);
    let mut resolver = Resolver::new(AT_ONCE);
    let mut round_asked = false;
    while resolver.rounds() < ROUNDS_MAX && !resolver.rests(clock()) && !stop.is_set() {
        let rounds = resolver.rounds();
        run.place.reader.read(|connection| resolver.look(connection, clock()))?;
        if resolver.due().next().is_some() {
            round_asked = true;
            if resolver.pass(api, desk, clock, stop)?.answered > 0 {
                deliver(run, desk, Vec::new(), clock())?;
            }
        }
        if resolver.rounds() > rounds && !std::mem::take(&mut round_asked) {
            return Ok(());
        }
    }
    Ok(())
}
