//! Which signing secret verified last, for whoever changes one: noted at the door, written with a batch.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use crate::clock::UnixMillis;
use crate::store::{StoreError, meta};

/// How often it is written at most, in milliseconds.
const WRITE_EVERY_MS: i64 = 60_000;

/// What each webhook saw last. Cloning shares it. A crash loses a minute.
#[derive(Debug, Clone, Default)]
pub struct Verified(Arc<Mutex<Vec<Seen>>>);

#[derive(Debug)]
struct Seen {
    path: String,
    /// The position of the secret, from 0 on, and when.
    last: Option<(usize, UnixMillis)>,
    written_at: Option<UnixMillis>,
}

impl Verified {
    /// Nothing was seen yet at these paths.
    pub fn new(paths: impl IntoIterator<Item = String>) -> Self {
        let seen = paths.into_iter().map(|path| Seen { path, last: None, written_at: None });
        Self(Arc::new(Mutex::new(seen.collect())))
    }

    /// The secret at position `secret` verified a request to the webhook at position `webhook`.
    pub fn note(&self, webhook: usize, secret: usize, now: UnixMillis) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = all.get_mut(webhook) {
            seen.last = Some((secret, now));
        }
    }

    /// Writes what was noted since it was written last, if that is long enough ago.
    pub(super) fn write(&self, connection: &Connection, now: UnixMillis) -> Result<(), StoreError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for seen in all.iter_mut().filter(|seen| !seen.is_fresh(now)) {
            if let Some((secret, at)) = seen.last.take() {
                meta::set(connection, &key(&seen.path), &format!("{secret} {}", at / 1000))?;
                seen.written_at = Some(now);
            }
        }
        Ok(())
    }
}

impl Seen {
    /// It was written just now, and not before the clock was set back.
    fn is_fresh(&self, now: UnixMillis) -> bool {
        self.written_at.is_some_and(|at| (0..WRITE_EVERY_MS).contains(&(now - at)))
    }
}

/// The position of the secret that verified last at this path, from 0 on, and when, in Unix seconds.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn last_verified(connection: &Connection, path: &str) -> Result<Option<(usize, i64)>, StoreError> {
    let held = meta::get(connection, &key(path))?;
    Ok(held.and_then(|held| {
        let (secret, at) = held.split_once(' ')?;
        Some((secret.parse().ok()?, at.parse().ok()?))
    }))
}

/// Forgets which one it was: a server that starts may have other secrets.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn forget_verified(connection: &Connection, path: &str) -> Result<(), StoreError> {
    meta::remove(connection, &key(path))
}

fn key(path: &str) -> String {
    format!("verified:{}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_delays_nobody() {
        const WRITTEN: UnixMillis = 6 * 3_600_000;
        for (now, is_fresh) in [(WRITTEN, true), (WRITTEN + WRITE_EVERY_MS, false), (0, false)] {
            let seen = Seen { path: "/".into(), last: None, written_at: Some(WRITTEN) };
            assert_eq!(seen.is_fresh(now), is_fresh, "{now}");
        }
    }
}
