//! What each lane of the client does now: which backend it talks to, and at which stage it is.

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What a lane does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waits for input to read.
    Input = 0,
    /// Decodes and encodes.
    Encode = 1,
    /// Sends, or waits until the connection takes more.
    Send = 2,
    /// Has sent a statement and waits for its answer.
    Answer = 3,
}

impl Stage {
    fn from_u8(n: u8) -> Stage {
        match n {
            1 => Stage::Encode,
            2 => Stage::Send,
            3 => Stage::Answer,
            _ => Stage::Input,
        }
    }
}

/// One lane's state. Writing it costs one store that nobody waits for.
#[derive(Debug, Default)]
pub struct Lane {
    /// Process id of the backend; 0 without one.
    pid: AtomicI32,
    stage: AtomicU8,
}

impl Lane {
    /// The lane has (another) backend.
    pub fn connected(&self, pid: i32) {
        self.pid.store(pid, Relaxed);
    }

    /// The lane has no backend any more.
    pub fn ended(&self) {
        self.pid.store(0, Relaxed);
    }

    /// The lane is at this stage now.
    pub fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Relaxed);
    }
}

/// The lanes of a load or a stream.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: Mutex<Vec<Arc<Lane>>>,
}

impl Lanes {
    /// A lane more.
    pub fn add(&self) -> Arc<Lane> {
        let lane = Arc::new(Lane::default());
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&lane));
        lane
    }

    /// Backend and stage of every lane that has a backend.
    pub fn now(&self) -> Vec<(i32, Stage)> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes
            .iter()
            .map(|lane| (lane.pid.load(Relaxed), Stage::from_u8(lane.stage.load(Relaxed))))
            .filter(|(pid, _)| *pid != 0)
            .collect()
    }
}
