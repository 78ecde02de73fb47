//! Bodies, bounded while they arrive: each by `max_body`, and all of them together by one budget, so that neither one
//! large upload nor thousands of slow ones take more memory than that.

use std::sync::Arc;

use actix_web::http::header::CONTENT_LENGTH;
use actix_web::{HttpRequest, web};
use futures_util::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all bodies that are arriving or waiting may take together.
const BUDGET_BYTES: usize = 32 << 20;

/// Permits to hold bytes of bodies.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Semaphore>);

impl Budget {
    /// A budget that has room for at least one body of the largest size.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(BUDGET_BYTES.max(body_bytes_max))))
    }

    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }
}

/// A whole body with its part of the budget.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: web::Bytes,
    held: Held,
}

/// A part of the budget, held for as long as it lives.
#[derive(Debug)]
pub(super) struct Held(#[expect(dead_code, reason = "what counts is when it is dropped")] Option<OwnedSemaphorePermit>);

impl Body {
    /// Gives the bytes up and keeps their part of the budget, for what was made of them.
    pub(super) fn into_held(self) -> Held {
        self.held
    }
}

/// Why a body was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// Larger than one body may be.
    TooLarge,
    /// Too many bodies at a time.
    Overloaded,
    /// The client went away, or sent no proper body.
    Broken,
}

/// Reads the body of a request.
pub(super) async fn read(
    request: &HttpRequest,
    mut payload: web::Payload,
    bytes_max: usize,
    budget: &Budget,
) -> Result<Body, NotTaken> {
    if announced(request).is_some_and(|length| length > bytes_max) {
        return Err(NotTaken::TooLarge);
    }
    let mut held: Option<OwnedSemaphorePermit> = None;
    let mut bytes = web::BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| NotTaken::Broken)?;
        if bytes.len() + chunk.len() > bytes_max {
            return Err(NotTaken::TooLarge);
        }
        let more = budget.take(chunk.len()).ok_or(NotTaken::Overloaded)?;
        match &mut held {
            Some(permit) => permit.merge(more),
            None => held = Some(more),
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Body { bytes: bytes.freeze(), held: Held(held) })
}

/// The length that the client announced, if it did.
fn announced(request: &HttpRequest) -> Option<usize> {
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
