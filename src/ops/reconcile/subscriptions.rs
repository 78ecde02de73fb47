//! Subscriptions: all at Stripe against all here.

use crate::domain::event::Subscription;
use crate::domain::facts::Asked;
use crate::domain::ids::SubscriptionId;
use crate::domain::reconcile::{self, Kind, SubscriptionHere};
use crate::domain::subscription::State;
use crate::ops::seen::Seen;
use crate::store::compare;
use crate::stripe::ask;
use crate::stripe::lists::SUBSCRIPTIONS;

use super::run::{Run, Trouble, look_ups};

const KINDS: [Kind; 5] = [
    Kind::SubscriptionTier,
    Kind::SubscriptionState,
    Kind::SubscriptionMissingHere,
    Kind::SubscriptionMissingAtStripe,
    Kind::UnlistedPrice,
];

/// Compares all of them.
pub(super) fn compare(run: &mut Run<'_>) -> Result<(), Trouble> {
    let mut seen = Seen::default();
    for page in SUBSCRIPTIONS.pages(run.place.api, &[("status", "all")]) {
        let mut told = Vec::new();
        for item in run.readable_items(page?) {
            run.check_mode(item.livemode)?;
            seen.add(item.object.id.as_str());
            let whole = with_all_items(run, item.object);
            told.extend(run.readable(whole)?);
        }
        compare_with_ours(run, &told)?;
    }
    let absent = not_seen(run, &seen)?;
    let subjects = run.not_looked_at(&KINDS);
    let (ids, left) = look_ups(absent, subjects.iter().filter_map(|subject| SubscriptionId::parse(subject).ok()));
    for id in ids {
        // Lists leave out what belongs to a test clock.
        let Some(asked) = run.readable(ask::subscription(run.place.api, &id))? else { continue };
        match asked {
            Asked::Told(subscription) => compare_with_ours(run, &[subscription.told])?,
            Asked::Gone | Asked::NotYet => {
                let here = run.place.reader.read(|connection| compare::subscriptions(connection, &[id.as_str()]))?;
                judge(run, &id, None, here.get(&id));
            }
        }
    }
    if left > 0 { Err(Trouble::TooMany(left)) } else { Ok(()) }
}

/// Ours that stand and were not in the list.
fn not_seen(run: &Run<'_>, seen: &Seen) -> Result<Vec<SubscriptionId>, Trouble> {
    let mut absent: Vec<SubscriptionId> = Vec::new();
    let mut after = String::new();
    loop {
        let step = run.place.reader.read(|connection| compare::standing_subscriptions(connection, &after))?;
        let Some(last) = step.last() else { return Ok(absent) };
        after = last.as_str().to_owned();
        absent.extend(step.into_iter().filter(|id| !seen.has(id.as_str())));
    }
}

fn with_all_items(run: &Run<'_>, subscription: Subscription) -> Result<Subscription, Trouble> {
    if !subscription.items_truncated {
        return Ok(subscription);
    }
    match ask::subscription(run.place.api, &subscription.id)? {
        Asked::Told(whole) => Ok(whole.told),
        Asked::Gone | Asked::NotYet => Ok(subscription),
    }
}

fn compare_with_ours(run: &mut Run<'_>, told: &[Subscription]) -> Result<(), Trouble> {
    let ids: Vec<&str> = told.iter().map(|one| one.id.as_str()).collect();
    let here = run.place.reader.read(|connection| compare::subscriptions(connection, &ids))?;
    for one in told {
        judge(run, &one.id, Some(&State::of(one)), here.get(&one.id));
        run.counts.subscriptions += 1;
    }
    (run.place.progress)("subscriptions", run.counts.subscriptions);
    Ok(())
}

fn judge(run: &mut Run<'_>, id: &SubscriptionId, at_stripe: Option<&State>, here: Option<&SubscriptionHere>) {
    let mut found = reconcile::of_subscription(id, at_stripe, here, &run.rules.policy);
    if let Some(open) = run.open.get(id.as_str()) {
        found.iter_mut().for_each(|difference| difference.event = Some(open.id.clone()));
    }
    run.differences.extend(found);
    run.looked_at(id.as_str(), &KINDS);
}
