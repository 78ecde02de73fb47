//! The sections that decide about money: whose credits, which tiers, how much for what.
//!
//! What they say, but for where rates come from, goes into the digest by which a server and a command beside it know that they apply the same rules.

use std::time::Duration;

use serde::Deserialize;

use super::address::UrlSource;
use super::units::{self, words};

/// `[accounts]`: how a customer is tied to the user's own id.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accounts {
    /// The metadata key that carries it.
    pub metadata_key: String,
}

/// `[tiers]`: the plans and their order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiers {
    /// Their names, the lowest first.
    pub order: Vec<String>,
    /// When a change to a cheaper price lowers the tier.
    pub downgrade: Downgrade,
}

words! {
    /// When a change to a cheaper price lowers the tier.
    Downgrade {
        /// At once.
        Immediate = "immediate",
        /// When what is paid for is over.
        PeriodEnd = "period_end",
    }
}

/// `[access]`: which states of a subscription give its tier.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// In a trial.
    pub trialing: bool,
    /// A payment is late and Stripe is still trying.
    pub past_due: bool,
    /// Stripe has stopped trying.
    pub unpaid: bool,
    /// Collecting payments was paused.
    pub collection_paused: bool,
}

/// `[credits]`: what a payment grants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credits {
    /// Unix seconds; what was settled before belongs to older books.
    #[serde(deserialize_with = "units::moment")]
    pub since: Option<i64>,
    /// What decides about the amount.
    pub basis: Basis,
    /// The currency that amounts are converted to, in lower case; none: each currency by itself.
    #[serde(deserialize_with = "units::optional_currency")]
    pub unit: Option<String>,
    /// What a change within a period grants.
    pub proration: Proration,
    /// What a paid line with an unlisted price does.
    pub unlisted_price: UnlistedPrice,
}

words! {
    /// What decides about the amount of a grant.
    Basis {
        /// The money that was paid.
        AmountPaid = "amount_paid",
        /// The price list.
        Catalogue = "catalogue",
    }
}

words! {
    /// What a change within a period grants.
    Proration {
        /// Its share.
        Prorate = "prorate",
        /// Nothing.
        None = "none",
    }
}

words! {
    /// What a paid line with an unlisted price does.
    UnlistedPrice {
        /// The whole event fails.
        Fail = "fail",
        /// The line grants nothing.
        Ignore = "ignore",
    }
}

/// `[fx]`: exchange rates.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fx {
    /// The currency that the rates are told in, in lower case.
    #[serde(deserialize_with = "units::currency")]
    pub base: String,
    /// Where they come from.
    pub url: UrlSource,
    /// How much older than the payment a rate may be; whole days count.
    #[serde(deserialize_with = "units::duration")]
    pub max_age: Duration,
}

/// `[[price]]`: one entry of the price list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The id of a price or product, or a lookup key.
    pub id: String,
    /// The tier that a subscription to it gives.
    #[serde(default)]
    pub tier: Option<String>,
    /// The credits that it grants.
    #[serde(default)]
    pub credits: Option<i64>,
    /// What the credits are counted by.
    #[serde(default = "per_unit")]
    pub per: Per,
    /// What the credits are called.
    #[serde(default = "credits")]
    pub unit: String,
    /// Its full price in minor units.
    #[serde(default)]
    pub unit_amount: Option<i64>,
    /// It belongs to another product on the same Stripe account.
    #[serde(default)]
    pub foreign: bool,
}

words! {
    /// What the credits of a price are counted by.
    Per {
        /// The quantity.
        Unit = "unit",
        /// The invoice: once.
        Invoice = "invoice",
    }
}

fn per_unit() -> Per {
    Per::Unit
}

fn credits() -> String {
    "credits".to_owned()
}
