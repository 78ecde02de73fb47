//! What is asked about one account or one event is looked up, however large the books are.

use std::cell::RefCell;

use billingd::ops::story;
use billingd::store::views::{self, AccountFilter};
use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::fixtures::{Shape, invoice_paid};
use super::harness::spawn;

/// Steps of plans that walk, and may, in statements with such a part: through what was found before, or to the newest row.
const WALKS: [(&str, &str); 5] = [
    ("SCAN CONSTANT ROW ", "SELECT EXISTS"),
    ("SCAN (subquery-", "SELECT"),
    ("SCAN r ", "FROM roots r"),
    ("SCAN names ", "FROM names"),
    ("SCAN audit_log ", "ORDER BY seq DESC LIMIT 1"),
];

thread_local! {
    static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The statements that `ask` has the database run.
fn asked(connection: &Connection, ask: impl FnOnce()) -> Vec<String> {
    connection.trace_v2(
        TraceEventCodes::SQLITE_TRACE_STMT,
        Some(|event| {
            if let TraceEvent::Stmt(statement, _) = event {
                ASKED.with_borrow_mut(|asked| asked.push(statement.sql().into_owned()));
            }
        }),
    );
    ask();
    connection.trace_v2(TraceEventCodes::empty(), None);
    ASKED.take()
}

#[test]
fn no_story_walks_through_the_books() {
    let billing = spawn();
    assert_eq!(billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 5)).status, 200);
    let connection = billing.outside();
    let statements = asked(&connection, || {
        let listed = views::accounts(&connection, &AccountFilter { limit: 50, ..AccountFilter::default() });
        assert_eq!(listed.expect("accounts").len(), 1);
        assert_eq!(story::state_of(&connection, "cus_1").expect("an account").balances.len(), 1);
        let account = story::of_account(&connection, "cus_1", 50).expect("a read").expect("an account");
        assert_eq!((account.entries.len(), account.events.len()), (1, 1));
        let event = story::of_event(&connection, "evt_1").expect("a read").expect("an event");
        assert_eq!(event.entries.len(), 1);
    });
    assert!(statements.len() > 15, "{statements:?}");
    let mut found = Vec::new();
    for sql in statements {
        for step in walks(&connection, &sql) {
            if !WALKS.iter().any(|(walk, part)| format!("{step} ").starts_with(walk) && sql.contains(part)) {
                found.push(format!("{step}: {sql}"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

/// The steps of a plan that walk through something.
fn walks(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().expect(sql) {
        steps.push(row.get::<_, String>("detail").expect("a step"));
    }
    steps.retain(|step| step.starts_with("SCAN"));
    steps
}
