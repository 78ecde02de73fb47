//! All customers and all subscriptions of a Stripe account, page by page, as Stripe wrote them.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ask::{self, NoAnswer};
use super::client::{Api, ApiError, Kind, Page, Pages};
use super::wire::answers;
use crate::domain::event::Body;

const CUSTOMERS: &str = "/v1/customers";
const SUBSCRIPTIONS: &str = "/v1/subscriptions";

/// The mode of the account that the key opens, as one of its customers tells it; `None`: it has none. Cheap, and lets
/// [`Api::time`] tell a moment before the lists begin.
///
/// # Errors
/// [`ApiError`].
pub fn livemode(api: &dyn Api) -> Result<Option<bool>, ApiError> {
    #[derive(Deserialize)]
    struct First {
        data: Vec<Mode>,
    }
    #[derive(Deserialize)]
    struct Mode {
        livemode: Option<bool>,
    }
    let body = api.get(CUSTOMERS, &[("limit", "1")])?;
    let first: First =
        serde_json::from_slice(&body).map_err(|_| ApiError::new(Kind::Garbage, CUSTOMERS, "the answer is no list"))?;
    Ok(first.data.first().and_then(|customer| customer.livemode))
}

/// The customers, but for deleted ones, which Stripe does not list.
pub fn customers(api: &dyn Api) -> impl Iterator<Item = Result<Vec<String>, NoAnswer>> {
    Pages::new(api, CUSTOMERS, &[]).map(|page| Ok(texts(&page?)))
}

/// The subscriptions, ended ones too, with all of their items.
pub fn subscriptions(api: &dyn Api) -> impl Iterator<Item = Result<Vec<String>, NoAnswer>> {
    Pages::new(api, SUBSCRIPTIONS, &[("status", "all")])
        .map(move |page| page?.items.iter().map(|item| with_all_items(api, item)).collect())
}

fn texts(page: &Page) -> Vec<String> {
    page.items.iter().map(|item| item.get().to_owned()).collect()
}

/// One that cannot be read is passed on as it is: whoever reads it will find the same.
fn with_all_items(api: &dyn Api, json: &RawValue) -> Result<String, NoAnswer> {
    let told = json.get().to_owned();
    let Body::Subscription(subscription) = answers::object("customer.subscription.updated", &told) else {
        return Ok(told);
    };
    if !subscription.items_truncated {
        return Ok(told);
    }
    let mut items = Vec::new();
    for item in ask::items_of(api, &subscription.id) {
        let item: Value = serde_json::from_str(item?.get()).map_err(|_| garbage("an item is no object"))?;
        items.push(item);
    }
    let mut whole: Value = serde_json::from_str(&told).map_err(|_| garbage("a subscription is no object"))?;
    whole["items"] = serde_json::json!({ "object": "list", "has_more": false, "data": items });
    Ok(whole.to_string())
}

fn garbage(reason: &'static str) -> NoAnswer {
    ApiError::new(Kind::Garbage, SUBSCRIPTIONS, reason).into()
}
