//! Every command that writes, as its own process beside a server that is busy: nobody notices anything of the others.
//!
//! The load goes on until the commands are done, so how much of it there is differs from run to run, and the books that
//! it must come to are computed from how much there was.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use billingd::clock;
use billingd::samples::{Sample, Shape as Rendered};
use billingd::store::Desk;
use jiff::civil::date;
use rusqlite::Transaction;
use serde_json::{Value, json};

use super::cli::{Ran, check, run};
use super::fixtures::{Shape, event, invoice_paid, nth_invoice_paid};
use super::harness::{Billing, Setup, spawn, violations, wait_until};

/// No job of the server's does what a command is to do; a command reads this file, too.
const CONFIG: &str = "[tiers]\norder = [\"basic\"]\n[[price]]\nid = \"price_basic\"\ntier = \"basic\"\n\
    [credits]\nunit = \"usd\"\n[fx]\nurl = \"http://127.0.0.1:1/\"\n\
    [jobs]\nreaper = \"\"\nreconcile = \"\"\nretention = \"\"\nbackup = \"\"\nfx = \"0 0 0 29 2 *\"\n";

/// When yen were paid: 2001-01-03, noon. Every clock has seen it.
const LONG_AGO: i64 = 978_523_200;

const SENDERS: u64 = 4;

/// Invoices that a file has and Stripe delivers meanwhile.
const IN_FILE: std::ops::Range<u64> = 1_000_000..1_000_600;

/// Invoices that an old table has and Stripe delivers meanwhile.
const IN_TABLE: std::ops::Range<u64> = 2_000_000..2_000_300;

/// Accounts that only the old table has, and how many of them were given something twice there.
const TABLED: u64 = 1_000;
const TWICE: u64 = 200;

/// Events that failed for a reason that is gone, and what was to be done about others.
const FAILED: u64 = 100;
const DISMISSED: u64 = 20;
const WAITING: u64 = 10;
const OVERDUE: u64 = 150;
const OLD: u64 = 400;

/// What a customer of the load has in the end: 20.00 USD less a refund of 5.00, or 1000 JPY by the rates of the day.
const IN_DOLLARS: i64 = 1_500;
const IN_YEN: i64 = 879;

/// What customers of the load do, by turns.
fn story(number: u64) -> Vec<Value> {
    if number % 4 == 3 {
        return vec![yen(number)];
    }
    let sample = Sample {
        shape: if number.is_multiple_of(2) { Rendered::Older } else { Rendered::Current },
        refunded: Some(500),
        ..Sample::new(number * 4, clock::now() / 1000)
    };
    let of = |index: u64, kind: &str| Sample { event: number * 4 + index, ..sample.clone() }.event(kind).unwrap();
    let paid = of(0, "invoice.paid");
    let subscribed = of(1, "customer.subscription.created");
    vec![paid.clone(), subscribed, of(2, "invoice_payment.paid"), of(3, "refund.created"), paid]
}

fn yen(number: u64) -> Value {
    let sample = Sample { currency: "jpy".into(), unit_amount: 1_000, ..Sample::new(number * 4, LONG_AGO) };
    sample.event("invoice.paid").unwrap()
}

/// An invoice of an event that is also told elsewhere; always the same one.
fn told_twice(number: u64) -> Sample {
    Sample::new(number, LONG_AGO)
}

fn id(event: &Value) -> String {
    event["id"].as_str().unwrap().to_owned()
}

/// What Stripe delivers meanwhile.
#[derive(Default)]
struct Load {
    stories: AtomicU64,
    is_over: AtomicBool,
    /// Sent between the stories.
    extras: Mutex<VecDeque<Value>>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    answers: BTreeMap<String, u64>,
    events: BTreeSet<String>,
    balances: BTreeMap<String, i64>,
    slowest: Duration,
}

impl Load {
    fn sender(&self, billing: &Billing) {
        while !self.is_over.load(Ordering::SeqCst) {
            let number = self.stories.fetch_add(1, Ordering::SeqCst);
            let story = story(number);
            for event in &story {
                self.send(billing, event);
                let extra = self.extras.lock().unwrap().pop_front();
                extra.iter().for_each(|extra| self.send(billing, extra));
            }
            let account = story[0]["data"]["object"]["customer"].as_str().unwrap().to_owned();
            self.told.lock().unwrap().balances.insert(account, if story.len() == 1 { IN_YEN } else { IN_DOLLARS });
        }
        while let Some(extra) = { self.extras.lock().unwrap().pop_front() } {
            self.send(billing, &extra);
        }
    }

    fn send(&self, billing: &Billing, event: &Value) {
        let began = Instant::now();
        let answer = billing.stripe_sends(event).short();
        let mut told = self.told.lock().unwrap();
        *told.answers.entry(answer).or_default() += 1;
        told.events.insert(id(event));
        told.slowest = told.slowest.max(began.elapsed());
    }

    fn adds(&self, events: impl Iterator<Item = Value>) {
        self.extras.lock().unwrap().extend(events);
    }

    /// So many more deliveries were answered.
    fn goes_on(&self, deliveries: u64) {
        let count = || self.told.lock().unwrap().answers.values().sum::<u64>();
        let before = count();
        wait_until("the load goes on", || count() >= before + deliveries);
    }
}

/// Runs commands at once, each to the end that is expected of it.
fn at_once(billing: &Billing, load: &Load, commands: &[(i32, &[&str])]) -> Vec<Value> {
    load.goes_on(2 * SENDERS);
    let folder = billing.database().parent().unwrap().to_owned();
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let run = |arguments: &[&str]| run(&folder, &[&["--config", "billingd.toml", "--json"], arguments].concat());
        let running: Vec<_> = commands.iter().map(|(_, arguments)| scope.spawn(move || run(arguments))).collect();
        running.into_iter().map(|one| one.join().expect("a command")).collect()
    });
    let result = |((status, arguments), ran): (&(i32, &[&str]), &Ran)| {
        let said = format!("{arguments:?}: {} {}{}", ran.status, ran.err, ran.out);
        for word in ["locked", "busy"] {
            assert!(!ran.err.contains(word), "{said}");
        }
        assert_eq!(ran.status, *status, "{said}");
        if *status == 1 { Value::String(ran.err.clone()) } else { serde_json::from_str(&ran.out).expect("a result") }
    };
    commands.iter().zip(&ran).map(result).collect()
}

fn refund(name: &str) -> Value {
    let object = json!({
        "id": format!("re_{name}"), "object": "refund", "amount": 500, "currency": "usd", "status": "succeeded",
        "charge": null, "payment_intent": format!("pi_{name}"), "created": LONG_AGO,
    });
    event(Shape::New, &format!("evt_{name}"), "refund.created", object)
}

fn names(kind: &str, count: u64) -> Vec<String> {
    (0..count).map(|number| format!("evt_{kind}_{number:03}")).collect()
}

fn write_lines(billing: &Billing, name: &str, lines: impl Iterator<Item = String>) {
    fs::write(billing.database().with_file_name(name), lines.collect::<Vec<_>>().join("\n")).unwrap();
}

/// What is there before anybody is busy: what failed, what waits, what is old.
fn begins(billing: &Billing) {
    let paid = |kind: &'static str, count: u64| {
        (0..count).map(move |number| {
            let name = format!("{kind}_{number:03}");
            invoice_paid(Shape::Old, &format!("evt_{name}"), &format!("in_{name}"), &format!("cus_{name}"), 2_000)
        })
    };
    let waiting = |kind: &'static str, count: u64| (0..count).map(move |number| refund(&format!("{kind}_{number:03}")));
    let ignored = (0..OLD).map(|number| {
        event(Shape::New, &format!("evt_ignored_{number:03}"), "totally.new.thing", json!({ "id": "n", "object": "n" }))
    });
    let customer = json!({ "id": "cus_by_hand", "object": "customer", "metadata": {} });
    let events = std::iter::once(event(Shape::New, "evt_customer", "customer.created", customer))
        .chain(paid("failed", FAILED))
        .chain(paid("old", OLD))
        .chain(waiting("dismissed", DISMISSED))
        .chain(waiting("waiting", WAITING))
        .chain(waiting("overdue", OVERDUE))
        .chain(ignored);
    write_lines(billing, "before.ndjson", events.map(|event| event.to_string()));
    billing.somebody_runs(
        "CREATE TRIGGER broken BEFORE INSERT ON ledger_entries WHEN NEW.account_id LIKE 'cus_failed%'
         BEGIN SELECT RAISE(ABORT, 'made by a test'); END",
    );
    let ran =
        run(billing.database().parent().unwrap(), &["--config", "billingd.toml", "events", "import", "before.ndjson"]);
    assert_eq!((ran.status, ran.err.as_str()), (3, ""), "{}", ran.out);
    billing.somebody_runs(
        "DROP TRIGGER broken;
         UPDATE events SET received_at = received_at - 100 * 86400000
             WHERE event_id LIKE 'evt_old%' OR event_id LIKE 'evt_ignored%';
         UPDATE events SET received_at = received_at - 2 * 86400000, tried_at = tried_at - 3600000
             WHERE event_id LIKE 'evt_overdue%'",
    );
}

/// An old table: each account got 100, spent 30 and got 40 for a payment, some of them twice; and invoices that Stripe
/// delivers as well.
fn write_table(billing: &Billing) {
    let mut table = String::from("account_id,unit,amount,source_event_id,source_object\n");
    for number in 0..TABLED {
        table.push_str(&format!(
            "cus_tabled_{number},credits,100,evt_t_{number},in_t_{number}\n\
             cus_tabled_{number},credits,-30,use_{number},use_{number}\n\
             cus_tabled_{number},credits,40,evt_a_{number},pi_t_{number}\n"
        ));
        if number < TWICE {
            table.push_str(&format!("cus_tabled_{number},credits,40,evt_b_{number},pi_t_{number}\n"));
        }
    }
    for sample in IN_TABLE.map(told_twice) {
        let (account, event, invoice) = (sample.customer_id(), sample.event_id(), sample.invoice_id());
        table.push_str(&format!("{account},usd,2000,{event},{invoice}\n"));
    }
    fs::write(billing.database().with_file_name("old.csv"), table).unwrap();
}

/// As many rates as the file of the last 90 days has.
fn write_rates(billing: &Billing) {
    let others = "aud brl cad chf cny czk dkk gbp hkd huf idr ils inr isk krw mxn myr nok nzd php pln ron sek sgd thb \
                  try zar";
    let others: String =
        others.split(' ').map(|code| format!("<Cube currency='{}' rate='7.5'/>", code.to_uppercase())).collect();
    let days = date(2000, 11, 1).series(jiff::Span::new().days(1)).take(63);
    let days: String = days
        .map(|day| {
            format!(
                "<Cube time='{day}'><Cube currency='USD' rate='0.95'/><Cube currency='JPY' rate='108'/>{others}</Cube>"
            )
        })
        .collect();
    fs::write(billing.database().with_file_name("rates.xml"), format!("<Envelope><Cube>{days}</Cube></Envelope>"))
        .unwrap();
}

fn adjusts<'a>(amount: &'a str, key: &'a str) -> [&'a str; 9] {
    ["accounts", "adjust", "cus_by_hand", "--amount", amount, "--reason", "a test", "--key", key]
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Credits by hand, many at once; returns what they come to.
fn adjustments(billing: &Billing, load: &Load) -> i64 {
    let amounts: Vec<String> = (1..=8).map(|amount: i64| amount.to_string()).collect();
    let keys: Vec<String> = amounts.iter().map(|amount| format!("key-{amount}")).collect();
    let mut all: Vec<_> = amounts.iter().zip(&keys).map(|(amount, key)| adjusts(amount, key)).collect();
    all.extend([adjusts("100", "twice"), adjusts("100", "twice")]);
    let commands: Vec<(i32, &[&str])> = all.iter().map(|one| (0, one.as_slice())).collect();
    let told = at_once(billing, load, &commands);
    assert_eq!(told.iter().filter(|one| one["new"] == true).count(), 9, "{told:?}");
    assert_eq!(told[8]["event_id"], told[9]["event_id"]);
    let refused = at_once(billing, load, &[(1, &adjusts("101", "twice"))]);
    assert!(refused[0].as_str().unwrap().contains("the key twice was used for 100 credits"), "{refused:?}");
    (1..=8).sum::<i64>() + 100
}

fn events_of_a_file(billing: &Billing, load: &Load) {
    let told = |number| told_twice(number).event("invoice.paid").unwrap();
    write_lines(billing, "events.ndjson", IN_FILE.map(|number| told(number).to_string()));
    load.adds(IN_FILE.map(told));
    let imports: &[&str] = &["events", "import", "events.ndjson"];
    let ran = at_once(billing, load, &[(0, imports), (0, imports), (0, &["verify"]), (0, &["backup", "first.backup"])]);
    for imported in &ran[..2] {
        assert_eq!(number(&imported["new"]) + number(&imported["duplicate"]), IN_FILE.count() as u64, "{imported}");
    }
    assert_eq!(ran[2]["clean"], true);
}

fn an_old_table(billing: &Billing, load: &Load) {
    write_table(billing);
    write_rates(billing);
    let rows = 3 * TABLED + TWICE + IN_TABLE.count() as u64;
    let dry: &[&str] = &["import-ledger", "old.csv"];
    let apply: &[&str] = &["import-ledger", "old.csv", "--apply"];
    load.adds(IN_TABLE.map(|number| told_twice(number).event("invoice.paid").unwrap()));
    let ran = at_once(billing, load, &[(0, dry), (0, &["events", "replay", "--failed", "--dry-run"])]);
    assert_eq!((number(&ran[0]["imported"]) + number(&ran[0]["repeats"]), &ran[0]["applied"]), (rows, &false.into()));
    assert_eq!(ran[1]["counts"], json!({ "applied": FAILED }));
    let ran = at_once(billing, load, &[(0, apply), (0, apply), (0, &["fx", "update", "--file", "rates.xml"])]);
    let done = |one: &Value| number(&one["imported"]) + number(&one["repeats"]);
    assert_eq!(done(&ran[0]) + done(&ran[1]), rows, "each row once");
    assert_eq!(number(&ran[2]["new"]), 63 * 29);
}

fn what_did_not_get_through(billing: &Billing, load: &Load) {
    let (to_dismiss, to_replay) = (names("dismissed", DISMISSED), names("waiting", WAITING));
    let mut dismiss: Vec<&str> = vec!["events", "dismiss", "--reason", "not ours"];
    dismiss.extend(to_dismiss.iter().map(String::as_str));
    let mut replay: Vec<&str> = vec!["events", "replay"];
    replay.extend(to_replay.iter().map(String::as_str));
    let failed: &[&str] = &["events", "replay", "--failed"];
    let ran = at_once(billing, load, &[(0, failed), (0, &dismiss), (0, &["prune"]), (0, &replay)]);
    assert_eq!(ran[0]["counts"], json!({ "applied": FAILED }));
    assert!(ran[1].as_array().unwrap().iter().all(|one| one["dismissed"] == true), "{}", ran[1]);
    assert_eq!((number(&ran[2]["payloads"]), number(&ran[2]["ignored_events"])), (OLD, OLD));
    assert_eq!(ran[3]["counts"], json!({ "pending": WAITING }));
    let reap: &[&str] = &["reap", "--older-than", "36h"];
    let ran = at_once(billing, load, &[(3, reap), (0, &replay), (0, &dismiss)]);
    assert_eq!(ran[0]["dead_letters"], json!(names("overdue", OVERDUE)));
    assert!(ran[2].as_array().unwrap().iter().all(|one| one["dismissed"] == false), "{}", ran[2]);
    at_once(billing, load, &[(0, reap)]);
}

fn what_was_given_twice(billing: &Billing, load: &Load) {
    let dry: &[&str] = &["repair", "duplicates"];
    let apply: &[&str] = &["repair", "duplicates", "--apply"];
    let count = |one: &Value| one["duplicates"].as_array().unwrap().len() as u64;
    let found = at_once(billing, load, &[(3, dry), (0, &["verify"])]);
    assert_eq!(count(&found[0]), TWICE);
    let done = at_once(billing, load, &[(0, apply), (0, apply), (0, &["backup", "last.backup"])]);
    assert_eq!(count(&done[0]) + count(&done[1]), TWICE, "each once");
    let found = at_once(billing, load, &[(0, dry), (0, &["prune"])]);
    assert_eq!(count(&found[0]), 0);
}

#[test]
fn no_command_disturbs_a_busy_server_or_another_command() {
    let mut billing = Setup::new().toml(CONFIG).clock(clock::now).spawn();
    begins(&billing);
    let load = Load::default();
    let by_hand = std::thread::scope(|scope| {
        let over = Over(&load.is_over);
        (0..SENDERS).for_each(|_| drop(scope.spawn(|| load.sender(&billing))));
        let by_hand = adjustments(&billing, &load);
        events_of_a_file(&billing, &load);
        an_old_table(&billing, &load);
        what_did_not_get_through(&billing, &load);
        what_was_given_twice(&billing, &load);
        drop(over);
        by_hand
    });
    billing.stop();
    let told = load.told.into_inner().unwrap();
    for answer in told.answers.keys() {
        let is_good = ["200 completed ", "200 duplicate ", "202 pending "].iter().any(|good| answer.starts_with(good));
        assert!(is_good, "{:?}, the slowest after {:?}", told.answers, told.slowest);
    }
    every_event_is_there(&billing, &told.events);
    let subscribed = told.balances.values().filter(|balance| **balance == IN_DOLLARS).count();
    let tiers = "SELECT count(*) FROM v_accounts WHERE tier = 'basic'";
    assert_eq!(billing.row(tiers), subscribed.to_string());
    every_balance_is_exact(&billing, told.balances, by_hand);
    for backup in ["first.backup", "last.backup"] {
        assert_eq!(violations(&billing.database().with_file_name(backup)), Vec::<String>::new(), "{backup}");
    }
}

#[test]
fn whoever_writes_again_and_again_leaves_others_their_turn() {
    const TURNS: usize = 20;
    let billing = spawn();
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            let mut desk = billing.beside();
            while !is_over.load(Ordering::SeqCst) {
                // What takes its time.
                let work = |_: &Transaction<'_>| {
                    std::thread::sleep(Duration::from_millis(5));
                    Ok(())
                };
                desk.write(work).expect("a transaction");
                written.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until("it writes", || written.load(Ordering::SeqCst) > 0);
        let before = written.load(Ordering::SeqCst);
        for turn in 0..TURNS {
            assert_eq!(billing.stripe_sends(&nth_invoice_paid(turn)).short(), "200 completed applied");
            let meanwhile = written.load(Ordering::SeqCst) - before;
            assert!(meanwhile <= 4 * (turn + 3), "{meanwhile} turns of the one for {turn} of the other");
        }
    });
}

#[test]
fn what_only_looks_waits_for_nobody() {
    let billing = spawn();
    let table = "account_id,amount,source_event_id,source_object\ncus_1,40,evt_a,pi_7\ncus_1,40,evt_b,pi_7\n";
    let folder = billing.database().parent().unwrap().to_owned();
    fs::write(folder.join("old.csv"), table).unwrap();
    let says = |status: i32, arguments: &[&str], said: &str| {
        check(&run(&folder, &[&["--config", "billingd.toml"], arguments].concat()), status, &[said]);
    };
    says(0, &["import-ledger", "old.csv", "--apply"], "2 imported");
    let lock = billing.somebody_locks();
    says(0, &["import-ledger", "old.csv"], "2 imported before");
    says(3, &["repair", "duplicates"], "1 to reverse; nothing is changed yet");
    says(0, &["verify"], "the books are whole");
    says(0, &["backup", "books.backup"], "proven to be whole");
    drop(lock);
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "80");
}

/// Ends what goes on until then, also when the test fails, or nothing would.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn every_event_is_there(billing: &Billing, sent: &BTreeSet<String>) {
    let completed = "SELECT event_id FROM v_events WHERE status = 'completed' AND source IN ('webhook', 'import')
                     AND type NOT LIKE 'import.%' AND dismissed = 0";
    let completed: BTreeSet<String> = billing.rows(completed).into_iter().collect();
    let mut expected = sent.clone();
    expected.extend(["evt_customer".to_owned()]);
    expected.extend(names("failed", FAILED));
    expected.extend(names("old", OLD));
    assert_eq!(completed.symmetric_difference(&expected).collect::<Vec<_>>(), [""; 0]);
    let ids = |sql: &str| billing.rows(&format!("SELECT event_id FROM v_events WHERE {sql} ORDER BY event_id"));
    assert_eq!(ids("dismissed = 1"), names("dismissed", DISMISSED));
    assert_eq!(ids("dead_letter = 1"), names("overdue", OVERDUE));
    assert_eq!(ids("status <> 'completed' AND dead_letter = 0"), names("waiting", WAITING));
    let kept = "SELECT count(*) FROM event_payloads WHERE event_id LIKE 'evt_old%'";
    assert_eq!(billing.row(kept), "0");
}

fn every_balance_is_exact(billing: &Billing, of_the_load: BTreeMap<String, i64>, by_hand: i64) {
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    expected.extend(of_the_load.into_iter().map(|(account, amount)| (format!("{account}|usd"), amount)));
    for sample in IN_FILE.chain(IN_TABLE).map(told_twice) {
        expected.insert(format!("{}|usd", sample.customer_id()), 2_000);
    }
    expected.extend(names("failed", FAILED).iter().map(|id| (id.replace("evt_", "cus_") + "|usd", 2_000)));
    expected.extend(names("old", OLD).iter().map(|id| (id.replace("evt_", "cus_") + "|usd", 2_000)));
    expected.extend((0..TABLED).map(|number| (format!("cus_tabled_{number}|credits"), 110)));
    expected.insert("cus_by_hand|credits".into(), by_hand);
    let row = |row: String| {
        let (account, balance) = row.rsplit_once('|').unwrap();
        (account.to_owned(), balance.parse().unwrap())
    };
    let balances: BTreeMap<String, i64> =
        billing.rows("SELECT account_id, unit, balance FROM v_balances").into_iter().map(row).collect();
    let differ: Vec<_> = balances.iter().filter(|(account, balance)| expected.get(*account) != Some(balance)).collect();
    assert_eq!((differ, balances.len()), (Vec::new(), expected.len()));
    let grants = "SELECT count(*) FROM v_ledger WHERE kind = 'grant' GROUP BY fact HAVING count(*) > 1";
    assert_eq!(billing.rows(grants), [""; 0]);
}
