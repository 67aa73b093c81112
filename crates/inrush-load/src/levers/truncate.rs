//! `--truncate`: the table is emptied first, once for a load, however often the load is resumed.

use super::{Hand, Pulled, begin, commit};
use inrush_core::{Result, Table};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, StoredLoad};
use serde_json::json;
use tokio_postgres::Client;

/// Name of the option, and of the step in the ledger.
pub(super) const NAME: &str = "truncate";

pub(super) async fn pull(client: &mut Client, hand: &mut Hand<'_>) -> Result<Option<Pulled>> {
    if hand.ledger.has_lever(client, hand.load.id, NAME).await? {
        return Ok(None);
    }
    let tx = begin(client, hand.ledger, hand.load).await?;
    hand.ledger.forget_others(&tx, hand.load).await?;
    tx.batch_execute(&statement(hand.table)).await.map_err(server_error)?;
    hand.load.incarnation = hand.ledger.rebase(&tx, hand.load, hand.table.unlogged).await?;
    hand.ledger.record_lever(&tx, hand.load.id, NAME, hand.load.target, &json!({}), true).await?;
    commit(tx).await?;
    Ok(Some(pulled(hand.table)))
}

/// The same within the one transaction of a load that has only one. Gives the storage the rows go to.
pub(crate) async fn in_transaction(
    client: &Client,
    ledger: &Ledger,
    load: &StoredLoad,
    table: &Table,
) -> Result<Vec<String>> {
    ledger.forget_others(client, load).await?;
    client.batch_execute(&statement(table)).await.map_err(server_error)?;
    let storage = ledger.rebase(client, load, table.unlogged).await?;
    ledger.record_lever(client, load.id, NAME, load.target, &json!({}), true).await?;
    Ok(storage)
}

/// The statement that empties a table. Identity columns go on counting, as with psql's TRUNCATE.
pub(crate) fn statement(table: &Table) -> String {
    format!("TRUNCATE TABLE {}", table.qualified())
}

fn pulled(table: &Table) -> Pulled {
    Pulled { lever: NAME.to_owned(), what: format!("{} was emptied first", table.qualified()), why: None }
}
