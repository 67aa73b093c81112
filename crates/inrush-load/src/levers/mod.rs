//! Levers: changes of the table that make a load faster, and taking them back.
//!
//! What a lever changes and its row in the ledger are one transaction ([`inrush_sink::ledger::LeverStep`]). So is taking it back. Whatever
//! dies, the ledger says what is still changed, and [`put_back`] takes it back: at the end of the load, or with
//! `inrush recover`.
//!
//! Order of pulling: truncate, unlogged, quiet autovacuum, foreign keys, indexes. Order of taking back: logged (it
//! writes the table again, with the indexes there are), indexes, foreign keys (they look rows up), autovacuum.

pub(crate) mod advice;
mod autovacuum;
mod check;
pub(crate) mod conflict;
mod fast;
mod foreign_keys;
mod indexes;
mod persistence;
mod truncate;
pub(crate) mod unique;

pub(crate) use check::check;
pub(crate) use fast::after_first_seconds;
pub(crate) use truncate::in_transaction as truncate_in_transaction;
pub(crate) use truncate::statement as truncate_statement;

use crate::options::Options;
use crate::plan::Plan;
use inrush_core::{Code, Error, Result, Table};
use inrush_sink::catalog::{EMPTY_PATH, Target};
use inrush_sink::connect::connect;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, LeverStep, Settled, StoredLoad};
use serde::Serialize;
use tokio_postgres::{Client, Transaction};

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeverOptions {
    /// `--unlogged`
    pub unlogged: bool,
    /// `--then-logged`
    pub then_logged: bool,
    /// `--truncate`
    pub truncate: bool,
    /// `--freeze`
    pub freeze: bool,
    /// `--defer-indexes`: these, or with an empty list all that can be.
    pub defer_indexes: Option<Vec<String>>,
    /// `--defer-foreign-keys`
    pub defer_foreign_keys: bool,
    /// `--quiet-autovacuum`
    pub quiet_autovacuum: bool,
    /// `--sync-commit`: a value of `synchronous_commit` for the lanes.
    pub sync_commit: Option<String>,
    /// `--drop-cache`
    pub drop_cache: bool,
    /// `--fast`
    pub fast: bool,
}

impl LeverOptions {
    /// Levers that change the table for a time and have to be taken back, by the name of their option.
    fn undoable(&self) -> Vec<&'static str> {
        [
            (self.unlogged, persistence::NAME),
            (self.defer_indexes.is_some(), indexes::NAME),
            (self.defer_foreign_keys, foreign_keys::NAME),
            (self.quiet_autovacuum, autovacuum::NAME),
            (self.fast, "fast"),
        ]
        .into_iter()
        .filter_map(|(wanted, name)| wanted.then_some(name))
        .collect()
    }
}

/// A lever that was pulled, for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// Name of its option, without dashes.
    pub lever: String,
    /// What was done, in a few words.
    pub what: String,
    /// Why, where the user did not ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How a load ended, for what is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every row is in the table: what the user asked to stay stays.
    Finished,
    /// It failed and may be resumed: an unlogged table stays unlogged, since it cannot be made so again.
    Failed,
    /// The load is dead or given up: the table becomes what it was.
    GivenUp,
}

/// What a load is pulling levers with.
pub(crate) struct Hand<'a> {
    pub options: &'a Options,
    pub ledger: &'a Ledger,
    /// The load; changed where a lever changes what it was recorded with.
    pub load: &'a mut StoredLoad,
    /// The table; changed where a lever changes its persistence.
    pub table: &'a mut Table,
    /// Rows of earlier runs of this load are in the table.
    pub resumed: bool,
    /// Bytes of the inputs without compression, where they are known.
    pub bytes: Option<u64>,
    pub notice: &'a (dyn Fn(&str) + Sync),
}

/// Pulls the levers that were asked for and have not been pulled by an earlier run of this load. `--truncate` of a load in one transaction is left
/// to its lane.
pub(crate) async fn pull(hand: &mut Hand<'_>, target: &Target, conninfo: &ConnInfo) -> Result<Vec<Pulled>> {
    let wanted = &hand.options.levers;
    let mut pulled = Vec::new();
    if wanted.undoable().is_empty() && !wanted.truncate && hand.options.on_conflict.is_none() {
        return Ok(pulled);
    }
    // Not the control connection: that one commits without waiting for the WAL.
    let mut connected = connect(conninfo, "inrush load: levers").await?;
    let client = &mut connected.client;
    if let Some(action) = hand.options.on_conflict
        && !hand.ledger.has_lever(client, hand.load.id, conflict::NAME).await?
    {
        // Rows that were updated cannot be told from those that were there: undo looks for this.
        let tx = begin(client, hand.ledger, hand.load).await?;
        let action = serde_json::json!({ "action": action });
        hand.ledger.record_lever(&tx, hand.load.id, conflict::NAME, hand.load.target, &action, true).await?;
        commit(tx).await?;
    }
    if wanted.truncate && !hand.options.one_transaction() {
        pulled.extend(truncate::pull(client, hand).await?);
    }
    if wanted.unlogged {
        pulled.extend(persistence::pull(client, hand, target).await?);
    }
    if wanted.quiet_autovacuum {
        pulled.extend(autovacuum::pull(client, hand, target).await?);
    }
    if wanted.defer_foreign_keys {
        pulled.extend(foreign_keys::pull(client, hand).await?);
    }
    if let Some(names) = &wanted.defer_indexes {
        let names = names.clone();
        pulled.extend(indexes::pull(client, hand, &names).await?);
    }
    if wanted.fast {
        pulled.extend(fast::at_once(client, hand, target).await?);
    }
    Ok(pulled)
}

/// Levers that change nothing that has to be taken back.
pub(crate) fn of_the_run(options: &Options, plan: &Plan) -> Vec<Pulled> {
    let table = &plan.table;
    let levers = &options.levers;
    let mut pulled = Vec::new();
    let mut add = |lever: &str, what: String| {
        pulled.push(Pulled { lever: lever.to_owned(), what, why: None });
    };
    if levers.freeze {
        add(
            "freeze",
            format!(
                "rows are written frozen, after {} was emptied in the same transaction",
                table.qualified()
            ),
        );
    } else if levers.truncate && options.one_transaction() {
        add("truncate", format!("{} was emptied in the same transaction", table.qualified()));
    }
    if !plan.forbidding.is_empty() {
        let names: Vec<&str> = plan.forbidding.iter().map(|index| &*index.name).collect();
        add(
            indexes::NAME,
            format!(
                "{} dropped and made again in the load's one transaction, the table locked",
                names.join(", ")
            ),
        );
    }
    if let Some(action) = options.on_conflict {
        let what = match action {
            crate::options::OnConflict::Nothing => "rows whose key was there already were passed over",
            crate::options::OnConflict::Update => "rows took the place of those with the same key",
        };
        add(conflict::NAME, format!("{what}; one connection, so that rows keep their order"));
    }
    if let Some(value) = &levers.sync_commit {
        add("sync-commit", format!("{value} on the connections that load; the last commit waits for all"));
    }
    if levers.drop_cache {
        add("drop-cache", "the files do not stay in the page cache of this machine".to_owned());
    }
    pulled
}

/// Takes back what a load has changed, with up to `jobs` connections at once. Gives what was done, in words.
///
/// May be called at any time and again: what has been taken back is not touched. Fails at the first thing that cannot be
/// taken back, leaving the rest for another call. `conninfo` is for the connections beside `client`.
pub async fn put_back(
    client: &mut Client,
    conninfo: &ConnInfo,
    ledger: &Ledger,
    load: i64,
    end: End,
    jobs: usize,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Vec<String>> {
    let steps = ledger.pending_levers(client, load).await?;
    let mut done = Vec::new();
    let of = |name: &str| -> Vec<LeverStep> {
        // The last change is taken back first.
        steps.iter().rev().filter(|step| step.lever == name).cloned().collect()
    };
    let persistence = if end == End::Failed { Vec::new() } else { of(persistence::NAME) };
    for step in persistence {
        done.extend(persistence::put_back(client, ledger, load, &step, end, notice).await?);
    }
    let dropped = of(indexes::NAME);
    if !dropped.is_empty() {
        done.extend(indexes::put_back(conninfo, ledger, load, &dropped, jobs, notice).await?);
    }
    for step in of(foreign_keys::NAME) {
        done.extend(foreign_keys::put_back(client, ledger, load, &step).await?);
    }
    for step in of(autovacuum::NAME) {
        done.extend(autovacuum::put_back(client, ledger, load, &step).await?);
    }
    Ok(done)
}

/// The table of this OID as SQL names it now; `None` if it has been dropped.
async fn table_name(tx: &Transaction<'_>, oid: u32) -> Result<Option<String>> {
    let sql = "SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE c.oid = $1";
    let row = tx.query_opt(sql, &[&oid]).await.map_err(server_error)?;
    Ok(row.map(|row| row.get(0)))
}

/// Begins a transaction of the load in which names are given in full.
async fn begin<'c>(client: &'c mut Client, ledger: &Ledger, load: &StoredLoad) -> Result<Transaction<'c>> {
    let tx = client.transaction().await.map_err(server_error)?;
    ledger.fence_load(&tx, load).await?;
    tx.batch_execute(EMPTY_PATH).await.map_err(server_error)?;
    Ok(tx)
}

/// Begins taking a step back: `None` if somebody else has done so, or the table is gone. Else the table's name.
async fn begin_back<'c>(
    client: &'c mut Client,
    ledger: &Ledger,
    load: i64,
    step: &LeverStep,
    settled: Settled,
) -> Result<Option<(Transaction<'c>, String)>> {
    let tx = client.transaction().await.map_err(server_error)?;
    if !ledger.settle_lever(&tx, load, step.step, settled).await? {
        tx.rollback().await.map_err(server_error)?;
        return Ok(None);
    }
    tx.batch_execute(EMPTY_PATH).await.map_err(server_error)?;
    match table_name(&tx, step.target).await? {
        Some(name) => Ok(Some((tx, name))),
        None => {
            // Nothing is left to take back.
            tx.commit().await.map_err(server_error)?;
            Ok(None)
        }
    }
}

async fn commit(tx: Transaction<'_>) -> Result<()> {
    tx.commit().await.map_err(server_error)
}

/// A detail of a step that this program has written itself.
fn detail<T: serde::de::DeserializeOwned>(step: &LeverStep) -> Result<T> {
    serde_json::from_value(step.detail.clone()).map_err(|e| {
        Error::new(Code::Ledger, format!("what is recorded of lever {} cannot be read: {e}", step.lever))
    })
}

/// `3 indexes`, `1 index`
fn count_of(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}
