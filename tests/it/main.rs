//! All integration tests in one binary.

#[cfg(test)]
mod adjust;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod http;
#[cfg(test)]
mod incident;
#[cfg(test)]
mod store;
#[cfg(test)]
mod tidy;
