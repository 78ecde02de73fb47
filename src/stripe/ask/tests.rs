//! What is asked, and how the answers of both families of versions are read.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;

/// A request, and what is answered.
type Step = (&'static str, Result<Value, Kind>);

/// Answers in the order in which they stand here; each request must be the one that stands there.
struct Script(Mutex<Vec<Step>>);

impl Script {
    fn new(script: &[Step]) -> Self {
        Self(Mutex::new(script.iter().rev().cloned().collect()))
    }

    fn is_over(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

impl Api for Script {
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
        let pairs: Vec<String> =
            query.iter().filter(|(name, _)| *name != "limit").map(|(name, value)| format!("{name}={value}")).collect();
        let asked = if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) };
        let (expected, answer) = self.0.lock().unwrap().pop().unwrap_or_else(|| panic!("nobody expects {asked}"));
        assert_eq!(asked, expected);
        match answer {
            Ok(answer) => Ok(Dated { told: answer.to_string().into_bytes(), date: None }),
            Err(kind) => Err(ApiError::new(kind, path, "as ordered")),
        }
    }
}

fn list(has_more: bool, data: Value) -> Result<Value, Kind> {
    Ok(json!({"object": "list", "has_more": has_more, "data": data}))
}

/// What went wrong, as far as a caller goes by it.
fn wrong<T>(answer: Result<T, NoAnswer>) -> String {
    match answer {
        Ok(_) => "nothing".to_owned(),
        Err(NoAnswer::Api(error)) => format!("{:?}", error.kind),
        Err(NoAnswer::Unreadable { path, problem }) => format!("{path} {}", problem.field),
    }
}

fn old_line(id: &str) -> Value {
    json!({
        "id": id, "amount": 1000, "currency": "usd", "quantity": 1, "type": "subscription", "proration": false,
        "price": {"id": "price_1", "product": "prod_1", "currency": "usd", "unit_amount": 1000},
    })
}

fn new_line(id: &str) -> Value {
    json!({
        "id": id, "amount": 1000, "currency": "usd", "quantity": 1,
        "parent": {"type": "subscription_item_details", "subscription_item_details": {"subscription": "sub_1"}},
        "pricing": {"price_details": {"price": "price_1", "product": "prod_1"}, "unit_amount_decimal": "1000"},
    })
}

#[test]
fn lines_come_page_by_page_in_both_shapes() {
    let invoice = InvoiceId::parse("in/1").unwrap();
    let mut answers = Vec::new();
    for line in [old_line, new_line] {
        let api = Script::new(&[
            ("/v1/invoices/in%2F1/lines", list(true, json!([line("il_1"), line("il_2")]))),
            ("/v1/invoices/in%2F1/lines?starting_after=il_2", list(false, json!([line("il_3")]))),
        ]);
        let Ok(Asked::Told(lines)) = invoice_lines(&api, &invoice) else { panic!("no lines") };
        assert!(api.is_over());
        answers.push(lines.into_iter().map(|line| (line.price, line.amount, line.unit)).collect::<Vec<_>>());
    }
    assert_eq!(answers[0].len(), 3);
    assert_eq!(answers[0], answers[1]);
    let path = "/v1/invoices/in%2F1/lines";
    for (answer, became) in [
        (Err(Kind::Unavailable), "Unavailable"),
        (list(true, json!([])), "Garbage"),
        (list(false, json!([{"id": "il_1", "currency": "usd"}])), "/v1/invoices/in%2F1/lines amount"),
    ] {
        assert_eq!(wrong(invoice_lines(&Script::new(&[(path, answer)]), &invoice)), became);
    }
    assert_eq!(invoice_lines(&Script::new(&[(path, Err(Kind::NotFound))]), &invoice), Ok(Asked::Gone));
}

#[test]
fn a_price_is_asked_for_with_its_currencies() {
    let price = PriceId::parse("price_1").unwrap();
    let path = "/v1/prices/price_1?expand[]=currency_options";
    let told =
        json!({"id": "price_1", "currency": "usd", "unit_amount": 7, "currency_options": {"eur": {"unit_amount": 6}}});
    let Ok(Asked::Told(prices)) = prices(&Script::new(&[(path, Ok(told))]), &price) else { panic!("no price") };
    assert_eq!(prices.len(), 2);
    assert_eq!(super::prices(&Script::new(&[(path, Err(Kind::NotFound))]), &price), Ok(Asked::Gone));
    let wordless = Ok(json!({"id": "price_1"}));
    assert_eq!(wrong(super::prices(&Script::new(&[(path, wordless)]), &price)), "/v1/prices/price_1 currency");
}

fn subscription_with(items: Value, has_more: bool) -> Value {
    json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_1", "status": "active",
        "items": {"object": "list", "has_more": has_more, "data": items},
    })
}

#[test]
fn a_subscription_comes_with_all_of_its_items() {
    let id = SubscriptionId::parse("sub_1").unwrap();
    let item = |id: &str| json!({"id": id, "price": {"id": "price_1"}, "quantity": 1});
    let path = "/v1/subscriptions/sub_1";
    let api = Script::new(&[
        (path, Ok(subscription_with(json!([item("si_1")]), true))),
        ("/v1/subscription_items?subscription=sub_1", list(true, json!([item("si_1")]))),
        ("/v1/subscription_items?subscription=sub_1&starting_after=si_1", list(false, json!([item("si_2")]))),
    ]);
    let Ok(Asked::Told(Dated { told, .. })) = subscription(&api, &id) else { panic!("no subscription") };
    let items: Vec<&str> = told.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!((items, told.items_truncated), (vec!["si_1", "si_2"], false));
    let whole = Script::new(&[(path, Ok(subscription_with(json!([item("si_1")]), false)))]);
    assert!(matches!(subscription(&whole, &id), Ok(Asked::Told(whole)) if whole.told.items.len() == 1));
    assert_eq!(subscription(&Script::new(&[(path, Err(Kind::NotFound))]), &id), Ok(Asked::Gone));
    let other = Ok(json!({"id": "cus_1", "object": "customer"}));
    assert_eq!(wrong(subscription(&Script::new(&[(path, other)]), &id)), "/v1/subscriptions/sub_1 object");
}

fn attached(invoice: &str, status: &str, payment: Value) -> Value {
    json!({
        "id": format!("inpay_{invoice}"), "object": "invoice_payment", "invoice": invoice, "status": status,
        "payment": payment,
    })
}

fn charge_of(intent: Value, invoice: Value) -> Result<Value, Kind> {
    Ok(json!({
        "id": "ch_1", "object": "charge", "payment_intent": intent, "invoice": invoice, "currency": "usd", "amount": 7,
        "amount_captured": 7, "status": "succeeded",
    }))
}

fn intent_of(invoice: Value) -> Result<Value, Kind> {
    Ok(json!({"id": "pi_1", "object": "payment_intent", "invoice": invoice}))
}

const BY_INTENT: &str = "/v1/invoice_payments?payment[type]=payment_intent&payment[payment_intent]=pi_1";
const BY_CHARGE: &str = "/v1/invoice_payments?payment[type]=charge&payment[charge]=ch_1";

#[test]
fn what_a_payment_paid_is_found_by_any_of_its_names() {
    let by_intent = || json!({"type": "payment_intent", "payment_intent": "pi_1"});
    let links = || {
        let open = attached("in_0", "open", by_intent());
        list(false, json!([attached("in_2", "paid", by_intent()), open, attached("in_1", "paid", by_intent())]))
    };
    let nothing = || list(false, json!([]));
    let by_charge = || list(false, json!([attached("in_1", "paid", json!({"type": "charge", "charge": "ch_1"}))]));
    let unknown = || Err(Kind::Unknown);
    let null = || Value::Null;
    let cases: Vec<(&str, Vec<Step>, &str)> = vec![
        ("pi_1", vec![(BY_INTENT, links())], "pi_1 - in_2 in_1"),
        ("pi_1", vec![(BY_INTENT, nothing())], "pi_1 -"),
        (
            "ch_1",
            vec![("/v1/charges/ch_1", charge_of(json!("pi_1"), null())), (BY_INTENT, links())],
            "pi_1 ch_1 in_2 in_1",
        ),
        ("ch_1", vec![("/v1/charges/ch_1", charge_of(null(), null())), (BY_CHARGE, by_charge())], "- ch_1 in_1"),
        // A look-alike, or a proxy for old versions: no list, but the payment names its invoice.
        ("pi_1", vec![(BY_INTENT, unknown()), ("/v1/payment_intents/pi_1", intent_of(json!("in_1")))], "pi_1 - in_1"),
        (
            "ch_1",
            vec![("/v1/charges/ch_1", charge_of(json!("pi_1"), json!("in_1"))), (BY_INTENT, unknown())],
            "pi_1 ch_1 in_1",
        ),
        (
            "ch_1",
            vec![
                ("/v1/charges/ch_1", charge_of(json!("pi_1"), null())),
                (BY_INTENT, unknown()),
                ("/v1/payment_intents/pi_1", intent_of(json!("in_1"))),
            ],
            "pi_1 ch_1 in_1",
        ),
    ];
    for (name, script, expected) in cases {
        let api = Script::new(&script);
        let paid = payment(&api, name).unwrap_or_else(|error| panic!("{error}"));
        let intent = paid.names.payment_intent.map_or_else(|| "-".to_owned(), |intent| intent.to_string());
        let charge = paid.names.charge.map_or_else(|| "-".to_owned(), |charge| charge.to_string());
        let names = [intent, charge].into_iter().chain(paid.invoices.iter().map(ToString::to_string));
        assert_eq!(names.collect::<Vec<_>>().join(" "), expected);
        assert!(api.is_over(), "{expected}");
    }
}

/// Neither of these says that the payment paid nothing.
#[test]
fn what_a_payment_paid_may_stay_open() {
    let unknown = || (BY_INTENT, Err(Kind::Unknown));
    for (script, became) in [
        (vec![(BY_INTENT, Err(Kind::Limited))], "Limited"),
        (vec![(BY_INTENT, Err(Kind::NotFound))], "NotFound"),
        (vec![unknown(), ("/v1/payment_intents/pi_1", intent_of(Value::Null))], "Unknown"),
        (vec![unknown(), ("/v1/payment_intents/pi_1", Err(Kind::NotFound))], "Unknown"),
        (vec![(BY_INTENT, list(false, json!([{"id": "ch_1", "object": "charge"}])))], "/v1/invoice_payments object"),
    ] {
        assert_eq!(wrong(payment(&Script::new(&script), "pi_1")), became);
    }
    assert_eq!(wrong(payment(&Script::new(&[("/v1/charges/ch_1", Err(Kind::NotFound))]), "ch_1")), "NotFound");
}

#[test]
fn charges_in_vain_do_not_count() {
    let one = |id: &str, status: &str| {
        let mut charge = charge_of(json!("pi_1"), Value::Null).unwrap();
        (charge["id"], charge["status"]) = (json!(id), json!(status));
        charge
    };
    let all = json!([one("ch_3", "failed"), one("ch_2", "pending"), one("ch_1", "succeeded")]);
    let api = Script::new(&[("/v1/charges?payment_intent=pi_1", list(false, all))]);
    let ids: Vec<String> = charges(&api, "pi_1").unwrap().iter().map(|charge| charge.id.to_string()).collect();
    assert_eq!(ids, ["ch_2", "ch_1"]);
    let api = Script::new(&[("/v1/charges/ch_1", charge_of(Value::Null, Value::Null))]);
    assert_eq!(charges(&api, "ch_1").unwrap().len(), 1);
}

#[test]
fn an_object_that_is_not_text_is_garbage() {
    struct Binary;
    impl Api for Binary {
        fn get(&self, _: &str, _: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
            Ok(Dated { told: vec![b'{', 0xff, b'}'], date: None })
        }
    }
    assert_eq!(wrong(object(&Binary, "/v1/invoices/in_1", &[])), "Garbage");
}
