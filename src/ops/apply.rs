//! Carries out effects: each one is written, and each one that changes the books has its row in the audit log.

use rusqlite::Connection;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::domain::clawback::Correction;
use crate::domain::decision::{Effect, Outcome};
use crate::domain::fact::Fact;
use crate::domain::grant::GrantLine;
use crate::domain::ids::{AccountId, EventId};
use crate::domain::subscription::Standing;
use crate::store::audit::{self, Head, Record};
use crate::store::events::{self, EventMeta, Source};
use crate::store::ledger::{self, Entry, Posted};
use crate::store::snapshots::StateText;
use crate::store::{StoreError, accounts, findings, invoices, payments, prices, subscriptions};

/// The books of one transaction.
pub(super) struct Books<'a> {
    pub(super) connection: &'a Connection,
    pub(super) now: UnixMillis,
    /// The end of the audit chain, once it was looked up.
    pub(super) chain: Option<Head>,
}

/// On whose behalf effects are carried out.
#[derive(Clone, Copy)]
pub(super) struct Cause<'a> {
    pub(super) event: &'a EventMeta<'a>,
    pub(super) actor: &'a str,
}

impl Books<'_> {
    /// Carries out effects in their order.
    pub(super) fn apply_all(&mut self, cause: Cause<'_>, effects: &[Effect]) -> Result<(), StoreError> {
        self.apply_after(0, cause, effects)
    }

    /// Carries out effects of an event that has made so many entries already. One event makes one entry; what else it
    /// leads to is posted under an event of its own.
    pub(super) fn apply_after(
        &mut self,
        mut entries: usize,
        cause: Cause<'_>,
        effects: &[Effect],
    ) -> Result<(), StoreError> {
        for effect in effects {
            match effect {
                Effect::Grant(account, fact, lines) => {
                    entries += 1;
                    self.grant(cause, account, fact, lines)?;
                }
                Effect::Correct(account, root, corrections) => {
                    entries += 1;
                    self.correct(cause, account, root, corrections, entries)?;
                }
                other => self.apply(cause, other)?,
            }
        }
        Ok(())
    }

    fn apply(&mut self, cause: Cause<'_>, effect: &Effect) -> Result<(), StoreError> {
        let (connection, event, now_s) = (self.connection, cause.event.id, self.now / 1000);
        match effect {
            Effect::Grant(..) | Effect::Correct(..) => Ok(()),
            Effect::SaveInvoice(invoice) => invoices::save(connection, invoice, event),
            Effect::LinkPayments(invoice, all) => {
                all.iter().try_for_each(|one| payments::link(connection, invoice, one))
            }
            Effect::LearnPrice(price) => prices::learn(connection, price),
            Effect::SaveCheckout(checkout) => payments::save_checkout(connection, checkout, event),
            Effect::TieCheckout(checkout, invoice) => payments::tie_checkout(connection, checkout, invoice),
            Effect::NamePayment(charge, intent) => payments::name(connection, charge, intent),
            Effect::SaveCharge(charge) => payments::save_charge(connection, charge),
            Effect::SaveRefund(refund) => payments::save_refund(connection, refund),
            Effect::SaveDispute(dispute) => payments::save_dispute(connection, dispute),
            Effect::SavePaidPeriods(id, periods) => subscriptions::save_paid_periods(connection, id, periods),
            Effect::OpenFinding(finding) => findings::open(connection, finding, now_s),
            Effect::ResolveFinding(kind, subject) => findings::resolve(connection, kind, subject, now_s),
            Effect::OpenAccount(account) => accounts::open(connection, account),
            Effect::SetReference(account, reference) => {
                let before = accounts::held(connection, account)?.and_then(|held| held.reference);
                accounts::set_reference(connection, account, reference)?;
                let (before, after) = (before.map(|before| before.text), Some(&reference.text));
                self.audit_change(cause, "account.reference", account.as_str(), &before, &after)
            }
            Effect::ConfirmReference(account, reference) => accounts::set_reference(connection, account, reference),
            Effect::CloseAccount(account, at) => {
                accounts::close(connection, account, *at)?;
                self.audit_change(cause, "account.deleted", account.as_str(), &"live", &"deleted")
            }
            Effect::SaveSubscription(known, standing) => {
                let (_, before) = subscriptions::held(connection, &standing.id)?;
                subscriptions::save(connection, known, standing)?;
                self.audit_standing(cause, before.as_ref(), standing)
            }
            Effect::Restand(standing) => {
                let (_, before) = subscriptions::held(connection, &standing.id)?;
                subscriptions::restand(connection, standing)?;
                self.audit_standing(cause, before.as_ref(), standing)
            }
            Effect::ChangeTier(account, from, to) => {
                accounts::open(connection, account)?;
                subscriptions::change_tier(connection, account, from.as_deref(), to.as_deref(), event, now_s)?;
                self.audit_change(cause, "tier", account.as_str(), from, to)
            }
        }
    }

    fn grant(
        &mut self,
        cause: Cause<'_>,
        account: &AccountId,
        fact: &Fact,
        lines: &[GrantLine],
    ) -> Result<(), StoreError> {
        let (source, at) = (cause.event.id, self.now / 1000);
        let entry = Entry { account, kind: "grant", fact, root: fact, source, at };
        let posted = ledger::post(self.connection, &entry, lines)?;
        let detail = EntryDetail { fact: fact.as_str(), root: None, lines: &posted, why: cause.event.kind };
        self.audit(cause, "grant", account.as_str(), &detail)
    }

    fn correct(
        &mut self,
        cause: Cause<'_>,
        account: &AccountId,
        root: &Fact,
        corrections: &[Correction],
        entry: usize,
    ) -> Result<(), StoreError> {
        let own = if entry > 1 { Some(self.open_job(cause, entry)?) } else { None };
        let source = own.as_ref().unwrap_or(cause.event.id);
        let takes = corrections.iter().any(|correction| correction.amount < 0);
        let (kind, fact) =
            if takes { ("clawback", Fact::clawback(source)) } else { ("restore", Fact::restore(source)) };
        let line = |correction: &Correction| GrantLine::plain(&correction.unit, correction.amount);
        let lines: Vec<GrantLine> = corrections.iter().map(line).collect();
        let entry = Entry { account, kind, fact: &fact, root, source, at: self.now / 1000 };
        let posted = ledger::post(self.connection, &entry, &lines)?;
        let detail =
            EntryDetail { fact: fact.as_str(), root: Some(root.as_str()), lines: &posted, why: cause.event.kind };
        self.audit(cause, kind, account.as_str(), &detail)
    }

    /// An event for a further entry that an event leads to.
    fn open_job(&self, cause: Cause<'_>, entry: usize) -> Result<EventId, StoreError> {
        let id = format!("job:correct:{}:{entry}", cause.event.id);
        let id = EventId::parse(&id)
            .map_err(|error| StoreError::Damaged { what: format!("event id {id}"), problem: error.to_string() })?;
        let meta = EventMeta {
            id: &id,
            source: Source::Job,
            kind: "job.correct",
            created: self.now / 1000,
            received: self.now,
            ..*cause.event
        };
        let reason = format!("follows from {}", cause.event.id);
        events::complete(self.connection, &meta, Outcome::Applied, Some(&reason), self.now)?;
        Ok(id)
    }

    fn audit_standing(
        &mut self,
        cause: Cause<'_>,
        before: Option<&Standing>,
        after: &Standing,
    ) -> Result<(), StoreError> {
        let (before, after_text) = (before.map(StandingText::of), StandingText::of(after));
        if before.as_ref() == Some(&after_text) {
            return Ok(());
        }
        self.audit_change(cause, "subscription", after.id.as_str(), &before, &after_text)
    }

    fn audit_change(
        &mut self,
        cause: Cause<'_>,
        action: &str,
        subject: &str,
        before: &impl Serialize,
        after: &impl Serialize,
    ) -> Result<(), StoreError> {
        self.audit(cause, action, subject, &Change { before, after, why: cause.event.kind })
    }

    /// Appends a row to the audit log.
    pub(super) fn audit(
        &mut self,
        cause: Cause<'_>,
        action: &str,
        subject: &str,
        detail: &impl Serialize,
    ) -> Result<(), StoreError> {
        let head = match self.chain {
            Some(head) => head,
            None => audit::head(self.connection)?,
        };
        let record = Record {
            at: self.now / 1000,
            actor: cause.actor,
            action,
            subject,
            event_id: Some(cause.event.id.as_str()),
            detail: &to_json(detail)?,
        };
        self.chain = Some(audit::append(self.connection, head, &record)?);
        Ok(())
    }
}

#[derive(Serialize)]
struct EntryDetail<'a> {
    fact: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'a str>,
    lines: &'a [Posted],
    why: &'a str,
}

#[derive(Serialize)]
struct Change<'a, B: Serialize, A: Serialize> {
    before: &'a B,
    after: &'a A,
    why: &'a str,
}

/// A subscription as the audit log keeps it: its whole state, so that it can be brought back, and what followed from it.
#[derive(Serialize, PartialEq)]
struct StandingText<'a> {
    #[serde(flatten)]
    state: StateText,
    tier: Option<&'a str>,
    pending_tier: Option<&'a str>,
    pending_tier_at: Option<i64>,
}

impl<'a> StandingText<'a> {
    fn of(standing: &'a Standing) -> Self {
        let pending = standing.pending.as_ref();
        Self {
            state: StateText::of(&standing.state),
            tier: standing.tier.as_deref(),
            pending_tier: pending.and_then(|pending| pending.tier.as_deref()),
            pending_tier_at: pending.map(|pending| pending.at),
        }
    }
}

/// The JSON of an audit detail.
pub(super) fn to_json(detail: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(detail)
        .map_err(|error| StoreError::Damaged { what: "an audit detail".into(), problem: error.to_string() })
}
