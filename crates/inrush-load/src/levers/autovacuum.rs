//! `--quiet-autovacuum`: autovacuum leaves the table alone while it is loaded.

use super::{Hand, Pulled, begin, begin_back, commit, detail, quote_literal, table_name};
use inrush_core::Result;
use inrush_sink::catalog::{Target, table_state};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, LeverStep, Settled};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::Client;

/// Name of the option, and of the step in the ledger.
pub(super) const NAME: &str = "quiet-autovacuum";

/// The storage option of the table, and of its TOAST table.
const OPTIONS: [&str; 2] = ["autovacuum_enabled", "toast.autovacuum_enabled"];

#[derive(Serialize, Deserialize)]
struct Detail {
    /// Storage options as they were: null where there was none.
    before: Vec<(String, Option<String>)>,
}

/// Autovacuum has workers for leaves, so each leaf of a partitioned table is told.
pub(super) async fn pull(
    client: &mut Client,
    hand: &mut Hand<'_>,
    target: &Target,
) -> Result<Option<Pulled>> {
    let tx = begin(client, hand.ledger, hand.load).await?;
    let mut quiet = 0;
    for leaf in target.access.leaves.iter().filter(|leaf| !leaf.foreign) {
        // What another load has switched off would be taken for how it was.
        if hand.ledger.lever_of_another(&tx, hand.load.id, NAME, leaf.oid).await?.is_some() {
            continue;
        }
        let Some(table) = table_name(&tx, leaf.oid).await? else { continue };
        let state = table_state(&tx, leaf.oid).await?;
        if state.option(OPTIONS[0]) == Some("false") {
            continue;
        }
        let there = OPTIONS.iter().take(if state.toast_options.is_some() { 2 } else { 1 });
        let before: Vec<(String, Option<String>)> = there
            .map(|name| ((*name).to_owned(), state.option(name).map(str::to_owned)))
            .collect();
        let off: Vec<String> = before.iter().map(|(name, _)| format!("{name} = false")).collect();
        let sql = format!("ALTER TABLE {table} SET ({})", off.join(", "));
        tx.batch_execute(&sql).await.map_err(server_error)?;
        hand.ledger
            .record_lever(&tx, hand.load.id, NAME, leaf.oid, &json!(Detail { before }), false)
            .await?;
        quiet += 1;
    }
    commit(tx).await?;
    Ok((quiet > 0).then(|| Pulled {
        lever: NAME.to_owned(),
        what: "autovacuum is off for the table until the end of the load".to_owned(),
        why: None,
    }))
}

pub(super) async fn put_back(
    client: &mut Client,
    ledger: &Ledger,
    load: i64,
    step: &LeverStep,
) -> Result<Option<String>> {
    let detail: Detail = detail(step)?;
    let Some((tx, table)) = begin_back(client, ledger, load, step, Settled::Undone).await? else {
        return Ok(None);
    };
    for (name, before) in &detail.before {
        let sql = match before {
            Some(value) => format!("ALTER TABLE {table} SET ({name} = {})", quote_literal(value)),
            None => format!("ALTER TABLE {table} RESET ({name})"),
        };
        tx.batch_execute(&sql).await.map_err(server_error)?;
    }
    commit(tx).await?;
    Ok(Some(format!("autovacuum of {table} is as it was")))
}
