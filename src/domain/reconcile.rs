//! What differs between the books and Stripe: one object at a time, our side and theirs in, a difference out.
//!
//! A difference is told and never acted on. Grants are compared as they were decided then: the price list of today is
//! only asked about what nothing here has decided.

use crate::domain::clawback::{self, Granted, Payment, corrections};
use crate::domain::decision::Finding;
use crate::domain::event::{Checkout, Invoice, UnixSeconds};
use crate::domain::fact::Fact;
use crate::domain::facts::{Decided, Root};
use crate::domain::grant::{self, Grant, KnownPrices};
use crate::domain::ids::{AccountId, EventId, InvoiceId, PriceId, SubscriptionId};
use crate::domain::money::{self, Currency};
use crate::domain::policy::{Basis, Policy};
use crate::domain::subscription::{self, State};

/// What kind of difference a run of reconciliation tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Paid at Stripe, and nothing granted here.
    MissingGrant,
    /// Any other difference of an invoice.
    InvoiceStatus,
    /// Granted here, and not paid at Stripe.
    SurplusCredit,
    /// One payment has several grants.
    DuplicateGrant,
    /// The plan is another one, or what is sold.
    SubscriptionTier,
    /// The state is another one.
    SubscriptionState,
    /// Stripe has a subscription that is unknown here.
    SubscriptionMissingHere,
    /// A subscription that stands here is not at Stripe.
    SubscriptionMissingAtStripe,
    /// The credits of a refund were not taken, or not given again.
    RefundNotApplied,
    /// The credits of a dispute were not taken, or not given again.
    DisputeNotApplied,
    /// No price of a subscription is in the price list.
    UnlistedPrice,
    /// Stripe has events for us, and delivers none.
    Silence,
    /// Events were missed that Stripe does not have any more.
    EventsBeyondReach,
    /// Stripe does not deliver to the endpoint.
    EndpointDisabled,
    /// A proof of the books fails.
    BooksBroken,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 15] = [
        Self::MissingGrant,
        Self::InvoiceStatus,
        Self::SurplusCredit,
        Self::DuplicateGrant,
        Self::SubscriptionTier,
        Self::SubscriptionState,
        Self::SubscriptionMissingHere,
        Self::SubscriptionMissingAtStripe,
        Self::RefundNotApplied,
        Self::DisputeNotApplied,
        Self::UnlistedPrice,
        Self::Silence,
        Self::EventsBeyondReach,
        Self::EndpointDisabled,
        Self::BooksBroken,
    ];

    /// The word in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingGrant => "missing_grant",
            Self::InvoiceStatus => "invoice_status",
            Self::SurplusCredit => "surplus_credit",
            Self::DuplicateGrant => "duplicate_grant",
            Self::SubscriptionTier => "subscription_tier",
            Self::SubscriptionState => "subscription_state",
            Self::SubscriptionMissingHere => "subscription_missing_here",
            Self::SubscriptionMissingAtStripe => "subscription_missing_at_stripe",
            Self::RefundNotApplied => "refund_not_applied",
            Self::DisputeNotApplied => "dispute_not_applied",
            Self::UnlistedPrice => "unlisted_price",
            Self::Silence => "silence",
            Self::EventsBeyondReach => "events_beyond_reach",
            Self::EndpointDisabled => "endpoint_disabled",
            Self::BooksBroken => "books_broken",
        }
    }

    /// Reads what [`Self::as_str`] wrote.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The command that sets it right. `event` is one of ours that is about the subject, and not completed.
    #[must_use]
    pub fn remedy(self, subject: &str, event: Option<&str>) -> String {
        match self {
            Self::MissingGrant | Self::InvoiceStatus | Self::RefundNotApplied | Self::DisputeNotApplied => {
                match event {
                    Some(event) => format!("billingd events replay {event}"),
                    None => "billingd events import FILE".into(),
                }
            }
            Self::SurplusCredit => {
                format!(
                    "billingd accounts adjust ACCOUNT --amount=-N --reason TEXT --key surplus:{subject}, then \
                     billingd findings acknowledge ID --reason TEXT"
                )
            }
            Self::DuplicateGrant => "billingd repair duplicates".into(),
            Self::SubscriptionTier | Self::SubscriptionState | Self::SubscriptionMissingHere => {
                format!("billingd repair subscription {subject}")
            }
            Self::UnlistedPrice => {
                format!(
                    "billingd repair subscription {subject} --apply, once its price is in [[price]] and billingd restarted"
                )
            }
            Self::SubscriptionMissingAtStripe => "billingd findings acknowledge ID --reason TEXT".into(),
            Self::EventsBeyondReach => {
                "billingd events import FILE, then billingd findings acknowledge ID --reason TEXT".into()
            }
            Self::Silence | Self::EndpointDisabled => "billingd doctor".into(),
            Self::BooksBroken => "billingd verify".into(),
        }
    }
}

/// A finding with what stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What kind.
    pub kind: Kind,
    /// What is told.
    pub finding: Finding,
    /// The money that it is about, in minor units.
    pub stake: Option<(i64, Currency)>,
    /// An event of ours that is about it, and waits or has failed.
    pub event: Option<EventId>,
    /// What an event of the last minutes may name: then the difference may be a change in flight.
    pub names: Vec<String>,
}

impl Difference {
    /// A difference that is about its subject alone.
    #[must_use]
    pub fn new(kind: Kind, subject: impl Into<String>, expected: impl Into<String>, actual: impl Into<String>) -> Self {
        let (subject, expected, actual) = (subject.into(), expected.into(), actual.into());
        let names = vec![subject.clone()];
        Self {
            kind,
            finding: Finding { kind: kind.as_str(), subject, expected, actual },
            stake: None,
            event: None,
            names,
        }
    }

    fn at_stake(mut self, amount: i64, currency: Currency) -> Self {
        self.stake = Some((amount, currency));
        self
    }

    fn with_event(mut self, event: Option<&OpenEvent>) -> Self {
        self.event = event.map(|event| event.id.clone());
        self
    }
}

/// An event that is not completed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEvent {
    /// The event.
    pub id: EventId,
    /// What it waits for, or how it failed.
    pub why: String,
}

/// A subscription as the books show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionHere {
    /// Whose it is.
    pub account: Option<AccountId>,
    /// Its status.
    pub status: String,
    /// The tier that follows from its prices, now or when a held one ends.
    pub tier: Option<String>,
    /// What it sells.
    pub items: Vec<(PriceId, Option<i64>)>,
    /// The end of its period.
    pub current_period_end: Option<UnixSeconds>,
    /// Its real or scheduled end.
    pub ends_at: Option<UnixSeconds>,
    /// Its invoices are not collected.
    pub collection_paused: bool,
}

fn is_over(status: &str) -> bool {
    matches!(status, "canceled" | "incomplete_expired")
}

/// What differs of a subscription. `None`: it is not there.
#[must_use]
pub fn of_subscription(
    id: &SubscriptionId,
    at_stripe: Option<&State>,
    here: Option<&SubscriptionHere>,
    policy: &Policy,
) -> Vec<Difference> {
    let difference = |kind, expected: String, actual: String| Difference::new(kind, id.as_str(), expected, actual);
    match (at_stripe, here) {
        (None, None) => Vec::new(),
        (None, Some(here)) if is_over(&here.status) => Vec::new(),
        (None, Some(here)) => {
            vec![difference(Kind::SubscriptionMissingAtStripe, "no such subscription".into(), here.status.clone())]
        }
        // What is over gives nothing, so nothing is missing.
        (Some(state), None) if is_over(&state.status) || subscription::is_foreign(state, policy) => Vec::new(),
        (Some(state), None) => {
            let expected = format!("{}, {}", state.status, plan(tier_of(state, policy).as_deref(), &sold(state)));
            vec![difference(Kind::SubscriptionMissingHere, expected, "unknown".into())]
        }
        (Some(state), Some(here)) => {
            let states = state_differences(state, here);
            let mut found = Vec::new();
            if !states.is_empty() {
                let side = |pick: fn(&(String, String)) -> &String| {
                    states.iter().map(pick).map(String::as_str).collect::<Vec<_>>().join(", ")
                };
                found.push(difference(
                    Kind::SubscriptionState,
                    side(|(at_stripe, _)| at_stripe),
                    side(|(_, here)| here),
                ));
            }
            if !is_over(&state.status) {
                found.extend(plan_difference(id, state, here, policy));
            }
            found
        }
    }
}

/// Each column that differs, at Stripe and here.
fn state_differences(state: &State, here: &SubscriptionHere) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut compare = |name: &str, at_stripe: &str, here: &str| {
        if at_stripe != here {
            found.push((format!("{name} {at_stripe}"), format!("{name} {here}")));
        }
    };
    compare("status", &state.status, &here.status);
    if is_over(&state.status) {
        return found;
    }
    let account = |account: &Option<AccountId>| account.as_ref().map_or("none", AccountId::as_str).to_owned();
    compare("customer", &account(&state.account), &account(&here.account));
    let paused = |is_paused: bool| if is_paused { "paused" } else { "on" };
    compare("collection", paused(state.collection_paused), paused(here.collection_paused));
    let moment = |at: Option<UnixSeconds>| at.map_or_else(|| "none".to_owned(), |at| at.to_string());
    compare("end", &moment(state.ends_at), &moment(here.ends_at));
    if let (Some(at_stripe), Some(here)) = (state.current_period_end, here.current_period_end) {
        compare("period end", &at_stripe.to_string(), &here.to_string());
    }
    found
}

fn plan_difference(id: &SubscriptionId, state: &State, here: &SubscriptionHere, policy: &Policy) -> Option<Difference> {
    let at_stripe = sold(state);
    let mut held: Vec<(String, Option<i64>)> =
        here.items.iter().map(|(price, quantity)| (price.to_string(), *quantity)).collect();
    held.sort();
    if policy.lists_prices() && !state.items.is_empty() && !subscription::is_listed(state, policy) {
        // It keeps the tier that it had, so only what is sold can differ.
        let Finding { subject, expected, actual, .. } = unlisted_price(id, state);
        return Some(Difference::new(Kind::UnlistedPrice, subject, expected, actual));
    }
    let tier = tier_of(state, policy);
    let is_alike = tier == here.tier && at_stripe == held;
    (!is_alike).then(|| {
        let (expected, actual) = (plan(tier.as_deref(), &at_stripe), plan(here.tier.as_deref(), &held));
        Difference::new(Kind::SubscriptionTier, id.as_str(), expected, actual)
    })
}

/// The finding of a subscription none of whose prices is listed.
#[must_use]
pub fn unlisted_price(id: &SubscriptionId, state: &State) -> Finding {
    let prices: Vec<&str> = state.items.iter().map(|item| item.price.id.as_str()).collect();
    Finding {
        kind: Kind::UnlistedPrice.as_str(),
        subject: id.to_string(),
        expected: prices.join(", "),
        actual: "none of these is in [[price]]".into(),
    }
}

fn tier_of(state: &State, policy: &Policy) -> Option<String> {
    subscription::listed_tier(state, policy).map(|(_, tier)| tier)
}

/// Prices and quantities, sorted.
fn sold(state: &State) -> Vec<(String, Option<i64>)> {
    let mut sold: Vec<_> = state.items.iter().map(|item| (item.price.id.to_string(), item.quantity)).collect();
    sold.sort();
    sold
}

fn plan(tier: Option<&str>, sold: &[(String, Option<i64>)]) -> String {
    let sold = sold.iter().map(|(price, quantity)| match quantity {
        Some(quantity) => format!("{quantity} × {price}"),
        None => price.clone(),
    });
    format!("{} by {}", tier.unwrap_or("no tier"), sold.collect::<Vec<_>>().join(", "))
}

/// What the books hold of an invoice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InvoiceHere {
    /// Its row.
    pub row: Option<InvoiceRowHere>,
    /// Its grant, with what was taken back of it.
    pub granted: Option<Granted>,
    /// Why an event granted nothing for it.
    pub reason: Option<String>,
    /// An event of it that is not completed.
    pub open: Option<OpenEvent>,
}

/// The row of an invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceRowHere {
    /// Its status.
    pub status: String,
    /// Minor units.
    pub amount_paid: i64,
    /// The currency.
    pub currency: Currency,
}

impl InvoiceHere {
    /// Some of the grant stands.
    fn stands(&self) -> bool {
        self.granted.as_ref().is_some_and(|granted| granted.units.iter().any(|unit| unit.granted > unit.taken))
    }
}

/// What differs of an invoice. `None`: Stripe does not have it.
#[must_use]
pub fn of_invoice(
    id: &InvoiceId,
    at_stripe: Option<&Invoice>,
    here: &InvoiceHere,
    policy: &Policy,
) -> Option<Difference> {
    let status = at_stripe.map_or("no such invoice", |invoice| &invoice.status);
    if status != "paid" && here.stands() {
        let stake = at_stripe.map(|invoice| (invoice.total, invoice.currency));
        let stake = here.row.as_ref().map(|row| (row.amount_paid, row.currency)).or(stake);
        let difference = Difference::new(Kind::SurplusCredit, id.as_str(), status, granted_text(here.granted.as_ref()));
        return Some(Difference { stake, ..difference });
    }
    let invoice = at_stripe?;
    let paid = grant::money_paid(invoice);
    if status == "paid" && here.granted.is_none() && !is_named(invoice, here, policy) {
        let expected = format!("a grant for {}", money::show(paid, invoice.currency));
        let difference = Difference::new(Kind::MissingGrant, id.as_str(), expected, why_not_granted(here));
        return Some(difference.at_stake(paid, invoice.currency).with_event(here.open.as_ref()));
    }
    let row = here.row.as_ref()?;
    let is_alike = row.status == status && (status != "paid" || row.amount_paid == paid);
    (!is_alike).then(|| {
        let show = |status: &str, amount| format!("{status}, {} paid", money::show(amount, invoice.currency));
        let (expected, actual) = (show(status, paid), show(&row.status, row.amount_paid));
        let difference = Difference::new(Kind::InvoiceStatus, id.as_str(), expected, actual);
        difference.at_stake(invoice.total, invoice.currency).with_event(here.open.as_ref())
    })
}

/// There is a reason for granting nothing: one that was told when it was decided, or one that anybody can see.
fn is_named(invoice: &Invoice, here: &InvoiceHere, policy: &Policy) -> bool {
    let settled_at = invoice.paid_at.or(invoice.created).unwrap_or_default();
    let before_cutover = policy.credits.since.is_some_and(|since| settled_at < since);
    if invoice.customer.is_none() || here.reason.is_some() || before_cutover {
        return true;
    }
    let would_be = grant::of_invoice(invoice, settled_at, policy, &KnownPrices::new(), &[]);
    matches!(would_be, Grant::Nothing(_) | Grant::Foreign)
}

fn why_not_granted(here: &InvoiceHere) -> String {
    match (&here.open, &here.row) {
        (Some(open), _) => format!("nothing: {} {}", open.id, open.why),
        (None, Some(row)) => format!("nothing; known as {}", row.status),
        (None, None) => "nothing; unknown".into(),
    }
}

fn granted_text(granted: Option<&Granted>) -> String {
    let Some(granted) = granted else { return "nothing".into() };
    let units = granted.units.iter().filter(|unit| unit.granted > unit.taken);
    let units = units.map(|unit| format!("{} {}", unit.granted - unit.taken, unit.unit));
    format!("{} has {}", granted.account, units.collect::<Vec<_>>().join(", "))
}

/// What differs of a checkout session that nothing here has decided: one that is paid, without an invoice.
#[must_use]
pub fn of_checkout(
    checkout: &Checkout,
    created: UnixSeconds,
    open: Option<&OpenEvent>,
    policy: &Policy,
) -> Option<Difference> {
    let is_paid = matches!(checkout.payment_status.as_str(), "paid" | "no_payment_required");
    if checkout.mode != "payment" || checkout.invoice.is_some() || checkout.customer.is_none() || !is_paid {
        return None;
    }
    let amount = checkout.amount_total.unwrap_or_default();
    let before_cutover = policy.credits.since.is_some_and(|since| created < since);
    if before_cutover || (amount == 0 && policy.credits.basis != Basis::Catalogue) {
        return None;
    }
    let paid = checkout.currency.map(|currency| money::show(amount, currency));
    let expected = format!("a grant for {}", paid.as_deref().unwrap_or("a purchase"));
    let actual =
        open.map_or_else(|| "nothing; unknown".to_owned(), |open| format!("nothing: {} {}", open.id, open.why));
    let difference = Difference::new(Kind::MissingGrant, checkout.id.as_str(), expected, actual).with_event(open);
    let stake = checkout.currency.map(|currency| (amount, currency));
    Some(Difference { stake, ..difference })
}

/// What stands too much or too little of a grant, once its payments are as Stripe tells them; empty if all is as it
/// should be, or nobody can tell.
#[must_use]
pub fn of_grant(root: &Root, payments: &[Payment]) -> Vec<clawback::Correction> {
    let Decided::Granted(granted) = &root.decided else { return Vec::new() };
    let told = payments.iter().flat_map(|payment| &payment.snapshots).map(|charge| charge.currency).next();
    let Some(currency) = root.currency.or(told) else { return Vec::new() };
    match corrections(granted, root.amount_paid, currency, payments) {
        clawback::Outcome::Corrections(corrections) => corrections,
        clawback::Outcome::Unknown(_) => Vec::new(),
    }
}

/// A refund or a dispute as a finding tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoneyBack {
    /// Which kind of finding it makes.
    pub kind: Kind,
    /// Its id.
    pub id: String,
    /// Its status at Stripe; `None`: Stripe does not have it.
    pub status: Option<String>,
    /// Minor units.
    pub amount: i64,
    /// The currency.
    pub currency: Currency,
}

impl MoneyBack {
    /// The difference that follows from these corrections, each with the grant that it is of; none without any.
    #[must_use]
    pub fn difference(
        &self,
        corrections: &[(Fact, Vec<clawback::Correction>)],
        open: Option<&OpenEvent>,
    ) -> Option<Difference> {
        if corrections.is_empty() {
            return None;
        }
        let status = self.status.as_deref().unwrap_or("not at Stripe");
        let of_grant = |(fact, corrections): &(Fact, Vec<clawback::Correction>)| {
            let changes = corrections.iter().map(|one| format!("{:+} {}", one.amount, one.unit));
            format!("{} for {fact}", changes.collect::<Vec<_>>().join(", "))
        };
        let changes = corrections.iter().map(of_grant).collect::<Vec<_>>().join("; ");
        let expected = format!("{}, {status}: {changes}", money::show(self.amount, self.currency));
        let actual =
            open.map_or_else(|| "not applied".to_owned(), |open| format!("not applied: {} {}", open.id, open.why));
        let difference = Difference::new(self.kind, &*self.id, expected, actual);
        Some(difference.at_stake(self.amount, self.currency).with_event(open))
    }
}

/// What a webhook endpoint at Stripe is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `we_…`
    pub id: String,
    /// The path of its URL.
    pub path: String,
    /// It is switched on.
    pub is_enabled: bool,
    /// The types that it wants; `*` stands for all.
    pub types: Vec<String>,
    /// The version that renders its events; `None`: the account's own.
    pub api_version: Option<String>,
    /// Its mode, if it is told.
    pub livemode: Option<bool>,
}

impl Endpoint {
    /// It wants events of this type.
    #[must_use]
    pub fn wants(&self, kind: &str) -> bool {
        self.types.iter().any(|wanted| wanted == "*" || wanted == kind)
    }
}

/// The endpoints that are switched off although they lead here, and no other one stands for them. `paths` are ours.
#[must_use]
pub fn of_endpoints(endpoints: &[Endpoint], paths: &[String]) -> Vec<Difference> {
    let leads_here = |endpoint: &&Endpoint| paths.iter().any(|path| is_same_path(path, &endpoint.path));
    let stands_in =
        |off: &Endpoint| endpoints.iter().any(|other| other.is_enabled && is_same_path(&other.path, &off.path));
    let off = endpoints.iter().filter(leads_here).filter(|one| !one.is_enabled && !stands_in(one));
    off.map(|one| Difference::new(Kind::EndpointDisabled, &*one.id, "enabled", "disabled")).collect()
}

/// With or without a slash at the end.
#[must_use]
pub fn is_same_path(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Stripe has events for us, and delivered none after `last`, at any path: one difference for each of ours that an
/// endpoint leads to. Where none does, or nobody can tell, that is each. While that lasts the words stay the same, so
/// that what is acknowledged stays so.
#[must_use]
pub fn of_silence(paths: &[String], endpoints: Option<&[Endpoint]>, last: UnixSeconds) -> Vec<Difference> {
    let is_led_to = |path: &&String| endpoints.into_iter().flatten().any(|one| is_same_path(path, &one.path));
    let silent: Vec<&String> = match paths.iter().filter(is_led_to).collect::<Vec<_>>() {
        none if none.is_empty() => paths.iter().collect(),
        some => some,
    };
    let expected = "deliveries of the events that Stripe has";
    silent
        .into_iter()
        .map(|path| Difference::new(Kind::Silence, path, expected, format!("none since {last}")))
        .collect()
}

/// Events since `last` were never fetched, and Stripe has only those since `reach`, which moves with every run.
#[must_use]
pub fn of_reach(last: UnixSeconds, reach: UnixSeconds) -> Option<Difference> {
    (last < reach).then(|| {
        let expected = format!("all events since {last}");
        Difference::new(Kind::EventsBeyondReach, "/v1/events", expected, "only those that Stripe still has")
    })
}

#[cfg(test)]
mod tests;
