//! What the operator configured, as the rules need it. Built once from the config, then only read.

use std::collections::HashMap;

use crate::domain::event::{PriceRef, UnixSeconds};
use crate::domain::exchange::Conversion;
use crate::domain::money::UnitAmount;

/// Everything that decides about money and state, besides the facts.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Which mode these books are of; events of the other one are ignored.
    pub livemode: bool,
    /// `None`: the account's own events; else only those of this connected account.
    pub connected_account: Option<String>,
    /// How credits are granted.
    pub credits: Credits,
    /// The listed prices.
    pub catalogue: Catalogue,
    /// The plans.
    pub tiers: Tiers,
    /// How many failures of one event are answered 500 before it becomes a dead letter; from 1 on.
    pub max_attempts: u32,
    /// There is a key for Stripe's API: what only Stripe can tell is worth waiting for.
    pub asks_stripe: bool,
}

impl Policy {
    /// A price must be in the list. Who has none and grants by the money paid misses nothing.
    #[must_use]
    pub fn lists_prices(&self) -> bool {
        !self.catalogue.is_empty() || self.credits.basis == Basis::Catalogue
    }
}

/// `[credits]`
#[derive(Debug, Clone)]
pub struct Credits {
    /// What was settled before this moment belongs to the former system.
    pub since: Option<UnixSeconds>,
    /// What a grant is computed from.
    pub basis: Basis,
    /// Lines of changes in the middle of a period count.
    pub prorate: bool,
    /// A line with a price that is not listed fails its event; else it grants nothing.
    pub unlisted_price_fails: bool,
}

/// What a grant is computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// The money paid, in its own currency (`None`) or converted into one.
    AmountPaid(Option<Conversion>),
    /// The price list only.
    Catalogue,
}

/// The `[[price]]` list.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    rules: HashMap<String, PriceRule>,
}

/// What one listed price means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceRule {
    /// The plan that it stands for.
    pub tier: Option<String>,
    /// Credits per unit of quantity, or per invoice; 0: grants nothing.
    pub credits: i64,
    /// Once per invoice instead of per unit of quantity.
    pub per_invoice: bool,
    /// The unit of the credits.
    pub unit: String,
    /// Its full price in minor units, where neither an event nor the API tells.
    pub unit_amount: Option<UnitAmount>,
    /// It belongs to another product on the same Stripe account.
    pub foreign: bool,
}

impl Catalogue {
    /// A catalogue of these rules, by price id, product id or lookup key.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = (String, PriceRule)>) -> Self {
        Self { rules: rules.into_iter().collect() }
    }

    /// The rule for a price: by its own id, else its product, else its lookup key.
    #[must_use]
    pub fn rule(&self, price: &PriceRef) -> Option<&PriceRule> {
        self.rules
            .get(price.id.as_str())
            .or_else(|| self.rules.get(price.product.as_deref()?))
            .or_else(|| self.rules.get(price.lookup_key.as_deref()?))
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// `[tiers]` and `[access]`.
#[derive(Debug, Clone, Default)]
pub struct Tiers {
    /// Lowest first.
    pub order: Vec<String>,
    /// A higher tier is kept until it is paid through.
    pub keep_until_period_end: bool,
    /// A trial gives its tier.
    pub access_trialing: bool,
    /// An overdue subscription gives its tier.
    pub access_past_due: bool,
    /// An unpaid subscription gives its tier.
    pub access_unpaid: bool,
    /// A subscription whose collection is paused gives its tier.
    pub access_collection_paused: bool,
}

impl Tiers {
    /// The place of a tier in the order, from 1 on; 0 for no tier, and for one that is not listed any more.
    #[must_use]
    pub fn rank(&self, tier: Option<&str>) -> usize {
        tier.and_then(|tier| self.order.iter().position(|listed| listed == tier)).map_or(0, |position| position + 1)
    }
}
