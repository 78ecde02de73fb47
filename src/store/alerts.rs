//! What a person is called for: the conditions that stand, and how deliveries were answered.

use std::collections::BTreeMap;

use rusqlite::{Connection, named_params};

use crate::domain::alert::{Alert, Answers, Condition};
use crate::domain::event::UnixSeconds;
use crate::store::StoreError;
use crate::store::select::select;

/// How many hours of answers are looked at.
const HOURS: i64 = 24;

/// How deliveries were answered in the hour of `now` and the 23 before it.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn answers(connection: &Connection, now: UnixSeconds) -> Result<Answers, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT coalesce(sum(good), 0) AS good, coalesce(sum(bad), 0) AS bad,
                    coalesce(sum(mismatched), 0) AS mismatched
             FROM deliveries WHERE hour > :now / 3600 - :hours AND hour <= :now / 3600",
        )?
        .query_row(named_params! { ":now": now, ":hours": HOURS }, |row| {
            Ok(Answers { good: row.get("good")?, bad: row.get("bad")?, mismatched: row.get("mismatched")? })
        })?)
}

/// In how many of the same hours something was signed with none of our secrets.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn mismatched_hours(connection: &Connection, now: UnixSeconds) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT count(*) AS hours FROM deliveries
             WHERE hour > :now / 3600 - :hours AND hour <= :now / 3600 AND mismatched > 0",
        )?
        .query_row(named_params! { ":now": now, ":hours": HOURS }, |row| row.get("hours"))?)
}

/// Forgets the hours that nobody looks at any more, or that were counted by a clock that was ahead, and adds to the answers
/// of some hours since the epoch.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn add_answers(
    connection: &Connection,
    hours: &BTreeMap<i64, Answers>,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    // First: an hour may begin between `now` and what was counted last.
    connection
        .prepare_cached("DELETE FROM deliveries WHERE hour <= :now / 3600 - :hours OR hour > :now / 3600")?
        .execute(named_params! { ":now": now, ":hours": HOURS })?;
    for (hour, Answers { good, bad, mismatched }) in hours {
        connection
            .prepare_cached(
                "INSERT INTO deliveries (hour, good, bad, mismatched) VALUES (:hour, :good, :bad, :mismatched)
                 ON CONFLICT (hour) DO UPDATE SET good = good + excluded.good, bad = bad + excluded.bad,
                     mismatched = mismatched + excluded.mismatched",
            )?
            .execute(named_params! { ":hour": hour, ":good": good, ":bad": bad, ":mismatched": mismatched })?;
    }
    Ok(())
}

/// What a former process has told, in the order in which it was raised.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn held(connection: &Connection) -> Result<Vec<Alert>, StoreError> {
    let sql =
        "SELECT condition, text, remedy, since, raised_at, told, gone_at FROM alerts ORDER BY raised_at, condition";
    select(connection, sql, [], |row| {
        let condition = Condition {
            name: row.get("condition")?,
            text: row.get("text")?,
            remedy: row.get("remedy")?,
            since: row.get("since")?,
        };
        Ok(Alert { condition, raised_at: row.get("raised_at")?, told: row.get("told")?, gone_at: row.get("gone_at")? })
    })
}

/// Writes what stands now in place of what stood before.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn keep(connection: &Connection, alerts: &[Alert]) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM alerts")?.execute([])?;
    for Alert { condition, raised_at, told, gone_at } in alerts {
        connection
            .prepare_cached(
                "INSERT INTO alerts (condition, text, remedy, since, raised_at, told, gone_at)
                 VALUES (:condition, :text, :remedy, :since, :raised_at, :told, :gone_at)",
            )?
            .execute(named_params! {
                ":condition": condition.name, ":text": condition.text, ":remedy": condition.remedy,
                ":since": condition.since, ":raised_at": raised_at, ":told": told, ":gone_at": gone_at,
            })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::health;
    use crate::store::open::{self, Binding, ServerConnection};

    const NOW: UnixSeconds = 1_000 * 3_600 + 1_800;

    fn books() -> (tempfile::TempDir, ServerConnection) {
        let folder = tempfile::tempdir().unwrap();
        let binding = Binding { livemode: false, connected_account: None };
        let server = open::server(&folder.path().join("books.db"), &binding).unwrap();
        (folder, server)
    }

    #[test]
    fn answers_are_summed_and_forgotten_by_hours() {
        let (_folder, server) = books();
        let add = |hour: i64, good: i64, bad: i64, mismatched: i64, now: UnixSeconds| {
            let hours = BTreeMap::from([(hour, Answers { good, bad, mismatched })]);
            add_answers(&server.connection, &hours, now).unwrap();
        };
        let seen = |now: UnixSeconds| {
            let Answers { good, bad, mismatched } = answers(&server.connection, now).unwrap();
            (good, bad, mismatched)
        };
        assert_eq!(seen(NOW), (0, 0, 0));
        add(977, 1, 2, 3, NOW);
        add(1_000, 10, 20, 30, NOW);
        add(1_000, 100, 200, 300, NOW);
        assert_eq!((seen(NOW), seen(NOW + 3_600)), ((111, 222, 333), (110, 220, 330)));
        let mismatched_in = |now: UnixSeconds| mismatched_hours(&server.connection, now).unwrap();
        assert_eq!((mismatched_in(NOW), mismatched_in(NOW + 3_600)), (2, 1));
        add(1_001, 1_000, 0, 0, NOW + 3_600);
        assert_eq!(seen(NOW + 3_600), (1_110, 220, 330));
        assert_eq!(seen(NOW), (110, 220, 330), "the hour that nobody looks at any more is deleted");
    }

    #[test]
    fn what_a_clock_counted_that_was_ahead_is_not_looked_at_and_forgotten() {
        const YEAR_H: i64 = 365 * 24;
        let (_folder, server) = books();
        let add = |hour: i64, mismatched: i64, now: UnixSeconds| {
            let hours = BTreeMap::from([(hour, Answers { good: 0, bad: 1, mismatched })]);
            add_answers(&server.connection, &hours, now).unwrap();
        };
        let seen = |now: UnixSeconds| {
            let day = answers(&server.connection, now).unwrap();
            (day.bad, day.mismatched, mismatched_hours(&server.connection, now).unwrap())
        };
        let ahead = NOW + YEAR_H * 3_600;
        add(1_000 + YEAR_H, 1, ahead);
        assert_eq!((seen(ahead), seen(NOW)), ((1, 1, 1), (0, 0, 0)));
        add(1_000, 0, NOW);
        assert_eq!((seen(ahead), seen(NOW)), ((0, 0, 0), (1, 0, 0)));
        // The next hour began before this was written.
        add(1_001, 7, NOW);
        assert_eq!((seen(NOW), seen(NOW + 3_600)), ((1, 0, 0), (2, 7, 1)));
    }

    #[test]
    fn what_was_told_is_there_after_a_restart() {
        let (_folder, server) = books();
        let alert = |name: &str, told: bool, gone_at: Option<UnixSeconds>| Alert {
            condition: Condition { name: name.into(), text: "a text".into(), remedy: "`look`".into(), since: gone_at },
            raised_at: 7,
            told,
            gone_at,
        };
        for alerts in
            [vec![alert("disk", true, Some(9)), alert("wal", false, None)], vec![alert("wal", true, None)], vec![]]
        {
            keep(&server.connection, &alerts).unwrap();
            assert_eq!(held(&server.connection).unwrap(), alerts);
        }
    }

    /// They are looked for every few seconds, in books of any size.
    #[test]
    fn no_look_walks_through_all_events() {
        let (_folder, server) = books();
        server
            .connection
            .execute_batch(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
                 INSERT INTO events (event_id, source, type, status, outcome, livemode, created_at, received_at,
                                     tried_at, processed_at)
                 SELECT 'evt_' || n, 'webhook', 't', 'completed', 'applied', 0, 0, n, 0, 0 FROM n",
            )
            .unwrap();
        server.connection.progress_handler(1_000, Some(|| true)).unwrap();
        assert_eq!(health::dead_letters(&server.connection).unwrap().count, 0);
        assert_eq!(health::failed(&server.connection, 30_000).unwrap().count, 0);
        assert_eq!(health::pending(&server.connection, 30_000).unwrap().count, 0);
        health::open_findings(&server.connection).unwrap();
        answers(&server.connection, NOW).unwrap();
        mismatched_hours(&server.connection, NOW).unwrap();
        let all = "SELECT count(*) FROM events WHERE processed_at < 9";
        server.connection.query_row(all, [], |_| Ok(())).unwrap_err();
    }
}
