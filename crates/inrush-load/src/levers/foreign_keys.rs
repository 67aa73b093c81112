//! `--defer-foreign-keys`: the table's foreign keys are dropped, and made and validated again at the end.
//!
//! A constraint that is NOT VALID is still checked for new rows, so nothing less than dropping it saves the look-up of
//! each row. It comes back NOT VALID, from when on other writers are checked again, and is then validated, which
//! reads the table but blocks nobody.

use super::{Hand, Pulled, begin, begin_back, commit, count_of, detail, table_name};
use inrush_core::{Code, Error, Result, quote_ident, quote_literal};
use inrush_sink::catalog::{EMPTY_PATH, ForeignKey, table_state};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, LeverStep, Settled};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::Client;

/// Name of the option, and of the step in the ledger.
pub(super) const NAME: &str = "defer-foreign-keys";

#[derive(Serialize, Deserialize)]
struct Detail {
    key: ForeignKey,
    /// It is back, but not validated.
    added: bool,
}

pub(super) async fn pull(client: &mut Client, hand: &mut Hand<'_>) -> Result<Option<Pulled>> {
    let tx = begin(client, hand.ledger, hand.load).await?;
    let state = table_state(&tx, hand.load.target).await?;
    let table = hand.table.qualified();
    let mut dropped = 0;
    for key in state.foreign_keys.into_iter().filter(|key| !key.inherited) {
        let sql = format!("ALTER TABLE {table} DROP CONSTRAINT {}", quote_ident(&key.name));
        tx.batch_execute(&sql).await.map_err(server_error)?;
        let step = json!(Detail { key, added: false });
        hand.ledger.record_lever(&tx, hand.load.id, NAME, hand.load.target, &step, false).await?;
        dropped += 1;
    }
    commit(tx).await?;
    Ok((dropped > 0).then(|| Pulled {
        lever: NAME.to_owned(),
        what: format!(
            "{} of {table} dropped, made and validated again at the end",
            count_of(dropped, "foreign key", "foreign keys")
        ),
        why: None,
    }))
}

pub(super) async fn put_back(
    client: &mut Client,
    ledger: &Ledger,
    load: i64,
    step: &LeverStep,
) -> Result<Option<String>> {
    let mut wanted: Detail = detail(step)?;
    let key = wanted.key.clone();
    let name = quote_ident(&key.name);
    if !wanted.added {
        let tx = client.transaction().await.map_err(server_error)?;
        tx.batch_execute(EMPTY_PATH).await.map_err(server_error)?;
        if let Some(table) = table_name(&tx, step.target).await? {
            let not_valid = if key.definition.ends_with("NOT VALID") { "" } else { " NOT VALID" };
            let sql = format!("ALTER TABLE {table} ADD CONSTRAINT {name} {}{not_valid}", key.definition);
            tx.batch_execute(&sql).await.map_err(server_error)?;
            if let Some(comment) = &key.comment {
                let sql = format!("COMMENT ON CONSTRAINT {name} ON {table} IS {}", quote_literal(comment));
                tx.batch_execute(&sql).await.map_err(server_error)?;
            }
            wanted.added = true;
            ledger.amend_lever(&tx, load, step.step, &json!(wanted)).await?;
        }
        commit(tx).await?;
    }
    let Some((tx, table)) = begin_back(client, ledger, load, step, Settled::Undone).await? else {
        return Ok(None);
    };
    if key.validated {
        let validated = tx.batch_execute(&format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}")).await;
        if let Err(refused) = validated {
            let violated = refused.code() == Some(&tokio_postgres::error::SqlState::FOREIGN_KEY_VIOLATION);
            let error = server_error(refused);
            if !violated {
                return Err(error);
            }
            return Err(Error::new(
                Code::Server,
                format!("rows of {table} violate the foreign key {name}: {}", error.fact()),
            )
            .sqlstate("23503")
            .hint(format!(
                "The foreign key is back and checks new rows, but is NOT VALID. Repair the rows, then `inrush \
                 recover` validates it; or remove the rows of the load with `inrush loads undo {load}`."
            )));
        }
    }
    commit(tx).await?;
    Ok(Some(format!("foreign key {name} of {table} is back")))
}
