//! All integration tests in one binary.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod stored;
