//! What inputs have in common that can be read again: a partition is claimed, read from the smallest offset, and begun
//! again when the claim turns out to be void.

use super::{Feeder, Piece, outcome};
use crate::ack::Share;
use crate::metrics::Metrics;
use crate::origin::Origin;
use crate::part::Source;
use crate::session::connect_control;
use inrush_core::{Code, Error, Result};
use inrush_sink::ledger::Ledger;
use inrush_sink::ledger::stream::{PartitionName, Wanted};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::task::JoinSet;

/// First and longest pause between attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How often it is asked whether connections were lost.
const LOOK: Duration = Duration::from_millis(250);

/// One partition of an input that can be read again.
pub(crate) struct Replay {
    pub feeder: Feeder,
    pub source: Arc<Source>,
    pub name: PartitionName,
    /// Where it begins, if it is new.
    pub first: i64,
}

/// A claim that stands until it is found void.
pub(crate) struct Claimed {
    pub origin: Arc<Origin>,
    /// Where the partition is read from.
    pub restart: i64,
    /// Parts that are under way.
    watchers: JoinSet<bool>,
    /// Ends with the claim.
    _guard: JoinSet<()>,
}

impl Replay {
    /// Claims the partition as soon as the server can be asked. `None` if the process stops before.
    pub async fn claim(&self) -> Option<Claimed> {
        let mut pause = PAUSE.0;
        loop {
            if self.feeder.is_stopping() {
                return None;
            }
            match self.try_claim().await {
                Ok(claimed) => return Some(claimed),
                Err(error) => {
                    self.feeder.metrics.note_error(&error);
                    tracing::warn!(
                        input = self.source.name,
                        partition = self.name.partition,
                        error = error.fact(),
                        "cannot be read yet"
                    );
                }
            }
            self.pause(&mut pause).await;
        }
    }

    async fn try_claim(&self) -> Result<Claimed> {
        let settings = &self.feeder.registry.settings;
        // Before the server is asked: what is lost from now on voids the claim.
        let reconnects = self.feeder.metrics.reconnects.load(Relaxed);
        let mut connected = connect_control(&settings.conninfo).await?;
        let ledger = Ledger::open(&mut connected.client, &settings.ledger, true)
            .await?
            .ok_or_else(|| Error::new(Code::Ledger, "the ledger could not be made"))?;
        let unlogged = self.source.into.unlogged;
        let process = format!("process {}", std::process::id());
        let wanted = Wanted {
            name: &self.name,
            lanes: self.feeder.lanes,
            first: self.first,
            unlogged,
            process: &process,
        };
        let claim = ledger.claim(&mut connected.client, &wanted).await?;
        let restart = claim.restart();
        let origin = Arc::new(Origin::claimed(self.name.clone(), &claim, unlogged));
        let mut guard = JoinSet::new();
        guard.spawn(void_when_lost(Arc::clone(&self.feeder.metrics), reconnects, Arc::clone(&origin)));
        Ok(Claimed { origin, restart, watchers: JoinSet::new(), _guard: guard })
    }

    /// Hands on a piece; the claim is void if it is not stored.
    pub fn feed(&self, claimed: &mut Claimed, piece: Piece) {
        let (share, told) = Share::new();
        let origin = Arc::clone(&claimed.origin);
        let source = Arc::clone(&self.source);
        let next = piece.next;
        self.feeder.feed(&self.source, &claimed.origin, piece, share);
        claimed.watchers.spawn(async move {
            let outcome = outcome(told).await;
            if let Some(error) = &outcome.failed {
                if !origin.is_stale() {
                    tracing::warn!(input = source.name, error = error.fact(), "will be read again");
                }
                origin.spoil();
            } else {
                origin.settle(next);
            }
            outcome.failed.is_none()
        });
        while claimed.watchers.try_join_next().is_some() {}
    }

    /// Waits a little, longer each time, unless the process stops.
    pub async fn pause(&self, pause: &mut Duration) {
        let mut stop = self.feeder.stop.clone();
        let stopped = async { stop.wait_for(|stop| *stop).await.map(|_| ()) };
        let _ = tokio::time::timeout(*pause, stopped).await;
        *pause = (*pause * 2).min(PAUSE.1);
    }
}

/// Voids a claim when a connection was lost, and is there again. A server that has crashed may have forgotten commits, with
/// their offsets: all of unlogged tables, and the last ones with `synchronous_commit = off`. The next unit would find
/// that out, but a source that has come to its end has none.
async fn void_when_lost(metrics: Arc<Metrics>, reconnects: u64, origin: Arc<Origin>) {
    while metrics.reconnects.load(Relaxed) == reconnects {
        tokio::time::sleep(LOOK).await;
    }
    origin.spoil();
}

impl Claimed {
    /// Waits until all parts are settled. `false` if one was not stored.
    pub async fn settled(&mut self) -> bool {
        let mut all = true;
        while let Some(stored) = self.watchers.join_next().await {
            all &= stored.unwrap_or(false);
        }
        all && !self.origin.is_stale()
    }
}
