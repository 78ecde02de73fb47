//! An operator's entries: idempotent by their key, beside a running server.

use billingd::domain::ids::EventId;
use billingd::ops::adjust::{AdjustError, Adjusted, Adjustment, adjust};
use billingd::store::open::{self, CommandConnection};
use rusqlite::Connection;
use serde_json::json;

use super::fixtures::{Shape, event, invoice_paid, nth_invoice_paid};
use super::harness::{Billing, NOW, binding, spawn};

fn gives(account: &str, amount: i64, key: &str) -> Adjustment {
    Adjustment {
        account: account.into(),
        amount,
        unit: "credits".into(),
        reason: "a test".into(),
        key: key.into(),
        allow_debt: true,
        operator: "alice".into(),
    }
}

fn beside(billing: &Billing) -> CommandConnection {
    open::beside(&billing.database(), &binding()).expect("a connection beside the server")
}

fn does(connection: &mut Connection, adjustment: &Adjustment, event: &str) -> Result<Adjusted, AdjustError> {
    let event = EventId::parse(event).expect("an id");
    adjust(connection, adjustment, &event, false, NOW * 1000)
}

/// A customer with the user's own id for it.
fn meets(billing: &Billing, event_id: &str, customer: &str, reference: &str) {
    let customer = json!({ "id": customer, "object": "customer", "metadata": { "account_id": reference } });
    let answer = billing.stripe_sends(&event(Shape::New, event_id, "customer.created", customer));
    assert_eq!(answer.short(), "200 completed applied");
}

#[test]
fn the_same_key_again_changes_nothing_and_other_content_is_refused() {
    let billing = spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    meets(&billing, "evt_2", "cus_2", "user-2");
    let mut connection = beside(&billing);
    let first = does(&mut connection, &gives("cus_1", 40, "k1"), "op_1").expect("an entry");
    assert_eq!((first.new, first.balance, first.event_id.as_str()), (true, 40, "op_1"));
    let again = does(&mut connection, &gives("user-1", 40, "k1"), "op_2").expect("the same entry");
    assert_eq!((again.new, again.balance, again.event_id.as_str()), (false, 40, "op_1"));
    let other_unit = Adjustment { unit: "usd".into(), ..gives("cus_1", 40, "k1") };
    for other in [gives("cus_1", 41, "k1"), gives("cus_2", 40, "k1"), gives("cus_1", -40, "k1"), other_unit] {
        let refused = does(&mut connection, &other, "op_3");
        assert!(matches!(refused, Err(AdjustError::KeyTaken { .. })), "{refused:?}");
    }
    assert_eq!(does(&mut connection, &gives("cus_1", -100, "k2"), "op_4").expect("an entry").balance, -60);
    let ledger = "SELECT account_id, kind, fact, root, unit, amount, source_event_id FROM v_ledger ORDER BY entry_id";
    let expected = [
        "cus_1|adjustment|adjust:k1|adjust:k1|credits|40|op_1",
        "cus_1|adjustment|adjust:k2|adjust:k2|credits|-100|op_4",
    ];
    assert_eq!(billing.rows(ledger), expected);
    let events = "SELECT event_id, source, type, status, outcome FROM v_events WHERE source = 'operator'";
    let expected =
        ["op_1|operator|operator.adjustment|completed|applied", "op_4|operator|operator.adjustment|completed|applied"];
    assert_eq!(billing.rows(events), expected);
    assert_eq!(billing.rows("SELECT balance, available FROM v_balances"), ["-60|0"]);
    let audit = "SELECT actor, action, subject, event_id FROM v_audit WHERE action = 'adjustment'";
    assert_eq!(billing.rows(audit), ["operator:alice|adjustment|cus_1|op_1", "operator:alice|adjustment|cus_1|op_4"]);
}

#[test]
fn what_names_no_single_account_or_makes_no_entry_is_refused() {
    let billing = spawn();
    meets(&billing, "evt_1", "cus_1", "shared");
    meets(&billing, "evt_2", "cus_2", "shared");
    meets(&billing, "evt_3", "cus_3", "cus_1");
    let mut connection = beside(&billing);
    assert!(matches!(does(&mut connection, &gives("cus_9", 1, "k"), "op_1"), Err(AdjustError::UnknownAccount(_))));
    assert!(matches!(does(&mut connection, &gives("CUS_1", 1, "k"), "op_1"), Err(AdjustError::UnknownAccount(_))));
    let ambiguous = does(&mut connection, &gives("shared", 1, "k"), "op_1").expect_err("two accounts").to_string();
    assert!(ambiguous.contains("cus_1, cus_2"), "{ambiguous}");
    for (name, odd) in [
        ("amount", Adjustment { amount: 0, ..gives("cus_1", 1, "k") }),
        ("key", Adjustment { key: " ".into(), ..gives("cus_1", 1, "k") }),
        ("reason", Adjustment { reason: String::new(), ..gives("cus_1", 1, "k") }),
        ("unit", Adjustment { unit: "\t".into(), ..gives("cus_1", 1, "k") }),
    ] {
        let refused = does(&mut connection, &odd, "op_1").expect_err(name).to_string();
        assert!(refused.contains(name), "{refused}");
    }
    let taken = does(&mut connection, &gives("cus_1", 1, "k"), "evt_1");
    assert!(matches!(taken, Err(AdjustError::Invalid(_))), "{taken:?}");
    assert_eq!(billing.rows("SELECT 1 FROM v_ledger"), [""; 0]);
    let named = does(&mut connection, &gives("cus_1", 1, "k"), "op_1").expect("an id beats a reference");
    assert_eq!(named.account_id, "cus_1");
}

#[test]
fn five_at_a_time_work_beside_a_running_server() {
    let billing = spawn();
    meets(&billing, "evt_customer", "cus_1", "user-1");
    let new: usize = std::thread::scope(|scope| {
        let billing = &billing;
        scope.spawn(|| {
            for number in 0..40 {
                let event = invoice_paid(Shape::New, &format!("evt_{number}"), &format!("in_{number}"), "cus_1", 5);
                assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
            }
        });
        let operators: Vec<_> = (0..5)
            .map(|operator| {
                scope.spawn(move || {
                    let mut connection = beside(billing);
                    let mut new = 0;
                    for number in 0..8 {
                        let own = gives("cus_1", 3, &format!("own-{operator}-{number}"));
                        let shared = gives("user-1", 100, &format!("shared-{number}"));
                        for (kind, adjustment) in [("own", own), ("shared", shared)] {
                            let event = format!("op_{kind}_{operator}_{number}");
                            new += usize::from(does(&mut connection, &adjustment, &event).expect("an entry").new);
                        }
                    }
                    new
                })
            })
            .collect();
        operators.into_iter().map(|operator| operator.join().expect("an operator")).sum()
    });
    assert_eq!(new, 5 * 8 + 8, "each own key once, each shared key once among all");
    let balances = "SELECT unit, balance FROM v_balances ORDER BY unit";
    assert_eq!(billing.rows(balances), ["credits|920".to_owned(), "usd|200".to_owned()]);
}

#[test]
fn a_balance_beyond_what_can_be_counted_is_refused() {
    let billing = spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let mut connection = beside(&billing);
    for (key, amount, then) in [("up", i64::MAX, 1), ("down", i64::MIN, -1)] {
        does(&mut connection, &gives("cus_1", amount, key), &format!("op_{key}")).expect("the last that fits");
        let refused = does(&mut connection, &gives("cus_1", then, "more"), "op_more");
        assert!(matches!(&refused, Err(AdjustError::Invalid(why)) if why.contains("counted")), "{refused:?}");
        assert_eq!(billing.row("SELECT balance FROM v_balances"), amount.to_string());
        for (part, back) in [(1, -(amount / 2)), (2, -(amount - amount / 2))] {
            does(&mut connection, &gives("cus_1", back, &format!("{key}-{part}")), &format!("op_{key}_{part}"))
                .expect("back");
        }
    }
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "0");
    let mut large = nth_invoice_paid(2);
    large["data"]["object"]["amount_paid"] = json!(i64::MAX);
    large["data"]["object"]["customer"] = json!("cus_1");
    assert_eq!(billing.stripe_sends(&large).short(), "200 completed applied");
    let event = invoice_paid(Shape::Old, "evt_3", "in_3", "cus_1", 1);
    assert_eq!(billing.stripe_sends(&event).short(), "500 failed", "a grant, too");
    assert_eq!(billing.row("SELECT balance FROM v_balances WHERE unit = 'usd'"), i64::MAX.to_string());
}

#[test]
fn an_event_that_a_balance_has_no_room_for_fails_alone_and_says_what_to_do() {
    let billing = spawn();
    let paid = |number: usize| {
        let (id, invoice) = (format!("evt_{number}"), format!("in_{number}"));
        billing.stripe_sends(&invoice_paid(Shape::New, &id, &invoice, "cus_1", 100)).short()
    };
    assert_eq!(paid(1), "200 completed applied");
    let mut connection = beside(&billing);
    let fill = |key: &str, amount| Adjustment { unit: "usd".into(), ..gives("cus_1", amount, key) };
    does(&mut connection, &fill("k1", i64::MAX - 100), "op_1").expect("as much as there is room for");
    assert_eq!(paid(2), "500 failed");
    let told = billing.row("SELECT error_code, last_error FROM v_events WHERE event_id = 'evt_2'");
    assert!(told.starts_with("amount_too_large|the balance of cus_1 in usd"), "{told}");
    assert!(told.contains("billingd accounts adjust") && !told.contains("database"), "{told}");
    assert_eq!(billing.row("SELECT CAST(balance AS TEXT) FROM v_balances"), i64::MAX.to_string());
    does(&mut connection, &fill("k2", -100), "op_2").expect("room again");
    assert_eq!(paid(2), "200 completed applied");
    assert_eq!(billing.violations(), Vec::<String>::new());
}
