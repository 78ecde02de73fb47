//! What Stripe's API answered to what events waited for, as far as later runs need it.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;
use crate::domain::decision::Need;
use crate::domain::event::{Line, PriceRef, Unit, UnixSeconds};
use crate::domain::facts::Asked;
use crate::domain::ids::{EventId, PriceId, SubscriptionId};
use crate::domain::money::{Currency, UnitAmount};
use crate::domain::subscription::State;
use crate::store::StoreError;
use crate::store::select::select;
use crate::store::snapshots::{StateText, from_json, to_json};

/// What many events wait for, and who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// What is missing.
    pub need: Need,
    /// One of those that wait for it.
    pub event: EventId,
}

/// A place in the line of pending events, the longest waiting first. The default is its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    received: UnixMillis,
    event: String,
}

impl Default for Place {
    fn default() -> Self {
        Self { received: UnixMillis::MIN, event: String::new() }
    }
}

/// What a part of the line waits for.
#[derive(Debug)]
pub struct Part {
    /// In the order of the line.
    pub open: Vec<Open>,
    /// Where the next part begins; `None`: this was the last one.
    pub next: Option<Place>,
}

/// A pending event; one that was woken waits for nothing until it has run.
struct Waiting {
    event: EventId,
    received: UnixMillis,
    is_woken: bool,
}

impl Waiting {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { event: row.get("event_id")?, received: row.get("received_at")?, is_woken: row.get("woken")? })
    }
}

/// What Stripe can tell to the next `limit` pending events behind a place.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open_after(connection: &Connection, place: &Place, limit: usize) -> Result<Part, StoreError> {
    let part = select(
        connection,
        OPEN_AFTER,
        named_params! { ":received": place.received, ":event": place.event, ":limit": rows(limit) },
        Waiting::from_row,
    )?;
    let next = part.last().filter(|_| part.len() == limit);
    let next = next.map(|last| Place { received: last.received, event: last.event.to_string() });
    Ok(Part { open: open_of(connection, part)?, next })
}

const OPEN_AFTER: &str = "SELECT event_id, received_at, woken FROM events INDEXED BY events_open
     WHERE status <> 'completed' AND status = 'pending' AND (received_at, event_id) > (:received, :event)
     ORDER BY received_at, event_id LIMIT :limit";

/// What Stripe can tell to the `limit` pending events that came last, the last one first.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn open_last(connection: &Connection, limit: usize) -> Result<Vec<Open>, StoreError> {
    let last = select(connection, OPEN_LAST, named_params! { ":limit": rows(limit) }, Waiting::from_row)?;
    open_of(connection, last)
}

const OPEN_LAST: &str = "SELECT event_id, received_at, woken FROM events INDEXED BY events_open
     WHERE status <> 'completed' AND status = 'pending' ORDER BY received_at DESC, event_id DESC LIMIT :limit";

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// What is missing to those who were not woken, and Stripe can tell. Events are read first and their needs by each,
/// so that a look never reads more of them than it was told to, however many wait for something else.
fn open_of(connection: &Connection, line: Vec<Waiting>) -> Result<Vec<Open>, StoreError> {
    const NEEDS: &str = "SELECT need FROM event_needs WHERE event_id = :event ORDER BY need";
    let mut open = Vec::new();
    for Waiting { event, .. } in line.into_iter().filter(|one| !one.is_woken) {
        let needs = select(connection, NEEDS, named_params! { ":event": event }, |row| row.get::<_, String>("need"))?;
        let needs = needs.iter().filter_map(|need| Need::parse(need));
        let told_by_stripe = needs.filter(|need| !matches!(need, Need::Grant(_) | Need::Rate(_)));
        open.extend(told_by_stripe.map(|need| Open { need, event: event.clone() }));
    }
    Ok(open)
}

/// The events that wait for `need` and came before it was asked for: an answer may not know of later ones.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn waiting_for(connection: &Connection, need: &Need, asked_at: UnixMillis) -> Result<Vec<EventId>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT n.event_id FROM event_needs n JOIN events e ON e.event_id = n.event_id
         WHERE n.need = :need AND e.received_at <= :asked_at ORDER BY n.event_id",
    )?;
    let need = need.to_string();
    let rows =
        statement.query_map(named_params! { ":need": need, ":asked_at": asked_at }, |row| row.get("event_id"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Keeps that Stripe was asked for `need`, before the request was sent, and has nothing to tell that does not stand
/// elsewhere.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_asked(connection: &Connection, need: &Need, asked_at: UnixMillis) -> Result<(), StoreError> {
    save(connection, need, None, asked_at)
}

/// Keeps the lines of an invoice or of a checkout session.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_lines(
    connection: &Connection,
    need: &Need,
    lines: &[Line],
    asked_at: UnixMillis,
) -> Result<(), StoreError> {
    let lines: Vec<LineText> = lines.iter().map(LineText::of).collect();
    save(connection, need, Some(&to_json(&lines)?), asked_at)
}

/// Keeps the state of a subscription.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_state(
    connection: &Connection,
    id: &SubscriptionId,
    state: &State,
    asked_at: UnixMillis,
) -> Result<(), StoreError> {
    save(connection, &Need::Subscription(id.clone()), Some(&to_json(&StateText::of(state))?), asked_at)
}

fn save(connection: &Connection, need: &Need, answer: Option<&str>, asked_at: UnixMillis) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO answers (need, answer, asked_at) VALUES (:need, :answer, :asked_at)
             ON CONFLICT (need) DO UPDATE SET answer = excluded.answer, asked_at = excluded.asked_at",
        )?
        .execute(named_params! { ":need": need.to_string(), ":answer": answer, ":asked_at": asked_at })?;
    Ok(())
}

/// Whether Stripe was asked for `need` at or after a moment.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn was_asked(connection: &Connection, need: &Need, since: UnixMillis) -> Result<bool, StoreError> {
    Ok(held(connection, need)?.is_some_and(|(_, asked_at)| asked_at >= since))
}

/// The lines of an invoice or of a checkout session. They do not change once they are paid, so any answer counts; but
/// that there are none counts only if it was told at or after a moment, for a wrong key may have been put right.
///
/// # Errors
/// [`StoreError::Sql`]; [`StoreError::Damaged`] for lines that were not written by [`save_lines`].
pub fn lines(connection: &Connection, need: &Need, since: UnixMillis) -> Result<Asked<Vec<Line>>, StoreError> {
    let damaged = |problem: String| StoreError::Damaged { what: format!("the answer to {need}"), problem };
    match held(connection, need)? {
        None => Ok(Asked::NotYet),
        Some((None, asked_at)) => Ok(if asked_at >= since { Asked::Gone } else { Asked::NotYet }),
        Some((Some(text), _)) => {
            let lines: Vec<LineText> = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
            let lines: Option<Vec<Line>> = lines.into_iter().map(LineText::line).collect();
            lines.map(Asked::Told).ok_or_else(|| damaged("a line has no price or amount".into()))
        }
    }
}

/// The state of a subscription, if it was asked for at or after a moment.
///
/// # Errors
/// [`StoreError::Sql`]; [`StoreError::Damaged`] for a state that was not written by [`save_state`].
pub fn state(connection: &Connection, id: &SubscriptionId, since: UnixMillis) -> Result<Asked<State>, StoreError> {
    match held(connection, &Need::Subscription(id.clone()))? {
        Some((Some(text), asked_at)) if asked_at >= since => {
            Ok(Asked::Told(from_json::<StateText>(id, &text)?.state(id)?))
        }
        Some((None, asked_at)) if asked_at >= since => Ok(Asked::Gone),
        _ => Ok(Asked::NotYet),
    }
}

fn held(connection: &Connection, need: &Need) -> Result<Option<(Option<String>, UnixMillis)>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT answer, asked_at FROM answers WHERE need = :need")?
        .query_row(named_params! { ":need": need.to_string() }, |row| Ok((row.get("answer")?, row.get("asked_at")?)))
        .optional()?)
}

/// How a line is written.
#[derive(Serialize, Deserialize)]
struct LineText {
    price: Option<PriceText>,
    amount: i64,
    currency: String,
    quantity: Option<i64>,
    proration: bool,
    on_subscription: bool,
    unit: UnitText,
    period_start: Option<UnixSeconds>,
    period_end: Option<UnixSeconds>,
}

#[derive(Serialize, Deserialize)]
struct PriceText {
    id: String,
    product: Option<String>,
    lookup_key: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UnitText {
    Costs(String),
    HasNone,
    Untold,
}

impl LineText {
    fn of(line: &Line) -> Self {
        let price = |price: &PriceRef| PriceText {
            id: price.id.to_string(),
            product: price.product.clone(),
            lookup_key: price.lookup_key.clone(),
        };
        Self {
            price: line.price.as_ref().map(price),
            amount: line.amount,
            currency: line.currency.to_string(),
            quantity: line.quantity,
            proration: line.proration,
            on_subscription: line.on_subscription,
            unit: match &line.unit {
                Unit::Costs(amount) => UnitText::Costs(amount.to_string()),
                Unit::HasNone => UnitText::HasNone,
                Unit::Untold => UnitText::Untold,
            },
            period_start: line.period_start,
            period_end: line.period_end,
        }
    }

    /// `None` for what [`LineText::of`] never writes.
    fn line(self) -> Option<Line> {
        let price = match self.price {
            Some(price) => Some(PriceRef {
                id: PriceId::parse(&price.id).ok()?,
                product: price.product,
                lookup_key: price.lookup_key,
            }),
            None => None,
        };
        Some(Line {
            price,
            amount: self.amount,
            currency: Currency::parse(&self.currency).ok()?,
            quantity: self.quantity,
            proration: self.proration,
            on_subscription: self.on_subscription,
            unit: match self.unit {
                UnitText::Costs(amount) => Unit::Costs(UnitAmount::parse(&amount).ok()?),
                UnitText::HasNone => Unit::HasNone,
                UnitText::Untold => Unit::Untold,
            },
            period_start: self.period_start,
            period_end: self.period_end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open::{self, Binding};

    /// However many events wait, a look reads no more rows than it was told to, and sorts none.
    #[test]
    fn the_line_is_read_along_its_index() {
        let folder = tempfile::tempdir().unwrap();
        let binding = Binding { livemode: true, connected_account: None };
        let server = open::server(&folder.path().join("books.db"), &binding).unwrap();
        for (sql, plan) in [
            (OPEN_AFTER, "SEARCH events USING INDEX events_open (status=? AND (received_at,event_id)>(?,?))"),
            (OPEN_LAST, "SEARCH events USING INDEX events_open (status=?)"),
        ] {
            let explain = format!("EXPLAIN QUERY PLAN {sql}");
            let mut statement = server.connection.prepare(&explain).unwrap();
            let mut steps = statement.raw_query();
            assert_eq!(steps.next().unwrap().unwrap().get::<_, String>("detail").unwrap(), plan);
            assert!(steps.next().unwrap().is_none(), "nothing is sorted");
        }
    }
}
