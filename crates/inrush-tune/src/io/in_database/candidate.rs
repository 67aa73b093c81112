//! The table to read from.

use super::Plan;
use super::session::Session;
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::failure::server_error;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// More rows of a key make a trial read what nobody knows before.
const MOST_ROWS_PER_KEY: f64 = 20.0;

/// A table that can be read from at random, by an index on an integer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) oid: u32,
    /// Schema and name, quoted.
    pub(super) table: String,
    pub(super) column: String,
    pub(super) kind: String,
    pub(super) tablespace: String,
    pub(super) pages: u64,
    /// Values that cut the keys into parts of about as many rows.
    pub(super) bounds: Vec<i64>,
    /// Values with more rows than others: the parts are without them.
    pub(super) common: BTreeSet<i64>,
    /// Rows of any other key, at least one.
    pub(super) rows_per_key: u64,
}

/// One that has row security is left out: its policies would run as the one who reads.
const QUERY: &str = r#"
    SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, a.attname::pg_catalog.text,
           ty.typname::pg_catalog.text,
           coalesce(s.spcname, (SELECT ds.spcname FROM pg_catalog.pg_database d
               JOIN pg_catalog.pg_tablespace ds ON ds.oid OPERATOR(pg_catalog.=) d.dattablespace
               WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))::pg_catalog.text,
           c.relpages,
           CASE WHEN ty.oid OPERATOR(pg_catalog.=) ANY ('{21,23,20}'::pg_catalog.oid[])
                THEN st.histogram_bounds::pg_catalog.text::pg_catalog.int8[] END,
           st.n_distinct, c.reltuples,
           CASE WHEN ty.oid OPERATOR(pg_catalog.=) ANY ('{21,23,20}'::pg_catalog.oid[])
                THEN st.most_common_vals::pg_catalog.text::pg_catalog.int8[] END,
           st.most_common_freqs
      FROM pg_catalog.pg_class c
      JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      JOIN pg_catalog.pg_index i ON i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisvalid
           AND i.indpred IS NULL AND i.indexprs IS NULL
      JOIN pg_catalog.pg_class ic ON ic.oid OPERATOR(pg_catalog.=) i.indexrelid
      JOIN pg_catalog.pg_am am ON am.oid OPERATOR(pg_catalog.=) ic.relam
           AND am.amname OPERATOR(pg_catalog.=) 'btree'
      JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid
           AND a.attnum OPERATOR(pg_catalog.=) i.indkey[0]
      JOIN pg_catalog.pg_type ty ON ty.oid OPERATOR(pg_catalog.=) a.atttypid
      JOIN pg_catalog.pg_stats st ON st.schemaname OPERATOR(pg_catalog.=) n.nspname
           AND st.tablename OPERATOR(pg_catalog.=) c.relname
           AND st.attname OPERATOR(pg_catalog.=) a.attname AND NOT st.inherited
      LEFT JOIN pg_catalog.pg_tablespace s ON s.oid OPERATOR(pg_catalog.=) c.reltablespace
     WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,m}'::pg_catalog."char"[])
       AND c.relpersistence OPERATOR(pg_catalog.=) ANY ('{p,u}'::pg_catalog."char"[])
       AND ty.oid OPERATOR(pg_catalog.=) ANY ('{21,23,20}'::pg_catalog.oid[])
       AND ($1::pg_catalog.text IS NULL
            OR c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)::pg_catalog.oid)
       AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
       AND NOT pg_catalog.row_security_active(c.oid)
       AND st.histogram_bounds IS NOT NULL
     ORDER BY c.relpages DESC, i.indisunique DESC, a.attnum LIMIT 20"#;

/// The table that is named, or the largest of those the role may read that have a btree index on an integer
/// with many values, and statistics of it.
///
/// # Errors
/// `server` where there is none, and with SQLSTATE 57014 where it took longer than `limit` or was cancelled.
pub(super) async fn find(session: &Session<'_>, plan: &Plan, limit: Duration) -> Result<Candidate> {
    let rows = session.rows(QUERY, &[(&plan.table, Type::TEXT)], limit).await?;
    for row in &rows {
        if let Some(candidate) = read(row).map_err(server_error)? {
            return Ok(candidate);
        }
    }
    let fact = match &plan.table {
        Some(table) => format!("cannot tell: {table:?} is not fit to be read at random"),
        None => "cannot tell: no table is fit to be read at random".to_owned(),
    };
    Err(Error::new(Code::Server, fact).hint(
        "Through the server it takes a table with a btree index on an integer column with many values, \
         that was analyzed, that the role may read, and that has no row security for it.",
    ))
}

/// What the query says, if such a table is fit.
fn read(row: &Row) -> Result<Option<Candidate>, tokio_postgres::Error> {
    let bounds: Vec<i64> = row.try_get::<_, Option<Vec<i64>>>(7)?.unwrap_or_default();
    let common: Vec<i64> = row.try_get::<_, Option<Vec<i64>>>(10)?.unwrap_or_default();
    let frequencies: Vec<f32> = row.try_get::<_, Option<Vec<f32>>>(11)?.unwrap_or_default();
    let rows_per_key = rows_per_key(row.try_get(8)?, row.try_get(9)?, &frequencies);
    if rows_per_key > MOST_ROWS_PER_KEY || bounds.len() < 2 {
        return Ok(None);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 1 to 20
    Ok(Some(Candidate {
        oid: row.try_get(0)?,
        table: format!("{}.{}", quote_ident(row.try_get(1)?), quote_ident(row.try_get(2)?)),
        column: row.try_get(3)?,
        kind: row.try_get(4)?,
        tablespace: row.try_get(5)?,
        pages: u64::from(row.try_get::<_, i32>(6)?.unsigned_abs()),
        bounds,
        common: common.into_iter().collect(),
        rows_per_key: rows_per_key.round() as u64,
    }))
}

/// Rows of a value that is none of the most common ones. `distinct` as in pg_stats: a share of the rows if
/// negative.
fn rows_per_key(distinct: f32, tuples: f32, common: &[f32]) -> f64 {
    let tuples = f64::from(tuples).max(1.0);
    let values = if distinct < 0.0 { -f64::from(distinct) * tuples } else { f64::from(distinct) };
    let rest = 1.0 - common.iter().copied().map(f64::from).sum::<f64>();
    #[allow(clippy::cast_precision_loss)] // at most 10,000
    let others = (values - common.len() as f64).max(1.0);
    (tuples * rest / others).max(1.0)
}

#[cfg(test)]
pub(super) fn made_up(pages: u64) -> Candidate {
    Candidate {
        oid: 16_384,
        table: "public.t".into(),
        column: "id".into(),
        kind: "int4".into(),
        tablespace: "pg_default".into(),
        pages,
        bounds: vec![1, 1_000, 5_000, 5_000],
        common: BTreeSet::new(),
        rows_per_key: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_key_are_without_the_common_ones() {
        assert!((rows_per_key(-1.0, 1e6, &[]) - 1.0).abs() < 1e-9);
        assert!((rows_per_key(100_000.0, 1e6, &[]) - 10.0).abs() < 1e-3);
        // One value has nine tenths of the rows.
        assert!((rows_per_key(50_001.0, 1e6, &[0.9]) - 2.0).abs() < 1e-3);
    }
}
