//! Exchange rates: how they come, what waits for them, and that the order does not matter.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::thread::JoinHandle;

use billingd::app;
use billingd::domain::money::Currency;
use billingd::ecb::feed;
use billingd::ops::fx::{FxError, Told, Updated, update};
use billingd::ops::ingest::Errand;
use billingd::store::open;
use serde_json::{Value, json};

use super::fixtures::{Shape, event, invoice_paid, merge};
use super::harness::{Billing, NOW, Setup, binding, rows};

/// Rates come, though none in time for a test.
const CONVERTS: &str = "[credits]\nunit = \"usd\"\n[jobs]\nfx = \"0 0 16 * * *\"\n";

/// A long time ago, so that every clock has seen it: 2001-01-03, noon.
const LONG_AGO: i64 = 978_523_200;

fn converts() -> Billing {
    Setup::new().toml(CONVERTS).spawn()
}

/// The file of some days: `2026-09-21 usd 1.1 jpy 160`.
fn file(days: &[&str]) -> String {
    let day = |told: &&str| {
        let words: Vec<&str> = told.split(' ').collect();
        let rates: String = words[1..]
            .chunks(2)
            .map(|rate| format!("<Cube currency='{}' rate='{}'/>", rate[0].to_uppercase(), rate[1]))
            .collect();
        format!("<Cube time='{}'>{rates}</Cube>", words[0])
    };
    format!("<Envelope><Cube>{}</Cube></Envelope>", days.iter().map(day).collect::<String>())
}

fn tells(billing: &Billing, days: &[&str]) -> Result<Updated, FxError> {
    let rates = feed::parse(file(days).as_bytes()).expect("rates");
    let errand = Errand::new(app::rules(billing.config()).expect("rules"), "operator:alice");
    let mut connection = open::beside(&billing.database(), &binding()).expect("a connection beside the server");
    let base = Currency::parse("eur").expect("a currency");
    update(&mut connection, Told { rates, base, source: "a test".into() }, &errand, NOW * 1000)
}

/// An invoice over yen, paid on 2026-09-21.
fn yen(id: &str, invoice: &str, amount: i64) -> Value {
    let mut event = invoice_paid(Shape::Old, id, invoice, "cus_1", amount);
    merge(&mut event["data"]["object"], json!({ "currency": "jpy" }));
    event
}

/// A part of it goes back.
fn refund(id: &str, invoice: &str, amount: i64) -> Value {
    let object = json!({
        "id": format!("re_{id}"), "object": "refund", "amount": amount, "currency": "jpy", "status": "succeeded",
        "charge": format!("ch_of_{invoice}"), "payment_intent": format!("pi_of_{invoice}"), "created": NOW - 30,
    });
    event(Shape::Old, id, "refund.created", object)
}

const PROVENANCE: &str = "SELECT fact, amount, unit, original_amount, original_currency, fx_rate, fx_date
                          FROM v_ledger WHERE kind = 'grant'";

#[test]
fn a_payment_in_another_currency_waits_for_its_rates() {
    let billing = converts();
    let same = invoice_paid(Shape::New, "evt_usd", "in_usd", "cus_2", 2_000);
    assert_eq!(billing.stripe_sends(&same).short(), "200 completed applied", "nothing to convert");
    assert_eq!(billing.stripe_sends(&yen("evt_1", "in_1", 1_000)).short(), "202 pending rate:jpy");
    for (name, day) in [
        ("stale", "2026-09-16 usd 1.1 jpy 160"),
        ("of one of the two", "2026-09-20 usd 1.1"),
        ("of neither", "2026-09-18 chf 0.9"),
    ] {
        let updated = tells(&billing, &[day]).expect(name);
        assert_eq!((updated.woken, updated.waiting), (1, 1), "{name}");
    }
    assert_eq!(billing.rows("SELECT 1 FROM v_ledger WHERE account_id = 'cus_1'"), [""; 0]);
    let updated = tells(&billing, &["2026-09-18 usd 1.0876 jpy 163.25"]).expect("rates");
    assert_eq!((updated.new, updated.woken, updated.waiting), (2, 1, 0));
    assert_eq!(
        billing.rows(PROVENANCE),
        ["grant:invoice:in_usd|2000|usd||||", "grant:invoice:in_1|666|usd|1000|jpy|0.006662174578866769|2026-09-18",]
    );
    let done = "SELECT status, outcome, needs FROM v_events WHERE event_id = 'evt_1'";
    assert_eq!(billing.row(done), "completed|applied|");
    assert_eq!(billing.row("SELECT count(*) FROM event_needs"), "0");
    assert_eq!(billing.stripe_sends(&yen("evt_2", "in_2", 1_000)).short(), "200 completed applied", "at once");
}

/// Everything that can come in some order, each ending in the same books: the twin, the refund, and the rates, those of
/// the payment's own day too, which are told when a payment of the morning is long done.
#[test]
fn rates_before_or_after_the_events_end_in_the_same_books() {
    type Step = fn(&Billing);
    let steps: [Step; 4] = [
        |billing| drop(billing.stripe_sends(&yen("evt_1", "in_1", 1_000))),
        |billing| {
            let mut twin = yen("evt_2", "in_1", 1_000);
            merge(&mut twin, json!({ "type": "invoice.payment_succeeded", "created": NOW - 59 }));
            billing.stripe_sends(&twin);
        },
        |billing| drop(billing.stripe_sends(&refund("evt_3", "in_1", 250))),
        |billing| {
            let days = ["2026-09-18 usd 1.0876 jpy 163.25", "2026-09-17 usd 1.2 jpy 150"];
            tells(billing, &days).expect("rates");
            tells(billing, &["2026-09-21 usd 2 jpy 100"]).expect("the rates of the day itself");
        },
    ];
    let orders = (0..256_usize).map(|number| [number / 64, number / 16 % 4, number / 4 % 4, number % 4]);
    let orders: Vec<_> = orders.filter(|order| (0..4).all(|step| order.contains(&step))).collect();
    assert_eq!(orders.len(), 24);
    for order in orders {
        let billing = converts();
        order.iter().for_each(|step| steps[*step](&billing));
        // 666 cents for 1000 yen; a quarter of them is taken back.
        let sums = "SELECT root, unit, sum(amount) FROM v_ledger GROUP BY root, unit";
        assert_eq!(billing.rows(sums), ["grant:invoice:in_1|usd|500"], "{order:?}");
        assert_eq!(billing.rows("SELECT unit, balance FROM v_balances"), ["usd|500"], "{order:?}");
        let provenance = "grant:invoice:in_1|666|usd|1000|jpy|0.006662174578866769|2026-09-18";
        assert_eq!(billing.rows(PROVENANCE), [provenance], "{order:?}");
        assert_eq!(billing.row("SELECT count(*) FROM v_events WHERE status <> 'completed'"), "0", "{order:?}");
    }
}

/// The server, too, runs what a command has woken and not run.
#[test]
fn what_was_woken_and_not_run_is_run_by_the_server() {
    let mut billing = converts();
    assert_eq!(billing.stripe_sends(&yen("evt_1", "in_1", 1_000)).status, 202);
    billing.somebody_runs(
        "INSERT INTO fx_rates VALUES ('2026-09-18', 'usd', 'eur', '1.0876', 'a test'),
                                     ('2026-09-18', 'jpy', 'eur', '163.25', 'a test');
         UPDATE events SET woken = 1",
    );
    billing.restart();
    super::harness::wait_until("it has run", || billing.row("SELECT status FROM v_events") == "completed");
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "666");
}

#[test]
fn more_than_a_batch_that_waits_for_rates_is_run() {
    let billing = converts();
    for number in 0..300 {
        assert_eq!(billing.stripe_sends(&yen(&format!("evt_{number}"), &format!("in_{number}"), 1_000)).status, 202);
    }
    let updated = tells(&billing, &["2026-09-18 usd 1.0876 jpy 163.25"]).expect("rates");
    assert_eq!((updated.woken, updated.waiting), (300, 0));
    assert_eq!(billing.row("SELECT balance FROM v_balances"), (300 * 666).to_string());
}

#[test]
fn what_was_told_of_a_day_stays() {
    let billing = converts();
    let first = tells(&billing, &["2026-09-18 usd 1.0876 jpy 163.25"]).expect("rates");
    assert_eq!((first.new, first.known, first.differing.len(), first.newest.as_str()), (2, 0, 0, "2026-09-18"));
    let again = tells(&billing, &["2026-09-18 usd 1.08760 jpy 163.2500"]).expect("the same");
    assert_eq!((again.new, again.known, again.differing.len()), (0, 2, 0));
    let other = tells(&billing, &["2026-09-18 usd 1.09 jpy 163.25 chf 0.9", "2026-09-17 usd 1.09"]).expect("another");
    let one = &other.differing[0];
    assert_eq!((other.new, other.known, other.differing.len()), (2, 1, 1));
    assert_eq!((one.date.as_str(), one.currency.as_str()), ("2026-09-18", "usd"));
    assert_eq!((one.kept.as_str(), one.told.as_str()), ("1.0876", "1.09"));
    let history = ["2026-09-17|usd|1.09", "2026-09-18|chf|0.9", "2026-09-18|jpy|163.25", "2026-09-18|usd|1.0876"];
    assert_eq!(billing.rows("SELECT date, currency, rate FROM fx_rates"), history);
    let audit = "SELECT actor, action, subject, detail FROM v_audit";
    let row =
        |new| format!("operator:alice|fx.update|eur|{{\"source\":\"a test\",\"newest\":\"2026-09-18\",\"new\":{new}}}");
    assert_eq!(billing.rows(audit), [row(2), row(2)], "only what is new");
}

#[test]
fn rates_that_cannot_be_right_are_refused_whole() {
    let billing = converts();
    let future = tells(&billing, &["2026-09-18 usd 1.1", "2026-09-22 usd 1.1"]).expect_err("tomorrow");
    assert!(matches!(&future, FxError::Future(day) if day == "2026-09-22"), "{future}");
    let of_base = tells(&billing, &["2026-09-18 usd 1.1 eur 1"]).expect_err("against something else");
    assert!(of_base.to_string().contains("[fx] base"), "{of_base}");
    assert_eq!(billing.rows("SELECT 1 FROM fx_rates"), [""; 0]);
    tells(&billing, &["2026-09-21 usd 1.1"]).expect("today");
}

/// What a command says, and its status.
fn says(billing: &Billing, arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_billingd"))
        .env_clear()
        .envs(environment.iter().copied())
        .current_dir(billing.config_file().parent().expect("a folder"))
        .args([&["--config", "billingd.toml"], arguments].concat())
        .output()
        .expect("a command");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("a text");
    (output.status.code().expect("a status"), text)
}

#[test]
fn fx_update_and_list_as_a_person_runs_them() {
    let billing = converts();
    let mut old = yen("evt_1", "in_1", 1_000);
    merge(&mut old["data"]["object"]["status_transitions"], json!({ "paid_at": LONG_AGO }));
    assert_eq!(billing.stripe_sends(&old).short(), "202 pending rate:jpy");
    let folder = billing.config_file().parent().expect("a folder").to_owned();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("daily.xml", &file(&["2001-01-02 usd 1.0876 jpy 163.25"]));
    write("other.xml", &file(&["2001-01-02 usd 1.1", "2001-01-01 usd 1.05"]));
    write("broken.xml", "<Cube time='2001-01-02'><Cube currency='USD' rate='1'/>");
    write("large.xml", &" ".repeat((1 << 20) + 1));
    for (arguments, status, said) in [
        ("fx list", 0, "no rates; `billingd fx update` fetches them\n"),
        (
            "fx update --file daily.xml --as alice",
            0,
            "file daily.xml: 2 new rates, 0 known before; the newest of 2001-01-02\n\
             1 event that waited for rates ran again; still waiting for one: 0\n",
        ),
        ("fx update --file daily.xml", 0, "file daily.xml: 0 new rates, 2 known before; the newest of 2001-01-02\n"),
        (
            "fx update --file other.xml",
            3,
            "file other.xml: 1 new rate, 0 known before; the newest of 2001-01-02\n\
             2001-01-02 USD: 1.0876 was told before and stays, not 1.1\n",
        ),
        (
            "fx list --currency USD",
            0,
            "DATE              RATE  FOR    SOURCE\n\
             2001-01-02  1.0876 USD  1 EUR  file daily.xml\n\
             2001-01-01    1.05 USD  1 EUR  file other.xml\n",
        ),
        (
            "fx list --limit 1",
            0,
            "DATE              RATE  FOR    SOURCE\n2001-01-02  163.25 JPY  1 EUR  file daily.xml\n",
        ),
        (
            "fx update --file broken.xml",
            1,
            "billingd: file broken.xml holds no file of rates: broken XML near byte 55: it ends in the middle\n",
        ),
        (
            "fx update --file large.xml",
            1,
            "billingd: file large.xml holds no file of rates: more than 1024 KiB; the file of the last 90 days has less\n",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        assert_eq!(says(&billing, &arguments, &[]), (status, said.to_owned()), "{arguments:?}");
    }
    let (status, said) = says(&billing, &["fx", "update", "--file", "none.xml"], &[]);
    assert!(status == 1 && said.contains("none.xml cannot be read"), "{said}");
    assert_eq!(says(&billing, &["fx", "list", "--currency", "euro"], &[]).0, 2);
    let (status, told) = says(&billing, &["fx", "list", "--json", "--limit", "1"], &[]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let row = json!([{ "date": "2001-01-02", "currency": "jpy", "rate": "163.25", "base": "eur", "source": "file daily.xml" }]);
    assert_eq!((status, told), (0, row));
    let (_, story) = says(&billing, &["accounts", "show", "cus_1"], &[]);
    assert!(story.contains("1000 JPY at 0.006662174578866769 of 2001-01-02"), "{story}");
    let actor = "SELECT actor FROM v_audit WHERE action = 'fx.update' ORDER BY seq LIMIT 1";
    assert_eq!(billing.row(actor), "operator:alice");
}

/// Answers one request with exactly this.
fn answers_once(answer: String) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hush/rates.xml", listener.local_addr().expect("an address"));
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let mut request = [0; 4_096];
        let length = stream.read(&mut request).expect("a head");
        // Who has heard enough closes.
        drop(stream.write_all(answer.as_bytes()));
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    (url, thread)
}

#[test]
fn fx_update_fetches_what_the_config_names() {
    let billing = converts();
    let response = |status: &str, more: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    };
    let rates = file(&["2001-01-02 usd 1.0876"]);
    for (name, answer, status, said) in [
        ("a redirect", response("302 Found", "Location: http://127.0.0.1:1/\r\n", ""), 1, "it answers 302"),
        ("not there", response("404 Not Found", "", &rates), 1, "it answers 404"),
        ("no rates", response("200 OK", "", "<html></html>"), 1, "holds no file of rates: no rates in it"),
        ("too large", response("200 OK", "", &" ".repeat(2 << 20)), 1, "it sends more than 1024 KiB"),
        ("cut off", format!("{}9", response("200 OK", "", &rates).replace(&rates, "")), 1, "it cannot be reached"),
        ("rates", response("200 OK", "", &rates), 0, "1 new rate, 0 known before"),
    ] {
        let (url, server) = answers_once(answer);
        let (got, told) = says(&billing, &["fx", "update"], &[("BILLINGD__FX__URL", &url)]);
        assert!(got == status && told.contains(said), "{name}: {told}");
        assert!(!told.contains("hush"), "a URL that is called is a secret: {told}");
        assert!(server.join().expect("a server").starts_with("GET /hush/rates.xml HTTP/1.1\r\n"), "{name}");
    }
    let (status, told) = says(&billing, &["fx", "update"], &[("BILLINGD__FX__URL", "http://127.0.0.1:1/hush")]);
    assert!(status == 1 && told.contains("it cannot be reached") && !told.contains("hush"), "{told}");
    let (url, server) = answers_once(response("200 OK", "", &rates));
    let url = url.replace("http://", "https://");
    let (status, told) = says(&billing, &["fx", "update"], &[("BILLINGD__FX__URL", &url)]);
    assert!(status == 1 && told.contains("it cannot be reached"), "no TLS: {told}");
    assert!(!server.join().expect("a server").contains("GET"), "nothing is said in the open");
    let (status, told) = says(&billing, &["check"], &[("BILLINGD__FX__URL", "{ env = \"NO_SUCH\" }")]);
    assert!(status == 3 && told.contains("[fx] url: the environment variable NO_SUCH is not set"), "{told}");
    let kept = rows(&billing.outside(), "SELECT date, currency, rate, source LIKE 'http://127.0.0.1:%' FROM fx_rates");
    assert_eq!(kept, ["2001-01-02|usd|1.0876|1"]);
    let hush = billing.row("SELECT count(*) FROM fx_rates WHERE source LIKE '%hush%'");
    assert_eq!(hush, "0");
}
