//! The event ledger. The row of an event is its claim; it is written together with all that the event does.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use crate::clock::UnixMillis;
use crate::domain::decision::{Failure, Need, Outcome};
use crate::domain::event::{Event, UnixSeconds};
use crate::domain::ids::{AccountId, EventId};
use crate::store::StoreError;
use crate::store::found::{self, Edge, Found};

/// Where an event came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Delivered and signed by Stripe.
    Webhook,
    /// Fetched from Stripe's list of events.
    Backfill,
    /// Read from a file.
    Import,
    /// A command of a person.
    Operator,
    /// A moment of the clock.
    Job,
}

impl Source {
    fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Backfill => "backfill",
            Self::Import => "import",
            Self::Operator => "operator",
            Self::Job => "job",
        }
    }

    fn of(text: &str) -> Self {
        match text {
            "backfill" => Self::Backfill,
            "import" => Self::Import,
            "operator" => Self::Operator,
            "job" => Self::Job,
            _ => Self::Webhook,
        }
    }
}

/// What the row of an event says besides its outcome.
#[derive(Debug, Clone, Copy)]
pub struct EventMeta<'a> {
    /// The event.
    pub id: &'a EventId,
    /// Where it came from.
    pub source: Source,
    /// Stripe's `type`, or one of our own.
    pub kind: &'a str,
    /// The version that rendered it.
    pub api_version: Option<&'a str>,
    /// Its mode.
    pub livemode: bool,
    /// Its connected account.
    pub stripe_account: Option<&'a str>,
    /// Its object.
    pub object_id: Option<&'a str>,
    /// The account that it is about.
    pub account: Option<&'a AccountId>,
    /// When it happened.
    pub created: UnixSeconds,
    /// When it arrived.
    pub received: UnixMillis,
}

impl<'a> EventMeta<'a> {
    /// What is known of an event of Stripe's.
    #[must_use]
    pub fn of(event: &'a Event, source: Source, account: Option<&'a AccountId>, received: UnixMillis) -> Self {
        Self {
            id: &event.id,
            source,
            kind: &event.kind,
            api_version: event.api_version.as_deref(),
            livemode: event.livemode,
            stripe_account: event.stripe_account.as_deref(),
            object_id: event.object_id.as_deref(),
            account,
            created: event.created,
            received,
        }
    }
}

/// Whether a claim was won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The event is this run's.
    Won,
    /// It was completed before.
    Lost,
}

/// Claims an event as completed.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn complete(
    connection: &Connection,
    meta: &EventMeta<'_>,
    outcome: Outcome,
    reason: Option<&str>,
    now: UnixMillis,
) -> Result<Claim, StoreError> {
    let changed = connection
        .prepare_cached(
            "INSERT INTO events (event_id, source, type, status, outcome, reason, api_version, livemode,
                                 stripe_account, object_id, account_id, created_at, received_at, tried_at, processed_at)
             VALUES (:id, :source, :type, 'completed', :outcome, :reason, :api_version, :livemode,
                     :stripe_account, :object, :account, :created, :received, :now, :now)
             ON CONFLICT (event_id) DO UPDATE SET
                 status = 'completed', outcome = excluded.outcome, reason = excluded.reason, needs = NULL,
                 error_code = NULL, last_error = NULL, dead_letter = 0, woken = 0, tried_at = excluded.tried_at,
                 processed_at = excluded.processed_at, account_id = coalesce(account_id, excluded.account_id)
             WHERE status IN ('failed', 'pending')",
        )?
        .execute(named_params! {
            ":id": meta.id, ":source": meta.source.as_str(), ":type": meta.kind, ":outcome": outcome,
            ":reason": reason, ":api_version": meta.api_version, ":livemode": meta.livemode,
            ":stripe_account": meta.stripe_account, ":object": meta.object_id, ":account": meta.account,
            ":created": meta.created, ":received": meta.received, ":now": now,
        })?;
    Ok(if changed == 1 { Claim::Won } else { Claim::Lost })
}

/// Keeps an event that waits until any of `needs` comes.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn wait(
    connection: &Connection,
    meta: &EventMeta<'_>,
    needs: &[Need],
    now: UnixMillis,
) -> Result<Claim, StoreError> {
    let changed = connection
        .prepare_cached(
            "INSERT INTO events (event_id, source, type, status, needs, api_version, livemode, stripe_account,
                                 object_id, account_id, created_at, received_at, tried_at)
             VALUES (:id, :source, :type, 'pending', :needs, :api_version, :livemode, :stripe_account,
                     :object, :account, :created, :received, :now)
             ON CONFLICT (event_id) DO UPDATE SET
                 status = 'pending', needs = excluded.needs, error_code = NULL, last_error = NULL, dead_letter = 0,
                 woken = 0, tried_at = excluded.tried_at
             WHERE status IN ('failed', 'pending')",
        )?
        .execute(named_params! {
            ":id": meta.id, ":source": meta.source.as_str(), ":type": meta.kind, ":needs": joined(needs),
            ":api_version": meta.api_version, ":livemode": meta.livemode, ":stripe_account": meta.stripe_account,
            ":object": meta.object_id, ":account": meta.account, ":created": meta.created,
            ":received": meta.received, ":now": now,
        })?;
    if changed == 0 {
        return Ok(Claim::Lost);
    }
    connection
        .prepare_cached("DELETE FROM event_needs WHERE event_id = :event")?
        .execute(named_params! { ":event": meta.id })?;
    needs.iter().try_for_each(|need| listen(connection, meta.id, need))?;
    Ok(Claim::Won)
}

/// Has an event that is not completed run again when `need` comes, besides whatever it says that it waits for.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn listen(connection: &Connection, id: &EventId, need: &Need) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO event_needs (need, event_id) VALUES (:need, :event) ON CONFLICT DO NOTHING")?
        .execute(named_params! { ":need": need.to_string(), ":event": id })?;
    Ok(())
}

/// What an event waits for, as people read it.
#[must_use]
pub fn joined(needs: &[Need]) -> String {
    needs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Whether any event is not completed. Answers from an index that holds only those.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn any_open(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM events INDEXED BY events_open WHERE status <> 'completed')")?
        .query_row([], |row| row.get(0))?)
}

/// Marks every event that waits for `need`: it will run again, in this batch or, after a restart too, in a later one.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn wake(connection: &Connection, need: &Need) -> Result<usize, StoreError> {
    Ok(connection
        .prepare_cached(
            "UPDATE events SET woken = 1
             WHERE event_id IN (SELECT event_id FROM event_needs WHERE need = :need) AND status <> 'completed'",
        )?
        .execute(named_params! { ":need": need.to_string() })?)
}

/// Tells those who wait for `need` why it does not come.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn note(connection: &Connection, need: &Need, why: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE events SET last_error = :why
             WHERE event_id IN (SELECT event_id FROM event_needs WHERE need = :need) AND status = 'pending'",
        )?
        .execute(named_params! { ":need": need.to_string(), ":why": why })?;
    Ok(())
}

/// Marks every event that waits for any rate of exchange, for a rate may be of two currencies; returns how many.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn wake_for_rates(connection: &Connection) -> Result<usize, StoreError> {
    Ok(connection
        .prepare_cached(
            "UPDATE events SET woken = 1
             WHERE event_id IN (SELECT event_id FROM event_needs WHERE need >= 'rate:' AND need < 'rate;')
               AND status <> 'completed'",
        )?
        .execute([])?)
}

/// How many events wait for a rate of exchange.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn waiting_for_rates(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT count(DISTINCT e.event_id) FROM event_needs n JOIN events e ON e.event_id = n.event_id
             WHERE n.need >= 'rate:' AND n.need < 'rate;' AND e.status <> 'completed'",
        )?
        .query_row([], |row| row.get(0))?)
}

/// The events that were woken and have not run since, the oldest first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn woken(connection: &Connection, limit: usize) -> Result<Vec<EventId>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT event_id FROM events WHERE woken = 1 ORDER BY created_at, event_id LIMIT :limit")?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(named_params! { ":limit": limit }, |row| row.get("event_id"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A woken event has run, whatever came of it.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn settle_down(connection: &Connection, id: &EventId) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE events SET woken = 0 WHERE event_id = :id AND woken = 1")?
        .execute(named_params! { ":id": id })?;
    Ok(())
}

/// Where an event came from and when it first arrived.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn arrival(connection: &Connection, id: &EventId) -> Result<Option<(Source, UnixMillis)>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT source, received_at FROM events WHERE event_id = :id")?
        .query_row(named_params! { ":id": id }, |row| {
            Ok((Source::of(&row.get::<_, String>("source")?), row.get("received_at")?))
        })
        .optional()?)
}

/// What a recorded failure made of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Failures so far.
    pub attempts: i64,
    /// It is a dead letter now.
    pub dead_letter: bool,
}

/// Records one more failure; the `max_attempts`-th makes a dead letter, and a dead letter stays one. `None`: it was completed before.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn fail(
    connection: &Connection,
    meta: &EventMeta<'_>,
    failure: &Failure,
    max_attempts: u32,
    now: UnixMillis,
) -> Result<Option<Failed>, StoreError> {
    Ok(connection
        .prepare_cached(
            "INSERT INTO events (event_id, source, type, status, attempts, error_code, last_error, dead_letter,
                                 api_version, livemode, stripe_account, object_id, account_id, created_at,
                                 received_at, tried_at)
             VALUES (:id, :source, :type, 'failed', 1, :code, :message, 1 >= :max, :api_version, :livemode,
                     :stripe_account, :object, :account, :created, :received, :now)
             ON CONFLICT (event_id) DO UPDATE SET
                 status = 'failed', needs = NULL, woken = 0, attempts = attempts + 1, error_code = excluded.error_code,
                 last_error = excluded.last_error, dead_letter = dead_letter OR attempts + 1 >= :max,
                 tried_at = excluded.tried_at
             WHERE status IN ('failed', 'pending')
             RETURNING attempts, dead_letter",
        )?
        .query_row(
            named_params! {
                ":id": meta.id, ":source": meta.source.as_str(), ":type": meta.kind, ":code": failure.code,
                ":message": failure.message, ":max": max_attempts, ":api_version": meta.api_version,
                ":livemode": meta.livemode, ":stripe_account": meta.stripe_account, ":object": meta.object_id,
                ":account": meta.account, ":created": meta.created, ":received": meta.received, ":now": now,
            },
            |row| Ok(Failed { attempts: row.get("attempts")?, dead_letter: row.get("dead_letter")? }),
        )
        .optional()?)
}

/// A completed event, as a duplicate delivery needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// What became of it.
    pub outcome: String,
    /// When it first arrived.
    pub received: UnixMillis,
}

/// The event, if it is completed.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn completed(connection: &Connection, id: &EventId) -> Result<Option<Completed>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT outcome, received_at FROM events WHERE event_id = :id AND status = 'completed'")?
        .query_row(named_params! { ":id": id }, |row| {
            Ok(Completed { outcome: row.get("outcome")?, received: row.get("received_at")? })
        })
        .optional()?)
}

/// Counts repeated deliveries.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn count_duplicates(connection: &Connection, id: &EventId, all: i64, late: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE events SET duplicates = duplicates + :all, late_duplicates = late_duplicates + :late
             WHERE event_id = :id",
        )?
        .execute(named_params! { ":id": id, ":all": all, ":late": late })?;
    Ok(())
}

/// What a status may be in a [`Filter`], those first that a person should look at. Dead letters are failed ones, too.
pub const STATUSES: [&str; 4] = ["dead_letter", "failed", "pending", "completed"];

/// What `outcome` may be of a completed event.
pub const OUTCOMES: [&str; 4] = ["applied", "no_effect", "stale", "ignored"];

/// Which events to list. An empty filter lists all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only of this status.
    pub status: Option<String>,
    /// Only of this outcome.
    pub outcome: Option<String>,
    /// Only of this type.
    pub kind: Option<String>,
    /// Only of this account.
    pub account: Option<String>,
    /// Only received at or after this time.
    pub since: Option<UnixSeconds>,
    /// Only those that come after this event in the list, which is none of them.
    pub before: Option<String>,
    /// At most so many, newest first.
    pub limit: i64,
}

/// One row of `v_events`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[expect(missing_docs, reason = "named and documented as the columns of v_events")]
pub struct EventRow {
    pub event_id: String,
    pub source: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub outcome: Option<String>,
    pub needs: Option<String>,
    pub reason: Option<String>,
    pub attempts: i64,
    pub error_code: Option<String>,
    pub duplicates: i64,
    pub late_duplicates: i64,
    pub dead_letter: bool,
    pub api_version: Option<String>,
    pub livemode: bool,
    pub stripe_account: Option<String>,
    pub object_id: Option<String>,
    pub account_id: Option<String>,
    pub created_at: UnixSeconds,
    pub received_at: UnixSeconds,
    pub processed_at: Option<UnixSeconds>,
    pub last_error: Option<String>,
    pub tried_at: UnixSeconds,
    pub dismissed: bool,
}

impl EventRow {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            event_id: row.get("event_id")?,
            source: row.get("source")?,
            kind: row.get("type")?,
            status: row.get("status")?,
            outcome: row.get("outcome")?,
            needs: row.get("needs")?,
            reason: row.get("reason")?,
            attempts: row.get("attempts")?,
            error_code: row.get("error_code")?,
            duplicates: row.get("duplicates")?,
            late_duplicates: row.get("late_duplicates")?,
            dead_letter: row.get("dead_letter")?,
            api_version: row.get("api_version")?,
            livemode: row.get("livemode")?,
            stripe_account: row.get("stripe_account")?,
            object_id: row.get("object_id")?,
            account_id: row.get("account_id")?,
            created_at: row.get("created_at")?,
            received_at: row.get("received_at")?,
            processed_at: row.get("processed_at")?,
            last_error: row.get("last_error")?,
            tried_at: row.get("tried_at")?,
            dismissed: row.get("dismissed")?,
        })
    }
}

/// The events that a filter chooses, the one received last first. The open ones are few and have an index. Else one walks
/// from the newest on; those of an account, a type or an outcome may be rare, so that walk has an end.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn list(connection: &Connection, filter: &Filter) -> Result<Found<EventRow>, StoreError> {
    list_within(connection, filter, found::ROWS_MAX)
}

fn list_within(connection: &Connection, filter: &Filter, rows_max: i64) -> Result<Found<EventRow>, StoreError> {
    let is_open = filter.status.as_deref().is_some_and(|status| status != "completed");
    let is_rare = filter.account.is_some() || filter.kind.is_some() || filter.outcome.is_some();
    let (source, end) = if is_open {
        ("(SELECT * FROM events INDEXED BY events_open WHERE status <> 'completed') e", None)
    } else {
        let end = if is_rare { end_of_search(connection, filter, rows_max)? } else { None };
        ("events e INDEXED BY events_received", end)
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT v.* FROM {source} JOIN v_events v USING (event_id)
         WHERE (:status IS NULL OR e.status = :status OR :status = 'dead_letter' AND e.dead_letter)
           AND (:outcome IS NULL OR e.outcome = :outcome)
           AND (:type IS NULL OR e.type = :type) AND (:account IS NULL OR e.account_id = :account)
           AND e.received_at >= max(coalesce(:since * 1000, 0), coalesce(:end, 0)) AND e.received_at <= {NEWEST}
           AND (:before IS NULL OR (e.received_at, e.created_at, e.event_id) <
                (SELECT received_at, created_at, event_id FROM events WHERE event_id = :before))
         ORDER BY e.received_at DESC, e.created_at DESC, e.event_id DESC
         LIMIT :limit"
    ))?;
    let rows = statement.query_map(
        named_params! {
            ":status": filter.status, ":outcome": filter.outcome, ":type": filter.kind, ":account": filter.account,
            ":since": filter.since, ":end": end, ":before": filter.before, ":limit": filter.limit,
        },
        EventRow::from_row,
    )?;
    let rows = rows.collect::<Result<_, _>>()?;
    let edge = end.map(|end| edge_at(connection, end)).transpose()?;
    Ok(Found::new(rows, filter.limit, edge))
}

/// What stands before an event in the list was received at its time or earlier.
const NEWEST: &str = "CASE WHEN :before IS NULL THEN 9223372036854775807
                      ELSE (SELECT received_at FROM events WHERE event_id = :before) END";

/// The time down to which one looks through `rows_max` events, besides those of its own millisecond and of that of the
/// event before: so each search gets further. `None`: there are fewer.
fn end_of_search(connection: &Connection, filter: &Filter, rows_max: i64) -> Result<Option<UnixMillis>, StoreError> {
    Ok(connection
        .prepare_cached(&format!(
            "SELECT received_at FROM events INDEXED BY events_received
             WHERE received_at >= coalesce(:since * 1000, 0) AND received_at < {NEWEST}
             ORDER BY received_at DESC LIMIT 1 OFFSET :rows"
        ))?
        .query_row(named_params! { ":since": filter.since, ":before": filter.before, ":rows": rows_max }, |row| {
            row.get(0)
        })
        .optional()?)
}

/// The last event of the list that was received at `end`.
fn edge_at(connection: &Connection, end: UnixMillis) -> Result<Edge, StoreError> {
    let before = connection
        .prepare_cached(
            "SELECT event_id FROM events INDEXED BY events_received WHERE received_at = :end
             ORDER BY created_at, event_id LIMIT 1",
        )?
        .query_row(named_params! { ":end": end }, |row| row.get(0))?;
    Ok(Edge { looked_back_to: end / 1000, before })
}

/// One event.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn find(connection: &Connection, id: &str) -> Result<Option<EventRow>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT * FROM v_events WHERE event_id = :id")?
        .query_row(named_params! { ":id": id }, EventRow::from_row)
        .optional()?)
}

/// When an event came last by webhook for the first time, in Unix seconds; `None`: none ever did.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn last_delivery(connection: &Connection) -> Result<Option<UnixSeconds>, StoreError> {
    let sql = "SELECT max(received_at) / 1000 FROM events INDEXED BY events_delivered WHERE source = 'webhook'";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// How many events there are.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn count(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("SELECT count(*) FROM events", [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open::{self, Binding};

    /// Thirty events of ten milliseconds, three of each; a search of four rows ends in the middle of one.
    #[test]
    fn a_search_that_goes_on_finds_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let binding = Binding { livemode: true, connected_account: None };
        let books = open::server(&folder.path().join("books.db"), &binding).unwrap().connection;
        let events = "WITH RECURSIVE n(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM n WHERE n < 129)
             INSERT INTO events (event_id, source, type, status, outcome, livemode, created_at, received_at, tried_at, processed_at)
             SELECT 'evt_' || n, 'webhook', iif(n % 7 = 0, 'rare', 't'), 'completed', 'applied', 1, -n, n / 3, 0, 0 FROM n";
        books.execute_batch(events).unwrap();
        let (mut before, mut seen, mut searches) = (None, Vec::new(), 0);
        loop {
            let filter = Filter { kind: Some("rare".into()), before, limit: 9, ..Filter::default() };
            let found = list_within(&books, &filter, 4).unwrap();
            seen.extend(found.rows.into_iter().map(|row| row.event_id));
            searches += 1;
            let Some(edge) = found.edge else { break };
            before = Some(edge.before);
        }
        assert_eq!(seen, ["evt_126", "evt_119", "evt_112", "evt_105"]);
        assert_eq!(searches, 6, "each looks through two milliseconds");
        let enough = Filter { kind: Some("t".into()), limit: 2, ..Filter::default() };
        assert_eq!(list_within(&books, &enough, 4).unwrap().edge, None);
        let all = Filter { limit: 100, ..Filter::default() };
        let found = list_within(&books, &all, 4).unwrap();
        assert_eq!((found.rows.len(), found.edge), (30, None), "what is not rare is not searched for");
    }
}
