//! How a page reads the books and changes them: beside the thread that serves, by the operations of every door.

use actix_web::web;
use rusqlite::Connection;

use super::fault::Fault;
use crate::http::private::{Operator, Private};
use crate::ops::ingest::{Errand, Ingest};
use crate::store::StoreError;
use crate::store::writer::Writer;

/// Reads the books.
pub(super) async fn read<T: Send + 'static>(
    private: &web::Data<Private>,
    work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Fault> {
    Ok(private.lists.read(move |reader| reader.read(work)).await?)
}

/// Calls an operation that writes. What it refuses, by an `E`, is the page's to tell.
pub(super) async fn write<T: Send + 'static, E: Send + 'static>(
    private: &web::Data<Private>,
    work: impl FnOnce(&mut Writer<Ingest>) -> Result<T, E> + Send + 'static,
) -> Result<Result<T, E>, Fault> {
    Ok(private.write(move |desk| Ok::<_, StoreError>(work(desk))).await?)
}

/// What runs events on behalf of an operator.
pub(super) fn errand(private: &Private, operator: &Operator) -> Errand {
    Errand::new(private.rules.clone(), &format!("operator:{}", operator.name))
}
