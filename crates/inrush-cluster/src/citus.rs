//! Where Citus has the rows of a table, by its metadata (pg_dist_partition, pg_dist_shard, pg_dist_placement, pg_dist_node),
//! which workers have too.

use crate::find::Found;
use crate::node::{Address, Node};
use crate::topology::{Kind, Map, Place, Topology};
use inrush_core::{Code, Error, Result, Table};
use inrush_route::{Shard, Shards};
use inrush_sink::failure::server_error;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

/// One row for each placement, or one without a placement, by their ranges of hashes. `shard_name` cuts names to 63 bytes as Citus does, and
/// leaves out the schema where it is public.
pub(crate) const PLACEMENTS: &str = "
    SELECT t.partmethod::text, t.repmodel::text, t.colocationid,
           pg_catalog.column_to_column_name(t.logicalrelid, t.partkey),
           (SELECT l.groupid FROM pg_catalog.pg_dist_local_group l),
           s.shardid, s.shardminvalue, s.shardmaxvalue,
           ns.nspname::text, (pg_catalog.parse_ident(pg_catalog.shard_name(t.logicalrelid, s.shardid)))[
               pg_catalog.array_upper(pg_catalog.parse_ident(pg_catalog.shard_name(t.logicalrelid, s.shardid)), 1)],
           p.groupid, n.nodename, n.nodeport
      FROM pg_catalog.pg_dist_partition t
      JOIN pg_catalog.pg_class c ON c.oid = t.logicalrelid
      JOIN pg_catalog.pg_namespace ns ON ns.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_dist_shard s ON s.logicalrelid = t.logicalrelid
      LEFT JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid
      LEFT JOIN pg_catalog.pg_dist_node n
             ON n.groupid = p.groupid AND n.noderole = 'primary' AND n.isactive AND n.nodecluster = 'default'
     WHERE t.logicalrelid = pg_catalog.to_regclass($1)
     ORDER BY CASE WHEN t.partmethod = 'h' THEN s.shardminvalue::int END, s.shardid, p.groupid";

/// The servers of the cluster that have data.
const NODES: &str = "
    SELECT n.nodename, n.nodeport, n.groupid, (SELECT l.groupid FROM pg_catalog.pg_dist_local_group l)
      FROM pg_catalog.pg_dist_node n
     WHERE n.noderole = 'primary' AND n.isactive AND n.nodecluster = 'default'
     ORDER BY n.groupid";

/// Where Citus has the rows of a table; [`Found::Here`] if it does not.
pub(crate) async fn read<C: GenericClient>(client: &C, table: &Table) -> Result<Found> {
    let name = table.qualified();
    let rows = client.query_typed(PLACEMENTS, &[(&name, Type::TEXT)]).await.map_err(server_error)?;
    let Some(first) = rows.first() else { return Ok(Found::Here) };
    let method: &str = first.get(0);
    let replication: &str = first.get(1);
    let why = match (method, replication) {
        ("h", "s") => None,
        ("n", "s") if first.get::<_, i32>(2) > 0 => None,
        ("n", "t") => Some("it is a reference table, of which every node has a copy"),
        ("n", _) => Some("it is a local table of Citus"),
        ("h", _) => Some("its shards are replicated by statement"),
        ("r" | "a", _) => Some("it is distributed by range or append, not by hash"),
        _ => Some("Citus distributes it in a way that is not known here"),
    };
    if let Some(why) = why {
        return Ok(Found::Coordinator(why.into()));
    }
    let local: i32 = first.get(4);
    if local != 0 {
        return Ok(Found::Coordinator(
            "this server is a worker: the locks that are needed are the coordinator's".into(),
        ));
    }
    topology(method == "h", local, &rows)
}

fn topology(hash: bool, local: i32, rows: &[Row]) -> Result<Found> {
    let mut topology = Topology {
        kind: Kind::Citus,
        keys: rows[0].get::<_, Option<String>>(3).into_iter().filter(|_| hash).collect(),
        map: Map::One,
        places: Vec::new(),
        nodes: Vec::new(),
    };
    let mut shards = Vec::new();
    for row in rows {
        let Some(shard) = row.get::<_, Option<i64>>(5) else {
            return Ok(Found::Coordinator("it has no shards".into()));
        };
        let id = u64::try_from(shard).unwrap_or_default();
        if topology.places.last().is_some_and(|place: &Place| place.id == id) {
            return Ok(Found::Coordinator("its shards have more than one placement".into()));
        }
        let (Some(name), Some(port)) = (row.get::<_, Option<&str>>(11), row.get::<_, Option<i32>>(12)) else {
            return Ok(Found::Coordinator(format!("shard {shard} is on no node that is active")));
        };
        let node = node(name, port, row.get(10), local);
        let number = topology.nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            topology.nodes.push(node);
            topology.nodes.len() - 1
        });
        topology.places.push(Place {
            schema: row.get(8),
            name: row.get(9),
            node: number,
            id,
            renamed: Vec::new(),
        });
        if hash {
            let bound = |i| row.get::<_, Option<&str>>(i).and_then(|text| text.parse().ok());
            let (Some(min), Some(max)) = (bound(6), bound(7)) else {
                return Ok(Found::Coordinator(format!("shard {shard} has no range")));
            };
            shards.push(Shard { id, min, max });
        }
    }
    if hash {
        // Both are in the order of the ranges.
        topology.map = Map::Shards(Shards::new(shards).ok_or_else(|| {
            Error::new(Code::Server, "the shards of the table overlap, by the metadata of Citus")
        })?);
    } else if topology.places.len() != 1 {
        return Ok(Found::Coordinator("it has several shards and no key".into()));
    }
    Ok(Found::Direct(Box::new(topology)))
}

pub(crate) fn node(name: &str, port: i32, group: i32, local: i32) -> Node {
    let port = u16::try_from(port).unwrap_or_default();
    let address = (group != local).then(|| Address {
        host: name.to_owned(),
        port,
        dbname: None,
        user: None,
        password: None,
    });
    Node { name: format!("{name}:{port}"), address }
}

/// The servers of the cluster that have data, the coordinator among them.
pub(crate) async fn nodes<C: GenericClient>(client: &C) -> Result<Vec<Node>> {
    let rows = client.query_typed(NODES, &[]).await.map_err(server_error)?;
    Ok(rows.iter().map(|row| node(row.get(0), row.get(1), row.get(2), row.get(3))).collect())
}
