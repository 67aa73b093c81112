//! Columns that no input fills, and whose values must come from the coordinator: a sequence has one counter, and the
//! defaults of a partition that is a foreign table are those on the coordinator, as they are for an INSERT there.

use crate::Kind;
use inrush_core::{Column, Result, Table};
use inrush_sink::failure::server_error;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

/// A column that the coordinator fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fill {
    /// The column.
    pub column: Column,
    /// What it is filled with, as SQL.
    expression: String,
    /// Whether that is the next number of a sequence: as good later as now.
    is_number: bool,
}

/// Defaults of columns; whether they draw from a sequence (pg_depend has that of the default, and of an identity column
/// the sequence depends on the column).
const DEFAULTS: &str = "
    SELECT a.attname::text, a.attidentity <> '',
           coalesce('pg_catalog.nextval(' || pg_catalog.quote_literal(
               CASE WHEN a.attidentity <> '' THEN pg_catalog.pg_get_serial_sequence($1, a.attname::text) END)
               || '::pg_catalog.regclass)', pg_catalog.pg_get_expr(d.adbin, d.adrelid), t.typdefault),
           EXISTS (SELECT 1 FROM pg_catalog.pg_depend e
                     JOIN pg_catalog.pg_class s ON s.oid = e.refobjid AND s.relkind = 'S'
                    WHERE e.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND e.objid = d.oid
                      AND e.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass)
      FROM pg_catalog.pg_attribute a
      JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
     ORDER BY a.attnum";

/// The columns that the coordinator fills in rows that have values for these.
pub async fn fills<C: GenericClient>(
    client: &C,
    table: &Table,
    sent: &[Column],
    kind: Kind,
) -> Result<Vec<Fill>> {
    let rows =
        client.query_typed(DEFAULTS, &[(&table.qualified(), Type::TEXT)]).await.map_err(server_error)?;
    let mut fills = Vec::new();
    for row in rows {
        let name: &str = row.get(0);
        let (Some(expression), Some(column)) = (row.get::<_, Option<String>>(2), table.column(name)) else {
            continue;
        };
        let sequence = row.get(1) || row.get(3);
        if (sequence || kind == Kind::Partitions) && !sent.iter().any(|sent| sent.name == name) {
            fills.push(Fill { column: column.clone(), expression, is_number: sequence });
        }
    }
    Ok(fills)
}

/// Values for rows to come, each row's one behind another as they stand in COPY binary and in COPY text.
#[derive(Debug, Default)]
pub(super) struct Pool {
    values: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    /// Rows that were asked for last.
    asked: i64,
}

impl Pool {
    /// Rows asked for at first, and at a time at most: numbers that are not used are gaps.
    const ROWS: std::ops::RangeInclusive<i64> = 100..=10_000;

    /// How many rows to ask for now.
    pub fn wanted(&mut self) -> i64 {
        self.asked = (self.asked * 4).clamp(*Pool::ROWS.start(), *Pool::ROWS.end());
        self.asked
    }

    /// A unit begins: what is now, or is looked up, must not be of an earlier one.
    pub fn begin(&mut self, fills: &[Fill]) {
        self.asked = 0;
        if !fills.iter().all(|fill| fill.is_number) {
            self.values = Vec::new().into_iter();
        }
    }

    /// What gives values of these columns for $1 rows: first all as the binary format has them, then all as text. Each
    /// default is evaluated once for a row.
    pub fn sql(fills: &[Fill]) -> String {
        let list = |form: &dyn Fn(usize, &Fill) -> String| {
            fills.iter().enumerate().map(|(i, fill)| form(i, fill)).collect::<Vec<_>>().join(", ")
        };
        let given = list(&|i, fill| format!("({})::{} AS c{i}", fill.expression, fill.column.ty.name));
        let binary = list(&|i, _| format!("v.c{i}"));
        let text = list(&|i, _| format!("v.c{i}::text"));
        format!(
            "SELECT {binary}, {text} FROM (SELECT {given} FROM pg_catalog.generate_series(1, $1::bigint) OFFSET 0) v"
        )
    }

    /// Takes what the query gave.
    pub fn fill(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) {
        self.values = rows.into_iter();
    }

    pub fn is_empty(&self) -> bool {
        self.values.len() == 0
    }

    /// The values of the next row, binary and text.
    pub fn take(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.values.next()
    }
}
