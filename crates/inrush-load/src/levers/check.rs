//! What a lever needs, looked at before anything is written.

use super::{LeverOptions, indexes, unique};
use crate::options::{LedgerChoice, Options};
use inrush_core::{Code, Error, RelKind, Result};
use inrush_sink::catalog::{Facts, Index, TableState, Target};
use inrush_sink::failure::server_error;
use tokio_postgres::Client;

/// Refuses levers that are impossible for this table, this role or this server. Gives what the user should know of the
/// price of the others, and the indexes that only a load in one transaction may defer.
pub(crate) async fn check(
    options: &Options,
    target: &Target,
    facts: &Facts,
    client: &mut Client,
) -> Result<Checked> {
    let levers = &options.levers;
    if *levers == LeverOptions::default() {
        return Ok(Checked::default());
    }
    let undoable = levers.undoable();
    if let (Some(first), LedgerChoice::None) = (undoable.first(), &options.ledger) {
        return Err(Error::new(Code::Usage, format!("--no-ledger contradicts --{first}")).hint(
            "What a lever changes is recorded in the ledger, so that it can be taken back after a crash.",
        ));
    }
    let table = target.table.qualified();
    let needs_table = !undoable.is_empty() || levers.freeze;
    let kinds: &[RelKind] = if levers.unlogged || levers.freeze || levers.defer_indexes.is_some() {
        &[RelKind::Table]
    } else {
        &[RelKind::Table, RelKind::Partitioned]
    };
    if needs_table && !levers.fast && !kinds.contains(&target.table.kind) {
        let name = undoable.first().copied().unwrap_or("freeze");
        let (what, hint) = match target.table.kind {
            RelKind::Partitioned => {
                ("a partitioned table", "Load into one of its partitions to use this lever.")
            }
            RelKind::View => ("a view", "Load into its table to use this lever."),
            _ => ("a foreign table", "Pull levers on the server that has the rows."),
        };
        return Err(Error::new(Code::Table, format!("--{name} is not for {what} such as {table}")).hint(hint));
    }
    let owners = undoable.iter().find(|name| **name != "fast");
    if let (Some(name), false) = (owners, target.access.owned) {
        return Err(Error::new(
            Code::Table,
            format!("--{name} needs the owner of {table}, which role {:?} is not", facts.role),
        )
        .sqlstate("42501")
        .hint("Load as the owner, or ask for membership in the owner's role."));
    }
    let state = target.state(client).await?;
    truncate(levers, target, &state, &table)?;
    freeze(options, target, client, &table).await?;
    unlogged(levers, &state, &table)?;
    named_indexes(levers, &state, &table)?;
    let names = levers.defer_indexes.as_deref().unwrap_or_default();
    let forbidding = unique::chosen(names, &state);
    if let (Some(index), Some(jobs)) = (forbidding.first(), options.jobs.filter(|jobs| *jobs > 1)) {
        return Err(Error::new(
            Code::Usage,
            format!("--defer-indexes={} contradicts --jobs {jobs}", index.name),
        )
        .hint(
            "An index that forbids rows can be missing only while nobody else writes: in one transaction.",
        ));
    }
    let mut price = Vec::new();
    if levers.unlogged && !levers.then_logged && !target.table.unlogged {
        price.push(format!(
            "--unlogged: {table} stays unlogged: a crash of the server empties it, and replicas never see its rows"
        ));
    }
    if levers.then_logged && facts.wal_level != "minimal" {
        price.push(format!(
            "--then-logged: making {table} logged writes all of it once more and all of it to WAL, 1.1 to 1.6 times \
             the WAL of a logged load (wal_level is {})",
            facts.wal_level
        ));
    }
    if !forbidding.is_empty() {
        price.push(format!(
            "--defer-indexes: nobody else can use {table} until the end of the load, which is one transaction"
        ));
    } else if levers.defer_indexes.is_some() {
        price.push(format!(
            "--defer-indexes: queries on {table} do without these indexes until the end, and writers wait while they \
             are made"
        ));
    }
    if levers.defer_foreign_keys && !state.foreign_keys.is_empty() {
        price.push(format!(
            "--defer-foreign-keys: nobody's rows in {table} are checked against them until the end"
        ));
    }
    Ok(Checked { price, forbidding })
}

/// What [`check`] has found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Sentences about the price of the levers.
    pub price: Vec<String>,
    /// Indexes that forbid something and were named: the load is one transaction.
    pub forbidding: Vec<Index>,
}

fn truncate(levers: &LeverOptions, target: &Target, state: &TableState, table: &str) -> Result<()> {
    if !levers.truncate && !levers.freeze {
        return Ok(());
    }
    let name = if levers.truncate { "truncate" } else { "freeze" };
    if !target.access.truncate {
        return Err(Error::new(Code::Table, format!("--{name} needs the privilege TRUNCATE on {table}"))
            .sqlstate("42501")
            .hint(format!("Its owner can grant it: GRANT TRUNCATE ON {table} TO you.")));
    }
    if let Some(other) = state.referenced_by.first() {
        return Err(Error::new(
            Code::Table,
            format!("--{name} is impossible: {other} has a foreign key to {table}"),
        )
        .sqlstate("0A000")
        .hint("The server truncates both or neither; remove the rows another way."));
    }
    Ok(())
}

async fn freeze(options: &Options, target: &Target, client: &Client, table: &str) -> Result<()> {
    let levers = &options.levers;
    if !levers.freeze {
        return Ok(());
    }
    if let Some(jobs) = options.jobs.filter(|jobs| *jobs > 1) {
        return Err(Error::new(Code::Usage, format!("--freeze contradicts --jobs {jobs}")).hint(
            "The server freezes rows only in the transaction that created or truncated the table, which has one \
             connection.",
        ));
    }
    if !levers.truncate && has_rows(client, target).await? {
        return Err(Error::new(Code::Table, format!("--freeze is impossible: {table} has rows")).hint(
            "The server freezes rows only in the transaction that created or truncated the table; with --truncate \
             the rows that are there are removed.",
        ));
    }
    Ok(())
}

fn unlogged(levers: &LeverOptions, state: &TableState, table: &str) -> Result<()> {
    if !levers.unlogged {
        return Ok(());
    }
    if state.persistence == 't' {
        return Err(Error::new(Code::Table, format!("--unlogged is impossible: {table} is temporary"))
            .hint("Temporary tables write no WAL anyway."));
    }
    if let Some(publication) = state.publications.first() {
        return Err(Error::new(
            Code::Table,
            format!("--unlogged is impossible: {table} is published by {publication:?}"),
        )
        .hint(
            "Subscribers would not get the rows; load it logged, or take it out of the publication first.",
        ));
    }
    if let Some(other) = state.referenced_by_logged.first() {
        return Err(Error::new(
            Code::Table,
            format!("--unlogged is impossible: {other} is logged and has a foreign key to {table}"),
        )
        .hint("The server does not let a logged table refer to an unlogged one."));
    }
    Ok(())
}

fn named_indexes(levers: &LeverOptions, state: &TableState, table: &str) -> Result<()> {
    for name in levers.defer_indexes.iter().flatten() {
        let Some(index) = state.indexes.iter().find(|index| index.name == *name) else {
            let known: Vec<&str> = state.indexes.iter().map(|index| &*index.name).collect();
            let hint = match known.is_empty() {
                true => "It has no indexes.".to_owned(),
                false => format!("Its indexes are {}.", known.join(", ")),
            };
            return Err(Error::new(Code::Table, format!("{table} has no index {name:?}")).hint(hint));
        };
        if let Some(obstacle) = indexes::obstacle(index) {
            return Err(Error::new(
                Code::Table,
                format!("--defer-indexes is impossible for {name:?}: it {obstacle}"),
            )
            .hint("Name other indexes, or none: then those that can be deferred are."));
        }
    }
    Ok(())
}

/// Whether there is a row. A role that may not read the table is told by its size.
pub(super) async fn has_rows(client: &Client, target: &Target) -> Result<bool> {
    let table = target.table.qualified();
    let sql = if target.access.select {
        format!("SELECT EXISTS (SELECT 1 FROM {table})")
    } else {
        format!("SELECT pg_catalog.pg_relation_size({}::oid) > 0", target.table.oid)
    };
    Ok(client.query_one(&sql, &[]).await.map_err(server_error)?.get(0))
}
