//! `customer.subscription.*`: the period stood at the top until 2025-02-24 and stands in the items since; before
//! there were items, a subscription had one plan.

use std::borrow::Cow;

use serde::Deserialize;

use super::field::{Field, List, Metadata, Reference, Shape, object_shapes, unreadable};
use super::price::RawPrice;
use crate::domain::event::{Subscription, SubscriptionItem, Trace, Unreadable};
use crate::domain::ids::{AccountId, SubscriptionId};

/// A subscription as Stripe renders it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawSubscription<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    customer: Field<Reference<'a>>,
    customer_account: Field<Reference<'a>>,
    status: Field<Cow<'a, str>>,
    items: Field<List<RawItem<'a>>>,
    plan: Field<RawPrice<'a>>,
    quantity: Field<i64>,
    current_period_end: Field<i64>,
    cancel_at: Field<i64>,
    cancel_at_period_end: Field<bool>,
    ended_at: Field<i64>,
    pause_collection: Field<bool>,
    metadata: Field<Metadata<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawItem<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
    price: Field<RawPrice<'a>>,
    plan: Field<RawPrice<'a>>,
    quantity: Field<i64>,
    current_period_end: Field<i64>,
}

object_shapes!(RawItem<'a>);

impl RawSubscription<'_> {
    pub(super) fn read(&self, metadata_key: &str, trace: Trace) -> Result<Subscription, Unreadable> {
        Ok(Subscription {
            id: self.id_or_customer()?,
            customer: self.customer.id(AccountId::parse).or_else(|| self.customer_account.id(AccountId::parse)),
            status: self.status.need("status")?.clone().into_owned(),
            items: self.items()?,
            items_truncated: self.items_truncated(),
            current_period_end: self.current_period_end()?,
            cancel_at: self.cancel_at.allow_null("cancel_at")?.copied(),
            cancel_at_period_end: self.cancel_at_period_end.allow_null("cancel_at_period_end")? == Some(&true),
            ended_at: self.ended_at.allow_null("ended_at")?.copied(),
            // An object, whose presence is all that counts.
            collection_paused: !self.pause_collection.is_empty() && self.pause_collection.told() != Some(&false),
            reference: self.metadata.text(metadata_key).map(str::to_owned),
            trace,
        })
    }

    /// Until August 2013 a customer had one subscription, which had no id: the customer's stands for it.
    fn id_or_customer(&self) -> Result<SubscriptionId, Unreadable> {
        let id = match self.id.allow_null("id")? {
            Some(id) => SubscriptionId::parse(id),
            None => match self.customer.id(AccountId::parse) {
                Some(customer) => SubscriptionId::parse(customer.as_str()),
                None => return Err(unreadable("id", "missing")),
            },
        };
        id.map_err(|_| unreadable("id", "not an id"))
    }

    fn items(&self) -> Result<Vec<SubscriptionItem>, Unreadable> {
        let Some(items) = self.items.items() else {
            return Ok(self.only_plan()?.into_iter().collect());
        };
        let read = |(index, item): (usize, &Field<RawItem<'_>>)| {
            let path = |name: &str| format!("items.data[{index}]{name}");
            item.need(path(""))?.read(path)
        };
        items.iter().enumerate().map(read).collect()
    }

    /// The plan stands for an item, and lends it its id.
    fn only_plan(&self) -> Result<Option<SubscriptionItem>, Unreadable> {
        let Some((plan, price)) = self.plan.told().and_then(|plan| Some((plan, plan.reference()?))) else {
            return Ok(None);
        };
        let quantity = self.quantity.allow_null("quantity")?.copied();
        let (unit, currency) = (plan.unit(), plan.currency());
        Ok(Some(SubscriptionItem { id: price.id.as_str().to_owned(), price, unit, currency, quantity }))
    }

    /// Without a list, the plan is all there is; without either, somebody else must tell.
    fn items_truncated(&self) -> bool {
        let has_list = self.items.told().map_or(!self.items.is_empty(), |list| !list.data.is_empty());
        let has_plan = self.plan.told().is_some_and(|plan| plan.reference().is_some());
        if has_list { self.items.is_truncated() } else { !has_plan }
    }

    fn current_period_end(&self) -> Result<Option<i64>, Unreadable> {
        let items = self.items.items().unwrap_or_default().iter().filter_map(Field::told);
        let latest = items.filter_map(|item| item.current_period_end.told()).max();
        let end = latest.map_or_else(|| self.current_period_end.allow_null("current_period_end"), |end| Ok(Some(end)));
        Ok(end?.copied())
    }
}

impl RawItem<'_> {
    pub(super) fn read(&self, path: impl Fn(&'static str) -> String) -> Result<SubscriptionItem, Unreadable> {
        let embedded = || [self.price.told(), self.plan.told()].into_iter().flatten();
        let chosen = embedded().find_map(|price| Some((price, price.reference()?)));
        let (raw, price) = chosen.ok_or_else(|| unreadable(path(".price"), "missing, or without an id"))?;
        Ok(SubscriptionItem {
            id: self.id.told().map_or_else(|| price.id.as_str().to_owned(), |id| id.clone().into_owned()),
            price,
            unit: raw.unit(),
            currency: raw.currency(),
            quantity: self.quantity.allow_null(path(".quantity"))?.copied(),
        })
    }
}
