//! Column types and settings as the server describes them.

use inrush_core::{BaseType, PgType, TypeKind};
use inrush_encode::Session;
use tokio_postgres::Client;

pub async fn session(client: &Client) -> Session {
    let row = client
        .query_one(
            "SELECT current_setting('TimeZone'), current_setting('IntervalStyle'), current_setting('array_nulls')",
            &[],
        )
        .await
        .expect("settings");
    Session::from_settings(row.get(0), row.get(1), row.get(2))
}

pub async fn column(client: &Client, table: &str, column: &str) -> (PgType, i32) {
    let row = client
        .query_one(
            "SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = $1::text::regclass AND attname = $2::text",
            &[&table, &column],
        )
        .await
        .expect("the column");
    (pg_type(client, row.get(0)).await, row.get(1))
}

async fn pg_type(client: &Client, oid: u32) -> PgType {
    let row = client
        .query_one(
            "SELECT typname::text, typtype::text, typelem, typbasetype, typtypmod, typcategory::text
             FROM pg_type WHERE oid = $1",
            &[&oid],
        )
        .await
        .expect("the type");
    let (typtype, category): (String, String) = (row.get(1), row.get(5));
    let kind = match (BaseType::from_oid(oid), typtype.as_str(), category.as_str()) {
        (Some(base), ..) => TypeKind::Base(base),
        (_, "e", _) => TypeKind::Enum,
        (_, "d", _) => TypeKind::Domain {
            base: Box::new(Box::pin(pg_type(client, row.get(3))).await),
            typmod: row.get(4),
        },
        (_, "b", "A") => TypeKind::Array { element: Box::new(Box::pin(pg_type(client, row.get(2))).await) },
        _ => TypeKind::Other,
    };
    PgType { oid, name: row.get(0), kind }
}
