//! Transactions that are prepared and not ended.

use super::nodes::OpenNode;
use crate::Partial;
use crate::gid::{Gid, Part};
use inrush_core::Result;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_postgres::Client;

/// A unit of a load of which something is prepared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnitStatus {
    /// What the names of its transactions begin with.
    pub gid: String,
    /// loads.id
    pub load: i64,
    /// Epoch of the load that the unit is of.
    pub epoch: i32,
    /// What is prepared of it.
    pub parts: Vec<PreparedPart>,
    /// Seconds since the first of it was prepared.
    pub age_seconds: f64,
    /// Whether the ledger has the unit: it is to be committed.
    pub committed: bool,
    /// What `inrush recover` does with it.
    pub recover: Recover,
}

/// A prepared transaction of a unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreparedPart {
    /// Its node.
    pub node: String,
    /// Its name.
    pub gid: String,
    /// Whether it is the guard, which holds the locks on the coordinator and ends last.
    pub guard: bool,
    /// Seconds since it was prepared.
    pub age_seconds: f64,
}

/// What becomes of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recover {
    /// It is committed everywhere.
    Commits,
    /// It is rolled back everywhere.
    RollsBack,
    /// Nothing: whoever works on its load ends it.
    LeavesAlone,
}

/// What others have prepared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OtherPrepared {
    /// Its node.
    pub node: String,
    /// Its name.
    pub gid: String,
    /// The role that prepared it.
    pub owner: String,
    /// Seconds since then.
    pub age_seconds: f64,
    /// Whose it is by its name: `citus`, `another ledger of inrush`.
    pub of: Option<&'static str>,
}

const PREPARED: &str = "
    SELECT gid, owner::text,
           GREATEST(0, extract(epoch FROM pg_catalog.clock_timestamp() - prepared))::float8
      FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database() ORDER BY prepared, gid";

/// Looks at every node. What the ledger says is asked behind that, so that what is decided later is of a load that
/// somebody works on.
pub(super) async fn read(
    client: &Client,
    nodes: &mut [OpenNode],
    ledger: Option<&Ledger>,
    older: Duration,
    notes: &mut Vec<String>,
) -> Result<(Vec<UnitStatus>, Vec<OtherPrepared>)> {
    let origin = match ledger {
        Some(ledger) => Some(ledger.origin(client).await?),
        None => None,
    };
    let mut units: BTreeMap<Gid, Vec<PreparedPart>> = BTreeMap::new();
    let mut others = Vec::new();
    for open in nodes.iter_mut() {
        let Some(session) = &open.session else { continue };
        let rows = match session.client.query_typed(PREPARED, &[]).await {
            Ok(rows) => rows,
            Err(error) => {
                open.status.error = Some(server_error(error).fact().to_owned());
                continue;
            }
        };
        open.status.prepared = Some(rows.len() as u64);
        for row in rows {
            let (name, owner, age): (String, String, f64) = (row.get(0), row.get(1), row.get(2));
            let node = open.status.name.clone();
            let age_seconds = tenths(age);
            match Gid::parse(&name) {
                Some((gid, part)) if origin.as_ref() == Some(&gid.origin) => {
                    let guard = part == Part::Guard;
                    units.entry(gid).or_default().push(PreparedPart { node, gid: name, guard, age_seconds });
                }
                ours if age >= older.as_secs_f64() => {
                    let of = match ours {
                        Some(_) => Some("another ledger of inrush"),
                        None if name.starts_with("citus_") => Some("citus"),
                        None => None,
                    };
                    others.push(OtherPrepared { node, gid: name, owner, age_seconds, of });
                }
                _ => {}
            }
        }
    }
    let mut judged = Vec::new();
    if let Some(ledger) = ledger {
        for (gid, parts) in units {
            judged.push(judge(client, ledger, &gid, parts).await?);
        }
        missing(client, ledger, nodes, notes).await?;
    }
    Ok((judged, others))
}

/// What `inrush recover` would do: see [`settle`](crate::settle()).
async fn judge(
    client: &Client,
    ledger: &Ledger,
    gid: &Gid,
    mut parts: Vec<PreparedPart>,
) -> Result<UnitStatus> {
    let now = ledger.epoch(client, gid.load).await?;
    let over = now.is_none_or(|now| gid.epoch < now);
    // One that nobody works on is given up first.
    let working = !over && (gid.is_of_stream() || !ledger.connections(client, gid.load).await?.is_empty());
    let committed = ledger.is_decided(client, &gid.to_string()).await?;
    parts.sort_by_key(|part| part.guard);
    Ok(UnitStatus {
        gid: gid.to_string(),
        load: gid.load,
        epoch: gid.epoch,
        age_seconds: parts.iter().map(|part| part.age_seconds).fold(0.0, f64::max),
        parts,
        committed,
        recover: match (working, committed) {
            (true, _) => Recover::LeavesAlone,
            (false, true) => Recover::Commits,
            (false, false) => Recover::RollsBack,
        },
    })
}

/// Units that are committed where nodes prepare nothing, and that one of these has not got: their loads send them again.
async fn missing(
    client: &Client,
    ledger: &Ledger,
    nodes: &[OpenNode],
    notes: &mut Vec<String>,
) -> Result<()> {
    for unit in ledger.decided(client).await?.into_iter().filter(|unit| unit.ranges.is_some()) {
        if !ledger.connections(client, unit.load).await?.is_empty() {
            continue;
        }
        let mut missing = Vec::new();
        for name in &unit.nodes {
            let open = nodes.iter().find(|open| open.node.name == *name);
            let Some(session) = open.and_then(|open| open.session.as_ref()) else { continue };
            if !ledger.is_marked(&session.client, &unit.gid).await? {
                missing.push(name.clone());
            }
        }
        if !missing.is_empty() {
            notes.push(Partial { unit, missing }.to_string());
        }
    }
    Ok(())
}

fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}
