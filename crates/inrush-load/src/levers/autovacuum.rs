//! `--quiet-autovacuum`: autovacuum leaves the table alone while it is loaded.

use super::{Hand, Pulled, begin, begin_back, commit, detail, table_name};
use inrush_core::{Result, quote_literal};
use inrush_sink::catalog::{Target, table_state};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, LeverStep, Settled};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::Client;

/// Name of the option, and of the step in the ledger.
pub(super) const NAME: &str = "quiet-autovacuum";

/// The storage option of the table and, with `toast.` before it, of its TOAST table.
const OPTION: &str = "autovacuum_enabled";

/// The options as they were, in their order.
#[derive(Serialize, Deserialize)]
struct Detail {
    table: Vec<String>,
    /// None: there is no TOAST table.
    toast: Option<Vec<String>>,
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
        if state.option(OPTION) == Some("false") {
            continue;
        }
        let toast =
            if state.toast_options.is_some() { format!(", toast.{OPTION} = false") } else { String::new() };
        let sql = format!("ALTER TABLE {table} SET ({OPTION} = false{toast})");
        tx.batch_execute(&sql).await.map_err(server_error)?;
        let step = json!(Detail { table: state.options, toast: state.toast_options });
        hand.ledger.record_lever(&tx, hand.load.id, NAME, leaf.oid, &step, false).await?;
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
    let state = table_state(&tx, step.target).await?;
    let toast = state.toast_options.as_ref().zip(detail.toast.as_ref());
    for (prefix, now, before) in
        [Some(("", &state.options, &detail.table)), toast.map(|(now, before)| ("toast.", now, before))]
            .into_iter()
            .flatten()
    {
        let wanted = as_before(now, before);
        if wanted == *now {
            continue;
        }
        // Both anew: SET puts what it changes behind the others.
        let names: Vec<String> = now.iter().map(|option| format!("{prefix}{}", split(option).0)).collect();
        let sets: Vec<String> = wanted
            .iter()
            .map(|option| split(option))
            .map(|(name, value)| format!("{prefix}{name} = {}", quote_literal(value)))
            .collect();
        for (what, list) in [("RESET", names), ("SET", sets)].iter().filter(|(_, list)| !list.is_empty()) {
            let sql = format!("ALTER TABLE {table} {what} ({})", list.join(", "));
            tx.batch_execute(&sql).await.map_err(server_error)?;
        }
    }
    commit(tx).await?;
    Ok(Some(format!("autovacuum of {table} is as it was")))
}

/// The options with ours as it was and in its place; what somebody else has set since stays.
fn as_before(now: &[String], before: &[String]) -> Vec<String> {
    let value =
        |options: &[String], name: &str| options.iter().find(|option| split(option).0 == name).cloned();
    let mut wanted: Vec<String> = before
        .iter()
        .filter_map(|old| match split(old).0 {
            OPTION => Some(old.clone()),
            name => value(now, name),
        })
        .collect();
    let new = now.iter().filter(|option| {
        let name = split(option).0;
        name != OPTION && value(before, name).is_none()
    });
    wanted.extend(new.cloned());
    wanted
}

/// `name=value`
fn split(option: &str) -> (&str, &str) {
    option.split_once('=').unwrap_or((option, ""))
}

#[cfg(test)]
mod tests {
    use super::as_before;

    #[test]
    fn what_somebody_else_has_set_stays() {
        let list = |options: &[&str]| options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>();
        let before = list(&["autovacuum_enabled=true", "fillfactor=95"]);
        let now = list(&["fillfactor=80", "autovacuum_enabled=false", "parallel_workers=2"]);
        let wanted = list(&["autovacuum_enabled=true", "fillfactor=80", "parallel_workers=2"]);
        assert_eq!(as_before(&now, &before), wanted);
        assert_eq!(as_before(&list(&["autovacuum_enabled=false"]), &[]), list(&[]));
    }
}
