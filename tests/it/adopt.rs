//! Taking over a running Stripe account: what it brings, that it can come at any time, and how it looks.

use std::process::Command;
use std::sync::Arc;

use billingd::app;
use billingd::ops::adopt::{self, AdoptError, Adopted, Place};
use billingd::ops::ingest::{Errand, Rules};
use billingd::store::files;
use billingd::store::open;
use billingd::stripe::client::Kind;
use serde_json::{Value, json};

use super::fake_stripe::{FakeStripe, Fault};
use super::fixtures::{SHAPES, Shape, customer, event, invoice_paid, merge, subscription};
use super::harness::{Billing, NOW, Setup, binding, rows};

pub(crate) const CATALOGUE: &str = "[tiers]\norder = [\"basic\", \"pro\"]\n\
    [credits]\nbasis = \"catalogue\"\nsince = \"2026-09-21\"\n\
    [[price]]\nid = \"price_basic\"\ntier = \"basic\"\ncredits = 100\n\
    [[price]]\nid = \"price_pro\"\ntier = \"pro\"\ncredits = 500\n";

/// [`NOW`] as a `Date` header.
pub(crate) const DATE: &str = "Mon, 21 Sep 2026 14:13:20 GMT";

pub(crate) fn errand(billing: &Billing) -> Errand {
    let policy = Arc::new(app::policy(billing.config()).expect("a policy"));
    Errand::new(Rules { policy, metadata_key: "account_id".into() }, "operator:alice")
}

fn adopts_at(billing: &Billing, fake: &FakeStripe, now: i64, applies: bool) -> Result<Adopted, AdoptError> {
    let errand = errand(billing);
    let mut connection = open::beside(&billing.database(), &binding()).expect("a connection beside the server");
    let folder = billing.database();
    let place = Place { books: &*connection, folder: files::folder_of(&folder), api: fake };
    let plan = adopt::plan(place, &errand, now * 1000, &mut |_| {})?;
    let run = if applies { adopt::apply } else { adopt::rehearse };
    Ok(run(&mut connection, &errand, plan, now * 1000, &mut |_| {})?)
}

fn adopts(billing: &Billing, fake: &FakeStripe) -> Adopted {
    adopts_at(billing, fake, NOW, true).expect("an adoption")
}

/// Two customers on plans, one without, and one that is gone.
fn running(shape: Shape) -> FakeStripe {
    let fake = FakeStripe::default();
    fake.always(shape);
    for (id, reference) in [("cus_1", "user-1"), ("cus_2", "user-2"), ("cus_3", "user-3")] {
        fake.put(customer(id, reference));
    }
    for (id, customer, price, status) in [
        ("sub_1", "cus_1", "price_pro", "active"),
        ("sub_2", "cus_2", "price_basic", "active"),
        ("sub_old", "cus_2", "price_pro", "canceled"),
        ("sub_gone", "cus_gone", "price_pro", "canceled"),
    ] {
        puts(&fake, id, customer, price, status);
    }
    fake
}

fn puts(fake: &FakeStripe, id: &str, customer: &str, price: &str, status: &str) {
    fake.put_shapes(
        subscription(Shape::Old, id, customer, price, status),
        subscription(Shape::New, id, customer, price, status),
    );
}

/// Story: the key was copied from the dashboard of another shop.
#[test]
fn nothing_is_adopted_from_another_account() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_9", 2_000));
    let fake = running(Shape::New);
    assert!(matches!(adopts_at(&billing, &fake, NOW, true), Err(AdoptError::OtherAccount)));
    assert_eq!(billing.rows("SELECT count(*) FROM accounts WHERE account_id <> 'cus_9'"), ["0"]);
    fake.put(invoice_paid(Shape::New, "evt_1", "in_1", "cus_9", 2_000));
    assert_eq!(adopts_at(&billing, &fake, NOW, true).expect("an adoption").customers, 3);
}

const ACCOUNTS: &str = "SELECT account_id, reference, tier FROM v_accounts ORDER BY 1";

#[test]
fn a_running_account_becomes_state() {
    for shape in SHAPES {
        let billing = Setup::new().toml(CATALOGUE).spawn();
        let fake = running(shape);
        fake.page_max(2);
        let adopted = adopts(&billing, &fake);
        let expected = Adopted {
            applied: true,
            customers: 3,
            subscriptions: 3,
            left_out: 1,
            accounts_opened: 3,
            references_set: 3,
            subscriptions_changed: 3,
            tiers_changed: 2,
            ..Adopted::default()
        };
        assert_eq!(adopted, expected, "{shape:?}");
        assert_eq!(billing.rows(ACCOUNTS), ["cus_1|user-1|pro", "cus_2|user-2|basic", "cus_3|user-3|"]);
        let states = "SELECT subscription_id, status, tier, price_ids, current_period_end, source_event_id
                      FROM v_subscriptions ORDER BY 1";
        let end = NOW + 2_588_400;
        assert_eq!(
            billing.rows(states),
            [
                format!("sub_1|active|pro|price_pro|{end}|op_adopt:sub_1"),
                format!("sub_2|active|basic|price_basic|{end}|op_adopt:sub_2"),
                format!("sub_old|canceled|pro|price_pro|{end}|op_adopt:sub_old"),
            ]
        );
        let events = "SELECT event_id, source, type, outcome, created_at FROM v_events ORDER BY 1 LIMIT 1";
        assert_eq!(billing.row(events), format!("op_adopt:cus_1|operator|customer.updated|applied|{NOW}"));
        assert_eq!(billing.rows("SELECT DISTINCT actor FROM v_audit"), ["operator:alice"]);
        assert_eq!(billing.rows("SELECT kind FROM v_findings"), [""; 0]);
    }
}

/// Everything in the database, table by table.
fn everything(billing: &Billing) -> Vec<Vec<String>> {
    let connection = billing.outside();
    let tables = rows(&connection, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1");
    tables.iter().map(|table| rows(&connection, &format!("SELECT * FROM {table}"))).collect()
}

#[test]
fn without_apply_nothing_changes_and_the_same_is_told() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let fake = running(Shape::New);
    // One more, so that chunks would end between a customer and its subscription.
    fake.put(customer("cus_0", "user-0"));
    for number in 0..200 {
        let id = format!("cus_of_many_{number}");
        fake.put(customer(&id, &format!("user-of-many-{number}")));
        puts(&fake, &format!("sub_of_many_{number}"), &id, "price_basic", "active");
    }
    let before = everything(&billing);
    let rehearsed = adopts_at(&billing, &fake, NOW, false).expect("a rehearsal");
    assert_eq!(everything(&billing), before);
    assert_eq!((rehearsed.accounts_opened, rehearsed.tiers_changed), (204, 202));
    let adopted = adopts(&billing, &fake);
    assert_eq!(adopted, Adopted { applied: true, ..rehearsed });
}

#[test]
fn adopting_again_brings_only_what_has_changed() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let fake = running(Shape::New);
    adopts(&billing, &fake);
    let before = everything(&billing);
    let again = adopts_at(&billing, &fake, NOW + 60, true).expect("an adoption");
    assert_eq!((again.as_known, again.subscriptions_changed, again.accounts_opened), (6, 0, 0));
    assert_eq!(everything(&billing), before, "nothing new");
    puts(&fake, "sub_2", "cus_2", "price_pro", "active");
    let again = adopts_at(&billing, &fake, NOW + 90, true).expect("an adoption");
    assert_eq!((again.as_known, again.subscriptions_changed, again.tiers_changed), (5, 1, 1));
    let source = "SELECT source_event_id FROM v_subscriptions WHERE subscription_id = 'sub_2'";
    assert_eq!(billing.row(source), format!("op_adopt:sub_2:{}", NOW + 90));
}

fn told(id: &str, kind: &str, at: i64, price: &str, previous: Option<Value>) -> Value {
    let mut event = event(Shape::New, id, kind, subscription(Shape::New, "sub_1", "cus_1", price, "active"));
    merge(&mut event, json!({ "created": at }));
    if let Some(previous) = previous {
        merge(&mut event["data"], json!({ "previous_attributes": previous }));
    }
    event
}

/// A webhook that came before, comes during or comes after, in any order: the tier is that of the webhooks alone.
#[test]
fn an_adoption_at_any_time_ends_in_the_tiers_of_the_webhooks_alone() {
    type Step<'a> = Box<dyn Fn(&Billing) + 'a>;
    let was_basic = || Some(json!({ "metadata": { "plan": "basic" } }));
    for (name, last_at, last, expected) in [
        ("changed later", NOW + 10, "price_basic", "basic"),
        ("changed in the same second", NOW, "price_basic", "basic"),
        ("not changed since", NOW - 40, "price_pro", "pro"),
    ] {
        let fake = FakeStripe::default();
        fake.put(customer("cus_1", "user-1"));
        puts(&fake, "sub_1", "cus_1", "price_pro", "active");
        let created = told("evt_1", "customer.subscription.created", NOW - 100, "price_basic", None);
        let updated = told("evt_2", "customer.subscription.updated", NOW - 50, "price_pro", was_basic());
        let last = told("evt_3", "customer.subscription.updated", last_at, last, was_basic());
        let steps: Vec<Step<'_>> = vec![
            Box::new(|billing| drop(adopts(billing, &fake))),
            Box::new(|billing| drop(billing.stripe_sends(&created))),
            Box::new(|billing| drop(billing.stripe_sends(&updated))),
            Box::new(|billing| drop(billing.stripe_sends(&last))),
        ];
        for order in orders(steps.len()) {
            let billing = Setup::new().toml(CATALOGUE).spawn();
            order.iter().for_each(|step| steps[*step](&billing));
            assert_eq!(billing.row(ACCOUNTS), format!("cus_1|user-1|{expected}"), "{name}: {order:?}");
        }
    }
}

/// All orders of the first numbers.
fn orders(length: usize) -> Vec<Vec<usize>> {
    if length == 0 {
        return vec![Vec::new()];
    }
    let longer = |order: Vec<usize>| {
        (0..length).map(move |at| {
            let mut order = order.clone();
            order.insert(at, length - 1);
            order
        })
    };
    orders(length - 1).into_iter().flat_map(longer).collect()
}

/// This machine's clock is ten minutes ahead; what Stripe tells in these ten minutes must still win.
#[test]
fn the_clock_of_stripe_counts() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let fake = running(Shape::New);
    fake.order(Fault::at("*").header("date", DATE));
    adopts_at(&billing, &fake, NOW + 600, true).expect("an adoption");
    assert_eq!(billing.row("SELECT DISTINCT created_at FROM v_events"), NOW.to_string());
    billing.stripe_sends(&told("evt_1", "customer.subscription.updated", NOW + 1, "price_basic", None));
    assert_eq!(billing.row("SELECT tier FROM v_accounts WHERE account_id = 'cus_1'"), "basic");
}

#[test]
fn what_was_settled_before_the_move_grants_nothing_and_is_no_finding() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    adopts(&billing, &running(Shape::New));
    let mut old = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000);
    merge(&mut old["data"]["object"], json!({ "status_transitions": { "paid_at": NOW - 86_400 } }));
    assert_eq!(billing.stripe_sends(&old).short(), "200 completed no_effect");
    let paid = invoice_paid(Shape::New, "evt_2", "in_2", "cus_1", 2_000);
    assert_eq!(billing.stripe_sends(&paid).short(), "200 completed applied", "paid after the move");
    assert_eq!(billing.rows("SELECT kind FROM v_findings"), [""; 0]);
}

#[test]
fn subscriptions_with_many_items_are_completed_and_odd_objects_reported() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let fake = FakeStripe::default();
    fake.put(customer("cus_1", "user-1"));
    let mut long = subscription(Shape::New, "sub_1", "cus_1", "price_basic", "active");
    let mut second = long["items"]["data"][0].clone();
    merge(&mut second, json!({ "id": "si_2", "price": { "id": "price_pro", "object": "price", "currency": "usd" } }));
    fake.put(long["items"]["data"][0].clone());
    fake.put(second);
    merge(&mut long["items"], json!({ "has_more": true }));
    fake.put(long);
    let mut odd = subscription(Shape::New, "sub_odd", "cus_1", "price_basic", "active");
    merge(&mut odd, json!({ "status": 7 }));
    fake.put(odd);
    let adopted = adopts(&billing, &fake);
    assert_eq!(billing.row("SELECT price_ids, tier FROM v_subscriptions"), "price_basic,price_pro|pro");
    let problems: Vec<&str> = adopted.problems.iter().map(|one| one.problem.as_str()).collect();
    assert_eq!(problems, ["field status is not a text; it is left out"]);
    assert_eq!(adopted.problems[0].event_id, "op_adopt:sub_odd");
}

#[test]
fn nothing_is_adopted_of_another_mode_or_of_half_a_list() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let before = everything(&billing);
    let live = FakeStripe::default();
    let mut other = customer("cus_1", "user-1");
    merge(&mut other, json!({ "livemode": true }));
    live.put(other);
    let refused = adopts_at(&billing, &live, NOW, true).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "stripe.api_key opens live mode, and these books are of test mode; give the key of that mode"
    );
    let fake = running(Shape::New);
    fake.page_max(1);
    fake.order(Fault::at("/v1/subscriptions").page(2).status(500));
    let Err(AdoptError::NoAnswer(error)) = adopts_at(&billing, &fake, NOW, true) else { panic!("it has half a list") };
    assert!(error.to_string().contains("/v1/subscriptions"), "{error}");
    assert!(matches!(error, billingd::stripe::ask::NoAnswer::Api(error) if error.kind == Kind::Unavailable));
    assert_eq!(everything(&billing), before);
}

/// What the real program says, and its status.
pub(crate) fn says(billing: &Billing, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_billingd"));
    command.env_clear().envs(variables.iter().copied()).arg("--config").arg(billing.config_file()).args(arguments);
    let output = command.output().expect("the program");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("a status"), String::from_utf8(text).expect("text"))
}

#[test]
fn adopt_tells_people_and_programs() {
    let toml = CATALOGUE.replace("since = \"2026-09-21\"\n", "");
    let billing = Setup::new().toml(&toml).spawn();
    let fake = running(Shape::New);
    let served = fake.serve();
    let url = served.url();
    let key = [("BILLINGD__STRIPE__API_KEY", "rk_test_hush"), ("BILLINGD__STRIPE__API_BASE", &url)];
    let dry = "\
at Stripe: 3 customers, 3 subscriptions; left out, because they ended with a deleted customer: 1

would change: 3 new accounts, 3 new references, 3 subscriptions, 2 tiers

known as they are at Stripe: 0; a webhook told something newer: 0
warning: [credits] since is empty: an invoice that was paid before the move grants as soon as an event of it comes; set \
it to the day of the move
nothing is changed yet; run the same with --apply
";
    assert_eq!(says(&billing, &["adopt"], &key), (0, dry.to_owned()));
    assert_eq!(billing.row("SELECT count(*) FROM v_accounts"), "0");
    let (status, told) = says(&billing, &["adopt", "--apply", "--as", "bob", "--json"], &key);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((status, &told["applied"], &told["tiers_changed"]), (0, &json!(true), &json!(2)));
    assert_eq!(billing.rows("SELECT DISTINCT actor FROM v_audit"), ["operator:bob"]);
    let (status, again) = says(&billing, &["adopt", "--apply"], &key);
    assert!(status == 0 && again.contains("\nknown as they are at Stripe: 6;"), "{again}");
    let no_key = "billingd: this asks Stripe, and there is no [stripe] api_key; a restricted key that may only read is \
                  enough\n";
    assert_eq!(says(&billing, &["adopt"], &[]), (1, no_key.to_owned()));
    fake.order(Fault::at("/v1/customers").status(401));
    let (status, refused) = says(&billing, &["adopt"], &key);
    assert!(status == 1 && refused.contains("nothing is changed: /v1/customers"), "{refused}");
    assert!(!refused.contains("hush"), "{refused}");
}
