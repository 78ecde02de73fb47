//! How states and snapshots of a subscription are written: our own JSON, with nothing private in it.

use serde::{Deserialize, Serialize};

use crate::domain::event::{PriceRef, Trace, UnixSeconds};
use crate::domain::ids::{AccountId, EventId, PriceId, SubscriptionId};
use crate::domain::subscription::{Item, Listed, Place, Snapshot, State};
use crate::store::StoreError;

/// How a snapshot is written.
#[derive(Serialize, Deserialize)]
pub(super) struct SnapshotText {
    event: String,
    at: UnixSeconds,
    place: PlaceText,
    values: Vec<(u64, u64)>,
    previous: Option<Vec<(u64, u64)>>,
    #[serde(flatten)]
    state: StateText,
}

/// How a state is written, here and in the audit log.
#[derive(PartialEq, Serialize, Deserialize)]
pub(crate) struct StateText {
    account: Option<String>,
    status: String,
    items: Vec<ItemText>,
    current_period_end: Option<UnixSeconds>,
    ends_at: Option<UnixSeconds>,
    collection_paused: bool,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct ItemText {
    id: String,
    price: String,
    product: Option<String>,
    lookup_key: Option<String>,
    quantity: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlaceText {
    Created,
    Plain,
    Change,
    Deleted,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ListedText {
    event: String,
    at: UnixSeconds,
    place: PlaceText,
    tier: Option<String>,
}

impl PlaceText {
    fn of(place: Place) -> Self {
        match place {
            Place::Created => Self::Created,
            Place::Plain => Self::Plain,
            Place::Change => Self::Change,
            Place::Deleted => Self::Deleted,
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::Created => Place::Created,
            Self::Plain => Place::Plain,
            Self::Change => Place::Change,
            Self::Deleted => Place::Deleted,
        }
    }
}

impl StateText {
    pub(crate) fn of(state: &State) -> Self {
        let item = |item: &Item| ItemText {
            id: item.id.clone(),
            price: item.price.id.to_string(),
            product: item.price.product.clone(),
            lookup_key: item.price.lookup_key.clone(),
            quantity: item.quantity,
        };
        Self {
            account: state.account.as_ref().map(ToString::to_string),
            status: state.status.clone(),
            items: state.items.iter().map(item).collect(),
            current_period_end: state.current_period_end,
            ends_at: state.ends_at,
            collection_paused: state.collection_paused,
        }
    }

    pub(super) fn state(self, id: &SubscriptionId) -> Result<State, StoreError> {
        let items = self.items.into_iter().map(|item| {
            let price = PriceId::parse(&item.price).map_err(|_| damaged(id, "a price has no id"))?;
            let price = PriceRef { id: price, product: item.product, lookup_key: item.lookup_key };
            Ok(Item { id: item.id, price, quantity: item.quantity })
        });
        let account = self.account.as_deref().map(AccountId::parse).transpose();
        Ok(State {
            account: account.map_err(|_| damaged(id, "the account has no id"))?,
            status: self.status,
            items: items.collect::<Result<_, StoreError>>()?,
            current_period_end: self.current_period_end,
            ends_at: self.ends_at,
            collection_paused: self.collection_paused,
        })
    }
}

impl SnapshotText {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            event: snapshot.event.to_string(),
            at: snapshot.at,
            place: PlaceText::of(snapshot.place),
            values: snapshot.trace.values.clone(),
            previous: snapshot.trace.previous.clone(),
            state: StateText::of(&snapshot.state),
        }
    }

    pub(super) fn snapshot(self, id: &SubscriptionId) -> Result<Snapshot, StoreError> {
        Ok(Snapshot {
            event: EventId::parse(&self.event).map_err(|_| damaged(id, "an event has no id"))?,
            at: self.at,
            place: self.place.place(),
            trace: Trace { values: self.values, previous: self.previous },
            state: self.state.state(id)?,
        })
    }
}

impl ListedText {
    pub(super) fn of(listed: &Listed) -> Self {
        Self {
            event: listed.event.to_string(),
            at: listed.at,
            place: PlaceText::of(listed.place),
            tier: listed.tier.clone(),
        }
    }

    pub(super) fn listed(self, id: &SubscriptionId) -> Result<Listed, StoreError> {
        Ok(Listed {
            at: self.at,
            place: self.place.place(),
            event: EventId::parse(&self.event).map_err(|_| damaged(id, "an event has no id"))?,
            tier: self.tier,
        })
    }
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Damaged {
        what: "a snapshot of a subscription".into(),
        problem: error.to_string(),
    })
}

pub(super) fn from_json<'a, T: Deserialize<'a>>(id: &SubscriptionId, text: &'a str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| damaged(id, error.to_string()))
}

fn damaged(id: &SubscriptionId, problem: impl Into<String>) -> StoreError {
    StoreError::Damaged { what: format!("the snapshots of subscription {id}"), problem: problem.into() }
}
