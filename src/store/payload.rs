//! How payloads are kept: zstd with a dictionary that is part of the binary and, by its id, of the database.
//!
//! Stripe's events are alike, so a dictionary makes them an order of magnitude smaller and faster to write. An event
//! of an unforeseen shape only compresses less.

use std::cell::RefCell;

use rusqlite::{Connection, OptionalExtension as _, named_params};
use sha2::{Digest as _, Sha256};
use zstd::bulk::{Compressor, Decompressor};

use crate::clock::UnixMillis;
use crate::domain::event::UnixSeconds;
use crate::domain::ids::EventId;
use crate::store::StoreError;

/// Trained on our own sample events; see `tests/it/dictionary.rs`.
static DICTIONARY: &[u8] = include_bytes!("payload.dictionary");

const LEVEL: i32 = 1;

/// No payload that was ever accepted is larger than this when it is unpacked.
const UNPACKED_BYTES_MAX: usize = 64 << 20;

/// A payload, ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    packed: Vec<u8>,
    digest: [u8; 32],
}

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

impl Payload {
    /// Compresses a body as it was received.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when there is no memory for it.
    pub fn pack(body: &[u8]) -> Result<Self, StoreError> {
        COMPRESSOR.with_borrow_mut(|slot| {
            let compressor = match slot {
                Some(compressor) => compressor,
                None => slot.insert(Compressor::with_dictionary(LEVEL, DICTIONARY).map_err(|error| damaged(&error))?),
            };
            let packed = compressor.compress(body).map_err(|error| damaged(&error))?;
            Ok(Self { packed, digest: Sha256::digest(body).into() })
        })
    }

    /// The body again.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it cannot be unpacked to the bytes that were packed.
    pub(super) fn unpack(&self) -> Result<Vec<u8>, StoreError> {
        let body = unpack(DICTIONARY, &self.packed).map_err(|error| damaged(&error))?;
        if Sha256::digest(&body)[..] != self.digest {
            return Err(StoreError::Damaged { what: "a payload".into(), problem: "its digest does not fit".into() });
        }
        Ok(body)
    }

    /// As a file of our own keeps it, for as long as one run.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [&self.digest[..], &self.packed].concat()
    }

    /// What [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is cut off.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let (digest, packed) = bytes
            .split_first_chunk::<32>()
            .ok_or_else(|| StoreError::Damaged { what: "a payload".into(), problem: "it is cut off".into() })?;
        Ok(Self { packed: packed.to_vec(), digest: *digest })
    }

    /// Size on disk, in bytes.
    #[must_use]
    pub fn packed_bytes(&self) -> usize {
        self.packed.len()
    }
}

fn damaged(error: &std::io::Error) -> StoreError {
    StoreError::Damaged { what: "a payload".into(), problem: error.to_string() }
}

/// The id that the frames of the built-in dictionary carry.
fn dictionary_id() -> Option<u32> {
    zstd::zstd_safe::get_dict_id_from_dict(DICTIONARY).map(u32::from)
}

/// Keeps the dictionary in the database, so that it can be read by any later build.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn keep_dictionary(connection: &Connection) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO payload_dictionaries (dictionary_id, content) VALUES (:id, :content)
         ON CONFLICT (dictionary_id) DO NOTHING",
        named_params! { ":id": dictionary_id().unwrap_or_default(), ":content": DICTIONARY },
    )?;
    Ok(())
}

/// Keeps the payload of an event; the first delivery's stays.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn insert(connection: &Connection, event: &EventId, payload: &Payload) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO event_payloads (event_id, body, digest) VALUES (:event, :body, :digest)
             ON CONFLICT (event_id) DO NOTHING",
        )?
        .execute(named_params! { ":event": event, ":body": payload.packed, ":digest": payload.digest })?;
    Ok(())
}

/// The object that a thin event names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched<T> {
    /// The object; empty if Stripe does not have it.
    pub object: T,
    /// When it was asked for, by our clock.
    pub asked_at: UnixMillis,
    /// When Stripe answered, by its own clock.
    pub told_at: UnixSeconds,
}

/// Keeps the object that a thin event names; the newest answer counts.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn save_fetched(connection: &Connection, event: &EventId, fetched: &Fetched<Payload>) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE event_payloads SET object = :object, object_at = :asked_at, object_told_at = :told_at
             WHERE event_id = :event",
        )?
        .execute(named_params! {
            ":event": event, ":object": fetched.object.packed, ":asked_at": fetched.asked_at,
            ":told_at": fetched.told_at,
        })?;
    Ok(())
}

/// The object that a thin event names; `None` if nobody has asked for it.
///
/// # Errors
/// [`StoreError::Damaged`] when it cannot be unpacked.
pub fn read_fetched(connection: &Connection, event: &EventId) -> Result<Option<Fetched<Vec<u8>>>, StoreError> {
    let row = connection
        .prepare_cached(
            "SELECT object, object_at, coalesce(object_told_at, object_at / 1000) AS object_told_at FROM event_payloads
             WHERE event_id = :event AND object IS NOT NULL",
        )?
        .query_row(named_params! { ":event": event }, |row| {
            let object: Vec<u8> = row.get("object")?;
            Ok(Fetched { object, asked_at: row.get("object_at")?, told_at: row.get("object_told_at")? })
        })
        .optional()?;
    let Some(held) = row else { return Ok(None) };
    let object = unpack(&dictionary_of(connection, &held.object)?, &held.object).map_err(|error| {
        StoreError::Damaged { what: format!("the object that {event} names"), problem: error.to_string() }
    })?;
    Ok(Some(Fetched { object, ..held }))
}

/// Whether the payload of an event is kept.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn is_kept(connection: &Connection, event: &str) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM event_payloads WHERE event_id = :event)")?
        .query_row(named_params! { ":event": event }, |row| row.get(0))?)
}

/// The body of an event as it was received; `None` if it was not kept, or not kept until now.
///
/// # Errors
/// [`StoreError::Damaged`] when it cannot be unpacked to the bytes that were received.
pub fn read(connection: &Connection, event: &EventId) -> Result<Option<Vec<u8>>, StoreError> {
    let row = connection
        .prepare_cached("SELECT body, digest FROM event_payloads WHERE event_id = :event")?
        .query_row(named_params! { ":event": event }, |row| {
            Ok((row.get::<_, Vec<u8>>("body")?, row.get::<_, Vec<u8>>("digest")?))
        })
        .optional()?;
    let Some((packed, digest)) = row else { return Ok(None) };
    let broken = |problem: String| StoreError::Damaged { what: format!("the payload of {event}"), problem };
    let body = unpack(&dictionary_of(connection, &packed)?, &packed).map_err(|error| broken(error.to_string()))?;
    if Sha256::digest(&body)[..] != digest[..] {
        return Err(broken("its digest does not fit".into()));
    }
    Ok(Some(body))
}

fn unpack(dictionary: &[u8], packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let bytes = Decompressor::upper_bound(packed).unwrap_or(UNPACKED_BYTES_MAX).min(UNPACKED_BYTES_MAX);
    Decompressor::with_dictionary(dictionary)?.decompress(packed, bytes)
}

fn dictionary_of(connection: &Connection, packed: &[u8]) -> Result<Vec<u8>, StoreError> {
    let id = zstd::zstd_safe::get_dict_id_from_frame(packed).map(u32::from);
    if id == dictionary_id() {
        return Ok(DICTIONARY.to_vec());
    }
    Ok(connection
        .prepare_cached("SELECT content FROM payload_dictionaries WHERE dictionary_id = :id")?
        .query_row(named_params! { ":id": id.unwrap_or_default() }, |row| row.get("content"))
        .optional()?
        .unwrap_or_default())
}
