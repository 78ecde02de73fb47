//! Checkout sessions that are paid without an invoice, and their grants.

use crate::domain::reconcile::{self, Kind};
use crate::store::compare;
use crate::stripe::lists::{CHECKOUTS, Item};

use super::run::{Run, Trouble};

const KINDS: [Kind; 1] = [Kind::MissingGrant];

/// Compares those of the window.
pub(super) fn compare(run: &mut Run<'_>) -> Result<(), Trouble> {
    let since = run.since.to_string();
    for page in CHECKOUTS.pages(run.place.api, &[("created[gte]", &since), ("status", "complete")]) {
        let page = run.readable_items(page?);
        let ids: Vec<&str> = page.iter().map(|item| item.object.id.as_str()).collect();
        let decided = run.place.reader.read(|connection| compare::decided_checkouts(connection, &ids))?;
        for Item { object: checkout, created, livemode } in &page {
            run.check_mode(*livemode)?;
            let id = checkout.id.as_str();
            if !decided.contains(id) {
                let (open, created) = (run.open.get(id), created.unwrap_or(run.started));
                run.differences.extend(reconcile::of_checkout(checkout, created, open, &run.rules.policy));
            }
            run.looked_at(id, &KINDS);
            run.counts.checkouts += 1;
        }
        (run.place.progress)("checkout sessions", run.counts.checkouts);
    }
    // A session of an earlier window stays what it was at Stripe; only here it can have been decided since.
    let earlier: Vec<String> = run.not_looked_at(&KINDS).into_iter().filter(|id| id.starts_with("cs_")).collect();
    let ids: Vec<&str> = earlier.iter().map(String::as_str).collect();
    for id in run.place.reader.read(|connection| compare::decided_checkouts(connection, &ids))? {
        run.looked_at(&id, &KINDS);
    }
    Ok(())
}
