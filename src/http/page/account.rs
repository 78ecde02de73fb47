//! The story of an account, and an entry by hand.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use maud::{Markup, html};
use serde::Deserialize;

use super::books::{read, write};
use super::event::{entries, tier_changes};
use super::fault::Fault;
use super::parts::{
    Field, code, command, event as event_link, facts, looked_back, moment_or_dash, nothing, or_dash, path, query,
    sentence, table, text,
};
use super::shell::{Frame, answer, to_the_story, was_done};
use super::{audit, events};
use crate::domain::event::UnixSeconds;
use crate::domain::words::quoted;
use crate::http::private::{Operator, Private};
use crate::ops::adjust::{self, AdjustError, Adjustment};
use crate::ops::fresh;
use crate::ops::story::{self, AccountStory};
use crate::ops::words::{amount, time};
use crate::store::views::{BalanceRow, MoneyBackRow, SubscriptionRow};

/// So many entries, events and audit rows are told.
const TOLD: i64 = 50;

/// What was done before the page was asked for.
const DONE: [(&str, &str); 2] = [
    ("posted", "The entry is posted."),
    ("repeated", "The entry was posted before under this key; nothing has changed."),
];

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    done: Option<String>,
}

/// The form of an entry, as it was sent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    amount: String,
    unit: String,
    reason: String,
    key: String,
    /// `yes`: it may take more than is available.
    allow_debt: String,
}

impl Entry {
    /// The key is new, so that sending the form twice posts once.
    fn fresh() -> Result<Self, Fault> {
        Ok(Self { unit: "credits".into(), key: fresh::key()?, ..Self::default() })
    }
}

pub(super) async fn show(
    private: web::Data<Private>,
    frame: Frame,
    id: web::Path<String>,
    asked: web::Query<Asked>,
) -> Result<HttpResponse, Fault> {
    let above =
        html! { @if let Some(text) = was_done(&DONE, asked.done.as_deref()) { p.done role="status" { (text) } } };
    page(&private, &frame, id.into_inner(), StatusCode::OK, &above, &Entry::fresh()?).await
}

/// Posts an entry.
pub(super) async fn adjust(
    private: web::Data<Private>,
    operator: Operator,
    id: web::Path<String>,
    form: web::Form<Entry>,
) -> Result<HttpResponse, Fault> {
    let now = (private.clock)();
    let (id, form, name) = (id.into_inner(), form.into_inner(), operator.name.clone());
    let frame = Frame { operator, now: now / 1000 };
    let (status, problem) = match post(&private, &id, &form, name, now).await? {
        Ok(adjusted) => {
            let done = if adjusted.new { "posted" } else { "repeated" };
            return Ok(to_the_story(&path(&["accounts", &adjusted.account_id]), done));
        }
        Err(AdjustError::Store(error)) => return Err(error.into()),
        Err(AdjustError::UnknownAccount(_)) => return Err(unknown(&id)),
        Err(error @ AdjustError::Insufficient { .. }) => {
            (StatusCode::CONFLICT, format!("{error}. To take it all the same, allow debt below"))
        }
        Err(error @ AdjustError::KeyTaken { .. }) => (StatusCode::CONFLICT, error.to_string()),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    };
    let above = html! { p.problem role="alert" { "Nothing is posted: " (sentence(&problem)) } };
    page(&private, &frame, id, status, &above, &form).await
}

async fn post(
    private: &web::Data<Private>,
    id: &str,
    form: &Entry,
    operator: String,
    now: i64,
) -> Result<Result<adjust::Adjusted, AdjustError>, Fault> {
    let Ok(amount) = form.amount.trim().parse() else {
        return Ok(Err(AdjustError::Invalid("the amount must be a whole number, such as 40 or -40")));
    };
    let adjustment = Adjustment {
        account: id.to_owned(),
        amount,
        unit: form.unit.trim().to_owned(),
        reason: form.reason.clone(),
        key: form.key.trim().to_owned(),
        allow_debt: form.allow_debt == "yes",
        operator,
    };
    let event = fresh::event_id(now)?;
    let livemode = private.rules.policy.livemode;
    write(private, move |desk| adjust::adjust(desk, &adjustment, &event, livemode, now)).await
}

fn unknown(id: &str) -> Fault {
    Fault::not_found(format!("there is no account {}", quoted(id)))
}

/// The name is nobody's, or that of several.
fn not_one(error: AdjustError) -> Fault {
    match error {
        AdjustError::AmbiguousAccount { .. } => Fault::conflict(error.to_string()),
        _ => Fault::not_found(error.to_string()),
    }
}

async fn page(
    private: &web::Data<Private>,
    frame: &Frame,
    id: String,
    status: StatusCode,
    above: &Markup,
    entry: &Entry,
) -> Result<HttpResponse, Fault> {
    let asked = id.clone();
    let told = read(private, move |connection| match adjust::find_account(connection, &asked) {
        Ok(account) => Ok(Ok(story::of_account(connection, account.as_str(), TOLD)?)),
        Err(AdjustError::Store(error)) => Err(error),
        Err(error) => Ok(Err(error)),
    });
    let story = told.await?.map_err(not_one)?;
    let Some(mut story) = story else { return Err(unknown(&id)) };
    // On a page the newest stands first.
    story.entries.reverse();
    story.audit.reverse();
    let body = html! {
        h1 { "Account " (code(&story.account.account_id)) }
        (above)
        (render(&story, entry, frame))
    };
    Ok(answer(status, &frame.page("/accounts", "Account", &body)))
}

fn render(story: &AccountStory, entry: &Entry, frame: &Frame) -> Markup {
    let now = frame.now;
    html! {
        (facts(vec![
            ("Reference", Some(or_dash(story.account.reference.as_deref()))),
            ("Tier", Some(or_dash(story.account.tier.as_deref()))),
            ("Note", story.account.deleted.then(|| html! { "deleted at Stripe" })),
        ]))
        h2 { "Balances" }
        (balances(&story.balances))
        h2 { "Subscriptions" }
        (subscriptions(&story.subscriptions, now))
        @if !story.tier_changes.is_empty() { h2 { "Changes of tier" } (tier_changes(&story.tier_changes, now)) }
        h2 { "Entries" }
        (entries(&story.entries, now))
        @if !story.money_back.is_empty() { h2 { "Refunds and disputes" } (money_back(&story.money_back)) }
        h2 { "Events" }
        (events::table_of(&story.events, now))
        (looked_back(story.events_edge.as_ref(), now))
        (form(&story.account.account_id, entry, frame))
        h2 { "Audit" }
        (audit::table_of(&story.audit, now))
        (looked_back(story.audit_edge.as_ref(), now))
        (further(&story.account.account_id))
        p.faint { "At most " (TOLD) " of each are shown; " (command("billingd accounts show ID --limit N")) " tells more." }
    }
}

/// The whole lists of it.
fn further(id: &str) -> Markup {
    let all = |place| query(place, &[("account", id)]);
    html! {
        nav.pages aria-label="More of this account" {
            a href=(all("/events")) { "All its events" }
            a href=(all("/audit")) { "All its audit rows" }
        }
    }
}

fn balances(rows: &[BalanceRow]) -> Markup {
    let rows = rows.iter().map(|row| {
        let shown = |sum: i64| html! { span.amount { (text(&amount(sum, &row.unit))) } };
        vec![shown(row.balance), shown(row.available)]
    });
    table("Balances", &["Balance", "Available"], rows.collect(), "None.")
}

fn subscriptions(rows: &[SubscriptionRow], now: UnixSeconds) -> Markup {
    let rows = rows.iter().map(|row| {
        vec![
            code(&row.subscription_id),
            html! { (text(&row.status)) @if row.collection_paused { " (collection paused)" } },
            or_dash(row.tier.as_deref()),
            or_dash(row.price_ids.as_deref()),
            moment_or_dash(row.current_period_end, now),
            moment_or_dash(row.ends_at, now),
            row.pending_tier_at.map_or_else(nothing, |at| {
                html! { (or_dash(row.pending_tier.as_deref())) " on " (time(at)) }
            }),
            event_link(&row.source_event_id),
        ]
    });
    let heads = ["Subscription", "Status", "Tier", "Prices", "Period ends", "Ends", "Next tier", "By event"];
    table("Subscriptions", &heads, rows.collect(), "None.")
}

fn money_back(rows: &[MoneyBackRow]) -> Markup {
    let rows = rows.iter().map(|row| {
        vec![
            text(&row.kind),
            code(&row.id),
            html! { span.amount { (text(&amount(row.amount, &row.currency))) } },
            or_dash(row.status.as_deref()),
            code(&row.root),
        ]
    });
    table("Refunds and disputes", &["Kind", "Id", "Amount", "Status", "Of"], rows.collect(), "None.")
}

fn form(id: &str, entry: &Entry, frame: &Frame) -> Markup {
    let field = |name, label, value| Field { name, label, value, required: true }.render();
    html! {
        section.card aria-labelledby="adjust" {
            h2 id="adjust" { "Give or take by hand" }
            form method="post" action=(path(&["accounts", id, "adjust"])) {
                (frame.csrf())
                (field("amount", "Amount (a whole number; negative takes)", &entry.amount))
                (field("unit", "Unit", &entry.unit))
                (field("reason", "Why (for the audit log)", &entry.reason))
                (field("key", "Key (the same again changes nothing)", &entry.key))
                label.check {
                    input type="checkbox" name="allow_debt" value="yes" checked[entry.allow_debt == "yes"];
                    " Allow debt (it may take more than is available)"
                }
                button { "Post the entry" }
            }
        }
    }
}
