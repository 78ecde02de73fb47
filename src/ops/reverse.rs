//! Takes back what still stands of an entry, by an entry that names it. Nothing is ever deleted.

use serde::Serialize;

use crate::domain::fact::Fact;
use crate::domain::grant::GrantLine;
use crate::domain::ids::AccountId;
use crate::ops::apply::{Books, Cause};
use crate::store::StoreError;
use crate::store::ledger::{self, Entry, Held, Posted, UnitHeld};

impl Books<'_> {
    /// Posts the reversal of an entry under the event of `cause`. A unit that was taken back before is reversed by 0:
    /// so nothing gives it again.
    pub(super) fn reverse(&mut self, cause: Cause<'_>, held: &Held, why: &str) -> Result<Vec<Posted>, StoreError> {
        let account = AccountId::parse(&held.account_id).map_err(|error| StoreError::Damaged {
            what: format!("the account of entry {}", held.entry_id),
            problem: error.to_string(),
        })?;
        let (fact, root) = (Fact::reversal(held.entry_id), Fact::stored(&held.root));
        let lines = held.units.iter().map(|of| reversal_of(held, of)).collect::<Result<Vec<_>, _>>()?;
        let (source, at) = (cause.event.id, self.now / 1000);
        let entry = Entry { account: &account, kind: "reversal", fact: &fact, root: &root, source, at };
        let posted = ledger::reverse(self.connection, &entry, held.entry_id, &lines)?;
        let detail =
            ReversalDetail { fact: fact.as_str(), root: root.as_str(), reverses: held.entry_id, lines: &posted, why };
        self.audit(cause, "reversal", account.as_str(), &detail)?;
        Ok(posted)
    }
}

fn reversal_of(held: &Held, of: &UnitHeld) -> Result<GrantLine, StoreError> {
    let amount = of
        .standing
        .checked_neg()
        .ok_or_else(|| StoreError::TooLarge { account: held.account_id.clone(), unit: of.unit.clone() })?;
    Ok(GrantLine::plain(of.unit.clone(), amount))
}

#[derive(Serialize)]
struct ReversalDetail<'a> {
    fact: &'a str,
    root: &'a str,
    reverses: i64,
    lines: &'a [Posted],
    why: &'a str,
}
