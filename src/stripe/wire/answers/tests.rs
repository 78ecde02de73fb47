//! Single lines, items and prices, in both families of shapes.

use serde_json::{Value, json};

use super::*;
use crate::domain::ids::PriceId;
use crate::domain::money::UnitAmount;

fn costs(text: &str) -> Unit {
    Unit::Costs(UnitAmount::parse(text).unwrap())
}

/// Price, unit, amount, quantity, proration.
type Short = (Option<String>, Unit, i64, Option<i64>, bool);

fn short(line: Result<Line, Unreadable>) -> Result<Short, Unreadable> {
    line.map(|line| {
        (line.price.map(|price| price.id.to_string()), line.unit, line.amount, line.quantity, line.proration)
    })
}

fn problem(field: &str, problem: &'static str) -> Unreadable {
    Unreadable { field: field.to_owned(), problem }
}

#[test]
fn a_line_of_an_invoice_is_read_alone() {
    let price = json!({"id": "price_1", "product": "prod_1", "currency": "usd", "unit_amount": 1000});
    let pricing = json!({"price_details": {"price": "price_1", "product": "prod_1"}, "unit_amount_decimal": "1000"});
    let details = json!({"invoice_item_details": {"proration": true}});
    for (line, read) in [
        (json!({"price": price, "proration": false, "quantity": 2}), (Some("price_1"), costs("1000"), Some(2), false)),
        (json!({"pricing": pricing, "quantity": 2}), (Some("price_1"), costs("1000"), Some(2), false)),
        (json!({"price": price, "proration": true}), (Some("price_1"), costs("1000"), None, true)),
        (json!({"pricing": pricing, "parent": details}), (Some("price_1"), Unit::Untold, None, true)),
        (json!({"description": "by hand", "price": null}), (None, Unit::Untold, None, false)),
    ] {
        let mut whole = json!({"id": "il_1", "object": "line_item", "amount": 2000, "currency": "usd"});
        whole.as_object_mut().unwrap().extend(line.as_object().unwrap().clone());
        let (id, unit, quantity, proration) = read;
        let expected = (id.map(str::to_owned), unit, 2000, quantity, proration);
        assert_eq!(short(invoice_line(&whole.to_string())), Ok(expected), "{line}");
    }
    for (line, wrong) in [
        (json!({"amount": 1}), problem("currency", "missing")),
        (json!({"amount": 1, "currency": "dollars"}), problem("currency", "not a currency")),
        (json!({"currency": "usd"}), problem("amount", "missing")),
        (json!({"amount": "1", "currency": "usd"}), problem("amount", "not an integer of 64 bits")),
        (json!({"amount": 1, "currency": "usd", "quantity": 1.5}), problem("quantity", "not an integer of 64 bits")),
    ] {
        assert_eq!(invoice_line(&line.to_string()), Err(wrong), "{line}");
    }
}

#[test]
fn a_line_of_a_session_counts_before_discounts() {
    let line = |more: Value| {
        let mut line = json!({"id": "li_1", "object": "item", "currency": "usd", "amount_total": 1800});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string()
    };
    let price = |currency| json!({"id": "price_1", "currency": currency, "unit_amount": 1000});
    let id = || Some("price_1".to_owned());
    for (more, read) in [
        (
            json!({"price": price("usd"), "quantity": 2, "amount_subtotal": 2000}),
            (id(), costs("1000"), 2000, Some(2), false),
        ),
        (json!({"price": price("eur"), "quantity": 2}), (id(), Unit::Untold, 1800, Some(2), false)),
        (json!({"price": null, "quantity": null}), (None, Unit::Untold, 1800, None, false)),
    ] {
        assert_eq!(short(session_line(&line(more.clone()))), Ok(read), "{more}");
    }
    assert_eq!(session_line(&line(json!({"amount_total": null}))), Err(problem("amount_subtotal", "missing")));
    assert_eq!(session_line(&line(json!({"currency": null}))), Err(problem("currency", "missing")));
    assert_eq!(session_line(&line(json!({"quantity": "2"}))), Err(problem("quantity", "not an integer of 64 bits")));
}

#[test]
fn a_price_is_told_in_each_currency() {
    let read = |price: Value| {
        let mut told: Vec<_> = prices(&price.to_string())?.into_iter().map(|one| (one.currency, one.unit)).collect();
        told.sort_by_key(|(currency, _)| currency.to_string());
        Ok::<_, Unreadable>(told)
    };
    let currency = |code| Currency::parse(code).unwrap();
    let options = json!({
        "usd": {"unit_amount": 1000}, "eur": {"unit_amount": null, "unit_amount_decimal": "900.5"},
        "jpy": {"unit_amount": null, "unit_amount_decimal": null}, "gbp": {"custom_unit_amount": {}}, "??": {},
    });
    for (price, told) in [
        (json!({"unit_amount": 1000}), vec![("usd", costs("1000"))]),
        (json!({"unit_amount": null, "tiers_mode": "volume"}), vec![("usd", Unit::HasNone)]),
        (json!({"tiers_mode": "volume"}), vec![("usd", Unit::HasNone)]),
        (json!({"unit_amount": 1000, "currency_options": null}), vec![("usd", costs("1000"))]),
        (
            json!({"unit_amount": 1000, "currency_options": options}),
            vec![("eur", costs("900.5")), ("gbp", Unit::HasNone), ("jpy", Unit::HasNone), ("usd", costs("1000"))],
        ),
    ] {
        let mut whole = json!({"id": "price_1", "object": "price", "currency": "usd"});
        whole.as_object_mut().unwrap().extend(price.as_object().unwrap().clone());
        let told = told.into_iter().map(|(code, unit)| (currency(code), unit)).collect();
        assert_eq!(read(whole), Ok(told), "{price}");
    }
    assert_eq!(read(json!({"id": "price_1"})), Err(problem("currency", "missing")));
    assert_eq!(read(json!({"currency": "usd"})), Err(problem("id", "missing, or not an id")));
}

#[test]
fn an_item_of_a_subscription_is_read_alone() {
    for named in ["price", "plan"] {
        let item = json!({"id": "si_1", named: {"id": "price_1", "product": "prod_1"}, "quantity": 4});
        let read = subscription_item(&item.to_string()).unwrap();
        let price = PriceId::parse("price_1").unwrap();
        assert_eq!((read.id.as_str(), read.price.id, read.quantity), ("si_1", price, Some(4)), "{named}");
    }
    let nameless = json!({"id": "si_1", "quantity": 4}).to_string();
    assert_eq!(subscription_item(&nameless), Err(problem("price", "missing, or without an id")));
}
