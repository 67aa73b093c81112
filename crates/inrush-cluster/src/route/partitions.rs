//! Keys of partitioned tables, down to the leaf.

use super::value::{KeyValue, parameters};
use super::{Chosen, Hash, Placement, Route, Step, against, disagreement, need};
use crate::foreign::{KEY, LEAVES, address, option, options, ranges};
use crate::layout::Spread;
use crate::node::Node;
use crate::topology::Map;
use inrush_core::{Code, Error, Result, Table, quote_ident};
use inrush_route::{Bound, Partitions, RangeKind, partition_hash};
use inrush_sink::failure::server_error;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

/// The key as it was written, and the columns that only its expressions have: StorePartitionKey (heap.c) makes all of
/// them depend on the table.
const EXPRESSIONS: &str = "
    SELECT pg_catalog.pg_get_partkeydef(p.partrelid),
           (SELECT pg_catalog.array_agg(a.attname::text ORDER BY a.attnum)
              FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = p.partrelid AND NOT a.attisdropped AND a.attnum > 0
               AND a.attnum <> ALL (p.partattrs::int2[])
               AND EXISTS (SELECT 1 FROM pg_catalog.pg_depend d
                            WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = a.attrelid
                              AND d.objsubid = a.attnum AND d.refclassid = 'pg_catalog.pg_class'::regclass
                              AND d.refobjid = a.attrelid AND d.refobjsubid = 0 AND d.deptype = 'i'))
      FROM pg_catalog.pg_partitioned_table p
     WHERE p.partrelid = pg_catalog.to_regclass($1)";

/// What rows of these tables fulfil.
const CONSTRAINTS: &str = "
    SELECT COALESCE(pg_catalog.pg_get_partition_constraintdef(x.id), 'true')
      FROM pg_catalog.unnest($1::oid[]) WITH ORDINALITY x(id, n) ORDER BY x.n";

/// Constraints that one statement asks about.
const AT_ONCE: usize = 256;

/// A partitioned table on the way down.
struct Level {
    /// As pg_get_partkeydef has it.
    definition: String,
    strategy: String,
    /// The columns that its key is made of, plain ones first and in the key's order.
    columns: Vec<String>,
    /// Whether the key is of columns only, under operator classes and collations that are known here.
    plain: bool,
    /// Whether text is ordered by its bytes.
    by_bytes: bool,
    leaves: Vec<Row>,
}

impl Level {
    async fn read(client: &Client, name: &str) -> Result<Level> {
        let gone = || Error::new(Code::Table, format!("{name} is not a partitioned table any more"));
        let parameter = &[(&name as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT)];
        let key = client.query_typed_opt(KEY, parameter).await.map_err(server_error)?.ok_or_else(gone)?;
        let more =
            client.query_typed_opt(EXPRESSIONS, parameter).await.map_err(server_error)?.ok_or_else(gone)?;
        let mut columns: Vec<String> = key.get::<_, Option<Vec<String>>>(2).unwrap_or_default();
        columns.extend(more.get::<_, Option<Vec<String>>>(1).unwrap_or_default());
        Ok(Level {
            definition: more.get(0),
            strategy: key.get(0),
            columns,
            plain: !key.get::<_, bool>(1) && !key.get::<_, bool>(3) && !key.get::<_, bool>(4),
            by_bytes: !key.get::<_, bool>(5),
            leaves: client.query_typed(LEAVES, parameter).await.map_err(server_error)?,
        })
    }

    /// `hash of id`, `range of date_trunc('day', at)`
    fn by(&self) -> String {
        match self.definition.split_once(" (") {
            Some((strategy, key)) => {
                format!("{} of {}", strategy.to_ascii_lowercase(), key.strip_suffix(')').unwrap_or(key))
            }
            None => self.definition.clone(),
        }
    }

    fn bounds(&self) -> Vec<&str> {
        self.leaves.iter().map(|leaf| leaf.get::<_, Option<&str>>(4).unwrap_or_default()).collect()
    }

    fn name(&self, at: usize) -> String {
        let leaf = &self.leaves[at];
        format!("{}.{}", quote_ident(leaf.get(2)), quote_ident(leaf.get(3)))
    }

    /// The partition as it is found here, and the hash if it goes by one; the outer `None`: that is not known here.
    async fn ours(&self, client: &Client, table: &Table, key: &[&KeyValue]) -> Result<Option<Ours>> {
        if !self.plain {
            return Ok(None);
        }
        match &*self.strategy {
            "h" => {
                let bounds: Option<Vec<Bound>> = self.bounds().into_iter().map(Bound::parse).collect();
                let values: Option<Vec<_>> =
                    key.iter().map(|key| Some((key.kind?, key.bytes.as_deref()))).collect();
                Ok(values.zip(bounds).and_then(|(values, bounds)| {
                    let hash = partition_hash(&values)?;
                    Some(Ours { hash: Some(hash), at: Partitions::new(bounds).find(hash) })
                }))
            }
            "r" if self.by_bytes => {
                let [key] = key else { return Ok(None) };
                let Some(kind) = key.kind.and_then(RangeKind::of) else { return Ok(None) };
                let Some(column) = table.column(&key.column) else { return Ok(None) };
                let map = ranges(client, kind, &column.ty, &self.bounds()).await?;
                let Some(Map::Ranges(ranges)) = map else { return Ok(None) };
                Ok(Some(Ours { hash: None, at: ranges.find(key.bytes.as_deref()) }))
            }
            _ => Ok(None),
        }
    }

    /// The partition by the server's own constraints.
    async fn theirs(&self, client: &Client, key: &[KeyValue]) -> Result<Option<usize>> {
        let ids: Vec<u32> = self.leaves.iter().map(|leaf| leaf.get(0)).collect();
        let rows = client.query_typed(CONSTRAINTS, &[(&ids, Type::OID_ARRAY)]).await.map_err(server_error)?;
        let columns: Vec<String> = key
            .iter()
            .enumerate()
            .map(|(at, key)| format!("{} AS {}", key.sql(at + 1), quote_ident(&key.column)))
            .collect();
        let mut found = Vec::new();
        for (chunk, rows) in rows.chunks(AT_ONCE).enumerate() {
            // As the executor judges it: only what is false does not belong (execMain.c, ExecPartitionCheck).
            let judged: Vec<String> =
                rows.iter().map(|row| format!("({}) IS NOT FALSE", row.get::<_, &str>(0))).collect();
            let sql = format!("SELECT ARRAY[{}] FROM (SELECT {}) key", judged.join(", "), columns.join(", "));
            let row = client.query_typed_one(&sql, &parameters(key)).await.map_err(server_error)?;
            let takes: Vec<bool> = row.get(0);
            let at = takes.iter().enumerate().filter(|(_, takes)| **takes);
            found.extend(at.map(|(at, _)| chunk * AT_ONCE + at));
        }
        match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            [one, other, ..] => {
                Err(disagreement("partition", &self.name(one), &format!("{}, too", self.name(other))))
            }
        }
    }

    /// A leaf as a place.
    fn placement(&self, at: usize) -> Placement {
        let leaf = &self.leaves[at];
        let Some(server) = leaf.get::<_, Option<String>>(5) else {
            let here = Node::coordinator();
            return Placement::new(&here, &self.name(at));
        };
        if leaf.get::<_, Option<&str>>(6) != Some("postgres_fdw") {
            return Placement { node: server, host: None, port: None, relation: self.name(at) };
        }
        let of_table = options(leaf, 7);
        let node = Node { name: server, address: Some(address(&options(leaf, 8), &[])) };
        let relation = format!(
            "{}.{}",
            quote_ident(option(&of_table, "schema_name").unwrap_or(leaf.get(2))),
            quote_ident(option(&of_table, "table_name").unwrap_or(leaf.get(3)))
        );
        Placement::new(&node, &relation)
    }
}

struct Ours {
    hash: Option<u64>,
    at: Option<usize>,
}

pub(super) async fn route(client: &Client, table: &Table, values: &[Option<String>]) -> Result<Route> {
    let mut route = Route::of(table, Spread::Partitions);
    let mut name = table.qualified();
    let mut columns: Vec<String> = Vec::new();
    let leaf = loop {
        let level = Level::read(client, &name).await?;
        route.by.get_or_insert_with(|| level.by());
        for column in &level.columns {
            if columns.contains(column) {
                continue;
            }
            columns.push(column.clone());
            if let Some(value) = values.get(columns.len() - 1) {
                route.key.push(KeyValue::read(client, table, column, value.as_deref()).await?);
            }
        }
        if values.len() < columns.len() {
            need(table, values, &columns)?;
        }
        let (step, at) = step(client, table, &level, &route.key).await?;
        route.steps.push(step);
        let Some(at) = at else { break None };
        if level.leaves[at].get::<_, &str>(1) != "p" {
            break Some((level, at));
        }
        name = level.name(at);
    };
    need(table, values, &columns)?;
    let Some((level, at)) = leaf else {
        route.why = Some("no partition takes this key".into());
        return Ok(route);
    };
    let placement = level.placement(at);
    route.why = match against(client, table, &route.key).await? {
        // One server has it all, or partitions of partitions are elsewhere, which a load does not look for.
        Some(why) if why == super::HERE => Some(match placement.host {
            None => "its partitions are on this server".into(),
            Some(_) => "its partitions are partitioned, too".into(),
        }),
        other => other,
    };
    route.direct = route.why.is_none();
    route.placements.push(placement);
    Ok(route)
}

async fn step(
    client: &Client,
    table: &Table,
    level: &Level,
    key: &[KeyValue],
) -> Result<(Step, Option<usize>)> {
    let of_level: Vec<&KeyValue> =
        level.columns.iter().filter_map(|column| key.iter().find(|key| key.column == *column)).collect();
    let ours = level.ours(client, table, &of_level).await?;
    let theirs = level.theirs(client, key).await?;
    let mut checked = Vec::new();
    let found = match &ours {
        Some(ours) => {
            if ours.at != theirs {
                let text = |at: Option<usize>| at.map_or("none".into(), |at| level.name(at));
                return Err(disagreement("partition", &text(ours.at), &text(theirs)));
            }
            let (found, asked) = match ours.hash {
                Some(_) => ("the hash divided by each modulus", "satisfies_hash_partition"),
                None => ("the value looked up in the partitions' ranges", "the partition's constraint"),
            };
            checked.push(asked.to_owned());
            found
        }
        None => "the server was asked (pg_get_partition_constraintdef)",
    };
    let bounds = level.bounds();
    let step = Step {
        by: level.by(),
        hash: ours.and_then(|ours| ours.hash).map(|hash| Hash { bits: 64, value: hash.to_string() }),
        of: level.leaves.len(),
        chosen: theirs.map(|at| Chosen {
            id: u64::from(level.leaves[at].get::<_, u32>(0)),
            name: level.name(at),
            takes: Some(bounds[at].to_owned()),
        }),
        found: found.into(),
        checked,
    };
    Ok((step, theirs))
}
