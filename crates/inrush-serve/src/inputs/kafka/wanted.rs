//! Memory that a thread without a runtime waits for, beside its other work.

use super::PartitionKey;
use crate::pressure::Memory;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::sync::OwnedSemaphorePermit;

/// Memory for a part of one partition. Who only asked now and then whether there is some would come away empty for as
/// long as others wait for it: what becomes free is theirs at once. This keeps its place among them.
pub(super) struct Wanted {
    pub key: PartitionKey,
    pub bytes: usize,
    memory: Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>,
}

impl Wanted {
    pub fn new(memory: &Memory, key: PartitionKey, bytes: usize) -> Wanted {
        let memory = memory.clone();
        Wanted { key, bytes, memory: Box::pin(async move { memory.take(bytes).await }) }
    }

    /// The memory, if its turn has come.
    pub fn look(&mut self) -> Option<OwnedSemaphorePermit> {
        // Nobody has to be woken up: it is asked again with the next round.
        match self.memory.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(memory) => Some(memory),
            Poll::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_turn_comes_however_many_wait_all_the_time() {
        let memory = Memory::new(64 << 10);
        let all = memory.all();
        let another = || {
            let mut other = Wanted::new(&memory, ("other".to_owned(), 0), all);
            let taken = other.look();
            (other, taken)
        };
        let (_, taken) = another();
        let mut taken = Some(taken.expect("there was some"));
        let (mut before, _) = another();
        let mut ours = Wanted::new(&memory, ("ours".to_owned(), 0), 1);
        assert!(ours.look().is_none());
        for round in 0..3 {
            // Whoever is done wants more at once, before anybody else looks.
            let (next, _) = another();
            drop(taken.take());
            assert_eq!(memory.used(), all, "nothing is free in between");
            if ours.look().is_some() {
                assert_eq!(round, 1, "behind the one who came before");
                return;
            }
            taken = before.look();
            assert!(taken.is_some());
            before = next;
        }
        panic!("its turn did not come");
    }
}
