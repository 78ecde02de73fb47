//! What can be told without Stripe: grants that stand twice, and the proofs of the books.

use crate::domain::reconcile::{Difference, Kind};
use crate::ops::verify;
use crate::store::compare;

use super::run::{Run, Trouble};

/// So many violations of one proof are told; `billingd verify` tells more.
const TOLD_MAX: usize = 3;

/// Looks for both.
pub(super) fn prove(run: &mut Run<'_>) -> Result<(), Trouble> {
    (run.place.progress)("proofs of the books", 0);
    for (subject, actual) in run.place.reader.read_at_leisure(compare::duplicate_grants)? {
        let expected = "one grant for each payment";
        run.differences.push(Difference::new(Kind::DuplicateGrant, subject, expected, actual));
    }
    let report = run.place.reader.read_at_leisure(verify::verify)?;
    for proof in report.proofs.into_iter().filter(|proof| !proof.violations.is_empty()) {
        let told: Vec<String> = proof.violations.into_iter().take(TOLD_MAX).collect();
        let actual = told.join("; ");
        run.differences.push(Difference::new(Kind::BooksBroken, proof.name, "no violation", actual));
    }
    run.looked_at_all(Kind::DuplicateGrant);
    run.looked_at_all(Kind::BooksBroken);
    Ok(())
}
