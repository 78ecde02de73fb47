//! What can be told without Stripe: grants that stand twice, and the proofs of the books.

use std::collections::BTreeMap;

use crate::domain::reconcile::{Difference, Kind};
use crate::ops::duplicates::{self, Found};
use crate::ops::verify;
use crate::store::verify::Proven;

use super::run::{Run, Trouble};

/// So many violations of one proof and grants of one thing are told; `billingd verify` and `billingd repair duplicates`
/// tell more.
const TOLD_MAX: usize = 3;

/// Looks for both.
pub(super) fn prove(run: &mut Run<'_>) -> Result<(), Trouble> {
    (run.place.progress)("proofs of the books", 0);
    run.differences.extend(given_twice(duplicates::find(run.place.reader)?));
    run.looked_at_all(Kind::DuplicateGrant);
    for proof in verify::verify_in_short_looks(run.place.reader)?.proven {
        if proof.cut_short.is_empty() {
            run.looked_at(&proof.name, &[Kind::BooksBroken]);
        } else {
            let (name, tables) = (&proof.name, proof.cut_short.join(", "));
            run.cannot_tell.push(format!(
                "{name}: not all of {tables} was seen, it takes too long beside a server; `billingd verify` tells"
            ));
        }
        run.differences.extend(violated(proof));
    }
    Ok(())
}

fn violated(proof: Proven) -> Option<Difference> {
    let told: Vec<String> = proof.violations.into_iter().take(TOLD_MAX).collect();
    let is_violated = !told.is_empty();
    is_violated.then(|| Difference::new(Kind::BooksBroken, proof.name, "no violation", told.join("; ")))
}

/// What `billingd repair duplicates` would reverse, by what was paid.
fn given_twice(found: Vec<Found>) -> impl Iterator<Item = Difference> {
    let mut by_subject: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for one in found {
        by_subject.entry(one.subject.clone()).or_default().push(one);
    }
    by_subject.into_iter().map(|(subject, group)| {
        let mut told: Vec<String> = group.iter().take(TOLD_MAX).map(|one| one.extra.clone()).collect();
        if group.len() > TOLD_MAX {
            told.push(format!("{} more", group.len() - TOLD_MAX));
        }
        let kept = group.first().map(|one| one.kept.clone()).unwrap_or_default();
        Difference::new(Kind::DuplicateGrant, subject, format!("{kept} alone"), format!("also {}", told.join(", ")))
    })
}
