//! Whether the key opens the account that these books are of: Stripe knows the events that it delivered here, or what
//! they are about.

use crate::domain::facts::Asked;
use crate::store::compare;
use crate::stripe::ask;
use crate::stripe::client::path;

use super::run::{REACH_S, Run, Trouble};

/// Stripe forgets an event some time within its last day.
const LAST_DAY_S: i64 = 86_400;

/// Where objects are read, by how their ids begin.
const COLLECTIONS: [(&str, &str); 6] = [
    ("in_", "/v1/invoices"),
    ("sub_", "/v1/subscriptions"),
    ("cus_", "/v1/customers"),
    ("ch_", "/v1/charges"),
    ("pi_", "/v1/payment_intents"),
    ("re_", "/v1/refunds"),
];

/// Asks for the newest events that were delivered here. Where there are none, or there is no answer, nobody can tell.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), Trouble> {
    let (policy, since) = (&run.rules.policy, run.started - REACH_S + LAST_DAY_S);
    let account = policy.connected_account.as_deref();
    let ours =
        run.place.reader.read(|connection| compare::delivered_lately(connection, since, policy.livemode, account))?;
    for (event, object) in &ours {
        // One may be a sample that somebody sent, but hardly all of them.
        let is_known = !matches!(ask::event(run.place.api, event), Ok(Asked::Gone));
        if is_known || object.as_deref().is_some_and(|object| is_object_known(run, object)) {
            return Ok(());
        }
    }
    if ours.is_empty() { Ok(()) } else { Err(Trouble::OtherAccount) }
}

/// Stripe has it, or does not say that it has not.
fn is_object_known(run: &Run<'_>, id: &str) -> bool {
    let Some((_, collection)) = COLLECTIONS.iter().find(|(prefix, _)| id.starts_with(prefix)) else { return false };
    !matches!(ask::object(run.place.api, &path(collection, id), &[]), Ok(Asked::Gone))
}
