//! Every answer of the public listener.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use billingd::stripe::signature;
use serde_json::{Value, json};

use super::fixtures::{SHAPES, Shape, event, invoice, invoice_paid, line, merge, nth_invoice_paid};
use super::harness::{Billing, NOW, PATH, SECRET, Setup, gated_clock, spawn, wait_until};

/// A connection on which bytes are written as they are.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn connect(billing: &Billing) -> Self {
        let stream = TcpStream::connect(billing.address()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        Self(BufReader::new(stream))
    }

    fn sends(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        // Whoever answers early may close before everything has arrived.
        drop(self.0.get_mut().write_all(bytes.as_ref()));
        self
    }

    fn has_an_answer(&self) -> bool {
        let stream = self.0.get_ref();
        stream.set_nonblocking(true).expect("a look");
        let there = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).expect("a look");
        there
    }

    /// The next answer: its status and its body.
    fn answer(&mut self) -> (u16, Value) {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

/// The head of a delivery, without the blank line at its end.
fn head(body: &str) -> String {
    let signature = signature::sign(SECRET, NOW, body.as_bytes());
    format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nStripe-Signature: {signature}\r\n")
}

fn whole(body: &str) -> String {
    format!("{}Content-Length: {}\r\n\r\n{body}", head(body), body.len())
}

fn chunked(body: &str) -> String {
    let (first, second) = body.split_at(body.len() / 2);
    let chunks = [first, second, ""].map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).concat();
    format!("{}Transfer-Encoding: chunked\r\n\r\n{chunks}", head(body))
}

#[test]
fn each_outcome_has_its_answer() {
    let billing =
        Setup::new().toml("[credits]\nbasis = \"catalogue\"\n[[price]]\nid = \"price_basic\"\ncredits = 100\n").spawn();
    let paid = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000);
    let open = |id: &str, at: i64| {
        let mut event = event(Shape::Old, id, "invoice.updated", invoice(Shape::Old, "in_1", "cus_1", 2_000));
        event["data"]["object"]["status"] = json!("open");
        event["created"] = json!(at);
        event
    };
    let mut truncated = invoice_paid(Shape::Old, "evt_5", "in_5", "cus_1", 2_000);
    truncated["data"]["object"]["lines"]["has_more"] = json!(true);
    let mut unlisted = invoice_paid(Shape::New, "evt_6", "in_6", "cus_1", 2_000);
    unlisted["data"]["object"]["lines"]["data"][0]["pricing"]["price_details"]["price"] = json!("price_other");
    let mut live = nth_invoice_paid(7);
    live["livemode"] = json!(true);
    let thin = json!({
        "id": "evt_9", "object": "v2.core.event", "type": "v2.core.account.updated", "livemode": false,
        "created": "2026-09-21T14:13:20.000Z", "related_object": { "id": "acct_1", "type": "account", "url": "/v2/x" },
    });
    let rows = [
        (paid.clone(), "200 completed applied"),
        (paid, "200 duplicate applied"),
        (
            event(Shape::New, "evt_2", "invoice.payment_succeeded", invoice(Shape::New, "in_1", "cus_1", 1)),
            "200 completed no_effect",
        ),
        (open("evt_3", NOW), "200 completed stale"),
        (
            event(Shape::New, "evt_4", "radar.early_fraud_warning.created", json!({ "id": "issfr_1" })),
            "200 completed ignored",
        ),
        (truncated.clone(), "202 pending lines:in_5"),
        (truncated, "202 pending lines:in_5"),
        (unlisted, "500 failed"),
        (live, "200 completed ignored"),
        (thin, "200 completed ignored"),
        (event(Shape::New, "evt_10", "invoice.paid", json!({ "id": "in_10" })), "500 failed"),
    ];
    for (event, expected) in rows {
        let answer = billing.stripe_sends(&event);
        assert_eq!(answer.short(), expected, "{event}");
        assert_eq!(answer.body["event_id"], event["id"]);
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    assert_eq!(billing.rows("SELECT status, needs FROM v_events WHERE event_id = 'evt_5'"), ["pending|lines:in_5"]);
    assert_eq!(
        billing.rows("SELECT 1 FROM invoices WHERE invoice_id = 'in_5'"),
        [""; 0],
        "a pending event leaves nothing"
    );
}

/// In the shapes since basil a trial's line says `pricing.unit_amount_decimal = "0"`, whatever its price costs.
#[test]
fn a_trial_grants_nothing_in_either_shape() {
    let prices = "[[price]]\nid = \"price_basic\"\ncredits = 100\n[[price]]\nid = \"price_free\"\ncredits = 5\nunit_amount = 0\n";
    let billing = Setup::new().toml(&format!("[credits]\nbasis = \"catalogue\"\n{prices}")).spawn();
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let mut trial = invoice_paid(shape, &format!("evt_trial_{number}"), &format!("in_trial_{number}"), "cus_1", 0);
        if shape == Shape::Old {
            let price = &mut trial["data"]["object"]["lines"]["data"][0]["price"];
            merge(price, json!({ "unit_amount": 2000, "unit_amount_decimal": "2000" }));
        }
        assert_eq!(billing.stripe_sends(&trial).short(), "200 completed no_effect", "{trial}");
        let mut free = invoice_paid(shape, &format!("evt_free_{number}"), &format!("in_free_{number}"), "cus_1", 0);
        free["data"]["object"]["lines"]["data"] = json!([line(shape, "price_free", 0)]);
        assert_eq!(billing.stripe_sends(&free).short(), "200 completed applied", "{free}");
    }
    assert_eq!(billing.row("SELECT balance FROM v_balances"), "10");
}

#[test]
fn what_is_not_stripes_is_refused_with_a_reason() {
    let billing = spawn();
    let event = nth_invoice_paid(1);
    let body = event.to_string();
    let sign = |at: i64, body: &str| signature::sign(SECRET, at, body.as_bytes());
    let good = sign(NOW, &body);
    type Row<'a> = (Vec<(&'a str, String)>, &'a str, &'a str);
    let rows: Vec<Row<'_>> = vec![
        (vec![], &body, "400 signature_missing"),
        (vec![("Stripe-Signature", String::new())], &body, "400 signature_missing"),
        (vec![("Stripe-Signature", "hello".into())], &body, "400 signature_malformed"),
        (vec![("Stripe-Signature", format!("t={NOW}"))], &body, "400 signature_malformed"),
        (vec![("Stripe-Signature", good.replace("v1=", "v0="))], &body, "400 signature_malformed"),
        (vec![("Stripe-Signature", format!("t=1,{good}"))], &body, "400 signature_malformed"),
        (
            vec![("Stripe-Signature", signature::sign("whsec_other", NOW, body.as_bytes()))],
            &body,
            "400 signature_mismatch",
        ),
        (vec![("Stripe-Signature", good.clone())], "{}", "400 signature_mismatch"),
        (vec![("Stripe-Signature", sign(NOW - 301, &body))], &body, "400 timestamp_too_old"),
        (vec![("Stripe-Signature", sign(NOW + 301, &body))], &body, "400 timestamp_in_future"),
        (
            vec![("Stripe-Signature", signature::sign("whsec_other", NOW - 301, body.as_bytes()))],
            &body,
            "400 signature_mismatch",
        ),
        (vec![("Stripe-Signature", sign(NOW, "hello"))], "hello", "400 body_not_json"),
        (vec![("Stripe-Signature", sign(NOW, ""))], "", "400 body_not_json"),
        (vec![("Stripe-Signature", sign(NOW, "[]"))], "[]", "400 not_an_event"),
        (vec![("Stripe-Signature", sign(NOW, "{}"))], "{}", "400 not_an_event"),
    ];
    for (headers, body, expected) in rows {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = billing.posts(PATH, &headers, body.as_bytes());
        assert_eq!(answer.short(), expected, "{headers:?}");
        assert!(answer.body["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
    assert_eq!(billing.rows("SELECT 1 FROM events"), [""; 0], "nothing of it is stored");
    for (at, event) in [(NOW - 300, nth_invoice_paid(2)), (NOW + 300, nth_invoice_paid(3))] {
        assert_eq!(billing.stripe_sends_signed_with(PATH, &event, SECRET, at).status, 200, "just within the tolerance");
    }
    let (time, signature) = good.split_once(',').expect("two elements");
    let split = [("Stripe-Signature", format!(" {time} ")), ("Stripe-Signature", format!("v0=00, {signature}"))];
    let split: Vec<(&str, &str)> = split.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(billing.posts(PATH, &split, body.as_bytes()).short(), "200 completed applied", "two lines are joined");
}

#[test]
fn paths_methods_and_encodings() {
    let billing = spawn();
    let body = nth_invoice_paid(1).to_string();
    let signature = signature::sign(SECRET, NOW, body.as_bytes());
    let signed = ("Stripe-Signature", signature.as_str());
    let posts = |path: &str, more: &[(&str, &str)]| {
        let headers: Vec<_> = std::iter::once(signed).chain(more.iter().copied()).collect();
        billing.posts(path, &headers, body.as_bytes())
    };
    assert_eq!(posts("/nowhere", &[]).short(), "404 not_found");
    assert_eq!(posts("/webhooks/stripe/more", &[]).short(), "404 not_found");
    assert_eq!(posts("/", &[]).short(), "404 not_found");
    for encoding in ["gzip", "br", "identity, gzip"] {
        assert_eq!(posts(PATH, &[("Content-Encoding", encoding)]).short(), "415 unsupported_encoding", "{encoding}");
    }
    for path in [PATH, "/webhooks/stripe/"] {
        let answer = billing.gets(path);
        assert_eq!((answer.short().as_str(), answer.header("allow")), ("405 method_not_allowed", Some("POST")));
    }
    let answer = posts("/healthz", &[]);
    assert_eq!((answer.short().as_str(), answer.header("allow")), ("405 method_not_allowed", Some("GET, HEAD")));
    assert_eq!(billing.rows("SELECT 1 FROM events"), [""; 0]);
    assert_eq!(posts("/webhooks/stripe/", &[("Content-Encoding", "Identity")]).short(), "200 completed applied");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "?"] {
        assert_eq!(posts(PATH, &[("Content-Type", content_type)]).short(), "200 duplicate applied", "{content_type}");
    }
}

#[test]
fn a_body_may_come_in_chunks_and_several_requests_on_one_connection() {
    let billing = spawn();
    let bodies: Vec<String> = (1..=4).map(|number| nth_invoice_paid(number).to_string()).collect();
    let mut raw = Raw::connect(&billing);
    raw.sends(chunked(&bodies[0]));
    assert_eq!(raw.answer().1["outcome"], "applied");
    raw.sends(whole(&bodies[1]));
    assert_eq!(raw.answer().1["outcome"], "applied");
    raw.sends([whole(&bodies[2]), chunked(&bodies[3]), whole(&bodies[0])].concat());
    let pipelined: Vec<Value> = (0..3).map(|_| raw.answer().1).collect();
    let told: Vec<_> = pipelined.iter().map(|body| (body["event_id"].as_str(), body["status"].as_str())).collect();
    let expected = [("evt_3", "completed"), ("evt_4", "completed"), ("evt_1", "duplicate")];
    assert_eq!(told, expected.map(|(id, status)| (Some(id), Some(status))));
}

#[test]
fn a_body_is_bounded_while_it_arrives() {
    let billing = Setup::new().with("server.max_body", "4 KiB").spawn();
    let mut event = nth_invoice_paid(1);
    event["padding"] = json!("");
    let missing = 4_096 - event.to_string().len();
    event["padding"] = json!("x".repeat(missing));
    assert_eq!(event.to_string().len(), 4_096);
    assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied", "just not too large");
    event["padding"] = json!("x".repeat(missing + 1));
    assert_eq!(billing.stripe_sends(&event).short(), "413 body_too_large");
    let mut raw = Raw::connect(&billing);
    raw.sends(chunked(&event.to_string()));
    let (status, body) = raw.answer();
    assert_eq!((status, body["error"].as_str()), (413, Some("body_too_large")), "in chunks");
    let mut announced = Raw::connect(&billing);
    announced.sends(format!("{}Content-Length: 99999999\r\n\r\n", head("{}")));
    assert_eq!(announced.answer().0, 413, "before a byte of it has come");
}

#[test]
fn two_endpoints_have_secrets_of_their_own() {
    let billing = Setup::new()
        .toml(
            "[[webhook]]\npath = \"/webhooks/stripe\"\nsigning_secrets = [\"whsec_old\", \"whsec_new\"]\n\
             [[webhook]]\npath = \"/hooks/second/\"\nsigning_secrets = [\"whsec_second\"]\ntolerance = \"1h\"\n",
        )
        .spawn();
    let send = |path: &str, number: usize, secret: &str, at: i64| {
        billing.stripe_sends_signed_with(path, &nth_invoice_paid(number), secret, at).short()
    };
    assert_eq!(send(PATH, 1, "whsec_old", NOW), "200 completed applied");
    assert_eq!(send(PATH, 2, "whsec_new", NOW), "200 completed applied");
    assert_eq!(send(PATH, 3, "whsec_second", NOW), "400 signature_mismatch");
    assert_eq!(send("/hooks/second", 3, "whsec_old", NOW), "400 signature_mismatch");
    assert_eq!(send("/hooks/second", 3, "whsec_second", NOW - 3_000), "200 completed applied");
    assert_eq!(send("/hooks/second/", 3, "whsec_second", NOW), "200 duplicate applied");
    assert_eq!(
        send(PATH, 3, "whsec_new", NOW),
        "200 duplicate applied",
        "one event is one event, wherever it comes in"
    );
}

#[test]
fn a_full_queue_is_overloaded_and_the_next_try_succeeds() {
    gated_clock!(GATE, clock);
    let billing = Setup::new().clock(clock).limits(1, 1).spawn();
    GATE.close();
    let (answered, answers) = channel();
    let refused = std::thread::scope(|scope| {
        for number in 1..=2 {
            let (answered, billing) = (answered.clone(), &billing);
            scope.spawn(move || answered.send((number, billing.stripe_sends(&nth_invoice_paid(number)))));
        }
        let (refused, answer) = answers.recv().expect("a refusal");
        assert_eq!(answer.short(), "503 overloaded");
        assert!(answer.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
        GATE.open();
        assert_eq!(answers.recv().expect("an answer").1.short(), "200 completed applied");
        refused
    });
    assert_eq!(billing.stripe_sends(&nth_invoice_paid(refused)).short(), "200 completed applied");
}

/// Nobody has to tell that the storage is back: the writer tries by itself.
#[test]
fn storage_that_fails_is_unavailable_and_not_ready_until_it_recovers() {
    let billing = spawn();
    assert_eq!((billing.gets("/healthz").status, billing.gets("/readyz").status), (200, 200));
    let lock = billing.somebody_locks();
    let event = nth_invoice_paid(1);
    let answer = billing.stripe_sends(&event);
    assert_eq!(answer.short(), "503 storage_unavailable");
    assert!(answer.header("retry-after").is_some());
    let answer = billing.gets("/readyz");
    assert_eq!(answer.short(), "503 not_ready");
    assert!(answer.body["message"].as_str().is_some_and(|reason| reason.contains("locked")), "{answer:?}");
    assert_eq!(billing.gets("/healthz").status, 200);
    drop(lock);
    wait_until("it is ready again", || billing.gets("/readyz").status == 200);
    assert_eq!(billing.rows("SELECT 1 FROM events"), [""; 0], "nothing was stored");
    assert_eq!(billing.stripe_sends(&event).short(), "200 completed applied");
}

#[test]
fn a_request_that_takes_too_long_leaves_the_outcome_open() {
    let billing = Setup::new().with("server.request_timeout", "1s").spawn();
    let lock = billing.somebody_locks();
    let event = nth_invoice_paid(1);
    let answer = billing.stripe_sends(&event);
    assert_eq!(answer.short(), "503 timeout");
    assert!(answer.header("retry-after").is_some());
    drop(lock);
    wait_until("it is stored after all", || billing.row("SELECT count(*) FROM events") == "1");
    assert_eq!(billing.stripe_sends(&event).short(), "200 duplicate applied");
    let mut slow = Raw::connect(&billing);
    slow.sends(format!("{}Content-Length: 100\r\n\r\n{{", head("{}")));
    let (status, body) = slow.answer();
    assert_eq!((status, body["error"].as_str()), (503, Some("timeout")), "a body that never ends");
}

#[test]
fn a_client_that_goes_away_changes_nothing_about_the_commit() {
    gated_clock!(GATE, clock);
    let billing = Setup::new().clock(clock).limits(1, 1).spawn();
    let event = nth_invoice_paid(1);
    GATE.close();
    // The queue holds one of the two; that the other is refused tells when.
    let mut clients = [Raw::connect(&billing), Raw::connect(&billing)];
    for client in &mut clients {
        client.sends(whole(&event.to_string()));
    }
    let mut refused = None;
    wait_until("one of them is refused", || {
        refused = clients.iter().position(Raw::has_an_answer);
        refused.is_some()
    });
    assert_eq!(clients[refused.unwrap_or_default()].answer().0, 503);
    drop(clients);
    GATE.open();
    wait_until("it is stored", || billing.row("SELECT count(*) FROM events") == "1");
    assert_eq!(billing.stripe_sends(&event).short(), "200 duplicate applied");
    let half = nth_invoice_paid(2).to_string();
    let mut client = Raw::connect(&billing);
    client.sends(&whole(&half)[..600]);
    drop(client);
    assert_eq!(billing.stripe_sends(&nth_invoice_paid(3)).short(), "200 completed applied");
    assert_eq!(billing.rows("SELECT 1 FROM events WHERE event_id = 'evt_2'"), [""; 0], "half a body is none");
}

#[test]
fn slow_senders_do_not_keep_others_waiting() {
    let billing = spawn();
    let slow: Vec<Raw> = (0..300)
        .map(|_| {
            let mut raw = Raw::connect(&billing);
            raw.sends(format!("{}Content-Length: 100000\r\n\r\n{{\"id\":", head("{}")));
            raw
        })
        .collect();
    let began = Instant::now();
    for number in 1..=20 {
        assert_eq!(billing.stripe_sends(&nth_invoice_paid(number)).short(), "200 completed applied");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(slow);
}
