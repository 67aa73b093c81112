//! The sessions of one lane on nodes: idle, or at work on their own.

use super::nudger::Nudger;
use super::session::{Send, Session, Stand};
use super::{Ending, Reach};
use crate::{Node, NodeSession};
use inrush_core::{Code, Error, Result};
use inrush_sink::catalog::direct::load_library_if_there;
use inrush_sink::failure::Failure;
use inrush_sink::ledger::Ledger;
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

/// COPYs that wait for a node to be done with another: while one node stores, a lane need not wait before it encodes for
/// the next.
const WAITING: usize = 2;

/// What drives sessions of nodes, which go on while their lane is busy.
#[derive(Debug)]
pub struct Drive(Driver);

#[derive(Debug)]
enum Driver {
    Own(Option<Runtime>),
    Shared(Handle),
}

impl Drive {
    /// A thread of its own, for a lane that encodes on the thread that drives it.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub fn own() -> Result<Drive> {
        let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let built = built.map_err(|e| {
            Error::new(Code::Internal, format!("cannot start what drives the sessions of nodes: {e}"))
        })?;
        Ok(Drive(Driver::Own(Some(built))))
    }

    /// The runtime that the lane is a task of.
    pub fn shared() -> Drive {
        Drive(Driver::Shared(Handle::current()))
    }

    pub(super) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: std::marker::Send> + std::marker::Send + 'static,
    {
        match &self.0 {
            Driver::Own(Some(runtime)) => runtime.spawn(work),
            Driver::Shared(handle) => handle.spawn(work),
            // Only while it is dropped.
            Driver::Own(None) => tokio::spawn(work),
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // A lane is driven by a runtime itself, in which nothing may wait for another to end.
        if let Driver::Own(runtime) = &mut self.0
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}

/// A session of a node: here, or at work.
pub(super) enum Slot {
    Absent,
    Here(Box<Session>),
    Working(Working),
}

/// A session that sends one COPY after another, until nothing comes any more, or one fails.
pub(super) struct Working {
    queue: Sender<Send>,
    work: JoinHandle<(Box<Session>, Result<u64, Failure>)>,
}

/// A slot for each node that the lane has met.
pub(super) struct Slots {
    reach: Arc<Reach>,
    drive: Drive,
    /// Those that the lane has met.
    pub nodes: Vec<Node>,
    /// Aligned with `nodes`.
    pub slots: Vec<Slot>,
    /// Aligned with `nodes`.
    nudgers: Vec<Nudger>,
    /// What sessions on nodes are called.
    pub application: String,
    /// Rows that nodes have stored, of the unit.
    pub stored: u64,
}

impl Slots {
    pub fn new(reach: Arc<Reach>, application: String, drive: Drive) -> Slots {
        Slots {
            reach,
            drive,
            nodes: Vec::new(),
            slots: Vec::new(),
            nudgers: Vec::new(),
            application,
            stored: 0,
        }
    }

    /// The slot of a node.
    pub fn of(&mut self, node: &Node) -> usize {
        self.nodes.iter().position(|known| known == node).unwrap_or_else(|| {
            self.nodes.push(node.clone());
            self.slots.push(Slot::Absent);
            self.nudgers.push(Nudger::new());
            self.nodes.len() - 1
        })
    }

    /// Gives a node a COPY, once it has room for it.
    pub async fn send(&mut self, slot: usize, send: Send) -> Result<(), Failure> {
        if self.reach.nudges {
            let (nudger, node) = (&mut self.nudgers[slot], &self.nodes[slot]);
            nudger.sends(send.bytes.len(), &self.drive, &self.reach, node, &self.application);
        }
        if let Slot::Working(working) = &self.slots[slot] {
            return match working.queue.send(send).await {
                Ok(()) => Ok(()),
                // It has ended, for a reason.
                Err(_) => {
                    self.rest(slot).await?;
                    Err(Failure::Fatal(Error::new(
                        Code::Internal,
                        "a session of a node takes nothing any more",
                    )))
                }
            };
        }
        let mut session = self.session(slot).await?;
        let sent = self.nudgers[slot].sent();
        let (queue, mut sends) = tokio::sync::mpsc::channel(WAITING);
        let work = self.drive.spawn(async move {
            let mut stored = 0;
            let mut next = Some(send);
            while let Some(send) = next {
                match session.copy(send).await {
                    Ok(rows) => stored += rows,
                    Err(failure) => return (session, Err(failure)),
                }
                sent.notify_one();
                next = sends.recv().await;
            }
            (session, Ok(stored))
        });
        self.slots[slot] = Slot::Working(Working { queue, work });
        Ok(())
    }

    /// The session of a node, taken out of its slot: connected, and not at work any more.
    pub async fn session(&mut self, slot: usize) -> Result<Box<Session>, Failure> {
        self.rest(slot).await?;
        match std::mem::replace(&mut self.slots[slot], Slot::Absent) {
            Slot::Here(session)
                if session.stand != Stand::Idle || !session.node.connected.client.is_closed() =>
            {
                Ok(session)
            }
            _ => Ok(Box::new(Session::new(self.connect(slot).await?))),
        }
    }

    /// A new session of a node.
    pub async fn connect(&self, slot: usize) -> Result<NodeSession, Failure> {
        let (node, reach) = (self.nodes[slot].clone(), Arc::clone(&self.reach));
        let application = self.application.clone();
        let connecting = self.drive.spawn(async move {
            node.connect(&reach.coordinator, &reach.map, &application, &reach.settings).await
        });
        let connected = connecting.await.map_err(|_| panicked())?;
        let mut session = connected.map_err(Failure::of_error)?;
        if self.reach.ending == Ending::Marks {
            let client = &mut session.connected.client;
            Ledger::open(client, self.reach.ledger.schema(), true).await.map_err(Failure::of_error)?;
            // What is prepared is flushed whatever the setting (twophase.c, EndPrepare), a plain commit is not.
            session.connected.commit_for_good().await.map_err(Failure::of_error)?;
        }
        if self.reach.direct {
            let loaded = load_library_if_there(&session.connected.client).await;
            loaded.map_err(|error| session.connected.failure(&error))?;
        }
        Ok(session)
    }

    /// Ends the sessions that have nothing under way.
    pub fn leave_idle(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot, Slot::Here(session) if session.stand == Stand::Idle) {
                *slot = Slot::Absent;
            }
        }
    }

    /// Waits until a session is done with what it was given.
    pub async fn rest(&mut self, slot: usize) -> Result<(), Failure> {
        match std::mem::replace(&mut self.slots[slot], Slot::Absent) {
            Slot::Working(Working { queue, work }) => {
                drop(queue);
                let (session, stored) = work.await.map_err(|_| panicked())?;
                self.slots[slot] = Slot::Here(session);
                self.stored += stored?;
            }
            other => self.slots[slot] = other,
        }
        Ok(())
    }

    /// [`Slots::rest`] of all.
    pub async fn rest_all(&mut self) -> Result<(), Failure> {
        for slot in 0..self.slots.len() {
            self.rest(slot).await?;
        }
        Ok(())
    }
}

fn panicked() -> Failure {
    Failure::Fatal(Error::new(Code::Internal, "a session of a node panicked"))
}
