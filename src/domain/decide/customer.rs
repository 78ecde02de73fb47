//! Customers: they are accounts. Deletion marks; the books of a deleted customer stay and go on.

use super::{Draft, reference_of};
use crate::domain::decision::{Decision, Effect, Outcome};
use crate::domain::event::{Customer, Event};
use crate::domain::facts::Facts;

/// Decides about one snapshot of a customer.
pub(super) fn decide(event: &Event, customer: &Customer, facts: &Facts) -> Decision {
    let gone = customer.deleted || event.kind == "customer.deleted";
    let mut draft = Draft::default();
    if facts.account.is_none() {
        draft.push(Effect::OpenAccount(customer.id.clone()));
    }
    draft.extend(reference_of(event, &customer.id, facts, customer.reference.as_ref(), None));
    if gone && !facts.account.as_ref().is_some_and(|held| held.deleted) {
        draft.push(Effect::CloseAccount(customer.id.clone(), event.created));
    }
    draft.finish(Outcome::NoEffect, "nothing that we keep of the customer changed")
}
