//! Everything that knows how Stripe speaks.
//!
//! [`signature`] proves that a request is Stripe's; [`wire`] reads its body, whatever the API version, into the words
//! of [`crate::domain::event`]; [`client`] asks Stripe's API, [`ask`] knows what to ask for one object, and [`lists`] for
//! all of a kind; [`made`] makes an event of an answer. Nothing here decides anything.

pub mod ask;
pub mod client;
pub mod events_file;
pub mod lists;
pub mod made;
pub mod signature;
pub mod wire;
