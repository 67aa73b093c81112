//! How a unit ends on several servers, and what becomes of one that does not.

use super::session::{Session, Stand};
use super::{Ending, Slot, Spread, lost};
use crate::job::Job;
use crate::lane::Lane;
use crate::progress::Stop;
use crate::unit::{Mends, Unit};
use futures_util::future::join_all;
use inrush_cluster::{Gid, Node, Part};
use inrush_core::{Code, Error, Result};
use inrush_sink::failure::Failure;
use inrush_sink::ledger::PreparedUnit;
use std::time::{Duration, Instant};

/// A session that was lost when it may have been prepared.
pub(super) struct Doubt {
    node: Node,
    backend: (i32, String),
    gid: String,
}

impl Lane<'_> {
    /// [`Lane::commit`] where the rows are on several nodes.
    pub(crate) async fn commit_spread(&mut self, unit: &mut Unit) -> Result<(), Failure> {
        let (Some(spread), Some((ledger, _)), Some(unit_ledger)) =
            (&mut self.spread, &self.job.ledger, &self.session.ledger)
        else {
            return Ok(());
        };
        let client = &self.session.connected.client;
        // A constraint that is checked so late may refuse a row, as with COMMIT.
        unit.commit_sent = true;
        let prepared = spread.prepare(self.job, unit).await?;
        if unit.mends.is_none() {
            unit_ledger.record(client, &unit.record).await?;
            if let Some(prepared) = &prepared {
                ledger.decide(client, prepared, spread.told()).await?;
            }
        }
        let committed = client.batch_execute("COMMIT").await;
        committed.map_err(|e| self.session.copy_failure(self.job, 0, &e))?;
        spread.forgotten();
        spread.tell(self.job, unit).await
    }
}

impl Spread {
    /// Steps 1 and 2: all that was stored is prepared, or marked, and so is the guard. Gives the unit's entry for the
    /// ledger; none if there are no rows.
    pub async fn prepare(&mut self, job: &Job, unit: &Unit) -> Result<Option<PreparedUnit>, Failure> {
        let (Some(gid), Some((ledger, _))) = (self.gid.clone(), &job.ledger) else { return Ok(None) };
        let marks = self.plan.ending == Ending::Marks;
        let name = unit.mends.as_ref().map_or_else(|| gid.to_string(), |mends| mends.gid.clone());
        let mut names = Vec::new();
        let mut preparing = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Here(session) = slot else { continue };
            let node = &self.topology.nodes[number].name;
            // A node that lacks a unit is marked even if it turns out to have no rows of it.
            let lacks = self.only.as_ref().is_some_and(|only| only[number]);
            if lacks && session.stand == Stand::Idle {
                session.execute("BEGIN").await?;
                session.stand = Stand::Begun;
            }
            if session.stand != Stand::Begun {
                continue;
            }
            names.push(node.clone());
            let part = gid.part(Part::Rows, number);
            let (name, old) = (&name, self.marked.get(node).map_or(&[][..], Vec::as_slice));
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
        let ranges = marks.then(|| unit.record.ranges.clone());
        Ok(Some(PreparedUnit { gid: name, load: gid.load, nodes: names, ranges }))
    }

    /// Units that every node has been told of.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// The ledger has forgotten what was told: marks of it mean nothing any more.
    pub fn forgotten(&mut self) {
        for gid in self.told.drain(..) {
            if self.plan.ending == Ending::Marks {
                self.topology.nodes.iter().for_each(|node| {
                    self.marked.entry(node.name.clone()).or_default().push(gid.clone());
                });
            }
        }
    }

    /// The lane ends: nothing is left to be told.
    pub async fn end(&mut self, job: &Job, client: &tokio_postgres::Client) -> Result<()> {
        let Some((ledger, _)) = &job.ledger else { return Ok(()) };
        if let Err(error) = ledger.forget(client, &self.told).await {
            // All is loaded; the next load, or `inrush recover`, finds that every node was told.
            tracing::debug!(%error, "what every node was told of is not forgotten");
            return Ok(());
        }
        self.forgotten();
        for number in 0..self.slots.len() {
            let old = self.marked.remove(&self.topology.nodes[number].name).unwrap_or_default();
            if old.is_empty() {
                continue;
            }
            // Those of a node that is away now are forgotten by the next load.
            if let Ok(session) = self.session(job, number).await {
                let forgotten = ledger.unmark(&session.node.connected.client, &old).await;
                self.slots[number] = Slot::Here(session);
                if let Err(error) = forgotten {
                    tracing::debug!(%error, "marks are left on a node");
                }
            }
        }
        Ok(())
    }

    /// Steps 4 and 5, behind the ledger's commit: every node is told, then the guard ends. Tries again while a node is
    /// away.
    pub async fn tell(&mut self, job: &Job, unit: &mut Unit) -> Result<(), Failure> {
        self.decided = true;
        let Some(gid) = self.gid.clone() else { return Ok(()) };
        let lack = match self.plan.ending {
            Ending::TwoPhase => {
                self.commit_prepared(job, &gid).await?;
                Vec::new()
            }
            Ending::Marks => {
                self.commit_marked(job, unit.mends.as_ref().map_or(&gid.to_string(), |m| &m.gid)).await?
            }
        };
        self.end_guard(true).await;
        let name = unit.mends.as_ref().map_or_else(|| gid.to_string(), |mends| mends.gid.clone());
        self.gid = None;
        if !lack.is_empty() {
            self.decided = false;
            let earlier = unit.mends.as_ref().is_some_and(|mends| mends.earlier);
            let fact = format!("{} did not get the rows of a unit", lack.join(", "));
            unit.mends = Some(Mends { gid: name, nodes: lack, earlier });
            return Err(Failure::Retry(Error::new(Code::ConnectionLost, fact)));
        }
        if !self.nodes.is_empty() {
            self.told.push(name);
        }
        self.nodes.clear();
        Ok(())
    }

    /// Has every node commit what it has prepared.
    async fn commit_prepared(&mut self, job: &Job, gid: &Gid) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(job.plan.limits.reconnect_secs);
        // At once, as long as all goes well.
        let names: Vec<String> = (0..self.slots.len()).map(|n| gid.part(Part::Rows, n)).collect();
        let telling = self.slots.iter_mut().zip(&names).filter_map(|(slot, name)| match slot {
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
        for (number, name) in names.iter().enumerate() {
            while matches!(&self.slots[number], Slot::Here(session) if session.stand == Stand::Prepared) {
                if Instant::now() > deadline || job.progress.stopping() == Stop::Abort {
                    return Err(Failure::Fatal(untold(&self.topology.nodes[number])));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                let Ok(node) = self.connect(job, number).await else { continue };
                let mut session = Box::new(Session::new(node));
                session.stand = Stand::Prepared;
                // An error comes again, until there is no more time for it.
                let _ = session.end_prepared("COMMIT", name).await;
                self.slots[number] = Slot::Here(session);
            }
        }
        Ok(())
    }

    /// Has every node commit what it has marked. Gives the names of those that have not: they have to be sent it again.
    async fn commit_marked(&mut self, job: &Job, gid: &str) -> Result<Vec<String>, Failure> {
        let Some((ledger, _)) = &job.ledger else { return Ok(Vec::new()) };
        let deadline = Instant::now() + Duration::from_secs(job.plan.limits.reconnect_secs);
        let telling = self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Here(session) if session.stand == Stand::Begun => Some(session.commit()),
            _ => None,
        });
        for answer in join_all(telling).await {
            if let Err(failure) = answer {
                tracing::debug!(error = %failure.error(), "a node has not answered; its mark is asked for");
            }
        }
        let mut lack = Vec::new();
        for number in 0..self.slots.len() {
            let lost = match &self.slots[number] {
                Slot::Here(session) if session.stand == Stand::Begun => session.node.backend.clone(),
                _ => continue,
            };
            self.slots[number] = Slot::Absent;
            loop {
                let asked = match self.connect(job, number).await {
                    Ok(node) => {
                        let gone = crate::session::wait_until_gone(&node.connected.client, &lost).await;
                        match gone {
                            Ok(()) => ledger.is_marked(&node.connected.client, gid).await,
                            Err(error) => Err(error),
                        }
                    }
                    Err(failure) => Err(failure.into_error()),
                };
                match asked {
                    Ok(true) => break,
                    Ok(false) => {
                        lack.push(self.topology.nodes[number].name.clone());
                        break;
                    }
                    Err(_) if Instant::now() > deadline || job.progress.stopping() == Stop::Abort => {
                        return Err(Failure::Fatal(untold(&self.topology.nodes[number])));
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        }
        Ok(lack)
    }

    /// Lets go of the guard. If its session is lost it is prepared somewhere, or gone: the next guard waits for neither,
    /// and what is prepared is named in the doubts.
    pub(super) async fn end_guard(&mut self, commit: bool) {
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
                let node = Node::coordinator();
                self.doubts.push(Doubt { node, backend: guard.backend().clone(), gid });
            }
            self.guard = None;
        }
    }

    /// Undoes the unit on every node; not if the ledger has it.
    pub async fn roll_back(&mut self) {
        if self.decided {
            return;
        }
        for number in 0..self.slots.len() {
            let _ = self.rest(number).await;
        }
        for gathered in &mut self.gathered {
            gathered.main.clear();
            gathered.text.clear();
        }
        let gid = self.gid.clone();
        for (number, slot) in self.slots.iter_mut().enumerate() {
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
                    let node = self.topology.nodes[number].clone();
                    self.doubts.push(Doubt { node, backend: session.node.backend.clone(), gid });
                }
                *slot = Slot::Absent;
            }
        }
        self.end_guard(false).await;
        self.gid = None;
    }

    /// Rolls back what lost sessions may have prepared, once they are certain to be gone.
    pub(super) async fn clear_doubts(&mut self, job: &Job) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(job.plan.limits.reconnect_secs);
        while let Some(doubt) = self.doubts.last() {
            match self.clear(job, doubt).await {
                Ok(()) => drop(self.doubts.pop()),
                Err(error) if Instant::now() > deadline => return Err(lost(error)),
                Err(_) if job.progress.stopping() == Stop::Abort => {
                    return Err(Failure::Fatal(crate::lane::interrupted()));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
        Ok(())
    }

    async fn clear(&self, job: &Job, doubt: &Doubt) -> Result<()> {
        let node = doubt.node.connect(&job.conninfo, &self.plan.map, &self.application, &[]).await?;
        crate::session::wait_until_gone(&node.connected.client, &doubt.backend).await?;
        let mut session = Session::new(node);
        session.end_prepared("ROLLBACK", &doubt.gid).await.map_err(Failure::into_error)
    }
}

fn untold(node: &Node) -> Error {
    Error::new(Code::ConnectionLost, format!("a unit is committed, and node {node} cannot be told")).hint(
        "Its rows are there once it is: `inrush recover` tells it, and so does the same command given again.",
    )
}
