//! Who has what.

use actix_web::{HttpResponse, web};
use maud::{Markup, html};
use serde::Deserialize;

use super::books::read;
use super::fault::Fault;
use super::parts::{Field, ROWS, account, given, nothing, or_dash, query, table, text};
use super::shell::Frame;
use crate::http::private::Private;
use crate::ops::words::amount;
use crate::store::views::{self, AccountFilter, AccountRow, BalanceRow};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    search: String,
    after: String,
}

/// An account and what it has.
type Listed = (AccountRow, Vec<BalanceRow>);

pub(super) async fn show(
    private: web::Data<Private>,
    frame: Frame,
    asked: web::Query<Asked>,
) -> Result<HttpResponse, Fault> {
    let filter = AccountFilter { search: given(&asked.search), after: given(&asked.after), limit: ROWS };
    let listed: Vec<Listed> = read(&private, move |connection| {
        let accounts = views::accounts(connection, &filter)?;
        accounts
            .into_iter()
            .map(|account| {
                let balances = views::balances(connection, &account.account_id)?;
                Ok((account, balances))
            })
            .collect()
    })
    .await?;
    let body = html! {
        h1 { "Accounts" }
        form.filter method="get" action="/accounts" role="search" {
            (Field { name: "search", label: "Id or reference begins with", value: &asked.search, required: false }.render())
            button { "Search" }
        }
        (render(&listed))
        (pages(&asked, &listed))
    };
    Ok(frame.answer("/accounts", "Accounts", &body))
}

fn render(listed: &[Listed]) -> Markup {
    let rows = listed.iter().map(|(row, balances)| {
        vec![
            account(&row.account_id),
            or_dash(row.reference.as_deref()),
            or_dash(row.tier.as_deref()),
            html! {
                @if balances.is_empty() { (nothing()) }
                @for balance in balances { div.amount { (text(&amount(balance.balance, &balance.unit))) } }
            },
            html! { @if row.deleted { "deleted at Stripe" } @else { (nothing()) } },
        ]
    });
    table("Accounts", &["Account", "Reference", "Tier", "Balance", "Note"], rows.collect(), "No accounts.")
}

fn pages(asked: &Asked, listed: &[Listed]) -> Markup {
    let next = listed.last().filter(|_| i64::try_from(listed.len()).is_ok_and(|shown| shown >= ROWS));
    html! {
        nav.pages aria-label="More accounts" {
            @if !asked.after.is_empty() { a href=(query("/accounts", &[("search", &asked.search)])) { "The first" } }
            @if let Some((last, _)) = next {
                a rel="next" href=(query("/accounts", &[("search", &asked.search), ("after", &last.account_id)])) { "More" }
            }
        }
    }
}
