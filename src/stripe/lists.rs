//! The lists of Stripe that billingd walks through, page by page, and how each item is read.

use std::fmt;

use serde_json::value::RawValue;

use super::ask::{self, NoAnswer};
use super::client::{Api, Page, Pages, path};
use super::wire::answers;
use super::wire::listed::{self, ListedObject};
use crate::domain::event::{Body, Checkout, Dispute, Invoice, Refund, Subscription, UnixSeconds, Unreadable};
use crate::domain::facts::Asked;
use crate::domain::ids::{DisputeId, InvoiceId, RefundId};
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
    carried_by: &'static str,
    pick: fn(Body) -> Option<T>,
}

/// All subscriptions.
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

    /// One of its objects.
    fn find(&self, api: &dyn Api, id: &str) -> Result<Asked<T>, NoAnswer> {
        let path = path(self.path, id);
        match ask::object(api, &path, &[])? {
            Asked::Told(json) => {
                self.read(&json).map(|item| Asked::Told(item.object)).map_err(|problem| unreadable(&path, problem))
            }
            Asked::NotYet | Asked::Gone => Ok(Asked::Gone),
        }
    }
}

/// An invoice as it is now.
///
/// # Errors
/// [`NoAnswer`].
pub fn invoice(api: &dyn Api, id: &InvoiceId) -> Result<Asked<Invoice>, NoAnswer> {
    INVOICES.find(api, id.as_str())
}

/// A refund as it is now.
///
/// # Errors
/// [`NoAnswer`].
pub fn refund(api: &dyn Api, id: &RefundId) -> Result<Asked<Refund>, NoAnswer> {
    REFUNDS.find(api, id.as_str())
}

/// A dispute as it is now.
///
/// # Errors
/// [`NoAnswer`].
pub fn dispute(api: &dyn Api, id: &DisputeId) -> Result<Asked<Dispute>, NoAnswer> {
    DISPUTES.find(api, id.as_str())
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
