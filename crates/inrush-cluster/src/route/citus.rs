//! Keys of tables that Citus distributes.

use super::value::{KeyValue, parameters};
use super::{Chosen, Hash, Placement, Route, Step, against, disagreement, need};
use crate::layout::{Layout, ShardCopies, Spread};
use inrush_core::{Code, Error, Result, Table};
use inrush_route::{Shard, Shards, shard_hash};
use inrush_sink::failure::server_error;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

pub(super) async fn route(
    client: &Client,
    table: &Table,
    layout: &Layout,
    values: &[Option<String>],
) -> Result<Route> {
    let mut route = Route::of(table, layout.spread);
    let of = match layout.spread {
        Spread::CitusRange => "range",
        Spread::CitusAppend => "append",
        _ => "hash",
    };
    route.by = layout.key.as_ref().map(|key| format!("{of} of {key}"));
    let keys: Vec<String> = layout.key.iter().cloned().collect();
    need(table, values, &keys)?;
    let chosen = match (&layout.key, values) {
        (Some(key), [value]) => {
            let key = KeyValue::read(client, table, key, value.as_deref()).await?;
            if layout.spread == Spread::CitusAppend {
                route.key.push(key);
                route.why =
                    Some("shards of a table distributed by append overlap: each may have the key".into());
                return Ok(route);
            }
            if key.value.is_none() {
                route.key.push(key);
                route.why = Some("Citus takes no row whose distribution column is NULL".into());
                return Ok(route);
            }
            let (step, at) = step(client, table, layout, &key).await?;
            route.key.push(key);
            route.steps.push(step);
            at
        }
        _ => layout.shards.first(),
    };
    let Some(shard) = chosen else {
        route.why = Some(match layout.shards.len() {
            0 => "it has no shards".into(),
            _ => "no shard takes this key".into(),
        });
        return Ok(route);
    };
    if route.steps.is_empty() {
        route.steps.push(Step {
            by: "no key".into(),
            hash: None,
            of: layout.shards.len(),
            chosen: Some(Chosen { id: shard.id, name: shard.relation.clone(), takes: None }),
            found: "it is the only shard".into(),
            checked: Vec::new(),
        });
    }
    route.placements = shard.nodes.iter().map(|node| Placement::new(node, &shard.relation)).collect();
    route.why = against(client, table, &route.key).await?;
    if route.placements.is_empty() {
        route.why = Some(format!("shard {} is on no node that is active", shard.id));
    }
    route.direct = route.why.is_none();
    Ok(route)
}

/// The shard of a value that is not NULL.
async fn step<'l>(
    client: &Client,
    table: &Table,
    layout: &'l Layout,
    key: &KeyValue,
) -> Result<(Step, Option<&'l ShardCopies>)> {
    let mut checked = Vec::new();
    let (mut hash, mut at, mut found) = (None, None, "");
    let by_hash = layout.spread == Spread::CitusHash;
    if by_hash {
        let theirs = worker_hash(client, key).await?;
        let ours = key.kind.zip(key.bytes.as_ref()).and_then(|(kind, bytes)| shard_hash(kind, bytes));
        found = match ours {
            Some(ours) if ours != theirs => {
                return Err(disagreement("hash", &ours.to_string(), &theirs.to_string()));
            }
            Some(_) => {
                checked.push("worker_hash".to_owned());
                "the hash looked up in the shards' ranges"
            }
            None => "worker_hash of the server, looked up in the shards' ranges",
        };
        at = shards(layout)?.find(theirs).and_then(|found| layout.shards.iter().find(|s| s.id == found.id));
        hash = Some(Hash { bits: 32, value: theirs.to_string() });
    }
    if let Some(theirs) = shard_of(client, table, key).await? {
        let name = "get_shard_id_for_distribution_column";
        if by_hash {
            let ours = at.map(|shard| shard.id);
            if ours != theirs {
                let text = |id: Option<u64>| id.map_or("none".into(), |id: u64| id.to_string());
                return Err(disagreement("shard", &text(ours), &text(theirs)));
            }
            checked.push(name.into());
        } else {
            at = theirs.and_then(|id| layout.shards.iter().find(|shard| shard.id == id));
            found = "the server was asked (get_shard_id_for_distribution_column)";
        }
    } else if !by_hash {
        return Err(Error::new(
            Code::Table,
            format!(
                "only the server knows the shards of {}, and this role may not ask it",
                table.qualified()
            ),
        )
        .hint("It needs SELECT on the table."));
    }
    let step = Step {
        by: format!("{} of {}", if by_hash { "hash" } else { "range" }, key.column),
        hash,
        of: layout.shards.len(),
        chosen: at.map(|shard| Chosen {
            id: shard.id,
            name: shard.relation.clone(),
            takes: shard.range.as_ref().map(|(min, max)| match by_hash {
                true => format!("hashes {min} to {max}"),
                false => format!("{min} to {max}"),
            }),
        }),
        found: found.into(),
        checked,
    };
    Ok((step, at))
}

fn shards(layout: &Layout) -> Result<Shards> {
    let ranges = layout.shards.iter().map(|shard| {
        let (min, max) = shard.range.as_ref()?;
        Some(Shard { id: shard.id, min: min.parse().ok()?, max: max.parse().ok()? })
    });
    ranges
        .collect::<Option<Vec<_>>>()
        .and_then(Shards::new)
        .ok_or_else(|| Error::new(Code::Server, "the shards of the table overlap, by the metadata of Citus"))
}

async fn worker_hash(client: &Client, key: &KeyValue) -> Result<i32> {
    let sql = format!("SELECT pg_catalog.worker_hash({})", key.sql(1));
    let keys = std::slice::from_ref(key);
    let row = client.query_typed_one(&sql, &parameters(keys)).await.map_err(server_error)?;
    Ok(row.get(0))
}

/// The shard as Citus finds it, which needs SELECT: the outer `None` is for want of it.
#[allow(clippy::option_option)]
async fn shard_of(client: &Client, table: &Table, key: &KeyValue) -> Result<Option<Option<u64>>> {
    let sql = "SELECT pg_catalog.has_table_privilege($1, 'SELECT')";
    let row = client.query_typed_one(sql, &[(&table.oid, Type::OID)]).await.map_err(server_error)?;
    if !row.get::<_, bool>(0) {
        return Ok(None);
    }
    let sql = format!(
        "SELECT pg_catalog.get_shard_id_for_distribution_column($2::pg_catalog.oid::pg_catalog.regclass, {})",
        key.sql(1)
    );
    let mut all = parameters(std::slice::from_ref(key));
    all.push((&table.oid as &(dyn ToSql + Sync), Type::OID));
    let row = client.query_typed_one(&sql, &all).await.map_err(server_error)?;
    // 0: there is none.
    let id: Option<i64> = row.get(0);
    Ok(Some(id.and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0)))
}
