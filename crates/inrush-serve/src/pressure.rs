//! How much may be in memory.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted: a permit stands for so many bytes.
const UNIT: usize = 4096;

/// A part is in memory as it came and as it is sent, and a lane may have sent it without an answer yet.
const TIMES: usize = 3;

/// Bytes of a part that a permit is for.
pub(crate) fn covered(permit: &OwnedSemaphorePermit) -> usize {
    permit.num_permits() * UNIT / TIMES
}

/// Memory for parts that are not settled yet.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    permits: Arc<Semaphore>,
    all: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        let all = (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Memory { permits: Arc::new(Semaphore::new(all)), all }
    }

    /// The largest part that fits.
    pub fn largest_part(&self) -> usize {
        (self.all / TIMES / 2).max(1) * UNIT
    }

    fn units(&self, bytes: usize) -> u32 {
        // One that is larger than all is let in alone.
        let units = (bytes * TIMES).div_ceil(UNIT).clamp(1, self.all);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Waits until a part of so many bytes may come in.
    pub async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let permits = Arc::clone(&self.permits);
        match permits.acquire_many_owned(self.units(bytes)).await {
            Ok(permit) => permit,
            // It is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether somebody waits: who does has taken what there was.
    pub fn is_full(&self) -> bool {
        self.permits.available_permits() == 0
    }

    /// Bytes taken.
    pub fn used(&self) -> usize {
        (self.all - self.permits.available_permits().min(self.all)) * UNIT
    }

    /// All there are.
    pub fn all(&self) -> usize {
        self.all * UNIT
    }
}
