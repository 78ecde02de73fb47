//! Invoices and their grants: those of the window, and all that are open here.

use std::collections::HashMap;

use crate::domain::event::Invoice;
use crate::domain::facts::Asked;
use crate::domain::ids::InvoiceId;
use crate::domain::reconcile::{self, InvoiceHere, Kind};
use crate::ops::seen::Seen;
use crate::store::compare::{self, Unseen};
use crate::stripe::lists::INVOICES;

use super::run::{Run, Trouble, look_ups};

/// An invoice may be paid so long after it was made, in seconds.
const PAID_LATE_S: i64 = 60 * 86_400;

/// From so many invoices on that are open here, asking for all that are open at Stripe takes fewer requests.
const OPEN_MAX: usize = 100;

/// The statuses that are not final.
const OPEN: [&str; 3] = ["open", "draft", "uncollectible"];

const KINDS: [Kind; 3] = [Kind::MissingGrant, Kind::InvoiceStatus, Kind::SurplusCredit];

/// Compares them.
pub(super) fn compare(run: &mut Run<'_>) -> Result<(), Trouble> {
    let mut seen = Seen::default();
    let (since, status) = ((run.since - PAID_LATE_S).to_string(), "status");
    walk(run, &[("created[gte]", &since)], &mut seen)?;
    let mut absent = not_seen(run, &seen)?;
    if absent.iter().filter(|one| one.is_open).count() > OPEN_MAX {
        for open in OPEN {
            walk(run, &[(status, open)], &mut seen)?;
        }
        absent.retain(|one| !seen.has(one.id.as_str()));
    }
    let subjects = run.not_looked_at(&KINDS);
    let of_findings = subjects.iter().filter_map(|subject| InvoiceId::parse(subject).ok()).filter(is_invoice);
    let (ids, left) = look_ups(absent.into_iter().map(|one| one.id).collect(), of_findings);
    for id in ids {
        let Some(asked) = run.readable(INVOICES.find(run.place.api, id.as_str()))? else { continue };
        let told = match asked {
            Asked::Told(invoice) => Some(invoice),
            Asked::Gone | Asked::NotYet => None,
        };
        let here = ours(run, &[id.as_str()])?;
        judge(run, &id, told.as_ref(), &here);
    }
    if left > 0 { Err(Trouble::TooMany(left)) } else { Ok(()) }
}

/// Findings of checkout sessions have the same kind.
fn is_invoice(id: &InvoiceId) -> bool {
    !id.as_str().starts_with("cs_")
}

fn walk(run: &mut Run<'_>, query: &[(&str, &str)], seen: &mut Seen) -> Result<(), Trouble> {
    for page in INVOICES.pages(run.place.api, query) {
        let page = run.readable_items(page?);
        let ids: Vec<&str> = page.iter().map(|item| item.object.id.as_str()).collect();
        let here = ours(run, &ids)?;
        for item in &page {
            run.check_mode(item.livemode)?;
            seen.add(item.object.id.as_str());
            judge(run, &item.object.id, Some(&item.object), &here);
        }
        (run.place.progress)("invoices", run.counts.invoices);
    }
    Ok(())
}

/// Ours of the window, and all that are open, that were not in the list.
fn not_seen(run: &Run<'_>, seen: &Seen) -> Result<Vec<Unseen>, Trouble> {
    let mut absent = Vec::new();
    let mut after = String::new();
    let since = run.since - PAID_LATE_S;
    loop {
        let step = run.place.reader.read(|connection| compare::expected_invoices(connection, since, &after))?;
        let Some(last) = step.last() else { return Ok(absent) };
        after = last.id.as_str().to_owned();
        absent.extend(step.into_iter().filter(|one| !seen.has(one.id.as_str())));
    }
}

fn ours(run: &Run<'_>, ids: &[&str]) -> Result<HashMap<InvoiceId, InvoiceHere>, Trouble> {
    Ok(run.place.reader.read(|connection| compare::invoices(connection, ids))?)
}

fn judge(run: &mut Run<'_>, id: &InvoiceId, told: Option<&Invoice>, ours: &HashMap<InvoiceId, InvoiceHere>) {
    let mut here = ours.get(id).cloned().unwrap_or_default();
    here.open = run.open.get(id.as_str()).cloned();
    run.differences.extend(reconcile::of_invoice(id, told, &here, &run.rules.policy));
    run.looked_at(id.as_str(), &KINDS);
    run.counts.invoices += 1;
}
