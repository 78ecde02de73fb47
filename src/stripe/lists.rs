//! The lists of Stripe that billingd walks through, page by page, and how each item is read.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ask::{self, NoAnswer};
use super::client::{Api, ApiError, Dated, Kind, Page, Pages, path};
use super::wire::answers;
use super::wire::listed::{self, ListedObject};
use crate::domain::event::{Body, Checkout, Customer, Dispute, Invoice, Refund, Subscription, UnixSeconds, Unreadable};
use crate::domain::facts::Asked;
use crate::domain::reconcile::Endpoint;

/// The most types that one list of events can be asked for.
pub const TYPES_MAX: usize = 20;

/// No account has more endpoints than fit on so many pages.
const ENDPOINT_PAGES_MAX: u32 = 10;

/// A list, and what its items are read as.
#[derive(Debug)]
pub struct List<T> {
    /// Where it is.
    pub path: &'static str,
    /// An event type that carries such an object.
    pub carried_by: &'static str,
    pick: fn(Body) -> Option<T>,
}

/// Customers, but for deleted ones, which Stripe does not list.
pub const CUSTOMERS: List<Customer> = List {
    path: "/v1/customers",
    carried_by: "customer.updated",
    pick: |body| if let Body::Customer(one) = body { Some(one) } else { None },
};

/// Subscriptions; ended ones only if they are asked for.
pub const SUBSCRIPTIONS: List<Subscription> = List {
    path: "/v1/subscriptions",
    carried_by: "customer.subscription.updated",
    pick: |body| if let Body::Subscription(one) = body { Some(one) } else { None },
};

/// Invoices.
pub const INVOICES: List<Invoice> = List {
    path: "/v1/invoices",
    carried_by: "invoice.updated",
    pick: |body| if let Body::Invoice(one) = body { Some(one) } else { None },
};

/// Checkout sessions.
pub const CHECKOUTS: List<Checkout> = List {
    path: "/v1/checkout/sessions",
    carried_by: "checkout.session.completed",
    pick: |body| if let Body::Checkout(one) = body { Some(one) } else { None },
};

/// Refunds.
pub const REFUNDS: List<Refund> = List {
    path: "/v1/refunds",
    carried_by: "refund.updated",
    pick: |body| if let Body::Refund(one) = body { Some(one) } else { None },
};

/// Disputes.
pub const DISPUTES: List<Dispute> = List {
    path: "/v1/disputes",
    carried_by: "charge.dispute.updated",
    pick: |body| if let Body::Dispute(one) = body { Some(one) } else { None },
};

/// An item of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Item<T> {
    /// What it is.
    pub object: T,
    /// When it was made.
    pub created: Option<UnixSeconds>,
    /// The mode, if it is told.
    pub livemode: Option<bool>,
}

impl<T> List<T> {
    /// Its pages under these filters. What cannot be read is told by its id, beside all that can.
    pub fn pages<'a>(
        &'a self,
        api: &'a dyn Api,
        query: &[(&'a str, &'a str)],
    ) -> impl Iterator<Item = Result<Vec<Result<Item<T>, NoAnswer>>, NoAnswer>> + use<'a, T> {
        Pages::new(api, self.path, query).map(|page| Ok(self.read_all(&page?)))
    }

    fn read_all(&self, page: &Page) -> Vec<Result<Item<T>, NoAnswer>> {
        let read = |json: &str| self.read(json).map_err(|problem| unreadable_item(self.path, json, problem));
        page.items.iter().map(|item| read(item.get())).collect()
    }

    fn read(&self, json: &str) -> Result<Item<T>, Unreadable> {
        let ListedObject { created, livemode } = listed::object(json)?;
        match answers::object(self.carried_by, json) {
            Body::Unreadable(problem) => Err(problem),
            body => match (self.pick)(body) {
                Some(object) => Ok(Item { object, created, livemode }),
                None => Err(Unreadable { field: "object".into(), problem: "not what this list has" }),
            },
        }
    }

    /// Its pages under these filters, as Stripe wrote them.
    pub fn texts<'a>(
        &'a self,
        api: &'a dyn Api,
        query: &[(&'a str, &'a str)],
    ) -> impl Iterator<Item = Result<Vec<Box<RawValue>>, NoAnswer>> + use<'a, T> {
        Pages::new(api, self.path, query).map(|page| Ok(page?.items))
    }

    /// One of its objects, as it is now.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn find(&self, api: &dyn Api, id: &str) -> Result<Asked<T>, NoAnswer> {
        let path = path(self.path, id);
        match ask::object(api, &path, &[])? {
            Asked::Told(json) => {
                self.read(&json.told).map(|item| Asked::Told(item.object)).map_err(|problem| unreadable(&path, problem))
            }
            Asked::NotYet | Asked::Gone => Ok(Asked::Gone),
        }
    }
}

/// All webhook endpoints.
///
/// # Errors
/// [`NoAnswer`].
pub fn endpoints(api: &dyn Api) -> Result<Vec<Endpoint>, NoAnswer> {
    const PATH: &str = "/v1/webhook_endpoints";
    let read = |item: Box<RawValue>| listed::endpoint(item.get()).map_err(|problem| unreadable(PATH, problem));
    Pages::new(api, PATH, &[]).at_most(ENDPOINT_PAGES_MAX).items().map(|item| read(item?)).collect()
}

/// The mode of the account that the key opens, as one of its customers tells it; `None`: it has none. Cheap, and
/// dated before any list begins that is asked for afterwards.
///
/// # Errors
/// [`ApiError`].
pub fn livemode(api: &dyn Api) -> Result<Dated<Option<bool>>, ApiError> {
    #[derive(Deserialize)]
    struct First {
        data: Vec<Mode>,
    }
    #[derive(Deserialize)]
    struct Mode {
        livemode: Option<bool>,
    }
    let list = CUSTOMERS.path;
    let Dated { told: body, date } = api.get(list, &[("limit", "1")])?;
    let first: First =
        serde_json::from_slice(&body).map_err(|_| ApiError::new(Kind::Garbage, list, "the answer is no list"))?;
    Ok(Dated { told: first.data.first().and_then(|customer| customer.livemode), date })
}

/// A listed subscription with all of its items. One that cannot be read is passed on as it is: whoever reads it will
/// find the same.
///
/// # Errors
/// [`NoAnswer`].
pub fn with_all_items(api: &dyn Api, json: &RawValue) -> Result<String, NoAnswer> {
    let told = json.get().to_owned();
    let Body::Subscription(subscription) = answers::object(SUBSCRIPTIONS.carried_by, &told) else {
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
    ApiError::new(Kind::Garbage, SUBSCRIPTIONS.path, reason).into()
}

/// An item of a list that cannot be read, by its id if that can.
#[must_use]
pub fn unreadable_item(list: &str, json: &str, problem: Unreadable) -> NoAnswer {
    match listed::id(json) {
        Some(id) => unreadable(path(list, &id), problem),
        None => unreadable(list, problem),
    }
}

/// An answer that cannot be read.
#[must_use]
pub fn unreadable(path: impl fmt::Display, problem: Unreadable) -> NoAnswer {
    NoAnswer::Unreadable { path: path.to_string(), problem }
}
