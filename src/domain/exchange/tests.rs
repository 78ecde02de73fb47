use super::*;

fn currency(code: &str) -> Currency {
    Currency::parse(code).expect("a currency")
}

fn rate(text: &str) -> Rate {
    Rate::parse(text).expect(text)
}

/// One EUR, in the others.
const RATES: [(&str, &str); 5] =
    [("usd", "1.0876"), ("jpy", "163.25"), ("kwd", "0.33456"), ("isk", "149.5"), ("zzz", "0.000000001")];

/// The rates above, of one day.
fn of_day(day: Day) -> Vec<DayRate> {
    RATES.iter().map(|(code, text)| DayRate { day, currency: currency(code), rate: rate(text) }).collect()
}

/// Day 10 begins here.
const DAY_10: UnixSeconds = 864_000;

fn quote(from: &str, into: &str, known: &[DayRate]) -> Option<Quote> {
    let conversion = Conversion { into: currency(into), base: currency("eur"), max_age_days: 4 };
    conversion.quote(currency(from), DAY_10, known)
}

#[test]
fn money_is_converted_exactly_and_rounded_down_once() {
    for (amount, from, into, expected, told) in [
        (10_000, "eur", "usd", Some(10_876), "1.0876"),
        (10_876, "usd", "eur", Some(10_000), "0.91945568223611622"),
        (10_875, "usd", "eur", Some(9_999), "0.91945568223611622"),
        (1_000, "jpy", "usd", Some(666), "0.006662174578866769"),
        (2_000, "usd", "jpy", Some(3_002), "150.101140125045972785"),
        (5_120, "kwd", "usd", Some(1_664), "3.250836920133907222"),
        (2_000, "usd", "kwd", Some(6_152), "0.307613093048915043"),
        (500, "isk", "eur", Some(3), "0.006688963210702342"),
        (500, "isk", "jpy", Some(5), "1.091973244147157191"),
        (1, "jpy", "kwd", Some(2), "0.00204937212863706"),
        (1, "jpy", "usd", Some(0), "0.006662174578866769"),
        (999_999_999_999, "usd", "kwd", Some(3_076_130_930_486), "0.307613093048915043"),
        (i64::MAX, "jpy", "usd", Some(6_144_771_471_536_449_719), "0.006662174578866769"),
        (i64::MAX, "usd", "jpy", None, "150.101140125045972785"),
        (i64::MAX, "zzz", "kwd", None, "334560000"),
        (1, "jpy", "zzz", Some(0), "0.000000000006125575"),
    ] {
        let quote = quote(from, into, &of_day(9)).expect("a quote");
        assert_eq!((quote.convert(amount), quote.rate().as_str()), (expected, told), "{amount} {from} in {into}");
    }
}

/// Who has only the line can check it: the rate that is kept gives the amount that was granted.
#[test]
fn the_rate_that_is_kept_gives_the_amount_again() {
    for amount in (1..20_000).chain([99_999_999, 999_999_999_999]) {
        for (from, into) in [("usd", "eur"), ("usd", "kwd"), ("kwd", "usd"), ("jpy", "usd"), ("usd", "jpy")] {
            let quote = quote(from, into, &of_day(9)).expect("a quote");
            let text = quote.rate();
            let (whole, decimals) = text.split_once('.').expect("a point");
            let digits: i128 = format!("{whole}{decimals:0<18}").parse().expect("digits");
            let (up, down) = (currency(into).exponent(), currency(from).exponent() + 18);
            let again = i128::from(amount) * digits * 10_i128.pow(up) / 10_i128.pow(down);
            assert_eq!(i64::try_from(again).ok(), quote.convert(amount), "{amount} {from} in {into}");
        }
    }
}

#[test]
fn the_last_day_before_the_payment_counts() {
    let of = |day, code, text| DayRate { day, currency: currency(code), rate: rate(text) };
    let usd = |day| of(day, "usd", "1.1");
    let jpy = |day| of(day, "jpy", "160");
    for (name, from, known, expected) in [
        ("nothing is known", "eur", vec![], None),
        ("the day before", "eur", vec![usd(9)], Some(9)),
        ("the newest", "eur", vec![usd(7), usd(9), usd(8)], Some(9)),
        ("not its own day, which may come later", "eur", vec![usd(10), usd(9)], Some(9)),
        ("its own day rather than none", "eur", vec![usd(10)], Some(10)),
        ("over a long weekend", "eur", vec![usd(6), usd(10)], Some(6)),
        ("stale", "eur", vec![usd(5)], None),
        ("stale, but its own day is there", "eur", vec![usd(5), usd(10)], Some(10)),
        ("the day after", "eur", vec![usd(11)], None),
        ("both rates of one day", "jpy", vec![usd(9), jpy(8), usd(8), jpy(7)], Some(8)),
        ("of two days", "jpy", vec![usd(9), jpy(8)], None),
        ("only one of them", "jpy", vec![jpy(9)], None),
        ("only the other", "jpy", vec![usd(9)], None),
    ] {
        assert_eq!(quote(from, "usd", &known).map(|quote| quote.day), expected, "{name}");
    }
}

#[test]
fn days_are_those_of_utc() {
    for (at, day) in [(0, 0), (86_399, 0), (86_400, 1), (-1, -1), (DAY_10 - 1, 9)] {
        assert_eq!(day_of(at), day);
    }
    let conversion = Conversion { into: currency("usd"), base: currency("eur"), max_age_days: 0 };
    assert_eq!(conversion.days(DAY_10), 10..=10);
    assert_eq!(conversion.missing(currency("jpy")), currency("jpy"));
    assert_eq!(conversion.missing(currency("eur")), currency("usd"));
}

#[test]
fn a_rate_is_a_positive_decimal() {
    for (text, shown) in
        [("1.0876", "1.0876"), ("1.10", "1.1"), ("17000", "17000"), ("17000.00", "17000"), ("0.5", "0.5")]
    {
        assert_eq!(rate(text).to_string(), shown);
    }
    assert_eq!(rate("1.10"), rate("1.1"));
    assert_eq!(rate("999999999.999999999").to_string(), "999999999.999999999");
    let odd = ["", "0", "0.000", ".5", "1.", "-1", "+1", "1e3", " 1", "1,5", "1.0000000000", "1000000000"];
    for odd in odd {
        assert_eq!(Rate::parse(odd), Err(NotARate), "{odd:?}");
    }
    assert!(NotARate.to_string().contains("more than 0"));
}
