//! The JSON API, as the user's own app and operators' programs use it.

use serde_json::{Value, json};

use super::cli::run;
use super::fixtures::{Shape, customer, event, invoice, invoice_paid, nth_invoice_paid, subscription};
use super::harness::{Answer, Billing, gated_clock, wait_until};
use super::visitor::{APP, METRICS, OPERATOR, bearer, open_to_all};

const JSON: &str = "Content-Type: application/json";

/// A customer with the user's own id for it.
fn meets(billing: &Billing, event_id: &str, id: &str, reference: &str) {
    let answer = billing.stripe_sends(&event(Shape::New, event_id, "customer.created", customer(id, reference)));
    assert_eq!(answer.short(), "200 completed applied");
}

/// The app gives or spends.
fn adjusts(billing: &Billing, account: &str, key: &str, body: &Value) -> Answer {
    let key = format!("Idempotency-Key: {key}");
    let path = format!("/api/v1/accounts/{account}/adjustments");
    billing.visitor("POST", &path, &[&bearer(APP), &key, JSON], &body.to_string())
}

fn spends(billing: &Billing, key: &str, amount: i64) -> Answer {
    adjusts(billing, "cus_1", key, &json!({ "amount": -amount, "reason": "spent" }))
}

fn gives(billing: &Billing, key: &str, amount: i64) -> Answer {
    adjusts(billing, "cus_1", key, &json!({ "amount": amount, "reason": "a gift" }))
}

/// `402 insufficient`: the status and the kind of problem.
fn problem(answer: &Answer) -> String {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    assert_eq!(answer.body["status"], answer.status, "{answer:?}");
    assert!(answer.body["title"].is_string() && answer.body["detail"].is_string(), "{answer:?}");
    let kind = answer.body["type"].as_str().and_then(|kind| kind.strip_prefix("urn:billingd:problem:"));
    format!("{} {}", answer.status, kind.expect("a kind"))
}

#[test]
fn an_account_is_told_by_its_id_or_its_reference() {
    let billing = open_to_all()
        .toml("[tiers]\norder = [\"pro\"]\n[credits]\nbasis = \"catalogue\"\n[[price]]\nid = \"price_pro\"\ntier = \"pro\"\ncredits = 100\n")
        .spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let subscribed = subscription(Shape::New, "sub_1", "cus_1", "price_pro", "active");
    let answer = billing.stripe_sends(&event(Shape::New, "evt_2", "customer.subscription.created", subscribed));
    assert_eq!(answer.short(), "200 completed applied");
    assert_eq!(gives(&billing, "k1", 40).status, 201);
    let told = billing.asks(APP, "/api/v1/accounts/cus_1");
    assert_eq!(told.status, 200);
    assert_eq!(told.header("content-type"), Some("application/json"));
    for (name, expected) in [
        ("account_id", json!("cus_1")),
        ("reference", json!("user-1")),
        ("tier", json!("pro")),
        ("deleted", json!(false)),
        ("balances", json!([{ "account_id": "cus_1", "unit": "credits", "balance": 40, "available": 40 }])),
    ] {
        assert_eq!(told.body[name], expected, "{name}");
    }
    let subscription = &told.body["subscriptions"][0];
    assert_eq!((&subscription["subscription_id"], &subscription["tier"]), (&json!("sub_1"), &json!("pro")));
    let columns = billing.rows("SELECT name FROM pragma_table_info('v_subscriptions') WHERE name <> 'account_id'");
    for column in columns {
        assert!(subscription.get(&column).is_some(), "{column} as in v_subscriptions");
    }
    for (token, path) in [(APP, "user-1"), (OPERATOR, "cus_1"), (OPERATOR, "user-1")] {
        assert_eq!(billing.asks(token, &format!("/api/v1/accounts/{path}")).body, told.body, "{path}");
    }
    assert_eq!(billing.asks(METRICS, "/api/v1/accounts/cus_1").status, 403);
    assert_eq!(problem(&billing.asks(APP, "/api/v1/accounts/CUS_1")), "404 unknown-account");
    meets(&billing, "evt_3", "cus_2", "shared");
    meets(&billing, "evt_4", "cus_3", "shared");
    let several = billing.asks(APP, "/api/v1/accounts/shared");
    assert_eq!(problem(&several), "409 ambiguous-account");
    assert_eq!(several.body["accounts"], json!(["cus_2", "cus_3"]));
    assert_eq!(
        problem(&adjusts(&billing, "shared", "k2", &json!({ "amount": 1, "reason": "x" }))),
        "409 ambiguous-account"
    );
}

#[test]
fn a_reference_may_hold_any_characters() {
    let billing = open_to_all().spawn();
    for (number, (reference, path)) in [
        ("user+tag@example.com", "user+tag@example.com"),
        ("other+tag@example.com", "other%2Btag%40example.com"),
        ("org/team/7", "org%2Fteam%2f7"),
        ("../../../metrics", "..%2F..%2F..%2Fmetrics"),
        ("..", "%2E%2E"),
        ("100%", "100%25"),
        ("a%2Fb", "a%252Fb"),
        ("a b?c#d", "a%20b%3Fc%23d"),
        ("Zoë \u{1F680}", "Zo%C3%AB%20%F0%9F%9A%80"),
        ("adjustments", "adjustments"),
        ("' OR 1=1 --", "'%20OR%201=1%20--"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("cus_{number}");
        meets(&billing, &format!("evt_{number}"), &id, reference);
        let told = billing.asks(APP, &format!("/api/v1/accounts/{path}"));
        assert_eq!((told.status, &told.body["reference"]), (200, &json!(reference)), "{path}");
        assert_eq!(told.body["account_id"], id.as_str(), "{path}");
        let posted = adjusts(&billing, path, &format!("k{number}"), &json!({ "amount": 5, "reason": "x" }));
        assert_eq!((posted.status, &posted.body["account_id"]), (201, &json!(id)), "{path}");
    }
    for path in ["a%FFb", "%00", "a%", "org/team/7", "", "/", "x/", "x/adjustments/", "x//adjustments"] {
        let told = billing.asks(APP, &format!("/api/v1/accounts/{path}"));
        assert!([400, 404].contains(&told.status), "{path}: {told:?}");
    }
}

#[test]
fn an_adjustment_is_posted_once() {
    let billing = open_to_all().spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let first = gives(&billing, "k1", 40);
    assert_eq!(first.status, 201);
    let event = first.body["event_id"].as_str().expect("an event").to_owned();
    let expected = |new: bool, amount: i64, balance: i64, event: &str| {
        json!({
            "account_id": "cus_1", "event_id": event, "new": new, "unit": "credits", "amount": amount,
            "balance": balance, "available": balance,
        })
    };
    assert_eq!(first.body, expected(true, 40, 40, &event));
    let again = adjusts(&billing, "user-1", "k1", &json!({ "amount": 40, "reason": "other words" }));
    assert_eq!((again.status, again.body), (200, expected(false, 40, 40, &event)));
    let spent = spends(&billing, "k2", 40);
    assert_eq!((spent.status, &spent.body["balance"]), (201, &json!(0)));
    let repeat = spends(&billing, "k2", 40);
    assert_eq!((repeat.status, &repeat.body["new"]), (200, &json!(false)), "nothing is left, and nothing is needed");
    for other in [
        json!({ "amount": 41, "reason": "x" }),
        json!({ "amount": -40, "reason": "x" }),
        json!({ "amount": 40, "unit": "usd", "reason": "x" }),
    ] {
        assert_eq!(problem(&adjusts(&billing, "cus_1", "k1", &other)), "409 key-taken", "{other}");
    }
    let audit = "SELECT actor, action, subject FROM v_audit WHERE action = 'adjustment'";
    assert_eq!(billing.rows(audit), ["operator:shop|adjustment|cus_1", "operator:shop|adjustment|cus_1"]);
    assert_eq!(billing.rows("SELECT source, type, status FROM v_events WHERE event_id LIKE 'op_%'").len(), 2);
    let by_hand = run(
        billing.config_file().parent().expect("a folder"),
        &[
            "--config",
            "billingd.toml",
            "--json",
            "accounts",
            "adjust",
            "cus_1",
            "--amount",
            "40",
            "--reason",
            "x",
            "--key",
            "k1",
        ],
    );
    let by_hand: Value = serde_json::from_str(&by_hand.out).expect("JSON");
    assert_eq!((&by_hand["new"], &by_hand["event_id"]), (&json!(false), &json!(event)), "one operation, two doors");
}

#[test]
fn nobody_spends_what_is_not_there() {
    let billing = open_to_all().spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let refused = spends(&billing, "k1", 1);
    assert_eq!(problem(&refused), "402 insufficient");
    assert_eq!(gives(&billing, "k2", 10).status, 201);
    let refused = spends(&billing, "k1", 11);
    assert_eq!(problem(&refused), "402 insufficient");
    let told = (&refused.body["available"], &refused.body["needed"], &refused.body["unit"]);
    assert_eq!(told, (&json!(10), &json!(11), &json!("credits")));
    assert_eq!(billing.rows("SELECT fact FROM v_ledger"), ["adjust:k2"], "nothing is left of it");
    assert_eq!(spends(&billing, "k1", 10).status, 201, "the key is still free");
    let into_debt = |key: &str, amount: i64, allow: Value| {
        adjusts(&billing, "cus_1", key, &json!({ "amount": amount, "reason": "x", "allow_debt": allow }))
    };
    assert_eq!(problem(&into_debt("k3", -5, json!(false))), "402 insufficient");
    let owed = into_debt("k3", -5, json!(true));
    assert_eq!((&owed.body["balance"], &owed.body["available"]), (&json!(-5), &json!(0)));
    let refused = spends(&billing, "k4", 1);
    assert_eq!((refused.status, &refused.body["available"]), (402, &json!(0)), "a debt is not spent from");
    assert_eq!(problem(&into_debt("k4", i64::MIN, json!(false))), "402 insufficient");
    assert_eq!(into_debt("k4", i64::MIN, json!(false)).body["needed"], json!(i64::MIN.unsigned_abs()));
    assert_eq!(problem(&into_debt("k4", i64::MIN, json!(true))), "422 invalid");
    assert_eq!(gives(&billing, "k5", 7).body["available"], json!(2), "a gift pays the debt first");
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "2");
}

#[test]
fn who_spends_at_once_never_spends_the_same_twice() {
    let billing = open_to_all().spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    assert_eq!(gives(&billing, "all", 20).status, 201);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let billing = &billing;
        let buyers: Vec<_> = (0..8)
            .map(|buyer| {
                scope.spawn(move || {
                    (0..8).map(|number| spends(billing, &format!("k-{buyer}-{number}"), 1).status).collect::<Vec<_>>()
                })
            })
            .collect();
        for number in 0..20 {
            let event = invoice_paid(Shape::New, &format!("evt_in_{number}"), &format!("in_{number}"), "cus_1", 5);
            assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
        }
        buyers.into_iter().flat_map(|buyer| buyer.join().expect("a buyer")).collect()
    });
    let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(201), count(402)), (20, 44), "{statuses:?}");
    assert_eq!(billing.row("SELECT balance FROM v_balances WHERE unit = 'credits'"), "0");
    assert_eq!(billing.row("SELECT balance FROM v_balances WHERE unit = 'usd'"), "100");
}

#[test]
fn one_key_at_once_is_one_entry() {
    let billing = open_to_all().spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let billing = &billing;
        let all: Vec<_> = (0..8).map(|_| scope.spawn(move || gives(billing, "one", 3))).collect();
        all.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 7);
    assert!(answers.iter().all(|answer| answer.body["event_id"] == answers[0].body["event_id"]));
    assert_eq!(billing.rows("SELECT amount FROM v_ledger"), ["3"]);
}

#[test]
fn what_is_no_adjustment_is_refused_and_says_why() {
    let billing = open_to_all().spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let good = json!({ "amount": 1, "unit": "credits", "reason": "x", "allow_debt": false }).to_string();
    let (token, key) = (bearer(APP), "Idempotency-Key: k");
    let posts = |headers: &[&str], body: &str| {
        billing.visitor("POST", "/api/v1/accounts/cus_1/adjustments", &[&[token.as_str()], headers].concat(), body)
    };
    let long = format!("Idempotency-Key: {}", "k".repeat(256));
    for headers in [
        &[JSON][..],
        &[JSON, "Idempotency-Key:"],
        &[JSON, "Idempotency-Key:   "],
        &[JSON, "Idempotency-Key: Zoë"],
        &[JSON, key, key],
        &[JSON, &long],
    ] {
        assert_eq!(problem(&posts(headers, &good)), "400 key-missing", "{headers:?}");
    }
    for content_type in ["", "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded"] {
        let headers = [key, content_type].into_iter().filter(|header| !header.is_empty()).collect::<Vec<_>>();
        assert_eq!(problem(&posts(&headers, &good)), "415 not-json", "{content_type}");
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\u{0}",
        "{\"amount\":1}",
        "{\"reason\":\"x\"}",
        "{\"amount\":\"1\",\"reason\":\"x\"}",
        "{\"amount\":1.5,\"reason\":\"x\"}",
        "{\"amount\":1e3,\"reason\":\"x\"}",
        "{\"amount\":9223372036854775808,\"reason\":\"x\"}",
        "{\"amount\":1,\"reason\":\"x\",\"allowdebt\":true}",
        "{\"amount\":1,\"amount\":1,\"reason\":\"x\"}",
        "{\"amount\":1,\"reason\":\"x\",\"allow_debt\":\"true\"}",
        "{\"amount\":1,\"reason\":\"x\"} {}",
        "{\"amount\":0,\"reason\":\"x\"}",
        "{\"amount\":1,\"reason\":\" \"}",
        "{\"amount\":1,\"reason\":\"x\",\"unit\":\"\"}",
    ] {
        assert_eq!(problem(&posts(&[JSON, key], body)), "422 invalid", "{body}");
    }
    let large = json!({ "amount": 1, "reason": "x".repeat(70_000) }).to_string();
    assert_eq!(problem(&posts(&[JSON, key], &large)), "413 too-large");
    let chunks = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let chunked = format!(
        "POST /api/v1/accounts/cus_1/adjustments HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n{key}\r\n\
         {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    );
    assert_eq!(problem(&billing.hears(chunked)), "413 too-large", "whatever it announces");
    assert_eq!(
        problem(&adjusts(&billing, "cus_9", "k", &json!({ "amount": 1, "reason": "x" }))),
        "404 unknown-account"
    );
    for method in ["GET", "PUT", "DELETE", "PATCH", "HEAD"] {
        let answer = billing.visitor(method, "/api/v1/accounts/cus_1/adjustments", &[&token], "");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
    let answer = billing.visitor("POST", "/api/v1/accounts/cus_1", &[&token], "");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(billing.rows("SELECT 1 FROM v_ledger"), [""; 0]);
    assert_eq!(posts(&[&JSON.to_uppercase(), "idempotency-KEY: k"], &good).status, 201);
}

#[test]
fn while_the_database_takes_no_writes_an_app_is_told_to_come_again() {
    let billing = open_to_all().with("server.request_timeout", "1s").spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let lock = billing.somebody_locks();
    let answer = gives(&billing, "k1", 5);
    assert!(["503 unavailable", "503 timeout"].contains(&problem(&answer).as_str()), "{answer:?}");
    assert!(answer.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
    assert_eq!(answer.header("x-frame-options"), Some("DENY"), "as on every answer");
    assert_eq!(billing.asks(APP, "/api/v1/accounts/cus_1").status, 200, "reading goes on");
    drop(lock);
    let again = gives(&billing, "k1", 5);
    assert!([200, 201].contains(&again.status), "a repeat is safe: {again:?}");
    assert_eq!(billing.rows("SELECT amount FROM v_ledger"), ["5"]);
}

/// A turn belongs to the work, which goes on when nobody waits for its answer any more.
#[test]
fn behind_a_stuck_writer_only_so_many_work_as_have_a_turn() {
    gated_clock!(GATE, clock);
    let billing = open_to_all().clock(clock).with("server.request_timeout", "1s").spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    GATE.close();
    let at_once = |names: std::ops::Range<usize>| {
        std::thread::scope(|scope| {
            let billing = &billing;
            let all: Vec<_> = names.map(|name| scope.spawn(move || gives(billing, &format!("k{name}"), 1))).collect();
            all.into_iter().map(|one| problem(&one.join().expect("an answer"))).collect::<Vec<_>>()
        })
    };
    assert_eq!(at_once(0..8), ["503 timeout"; 8], "they have all the turns");
    assert_eq!(at_once(8..14), ["503 timeout"; 6], "they wait for one");
    assert_eq!(billing.asks(APP, "/api/v1/accounts/cus_1").status, 200, "reading goes on");
    assert_eq!(billing.asks(METRICS, "/metrics").status, 200);
    GATE.open();
    wait_until("all who had a turn are done", || gives(&billing, "last", 100).status < 300);
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "108", "who had no turn has changed nothing");
}

/// Two pages that take long are all that is read at a time, but for the accounts and the metrics.
#[test]
fn what_reads_at_length_holds_up_no_app_and_is_told_to_ask_for_less() {
    let mut billing = open_to_all().spawn();
    billing.is_broken_on_purpose();
    meets(&billing, "evt_1", "cus_1", "user-1");
    billing.somebody_runs(
        "DROP VIEW v_audit;
         CREATE VIEW v_audit AS
         WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n)
         SELECT n AS seq, n AS at, '' AS actor, '' AS action, '' AS subject, '' AS event_id, '' AS detail FROM n WHERE n < 0",
    );
    let answered = std::thread::scope(|scope| {
        let lists = ["/audit", "/api/v1/audit"].map(|path| scope.spawn(|| billing.asks(OPERATOR, path)));
        let mut answered = 0;
        while !lists.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert_eq!(billing.asks(APP, "/api/v1/accounts/cus_1").status, 200);
            let metrics = billing.asks(METRICS, "/metrics").body.to_string();
            assert!(metrics.contains("billingd_database_readable 1"), "{metrics}");
            answered += 1;
        }
        let [page, list] = lists.map(|list| list.join().expect("an answer"));
        assert_eq!((page.status, problem(&list).as_str()), (503, "503 slow"));
        for answer in [page, list] {
            assert!(answer.body.to_string().contains("took longer than 5 s"), "{answer:?}");
            assert_eq!(answer.header("retry-after"), None, "the same again takes as long");
        }
        answered
    });
    assert!(answered > 10, "they were answered meanwhile: {answered}");
}

#[test]
fn operators_are_told_what_the_commands_print() {
    let billing = open_to_all()
        .toml("[tiers]\norder = [\"pro\"]\n[credits]\nbasis = \"catalogue\"\n[[price]]\nid = \"price_pro\"\ntier = \"pro\"\ncredits = 100\n")
        .spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    billing.stripe_sends(&nth_invoice_paid(2));
    let mut truncated = event(Shape::Old, "evt_3", "invoice.paid", invoice(Shape::Old, "in_3", "cus_1", 2_000));
    truncated["data"]["object"]["status"] = json!("paid");
    truncated["data"]["object"]["lines"]["has_more"] = json!(true);
    billing.stripe_sends(&truncated);
    let unlisted = subscription(Shape::New, "sub_1", "cus_1", "price_other", "active");
    billing.stripe_sends(&event(Shape::New, "evt_4", "customer.subscription.created", unlisted));
    assert_eq!(gives(&billing, "k1", 5).status, 201);
    let folder = billing.config_file().parent().expect("a folder").to_owned();
    let prints = |arguments: &[&str]| -> Value {
        let ran = run(&folder, &[&["--config", "billingd.toml", "--json"], arguments].concat());
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{arguments:?}: {}{}", ran.out, ran.err))
    };
    for (path, arguments) in [
        ("events", &["events", "list"][..]),
        ("events?status=pending", &["events", "list", "--status", "pending"]),
        ("events?outcome=applied&limit=1", &["events", "list", "--outcome", "applied", "--limit", "1"]),
        ("events?type=invoice.paid", &["events", "list", "--type", "invoice.paid"]),
        ("events?account=user-1", &["events", "list", "--account", "user-1"]),
        ("events/evt_3", &["events", "show", "evt_3"]),
        ("findings", &["findings", "list"]),
        ("findings?status=all", &["findings", "list", "--status", "all"]),
        ("findings?status=resolved&limit=5", &["findings", "list", "--status", "resolved"]),
        ("audit", &["audit", "list"]),
        ("audit?account=cus_1", &["audit", "list", "--account", "cus_1"]),
        ("audit?event=evt_1", &["audit", "list", "--event", "evt_1"]),
        ("audit?limit=2", &["audit", "list", "--limit", "2"]),
    ] {
        let told = billing.asks(OPERATOR, &format!("/api/v1/{path}"));
        let rows = told.body.get("rows").unwrap_or(&told.body);
        assert_eq!((told.status, rows), (200, &prints(arguments)), "{path}");
        for token in [APP, METRICS] {
            assert_eq!(billing.asks(token, &format!("/api/v1/{path}")).status, 403, "{path}");
        }
    }
    assert_eq!(billing.asks(OPERATOR, "/api/v1/findings").body.as_array().map(Vec::len), Some(1));
    assert_eq!(billing.asks(OPERATOR, "/api/v1/events?since=1s").body["rows"].as_array().map(Vec::len), Some(5));
    assert_eq!(billing.asks(OPERATOR, "/api/v1/audit?since=1h").body["rows"], prints(&["audit", "list"]));
    assert_eq!(problem(&billing.asks(OPERATOR, "/api/v1/events/evt_9")), "404 unknown-event");
    assert_eq!(problem(&billing.asks(OPERATOR, "/api/v1/events?account=cus_9")), "404 unknown-account");
}

#[test]
fn a_parameter_that_chooses_nothing_is_refused() {
    let billing = open_to_all().spawn();
    for path in [
        "events?status=done",
        "events?outcome=Applied",
        "events?limit=0",
        "events?limit=1001",
        "events?limit=x",
        "events?since=yesterday",
        "events?since=",
        "events?stauts=failed",
        "events?status=failed&status=pending",
        "findings?status=new",
        "findings?kind=silence",
        "findings?limit=-1",
        "audit?since=-1h",
        "audit?actor=alice",
    ] {
        assert_eq!(problem(&billing.asks(OPERATOR, &format!("/api/v1/{path}"))), "400 parameter", "{path}");
    }
    for path in ["events/", "events/x/y", "accounts", "", "payloads/evt_1", "EVENTS"] {
        assert_eq!(problem(&billing.asks(OPERATOR, &format!("/api/v1/{path}"))), "404 not-found", "{path}");
    }
}

#[test]
fn a_session_reads_and_does_not_post() {
    let billing = open_to_all().spawn();
    meets(&billing, "evt_1", "cus_1", "user-1");
    let form = "Content-Type: application/x-www-form-urlencoded";
    let begun = billing.visitor("POST", "/login", &[form], &format!("token={OPERATOR}"));
    let set = begun.header("set-cookie").expect("a session");
    let cookie = format!("Cookie: {}", set.split(';').next().expect("a value"));
    assert_eq!(billing.visitor("GET", "/api/v1/accounts/cus_1", &[&cookie], "").status, 200);
    let body = json!({ "amount": 1, "reason": "x" }).to_string();
    let path = "/api/v1/accounts/cus_1/adjustments";
    let forged = billing.visitor("POST", path, &[&cookie, "Idempotency-Key: k", JSON], &body);
    assert_eq!(problem(&forged), "403 csrf");
}

#[test]
fn strangers_to_the_api_are_never_sent_to_the_form() {
    let billing = open_to_all().spawn();
    for path in ["/api/v1/accounts/cus_1", "/api/v1/events", "/api/v1/nothing", "/metrics"] {
        let answer = billing.visitor("GET", path, &["Accept: text/html"], "");
        assert_eq!(problem(&answer), "401 unauthorized", "{path}");
    }
}
