use super::*;
use crate::domain::exchange::Rate;
use crate::domain::ids::{AccountId, InvoiceId};
use crate::domain::policy::{Catalogue, Tiers};

fn currency(code: &str) -> Currency {
    Currency::parse(code).expect("a currency")
}

fn amount(text: &str) -> UnitAmount {
    UnitAmount::parse(text).expect("a unit amount")
}

fn id(text: &str) -> PriceId {
    PriceId::parse(text).expect("an id")
}

/// A listed price that grants so many credits.
fn price(id: &str, credits: i64) -> (String, PriceRule) {
    let rule = PriceRule {
        tier: None,
        credits,
        per_invoice: false,
        unit: "credits".into(),
        unit_amount: None,
        foreign: false,
    };
    (id.into(), rule)
}

fn plan(id: &str, credits: i64) -> (String, PriceRule) {
    let (id, rule) = price(id, credits);
    (id, PriceRule { tier: Some("some tier".into()), ..rule })
}

/// When everything below is paid: on day 10.
const PAID_AT: UnixSeconds = 10 * 86_400;

/// A rate of the day before.
fn rate(code: &str, text: &str) -> DayRate {
    DayRate { day: 9, currency: currency(code), rate: Rate::parse(text).expect("a rate") }
}

/// What every row below is granted by.
fn catalogue() -> Policy {
    let (flat, flat_rule) = plan("flat", 30);
    let (seat, seat_rule) = price("seat", 1);
    let (told, told_rule) = plan("told", 100);
    let (free, free_rule) = plan("free", 10);
    let (other, other_rule) = price("other", 0);
    let prices = [
        plan("basic", 100),
        plan("pro", 500),
        price("pack", 50),
        plan("tier_only", 0),
        price("prod_1", 20),
        price("key_1", 30),
        price("huge", i64::MAX),
        (flat, PriceRule { per_invoice: true, ..flat_rule }),
        (seat, PriceRule { unit: "seats".into(), ..seat_rule }),
        (told, PriceRule { unit_amount: Some(amount("4000")), ..told_rule }),
        (free, PriceRule { unit_amount: Some(amount("0")), ..free_rule }),
        (other, PriceRule { foreign: true, ..other_rule }),
    ];
    Policy {
        livemode: false,
        connected_account: None,
        credits: Credits { since: None, basis: Basis::Catalogue, prorate: true, unlisted_price_fails: true },
        catalogue: Catalogue::new(prices),
        tiers: Tiers::default(),
        max_attempts: 5,
        asks_stripe: false,
    }
}

fn by_money(into: Option<&str>) -> Policy {
    let mut policy = catalogue();
    let conversion = |into: &str| Conversion { into: currency(into), base: currency("eur"), max_age_days: 4 };
    policy.credits.basis = Basis::AmountPaid(into.map(conversion));
    policy
}

/// A line of a subscription over one of a price.
fn line(price: &str, amount: i64) -> Line {
    Line {
        price: Some(PriceRef { id: id(price), product: None, lookup_key: None }),
        amount,
        currency: currency("usd"),
        quantity: Some(1),
        proration: false,
        on_subscription: true,
        unit: Unit::Untold,
        period_start: None,
        period_end: None,
    }
}

impl Line {
    fn times(self, quantity: i64) -> Self {
        Self { quantity: Some(quantity), ..self }
    }

    fn without_quantity(self) -> Self {
        Self { quantity: None, ..self }
    }

    fn without_subscription(self) -> Self {
        Self { on_subscription: false, ..self }
    }

    fn costs(self, text: &str) -> Self {
        Self { unit: Unit::Costs(amount(text)), ..self }
    }

    fn has_no_amount(self) -> Self {
        Self { unit: Unit::HasNone, ..self }
    }

    fn also(self, product: Option<&str>, lookup_key: Option<&str>) -> Self {
        let price = self.price.map(|price| PriceRef {
            product: product.map(Into::into),
            lookup_key: lookup_key.map(Into::into),
            ..price
        });
        Self { price, ..self }
    }
}

fn part(price: &str, amount: i64) -> Line {
    Line { proration: true, ..line(price, amount) }
}

fn unpriced(amount: i64) -> Line {
    Line { price: None, ..line("none", amount) }
}

fn invoice(lines: Vec<Line>) -> Invoice {
    Invoice {
        id: InvoiceId::parse("in_1").expect("an id"),
        customer: AccountId::parse("cus_1").ok(),
        subscription: None,
        status: "paid".into(),
        currency: currency("usd"),
        total: 2_000,
        amount_due: 2_000,
        amount_paid: 2_000,
        paid_out_of_band: false,
        paid_at: None::<UnixSeconds>,
        created: None,
        payments: Vec::new(),
        lines: Lines::Complete(lines),
        reference: None,
    }
}

/// `credits 100 + seats 5`, `needs price basic`, …
fn told(grant: Grant) -> String {
    match grant {
        Grant::Lines(lines) => {
            let lines = lines.iter().map(|line| {
                assert!(line.amount > 0, "{line:?}");
                format!("{} {}", line.unit, line.amount)
            });
            lines.collect::<Vec<_>>().join(" + ")
        }
        Grant::Nothing(reason) => format!("nothing: {reason}"),
        Grant::Foreign => "foreign".into(),
        Grant::Needs(Missing::Lines) => "needs lines".into(),
        Grant::Needs(Missing::UnitAmount(price)) => format!("needs price {price}"),
        Grant::Needs(Missing::Rate(currency)) => format!("needs rate {currency}"),
        Grant::Refused(Refusal::UnlistedPrice(price)) => format!("refused: {price} is unlisted"),
        Grant::Refused(Refusal::PriceWithoutUnitAmount(price)) => format!("refused: {price} has no unit amount"),
        Grant::Refused(Refusal::TooLarge) => "refused: too large".into(),
    }
}

#[track_caller]
fn check(name: &str, policy: &Policy, known: &[(&str, &str, Unit)], lines: Vec<Line>, expected: &str) {
    let known = known.iter().map(|(price, code, unit)| ((id(price), currency(code)), unit.clone())).collect();
    let mut reversed = lines.clone();
    reversed.reverse();
    let of = |lines: Vec<Line>| told(of_invoice(&invoice(lines), PAID_AT, policy, &known, &[]));
    assert_eq!(of(lines), expected, "{name}");
    assert_eq!(of(reversed), expected, "{name}, lines the other way round");
}

const NOTHING: &str = "nothing: no line grants credits";

#[test]
fn lines_that_are_sold() {
    let policy = catalogue();
    for (name, lines, expected) in [
        ("a month of a plan", vec![line("basic", 2_000)], "credits 100"),
        ("a quantity", vec![line("basic", 6_000).times(3)], "credits 300"),
        ("no quantity counts as one", vec![line("basic", 2_000).without_quantity()], "credits 100"),
        ("a quantity of none", vec![line("basic", 2_000).times(0)], NOTHING),
        ("a negative quantity takes nothing", vec![line("basic", 2_000).times(-2), line("pack", 1)], "credits 50"),
        (
            "the discount is not in the line's amount, so a 100 % coupon grants",
            vec![line("basic", 2_000).costs("2000")],
            "credits 100",
        ),
        ("a trial", vec![line("basic", 0).costs("2000")], NOTHING),
        ("a trial of an untold price", vec![line("basic", 0)], NOTHING),
        ("a free price, as the line tells", vec![line("basic", 0).costs("0")], "credits 100"),
        ("a free price, as the catalogue tells", vec![line("free", 0)], "credits 10"),
        ("the line beats the catalogue: not free any more", vec![line("free", 0).costs("5")], NOTHING),
        ("a tiered price that cost nothing this time", vec![line("basic", 0).has_no_amount()], NOTHING),
        ("a refund line", vec![line("basic", -2_000)], NOTHING),
        ("a plan sold without a subscription", vec![line("basic", 2_000).without_subscription()], NOTHING),
        ("a pack sold without a subscription", vec![line("pack", 500).without_subscription()], "credits 50"),
        (
            "a pack on a subscription's invoice",
            vec![line("basic", 2_000), line("pack", 500).without_subscription()],
            "credits 150",
        ),
        ("a plan that only gives a tier", vec![line("tier_only", 2_000)], NOTHING),
        ("units stay apart", vec![line("basic", 2_000), line("seat", 500).times(5)], "credits 100 + seats 5"),
        ("once per invoice, whatever the quantity", vec![line("flat", 500).times(7)], "credits 30"),
        (
            "once per invoice, whatever the lines",
            vec![line("flat", 500), line("flat", 500), line("basic", 1)],
            "credits 130",
        ),
        ("no lines", vec![], NOTHING),
    ] {
        check(name, &policy, &[], lines, expected);
    }
}

#[test]
fn prices_are_listed_by_id_then_product_then_lookup_key() {
    let policy = catalogue();
    for (name, lines, expected) in [
        ("by product", vec![line("new", 1).also(Some("prod_1"), None)], "credits 20"),
        ("by lookup key", vec![line("new", 1).also(None, Some("key_1"))], "credits 30"),
        ("the product beats the key", vec![line("new", 1).also(Some("prod_1"), Some("key_1"))], "credits 20"),
        (
            "an unlisted product leaves it to the key",
            vec![line("new", 1).also(Some("prod_9"), Some("key_1"))],
            "credits 30",
        ),
        ("the id beats both", vec![line("pack", 1).also(Some("prod_1"), Some("key_1"))], "credits 50"),
        ("a product may have any id", vec![line("new", 1).also(Some("pack"), None)], "credits 50"),
    ] {
        check(name, &policy, &[], lines, expected);
    }
}

#[test]
fn prices_that_are_not_listed_or_not_ours() {
    let fails = catalogue();
    let mut ignores = catalogue();
    ignores.credits.unlisted_price_fails = false;
    for (name, lines, failing, ignoring) in [
        (
            "unlisted and paid: no partial grant",
            vec![line("basic", 1), line("new", 1)],
            "refused: new is unlisted",
            "credits 100",
        ),
        ("unlisted and free", vec![line("basic", 1), line("new", 0)], "credits 100", "credits 100"),
        ("unlisted and negative", vec![line("basic", 1), part("new", -9)], "credits 100", "credits 100"),
        ("unlisted proration", vec![part("new", 9)], "refused: new is unlisted", NOTHING),
        ("a line without price is not ours", vec![unpriced(700), line("basic", 1)], "credits 100", "credits 100"),
        ("only lines without price", vec![unpriced(700)], NOTHING, NOTHING),
        ("only foreign prices", vec![line("other", 1), unpriced(5)], "foreign", "foreign"),
        ("foreign prices among ours", vec![line("other", 1), line("basic", 1)], "credits 100", "credits 100"),
        ("a foreign price beside a trial of ours", vec![line("other", 1), line("basic", 0)], NOTHING, NOTHING),
        ("foreign beside unlisted", vec![line("other", 1), line("new", 1)], "refused: new is unlisted", "foreign"),
        (
            "unlisted beats what is missing",
            vec![part("basic", 9), line("new", 1)],
            "refused: new is unlisted",
            "needs price basic",
        ),
    ] {
        check(name, &fails, &[], lines.clone(), failing);
        check(name, &ignores, &[], lines, ignoring);
    }
}

#[test]
fn prorations_are_exact_and_their_net_is_rounded_down_once() {
    let policy = catalogue();
    for (name, lines, expected) in [
        ("half a month", vec![part("basic", 1_000).costs("2000")], "credits 50"),
        ("rounded down", vec![part("basic", 999).costs("2000")], "credits 49"),
        ("less than one", vec![part("basic", 19).costs("2000")], NOTHING),
        (
            "an upgrade: unused time back, remaining time on",
            vec![part("basic", -1_000).costs("2000"), part("pro", 2_500).costs("5000")],
            "credits 200",
        ),
        (
            "a downgrade nets below 0",
            vec![part("pro", -2_500).costs("5000"), part("basic", 1_000).costs("2000")],
            NOTHING,
        ),
        (
            "a negative net takes nothing from the rest",
            vec![part("pro", -2_500).costs("5000"), line("basic", 2_000)],
            "credits 100",
        ),
        ("the rest counts on its own", vec![part("basic", 1_000).costs("2000"), line("basic", 2_000)], "credits 150"),
        (
            "thirds add up",
            vec![part("basic", 1).costs("300"), part("basic", 1).costs("300"), part("basic", 1).costs("300")],
            "credits 1",
        ),
        (
            "unequal parts add up",
            vec![part("basic", 1).costs("300"), part("basic", 1).costs("600"), part("basic", 1).costs("200")],
            "credits 1",
        ),
        (
            "just below one",
            vec![
                part("basic", 1).costs("300"),
                part("basic", 1).costs("300"),
                part("basic", 1).costs("300.000000000001"),
            ],
            NOTHING,
        ),
        (
            "rounded once, not per line",
            vec![part("basic", 199).costs("2000"), part("basic", 1).costs("2000")],
            "credits 10",
        ),
        (
            "a negative net is rounded down before it is cut at 0",
            vec![part("basic", -1).costs("2000"), part("pack", 41).costs("2000")],
            NOTHING,
        ),
        ("decimals of a cent", vec![part("basic", 1).costs("0.5")], "credits 200"),
        ("a quantity is in the amount already", vec![part("basic", 3_000).costs("2000").times(3)], "credits 150"),
        (
            "units net by themselves",
            vec![part("basic", -1_000).costs("2000"), part("seat", 300).costs("100")],
            "seats 3",
        ),
        ("of nothing", vec![part("basic", 0)], NOTHING),
        ("once-per-invoice prices have no parts", vec![part("flat", 500)], NOTHING),
        ("a plan without a subscription has none either", vec![part("basic", 500).without_subscription()], NOTHING),
        ("a plan that only gives a tier asks for nothing", vec![part("tier_only", 500)], NOTHING),
    ] {
        check(name, &policy, &[], lines, expected);
    }
    let mut none = catalogue();
    none.credits.prorate = false;
    check("none: a proration grants nothing", &none, &[], vec![part("basic", 1_000), line("pack", 1)], "credits 50");
    check("none: and asks for nothing", &none, &[], vec![part("basic", 1_000).has_no_amount()], NOTHING);
}

#[test]
fn a_unit_amount_comes_from_the_line_then_the_catalogue_then_what_was_seen() {
    let policy = catalogue();
    let seen = |price: &'static str, unit: Unit| vec![(price, "usd", unit)];
    let costs = |text: &str| Unit::Costs(amount(text));
    for (name, known, lines, expected) in [
        ("the line first", seen("told", costs("8000")), vec![part("told", 1_000).costs("2000")], "credits 50"),
        ("then the catalogue", seen("told", costs("8000")), vec![part("told", 1_000)], "credits 25"),
        (
            "also where the line says that there is none",
            vec![],
            vec![part("told", 1_000).has_no_amount()],
            "credits 25",
        ),
        ("then what was seen", seen("basic", costs("8000")), vec![part("basic", 4_000)], "credits 50"),
        (
            "what was seen in another currency does not count",
            vec![("basic", "eur", costs("8000"))],
            vec![part("basic", 4_000)],
            "needs price basic",
        ),
        ("nobody has told", vec![], vec![part("basic", 1_000)], "needs price basic"),
        (
            "seen without amount",
            seen("basic", Unit::HasNone),
            vec![part("basic", 1_000)],
            "refused: basic has no unit amount",
        ),
        (
            "the line says that there is none",
            seen("basic", costs("8000")),
            vec![part("basic", 1_000).has_no_amount()],
            "refused: basic has no unit amount",
        ),
        (
            "a share of a free price cannot be told",
            vec![],
            vec![part("free", 1_000)],
            "refused: free has no unit amount",
        ),
        (
            "what cannot be cured is told before what can",
            vec![],
            vec![part("basic", 1), part("pro", 1).has_no_amount()],
            "refused: pro has no unit amount",
        ),
        ("what is missing holds up the rest", vec![], vec![part("basic", 1), line("pack", 1)], "needs price basic"),
    ] {
        check(name, &policy, &known, lines, expected);
    }
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let policy = catalogue();
    let max = i64::MAX;
    for (name, lines, expected) in [
        ("the most", vec![line("huge", 1)], "credits 9223372036854775807"),
        ("a quantity too many", vec![line("huge", 1).times(2)], "refused: too large"),
        ("one more", vec![line("huge", 1), line("pack", 1)], "refused: too large"),
        ("parts that are too many", vec![part("huge", max).costs("1")], "refused: too large"),
        ("a part that does not fit", vec![part("basic", max).costs("1")], "refused: too large"),
        ("a part and a whole", vec![part("pack", 1).costs("1"), line("huge", 1)], "refused: too large"),
        ("a large quantity", vec![line("basic", 1).times(max)], "refused: too large"),
        ("large, and it fits", vec![line("seat", 1).times(max)], "seats 9223372036854775807"),
        ("large in the middle, and it fits", vec![part("seat", max).costs("9223372036854775807")], "seats 1"),
    ] {
        check(name, &policy, &[], lines, expected);
    }
}

#[test]
fn money_grants_what_was_paid_in_its_currency() {
    let rates = [rate("usd", "1.0876"), rate("jpy", "163.25")];
    let of = |into: Option<&str>, change: fn(&mut Invoice)| {
        let mut invoice = invoice(vec![line("unlisted", 1)]);
        change(&mut invoice);
        told(of_invoice(&invoice, PAID_AT, &by_money(into), &KnownPrices::new(), &rates))
    };
    for (name, into, change, expected) in [
        ("what was paid", None, (|_| ()) as fn(&mut Invoice), "usd 2000"),
        ("not what is due", None, |invoice| invoice.amount_paid = 700, "usd 700"),
        ("nothing", None, |invoice| invoice.amount_paid = 0, "nothing: nothing was paid"),
        ("less than nothing", None, |invoice| invoice.amount_paid = -5, "nothing: nothing was paid"),
        (
            "outside of Stripe, before basil",
            None,
            |invoice| (invoice.paid_out_of_band, invoice.amount_paid) = (true, 0),
            "usd 2000",
        ),
        (
            "outside of Stripe, since basil",
            None,
            |invoice| (invoice.paid_out_of_band, invoice.amount_paid) = (true, 900),
            "usd 900",
        ),
        ("another currency", None, |invoice| invoice.currency = currency("jpy"), "jpy 2000"),
        ("converted into itself", Some("usd"), |_| (), "usd 2000"),
        ("converted", Some("eur"), |_| (), "eur 1838"),
        ("converted out of the base", Some("usd"), |invoice| invoice.currency = currency("eur"), "usd 2175"),
        ("converted across the base", Some("jpy"), |_| (), "jpy 3002"),
        (
            "converted into nothing",
            Some("usd"),
            |invoice| {
                (invoice.currency, invoice.amount_paid) = (currency("jpy"), 1);
            },
            "nothing: what was paid is less than one minor unit when it is converted",
        ),
        (
            "converted beyond what can be counted",
            Some("jpy"),
            |invoice| invoice.amount_paid = i64::MAX,
            "refused: too large",
        ),
        ("of a currency without rate", Some("eur"), |invoice| invoice.currency = currency("ars"), "needs rate ars"),
        ("into a currency without rate", Some("ars"), |invoice| invoice.currency = currency("eur"), "needs rate ars"),
        ("nothing needs no rate", Some("eur"), |invoice| invoice.amount_paid = 0, "nothing: nothing was paid"),
        ("the lines do not matter", None, |invoice| invoice.lines = Lines::Truncated, "usd 2000"),
    ] {
        assert_eq!(of(into, change), expected, "{name}");
    }
    let mut truncated = invoice(Vec::new());
    truncated.lines = Lines::Truncated;
    assert_eq!(told(of_invoice(&truncated, PAID_AT, &catalogue(), &KnownPrices::new(), &[])), "needs lines");
}

#[test]
fn a_sale_without_invoice() {
    let mut ignores = catalogue();
    ignores.credits.unlisted_price_fails = false;
    for (name, policy, price, quantity, expected) in [
        ("a pack", &catalogue(), "pack", 1, "credits 50"),
        ("three packs", &catalogue(), "pack", 3, "credits 150"),
        (
            "a plan is for subscriptions",
            &catalogue(),
            "basic",
            1,
            "nothing: a price with a tier grants only on a subscription",
        ),
        ("another product's", &catalogue(), "other", 1, "foreign"),
        ("unlisted", &catalogue(), "new", 1, "refused: new is unlisted"),
        ("unlisted, ignored", &ignores, "new", 1, "nothing: the price is not listed"),
        ("too many", &catalogue(), "pack", i64::MAX, "refused: too large"),
    ] {
        assert_eq!(told(of_sale(&id(price), quantity, policy)), expected, "{name}");
    }
}

#[test]
fn a_line_of_a_grant_names_its_price_where_there_is_only_one() {
    let of = |lines: Vec<Line>| match of_invoice(&invoice(lines), PAID_AT, &catalogue(), &KnownPrices::new(), &[]) {
        Grant::Lines(mut lines) => lines.remove(0),
        other => panic!("{other:?}"),
    };
    let one = of(vec![line("basic", 1), part("basic", 500).costs("1000")]);
    assert_eq!((one.price, one.credits_per_unit, one.amount), (Some(id("basic")), Some(100), 150));
    let two = of(vec![line("basic", 1), line("pack", 1)]);
    assert_eq!((two.price, two.credits_per_unit, two.amount), (None, None, 150));
}

#[test]
fn a_converted_line_tells_where_it_comes_from() {
    let of = |into: Option<&str>| {
        let rates = [rate("usd", "1.0876")];
        match of_invoice(&invoice(Vec::new()), PAID_AT, &by_money(into), &KnownPrices::new(), &rates) {
            Grant::Lines(mut lines) => lines.remove(0).converted,
            other => panic!("{other:?}"),
        }
    };
    let rate = "0.91945568223611622".to_owned();
    assert_eq!(of(Some("eur")), Some(Converted { amount: 2_000, currency: currency("usd"), rate, day: 9 }));
    assert_eq!(of(Some("usd")), None, "nothing was converted");
    assert_eq!(of(None), None);
}
