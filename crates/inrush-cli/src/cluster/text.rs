//! What `inrush cluster status` prints.

use crate::grid::{Align, bytes, grid, pair, wrapped};
use crate::loads::counted;
use inrush_cluster::{NodeStatus, OtherPrepared, Recover, SkewOf, Spread, Status, TableStatus, UnitStatus};
use inrush_load::grouped;
use std::collections::BTreeMap;

pub fn status(status: &Status) -> String {
    if !status.cluster {
        let mut text = "there is no cluster here: no Citus, and no partition on another server\n".to_owned();
        text += &prepared(status);
        return text;
    }
    let mut text = nodes(&status.nodes);
    for table in &status.tables {
        text += "\n";
        text += &of_table(table);
    }
    if status.tables.is_empty() {
        text += "\nno table has its rows on several servers\n";
    }
    text += &prepared(status);
    if !status.notes.is_empty() {
        text += "\n";
    }
    for note in &status.notes {
        text += &wrapped("note", note);
    }
    text
}

fn nodes(nodes: &[NodeStatus]) -> String {
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|node| {
            let or = |value: &Option<String>, none: &str| match node.error {
                Some(_) => String::new(),
                None => value.as_deref().unwrap_or(none).to_owned(),
            };
            let slots = node.max_prepared_transactions.map(|most| u64::from(most.unsigned_abs()));
            vec![
                name(node),
                or(&node.server_version, ""),
                or(&node.citus, "stock"),
                or(&node.extension, "no"),
                match (node.prepared, slots) {
                    (_, Some(0)) => "off".to_owned(),
                    (Some(prepared), Some(slots)) => format!("{} of {}", grouped(prepared), grouped(slots)),
                    _ => String::new(),
                },
                if node.error.is_some() { "unreachable" } else { "ok" }.to_owned(),
            ]
        })
        .collect();
    let mut text = grid(
        &[
            ("NODE", Align::Left),
            ("SERVER", Align::Left),
            ("CITUS", Align::Left),
            ("INRUSH", Align::Left),
            ("PREPARED", Align::Right),
            ("STATE", Align::Left),
        ],
        &rows,
    );
    for node in nodes {
        if let Some(error) = &node.error {
            text += &format!("{}: {error}\n", node.name);
        }
    }
    text
}

fn name(node: &NodeStatus) -> String {
    match (&node.host, node.port) {
        (Some(host), Some(port)) if node.name != format!("{host}:{port}") => {
            format!("{} ({host}:{port})", node.name)
        }
        _ => node.name.clone(),
    }
}

fn figure(rows: Option<u64>) -> String {
    rows.map_or_else(|| "?".to_owned(), grouped)
}

fn size(size: Option<u64>) -> String {
    size.map_or_else(|| "?".to_owned(), bytes)
}

fn of_table(table: &TableStatus) -> String {
    let what = match (table.spread, &table.by) {
        (Spread::CitusReference, _) => "a copy on every node".to_owned(),
        (Spread::CitusSingle, _) => "one shard".to_owned(),
        (Spread::CitusLocal, _) => "a local table of Citus".to_owned(),
        (_, Some(by)) => by.clone(),
        (_, None) => "no key".to_owned(),
    };
    let mut text = format!("table {}: {what}\n", table.table);
    let rows = match (table.rows, table.exact) {
        (Some(rows), true) => format!("{} rows", grouped(rows)),
        (Some(rows), false) => format!("about {} rows", grouped(rows)),
        (None, _) => "rows not all known".to_owned(),
    };
    let pieces = if table.spread == Spread::Partitions { "partition" } else { "shard" };
    let bytes_known = table.bytes.map_or_else(|| "size not all known".to_owned(), bytes);
    text += &pair("has", &format!("{}, {rows}, {bytes_known}", counted(table.shards, pieces)));
    if table.not_analyzed > 0 {
        let told = format!("{}: ANALYZE, or --exact", counted(table.not_analyzed, pieces));
        text += &pair("unknown", &format!("rows of {told}"));
    }
    if let [one] = &table.nodes[..] {
        text += &pair("node", &one.node);
    }
    if let Some(skew) = &table.skew {
        let of = |skew: SkewOf| {
            let ratio = |value: Option<f64>, of: &str| value.map(|value| format!("{value:.2} by {of}"));
            let both = [ratio(skew.rows, "rows"), ratio(skew.bytes, "bytes")];
            both.into_iter().flatten().collect::<Vec<_>>().join(", ")
        };
        text += &pair("skew", &format!("{pieces}s {}", of(skew.shards)));
        if table.nodes.len() > 1 {
            text += &pair("", &format!("nodes {}", of(skew.nodes)));
        }
    }
    if let Some(largest) = &table.largest {
        text += &pair("largest", &format!("{} on {}", largest.relation, largest.node));
        let rows = largest.rows.map_or_else(String::new, |rows| format!("{} rows, ", grouped(rows)));
        text += &pair("", &format!("{rows}{}", bytes(largest.bytes)));
    }
    if table.nodes.len() < 2 {
        return text;
    }
    let rows: Vec<Vec<String>> = table
        .nodes
        .iter()
        .map(|share| {
            vec![format!("  {}", share.node), grouped(share.shards), figure(share.rows), size(share.bytes)]
        })
        .collect();
    let heading = if pieces == "shard" { "SHARDS" } else { "PARTITIONS" };
    text += &grid(
        &[("  NODE", Align::Left), (heading, Align::Right), ("ROWS", Align::Right), ("SIZE", Align::Right)],
        &rows,
    );
    text
}

fn prepared(status: &Status) -> String {
    let mut text = String::new();
    if !status.prepared.is_empty() {
        text += "\nprepared by loads\n";
        text += &grid(
            &[
                ("LOAD", Align::Right),
                ("UNIT", Align::Left),
                ("AGE", Align::Right),
                ("LEDGER", Align::Left),
                ("RECOVER", Align::Left),
                ("ON", Align::Left),
            ],
            &status.prepared.iter().map(unit).collect::<Vec<_>>(),
        );
    }
    if !status.others.is_empty() {
        text += "\nprepared by others, more than a minute ago: they hold locks\n";
        let rows: Vec<Vec<String>> = status.others.iter().map(other).collect();
        text += &grid(
            &[
                ("NODE", Align::Left),
                ("AGE", Align::Right),
                ("ROLE", Align::Left),
                ("NAME", Align::Left),
                ("OF", Align::Left),
            ],
            &rows,
        );
    }
    text
}

fn unit(unit: &UnitStatus) -> Vec<String> {
    let mut nodes: BTreeMap<&str, bool> = BTreeMap::new();
    for part in &unit.parts {
        *nodes.entry(&part.node).or_default() |= part.guard;
    }
    let nodes: Vec<String> = nodes
        .into_iter()
        .map(|(node, guard)| if guard { format!("{node} (guard)") } else { node.to_owned() })
        .collect();
    vec![
        if unit.epoch == 0 { "stream".to_owned() } else { unit.load.to_string() },
        unit.gid.rsplit('_').next().unwrap_or_default().to_owned(),
        age(unit.age_seconds),
        if unit.committed { "committed" } else { "open" }.to_owned(),
        match unit.recover {
            Recover::Commits => "commits it",
            Recover::RollsBack => "rolls it back",
            Recover::LeavesAlone => "leaves it: at work",
        }
        .to_owned(),
        nodes.join(", "),
    ]
}

fn other(other: &OtherPrepared) -> Vec<String> {
    vec![
        other.node.clone(),
        age(other.age_seconds),
        other.owner.clone(),
        other.gid.clone(),
        other.of.unwrap_or_default().to_owned(),
    ]
}

/// `5 s`, `12 min`, `3 h`, `4 d`
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative, and cut on purpose
fn age(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_for_people() {
        let texts = [0.4, 119.9, 120.0, 7200.0, 400_000.0].map(age);
        assert_eq!(texts, ["0 s", "119 s", "2 min", "2 h", "4 d"]);
    }
}
