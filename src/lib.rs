//! billingd

pub mod domain;
pub mod stripe;
