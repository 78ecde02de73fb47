//! The client of Stripe's API over real connections: what it sends, what it repeats, what it makes of bad answers.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use billingd::config::{CalledUrl, Secret, SecretSource};
use billingd::domain::ids::EventId;
use billingd::stop::Stop;
use billingd::stripe::client::{
    Api, ApiError, Client, Kind, Limits, Pace, Pages, STRIPE_VERSION, Settings, Unusable, path,
};
use serde_json::{Value, json};

use super::fake_stripe::{FakeStripe, Fault, PRIVATE, Served};
use super::fixtures::{Shape, invoice};
use super::harness::{NOW, agent, wait_until};

const KEY: &str = "rk_test_hush";

/// Time that passes only by waiting.
#[derive(Default)]
struct Waits(Mutex<Vec<Duration>>);

impl Pace for Waits {
    fn elapsed(&self) -> Duration {
        self.0.lock().unwrap().iter().sum()
    }

    fn wait(&self, time: Duration, _: &Stop) {
        self.0.lock().unwrap().push(time);
    }

    fn chance(&self) -> u32 {
        500
    }
}

impl Waits {
    fn ms(&self) -> Vec<u128> {
        self.0.lock().unwrap().iter().map(Duration::as_millis).collect()
    }
}

/// A fake, served, and what a client needs to reach it.
struct Scene {
    fake: FakeStripe,
    served: Served,
    waits: Arc<Waits>,
    settings: Settings,
}

fn secret(text: &str) -> Secret {
    SecretSource::Plain(text.to_owned()).resolve(&|_| None).unwrap()
}

fn settings(base: &str) -> Settings {
    Settings::new(CalledUrl::parse(base).unwrap(), secret(KEY))
}

fn scene() -> Scene {
    let fake = FakeStripe::default();
    fake.put(json!({ "id": "ch_1", "object": "charge", "created": NOW, "amount": 700 }));
    let served = fake.serve();
    let waits = Arc::new(Waits::default());
    let settings = Settings { pace: waits.clone(), ..settings(&served.url()) };
    Scene { fake, served, waits, settings }
}

impl Scene {
    fn client(&self) -> Client {
        Client::new(self.settings.clone()).unwrap()
    }

    fn charge(&self) -> Result<Value, ApiError> {
        self.client().get("/v1/charges/ch_1", &[]).map(|answer| serde_json::from_slice(&answer.told).unwrap())
    }

    /// Lets one thing go wrong with every request.
    fn with(fault: Fault) -> Self {
        let scene = scene();
        scene.fake.order(fault);
        scene
    }
}

fn at_charges() -> Fault {
    Fault::at("/v1/charges*")
}

fn event() -> EventId {
    EventId::parse("evt_1").unwrap()
}

/// Story: of two answers that came together, the later one dated both.
#[test]
fn each_answer_tells_its_own_date() {
    let scene = scene();
    scene.fake.put(json!({ "id": "ch_2", "object": "charge", "created": NOW, "amount": 700 }));
    scene.fake.put(json!({ "id": "ch_3", "object": "charge", "created": NOW, "amount": 700 }));
    scene.fake.order(Fault::at("/v1/charges/ch_1").header("date", "Mon, 21 Sep 2026 14:13:20 GMT"));
    scene.fake.order(Fault::at("/v1/charges/ch_2").header("date", "Mon, 21 Sep 2026 14:13:30 GMT"));
    let client = scene.client();
    std::thread::scope(|threads| {
        for (id, date) in [("ch_1", Some(NOW)), ("ch_2", Some(NOW + 10)), ("ch_3", None)] {
            let path = format!("/v1/charges/{id}");
            let asks = move |client: &Client| client.get(&path, &[]).unwrap().date;
            let client = client.clone();
            threads.spawn(move || (0..20).for_each(|_| assert_eq!(asks(&client), date, "{id}")));
        }
    });
}

#[test]
fn a_request_says_who_asks_and_which_version_it_reads() {
    let mut scene = scene();
    scene.settings.connected_account = Some("acct_7".to_owned());
    scene.fake.put(json!({ "id": "gold/€", "object": "price", "created": NOW }));
    let client = scene.client();
    client.get(&path("/v1/prices", "gold/€"), &[("expand[]", "product")]).unwrap();
    let call = &scene.fake.calls()[0];
    assert_eq!(
        (call.method.as_str(), call.path.as_str(), call.status),
        ("GET", "/v1/prices/gold%2F%E2%82%AC", Some(200))
    );
    assert_eq!(call.parameter("expand[]"), Some("product"));
    for (name, value) in [
        ("authorization", Some("Bearer rk_test_hush")),
        ("stripe-version", Some(STRIPE_VERSION)),
        ("stripe-account", Some("acct_7")),
        ("user-agent", Some(concat!("billingd/", env!("CARGO_PKG_VERSION")))),
        ("accept", Some("application/json")),
        ("idempotency-key", None),
    ] {
        assert_eq!(call.header(name), value, "{name}");
    }
    scene.settings.connected_account = None;
    scene.client().get("/v1/account", &[]).unwrap();
    assert_eq!(scene.fake.calls()[1].header("stripe-account"), None);
}

#[test]
fn the_fake_tells_versions_apart_and_wants_a_key() {
    let scene = scene();
    scene.fake.put_shapes(invoice(Shape::Old, "in_1", "cus_1", 700), invoice(Shape::New, "in_1", "cus_1", 700));
    let request = || agent().get(format!("{}/v1/invoices/in_1", scene.served.url()));
    assert_eq!(request().call().unwrap().status(), 401);
    for (version, is_new) in [("2022-08-01", false), ("2025-02-24.acacia", false), ("2025-03-31.basil", true)] {
        let request = request().header("Authorization", "Bearer any").header("Stripe-Version", version);
        let text = request.call().unwrap().body_mut().read_to_string().unwrap();
        assert_eq!(text.contains("\"parent\""), is_new, "{version}");
    }
}

#[test]
fn requests_share_a_connection() {
    let scene = scene();
    let client = scene.client();
    for _ in 0..3 {
        client.clone().get("/v1/charges/ch_1", &[]).unwrap();
    }
    client.get("/v1/charges/ch_2", &[]).unwrap_err();
    client.get("/v1/charges/ch_1", &[]).unwrap();
    assert_eq!(scene.served.connections(), 1);
}

#[test]
fn what_may_pass_is_asked_three_times_with_growing_waits() {
    let scene = Scene::with(at_charges().status(500).times(2));
    assert_eq!(scene.charge().unwrap()["amount"], 700);
    assert_eq!(scene.waits.ms(), [500, 1_000]);

    let scene = Scene::with(at_charges().status(503));
    let error = scene.charge().unwrap_err();
    assert_eq!((error.kind, error.status), (Kind::Unavailable, Some(503)));
    assert_eq!((scene.fake.calls().len(), scene.waits.ms()), (3, vec![500, 1_000]));

    let scene = Scene::with(at_charges().status(429).times(1).header("Retry-After", "7"));
    scene.charge().unwrap();
    assert_eq!(scene.waits.ms(), [7_000]);
}

#[test]
fn stripe_says_itself_what_to_repeat() {
    let scene = Scene::with(at_charges().status(400).times(1).header("Stripe-Should-Retry", "true"));
    scene.charge().unwrap();
    assert_eq!(scene.fake.calls().len(), 2);

    let scene = Scene::with(at_charges().status(500).header("Stripe-Should-Retry", "false"));
    assert_eq!(scene.charge().unwrap_err().kind, Kind::Unavailable);
    assert_eq!(scene.fake.calls().len(), 1);
}

#[test]
fn each_bad_answer_is_told_apart() {
    for (fault, kind, attempts) in [
        (at_charges().status(400).code("parameter_unknown"), Kind::Rejected, 1),
        (at_charges().status(401), Kind::Refused, 1),
        (at_charges().status(403), Kind::Refused, 1),
        (at_charges().status(404), Kind::NotFound, 1),
        (at_charges().status(429), Kind::Limited, 3),
        (at_charges().status(429).code("lock_timeout"), Kind::Limited, 3),
        (at_charges().body(404, "404: Not Found"), Kind::Unknown, 1),
        (at_charges().body(500, "500 Internal Server Error"), Kind::Unavailable, 3),
        (at_charges().body(302, "").header("Location", "/v1/account"), Kind::Unknown, 1),
        (at_charges().body(200, "<html>please log in</html>"), Kind::Garbage, 1),
        (at_charges().body(200, "[1]"), Kind::Garbage, 1),
        (at_charges().cut(), Kind::Unavailable, 3),
        (at_charges().cut_inside(), Kind::Unavailable, 3),
    ] {
        let shown = format!("{fault:?}");
        let scene = Scene::with(fault);
        let error = scene.charge().unwrap_err();
        assert_eq!((error.kind, scene.fake.calls().len()), (kind, attempts), "{shown}: {error}");
        assert_eq!(error.path, "/v1/charges/ch_1");
    }
}

#[test]
fn no_error_tells_the_key_or_what_stripe_s_sentences_quote() {
    for status in [400, 401, 403, 404, 409, 429, 500] {
        let scene = Scene::with(at_charges().status(status));
        let error = scene.charge().unwrap_err();
        let shown = format!("{error} {error:?} {:?}", scene.client());
        assert!(!shown.contains("hush") && !shown.contains(PRIVATE), "{shown}");
        assert!(shown.contains("req_"), "{shown}");
    }
    let error = Scene::with(at_charges().status(403)).charge().unwrap_err().to_string();
    assert!(error.contains("the permission rak_charge_read"), "{error}");
    let scene = scene();
    let error = scene.client().get("/v1/charges/ch_2?key=hush", &[]).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (Kind::Rejected, "/v1/charges/ch_2"));
    assert_eq!(scene.fake.calls().len(), 0);
}

#[test]
fn a_cut_connection_is_made_anew() {
    for fault in [at_charges().cut().times(1), at_charges().cut_inside().times(2)] {
        let scene = Scene::with(fault);
        assert_eq!(scene.charge().unwrap()["amount"], 700);
    }
}

#[test]
fn nobody_there_is_asked_again_as_well() {
    let waits = Arc::new(Waits::default());
    // Nothing listens at this port of old.
    let settings = Settings { pace: waits.clone(), ..settings("http://127.0.0.1:1") };
    let error = Client::new(settings).unwrap().get("/v1/account", &[]).unwrap_err();
    assert_eq!((error.kind, error.status, error.reason), (Kind::Unavailable, None, "the connection was refused"));
    assert_eq!(waits.ms(), [500, 1_000]);
}

#[test]
fn an_answer_that_does_not_come_is_given_up() {
    let mut scene = Scene::with(at_charges().hang());
    scene.settings.limits = Limits { attempt: Duration::from_millis(200), repeats: 1, ..Limits::default() };
    let error = scene.charge().unwrap_err();
    assert_eq!((error.kind, error.reason), (Kind::Unavailable, "no answer in time"));
    wait_until("both attempts have come", || scene.fake.calls().len() == 2);
    scene.fake.heal();
    let scene = Scene::with(at_charges().delay(Duration::from_millis(20)));
    assert_eq!(scene.charge().unwrap()["amount"], 700);
}

#[test]
fn an_answer_that_is_too_large_is_garbage() {
    let mut scene = scene();
    let body = serde_json::to_vec(&json!({ "id": "x".repeat(1_000) })).unwrap();
    scene.settings.limits.answer_bytes_max = body.len() as u64;
    scene.fake.order(at_charges().body(200, body).times(1));
    scene.charge().unwrap();
    scene.settings.limits.answer_bytes_max -= 1;
    scene.fake.order(at_charges().body(200, serde_json::to_vec(&json!({ "id": "x".repeat(1_000) })).unwrap()));
    let error = scene.charge().unwrap_err();
    assert_eq!((error.kind, error.reason), (Kind::Garbage, "the answer is larger than any of Stripe's"));
}

#[test]
fn a_stop_ends_the_waiting_between_attempts() {
    let mut scene = Scene::with(at_charges().status(500).header("Retry-After", "60"));
    scene.settings.pace = Arc::new(billingd::stripe::client::WallTime::default());
    let (client, stop) = (scene.client(), scene.settings.stop.clone());
    std::thread::scope(|threads| {
        let asks = threads.spawn(|| client.get("/v1/charges/ch_1", &[]));
        wait_until("the first attempt has failed", || {
            scene.fake.calls().first().is_some_and(|call| call.status == Some(500))
        });
        stop.set();
        assert_eq!(asks.join().unwrap().unwrap_err().kind, Kind::Stopped);
    });
    assert_eq!(client.get("/v1/charges/ch_1", &[]).unwrap_err().kind, Kind::Stopped);
    assert_eq!(scene.fake.calls().len(), 1, "nothing is asked after the stop");
}

#[test]
fn all_clones_share_one_budget() {
    let mut scene = scene();
    scene.settings.limits.per_second = NonZeroU32::new(4).unwrap();
    let client = scene.client();
    for _ in 0..6 {
        client.clone().get("/v1/charges/ch_1", &[]).unwrap();
    }
    assert_eq!(scene.waits.ms(), [250, 250]);
}

#[test]
fn only_so_many_ask_at_once() {
    let mut scene = Scene::with(at_charges().hang());
    scene.settings.limits.at_once = NonZeroU32::new(2).unwrap();
    let client = scene.client();
    std::thread::scope(|threads| {
        let asking: Vec<_> = (0..5).map(|_| threads.spawn(|| client.get("/v1/charges/ch_1", &[]))).collect();
        wait_until("two of them hang", || scene.fake.hanging() == 2);
        assert_eq!(scene.fake.calls().len(), 2);
        scene.fake.heal();
        for one in asking {
            one.join().unwrap().unwrap();
        }
    });
    assert_eq!(scene.fake.calls().len(), 5);
}

#[test]
fn a_change_counts_once_for_its_event() {
    let scene = Scene::with(Fault::at("/v1/charges/ch_1").cut_inside().times(2));
    let client = scene.client();
    let change = |amount| client.post(&event(), "/v1/charges/ch_1", &[("metadata[a b]", "x&y"), ("amount", amount)]);
    let first = change("7").unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&first).unwrap()["id"], "taken_1");
    assert_eq!(change("7").unwrap(), first);
    for call in scene.fake.calls() {
        assert_eq!((call.method.as_str(), call.header("idempotency-key")), ("POST", Some("evt_1")));
        assert_eq!(call.header("content-type"), Some("application/x-www-form-urlencoded"));
        assert_eq!(call.body, "metadata%5Ba%20b%5D=x%26y&amount=7");
    }
    assert_eq!(scene.fake.calls().len(), 4);
    assert_eq!(change("8").unwrap_err().kind, Kind::Rejected);
}

#[test]
fn an_event_whose_id_is_no_key_changes_nothing() {
    let scene = scene();
    for id in ["job:größe", &"x".repeat(256)] {
        let error = scene.client().post(&EventId::parse(id).unwrap(), "/v1/charges/ch_1", &[]).unwrap_err();
        assert_eq!(error.kind, Kind::Rejected);
    }
    assert_eq!(scene.fake.calls().len(), 0);
    scene.client().post(&EventId::parse(&"x".repeat(255)).unwrap(), "/v1/charges/ch_1", &[]).unwrap();
}

#[test]
fn a_list_is_the_same_by_either_way() {
    let scene = scene();
    scene.fake.page_max(7);
    for number in 2..=30 {
        scene.fake.put(json!({ "id": format!("ch_{number}"), "object": "charge", "created": NOW + number / 3 }));
    }
    let ids = |api: &dyn Api| -> Vec<String> {
        let items = Pages::new(api, "/v1/charges", &[("created[gt]", "0")]).items();
        items.map(|item| serde_json::from_str::<Value>(item.unwrap().get()).unwrap()["id"].to_string()).collect()
    };
    let listed = ids(&scene.client());
    assert_eq!((listed.len(), listed[0].as_str(), listed[29].as_str()), (30, "\"ch_30\"", "\"ch_1\""));
    assert_eq!(scene.fake.calls().len(), 5);
    assert!(scene.fake.calls().iter().all(|call| call.parameter("limit") == Some("100")));
    assert_eq!(ids(&scene.fake), listed);
    scene.fake.oldest_first();
    let mut backwards = ids(&scene.client());
    backwards.reverse();
    assert_eq!(backwards, listed);
}

#[test]
fn a_list_that_breaks_off_ends_with_the_error() {
    let scene = Scene::with(Fault::at("/v1/charges").page(2).status(500));
    scene.fake.page_max(1);
    scene.fake.put(json!({ "id": "ch_0", "object": "charge", "created": NOW - 1 }));
    let kinds: Vec<_> = Pages::new(&scene.client(), "/v1/charges", &[])
        .items()
        .map(|item| item.map(|_| ()).map_err(|error| error.kind))
        .collect();
    assert_eq!(kinds, [Ok(()), Err(Kind::Unavailable)]);
    assert_eq!(scene.fake.calls().len(), 4);
}

#[test]
fn settings_that_nothing_can_be_asked_with_are_refused() {
    for (base, key, account, refused) in [
        ("https://api.stripe.com?x=1", KEY, None, Unusable::Base),
        ("https://me@api.stripe.com", KEY, None, Unusable::Base),
        ("https://api.stripe.com", "rk_hush_ü", None, Unusable::Key),
        ("https://api.stripe.com", KEY, Some("acct\n7"), Unusable::Account),
    ] {
        let settings = Settings { key: secret(key), connected_account: account.map(str::to_owned), ..settings(base) };
        let error = Client::new(settings).unwrap_err();
        assert_eq!(error, refused);
        assert!(!error.to_string().contains("hush"));
    }
    for base in ["https://api.stripe.com/", "http://127.0.0.1:1/stripe"] {
        Client::new(settings(base)).unwrap();
    }
}
