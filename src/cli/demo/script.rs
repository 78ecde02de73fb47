//! What the demo plays: a list of acts, each with its deliveries and what they must do to the books. A new act is one
//! more function in [`acts`].

use crate::samples::{NoSample, Sample, Shape};

/// The catalogue of the demo: price, what it costs, the credits that it grants.
const PLANS: [(&str, i64, i64); 3] =
    [("price_basic", 2000, 100), ("price_pro", 5000, 500), ("price_team", 20_000, 2500)];

/// How often each `invoice.paid` comes.
const TIMES: usize = 5;

/// The rest of the config: in test mode, on any free port.
pub(super) const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
shutdown_grace = "5s"

[[webhook]]
signing_secrets = ["whsec_demo_only_0a7c52e94b36a8c3"]

[stripe]
livemode = false

[tiers]
order = ["basic", "pro", "team"]

[credits]
basis = "catalogue"

[[price]]
id = "price_basic"
tier = "basic"
credits = 100
unit_amount = 2000

[[price]]
id = "price_pro"
tier = "pro"
credits = 500
unit_amount = 5000

[[price]]
id = "price_team"
tier = "team"
credits = 2500
unit_amount = 20000
"#;

/// How the deliveries of an act are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Each one after the answer to the one before.
    OneAfterAnother,
    /// All at once, each on a connection of its own.
    AllAtOnce,
    /// The connection of the first is cut once its event is on disk and before its answer is read; then the others,
    /// one after another.
    FirstAnswerLost,
}

/// Some deliveries, and what must be true when they are made.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) title: String,
    pub(super) manner: Manner,
    /// The bodies, in their order.
    pub(super) deliveries: Vec<Delivery>,
    /// How many effects of each kind this act has; a kind that is not named: none.
    pub(super) effects: Vec<(&'static str, usize)>,
    /// What the balances of these accounts are afterwards.
    pub(super) balances: Vec<(String, i64)>,
}

/// One delivery.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) event_id: String,
    pub(super) body: Vec<u8>,
}

/// All acts, in their order. `now` is in Unix seconds.
pub(super) fn acts(now: i64) -> Result<Vec<Act>, NoSample> {
    Ok(vec![
        paid_five_times("8 accounts pay; each invoice.paid comes five times", Manner::OneAfterAnother, 1..=8, now)?,
        paid_five_times("9 more pay; all five deliveries of each come at once", Manner::AllAtOnce, 9..=17, now)?,
        paid_five_times("1 more pays; the answer is lost after the commit", Manner::FirstAnswerLost, 18..=18, now)?,
        two_subscriptions(now)?,
        two_downgrades(now)?,
        one_out_of_order(now)?,
        one_partial_refund(now)?,
    ])
}

/// The two accounts of the incident that were demoted wrongly, on the plan that they pay for.
const DOWNGRADED: [u64; 2] = [2, 10];

fn two_subscriptions(now: i64) -> Result<Act, NoSample> {
    let mut act = Act::new("2 of them subscribe to pro", Manner::OneAfterAnother, [("tier change", 2)]);
    for number in DOWNGRADED {
        let sample = Sample { event: 100 + number, now: now - 200, ..account(number, now).0 };
        act.deliveries.push(delivery(&sample, "customer.subscription.created")?);
    }
    Ok(act)
}

/// Read-then-write code demotes twice here, or from the wrong plan; one conditional statement does not.
fn two_downgrades(now: i64) -> Result<Act, NoSample> {
    let mut act = Act::new("both downgrade; each event comes twice at once", Manner::AllAtOnce, [("tier change", 2)]);
    for number in DOWNGRADED {
        let sample = Sample {
            event: 200 + number,
            now: now - 100,
            price: PLANS[0].0.to_owned(),
            unit_amount: PLANS[0].1,
            previous_price: Some(PLANS[1].0.to_owned()),
            ..account(number, now).0
        };
        act.deliveries.extend(vec![delivery(&sample, "customer.subscription.updated")?; 2]);
    }
    Ok(act)
}

/// An update from before the downgrade arrives after it, and moves nothing backwards.
fn one_out_of_order(now: i64) -> Result<Act, NoSample> {
    let mut act = Act::new("an update from before one of them comes last", Manner::OneAfterAnother, []);
    let sample = Sample { event: 300, now: now - 150, ..account(DOWNGRADED[0], now).0 };
    act.deliveries.push(delivery(&sample, "customer.subscription.updated")?);
    Ok(act)
}

/// A quarter of a payment goes back before anything ties the payment to its invoice: the refund waits for the tie.
fn one_partial_refund(now: i64) -> Result<Act, NoSample> {
    let mut act =
        Act::new("a quarter is refunded; the refund waits for its invoice", Manner::OneAfterAnother, [("clawback", 1)]);
    let (buyer, credits) = account(1, now);
    let refund = Sample { event: 400, now: now - 50, refunded: Some(buyer.amount() / 4), ..buyer.clone() };
    let tie = Sample { event: 401, ..buyer.clone() };
    act.deliveries = vec![delivery(&refund, "charge.refunded")?, delivery(&tie, "invoice_payment.paid")?];
    act.balances.push((buyer.customer_id(), credits - credits / 4));
    Ok(act)
}

impl Act {
    fn new<const KINDS: usize>(title: &str, manner: Manner, effects: [(&'static str, usize); KINDS]) -> Self {
        Self {
            title: title.to_owned(),
            manner,
            deliveries: Vec::new(),
            effects: effects.to_vec(),
            balances: Vec::new(),
        }
    }
}

/// Each of these accounts pays its invoice, and Stripe delivers it five times.
fn paid_five_times(
    title: &str,
    manner: Manner,
    accounts: std::ops::RangeInclusive<u64>,
    now: i64,
) -> Result<Act, NoSample> {
    let mut act = Act::new(title, manner, [("grant", accounts.clone().count())]);
    for number in accounts {
        let (sample, credits) = account(number, now);
        act.deliveries.extend(vec![delivery(&sample, "invoice.paid")?; TIMES]);
        act.balances.push((sample.customer_id(), credits));
    }
    Ok(act)
}

fn delivery(sample: &Sample, kind: &str) -> Result<Delivery, NoSample> {
    Ok(Delivery { event_id: sample.event_id(), body: sample.body(kind)? })
}

/// The first purchase of an account, and the credits that it grants. Every fourth is told in Stripe's older shape.
fn account(number: u64, now: i64) -> (Sample, i64) {
    let (price, unit_amount, credits) = match number % 6 {
        0 => PLANS[2],
        2 | 4 => PLANS[1],
        _ => PLANS[0],
    };
    let sample = Sample {
        price: price.to_owned(),
        unit_amount,
        shape: if number.is_multiple_of(4) { Shape::Older } else { Shape::Current },
        reference: Some(("account_id".to_owned(), format!("user-{number:02}"))),
        ..Sample::new(number, now)
    };
    (sample, credits)
}
