//! Whether the key opens the account that these books are of: Stripe knows the events that it delivered here.

use crate::domain::facts::Asked;
use crate::store::compare;
use crate::stripe::ask;

use super::run::{REACH_S, Run, Trouble};

/// Stripe forgets an event some time within its last day.
const LAST_DAY_S: i64 = 86_400;

/// Asks for the newest events that were delivered here. Where there are none, or there is no answer, nobody can tell.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), Trouble> {
    let (policy, since) = (&run.rules.policy, run.started - REACH_S + LAST_DAY_S);
    let account = policy.connected_account.as_deref();
    let ours =
        run.place.reader.read(|connection| compare::delivered_lately(connection, since, policy.livemode, account))?;
    for id in &ours {
        match ask::event(run.place.api, id) {
            // One may be a sample that somebody sent, but hardly all of them.
            Ok(Asked::Gone) => {}
            Ok(Asked::Told(_) | Asked::NotYet) | Err(_) => return Ok(()),
        }
    }
    if ours.is_empty() { Ok(()) } else { Err(Trouble::OtherAccount) }
}
