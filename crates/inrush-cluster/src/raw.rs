//! Values of any type, as they come.

use std::error::Error;
use tokio_postgres::types::{FromSql, Type};

/// A value as its type's send function gives it.
pub(crate) struct Raw(pub Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw.to_owned()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
