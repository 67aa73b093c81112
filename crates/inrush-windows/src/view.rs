//! The view that says up to when a table is complete.

use crate::read::{Windowed, get};
use crate::time::Span;
use inrush_core::{Result, quote_ident, quote_literal};
use inrush_sink::catalog::TableName;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use serde::Serialize;
use tokio_postgres::GenericClient;

const TAIL: &str = "_complete";

/// The name of a table's view.
pub(crate) fn name(table: &TableName) -> TableName {
    TableName {
        schema: table.schema.clone(),
        name: format!("{}{TAIL}", crate::leaf::cut(&table.name, 63 - TAIL.len())),
    }
}

/// The statements that make the view of a table, and say its rule.
pub(crate) fn statements(table: &Windowed, ledger: &Ledger) -> String {
    let view = name(&table.name);
    let rule = format!(
        "Complete up to: for each source, the smallest event time that its lanes have committed. A lane that has committed \
         nothing for {} is idle and does not count; when all lanes of a source are idle, the largest event time counts.",
        Span::from_us(table.policy.idle_us)
    );
    format!(
        "CREATE VIEW {view} (source, up_to, rows, lanes, idle_lanes, last_commit) AS {};
         COMMENT ON VIEW {view} IS {}",
        query(table, ledger),
        quote_literal(&rule),
    )
}

/// What the view shows.
///
/// A lane is idle that has committed nothing for the idle interval. While a source has a lane that is not, it is complete
/// up to the smallest event time of those; once all are idle, up to the largest of all: everything that came is in.
fn query(table: &Windowed, ledger: &Ledger) -> String {
    let idle = format!(
        "pg_catalog.now() OPERATOR(pg_catalog.-) at OPERATOR(pg_catalog.>) pg_catalog.interval '{} microseconds'",
        table.policy.idle_us
    );
    let parent = quote_literal(&table.name.to_string());
    let lanes = |name: &str| {
        format!(
            "SELECT source, lane, up_to, rows, at FROM {}
              WHERE relid OPERATOR(pg_catalog.=) {parent}::pg_catalog.regclass::pg_catalog.oid",
            ledger.table(name)
        )
    };
    format!(
        "SELECT source, {} AS up_to, rows, lanes, idle_lanes, last_commit
           FROM (SELECT source,
                        coalesce(pg_catalog.min(up_to) FILTER (WHERE NOT idle), pg_catalog.max(up_to)) AS up_to,
                        pg_catalog.sum(rows)::pg_catalog.int8 AS rows,
                        pg_catalog.count(*) AS lanes,
                        pg_catalog.count(*) FILTER (WHERE idle) AS idle_lanes,
                        pg_catalog.max(at) AS last_commit
                   FROM (SELECT source, up_to, rows, at, {idle} AS idle
                           FROM ({} UNION ALL {}) lane) lanes
                  GROUP BY source) sources",
        table.scale().value_sql("up_to"),
        lanes("progress"),
        lanes("progress_unlogged"),
    )
}

/// The view as SQL names it.
pub(crate) fn sql_name(table: &TableName) -> String {
    let view = name(table);
    match &view.schema {
        Some(schema) => format!("{}.{}", quote_ident(schema), quote_ident(&view.name)),
        None => quote_ident(&view.name),
    }
}

/// Up to when a source is complete: a row of the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Complete {
    /// The source.
    pub source: String,
    /// The event time, as the server prints it.
    pub up_to: String,
    /// Rows committed of it.
    pub rows: i64,
    /// Its lanes.
    pub lanes: i64,
    /// Those that do not count.
    pub idle_lanes: i64,
}

/// What a table's view says, whatever has become of the view.
pub async fn complete(
    client: &impl GenericClient,
    ledger: &Ledger,
    table: &Windowed,
) -> Result<Vec<Complete>> {
    let sql = format!(
        "SELECT source, up_to::pg_catalog.text, rows, lanes, idle_lanes FROM ({}) complete ORDER BY source",
        query(table, ledger)
    );
    let rows = client.query(&sql, &[]).await.map_err(server_error)?;
    rows.iter()
        .map(|row| {
            Ok(Complete {
                source: get(row, 0)?,
                up_to: get(row, 1)?,
                rows: get(row, 2)?,
                lanes: get(row, 3)?,
                idle_lanes: get(row, 4)?,
            })
        })
        .collect()
}
