//! Which snapshot of a subscription counts, and which tier follows from it.
//!
//! Stripe's snapshots carry no version and come in any order. The rule is a rule of the set: it looks at all known
//! snapshots that could be the newest and picks the same one whatever the order in which they came.

use crate::domain::event::{Event, PriceRef, Subscription, Trace, UnixSeconds};
use crate::domain::ids::{AccountId, EventId, InvoiceId, SubscriptionId};
use crate::domain::policy::{Policy, Tiers};

/// The state that one snapshot tells: all columns of a subscription, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Whose it is; `None` matches nobody.
    pub account: Option<AccountId>,
    /// Stripe's word.
    pub status: String,
    /// What it sells, in Stripe's order.
    pub items: Vec<Item>,
    /// The latest period end of the items.
    pub current_period_end: Option<UnixSeconds>,
    /// The real or the scheduled end.
    pub ends_at: Option<UnixSeconds>,
    /// Invoices are not collected for now; status and, by default, access stay.
    pub collection_paused: bool,
}

/// One item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// `si_…`
    pub id: String,
    /// Its price.
    pub price: PriceRef,
    /// `None` for metered items.
    pub quantity: Option<i64>,
}

impl State {
    /// The state that an event's subscription tells. A pending update or a schedule changes nothing until the
    /// subscription does, so neither is read.
    #[must_use]
    pub fn of(subscription: &Subscription) -> Self {
        let scheduled = subscription
            .cancel_at
            .or_else(|| subscription.current_period_end.filter(|_| subscription.cancel_at_period_end));
        Self {
            account: subscription.customer.clone(),
            status: subscription.status.clone(),
            items: subscription
                .items
                .iter()
                .map(|item| Item { id: item.id.clone(), price: item.price.clone(), quantity: item.quantity })
                .collect(),
            current_period_end: subscription.current_period_end,
            ends_at: subscription.ended_at.or(scheduled),
            collection_paused: subscription.collection_paused,
        }
    }

    /// Nothing leaves these: a new purchase makes a new subscription.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.as_str(), "canceled" | "incomplete_expired")
    }
}

/// Where an event stands among others of its second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `customer.subscription.created`
    Created,
    /// A snapshot that does not say what it changed.
    Plain,
    /// A snapshot with `previous_attributes`.
    Change,
    /// `customer.subscription.deleted`
    Deleted,
}

impl Place {
    fn of(event: &Event, trace: &Trace) -> Self {
        match event.kind.as_str() {
            "customer.subscription.created" => Self::Created,
            "customer.subscription.deleted" => Self::Deleted,
            _ if trace.previous.is_some() => Self::Change,
            _ => Self::Plain,
        }
    }
}

/// A snapshot with what orders it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The event that told it.
    pub event: EventId,
    /// `created` of the event.
    pub at: UnixSeconds,
    /// Its place in its second.
    pub place: Place,
    /// What it changed, and into what.
    pub trace: Trace,
    /// What it tells.
    pub state: State,
}

impl Snapshot {
    /// The snapshot that an event tells.
    #[must_use]
    pub fn of(event: &Event, subscription: &Subscription) -> Self {
        Self {
            event: event.id.clone(),
            at: event.created,
            place: Place::of(event, &subscription.trace),
            trace: subscription.trace.clone(),
            state: State::of(subscription),
        }
    }

    /// Terminal beats everything, then the newer one; snapshots with equal ranks are tied.
    fn rank(&self) -> (bool, UnixSeconds, Place) {
        (self.state.is_terminal(), self.at, self.place)
    }
}

/// The newest snapshot that had a listed price, and the tier that it gave: what counts while only unlisted prices are
/// told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// `created` of its event.
    pub at: UnixSeconds,
    /// Its place in its second.
    pub place: Place,
    /// Its event.
    pub event: EventId,
    /// `None`: its listed prices have no tier.
    pub tier: Option<String>,
}

/// What is known of one subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// The snapshots that are tied for the newest.
    pub newest: Vec<Snapshot>,
    /// The tier for when only unlisted prices are told.
    pub listed: Option<Listed>,
    /// The state that Stripe's API told when it was asked which of the tied ones counts.
    pub told: Option<State>,
}

impl Known {
    /// What is known once `snapshot` is known as well.
    #[must_use]
    pub fn with(mut self, snapshot: &Snapshot, policy: &Policy) -> Self {
        if is_listed(&snapshot.state, policy) {
            let listed = Listed {
                at: snapshot.at,
                place: snapshot.place,
                event: snapshot.event.clone(),
                tier: listed_tier(&snapshot.state, policy).map(|(_, tier)| tier),
            };
            let key = |listed: &Listed| (listed.at, listed.place, listed.event.clone());
            if self.listed.as_ref().is_none_or(|held| key(held) < key(&listed)) {
                self.listed = Some(listed);
            }
        }
        match self.newest.first().map(|held| held.rank().cmp(&snapshot.rank())) {
            None | Some(std::cmp::Ordering::Less) => self.newest = vec![snapshot.clone()],
            Some(std::cmp::Ordering::Equal) if self.newest.iter().all(|held| held.event != snapshot.event) => {
                self.newest.push(snapshot.clone());
            }
            Some(_) => {}
        }
        self
    }

    /// The snapshot that counts: of those that are tied, the one that no other follows; if that leaves several, the
    /// one that tells what Stripe's API told; if none does, the greatest event id, for a newer event is on its way.
    #[must_use]
    pub fn current(&self) -> Option<&Snapshot> {
        let as_told = |one: &Snapshot| self.told.as_ref() == Some(&one.state);
        self.last().into_iter().max_by_key(|one| (as_told(one), &one.event))
    }

    /// Several snapshots that tell different things are the last ones, and this event's is among them.
    #[must_use]
    pub fn is_tied(&self, event: &EventId) -> bool {
        let last = self.last();
        last.iter().any(|one| one.event == *event) && last.iter().any(|one| one.state != last[0].state)
    }

    /// Of those that are tied for the newest, the ones that no other follows; all, if they follow each other.
    fn last(&self) -> Vec<&Snapshot> {
        let is_followed = |one: &Snapshot| {
            self.newest.iter().any(|other| other.event != one.event && other.trace.follows(&one.trace))
        };
        let last: Vec<&Snapshot> = self.newest.iter().filter(|one| !is_followed(one)).collect();
        if last.is_empty() { self.newest.iter().collect() } else { last }
    }
}

/// A paid line that is for a time of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaidPeriod {
    /// The invoice.
    pub invoice: InvoiceId,
    /// What was paid.
    pub price: PriceRef,
    /// From when on.
    pub starts_at: UnixSeconds,
    /// Until when.
    pub ends_at: UnixSeconds,
}

/// A subscription as the books show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// `sub_…`
    pub id: SubscriptionId,
    /// What the snapshot that counts tells.
    pub state: State,
    /// The position of the item that gives the tier.
    pub tier_item: Option<usize>,
    /// The tier that it gives now, if it gives access.
    pub tier: Option<String>,
    /// The tier is held until then, and the one of the price comes after it.
    pub pending: Option<Pending>,
    /// It has items, and none of their prices is listed.
    pub unlisted: bool,
    /// The event that told the state.
    pub source: EventId,
    /// `created` of that event.
    pub snapshot_at: UnixSeconds,
}

/// A tier that comes when what is paid for is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The tier; `None`: none.
    pub tier: Option<String>,
    /// When.
    pub at: UnixSeconds,
}

/// How a subscription stands, given all that is known of it; `None` if nothing is.
#[must_use]
pub fn standing(
    id: &SubscriptionId,
    known: &Known,
    periods: &[PaidPeriod],
    policy: &Policy,
    now: UnixSeconds,
) -> Option<Standing> {
    let current = known.current()?;
    let own = listed_tier(&current.state, policy);
    let unlisted = policy.lists_prices() && !current.state.items.is_empty() && !is_listed(&current.state, policy);
    let tier = match &own {
        Some((_, tier)) => Some(tier.clone()),
        None if unlisted => known.listed.as_ref().and_then(|listed| listed.tier.clone()),
        None => None,
    };
    let held = if policy.tiers.keep_until_period_end && !current.state.is_terminal() {
        held_tier(tier.as_deref(), periods, policy, now)
    } else {
        None
    };
    let (tier, pending) = match held {
        Some((held, until)) => (Some(held), Some(Pending { tier, at: until })),
        None => (tier, None),
    };
    Some(Standing {
        id: id.clone(),
        state: current.state.clone(),
        tier_item: own.map(|(position, _)| position),
        tier,
        pending,
        unlisted,
        source: current.event.clone(),
        snapshot_at: current.at,
    })
}

/// The highest tier above `own` that is paid for beyond now, unless the next paid period of the own tier has begun
/// where it ends.
fn held_tier(
    own: Option<&str>,
    periods: &[PaidPeriod],
    policy: &Policy,
    now: UnixSeconds,
) -> Option<(String, UnixSeconds)> {
    let tier_of = |period: &PaidPeriod| policy.catalogue.rule(&period.price).and_then(|rule| rule.tier.as_deref());
    let own_rank = policy.tiers.rank(own);
    policy.tiers.order.iter().rev().take_while(|tier| policy.tiers.rank(Some(tier)) > own_rank).find_map(|tier| {
        let of_tier = periods.iter().filter(|period| tier_of(period) == Some(tier));
        let until = of_tier.map(|period| period.ends_at).max().filter(|until| *until > now)?;
        let released = periods.iter().any(|period| tier_of(period) == own && period.starts_at >= until);
        (!released).then(|| (tier.clone(), until))
    })
}

/// Any of its prices is in the price list.
#[must_use]
pub fn is_listed(state: &State, policy: &Policy) -> bool {
    state.items.iter().any(|item| policy.catalogue.rule(&item.price).is_some())
}

/// All of its prices belong to another product.
#[must_use]
pub fn is_foreign(state: &State, policy: &Policy) -> bool {
    let is_foreign = |item: &Item| policy.catalogue.rule(&item.price).is_some_and(|rule| rule.foreign);
    !state.items.is_empty() && state.items.iter().all(is_foreign)
}

/// Position and name of the highest tier among the listed prices; of two items alike, the first.
#[must_use]
pub fn listed_tier(state: &State, policy: &Policy) -> Option<(usize, String)> {
    let tiers = state.items.iter().enumerate().filter_map(|(position, item)| {
        let tier = policy.catalogue.rule(&item.price)?.tier.clone()?;
        Some((position, tier))
    });
    tiers.max_by_key(|(position, tier)| (policy.tiers.rank(Some(tier)), std::cmp::Reverse(*position)))
}

/// Whether a subscription in some state gives its tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It does.
    Given,
    /// It does not.
    Denied,
    /// Stripe has a new status; it gives nothing until someone decides.
    UnknownStatus,
}

/// Whether a subscription in this state gives its tier.
#[must_use]
pub fn access(status: &str, collection_paused: bool, tiers: &Tiers) -> Access {
    let given = match status {
        "active" => true,
        "trialing" => tiers.access_trialing,
        "past_due" => tiers.access_past_due,
        "unpaid" => tiers.access_unpaid,
        "incomplete" | "incomplete_expired" | "paused" | "canceled" => false,
        _ => return Access::UnknownStatus,
    };
    if given && (!collection_paused || tiers.access_collection_paused) { Access::Given } else { Access::Denied }
}

/// A subscription of an account, as far as it decides about the account's tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// `sub_…`
    pub id: SubscriptionId,
    /// Its status.
    pub status: String,
    /// Its collection is paused.
    pub collection_paused: bool,
    /// The tier that it gives with access.
    pub tier: Option<String>,
}

impl Contribution {
    /// What a standing contributes.
    #[must_use]
    pub fn of(standing: &Standing) -> Self {
        Self {
            id: standing.id.clone(),
            status: standing.state.status.clone(),
            collection_paused: standing.state.collection_paused,
            tier: standing.tier.clone(),
        }
    }
}

/// The tier of an account: the highest among its subscriptions that give access.
#[must_use]
pub fn account_tier<'a>(subscriptions: impl IntoIterator<Item = &'a Contribution>, tiers: &Tiers) -> Option<String> {
    subscriptions
        .into_iter()
        .filter(|one| access(&one.status, one.collection_paused, tiers) == Access::Given)
        .filter_map(|one| one.tier.as_deref())
        .max_by_key(|tier| (tiers.rank(Some(tier)), *tier))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests;
