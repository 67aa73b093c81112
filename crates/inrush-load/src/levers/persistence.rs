//! `--unlogged` and `--then-logged`: the rows go into an unlogged table, which is made logged at the end, or not.
//!
//! After a crash of the server an unlogged table is empty, and so is what the ledger recorded of its units: the same
//! command loads them again.

use super::check::has_rows;
use super::{End, Hand, Pulled, begin, begin_back, commit, detail};
use inrush_core::{Code, Error, Result};
use inrush_sink::catalog::Target;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, LeverStep, Settled};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::Client;

/// Name of the option, and of the step in the ledger.
pub(super) const NAME: &str = "unlogged";

#[derive(Serialize, Deserialize)]
struct Detail {
    then_logged: bool,
}

pub(super) async fn pull(
    client: &mut Client,
    hand: &mut Hand<'_>,
    target: &Target,
) -> Result<Option<Pulled>> {
    let then_logged = hand.options.levers.then_logged;
    if hand.table.unlogged {
        return Ok(None);
    }
    let table = hand.table.qualified();
    if has_rows(client, target).await? {
        if hand.resumed {
            (hand.notice)(&format!("--unlogged: {table} has rows of this load and is logged: it stays so"));
            return Ok(None);
        }
        return Err(Error::new(Code::Table, format!("--unlogged is impossible: {table} has rows")).hint(
            "A crash of the server would lose them with those of the load; load into an empty table, or remove them \
             with --truncate.",
        ));
    }
    let tx = begin(client, hand.ledger, hand.load).await?;
    let sql = format!("ALTER TABLE {} SET UNLOGGED", hand.table.qualified());
    tx.batch_execute(&sql).await.map_err(server_error)?;
    hand.load.incarnation = hand.ledger.rebase(&tx, hand.load, true).await?;
    let step = json!(Detail { then_logged });
    hand.ledger.record_lever(&tx, hand.load.id, NAME, hand.load.target, &step, false).await?;
    commit(tx).await?;
    hand.load.unlogged = true;
    hand.table.unlogged = true;
    let after = if then_logged { "logged again at the end" } else { "stays so" };
    Ok(Some(Pulled {
        lever: NAME.to_owned(),
        what: format!("{} was made unlogged, {after}", hand.table.qualified()),
        why: None,
    }))
}

pub(super) async fn put_back(
    client: &mut Client,
    ledger: &Ledger,
    load: i64,
    step: &LeverStep,
    end: End,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Option<String>> {
    let wanted: Detail = detail(step)?;
    let stays = end == End::Finished && !wanted.then_logged;
    let settled = if stays { Settled::Kept } else { Settled::Undone };
    let Some((tx, table)) = begin_back(client, ledger, load, step, settled).await? else { return Ok(None) };
    if stays {
        commit(tx).await?;
        return Ok(None);
    }
    notice(&format!("making {table} logged: it is written once more"));
    tx.batch_execute(&format!("ALTER TABLE {table} SET LOGGED")).await.map_err(server_error)?;
    ledger.now_logged(&tx, step.target).await?;
    commit(tx).await?;
    Ok(Some(format!("{table} is logged again")))
}
