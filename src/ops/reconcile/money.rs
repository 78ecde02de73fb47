//! Refunds and disputes against what was taken back: the rule of clawbacks, with Stripe's numbers in the place of ours.

use rusqlite::Connection;

use crate::domain::clawback::{self, ChargeHeld, DisputeHeld, Payment, RefundHeld};
use crate::domain::event::{Charge, Dispute, PaymentRef, Refund, UnixSeconds};
use crate::domain::facts::{Asked, Root};
use crate::domain::ids::{ChargeId, DisputeId, EventId, PaymentId, RefundId};
use crate::domain::money::Currency;
use crate::domain::reconcile::{self, Kind, MoneyBack, OpenEvent};
use crate::ops::seen::Seen;
use crate::store::{StoreError, compare, payments};
use crate::stripe::ask::{self, NoAnswer};
use crate::stripe::client::Kind as ApiKind;
use crate::stripe::lists::{DISPUTES, List, REFUNDS};

use super::run::{Run, Trouble, look_ups};

/// Compares the refunds of the window, and those that can still change.
pub(super) fn compare_refunds(run: &mut Run<'_>) -> Result<(), Trouble> {
    let refunds = Judge {
        list: &REFUNDS,
        name: "refunds",
        kind: Kind::RefundNotApplied,
        id: |refund| refund.id.as_str(),
        parse: |subject| RefundId::parse(subject).ok(),
        expected: compare::expected_refunds,
        compare: compare_refund,
        without: without_refund,
    };
    refunds.judge_all(run)
}

/// Compares the disputes of the window, and those that can still change.
pub(super) fn compare_disputes(run: &mut Run<'_>) -> Result<(), Trouble> {
    let disputes = Judge {
        list: &DISPUTES,
        name: "disputes",
        kind: Kind::DisputeNotApplied,
        id: |dispute| dispute.id.as_str(),
        parse: |subject| DisputeId::parse(subject).ok(),
        expected: compare::expected_disputes,
        compare: compare_dispute,
        without: without_dispute,
    };
    disputes.judge_all(run)
}

/// How one kind of money that goes back is listed and judged.
struct Judge<T: 'static, I> {
    list: &'static List<T>,
    name: &'static str,
    kind: Kind,
    id: fn(&T) -> &str,
    parse: fn(&str) -> Option<I>,
    /// Ours that are to be seen, after an id.
    expected: fn(&Connection, UnixSeconds, &str) -> Result<Vec<I>, StoreError>,
    compare: fn(&mut Run<'_>, &T) -> Result<(), Trouble>,
    /// Stripe does not have it.
    without: fn(&mut Run<'_>, &I) -> Result<(), Trouble>,
}

impl<T, I: AsRef<str> + Ord> Judge<T, I> {
    fn judge_all(&self, run: &mut Run<'_>) -> Result<(), Trouble> {
        let (mut seen, mut judged, since) = (Seen::default(), 0, run.since.to_string());
        for page in self.list.pages(run.place.api, &[("created[gte]", &since)]) {
            for item in run.readable_items(page?) {
                run.check_mode(item.livemode)?;
                seen.add((self.id)(&item.object));
                let done = (self.compare)(run, &item.object);
                run.readable(done)?;
                judged += 1;
            }
            (run.place.progress)(self.name, judged);
        }
        let absent = not_seen(run, &seen, self.expected)?;
        let subjects = run.not_looked_at(&[self.kind]);
        let (ids, left) = look_ups(absent, subjects.iter().filter_map(|subject| (self.parse)(subject)));
        for id in ids {
            let Some(asked) = run.readable(self.list.find(run.place.api, id.as_ref()))? else { continue };
            let done = match asked {
                Asked::Told(one) => (self.compare)(run, &one),
                Asked::Gone | Asked::NotYet => (self.without)(run, &id),
            };
            run.readable(done)?;
        }
        if left > 0 { Err(Trouble::TooMany(left)) } else { Ok(()) }
    }
}

/// Ours that were to be seen, and were not in the list.
fn not_seen<T: AsRef<str>>(
    run: &Run<'_>,
    seen: &Seen,
    expected: impl Fn(&Connection, UnixSeconds, &str) -> Result<Vec<T>, StoreError>,
) -> Result<Vec<T>, Trouble> {
    let (mut after, mut absent) = (String::new(), Vec::new());
    loop {
        let step = run.place.reader.read(|connection| expected(connection, run.since, &after))?;
        let Some(last) = step.last() else { return Ok(absent) };
        after = last.as_ref().to_owned();
        absent.extend(step.into_iter().filter(|id| !seen.has(id.as_ref())));
    }
}

fn compare_refund(run: &mut Run<'_>, refund: &Refund) -> Result<(), Trouble> {
    run.counts.refunds += 1;
    let back = MoneyBack {
        kind: Kind::RefundNotApplied,
        id: refund.id.to_string(),
        status: Some(refund.status.clone().unwrap_or_else(|| "succeeded".into())),
        amount: refund.amount,
        currency: refund.currency,
    };
    let mut ours = run.place.reader.read(|connection| {
        let held = payments::refund(connection, &refund.id)?;
        let names = held.as_ref().map_or_else(|| refund.payment.clone(), |held| joined(&refund.payment, &held.payment));
        Ours::read(connection, names, held.is_some(), |payment| payment.refunds.extend(held.clone()))
    })?;
    let failed = clawback::is_failed(refund.status.as_deref());
    if !failed {
        find_what_was_paid(run, &mut ours)?;
    }
    let told = RefundHeld {
        id: refund.id.clone(),
        payment: ours.names.clone(),
        amount: refund.amount,
        currency: refund.currency,
        status: refund.status.clone(),
        created: refund.created,
        failed_at: failed.then_some(run.started),
        at: run.started,
        source: source()?,
    };
    let held =
        ours.payment.refunds.iter().position(|held| held.id == told.id).map(|at| ours.payment.refunds.remove(at));
    // What was known of its failure stays: a snapshot of the charge may know of it as well.
    let failed_at = held.and_then(|held| held.failed_at).or(told.failed_at).filter(|_| failed);
    ours.payment.refunds.push(RefundHeld { failed_at, ..told });
    compare_grants(run, &back, &ours)
}

fn without_refund(run: &mut Run<'_>, id: &RefundId) -> Result<(), Trouble> {
    let held = run.place.reader.read(|connection| payments::refund(connection, id))?;
    let held = held.map(|held| (held.payment, held.amount, held.currency));
    without(run, Kind::RefundNotApplied, id.as_str(), held, |payment| payment.refunds.retain(|one| one.id != *id))
}

fn without_dispute(run: &mut Run<'_>, id: &DisputeId) -> Result<(), Trouble> {
    let held = run.place.reader.read(|connection| payments::dispute(connection, id))?;
    let held = held.map(|held| (held.payment, held.amount, held.currency));
    without(run, Kind::DisputeNotApplied, id.as_str(), held, |payment| payment.disputes.retain(|one| one.id != *id))
}

/// What is held here, and Stripe does not have: the books should be as if it had never been.
fn without(
    run: &mut Run<'_>,
    kind: Kind,
    id: &str,
    held: Option<(PaymentRef, i64, Currency)>,
    remove: impl FnOnce(&mut Payment),
) -> Result<(), Trouble> {
    let Some((names, amount, currency)) = held else {
        run.looked_at(id, &[kind]);
        return Ok(());
    };
    let mut ours = run.place.reader.read(|connection| Ours::read(connection, names, true, |_| {}))?;
    remove(&mut ours.payment);
    compare_grants(run, &MoneyBack { kind, id: id.to_owned(), status: None, amount, currency }, &ours)
}

fn compare_dispute(run: &mut Run<'_>, dispute: &Dispute) -> Result<(), Trouble> {
    run.counts.disputes += 1;
    let back = MoneyBack {
        kind: Kind::DisputeNotApplied,
        id: dispute.id.to_string(),
        status: Some(dispute.status.clone()),
        amount: dispute.amount,
        currency: dispute.currency,
    };
    let mut ours = run.place.reader.read(|connection| {
        let held = payments::dispute(connection, &dispute.id)?;
        let names =
            held.as_ref().map_or_else(|| dispute.payment.clone(), |held| joined(&dispute.payment, &held.payment));
        Ours::read(connection, names, held.is_some(), |payment| payment.disputes.extend(held.clone()))
    })?;
    find_what_was_paid(run, &mut ours)?;
    let told = DisputeHeld {
        id: dispute.id.clone(),
        payment: ours.names.clone(),
        amount: dispute.amount,
        currency: dispute.currency,
        status: dispute.status.clone(),
        withdrawn_at: None,
        reinstated_at: None,
        at: run.started,
        source: source()?,
    };
    let held = ours.payment.disputes.iter().position(|held| held.id == told.id);
    let newest = match held.map(|at| ours.payment.disputes.remove(at)) {
        Some(held) => held.newest(told),
        None => told,
    };
    ours.payment.disputes.push(newest);
    compare_grants(run, &back, &ours)
}

/// What the books hold about the payment of a refund or a dispute.
struct Ours {
    names: PaymentRef,
    payment: Payment,
    roots: Vec<Root>,
    /// The refund or dispute itself is known here, and with it what it was for.
    is_known: bool,
}

impl Ours {
    fn read(
        connection: &Connection,
        names: PaymentRef,
        is_known: bool,
        add: impl FnOnce(&mut Payment),
    ) -> Result<Self, StoreError> {
        let mut payment = payments::payment(connection, &names)?;
        if is_known && payment.refunds.is_empty() && payment.disputes.is_empty() {
            add(&mut payment);
        }
        let mut roots = Vec::new();
        for invoice in payments::invoices_of(connection, &payment)? {
            roots.extend(payments::invoice_roots(connection, &invoice, &[])?);
        }
        if let Some(intent) = &payment.intent {
            for checkout in payments::checkouts_of(connection, intent)? {
                roots.push(payments::checkout_root(connection, &checkout, None)?);
            }
        }
        Ok(Self { names, payment, roots, is_known })
    }
}

/// The names of a payment as both sides tell them.
fn joined(one: &PaymentRef, other: &PaymentRef) -> PaymentRef {
    PaymentRef {
        payment_intent: one.payment_intent.clone().or_else(|| other.payment_intent.clone()),
        charge: one.charge.clone().or_else(|| other.charge.clone()),
    }
}

/// What has not been told here is asked: which invoices the payment paid.
fn find_what_was_paid(run: &Run<'_>, ours: &mut Ours) -> Result<(), Trouble> {
    let Some(name) = name_of(&ours.names) else { return Ok(()) };
    if ours.is_known || !ours.roots.is_empty() {
        return Ok(());
    }
    let paid = match ask::payment(run.place.api, &name) {
        Ok(paid) => paid,
        Err(error) if tells_nothing(&error) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for invoice in &paid.invoices {
        let names = [ours.names.clone()];
        let roots = run.place.reader.read(|connection| payments::invoice_roots(connection, invoice, &names))?;
        ours.roots.extend(roots);
    }
    Ok(())
}

fn name_of(names: &PaymentRef) -> Option<String> {
    let intent = names.payment_intent.as_ref().map(PaymentId::as_str);
    intent.or(names.charge.as_ref().map(ChargeId::as_str)).map(str::to_owned)
}

/// Compares each grant that the payment paid for. What seems to differ is computed again with what the charges say at
/// Stripe: it may be known here by a total only.
fn compare_grants(run: &mut Run<'_>, back: &MoneyBack, ours: &Ours) -> Result<(), Trouble> {
    let (mut corrected, mut names) = (Vec::new(), Vec::new());
    for root in &ours.roots {
        let mut all = root.payments_with(&ours.payment);
        if reconcile::of_grant(root, &all).is_empty() {
            continue;
        }
        for payment in &mut all {
            ask_charges(run, payment)?;
        }
        let corrections = reconcile::of_grant(root, &all);
        if !corrections.is_empty() {
            names.extend(names_of(root, &all));
            corrected.push((root.fact.clone(), corrections));
        }
    }
    let open = open_event(run, back, &ours.names);
    if let Some(mut difference) = back.difference(&corrected, open.as_ref()) {
        difference.names.extend(names);
        run.differences.push(difference);
    }
    run.looked_at(&back.id, &[back.kind]);
    Ok(())
}

/// An event about the refund or the dispute, or about its charge, that is not completed.
fn open_event(run: &Run<'_>, back: &MoneyBack, names: &PaymentRef) -> Option<OpenEvent> {
    let charge = names.charge.as_ref().map(ChargeId::as_str);
    run.open.get(&back.id).or_else(|| run.open.get(charge?)).cloned()
}

/// Puts what the charges of a payment say now in the place of what we were told.
fn ask_charges(run: &Run<'_>, payment: &mut Payment) -> Result<(), Trouble> {
    let names = PaymentRef { payment_intent: payment.intent.clone(), charge: payment.charges.first().cloned() };
    let Some(name) = name_of(&names) else { return Ok(()) };
    let charges = match ask::charges(run.place.api, &name) {
        Ok(charges) => charges,
        Err(error) if tells_nothing(&error) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if charges.is_empty() {
        return Ok(());
    }
    let held = |charge: Charge| {
        let refunded = charge.refunded();
        Ok(ChargeHeld {
            id: charge.id,
            intent: charge.payment_intent,
            account: charge.customer,
            currency: charge.currency,
            captured: charge.amount_captured,
            refunded,
            // After all that the refunds tell: the total knows of them.
            at: run.started.saturating_add(1),
            source: source()?,
        })
    };
    payment.snapshots = charges.into_iter().map(held).collect::<Result<_, Trouble>>()?;
    Ok(())
}

/// There is no such payment, or the API is a look-alike that knows no such question.
fn tells_nothing(error: &NoAnswer) -> bool {
    matches!(error, NoAnswer::Api(error) if matches!(error.kind, ApiKind::NotFound | ApiKind::Unknown))
}

/// What an event of the last minutes may be about.
fn names_of(root: &Root, all: &[Payment]) -> Vec<String> {
    let of_payments = all.iter().flat_map(|payment| {
        let charges = payment.charges.iter().map(ToString::to_string);
        payment.intent.iter().map(ToString::to_string).chain(charges)
    });
    of_payments.chain(root.fact.as_str().rsplit(':').next().map(str::to_owned)).collect()
}

/// Where the numbers come from that no event told.
fn source() -> Result<EventId, Trouble> {
    EventId::parse("job:reconcile")
        .map_err(|error| StoreError::Damaged { what: "the name of this run".into(), problem: error.to_string() }.into())
}
