//! Subscriptions: the snapshot that counts replaces all columns, and the account's tier follows.

use std::borrow::Cow;

use super::{Draft, not_at_stripe, reference_of};
use crate::domain::decision::{Completion, Decision, Effect, Finding, Need, Outcome};
use crate::domain::event::{Event, Price, Subscription, SubscriptionItem, Unit, UnixSeconds};
use crate::domain::facts::{AccountTier, Asked, Facts};
use crate::domain::ids::SubscriptionId;
use crate::domain::policy::Policy;
use crate::domain::reconcile::unlisted_price;
use crate::domain::subscription::{
    Access, Contribution, Item, Known, PaidPeriod, Snapshot, Standing, State, access, account_tier, standing,
};

/// The finding of a subscription in a status that is new to us.
const UNKNOWN_STATUS: &str = "unknown_status";

/// Decides about one snapshot of a subscription.
pub(super) fn decide(
    event: &Event,
    subscription: &Subscription,
    facts: &Facts,
    policy: &Policy,
    now: UnixSeconds,
) -> Decision {
    let at_stripe = &facts.subscription.at_stripe;
    let completed = match (subscription.items_truncated, at_stripe) {
        (false, _) => Cow::Borrowed(subscription),
        (true, Asked::Told(current)) => Cow::Owned(with_items_of(subscription, current)),
        (true, Asked::NotYet) => return Decision::Wait(vec![Need::Subscription(subscription.id.clone())]),
        (true, Asked::Gone) => return Decision::Fail(not_at_stripe("subscription", subscription.id.as_str())),
    };
    let subscription = completed.as_ref();
    let mut draft = prices(subscription);
    let snapshot = Snapshot::of(event, subscription);
    let mut known = facts.subscription.known.clone().with(&snapshot, policy);
    if policy.asks_stripe && known.is_tied(&event.id) {
        known.told = match at_stripe {
            Asked::NotYet => return Decision::Wait(vec![Need::Subscription(subscription.id.clone())]),
            Asked::Told(current) => Some(current.clone()),
            Asked::Gone => None,
        };
    }
    let counts = known.current().is_some_and(|current| current.event == event.id);
    let stood = stand(&subscription.id, &known, &facts.subscription.periods, facts, policy, now);
    let changed = stood.changed;
    if known != facts.subscription.known {
        draft.extend(stood.save(known));
    } else if changed {
        draft.extend(stood.restand());
    }
    if let Some(account) = &subscription.customer {
        if facts.account.is_none() && is_ours(subscription, policy) {
            draft.effects.insert(0, Effect::OpenAccount(account.clone()));
        }
        if is_ours(subscription, policy) {
            draft.extend(reference_of(event, account, facts, subscription.reference.as_ref(), None));
        }
    }
    draft.extend(stood.tiers);
    if changed {
        return draft.complete(Outcome::Applied, None);
    }
    if counts {
        draft.finish(Outcome::NoEffect, "nothing that we keep of the subscription changed")
    } else {
        draft.finish(Outcome::Stale, told_later(facts))
    }
}

/// Decides about a subscription of which nothing is new but the time.
pub(super) fn end_held_tier(id: &SubscriptionId, facts: &Facts, policy: &Policy, now: UnixSeconds) -> Completion {
    let stood = stand(id, &facts.subscription.known, &facts.subscription.periods, facts, policy, now);
    let effects = stood.effects();
    let outcome = if effects.is_empty() { Outcome::NoEffect } else { Outcome::Applied };
    Completion { outcome, reason: Some("what was paid for is over".into()), effects, arrivals: Vec::new() }
}

/// The event embeds only the first items; all of them are taken from the state at Stripe, for if that is another one
/// by now, a newer event is on its way.
fn with_items_of(subscription: &Subscription, current: &State) -> Subscription {
    let item = |item: &Item| SubscriptionItem {
        id: item.id.clone(),
        price: item.price.clone(),
        unit: Unit::Untold,
        currency: None,
        quantity: item.quantity,
    };
    let items = current.items.iter().map(item).collect();
    let current_period_end = subscription.current_period_end.max(current.current_period_end);
    Subscription { items, current_period_end, ..subscription.clone() }
}

fn told_later(facts: &Facts) -> String {
    match &facts.subscription.standing {
        Some(held) => format!("{} told a later state", held.source),
        None => "older than what we hold".into(),
    }
}

/// What the snapshot tells of its prices, whatever its age.
fn prices(subscription: &Subscription) -> Draft {
    subscription.items.iter().fold(Draft::default(), |draft, item| match item.currency {
        Some(currency) if item.unit != Unit::Untold => {
            draft.learn(Price { price: item.price.clone(), currency, unit: item.unit.clone() })
        }
        _ => draft,
    })
}

/// It sells something besides what belongs to another product.
fn is_ours(subscription: &Subscription, policy: &Policy) -> bool {
    subscription.items.iter().any(|item| policy.catalogue.rule(&item.price).is_none_or(|rule| !rule.foreign))
}

/// How a subscription and its account stand, once something new is known.
pub(super) struct Stood {
    /// How the subscription stands; `None`: nothing is known of it.
    pub(super) standing: Option<Standing>,
    /// It stands in another way than before.
    changed: bool,
    /// The accounts whose tier changes with it: the one that it belongs to, and the one that it belonged to.
    tiers: Vec<Effect>,
    unknown_status: bool,
}

/// Works out how a subscription and its account stand.
pub(super) fn stand(
    id: &SubscriptionId,
    known: &Known,
    periods: &[PaidPeriod],
    facts: &Facts,
    policy: &Policy,
    now: UnixSeconds,
) -> Stood {
    let standing = standing(id, known, periods, policy, now);
    let contribution = standing.as_ref().map(Contribution::of);
    let owner = standing.as_ref().and_then(|standing| standing.state.account.as_ref());
    let change = |held: &AccountTier| {
        let own = contribution.as_ref().filter(|_| owner == Some(&held.account));
        let tier = account_tier(held.others.iter().chain(own), &policy.tiers);
        (held.tier != tier).then(|| Effect::ChangeTier(held.account.clone(), held.tier.clone(), tier))
    };
    let tiers = facts.subscription.accounts.iter().filter_map(change).collect();
    let unknown_status = contribution
        .as_ref()
        .is_some_and(|one| access(&one.status, one.collection_paused, &policy.tiers) == Access::UnknownStatus);
    Stood {
        changed: !is_alike(standing.as_ref(), facts.subscription.standing.as_ref()),
        tiers,
        unknown_status,
        standing,
    }
}

/// The books show the same, but for where it comes from.
fn is_alike(one: Option<&Standing>, other: Option<&Standing>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            (&one.state, &one.tier, &one.pending, one.tier_item)
                == (&other.state, &other.tier, &other.pending, other.tier_item)
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl Stood {
    /// The changes when nothing but paid periods or the time is new; none if all stands as before.
    pub(super) fn effects(self) -> Vec<Effect> {
        if !self.changed {
            return Vec::new();
        }
        self.restand().into_iter().chain(self.tiers).collect()
    }

    fn restand(&self) -> Option<Effect> {
        self.standing.as_ref().map(|standing| Effect::Restand(Box::new(standing.clone())))
    }

    fn save(&self, known: Known) -> Vec<Effect> {
        let Some(standing) = &self.standing else { return Vec::new() };
        let subject = standing.id.to_string();
        let status = Finding {
            kind: UNKNOWN_STATUS,
            subject,
            expected: "a status that billingd knows; until then it gives no access".into(),
            actual: standing.state.status.clone(),
        };
        let tell = |found: bool, finding: Finding| {
            if found { Effect::OpenFinding(finding) } else { Effect::ResolveFinding(finding.kind, finding.subject) }
        };
        vec![
            Effect::SaveSubscription(Box::new(known), Box::new(standing.clone())),
            tell(standing.unlisted, unlisted_price(&standing.id, &standing.state)),
            tell(self.unknown_status, status),
        ]
    }
}

#[cfg(test)]
mod tests;
