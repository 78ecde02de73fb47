//! The rules of money and state, as pure functions of facts.
//!
//! Nothing here reads a clock, a file, a socket, a database or JSON, and nothing here is async: every function
//! takes what is known and returns plain data. `ops` loads the facts and carries the results out; the tests of this
//! module need nothing but this module.
//!
//! Reading order: [`ids`], [`fact`], [`money`] and [`exchange`] are the atoms, [`event`] is what Stripe told us in our own words,
//! [`policy`] is what the operator configured; [`grant`], [`clawback`] and [`subscription`] are the rules of credits,
//! of taking them back and of tiers; [`decide`] puts them together, from [`facts`] to a [`decision`]; [`reconcile`] says what differs from Stripe.
//! [`alert`] says when a person is called; [`words`] has numbers and times as people read them.

pub mod alert;
pub mod clawback;
pub mod decide;
pub mod decision;
pub mod event;
pub mod exchange;
pub mod fact;
pub mod facts;
pub mod grant;
pub mod ids;
pub mod money;
pub mod policy;
pub mod reconcile;
pub mod subscription;
pub mod words;
