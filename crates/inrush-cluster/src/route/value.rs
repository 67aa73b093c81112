//! Values of a key, as the server reads them.

use crate::raw::Raw;
use inrush_core::BaseType;
use inrush_core::{Code, Column, Error, Result, Table, TypeKind};
use inrush_route::HashKind;
use inrush_sink::failure::server_error;
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

/// A column of the key, with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyValue {
    /// The column.
    pub column: String,
    /// Its type, with modifier.
    #[serde(rename = "type")]
    pub ty: String,
    /// The value as the server writes it; `None` is NULL.
    pub value: Option<String>,
    /// How it is hashed, if that is known here.
    #[serde(skip)]
    pub(crate) kind: Option<HashKind>,
    /// Why its type is not hashed here.
    #[serde(skip)]
    pub(crate) unhashed: Option<String>,
    /// As it was given.
    #[serde(skip)]
    given: Option<String>,
    /// What turns the given text into the value, with `$` for the parameter.
    #[serde(skip)]
    cast: String,
    /// The value as its type's send function gives it; `None` also where it was not asked for.
    #[serde(skip)]
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Name of the type with modifier, and the collation if it is not the type's own. format_type() writes a bare character as
/// `bpchar`.
const COLUMN: &str = "
    SELECT pg_catalog.format_type(a.atttypid, a.atttypmod),
           CASE WHEN a.attcollation <> t.typcollation
                THEN pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(l.collname) END
      FROM pg_catalog.pg_attribute a
      JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
      LEFT JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
     WHERE a.attrelid = $1 AND a.attnum = $2";

impl KeyValue {
    /// Turns a text into a value of a column. Errors have code `usage`: it is none.
    pub(crate) async fn read<C: GenericClient>(
        client: &C,
        table: &Table,
        column: &str,
        given: Option<&str>,
    ) -> Result<KeyValue> {
        let column = table.column(column).ok_or_else(|| {
            Error::new(
                Code::Table,
                format!("{} has no column {column:?}, which is its key", table.qualified()),
            )
        })?;
        let row = client
            .query_typed_one(COLUMN, &[(&table.oid, Type::OID), (&column.attnum, Type::INT2)])
            .await
            .map_err(server_error)?;
        let ty: String = row.get(0);
        let collate =
            row.get::<_, Option<String>>(1).map_or(String::new(), |name| format!(" COLLATE {name}"));
        let kind = HashKind::of(&column.ty, column.typmod);
        let mut key = KeyValue {
            column: column.name.clone(),
            cast: format!("(($::pg_catalog.text)::{ty}){collate}"),
            ty,
            value: None,
            unhashed: HashKind::why_not(&column.ty, column.typmod),
            kind,
            given: given.map(str::to_owned),
            bytes: None,
        };
        key.ask(client, column).await?;
        Ok(key)
    }

    async fn ask<C: GenericClient>(&mut self, client: &C, column: &Column) -> Result<()> {
        let cast = self.sql(1);
        // A cast cuts what is too long, where an INSERT refuses it.
        let fits = match column.ty.under_domains(column.typmod).0.kind {
            TypeKind::Base(BaseType::Varchar | BaseType::Bpchar) => {
                format!("pg_catalog.rtrim($1::pg_catalog.text) = pg_catalog.rtrim({cast}::pg_catalog.text)")
            }
            _ => "true".into(),
        };
        let sql = format!("SELECT ({cast})::pg_catalog.text, {fits}");
        let row = self.one(client, &sql).await?;
        self.value = row.get(0);
        if row.get::<_, Option<bool>>(1) == Some(false) {
            let given = self.given.as_deref().unwrap_or_default();
            return Err(Error::new(
                Code::Usage,
                format!("{given:?} is too long for column {} of type {}", self.column, self.ty),
            ));
        }
        // Types that are not hashed here may have no send function.
        if self.kind.is_some() {
            let row = self.one(client, &format!("SELECT {cast}")).await?;
            self.bytes = row.get::<_, Option<Raw>>(0).map(|raw| raw.0);
        }
        Ok(())
    }

    async fn one<C: GenericClient>(&self, client: &C, sql: &str) -> Result<Row> {
        client.query_typed_one(sql, &[(&self.given, Type::TEXT)]).await.map_err(|error| {
            let Some(said) = error.as_db_error() else { return server_error(error) };
            let given = self.given.as_deref().unwrap_or("NULL");
            Error::new(
                Code::Usage,
                format!("{given:?} is no value of column {} ({}): {}", self.column, self.ty, said.message()),
            )
            .sqlstate(said.code().code())
        })
    }

    /// The value in SQL, as parameter `$number` of type text.
    pub(crate) fn sql(&self, number: usize) -> String {
        self.cast.replacen('$', &format!("${number}"), 1)
    }
}

/// The parameters of a statement whose text has [`KeyValue::sql`] of these, numbered from 1.
pub(crate) fn parameters(keys: &[KeyValue]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    keys.iter().map(|key| (&key.given as &(dyn ToSql + Sync), Type::TEXT)).collect()
}
