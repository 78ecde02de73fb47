//! How our own types stand in a column.

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

use crate::domain::decision::Outcome;
use crate::domain::fact::Fact;
use crate::domain::ids::{
    AccountId, ChargeId, CheckoutId, DisputeId, EventId, InvoiceId, PaymentId, PriceId, RefundId, SubscriptionId,
};
use crate::domain::money::Currency;

macro_rules! text_column {
    ($($name:ty),+) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.as_str().as_bytes())))
            }
        }
    )+};
}

macro_rules! id_column {
    ($($name:ty),+) => {$(
        text_column!($name);

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                Self::parse(value.as_str()?).map_err(|error| FromSqlError::Other(Box::new(error)))
            }
        }
    )+};
}

id_column!(
    AccountId,
    ChargeId,
    CheckoutId,
    Currency,
    DisputeId,
    EventId,
    InvoiceId,
    PaymentId,
    PriceId,
    RefundId,
    SubscriptionId
);
text_column!(Fact, Outcome);

impl FromSql for Fact {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self::stored(value.as_str()?))
    }
}
