//! What a dead client has prepared is ended: committed if the ledger has the unit, rolled back if it has not.
//!
//! Nobody else may commit the unit meanwhile. A load's epoch is raised when a run takes it over, or gives it up, and the
//! ledger takes no unit of an earlier epoch; so units of earlier epochs, and of loads that the ledger does not have,
//! are decided for good. Units of the current epoch are somebody's, and are left alone. So are those of streams whose
//! session is there; those of others nobody commits any more.
//!
//! A server process of a dead client may still be about to prepare. It is told by its application name, and ended first.

use crate::gid::{Gid, Part};
use crate::{Node, NodeMap, NodeSession};
use futures_util::future::join_all;
use inrush_core::{Code, Error, Result, quote_literal};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, PreparedUnit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How long a server process that was told to end may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Units that were committed.
    pub committed: u64,
    /// Units that were rolled back.
    pub rolled_back: u64,
    /// Loads that have units of their current epoch, which whoever works on them ends.
    pub others: BTreeSet<i64>,
    /// Units that some of their nodes have and others do not, where nothing is prepared: their load, given again, sends
    /// the others what is missing.
    pub partial: Vec<Partial>,
    /// What could not be done: nodes that cannot be reached.
    pub left: Vec<String>,
}

/// A unit that some nodes lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    /// The unit, with its nodes and its ranges.
    pub unit: PreparedUnit,
    /// Names of the nodes that lack it.
    pub missing: Vec<String>,
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rows of a unit of load {} are not on {} yet: its command, given again, sends them",
            self.unit.load,
            self.missing.join(", ")
        )
    }
}

/// A server that answers.
struct Reached<'a> {
    node: &'a Node,
    /// `None`: it is the coordinator, of which there is a session.
    session: Option<NodeSession>,
    coordinator: &'a Client,
}

impl Reached<'_> {
    fn client(&self) -> &Client {
        self.session.as_ref().map_or(self.coordinator, |session| &session.connected.client)
    }
}

/// The server of this name, if it answers.
fn reached_as<'s, 'a>(sessions: &'s [Reached<'a>], nodes: &[Node], name: &str) -> Option<&'s Reached<'a>> {
    let is_here = nodes.iter().any(|node| node.name == name && node.address.is_none());
    sessions
        .iter()
        .find(|reached| if is_here { reached.session.is_none() } else { reached.node.name == name })
}

/// The name of sessions on nodes, by which whoever settles finds them. `epoch` is 0 for a stream.
pub fn application(load: i64, epoch: i32, origin: &str) -> String {
    // At most 63 bytes (NAMEDATALEN).
    let work = if epoch == 0 { "serve" } else { "load" };
    format!("inrush {work} {load}.{epoch} {origin}")
}

/// Ends what earlier epochs have left on these nodes. `client` is a session of the coordinator, driven by the caller.
///
/// Nodes that cannot be reached are named in [`Settled::left`], and what they have is settled another time: what is
/// prepared there keeps its locks meanwhile.
pub async fn settle(
    client: &Client,
    ledger: &Ledger,
    coordinator: &ConnInfo,
    map: &NodeMap,
    nodes: &[Node],
) -> Result<Settled> {
    // Who lives, and what is decided, only the server knows that is written to.
    let standby = "SELECT pg_catalog.pg_is_in_recovery()";
    if client.query_one(standby, &[]).await.map_err(server_error)?.get(0) {
        return Err(Error::new(
            Code::Server,
            "what is prepared on several servers cannot be ended from a standby",
        )
        .hint("Name the primary, for example with target_session_attrs=read-write."));
    }
    let origin = ledger.origin(client).await?;
    let mut settled = Settled::default();
    // The coordinator has the guards, and perhaps places.
    let own = Node::coordinator();
    let mut sessions = vec![Reached { node: &own, session: None, coordinator: client }];
    let others: Vec<&Node> = nodes.iter().filter(|node| node.address.is_some()).collect();
    let connecting = others.iter().map(|node| node.connect(coordinator, map, "inrush recover", &[]));
    for (node, connected) in others.iter().zip(join_all(connecting).await) {
        match connected {
            Ok(session) => sessions.push(Reached { node, session: Some(session), coordinator: client }),
            Err(error) => {
                settled.left.push(format!("node {node} cannot be reached: {}", error.fact()));
            }
        }
    }
    // What there is at most: epochs are asked for once, and before anything is looked at.
    let mut epochs: BTreeMap<i64, Option<i32>> = BTreeMap::new();
    for reached in &sessions {
        end_dead(client, ledger, reached.client(), &origin, &mut epochs).await?;
    }
    let mut units: BTreeMap<Gid, Vec<(usize, String, Part)>> = BTreeMap::new();
    // Units of which something could not be ended.
    let mut failed: BTreeSet<String> = BTreeSet::new();
    for (number, reached) in sessions.iter().enumerate() {
        let sql = "SELECT gid FROM pg_catalog.pg_prepared_xacts
                    WHERE database = pg_catalog.current_database() AND pg_catalog.starts_with(gid, $1)";
        let rows = reached.client().query(sql, &[&Gid::prefix(&origin)]).await.map_err(server_error)?;
        for row in rows {
            let name: String = row.get(0);
            if let Some((gid, part)) = Gid::parse(&name) {
                units.entry(gid).or_default().push((number, name, part));
            }
        }
    }
    // Behind the list: whatever is decided later is of an epoch that is somebody's.
    for gid in units.keys() {
        epoch(client, ledger, gid.load, &mut epochs).await?;
    }
    let decided = ledger.decided(client).await?;
    for (gid, mut parts) in units {
        if epochs.get(&gid.load).copied().flatten().is_some_and(|now| gid.epoch >= now) {
            if !gid.is_of_stream() {
                settled.others.insert(gid.load);
            }
            continue;
        }
        let commit = ledger.is_decided(client, &gid.to_string()).await?;
        // The guard last, and only when every node has been told.
        parts.sort_by_key(|(_, _, part)| *part);
        let of_unit =
            decided.iter().find(|unit| unit.gid == gid.to_string()).map_or(&[][..], |unit| &unit.nodes);
        let mut untold = commit && of_unit.iter().any(|name| reached_as(&sessions, nodes, name).is_none());
        for (number, name, part) in parts {
            if part == Part::Guard && untold {
                continue;
            }
            let verb = if commit { "COMMIT" } else { "ROLLBACK" };
            if let Err(error) = end(sessions[number].client(), verb, &name).await {
                // Another role's, or somebody else is at it: the others are ended all the same.
                untold = true;
                let node = sessions[number].node;
                settled.left.push(format!("{name} on node {node} is left: {}", error.fact()));
                failed.insert(gid.to_string());
            }
        }
        if !failed.contains(&gid.to_string()) {
            *(if commit { &mut settled.committed } else { &mut settled.rolled_back }) += 1;
        }
    }
    // Of a decided unit nothing is prepared any more where we have been.
    let mut told = Vec::new();
    for unit in decided {
        if !is_over(client, ledger, &unit.gid, &mut epochs).await? {
            if Gid::of_unit(&unit.gid).is_some_and(|gid| !gid.is_of_stream()) {
                settled.others.insert(unit.load);
            }
            continue;
        }
        let mut missing = Vec::new();
        let mut unknown = None;
        for name in &unit.nodes {
            match reached_as(&sessions, nodes, name) {
                None => unknown = Some(name),
                Some(reached) if unit.ranges.is_some() => {
                    if !ledger.is_marked(reached.client(), &unit.gid).await? {
                        missing.push(name.clone());
                    }
                }
                Some(_) => {}
            }
        }
        if let Some(name) = unknown {
            settled.left.push(format!("unit {} is committed, and node {name} has not been told", unit.gid));
        } else if failed.contains(&unit.gid) {
            // It is told of the next time.
        } else if missing.is_empty() {
            told.push(unit.gid);
        } else {
            settled.partial.push(Partial { unit, missing });
        }
    }
    ledger.forget(client, &told).await?;
    // Marks that nobody will ask for: of units that are over, and not missed anywhere.
    for reached in &sessions {
        let mut old = Vec::new();
        for mark in ledger.marks(reached.client(), &Gid::prefix(&origin)).await? {
            let asked_for = settled.partial.iter().any(|partial| partial.unit.gid == mark)
                || ledger.is_decided(client, &mark).await?;
            if !asked_for && is_over(client, ledger, &mark, &mut epochs).await? {
                old.push(mark);
            }
        }
        ledger.unmark(reached.client(), &old).await?;
    }
    Ok(settled)
}

async fn epoch(
    client: &Client,
    ledger: &Ledger,
    load: i64,
    epochs: &mut BTreeMap<i64, Option<i32>>,
) -> Result<Option<i32>> {
    if let Some(known) = epochs.get(&load) {
        return Ok(*known);
    }
    let now = ledger.epoch(client, load).await?;
    epochs.insert(load, now);
    Ok(now)
}

/// Whether nobody works on a unit any more.
async fn is_over(
    client: &Client,
    ledger: &Ledger,
    unit: &str,
    epochs: &mut BTreeMap<i64, Option<i32>>,
) -> Result<bool> {
    let Some(gid) = Gid::of_unit(unit) else { return Ok(false) };
    Ok(epoch(client, ledger, gid.load, epochs).await?.is_none_or(|now| gid.epoch < now))
}

/// Ends sessions on a node whose epoch is over, and waits until they have gone.
async fn end_dead(
    client: &Client,
    ledger: &Ledger,
    node: &Client,
    origin: &str,
    epochs: &mut BTreeMap<i64, Option<i32>>,
) -> Result<()> {
    let started = Instant::now();
    let mut ended: Vec<i32> = Vec::new();
    loop {
        let sql = "SELECT pid, application_name FROM pg_catalog.pg_stat_activity
                    WHERE datname = pg_catalog.current_database() AND application_name ~ '^inrush (load|serve) '
                      AND pid <> pg_catalog.pg_backend_pid()";
        let mut dead = Vec::new();
        for row in node.query(sql, &[]).await.map_err(server_error)? {
            let Some((load, of)) = parse_application(row.get(1), origin) else { continue };
            if epoch(client, ledger, load, epochs).await?.is_none_or(|now| of < now) {
                dead.push(row.get::<_, i32>(0));
            }
        }
        if dead.is_empty() {
            return Ok(());
        }
        let new: Vec<i32> = dead.iter().copied().filter(|pid| !ended.contains(pid)).collect();
        if !new.is_empty() {
            let sql = "SELECT pg_catalog.pg_terminate_backend(p) FROM pg_catalog.unnest($1::int[]) p";
            node.query(sql, &[&new]).await.map_err(server_error)?;
            ended.extend(new);
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::new(
                Code::Ledger,
                format!("{} sessions of a dead load do not end on a node", dead.len()),
            )
            .hint("End them with pg_terminate_backend, and try again."));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Load and epoch of a session on a node, by its application name.
fn parse_application(name: &str, origin: &str) -> Option<(i64, i32)> {
    let work = name.strip_prefix("inrush load ").or(name.strip_prefix("inrush serve "))?;
    let (of, from) = work.split_once(' ')?;
    let (load, epoch) = of.split_once('.')?;
    (from == origin).then_some((load.parse().ok()?, epoch.parse().ok()?))
}

/// Ends a prepared transaction. That it is not there any more is as good.
async fn end(client: &Client, verb: &str, name: &str) -> Result<()> {
    match client.batch_execute(&format!("{verb} PREPARED {}", quote_literal(name))).await {
        Ok(()) => Ok(()),
        Err(error) if error.code().is_some_and(|state| state.code() == "42704") => Ok(()),
        Err(error) => Err(server_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_told_by_their_name() {
        let name = application(7, 2, "ab12d5");
        assert_eq!(parse_application(&name, "ab12d5"), Some((7, 2)));
        assert_eq!(parse_application(&name, "ab12d6"), None);
        assert_eq!(parse_application("inrush load", "ab12d5"), None);
        let stream = application(4_503_599_627_370_496, 0, "ab12d5");
        assert_eq!(parse_application(&stream, "ab12d5"), Some((4_503_599_627_370_496, 0)));
        assert_eq!(parse_application("inrush serve: 7 ab12d5", "ab12d5"), None);
        assert!(application((1 << 53) - 1, 0, "0123456789abcdefd4294967295").len() <= 63);
        // A thousand loads a second for thirty years.
        assert!(application(999_999_999_999, i32::MAX, "0123456789abcdefd4294967295").len() <= 63);
    }
}
