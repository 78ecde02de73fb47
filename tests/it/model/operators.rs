//! Books that somebody keeps: between the deliveries an operator replays, dismisses and takes that back, prunes, backs up,
//! restores, takes over an old table, repairs, and corrects the price list. The books must equal the model all the same.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use billingd::domain::decision::Outcome;
use billingd::domain::ids::EventId;
use billingd::domain::policy::{Catalogue, Policy};
use billingd::ops::adjust::{self, AdjustError, Adjustment};
use billingd::ops::ingest::{Answer, Delivery, Duplicates, Errand, Ingest};
use billingd::ops::replay::{self, End, How, Replayed};
use billingd::ops::retain::{self, Keep};
use billingd::ops::{backup, dismiss, import_ledger, ingest, reap, repair, restore, verify};
use billingd::stop::Stop;
use billingd::store::open::{self, Binding, CommandConnection, ServerConnection};
use billingd::store::payload;
use billingd::store::reader::Reader;
use billingd::store::rehearsal::Rehearsal;
use billingd::store::unfinished::Choice;
use billingd::store::writer::Batch as _;
use billingd::store::{Desk, StoreError};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, named_params};
use serde::Serialize;
use serde_json::json;
use tempfile::TempDir;

use super::table::{Favour, Table};
use super::{Life, Rules, courier, expected, number};
use crate::books::{Counts, Totals, count, delivery, differences, drain, exercise, number_of, price_list, totals};
use crate::harness::wait_until;
use crate::sim::world::{ADDON, PRICES, SMS, Step};
use crate::sim::{Action, Rng, Told, World};

/// The type of events that are for nobody.
const NOISE: &str = "product.updated";

const BOOKS: &str = "books.db";

/// What must never be found after a step, and what it would mean.
const NEVER: &[(&str, &str)] = &[
    (
        "SELECT count(*) FROM events WHERE status = 'failed' AND attempts >= :max AND dead_letter = 0",
        "failed too often, and is no dead letter",
    ),
    (
        "SELECT count(*) FROM events WHERE error_code = 'waited_too_long' AND needs IS NULL AND :max > 0",
        "failed, and lost its diagnosis to the reaper",
    ),
    (
        "SELECT count(*) FROM events e WHERE status = 'failed' AND :max > 0
           AND EXISTS (SELECT 1 FROM ledger_entries WHERE fact = 'grant:invoice:' || e.object_id)",
        "failed, although its fact stands",
    ),
];

/// What the reaper must run: it is open, and has rested for ten minutes, doubled by each failure.
const RESTED: &str = "SELECT event_id FROM events WHERE status <> 'completed' AND dead_letter = 0
                      AND tried_at <= ?1 - (600000 << min(attempts, 10))";

/// What has not run now, and is still open.
const UNTRIED: &str = "SELECT event_id FROM events WHERE status <> 'completed' AND tried_at < ?1";

/// What must have been done, or the test proves nothing.
const LIVED: &[&str] = &[
    "act: adjust",
    "act: back up",
    "act: bring again",
    "act: correct the price list",
    "act: dismiss",
    "act: dismiss for a while",
    "act: dry run",
    "act: import a table",
    "act: prune",
    "act: reap",
    "act: repair duplicates",
    "act: replay failed",
    "act: replay ignored",
    "act: replay pending",
    "act: replay some",
    "act: restart",
    "act: restore",
    "act: take a dismissal back",
    "adjusted",
    "adjusted again",
    "dead letters: dismissed",
    "dead letters: revived by a redelivery",
    "dead letters: revived by a replay",
    "dead letters: failed too often",
    "dead letters: of the reaper",
    "dead letters: woke",
    "entry: clawback",
    "entry: restore",
    "held tier",
    "healed without a redelivery",
    "imported: already_imported",
    "imported: imported",
    "imported: repeat_reversed",
    "pruned: events",
    "pruned: payloads",
    "replayed: already_completed",
    "replayed: applied",
    "replayed: dead_letter",
    "replayed: dismissed",
    "replayed: failed",
    "replayed: ignored",
    "replayed: no_payload",
    "replayed: pending",
    "repaired",
    "taken back: applied",
    "taken back: failed",
    "taken back: pending",
];

/// What is wrong with the price list at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    Nothing,
    /// It lacks a price, so what sells it fails.
    Lacks(usize),
    /// It says that a price is of another product, so what sells it is ignored. Only what is always sold alone: an
    /// invoice that sells something else as well is granted for that, and a grant is for good.
    Foreign(usize),
}

impl Gap {
    /// The rules with this gap.
    fn within(self, mut policy: Policy) -> Policy {
        let rules = price_list().filter_map(|(id, mut rule)| match self {
            Self::Lacks(price) if id == PRICES[price].id => None,
            Self::Foreign(price) => {
                rule.foreign |= id == PRICES[price].id;
                Some((id, rule))
            }
            _ => Some((id, rule)),
        });
        policy.catalogue = Catalogue::new(rules);
        policy
    }
}

/// Writes as the server's own writer would, without the rest that a command takes.
struct Pen<'a>(&'a Connection);

impl Desk for Pen<'_> {
    fn write<T, W>(&mut self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let transaction = Transaction::new_unchecked(self.0, TransactionBehavior::Immediate)?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }
}

/// A backup, and how many rounds had been delivered when it was taken.
struct Shelved {
    path: PathBuf,
    rounds: usize,
}

/// Books in a file, with whoever looks after them.
struct Office {
    folder: TempDir,
    server: Option<ServerConnection>,
    policy: Arc<Policy>,
    ingest: Ingest,
    now_ms: i64,
    shelved: Option<Shelved>,
    counts: Counts,
    problems: Vec<String>,
    answers: Vec<Answer>,
}

fn binding() -> Binding {
    Binding { livemode: true, connected_account: None }
}

fn fresh(policy: &Arc<Policy>) -> Ingest {
    Ingest::new(policy.clone(), "account_id".into(), Duplicates::default())
}

/// Empty books, from which each life has a copy: to make them costs more than most lives.
struct Empty(TempDir);

impl Empty {
    fn new() -> Self {
        let folder = in_memory();
        let server = open::server(&folder.path().join(BOOKS), &binding()).expect("a database");
        payload::keep_dictionary(server.connection()).unwrap();
        Self(folder)
    }
}

/// A folder in memory, where the system has one: what is tested here is not the disk.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

impl Office {
    fn open(empty: &Empty, policy: Policy, now: i64) -> Self {
        let folder = in_memory();
        std::fs::copy(empty.0.path().join(BOOKS), folder.path().join(BOOKS)).expect("a copy");
        let policy = Arc::new(policy);
        let mut office = Self {
            folder,
            server: None,
            ingest: fresh(&policy),
            policy,
            now_ms: now * 1000,
            shelved: None,
            counts: Counts::new(),
            problems: Vec::new(),
            answers: Vec::new(),
        };
        office.restart();
        office
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(BOOKS)
    }

    fn restart(&mut self) {
        self.server = None;
        let server = open::server(&self.path(), &binding()).expect("a database");
        payload::keep_dictionary(server.connection()).unwrap();
        self.server = Some(server);
        self.ingest = fresh(&self.policy);
    }

    fn connection(&self) -> &Connection {
        self.server.as_ref().unwrap().connection()
    }

    fn pen(&self) -> Pen<'_> {
        Pen(self.connection())
    }

    fn errand(&self) -> Errand {
        let rules = ingest::Rules { policy: self.policy.clone(), metadata_key: "account_id".into() };
        Errand::new(rules, "operator:alice")
    }

    fn did(&mut self, what: &str) {
        count(&mut self.counts, what, 1);
    }

    fn require(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }

    fn deliver<'a>(&mut self, batch: impl IntoIterator<Item = &'a Delivery>) -> Vec<Answer> {
        let batch = batch.into_iter().map(|one| Delivery { received: self.now_ms, ..one.clone() }).collect();
        let server = self.server.as_ref().unwrap().connection();
        let transaction = Transaction::new_unchecked(server, TransactionBehavior::Immediate).unwrap();
        let answers = self.ingest.run(&transaction, batch, self.now_ms).expect("a batch");
        transaction.commit().unwrap();
        answers
    }

    /// The same, as Stripe does it.
    fn bring(&mut self, batch: Vec<&Delivery>) {
        let dead = self.dead();
        let brought: BTreeSet<&str> = batch.iter().map(|delivery| delivery.event.id.as_str()).collect();
        let answers = self.deliver(batch.iter().copied());
        self.answers.extend(answers);
        self.count_healed(&dead, "revived by a redelivery", |id| brought.contains(id));
        self.count_healed(&dead, "woke", |id| !brought.contains(id));
        self.check_rows("a delivery");
    }

    fn check_rows(&mut self, after: &str) {
        for (sql, problem) in NEVER {
            let max = named_params! { ":max": self.policy.max_attempts };
            let found: i64 = self.connection().query_row(sql, max, |row| row.get(0)).unwrap();
            self.require(found == 0, || format!("after {after}: {problem}"));
        }
    }

    /// What the writer does after somebody else has written.
    fn settle(&mut self) {
        let server = self.server.as_ref().unwrap().connection();
        let transaction = Transaction::new_unchecked(server, TransactionBehavior::Immediate).unwrap();
        self.ingest.look_around();
        drain(&mut self.ingest, &transaction, self.now_ms / 1000);
        transaction.commit().unwrap();
    }

    fn chosen(&self, choice: &Choice) -> Vec<EventId> {
        replay::plan(self.connection(), choice).expect("a plan").ids
    }

    fn ids(&self, sql: &str) -> Vec<EventId> {
        let mut statement = self.connection().prepare(sql).unwrap();
        let ids = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        ids.map(|id| EventId::parse(&id.unwrap()).unwrap()).collect()
    }

    fn number(&self, sql: &str) -> u64 {
        let number: i64 = self.connection().query_row(sql, [], |row| row.get(0)).unwrap();
        u64::try_from(number).unwrap()
    }

    /// Replays, and looks whether each event came to the end that its row foretells.
    fn replay(&mut self, ids: &[EventId], dismissed: bool) -> Vec<Replayed> {
        let (how, dead) = (How { dismissed }, self.dead());
        let mut all = Vec::new();
        for part in ids.chunks(replay::BATCH) {
            let before: Vec<(Option<End>, i64, Vec<Value>)> =
                part.iter().map(|id| (self.foretell(id, how), self.attempts(id), self.story(id))).collect();
            let replayed =
                replay::replay(&mut self.pen(), &self.errand(), part, Vec::new(), how, self.now_ms).expect("a replay");
            for ((id, one), (foretold, attempts, story)) in part.iter().zip(&replayed).zip(before) {
                count(&mut self.counts, format!("replayed: {}", word(one.end)), 1);
                self.check(one, foretold);
                let failed = i64::from(matches!(one.end, End::Failed | End::DeadLetter));
                let counts = self.attempts(id) == attempts + failed;
                self.require(counts, || format!("a replay does not count its attempts: {one:?}"));
                let stays = !is_done(&story) || !is_quiet(one.end) || self.story(id) == story;
                self.require(stays, || format!("a replay without effect left its mark: {one:?}"));
            }
            all.extend(replayed);
        }
        self.errand().run_woken(&mut self.pen(), self.now_ms).expect("what was woken");
        self.settle();
        self.count_healed(&dead, "revived by a replay", |id| ids.iter().any(|one| one.as_str() == id));
        all
    }

    /// Its status, when it was completed, and how many rows of the audit log tell of it.
    fn story(&self, id: &EventId) -> Vec<Value> {
        let sql = "SELECT status, processed_at, (SELECT count(*) FROM audit_log a WHERE a.event_id = e.event_id)
                   FROM events e WHERE event_id = ?1";
        let story = |row: &rusqlite::Row<'_>| (0..3).map(|column| row.get(column)).collect();
        self.connection().query_row(sql, [id.as_str()], story).unwrap()
    }

    fn attempts(&self, id: &EventId) -> i64 {
        let sql = "SELECT attempts FROM events WHERE event_id = ?1";
        self.connection().query_row(sql, [id.as_str()], |row| row.get(0)).unwrap()
    }

    fn check(&mut self, one: &Replayed, foretold: Option<End>) {
        let as_foretold = foretold.map_or(!matches!(one.end, End::Dismissed | End::Damaged), |end| end == one.end);
        self.require(as_foretold, || format!("{} was to come to {foretold:?}, but {one:?}", one.event_id));
        let wrote_nothing = !is_quiet(one.end) || one.written.is_empty();
        self.require(wrote_nothing, || format!("a replay without effect wrote: {one:?}"));
    }

    /// What a replay must say of an event that does not run again; `None`: it runs.
    fn foretell(&self, id: &EventId, how: How) -> Option<End> {
        let sql = "SELECT outcome, dismissed, EXISTS (SELECT 1 FROM event_payloads p WHERE p.event_id = e.event_id)
                   FROM events e WHERE event_id = ?1 AND status = 'completed'";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?));
        let (outcome, dismissed, has_payload): (String, bool, bool) =
            self.connection().query_row(sql, [id.as_str()], row).optional().unwrap()?;
        if dismissed && !how.dismissed {
            Some(End::Dismissed)
        } else if outcome != Outcome::Ignored.as_str() {
            Some(End::AlreadyCompleted)
        } else {
            (!has_payload).then_some(End::NoPayload)
        }
    }

    fn rehearse(&mut self, ids: &[EventId]) {
        let before = all_rows(self.connection());
        let mut rehearsal = Rehearsal::begin(&self.path()).expect("a copy");
        for part in ids.chunks(replay::BATCH) {
            let (copy, how) = (rehearsal.connection(), How { dismissed: true });
            replay::replay(copy, &self.errand(), part, Vec::new(), how, self.now_ms).expect("a dry run");
        }
        let is_same = all_rows(self.connection()) == before;
        self.require(is_same, || "a dry run changed the tables".into());
    }

    fn prune(&mut self, keep: Keep) {
        let open = "SELECT count(*) FROM events WHERE status <> 'completed' AND source <> 'job'
                    AND NOT EXISTS (SELECT 1 FROM event_payloads p WHERE p.event_id = events.event_id)";
        let reader = Reader::open(&self.path(), 1).expect("a reader");
        let pruned = retain::prune(&reader, &mut self.pen(), keep, "operator:alice", self.now_ms, &Stop::default());
        let pruned = pruned.expect("a prune");
        count(&mut self.counts, "pruned: payloads", u64::try_from(pruned.payloads).unwrap());
        count(&mut self.counts, "pruned: events", u64::try_from(pruned.ignored_events).unwrap());
        let lost = self.number(open);
        self.require(lost == 0, || format!("{lost} open events lost their payloads"));
    }

    fn back_up(&mut self, rounds: usize) {
        let path = self.folder.path().join("books.backup");
        if path.exists() {
            std::fs::remove_file(&path).unwrap();
        }
        backup::backup(&self.path(), &path, &Stop::default()).expect("a backup");
        self.shelved = Some(Shelved { path, rounds });
    }

    /// Takes the place back that the backup remembers.
    fn restore(&mut self, shelved: &Shelved) {
        self.server = None;
        // A pool of readers closes its connections in a thread of its own.
        let mut kept = None;
        wait_until("nobody has the books open", || {
            let restored = restore::restore(&shelved.path, &self.path(), &binding(), "operator:alice", self.now_ms);
            kept = restored.ok().map(|restored| restored.kept.expect("what was there"));
            kept.is_some()
        });
        std::fs::remove_file(kept.unwrap()).unwrap();
        self.restart();
        let told = "SELECT count(*) FROM audit_log WHERE action = 'restore' AND seq = (SELECT max(seq) FROM audit_log)";
        let is_told = self.number(told) == 1;
        self.require(is_told, || "the audit log does not tell of a restore".into());
    }

    fn reap(&mut self, pending_after: i64) {
        let rested = self.events_tried_before(RESTED, self.now_ms);
        let reaped = reap::reap(&mut self.pen(), &self.errand(), pending_after, self.now_ms).expect("a pass");
        let untried = self.events_tried_before(UNTRIED, self.now_ms);
        let left = (untried.intersection(&rested).count(), self.number("SELECT count(*) FROM events WHERE woken = 1"));
        self.require(left == (0, 0), || format!("the reaper did not run {left:?}, rested and woken"));
        count(&mut self.counts, "dead letters: of the reaper", u64::try_from(reaped.dead_letters.len()).unwrap());
        self.settle();
    }

    fn dismiss(&mut self, ids: &[EventId]) {
        let dead = self.dead();
        let dismissed = dismiss::dismiss(&mut self.pen(), &self.errand(), ids, "not ours", self.now_ms);
        let dismissed = dismissed.expect("a dismissal");
        self.require(dismissed.iter().all(|one| one.dismissed), || format!("not dismissed: {dismissed:?}"));
        self.count_healed(&dead, "dismissed", |id| ids.iter().any(|one| one.as_str() == id));
        self.settle();
    }

    /// A command beside the server.
    fn beside(&self) -> CommandConnection {
        open::beside(&self.path(), &binding()).expect("a connection beside the server")
    }

    /// Takes the table over; what was taken over before stays as it is.
    fn import(&mut self, table: &Table) -> import_ledger::Report {
        let report = import_ledger::apply(&mut self.beside(), &table.rows, &self.errand(), self.now_ms);
        let report = report.expect("an import");
        for row in &report.rows {
            count(&mut self.counts, format!("imported: {}", word(row.result)), 1);
        }
        self.settle();
        report
    }

    /// Gives and takes by hand, as far as the accounts are known; what was done before stays as it is.
    fn adjust(&mut self, table: &Table) {
        for Favour { account, amount, key } in &table.favours {
            let adjust = |amount| {
                let adjustment = Adjustment {
                    allow_debt: true,
                    account: account.clone(),
                    amount,
                    unit: "credits".into(),
                    reason: "a favour".into(),
                    key: key.clone(),
                    operator: "alice".into(),
                };
                let event = EventId::parse(&format!("op_{key}_{}_{amount}", self.now_ms)).unwrap();
                adjust::adjust(&mut self.beside(), &adjustment, &event, true, self.now_ms)
            };
            match adjust(*amount) {
                Ok(done) => {
                    let is_refused = matches!(adjust(amount + 1), Err(AdjustError::KeyTaken { .. }));
                    self.require(is_refused, || format!("{key} was used for two things"));
                    self.did(if done.new { "adjusted" } else { "adjusted again" });
                }
                Err(AdjustError::UnknownAccount(_)) => {}
                Err(error) => panic!("an adjustment: {error}"),
            }
        }
    }

    /// Reverses what was given twice; then there is nothing more to repair.
    fn repair(&mut self) {
        let repair = || repair::apply(&mut self.beside(), &self.errand(), self.now_ms).expect("a repair").duplicates;
        let (found, again) = (repair(), repair());
        count(&mut self.counts, "repaired", u64::try_from(found.len()).unwrap());
        self.require(again.is_empty(), || format!("repaired, and found again: {again:?}"));
        self.settle();
    }

    fn events_tried_before(&self, sql: &str, moment: i64) -> BTreeSet<String> {
        let mut statement = self.connection().prepare_cached(sql).unwrap();
        statement.query_map([moment], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// The dead letters.
    fn dead(&self) -> BTreeSet<String> {
        let ids = self.ids("SELECT event_id FROM events WHERE dead_letter = 1");
        ids.iter().map(ToString::to_string).collect()
    }

    /// Counts which of these dead letters are none any more.
    fn count_healed(&mut self, dead: &BTreeSet<String>, how: &str, of: impl Fn(&str) -> bool) {
        let still = self.dead();
        let healed = dead.iter().filter(|id| !still.contains(*id) && of(id)).count();
        count(&mut self.counts, format!("dead letters: {how}"), u64::try_from(healed).unwrap());
    }
}

fn is_done(story: &[Value]) -> bool {
    story.first() == Some(&Value::Text("completed".into()))
}

/// Nothing comes of such a replay.
fn is_quiet(end: End) -> bool {
    matches!(end, End::AlreadyCompleted | End::Dismissed | End::NoPayload | End::Ignored)
}

/// How people read it.
fn word(told: impl Serialize) -> String {
    serde_json::to_value(told).unwrap().as_str().unwrap().to_owned()
}

/// All rows of all tables.
fn all_rows(connection: &Connection) -> Vec<Vec<Value>> {
    let mut tables = connection.prepare_cached("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut all = Vec::new();
    for table in tables {
        let mut statement = connection.prepare_cached(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).unwrap();
        all.extend(rows.map(Result::unwrap));
    }
    all
}

/// A life, and whoever keeps the books meanwhile.
#[derive(Debug, Clone)]
struct Kept {
    life: Life,
    gap: Gap,
    /// What failed is dismissed in part, instead of being granted.
    dismisses: bool,
    /// Stripe repeats; else it brings each event once, and whatever failed is the operator's to heal.
    repeats: bool,
    /// After so many failures an event is a dead letter.
    max_attempts: u32,
    /// There is an old table to take over.
    has_table: bool,
    /// How often somebody acts, of a hundred rounds.
    often: usize,
    seed: u64,
}

impl Kept {
    fn new(rules: Rules, rng: &mut Rng) -> Self {
        let gaps: &[Gap] = if rules.by_catalogue {
            &[Gap::Nothing, Gap::Lacks(ADDON), Gap::Lacks(SMS), Gap::Lacks(ADDON), Gap::Lacks(SMS), Gap::Foreign(SMS)]
        } else {
            &[Gap::Nothing, Gap::Foreign(SMS)]
        };
        let (mut life, gap) = (Life::new(rng), *rng.pick(gaps));
        if gap != Gap::Nothing {
            for _ in 0..3 + rng.below(8) {
                let action = *rng.pick(&[Action::Buy, Action::Buy, Action::AddItem, Action::Renew, Action::Refund]);
                let step = Step { action, seed: rng.next(), after: *rng.pick(&[1, 3600]) };
                life.steps.insert(rng.below(1 + life.steps.len()), step);
            }
        }
        let (dismisses, repeats) = (matches!(gap, Gap::Lacks(_)) && rng.percent(60), rng.percent(50));
        let (max_attempts, has_table) = (*rng.pick(&[1, 2, 3]), rng.percent(30));
        Self {
            life,
            gap,
            dismisses,
            repeats,
            max_attempts,
            has_table,
            often: *rng.pick(&[20, 60, 90]),
            seed: rng.next(),
        }
    }

    /// The rules, before somebody corrects the price list.
    fn policy(&self, rules: Rules) -> Policy {
        Policy { max_attempts: self.max_attempts, ..rules.policy() }
    }

    fn told(&self, world: &World, rng: &mut Rng) -> Vec<Told> {
        let mut told = world.told.clone();
        for number in 0..1 + rng.below(3) {
            let id = format!("evt_noise{number}");
            let body = json!({
                "id": id, "object": "event", "type": NOISE, "created": world.now, "livemode": true,
                "api_version": "2022-08-01", "data": {"object": {"id": "prod_basic", "object": "product"}},
            });
            let noise = Told { id, kind: NOISE, created: world.now, body, story: "is for nobody".into() };
            told.insert(rng.below(1 + told.len()), noise);
        }
        told
    }

    fn rounds(&self, events: usize) -> Vec<Vec<usize>> {
        let mut rounds = courier::deliver(events, &mut Rng::new(self.life.courier));
        if !self.repeats {
            let mut brought = vec![false; events];
            rounds.iter_mut().for_each(|round| round.retain(|index| !std::mem::replace(&mut brought[*index], true)));
        }
        rounds
    }

    /// What differs between books and model, or else should not be; none if all is well.
    fn problems(&self, rules: Rules, empty: &Empty, counts: Option<&mut Counts>) -> Vec<String> {
        let mut world = self.life.live();
        let mut rng = Rng::new(self.seed);
        let told = self.told(&world, &mut rng);
        let rounds = self.rounds(told.len());
        let corrected = if self.dismisses { rounds.len() } else { rng.below(1 + rounds.len()) };
        let mut office = Office::open(empty, self.gap.within(self.policy(rules)), world.now + self.life.later);
        let deliveries: Vec<Delivery> = told.iter().map(|told| delivery(told, world.now)).collect();
        let table = Table::new(&world, rules, office.now_ms / 1000, self.has_table, &mut rng);
        let mut day = Day { kept: self, deliveries: &deliveries, rounds: &rounds, table: &table, is_corrected: false };
        for at in 0..rounds.len() {
            if at == corrected {
                day.correct(&mut office, rules);
            }
            office.bring(day.round(at).collect());
            if rng.percent(self.often) {
                day.act(&mut office, at, &mut rng);
            }
        }
        take_all_back(&mut office);
        let dismissed = if self.dismisses { dismiss_some(&mut office, &table, &mut rng) } else { Vec::new() };
        if !day.is_corrected {
            day.correct(&mut office, rules);
        }
        let imported = office.import(&table);
        finish(&mut office);
        office.adjust(&table);
        let dismissed = take_some_back(&mut office, dismissed, &mut rng);
        office.repair();
        // What is dismissed sold nothing.
        world.invoices.iter_mut().filter(|one| dismissed.contains(&one.id)).for_each(|one| one.lines.clear());
        let mut expected = expected::books(&world, rules, office.now_ms / 1000);
        table.add_to(&mut expected, &imported);
        let mut books: Totals = totals(office.connection());
        // A row that was reversed is history.
        books.retain(|name, row| !name.starts_with("grant import:") || number_of(row) != 0);
        office.problems.extend(differences(&expected, &books));
        tell_all_again(&mut office, &told, &deliveries, &mut rng);
        let report = verify::verify(office.connection()).expect("a proof");
        office.require(report.clean, || format!("{:?}", report.proofs));
        if let Some(counts) = counts {
            exercise(office.connection(), &office.answers, counts);
            office.counts.iter().for_each(|(name, seen)| count(counts, name.clone(), *seen));
        }
        office.problems
    }

    /// The same life without the steps that do not matter.
    fn shrink(mut self, rules: Rules, empty: &Empty) -> Self {
        let mut shrunk = true;
        while shrunk {
            shrunk = false;
            for at in (0..self.life.steps.len()).rev() {
                let mut shorter = self.clone();
                shorter.life.steps.remove(at);
                if !shorter.problems(rules, empty, None).is_empty() {
                    (self, shrunk) = (shorter, true);
                }
            }
        }
        self
    }

    fn explain(&self, rules: Rules, empty: &Empty) -> String {
        let world = self.life.live();
        let told = self.told(&world, &mut Rng::new(self.seed));
        let mut counts = Counts::new();
        let problems = self.problems(rules, empty, Some(&mut counts));
        let (gap, repeats, dismisses, table) = (self.gap, self.repeats, self.dismisses, self.has_table);
        let mut text = format!("{rules:?}, {gap:?}, repeats {repeats}, dismisses {dismisses}, table {table}\n");
        for (index, told) in told.iter().enumerate() {
            text += &format!("  [{index}] {} {} {}: {}\n", told.created, told.id, told.kind, told.story);
        }
        counts.retain(|name, _| {
            ["act: ", "replayed: ", "pruned: ", "dead", "imported"].iter().any(|kind| name.starts_with(kind))
        });
        text += &format!("delivered as {:?}; {counts:?}; expected <> told:\n  ", self.rounds(told.len()));
        text + &problems.join("\n  ")
    }
}

/// What an operator may do between two rounds, the more often the more often it stands here.
const ACTS: &[&str] = &[
    "adjust",
    "bring again",
    "bring again",
    "replay some",
    "replay failed",
    "replay pending",
    "replay ignored",
    "dismiss for a while",
    "dismiss for a while",
    "take a dismissal back",
    "dry run",
    "prune",
    "back up",
    "restore",
    "reap",
    "reap",
    "import a table",
    "repair duplicates",
    "restart",
];

/// What an operator may do between two rounds.
struct Day<'a> {
    kept: &'a Kept,
    deliveries: &'a [Delivery],
    rounds: &'a [Vec<usize>],
    table: &'a Table,
    is_corrected: bool,
}

impl<'a> Day<'a> {
    fn round(&self, at: usize) -> impl Iterator<Item = &'a Delivery> {
        let deliveries = self.deliveries;
        self.rounds[at].iter().map(move |index| &deliveries[*index])
    }

    /// Stripe brings again what did not get through.
    fn bring_again(&self, office: &mut Office) {
        let open = office.ids("SELECT event_id FROM events WHERE status <> 'completed'");
        office.bring(self.deliveries.iter().filter(|delivery| open.contains(&delivery.event.id)).collect());
    }

    fn correct(&mut self, office: &mut Office, rules: Rules) {
        office.did("act: correct the price list");
        office.policy = Arc::new(self.kept.policy(rules));
        office.restart();
        self.is_corrected = true;
    }

    fn act(&self, office: &mut Office, at: usize, rng: &mut Rng) {
        office.now_ms += *rng.pick(&[1, 1, 1000, 700_000, 86_400_000]);
        let act = *rng.pick(ACTS);
        match act {
            "replay some" => {
                let ids = some(office, rng);
                office.replay(&ids, false);
            }
            "replay failed" => {
                let ids = office.chosen(&Choice { failed: true, ..Choice::default() });
                office.replay(&ids, false);
            }
            "replay pending" => {
                let ids = office.chosen(&Choice { pending: true, ..Choice::default() });
                office.replay(&ids, false);
            }
            "replay ignored" => return replay_ignored(office),
            "bring again" if self.kept.repeats => self.bring_again(office),
            "dismiss for a while" => {
                let mut ids =
                    office.ids("SELECT event_id FROM events WHERE status <> 'completed' AND source = 'webhook'");
                ids.retain(|_| rng.percent(70));
                if ids.is_empty() {
                    return;
                }
                office.dismiss(&ids);
            }
            "take a dismissal back" => return take_all_back(office),
            "dry run" => {
                let ids = some(office, rng);
                office.rehearse(&ids);
            }
            "prune" => return self.prune(office, rng),
            "back up" => office.back_up(at + 1),
            "restore" => return self.restore(office, at, rng),
            "reap" => office.reap(*rng.pick(&[0, 0, 3_600_000, 86_400_000])),
            "import a table" => {
                office.import(self.table);
            }
            "adjust" => office.adjust(self.table),
            "repair duplicates" => office.repair(),
            "restart" => office.restart(),
            _ => return,
        }
        office.did(&format!("act: {act}"));
        office.check_rows(act);
    }

    /// What is ignored only until the price list is right has to be replayed before retention lets go of it.
    fn prune(&self, office: &mut Office, rng: &mut Rng) {
        if matches!(self.kept.gap, Gap::Foreign(_)) {
            if !self.is_corrected {
                return;
            }
            replay_ignored(office);
        }
        take_all_back(office);
        office.did("act: prune");
        let mut age = || Duration::from_secs(*rng.pick(&[0, 0, 3600, 1_000_000]));
        let keep = Keep { payloads: age(), ignored_events: age() };
        office.now_ms += 1;
        office.prune(keep);
    }

    /// Stripe brings again what came since the backup, or all of it.
    fn restore(&self, office: &mut Office, at: usize, rng: &mut Rng) {
        let Some(shelved) = office.shelved.take() else { return };
        office.did("act: restore");
        office.restore(&shelved);
        let all = self.kept.repeats && rng.percent(50);
        let mut lost: Vec<usize> = (if all { 0 } else { shelved.rounds }..=at).collect();
        if rng.percent(50) {
            rng.shuffle(&mut lost);
        }
        for round in lost {
            office.deliver(self.round(round));
        }
        office.shelved = Some(shelved).filter(|_| rng.percent(50));
    }
}

/// A few events, whatever their status.
fn some(office: &Office, rng: &mut Rng) -> Vec<EventId> {
    let mut ids = office.ids("SELECT event_id FROM events WHERE source <> 'job' ORDER BY event_id");
    rng.shuffle(&mut ids);
    ids.truncate(1 + rng.below(12));
    ids
}

fn replay_ignored(office: &mut Office) {
    office.did("act: replay ignored");
    let ids = office.chosen(&Choice { ignored: true, ..Choice::default() });
    office.replay(&ids, false);
}

/// Dismisses some of the invoices that failed for a price: all of their events, so that none grants later. Returns which.
fn dismiss_some(office: &mut Office, table: &Table, rng: &mut Rng) -> Vec<String> {
    let invoices = "SELECT DISTINCT object_id FROM events WHERE object_id LIKE 'in\\_%' ESCAPE '\\'
                    AND status = 'failed' AND error_code = 'unlisted_price' ORDER BY 1";
    let mut statement = office.connection().prepare(invoices).unwrap();
    let invoices = statement.query_map([], |row| row.get(0)).unwrap();
    let mut invoices: Vec<String> = invoices.map(Result::unwrap).collect();
    drop(statement);
    invoices.retain(|invoice| rng.percent(85) && !table.grants(invoice));
    for invoice in &invoices {
        office.did("act: dismiss");
        let ids =
            office.ids(&format!("SELECT event_id FROM events WHERE object_id = '{invoice}' AND status <> 'completed'"));
        office.dismiss(&ids);
        office.replay(&ids, false);
    }
    invoices
}

/// What was dismissed by mistake runs after all. Returns what stays dismissed.
fn take_some_back(office: &mut Office, mut dismissed: Vec<String>, rng: &mut Rng) -> Vec<String> {
    dismissed.retain(|invoice| {
        let stays = rng.percent(50);
        if !stays {
            office.did("act: take a dismissal back");
            let ids =
                office.ids(&format!("SELECT event_id FROM events WHERE object_id = '{invoice}' AND dismissed = 1"));
            office.replay(&ids, true);
        }
        stays
    });
    dismissed
}

/// All that is dismissed runs after all.
fn take_all_back(office: &mut Office) {
    let ids = office.ids("SELECT event_id FROM events WHERE dismissed = 1 ORDER BY event_id");
    if ids.is_empty() {
        return;
    }
    office.did("act: take a dismissal back");
    for one in office.replay(&ids, true) {
        count(&mut office.counts, format!("taken back: {}", word(one.end)), 1);
    }
}

/// What an operator does once the price list is right: nothing is redelivered.
fn finish(office: &mut Office) {
    let failed = office.chosen(&Choice { failed: true, ..Choice::default() });
    office.replay(&failed, false);
    replay_ignored(office);
    let open = office.chosen(&Choice { failed: true, pending: true, ..Choice::default() });
    let healed = failed.len().saturating_sub(open.len());
    count(&mut office.counts, "healed without a redelivery", u64::try_from(healed).unwrap());
}

/// Repeats of everything change nothing.
fn tell_all_again(office: &mut Office, told: &[Told], deliveries: &[Delivery], rng: &mut Rng) {
    const WRITTEN: &str = "SELECT (SELECT count(*) FROM ledger_entries) + (SELECT count(*) FROM tier_changes)";
    let before = (totals(office.connection()), office.number(WRITTEN));
    let mut order: Vec<usize> = (0..deliveries.len()).collect();
    rng.shuffle(&mut order);
    for part in order.chunks(40) {
        let answers = office.deliver(part.iter().map(|index| &deliveries[*index]));
        for (index, answer) in part.iter().zip(answers) {
            let noise = told[*index].kind == NOISE;
            let again = matches!(answer, Answer::Completed { outcome: Outcome::Ignored, .. });
            let is_known = matches!(answer, Answer::Duplicate { .. }) || noise && again;
            office.require(is_known, || format!("a repeat of {} was {answer:?}", told[*index].id));
        }
    }
    let after = (totals(office.connection()), office.number(WRITTEN));
    office.require(before == after, || "repeats changed the books".into());
}

#[test]
fn books_equal_the_model_whatever_operators_do() {
    let (first, lives) = (number("BILLINGD_SEED", 1), number("BILLINGD_HISTORIES", 1_000) / 8);
    let (empty, mut counts, mut problems) = (Empty::new(), Counts::new(), Vec::new());
    let started = std::time::Instant::now();
    for seed in first..first + lives {
        let mut rng = Rng::new(seed ^ 0x0be);
        let rules = *rng.pick(&Rules::ALL);
        let kept = Kept::new(rules, &mut rng);
        if !kept.problems(rules, &empty, Some(&mut counts)).is_empty() {
            problems.push(format!("seed {seed}: {}", kept.shrink(rules, &empty).explain(rules, &empty)));
        }
        if problems.len() >= 3 {
            break;
        }
    }
    println!("{lives} lives from seed {first} in {:?}", started.elapsed());
    for (name, seen) in &counts {
        println!("{seen:>9} {name}");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    let missing: Vec<_> = LIVED.iter().filter(|name| counts.get(**name).is_none_or(|seen| *seen == 0)).collect();
    assert!(missing.is_empty() || lives < 125, "never lived: {missing:?}");
}
