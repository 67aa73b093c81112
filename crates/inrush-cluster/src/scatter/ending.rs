//! How a unit ends on several servers, and what becomes of one that does not.

use super::session::{Session, Stand};
use super::slots::Slot;
use super::{Backend, Ending, Scatter, Watch};
use crate::{Gid, Node, Part};
use futures_util::future::join_all;
use inrush_core::{Code, Error, Result};
use inrush_sink::failure::Failure;
use inrush_sink::ledger::{PreparedUnit, RangeDone};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// After so long it is said that a node is waited for.
const SLOW: Duration = Duration::from_secs(5);

/// A unit that the ledger has, and that some of its nodes lack, where nodes prepare nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// Its name in the ledger.
    pub gid: String,
    /// Names of the nodes that lack it.
    pub nodes: Vec<String>,
}

/// A session that was lost when it may have been prepared.
pub(super) struct Doubt {
    node: Node,
    backend: Backend,
    gid: String,
}

impl Scatter {
    /// Which nodes lack a unit still, as they say now.
    pub(super) async fn lacks(&mut self, lacking: &mut Lacking) -> Result<Vec<bool>, Failure> {
        let mut only = vec![false; self.slots.nodes.len()];
        for name in std::mem::take(&mut lacking.nodes) {
            let topologies = self.tables.iter().flat_map(|bound| bound.topology.nodes.iter());
            let Some(node) = topologies.into_iter().find(|node| node.name == name).cloned() else {
                let fact = format!("node {name} lacks rows of a unit, and has no part of the table any more");
                return Err(Failure::Fatal(Error::new(Code::Table, fact).hint(
                    "Its rows belong elsewhere now, and which of them are there cannot be told. Load into a new table.",
                )));
            };
            let slot = self.slots.of(&node);
            let session = self.slots.session(slot).await?;
            let marked = self.reach.ledger.is_marked(&session.node.connected.client, &lacking.gid).await;
            self.slots.slots[slot] = Slot::Here(session);
            if !marked.map_err(Failure::of_error)? {
                only[slot] = true;
                lacking.nodes.push(name);
            }
        }
        Ok(only)
    }

    /// Steps 1 and 2: all that was stored is prepared, or marked, and so is the guard. Gives the unit's entry for the
    /// ledger; none if there are no rows. Where nodes prepare nothing, `ranges` are what is read again for one that lacks
    /// the unit.
    pub async fn prepare(&mut self, ranges: &[RangeDone]) -> Result<Option<PreparedUnit>, Failure> {
        let Some(gid) = self.gid.clone() else { return Ok(None) };
        let marks = self.reach.ending == Ending::Marks;
        let name = self.mended.clone().unwrap_or_else(|| gid.to_string());
        let mut names = Vec::new();
        let mut preparing = Vec::new();
        self.unmarking = std::mem::take(&mut self.marked);
        for (number, slot) in self.slots.slots.iter_mut().enumerate() {
            // A node that lacks a unit is marked even if it turns out to have no rows of it.
            let lacks = self.only.as_ref().is_some_and(|only| only[number]);
            let Slot::Here(session) = slot else { continue };
            let node = &self.slots.nodes[number].name;
            if lacks && session.stand == Stand::Idle {
                session.execute("BEGIN").await?;
                session.stand = Stand::Begun;
            }
            if session.stand != Stand::Begun {
                continue;
            }
            names.push(node.clone());
            let part = gid.part(Part::Rows, number);
            let (ledger, name) = (&self.reach.ledger, &name);
            let old = self.unmarking.get(node).map_or(&[][..], Vec::as_slice);
            preparing.push(async move {
                if marks { session.mark(ledger, name, old).await } else { session.prepare(&part).await }
            });
        }
        if preparing.is_empty() {
            return Ok(None);
        }
        for prepared in join_all(preparing).await {
            prepared?;
        }
        if let Some(guard) = &mut self.guard {
            if guard.prepares() && !marks {
                self.guard_prepared = true;
                guard.prepare(&gid.part(Part::Guard, 0)).await?;
            } else {
                guard.is_held().await?;
            }
        }
        self.nodes.clone_from(&names);
        let ranges = marks.then(|| ranges.to_vec());
        Ok(Some(PreparedUnit { gid: name, load: gid.load, nodes: names, ranges }))
    }

    /// Units that every node has been told of: the transaction that decides this one forgets them.
    pub fn to_forget(&mut self) -> &[String] {
        self.forgets = true;
        &self.told
    }

    /// That transaction has committed: if it has forgotten what was told, marks of it mean nothing any more.
    pub fn committed(&mut self) {
        if !std::mem::take(&mut self.forgets) {
            return;
        }
        for gid in self.told.drain(..) {
            if self.reach.ending == Ending::Marks {
                self.slots.nodes.iter().for_each(|node| {
                    self.marked.entry(node.name.clone()).or_default().push(gid.clone());
                });
            }
        }
    }

    /// The lane ends: nothing is left to be told. `client` is its session.
    pub async fn end(&mut self, client: &Client) {
        if let Err(error) = self.reach.ledger.forget(client, &self.told).await {
            // All is stored; whoever settles next finds that every node was told.
            tracing::debug!(%error, "what every node was told of is not forgotten");
            return;
        }
        self.forgets = true;
        self.committed();
        for number in 0..self.slots.nodes.len() {
            let old = self.marked.remove(&self.slots.nodes[number].name).unwrap_or_default();
            if old.is_empty() {
                continue;
            }
            // Those of a node that is away now are forgotten by the next load.
            if let Ok(session) = self.slots.session(number).await {
                let forgotten = self.reach.ledger.unmark(&session.node.connected.client, &old).await;
                self.slots.slots[number] = Slot::Here(session);
                if let Err(error) = forgotten {
                    tracing::debug!(%error, "marks are left on a node");
                }
            }
        }
    }

    /// Steps 4 and 5, behind the ledger's commit: every node is told, then the guard ends. Tries again while a node is
    /// away. Gives the unit if some nodes lack it, where nodes prepare nothing: they are to be sent it again.
    pub async fn tell(&mut self, watch: &dyn Watch) -> Result<Option<Lacking>, Failure> {
        self.decided = true;
        let Some(gid) = self.gid.clone() else { return Ok(None) };
        let name = self.mended.clone().unwrap_or_else(|| gid.to_string());
        let lack = match self.reach.ending {
            Ending::TwoPhase => {
                self.commit_prepared(watch, &gid).await?;
                Vec::new()
            }
            Ending::Marks => self.commit_marked(watch, &name).await?,
        };
        self.end_guard(true).await;
        self.gid = None;
        // Nodes without rows of the unit have forgotten nothing, nor have those that lack it.
        for (node, old) in std::mem::take(&mut self.unmarking) {
            if !self.nodes.contains(&node) || lack.contains(&node) {
                self.marked.entry(node).or_default().extend(old);
            }
        }
        if !lack.is_empty() {
            self.decided = false;
            return Ok(Some(Lacking { gid: name, nodes: lack }));
        }
        if !self.nodes.is_empty() {
            self.told.push(name);
        }
        self.nodes.clear();
        Ok(None)
    }

    /// Has every node commit what it has prepared.
    async fn commit_prepared(&mut self, watch: &dyn Watch, gid: &Gid) -> Result<(), Failure> {
        let started = Instant::now();
        // At once, as long as all goes well.
        let names: Vec<String> = (0..self.slots.slots.len()).map(|n| gid.part(Part::Rows, n)).collect();
        let telling = self.slots.slots.iter_mut().zip(&names).filter_map(|(slot, name)| match slot {
            Slot::Here(session) if session.stand == Stand::Prepared => {
                Some(session.end_prepared("COMMIT", name))
            }
            _ => None,
        });
        for answer in join_all(telling).await {
            if let Err(failure) = answer {
                tracing::debug!(error = %failure.error(), "a node has not answered; it is told again");
            }
        }
        let mut said = false;
        for (number, name) in names.iter().enumerate() {
            while matches!(&self.slots.slots[number], Slot::Here(session) if session.stand == Stand::Prepared)
            {
                if started.elapsed() > self.reach.patience || watch.is_stopped() {
                    return Err(Failure::Fatal(untold(&self.slots.nodes[number])));
                }
                if started.elapsed() > SLOW && !std::mem::replace(&mut said, true) {
                    let node = &self.slots.nodes[number];
                    tracing::warn!(%node, unit = %gid, "a unit is committed, and a node cannot be told yet");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                let Ok(node) = self.slots.connect(number).await else { continue };
                let mut session = Box::new(Session::new(node));
                session.stand = Stand::Prepared;
                // An error comes again, until there is no more time for it.
                let _ = session.end_prepared("COMMIT", name).await;
                self.slots.slots[number] = Slot::Here(session);
            }
        }
        Ok(())
    }

    /// Has every node commit what it has marked. Gives the names of those that have not: they have to be sent it again.
    async fn commit_marked(&mut self, watch: &dyn Watch, gid: &str) -> Result<Vec<String>, Failure> {
        let started = Instant::now();
        let telling = self.slots.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Here(session) if session.stand == Stand::Begun => Some(session.commit()),
            _ => None,
        });
        for answer in join_all(telling).await {
            if let Err(failure) = answer {
                tracing::debug!(error = %failure.error(), "a node has not answered; its mark is asked for");
            }
        }
        let mut lack = Vec::new();
        for number in 0..self.slots.slots.len() {
            let lost = match &self.slots.slots[number] {
                Slot::Here(session) if session.stand == Stand::Begun => session.node.backend.clone(),
                _ => continue,
            };
            self.slots.slots[number] = Slot::Absent;
            loop {
                match self.is_marked(number, &lost, gid).await {
                    Ok(true) => break,
                    Ok(false) => {
                        lack.push(self.slots.nodes[number].name.clone());
                        break;
                    }
                    Err(_) if started.elapsed() > self.reach.patience || watch.is_stopped() => {
                        return Err(Failure::Fatal(untold(&self.slots.nodes[number])));
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        }
        Ok(lack)
    }

    /// Whether a node has a unit, of which a session was lost there.
    async fn is_marked(&self, slot: usize, lost: &Backend, gid: &str) -> Result<bool> {
        let node = self.slots.connect(slot).await.map_err(Failure::into_error)?;
        let client = &node.connected.client;
        lost.wait_until_gone(client, self.reach.gone).await?;
        self.reach.ledger.is_marked(client, gid).await
    }

    /// Lets go of the guard. If its session is lost it is prepared somewhere, or gone: what may be prepared is named in the
    /// doubts.
    async fn end_guard(&mut self, commit: bool) {
        let Some(guard) = &mut self.guard else { return };
        let name = self.gid.as_ref().map(|gid| gid.part(Part::Guard, 0));
        let prepared = name.filter(|_| self.guard_prepared);
        let ended = match (&prepared, commit) {
            (Some(name), _) => guard.end(Some(name)).await,
            (None, true) => guard.end(None).await,
            (None, false) => guard.roll_back().await,
        };
        self.guard_prepared = false;
        if let Err(failure) = ended {
            tracing::debug!(error = %failure.error(), "the guard has not answered");
            if let (Some(gid), Some(guard)) = (prepared, self.guard.take()) {
                self.doubts.push(Doubt { node: Node::coordinator(), backend: guard.backend().clone(), gid });
            }
            self.guard = None;
        }
    }

    /// Undoes the unit on every node; not if the ledger has it.
    pub async fn roll_back(&mut self) {
        if self.decided {
            return;
        }
        for (node, old) in std::mem::take(&mut self.unmarking) {
            self.marked.entry(node).or_default().extend(old);
        }
        // Why one of them failed is known, or does not matter any more.
        while self.slots.rest_all().await.is_err() {}
        for gathered in self.tables.iter_mut().flat_map(|bound| &mut bound.gathered) {
            gathered.main.clear();
            gathered.text.clear();
        }
        let gid = self.gid.clone();
        for (number, slot) in self.slots.slots.iter_mut().enumerate() {
            let Slot::Here(session) = slot else { continue };
            let name = gid.as_ref().map(|gid| gid.part(Part::Rows, number));
            let undone = match (session.stand, &name) {
                (Stand::Prepared, Some(name)) => session.end_prepared("ROLLBACK", name).await.is_ok(),
                // One that was lost when it had nothing to do is replaced.
                (Stand::Idle, _) => !session.node.connected.client.is_closed(),
                _ => session.execute("ROLLBACK").await.is_ok(),
            };
            if undone {
                session.stand = Stand::Idle;
            } else {
                if let (Stand::Prepared, Some(gid)) = (session.stand, name) {
                    let node = self.slots.nodes[number].clone();
                    self.doubts.push(Doubt { node, backend: session.node.backend.clone(), gid });
                }
                *slot = Slot::Absent;
            }
        }
        self.end_guard(false).await;
        self.gid = None;
    }

    /// Rolls back what lost sessions may have prepared, once they are certain to be gone.
    pub(super) async fn clear_doubts(&mut self, watch: &dyn Watch) -> Result<(), Failure> {
        let started = Instant::now();
        let mut said = false;
        while let Some(doubt) = self.doubts.last() {
            if started.elapsed() > SLOW && !std::mem::replace(&mut said, true) {
                let Doubt { node, gid, .. } = doubt;
                tracing::warn!(%node, gid, "what a lost session may have prepared cannot be rolled back yet");
            }
            match self.clear(doubt).await {
                Ok(()) => drop(self.doubts.pop()),
                Err(error) if started.elapsed() > self.reach.patience => {
                    return Err(Failure::of_error(error));
                }
                Err(_) if watch.is_stopped() => {
                    return Err(Failure::Fatal(Error::new(Code::Interrupted, "it was stopped")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
        Ok(())
    }

    async fn clear(&self, doubt: &Doubt) -> Result<()> {
        let (coordinator, map) = (&self.reach.coordinator, &self.reach.map);
        let node = doubt.node.connect(coordinator, map, &self.slots.application, &[]).await?;
        doubt.backend.wait_until_gone(&node.connected.client, self.reach.gone).await?;
        let mut session = Session::new(node);
        session.end_prepared("ROLLBACK", &doubt.gid).await.map_err(Failure::into_error)
    }
}

fn untold(node: &Node) -> Error {
    Error::new(Code::ConnectionLost, format!("a unit is committed, and node {node} cannot be told")).hint(
        "Its rows are there once it is: `inrush recover` tells it, and so does whoever writes there next.",
    )
}
