//! `--defer-indexes`: indexes are dropped, and made again at the end, several at once.
//!
//! Only indexes that no constraint and nothing else depends on. Between the two, queries do without them; while they
//! are made, other writers wait (CREATE INDEX holds a SHARE lock), readers do not.

use super::{Hand, Pulled, begin, begin_back, commit, count_of, detail, table_name};
use inrush_core::{Code, Error, Result, quote_ident, quote_literal};
use inrush_sink::catalog::{Index, TableState, table_state};
use inrush_sink::connect::connect;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, LeverStep, Settled};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Mutex;
use std::sync::PoisonError;
use tokio_postgres::Client;

/// Name of the option, and of the step in the ledger.
pub(super) const NAME: &str = "defer-indexes";

#[derive(Serialize, Deserialize)]
struct Detail {
    index: Index,
    /// The definition up to the table's name, and behind it: the table may have another name by then.
    before: String,
    after: String,
}

/// Whether an index forbids rows: then it is deferred only where it is named (`unique.rs`). Whatever is behind a
/// constraint is one of these.
pub(super) fn forbids(index: &Index) -> bool {
    index.unique || index.exclusion
}

/// Why an index is not deferred even where it is named; `None` if it can be.
pub(super) fn obstacle(index: &Index) -> Option<&'static str> {
    if index.replica_identity {
        Some("is the replica identity")
    } else if !index.depending_keys.is_empty() {
        Some("has foreign keys that depend on it")
    } else if index.inherited {
        Some("belongs to an index of the partitioned table")
    } else if !index.valid {
        Some("is not valid")
    } else {
        None
    }
}

/// The indexes that can be made after the rows by anybody's leave.
pub(super) fn deferrable(state: &TableState) -> impl Iterator<Item = &Index> {
    state.indexes.iter().filter(|index| !forbids(index) && obstacle(index).is_none())
}

/// The statements that give an index the properties that its definition does not have.
pub(super) fn properties(qualified: &str, table: &str, index: &Index) -> String {
    let mut sql = String::new();
    for (column, target) in &index.statistics {
        sql += &format!("ALTER INDEX {qualified} ALTER COLUMN {column} SET STATISTICS {target};\n");
    }
    if let Some(comment) = &index.comment {
        sql += &format!("COMMENT ON INDEX {qualified} IS {};\n", quote_literal(comment));
    }
    if index.clustered {
        sql += &format!("ALTER TABLE {table} CLUSTER ON {};\n", quote_ident(&index.name));
    }
    sql
}

/// Drops the named indexes, or with an empty list all that can be.
pub(super) async fn pull(
    client: &mut Client,
    hand: &mut Hand<'_>,
    names: &[String],
) -> Result<Option<Pulled>> {
    let tx = begin(client, hand.ledger, hand.load).await?;
    let state = table_state(&tx, hand.load.target).await?;
    let chosen: Vec<Index> =
        deferrable(&state).filter(|index| names.is_empty() || names.contains(&index.name)).cloned().collect();
    // As the definitions have it: the server quotes what it thinks it must.
    let table = table_name(&tx, hand.load.target).await?.unwrap_or_else(|| hand.table.qualified());
    let mut dropped = Vec::new();
    for index in chosen {
        let place = format!(" ON {table} USING ");
        let Some((before, after)) = index.definition.split_once(&place) else {
            return Err(Error::new(
                Code::Internal,
                format!("the definition of index {} cannot be read: {}", index.name, index.definition),
            ));
        };
        let (before, after) = (before.to_owned(), after.to_owned());
        // RESTRICT: what depends on it stays, and so does the index.
        tx.batch_execute(&format!("DROP INDEX {}", index.qualified)).await.map_err(server_error)?;
        dropped.push(index.name.clone());
        let step = json!(Detail { index, before, after });
        hand.ledger.record_lever(&tx, hand.load.id, NAME, hand.load.target, &step, false).await?;
    }
    commit(tx).await?;
    Ok((!dropped.is_empty()).then(|| Pulled {
        lever: NAME.to_owned(),
        what: format!(
            "{} of {table} dropped, made again at the end: {}",
            count_of(dropped.len(), "index", "indexes"),
            dropped.join(", ")
        ),
        why: None,
    }))
}

/// Makes indexes again, up to `jobs` at once, each in a transaction of its own.
pub(super) async fn put_back(
    conninfo: &ConnInfo,
    ledger: &Ledger,
    load: i64,
    steps: &[LeverStep],
    jobs: usize,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Vec<String>> {
    notice(&format!("making {} again", count_of(steps.len(), "index", "indexes")));
    // Popped from the end: those with the lowest numbers first.
    let waiting = Mutex::new(steps.to_vec());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let worker = async || -> Result<Vec<String>> {
        let mut connected = connect(conninfo, "inrush load: indexes").await?;
        let mut made = Vec::new();
        while let Some(step) = next() {
            made.extend(make(&mut connected.client, ledger, load, &step).await?);
        }
        Ok(made)
    };
    let workers = (0..jobs.clamp(1, steps.len())).map(|_| worker());
    let results = futures_util::future::join_all(workers).await;
    let mut made = Vec::new();
    for result in results {
        made.extend(result?);
    }
    Ok(made)
}

async fn make(client: &mut Client, ledger: &Ledger, load: i64, step: &LeverStep) -> Result<Option<String>> {
    let Detail { index, before, after } = detail(step)?;
    let Some((tx, table)) = begin_back(client, ledger, load, step, Settled::Undone).await? else {
        return Ok(None);
    };
    // The table may have another name or schema than when the index was dropped; the index goes where it is.
    let schema = table_schema(&table);
    let qualified = format!("{schema}.{}", quote_ident(&index.name));
    let tablespace = quote_literal(index.tablespace.as_deref().unwrap_or_default());
    let mut sql =
        format!("SET LOCAL default_tablespace = {tablespace};\n{before} ON {table} USING {after};\n");
    sql += &properties(&qualified, &table, &index);
    tx.batch_execute(&sql).await.map_err(|refused| {
        let error = server_error(refused);
        Error::new(Code::Server, format!("index {qualified} cannot be made again: {}", error.fact()))
            .sqlstate(error.sqlstate_text().unwrap_or_default().to_owned())
            .hint(format!("`inrush recover` tries again. It was: {before} ON {table} USING {after}"))
    })?;
    commit(tx).await?;
    Ok(Some(format!("index {qualified} is back")))
}

/// The schema of `schema.table`, both quoted where they need it.
fn table_schema(table: &str) -> &str {
    let mut quoted = false;
    let dot = table.bytes().position(|b| {
        quoted ^= b == b'"';
        b == b'.' && !quoted
    });
    dot.map_or(table, |dot| &table[..dot])
}

#[cfg(test)]
mod tests {
    #[test]
    fn schemas() {
        for (table, schema) in [("a.b", "a"), (r#""x.y".b"#, r#""x.y""#), (r#""q""o.".t"#, r#""q""o.""#)] {
            assert_eq!(super::table_schema(table), schema);
        }
    }
}
