//! Events on their way into the books: fetched in the order of Stripe's lists, and told in another one, such as the
//! oldest first.
//!
//! They wait in a file without a name beside the database, packed, so that it does not matter to memory how many they
//! are; only where each one stands is kept in memory. The file is gone when the spool is dropped, or the process ends.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::domain::event::UnixSeconds;
use crate::store::StoreError;
use crate::store::payload::Payload;

/// A spool whose events come out in the order of `K`.
#[derive(Debug)]
pub struct Spool<K = UnixSeconds> {
    file: BufWriter<File>,
    length: u64,
    places: Vec<Place<K>>,
}

/// Where one event stands.
#[derive(Debug, Clone, Copy)]
struct Place<K> {
    key: K,
    offset: u64,
    length: u32,
}

impl<K: Ord + Copy> Spool<K> {
    /// An empty one, in this folder.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when nothing can be written there.
    pub fn create(folder: &Path) -> Result<Self, StoreError> {
        let file = tempfile::tempfile_in(folder).map_err(|error| failed(&error))?;
        Ok(Self { file: BufWriter::new(file), length: 0, places: Vec::new() })
    }

    /// Keeps an event.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when the disk is full, or broken.
    pub fn push(&mut self, key: K, body: &[u8]) -> Result<(), StoreError> {
        let record = Payload::pack(body)?.to_bytes();
        self.file.write_all(&record).map_err(|error| failed(&error))?;
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.places.push(Place { key, offset: self.length, length });
        self.length += u64::from(length);
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Takes up to `most` of the first, the first first; of one key, the one that was pushed last.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read back.
    pub fn take(&mut self, most: usize) -> Result<Vec<(Vec<u8>, Payload)>, StoreError> {
        self.take_whole(most, |_, _| false)
    }

    /// The same, and as many more as belong together with the last of them.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_whole(
        &mut self,
        most: usize,
        are_together: impl Fn(&K, &K) -> bool,
    ) -> Result<Vec<(Vec<u8>, Payload)>, StoreError> {
        self.file.flush().map_err(|error| failed(&error))?;
        // Stable and the last first, so that the first are at the end, and the later pushed behind the earlier.
        if !self.places.is_sorted_by(|one, other| one.key >= other.key) {
            self.places.sort_by_key(|place| std::cmp::Reverse(place.key));
        }
        let mut rest = self.places.len().saturating_sub(most);
        while let Some([next, last]) = rest.checked_sub(1).and_then(|before| self.places.get(before..=rest)) {
            if !are_together(&next.key, &last.key) {
                break;
            }
            rest -= 1;
        }
        let taken = self.places.split_off(rest);
        taken.into_iter().rev().map(|place| self.read(place)).collect()
    }

    /// Reads where the event stands. The file stays open at its end, where the next one is pushed.
    fn read(&self, place: Place<K>) -> Result<(Vec<u8>, Payload), StoreError> {
        let mut record = vec![0; place.length as usize];
        self.file.get_ref().read_exact_at(&mut record, place.offset).map_err(|error| failed(&error))?;
        let payload = Payload::from_bytes(&record)?;
        Ok((payload.unpack()?, payload))
    }
}

fn failed(error: &std::io::Error) -> StoreError {
    StoreError::unusable("the file that events wait in", format!("{error}; look at the disk of the database"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_come_out_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(folder.path()).unwrap();
        for (created, body) in [(9, "d"), (5, "c"), (5, "b"), (9, "e"), (1, "a")] {
            spool.push(created, body.as_bytes()).unwrap();
        }
        let mut told = Vec::new();
        while !spool.is_empty() {
            told.extend(spool.take(2).unwrap().into_iter().map(|(body, _)| String::from_utf8(body).unwrap()));
        }
        assert_eq!(told, ["a", "b", "c", "e", "d"]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn more_may_come_while_some_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(folder.path()).unwrap();
        let mut told = Vec::new();
        for (key, body) in [(3, "the third"), (1, "a"), (2, "second"), (4, "d")] {
            spool.push(key, body.as_bytes()).unwrap();
            spool.push(key + 10, body.as_bytes()).unwrap();
            told.extend(spool.take(1).unwrap().into_iter().map(|(body, _)| String::from_utf8(body).unwrap()));
        }
        assert_eq!(told, ["the third", "a", "second", "d"]);
        let rest: Vec<_> =
            spool.take(9).unwrap().into_iter().map(|(body, _)| String::from_utf8(body).unwrap()).collect();
        assert_eq!(rest, ["a", "second", "the third", "d"]);
    }

    #[test]
    fn what_belongs_together_comes_out_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(folder.path()).unwrap();
        for (key, body) in [((2, true), "e"), ((1, false), "a"), ((2, false), "d"), ((1, true), "b"), ((2, true), "f")]
        {
            spool.push(key, body.as_bytes()).unwrap();
        }
        spool.push((1, true), b"c").unwrap();
        let mut take = || {
            let taken = spool.take_whole(2, |one, other| one.0 == other.0).unwrap();
            taken.into_iter().map(|(body, _)| String::from_utf8(body).unwrap()).collect::<String>()
        };
        assert_eq!([take(), take(), take()], ["acb", "dfe", ""]);
    }
}
