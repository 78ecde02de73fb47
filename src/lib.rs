//! billingd

pub mod config;
