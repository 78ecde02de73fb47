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
    ])
}

/// Each of these accounts pays its invoice, and Stripe delivers it five times.
fn paid_five_times(
    title: &str,
    manner: Manner,
    accounts: std::ops::RangeInclusive<u64>,
    now: i64,
) -> Result<Act, NoSample> {
    let mut act = Act {
        title: title.to_owned(),
        manner,
        deliveries: Vec::new(),
        effects: vec![("grant", accounts.clone().count())],
        balances: Vec::new(),
    };
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
