//! The type a column of a file would have in a table made for it.

use arrow_schema::{DataType, Field, TimeUnit};
use inrush_core::BaseType;

/// The name of a field's metadata that holds its extension type (Arrow columnar format, "Extension types").
const EXTENSION: &str = "ARROW:extension:name";

/// The SQL type that takes every value of a field: unsigned integers go one size up, nanoseconds are rounded
/// to microseconds, structs and maps are jsonb. `None` for types that cannot be loaded.
pub fn sql_type(field: &Field) -> Option<String> {
    match field.metadata().get(EXTENSION).map(String::as_str) {
        Some("arrow.uuid") => return Some("uuid".to_owned()),
        Some("arrow.json") => return Some("json".to_owned()),
        _ => {}
    }
    Some(match field.data_type() {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => match scale {
            0.. => format!("numeric({precision},{scale})"),
            // A negative scale in a type modifier needs PostgreSQL 15; without one every value fits too.
            _ => "numeric".to_owned(),
        },
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => array_of(element)?,
        DataType::Dictionary(_, values) => sql_type(&Field::new("", values.as_ref().clone(), true))?,
        other => plain(other)?.to_owned(),
    })
}

/// As [`sql_type`], from the base types alone: without the precision of a numeric, and jsonb for a list.
pub fn base_type(field: &Field) -> Option<BaseType> {
    let name = sql_type(field)?;
    if name.ends_with("[]") {
        return Some(BaseType::Jsonb);
    }
    Some(match name.split('(').next().unwrap_or_default() {
        "timestamp" => BaseType::Timestamp,
        "timestamptz" => BaseType::Timestamptz,
        "time" => BaseType::Time,
        name => BaseType::ALL.iter().copied().find(|base| base.sql() == name).unwrap_or(BaseType::Text),
    })
}

fn array_of(element: &Field) -> Option<String> {
    let element = sql_type(element)?;
    Some(match element.as_str() {
        // A list in a list need not be rectangular as an array must.
        "jsonb" => element,
        nested if nested.ends_with("[]") => "jsonb".to_owned(),
        _ => format!("{element}[]"),
    })
}

fn plain(ty: &DataType) -> Option<&'static str> {
    Some(match ty {
        DataType::Boolean => "boolean",
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint",
        DataType::Int32 | DataType::UInt16 => "integer",
        DataType::Int64 | DataType::UInt32 => "bigint",
        DataType::UInt64 => "numeric(20,0)",
        DataType::Float16 | DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea"
        }
        DataType::Date32 => "date",
        // Milliseconds that should be whole days and in some files are not.
        DataType::Date64 | DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamptz",
        DataType::Time32(TimeUnit::Second | TimeUnit::Millisecond) => "time",
        DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond) => "time",
        DataType::Duration(_) | DataType::Interval(_) => "interval",
        DataType::Struct(_) | DataType::Map(..) => "jsonb",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn of(ty: DataType) -> Option<String> {
        sql_type(&Field::new("c", ty, true))
    }

    #[test]
    fn every_value_fits() {
        assert_eq!(of(DataType::UInt32).as_deref(), Some("bigint"));
        assert_eq!(of(DataType::UInt64).as_deref(), Some("numeric(20,0)"));
        assert_eq!(of(DataType::Decimal128(10, 2)).as_deref(), Some("numeric(10,2)"));
        assert_eq!(of(DataType::Decimal128(10, -2)).as_deref(), Some("numeric"));
        let list = |ty| DataType::List(Arc::new(Field::new("item", ty, true)));
        assert_eq!(of(list(DataType::Int32)).as_deref(), Some("integer[]"));
        assert_eq!(of(list(list(DataType::Int32))).as_deref(), Some("jsonb"));
        let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        assert_eq!(of(words).as_deref(), Some("text"));
        let uuid = Field::new("u", DataType::FixedSizeBinary(16), true).with_metadata(
            std::collections::HashMap::from([(EXTENSION.to_owned(), "arrow.uuid".to_owned())]),
        );
        assert_eq!(sql_type(&uuid).as_deref(), Some("uuid"));
    }
}
