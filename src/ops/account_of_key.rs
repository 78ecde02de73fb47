//! Whether the key opens the account that these books are of: Stripe knows the events that it delivered here, or what
//! they are about.

use crate::domain::event::UnixSeconds;
use crate::domain::facts::Asked;
use crate::domain::policy::Policy;
use crate::store::look::Look;
use crate::store::{StoreError, compare};
use crate::stripe::ask;
use crate::stripe::client::{Api, path};

/// So far back Stripe surely knows an event, in seconds: it forgets it some time within its thirtieth day.
const LATELY_S: i64 = 29 * 86_400;

/// What to tell when the key opens another account.
pub(super) const ANOTHER: &str = "stripe.api_key opens another account than the one these webhooks come from: Stripe knows none of the events that \
     were delivered here last; give the key of that account";

/// Where objects are read, by how their ids begin.
const COLLECTIONS: [(&str, &str); 6] = [
    ("in_", "/v1/invoices"),
    ("sub_", "/v1/subscriptions"),
    ("cus_", "/v1/customers"),
    ("ch_", "/v1/charges"),
    ("pi_", "/v1/payment_intents"),
    ("re_", "/v1/refunds"),
];

/// Whether the key opens another account: asks for the newest events that were delivered here. Where there are none, or
/// there is no answer, nobody can tell.
///
/// # Errors
/// [`StoreError`].
pub(super) fn is_another(
    books: &impl Look,
    api: &dyn Api,
    policy: &Policy,
    now: UnixSeconds,
) -> Result<bool, StoreError> {
    let (since, account) = (now - LATELY_S, policy.connected_account.as_deref());
    let ours = books.look(|connection| compare::delivered_lately(connection, since, policy.livemode, account))?;
    // One may be a sample that somebody sent, but hardly all of them.
    let is_known = |(event, object): &(_, Option<String>)| {
        !matches!(ask::event(api, event), Ok(Asked::Gone))
            || object.as_deref().is_some_and(|object| is_object_known(api, object))
    };
    Ok(!ours.is_empty() && !ours.iter().any(is_known))
}

/// Stripe has it, or does not say that it has not.
fn is_object_known(api: &dyn Api, id: &str) -> bool {
    let Some((_, collection)) = COLLECTIONS.iter().find(|(prefix, _)| id.starts_with(prefix)) else { return false };
    !matches!(ask::object(api, &path(collection, id), &[]), Ok(Asked::Gone))
}
