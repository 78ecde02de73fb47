//! What a person does about a finding.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::domain::decide;
use crate::domain::reconcile::Kind;
use crate::ops::apply::to_json;
use crate::store::audit::{self, Record};
use crate::store::findings::{self, FindingRow};
use crate::store::{Desk, StoreError};

/// So many bytes of a hash tell findings apart.
const DIGEST_BYTES: usize = 16;

/// Why a finding was not acknowledged.
#[derive(Debug, Error)]
pub enum AcknowledgeError {
    /// No finding has this number.
    #[error("there is no finding {0}; `billingd findings list --status all` shows all")]
    Unknown(i64),
    /// What it told is gone.
    #[error("finding {0} is resolved: what it told is gone, and nothing is left to acknowledge")]
    Resolved(i64),
    /// Since it was shown, something else was seen of its subject, or somebody else acknowledged it.
    #[error("finding {0} is not what the page showed any more, and nothing was done; look at it as it is now")]
    Changed(i64),
    /// The reason is empty.
    #[error("a reason is needed, so that others can see why it is left as it is")]
    NoReason,
    /// The database did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize)]
struct Detail<'a> {
    finding: i64,
    kind: &'a str,
    before: &'a str,
    after: &'a str,
    why: &'a str,
}

/// Lets a finding be, for a reason: it counts no more until something else is seen of its subject. Acknowledging again
/// changes the reason. `seen` is the [`digest`] of what was shown, where a person decides by what a page shows: then
/// only that is acknowledged.
///
/// # Errors
/// [`AcknowledgeError`]; then nothing changed.
pub fn acknowledge(
    desk: &mut impl Desk,
    id: i64,
    seen: Option<&str>,
    reason: &str,
    operator: &str,
    now: UnixMillis,
) -> Result<FindingRow, AcknowledgeError> {
    let (reason, actor) = (reason.trim().to_owned(), format!("operator:{operator}"));
    if reason.is_empty() {
        return Err(AcknowledgeError::NoReason);
    }
    let seen = seen.map(str::to_owned);
    desk.write(move |transaction| {
        let Some(held) = findings::find(transaction, id)? else { return Ok(Err(AcknowledgeError::Unknown(id))) };
        if held.status == "resolved" {
            return Ok(Err(AcknowledgeError::Resolved(id)));
        }
        if seen.is_some_and(|seen| seen != digest(&held)) {
            return Ok(Err(AcknowledgeError::Changed(id)));
        }
        findings::acknowledge(transaction, id, &reason)?;
        let (before, after) = (held.status.as_str(), "acknowledged");
        let detail = to_json(&Detail { finding: id, kind: &held.kind, before, after, why: &reason })?;
        let record = Record {
            at: now / 1000,
            actor: &actor,
            action: "finding.acknowledge",
            subject: &held.subject,
            event_id: None,
            detail: &detail,
        };
        audit::append(transaction, audit::head(transaction)?, &record)?;
        Ok(findings::find(transaction, id)?.ok_or(AcknowledgeError::Unknown(id)))
    })?
}

/// What a person sees of a finding, in short: another one where that has changed.
#[must_use]
pub fn digest(row: &FindingRow) -> String {
    let seen = [Some(&row.kind), Some(&row.subject), row.expected.as_ref(), row.actual.as_ref(), Some(&row.status)];
    let mut hash = Sha256::new();
    for text in seen {
        // The length keeps texts apart that only together are the same.
        let length = text.map_or_else(|| "-".to_owned(), |text| text.len().to_string());
        hash.update(format!("{length}:{}", text.map_or("", String::as_str)));
    }
    base16ct::lower::encode_string(&hash.finalize()[..DIGEST_BYTES])
}

/// A finding with the command that sets right what it tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advised {
    /// The finding.
    #[serde(flatten)]
    pub row: FindingRow,
    /// The command.
    pub command: String,
}

impl Advised {
    /// A finding, and what to do about it.
    #[must_use]
    pub fn new(row: FindingRow) -> Self {
        let command = match Kind::parse(&row.kind) {
            Some(kind) => kind.remedy(&row.subject, row.event_id.as_deref()),
            None if row.kind == decide::SHARED_REFERENCE => {
                format!("billingd accounts reference {} REFERENCE --reason TEXT", row.subject)
            }
            None => format!("billingd findings acknowledge {} --reason TEXT", row.finding_id),
        };
        Self { row, command }
    }
}
