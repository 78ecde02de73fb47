//! A Stripe of our own, as far as billing goes: objects, what happens to them, and the events that tell of it.
//!
//! It knows nothing of billingd. What happens comes from a seed; every event is rendered in one of the two families of
//! shapes. The property test shuffles what it tells, the model computes from its objects what the books must be.

pub(crate) mod render;
pub(crate) mod rng;
pub(crate) mod world;

pub(crate) use rng::Rng;
pub(crate) use world::{Action, Told, World};
