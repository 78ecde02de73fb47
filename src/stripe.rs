//! Everything that knows how Stripe speaks.
//!
//! [`signature`] proves that a request is Stripe's; [`wire`] reads its body, whatever the API version, into the words
//! of [`crate::domain::event`]; [`client`] asks Stripe's API, and
//! [`ask`] knows what to ask and [`lists`] what to walk through. Nothing here decides anything.

pub mod ask;
pub mod client;
pub mod lists;
pub mod signature;
pub mod wire;
