//! Tables whose rows are on several servers: how many rows and bytes are where.

use super::nodes::OpenNode;
use crate::foreign::{option, options};
use crate::layout::{Spread, read};
use crate::node::Node;
use futures_util::future::join_all;
use inrush_core::{Result, Table, quote_ident};
use inrush_sink::failure::server_error;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// A table whose rows are on several servers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableStatus {
    /// The table, with its schema.
    pub table: String,
    /// What spreads it.
    pub spread: Spread,
    /// `hash of id`; `None`: it has no key.
    pub by: Option<String>,
    /// Shards, or leaf partitions.
    pub shards: u64,
    /// Rows; `None`: not all are known.
    pub rows: Option<u64>,
    /// Whether the rows were counted; else they are what VACUUM and ANALYZE found last on the nodes.
    pub exact: bool,
    /// Bytes of its tables and their indexes; `None`: not all are known.
    pub bytes: Option<u64>,
    /// Shards that nobody has analyzed yet: their rows are not known.
    pub not_analyzed: u64,
    /// What each node has of it.
    pub nodes: Vec<NodeShare>,
    /// How uneven it is; `None` where there is nothing to compare.
    pub skew: Option<Skew>,
    /// The shard with the most bytes.
    pub largest: Option<Largest>,
}

/// What a node has of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeShare {
    /// The node.
    pub node: String,
    /// Shards there.
    pub shards: u64,
    /// Rows there; `None`: not all are known.
    pub rows: Option<u64>,
    /// Bytes there; `None`: not all are known.
    pub bytes: Option<u64>,
}

/// The largest divided by the mean: 1 is even.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Skew {
    /// Over the shards.
    pub shards: SkewOf,
    /// Over the nodes that take shards.
    pub nodes: SkewOf,
}

/// How uneven rows and bytes are; `None` where they are not all known, or there is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SkewOf {
    /// Of rows.
    pub rows: Option<f64>,
    /// Of bytes.
    pub bytes: Option<f64>,
}

/// The largest shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Largest {
    /// pg_dist_shard.shardid, or the OID of the partition on the coordinator.
    pub id: u64,
    /// Its name on its node, quoted where SQL needs it.
    pub relation: String,
    /// Its node.
    pub node: String,
    /// Its rows, if they are known.
    pub rows: Option<u64>,
    /// Its bytes.
    pub bytes: u64,
}

/// A table that is to be measured.
#[derive(Debug)]
pub(super) struct Spec {
    table: String,
    spread: Spread,
    by: Option<String>,
    pieces: Vec<Piece>,
}

/// A shard, or a leaf.
#[derive(Debug)]
struct Piece {
    id: u64,
    /// Index of the node, and the name there. Several for copies.
    copies: Vec<(usize, String)>,
}

/// Tables of Citus, but no partitions, which their parents' shards have.
const OF_CITUS: &str = "
    SELECT n.nspname::text, c.relname::text
      FROM pg_catalog.pg_dist_partition p
      JOIN pg_catalog.pg_class c ON c.oid = p.logicalrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE ($1 = 0::oid AND NOT c.relispartition) OR c.oid = $1
     ORDER BY 1, 2";

/// Partitioned tables that have leaves on other servers.
const PARTITIONED: &str = "
    SELECT c.oid, n.nspname::text, c.relname::text, pg_catalog.pg_get_partkeydef(c.oid)
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind = 'p' AND (($1 = 0::oid AND NOT c.relispartition) OR c.oid = $1)
       AND EXISTS (SELECT 1 FROM pg_catalog.pg_partition_tree(c.oid) t
                     JOIN pg_catalog.pg_class l ON l.oid = t.relid WHERE t.isleaf AND l.relkind = 'f')
     ORDER BY 2, 3";

const TREE: &str = "
    SELECT c.oid, n.nspname::text, c.relname::text, s.srvname::text, f.ftoptions
      FROM pg_catalog.pg_partition_tree($1::pg_catalog.oid::pg_catalog.regclass) t
      JOIN pg_catalog.pg_class c ON c.oid = t.relid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_foreign_table f ON f.ftrelid = c.oid
      LEFT JOIN pg_catalog.pg_foreign_server s ON s.oid = f.ftserver
     WHERE t.isleaf
     ORDER BY c.oid";

/// Rows and bytes of tables by their names; of partitioned ones those of their partitions. reltuples is -1 where nobody
/// has looked yet.
const FIGURES: &str = "
    WITH RECURSIVE wanted AS (
      SELECT x.n, pg_catalog.to_regclass(x.name)::pg_catalog.oid AS id
        FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY x(name, n)
    ), tree AS (
      SELECT w.n, w.id FROM wanted w WHERE w.id IS NOT NULL
      UNION ALL
      SELECT t.n, i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.id
    ), leaf AS (
      SELECT t.n, pg_catalog.pg_total_relation_size(c.oid) AS bytes,
             CASE WHEN c.reltuples >= 0 THEN c.reltuples::float8
                  WHEN pg_catalog.pg_relation_size(c.oid) = 0 THEN 0 END AS rows
        FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.id AND c.relkind IN ('r', 'm')
    )
    SELECT w.id IS NOT NULL, COALESCE(pg_catalog.sum(l.bytes), 0)::bigint,
           CASE WHEN pg_catalog.count(l.rows) = pg_catalog.count(l.bytes)
                THEN COALESCE(pg_catalog.sum(l.rows), 0)::bigint END
      FROM wanted w LEFT JOIN leaf l ON l.n = w.n
     GROUP BY w.n, w.id ORDER BY w.n";

/// The tables that are on several servers.
pub(super) async fn specs(client: &Client, nodes: &[OpenNode], only: Option<&Table>) -> Result<Vec<Spec>> {
    let only = only.map_or(0, |table| table.oid);
    let mut specs = Vec::new();
    if inrush_sink::catalog::citus::is_there(client).await? {
        for row in client.query_typed(OF_CITUS, &[(&only, Type::OID)]).await.map_err(server_error)? {
            let table = format!("{}.{}", quote_ident(row.get(0)), quote_ident(row.get(1)));
            let Some(layout) = read(client, &table).await? else { continue };
            if layout.spread == Spread::CitusLocal && only == 0 {
                continue;
            }
            let of = match layout.spread {
                Spread::CitusRange => "range",
                Spread::CitusAppend => "append",
                _ => "hash",
            };
            specs.push(Spec {
                by: layout.key.map(|key| format!("{of} of {key}")),
                spread: layout.spread,
                pieces: layout
                    .shards
                    .into_iter()
                    .map(|shard| Piece {
                        id: shard.id,
                        copies: shard
                            .nodes
                            .iter()
                            .filter_map(|node| Some((number(nodes, node)?, shard.relation.clone())))
                            .collect(),
                    })
                    .collect(),
                table,
            });
        }
    }
    for row in client.query_typed(PARTITIONED, &[(&only, Type::OID)]).await.map_err(server_error)? {
        let table = format!("{}.{}", quote_ident(row.get(1)), quote_ident(row.get(2)));
        if specs.iter().any(|spec| spec.table == table) {
            continue;
        }
        let definition: String = row.get(3);
        let by = definition.split_once(" (").map(|(strategy, key)| {
            format!("{} of {}", strategy.to_ascii_lowercase(), key.strip_suffix(')').unwrap_or(key))
        });
        let oid: u32 = row.get(0);
        let leaves = client.query_typed(TREE, &[(&oid, Type::OID)]).await.map_err(server_error)?;
        let pieces = leaves.iter().map(|leaf| {
            let (schema, name): (&str, &str) = (leaf.get(1), leaf.get(2));
            let at = match leaf.get::<_, Option<&str>>(3) {
                None => Some(0),
                Some(server) => nodes.iter().position(|open| open.node.name == server),
            };
            let of_table = options(leaf, 4);
            let relation = format!(
                "{}.{}",
                quote_ident(option(&of_table, "schema_name").unwrap_or(schema)),
                quote_ident(option(&of_table, "table_name").unwrap_or(name))
            );
            Piece {
                id: u64::from(leaf.get::<_, u32>(0)),
                copies: at.map(|at| (at, relation)).into_iter().collect(),
            }
        });
        specs.push(Spec { table, spread: Spread::Partitions, by, pieces: pieces.collect() });
    }
    Ok(specs)
}

/// The node among those that are known: the one that was asked comes first.
fn number(nodes: &[OpenNode], node: &Node) -> Option<usize> {
    match node.address {
        None => Some(0),
        Some(_) => nodes.iter().position(|open| open.node == *node),
    }
}

/// What is known of a copy of a shard.
#[derive(Debug, Clone, Copy, Default)]
struct Figure {
    rows: Option<u64>,
    bytes: Option<u64>,
    not_analyzed: bool,
}

/// Asks every node about all that it has.
pub(super) async fn measure(
    nodes: &[OpenNode],
    specs: &[Spec],
    exact: bool,
    notes: &mut Vec<String>,
) -> Vec<TableStatus> {
    let asked = nodes.iter().enumerate().map(|(at, open)| async move {
        // In the order in which they are taken again below.
        let names: Vec<&str> = copies(specs, at).collect();
        figures(open, &names, exact).await
    });
    let mut answers = Vec::new();
    for (figures, told) in join_all(asked).await {
        notes.extend(told);
        answers.push(figures.into_iter());
    }
    specs
        .iter()
        .map(|spec| {
            let figures: Vec<Vec<(usize, Figure)>> = spec
                .pieces
                .iter()
                .map(|piece| {
                    let figure = |(at, _): &(usize, String)| (*at, answers[*at].next().unwrap_or_default());
                    piece.copies.iter().map(figure).collect()
                })
                .collect();
            summary(nodes, spec, &figures, exact)
        })
        .collect()
}

/// Names of all that a node has.
fn copies(specs: &[Spec], node: usize) -> impl Iterator<Item = &str> {
    let pieces = specs.iter().flat_map(|spec| &spec.pieces);
    pieces.flat_map(move |p| p.copies.iter().filter(move |(at, _)| *at == node).map(|(_, name)| &**name))
}

async fn figures(open: &OpenNode, names: &[&str], exact: bool) -> (Vec<Figure>, Vec<String>) {
    let mut notes = Vec::new();
    let Some(session) = open.session.as_ref().filter(|_| !names.is_empty()) else {
        return (Vec::new(), notes);
    };
    let client = &session.client;
    let name = &open.status.name;
    let rows = match client.query_typed(FIGURES, &[(&names, Type::TEXT_ARRAY)]).await {
        Ok(rows) => rows,
        Err(error) => {
            notes.push(format!("{name} does not say how much it has: {}", server_error(error).fact()));
            return (Vec::new(), notes);
        }
    };
    let mut all = Vec::new();
    for (row, relation) in rows.iter().zip(names) {
        if !row.get::<_, bool>(0) {
            notes.push(format!("{relation} is not on {name}, or may not be looked at"));
            all.push(Figure::default());
            continue;
        }
        let mut figure = Figure {
            bytes: u64::try_from(row.get::<_, i64>(1)).ok(),
            rows: row.get::<_, Option<i64>>(2).and_then(|rows| u64::try_from(rows).ok()),
            not_analyzed: row.get::<_, Option<i64>>(2).is_none(),
        };
        if exact {
            figure.not_analyzed = false;
            figure.rows = match client.query_typed_one(&format!("SELECT count(*) FROM {relation}"), &[]).await
            {
                Ok(row) => u64::try_from(row.get::<_, i64>(0)).ok(),
                Err(error) => {
                    let error = server_error(error);
                    notes.push(format!("{relation} on {name} cannot be counted: {}", error.fact()));
                    None
                }
            };
        }
        all.push(figure);
    }
    (all, notes)
}

fn summary(nodes: &[OpenNode], spec: &Spec, figures: &[Vec<(usize, Figure)>], exact: bool) -> TableStatus {
    // One copy of each: which one has more rows is the better estimate.
    let of_pieces = |of: fn(&Figure) -> Option<u64>| -> Vec<Option<u64>> {
        figures.iter().map(|copies| copies.iter().filter_map(|(_, figure)| of(figure)).max()).collect()
    };
    let (rows, bytes) = (of_pieces(|figure| figure.rows), of_pieces(|figure| figure.bytes));
    let shares: Vec<(usize, NodeShare)> = nodes
        .iter()
        .enumerate()
        .filter_map(|(at, open)| {
            let here: Vec<&Figure> =
                figures.iter().flatten().filter(|(node, _)| *node == at).map(|(_, figure)| figure).collect();
            let takes = spec.spread == Spread::CitusHash && open.status.takes_shards == Some(true);
            (takes || !here.is_empty()).then(|| {
                let share = NodeShare {
                    node: open.status.name.clone(),
                    shards: here.len() as u64,
                    rows: here.iter().map(|figure| figure.rows).sum(),
                    bytes: here.iter().map(|figure| figure.bytes).sum(),
                };
                (at, share)
            })
        })
        .collect();
    let shares: Vec<NodeShare> = shares.into_iter().map(|(_, share)| share).collect();
    let of_nodes = |of: fn(&NodeShare) -> Option<u64>| shares.iter().map(of).collect::<Vec<_>>();
    let compared = matches!(spec.spread, Spread::CitusHash | Spread::CitusRange | Spread::CitusAppend)
        || spec.spread == Spread::Partitions;
    let skew = Skew {
        shards: SkewOf { rows: skew(&rows), bytes: skew(&bytes) },
        nodes: SkewOf {
            rows: skew(&of_nodes(|share| share.rows)),
            bytes: skew(&of_nodes(|share| share.bytes)),
        },
    };
    let known = skew.shards.rows.is_some() || skew.shards.bytes.is_some();
    let skew = Some(skew).filter(|_| known && compared && spec.pieces.len() > 1);
    let largest = largest(nodes, spec, figures).filter(|_| skew.is_some());
    TableStatus {
        table: spec.table.clone(),
        spread: spec.spread,
        by: spec.by.clone(),
        shards: spec.pieces.len() as u64,
        rows: rows.iter().copied().sum(),
        exact,
        bytes: match spec.spread {
            // Each copy takes its room.
            Spread::CitusReference => shares.iter().map(|share| share.bytes).sum(),
            _ => bytes.iter().copied().sum(),
        },
        not_analyzed: figures.iter().filter(|copies| copies.iter().any(|(_, f)| f.not_analyzed)).count()
            as u64,
        nodes: shares,
        skew,
        largest,
    }
}

fn largest(nodes: &[OpenNode], spec: &Spec, figures: &[Vec<(usize, Figure)>]) -> Option<Largest> {
    let copies = spec.pieces.iter().zip(figures).flat_map(|(piece, figures)| {
        piece
            .copies
            .iter()
            .zip(figures)
            .map(move |((_, relation), (at, figure))| (piece.id, relation, *at, figure))
    });
    let (id, relation, at, figure) = copies
        .filter(|(.., figure)| figure.bytes.is_some())
        .max_by_key(|(.., figure)| (figure.bytes, figure.rows))?;
    Some(Largest {
        id,
        relation: relation.clone(),
        node: nodes[at].status.name.clone(),
        rows: figure.rows,
        bytes: figure.bytes?,
    })
}

/// The largest divided by the mean, to the thousandth.
#[allow(clippy::cast_precision_loss)] // a ratio
fn skew(values: &[Option<u64>]) -> Option<f64> {
    let values: Vec<u64> = values.iter().copied().collect::<Option<_>>()?;
    let sum: u64 = values.iter().sum();
    let largest = *values.iter().max()?;
    (sum > 0).then(|| (largest as f64 * values.len() as f64 / sum as f64 * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_is_the_largest_by_the_mean() {
        assert_eq!(skew(&[Some(10), Some(10)]), Some(1.0));
        assert_eq!(skew(&[Some(30), Some(0), Some(0)]), Some(3.0));
        assert_eq!(skew(&[Some(2), Some(1)]), Some(1.333));
        assert_eq!((skew(&[Some(1), None]), skew(&[Some(0)]), skew(&[])), (None, None, None));
    }
}
