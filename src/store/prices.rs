//! What snapshots taught about prices.

use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::domain::event::{Price, Unit};
use crate::domain::ids::PriceId;
use crate::domain::money::{Currency, UnitAmount};
use crate::store::StoreError;

/// Remembers a price; that it has no unit amount is told by the price itself and stays.
///
/// # Errors
/// [`StoreError::Sql`].
pub fn learn(connection: &Connection, price: &Price) -> Result<(), StoreError> {
    let unit_amount = match &price.unit {
        Unit::Costs(amount) => Some(amount.to_string()),
        Unit::HasNone => None,
        Unit::Untold => return Ok(()),
    };
    connection
        .prepare_cached(
            "INSERT INTO prices (price_id, currency, unit_amount, product_id)
             VALUES (:price, :currency, :unit_amount, :product)
             ON CONFLICT (price_id, currency) DO UPDATE SET unit_amount = NULL
             WHERE excluded.unit_amount IS NULL AND unit_amount IS NOT NULL",
        )?
        .execute(named_params! {
            ":price": price.price.id, ":currency": price.currency, ":unit_amount": unit_amount,
            ":product": price.price.product,
        })?;
    Ok(())
}

/// What one of a price costs, as far as snapshots told.
///
/// # Errors
/// [`StoreError::Sql`]; [`StoreError::Damaged`] for an amount that was not written by [`learn`].
pub fn unit(connection: &Connection, price: &PriceId, currency: Currency) -> Result<Unit, StoreError> {
    let row: Option<Option<String>> = connection
        .prepare_cached("SELECT unit_amount FROM prices WHERE price_id = :price AND currency = :currency")?
        .query_row(named_params! { ":price": price, ":currency": currency }, |row| row.get("unit_amount"))
        .optional()?;
    match row {
        None => Ok(Unit::Untold),
        Some(None) => Ok(Unit::HasNone),
        Some(Some(text)) => UnitAmount::parse(&text).map(Unit::Costs).map_err(|_| StoreError::Damaged {
            what: format!("price {price} in {currency}"),
            problem: "its unit amount is no decimal".into(),
        }),
    }
}
