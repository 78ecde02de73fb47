//! Ids that were seen.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// Ids that were seen, eight bytes each. Two that are taken for one, once in many billions, would hide an absence.
#[derive(Debug, Default)]
pub(super) struct Seen {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl Seen {
    pub(super) fn add(&mut self, id: &str) {
        self.hashes.insert(self.hash(id));
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.hashes.contains(&self.hash(id))
    }

    /// What stands for an id.
    pub(super) fn hash(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }
}
