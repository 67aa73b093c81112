//! Where rows come from, and what lanes have of them.

use inrush_sink::ledger::stream::{Claim, PartitionName, RequestState};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use tokio::sync::Notify;

/// What is recorded of where rows come from.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Nothing: a request without a key. At least once.
    Untraced,
    /// Offsets of a claimed partition.
    Partition { epoch: i32 },
    /// The key of a request, with the hash of the head of its body.
    Request { head: Vec<u8> },
}

/// One claim of a partition, or one attempt of a request.
#[derive(Debug)]
pub(crate) struct Origin {
    pub name: PartitionName,
    pub kind: Kind,
    /// Whether the rows go to unlogged tables, and so the offsets.
    pub unlogged: bool,
    /// What each lane had when this began: rows before it are dropped.
    had: Vec<i64>,
    /// What each lane has been given: where its next unit begins.
    given: Vec<AtomicI64>,
    /// Largest position behind which a part has been settled, plus one; 0 for none.
    settled: AtomicI64,
    stale: AtomicBool,
    changed: Notify,
}

impl Origin {
    /// Rows that nothing is recorded of.
    pub fn untraced(name: PartitionName, lanes: u32, unlogged: bool) -> Origin {
        Origin::new(name, Kind::Untraced, unlogged, vec![0; lanes as usize])
    }

    /// A partition that has been claimed.
    pub fn claimed(name: PartitionName, claim: &Claim, unlogged: bool) -> Origin {
        Origin::new(name, Kind::Partition { epoch: claim.epoch }, unlogged, claim.next.clone())
    }

    /// An attempt of a request with a key, of which the ledger may have something.
    pub fn request(
        name: PartitionName,
        head: Vec<u8>,
        known: Option<&RequestState>,
        lanes: u32,
        unlogged: bool,
    ) -> Origin {
        let mut had = vec![0; known.map_or(lanes, |known| known.lanes) as usize];
        for (lane, next) in known.iter().flat_map(|known| &known.next) {
            if let Some(had) = had.get_mut(*lane as usize) {
                *had = *next;
            }
        }
        Origin::new(name, Kind::Request { head }, unlogged, had)
    }

    fn new(name: PartitionName, kind: Kind, unlogged: bool, had: Vec<i64>) -> Origin {
        let given = had.iter().map(|next| AtomicI64::new(*next)).collect();
        Origin {
            name,
            kind,
            unlogged,
            had,
            given,
            settled: AtomicI64::new(0),
            stale: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Lanes that its rows are spread over.
    pub fn lanes(&self) -> usize {
        self.had.len()
    }

    /// Whether a lane had the row at this position before.
    pub fn has(&self, lane: usize, position: i64) -> bool {
        position < self.had[lane]
    }

    /// Gives a lane everything up to `to`, and says from where. `None` if it has that already.
    pub fn give(&self, lane: usize, to: i64) -> Option<i64> {
        let from = self.given[lane].load(SeqCst);
        (to > from).then(|| {
            self.given[lane].store(to, SeqCst);
            from
        })
    }

    /// A part that ends here has been settled.
    pub fn settle(&self, next: i64) {
        self.settled.fetch_max(next, SeqCst);
    }

    /// How far parts have been settled, for people: others before it may be under way.
    pub fn settled(&self) -> Option<i64> {
        Some(self.settled.load(SeqCst)).filter(|next| *next > 0)
    }

    /// What was given is void: somebody else has claimed the partition, or the server has lost what it had. Whoever
    /// reads the partition begins again.
    pub fn spoil(&self) {
        self.stale.store(true, SeqCst);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// Whether it is void.
    pub fn is_stale(&self) -> bool {
        self.stale.load(SeqCst)
    }

    /// Waits until it is void.
    pub async fn spoiled(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_stale() {
                return;
            }
            changed.await;
        }
    }
}
