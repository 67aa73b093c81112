//! `--defer-indexes` for indexes that forbid something: primary keys, unique and exclusion indexes that were named.
//!
//! While such an index is missing nobody else may write, so it goes and comes back in the load's one transaction, which
//! keeps the table locked: nothing is to be taken back after a crash. Duplicates are found when it is made. Which
//! records they came from is not known then; where rejects are allowed the load is done once more with the index in
//! place, and the server says of each row.

use super::indexes;
use inrush_core::{Code, Error, Result, Table, quote_ident, quote_literal};
use inrush_sink::catalog::{Index, TableState};
use inrush_sink::failure::{Failure, server_error};
use tokio_postgres::Client;

/// The named indexes that forbid something.
pub(super) fn chosen(names: &[String], state: &TableState) -> Vec<Index> {
    let named = state.indexes.iter().filter(|index| names.contains(&index.name));
    named.filter(|index| indexes::forbids(index)).cloned().collect()
}

/// Locks the table against everybody else and drops the indexes, in the load's transaction.
pub(crate) async fn drop_all(client: &Client, table: &Table, indexes: &[Index]) -> Result<()> {
    if indexes.is_empty() {
        return Ok(());
    }
    let name = table.qualified();
    let mut sql = format!("LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE;\n");
    for index in indexes {
        sql += &match &index.constraint {
            Some(constraint) => format!("ALTER TABLE {name} DROP CONSTRAINT {};\n", quote_ident(constraint)),
            None => format!("DROP INDEX {};\n", index.qualified),
        };
    }
    client.batch_execute(&sql).await.map_err(server_error)
}

/// Why indexes could not be made again.
pub(crate) enum Unmade {
    /// Rows are twice there, or exclude each other.
    Duplicates(Error),
    /// Anything else.
    Failed(Error),
}

/// Makes the indexes again, in the load's transaction.
pub(crate) async fn make_all(client: &Client, table: &Table, indexes: &[Index]) -> Result<(), Unmade> {
    for index in indexes {
        client.batch_execute(&make(table, index)).await.map_err(|refused| {
            let state = refused.code().map(|code| code.code().to_owned()).unwrap_or_default();
            let error = inrush_sink::failure::of_commit(&refused);
            let reason = match &error {
                Failure::Row(row) => row.reason.clone(),
                other => other.error().fact().to_owned(),
            };
            let fact = format!("index {:?} cannot be made again: {reason}", index.name);
            let error = Error::new(Code::Server, fact).sqlstate(state.clone());
            // unique_violation, exclusion_violation
            if matches!(state.as_str(), "23505" | "23P01") {
                Unmade::Duplicates(error.hint(
                    "Nothing was loaded. With --max-rejects such rows become rejects: the load is then done once more, \
                     with the index in place.",
                ))
            } else {
                Unmade::Failed(error.hint("Nothing was loaded, and the index is as it was."))
            }
        })?;
    }
    Ok(())
}

/// The statements that make an index as it was, with the constraint it is behind.
fn make(table: &Table, index: &Index) -> String {
    let name = table.qualified();
    let constraint = index.constraint.as_deref().map(quote_ident);
    let tablespace = quote_literal(index.tablespace.as_deref().unwrap_or_default());
    // The definitions name everything in full. What runs at COMMIT, such as deferred triggers, has the path it had.
    let mut sql = format!(
        "SELECT pg_catalog.set_config('inrush.search_path', pg_catalog.current_setting('search_path'), true);
         SET LOCAL search_path = ''; SET LOCAL default_tablespace = {tablespace};\n"
    );
    match (&constraint, &index.constraint_definition) {
        (Some(constraint), Some(definition)) if index.exclusion => {
            sql += &format!("ALTER TABLE {name} ADD CONSTRAINT {constraint} {definition};\n");
        }
        (Some(constraint), Some(definition)) => {
            let kind = if index.primary { "PRIMARY KEY" } else { "UNIQUE" };
            let after = definition.split_once(" DEFERRABLE").map_or("", |(_, after)| after);
            let deferrable = if definition.contains(" DEFERRABLE") { " DEFERRABLE" } else { "" };
            sql += &format!(
                "{};\nALTER TABLE {name} ADD CONSTRAINT {constraint} {kind} USING INDEX {}{deferrable}{after};\n",
                index.definition,
                quote_ident(&index.name)
            );
        }
        _ => sql += &format!("{};\n", index.definition),
    }
    if let (Some(constraint), Some(comment)) = (&constraint, &index.constraint_comment) {
        sql += &format!("COMMENT ON CONSTRAINT {constraint} ON {name} IS {};\n", quote_literal(comment));
    }
    sql += &indexes::properties(&index.qualified, &name, index);
    sql + "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('inrush.search_path'), true)"
}
