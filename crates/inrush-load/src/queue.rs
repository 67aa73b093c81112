//! The bounded queue between the reader and the lanes.
//!
//! Bounded by bytes, not by items: what it guards is memory. The bytes of an item count from the moment it
//! is pushed until its [`Permit`] is dropped, so chunks that a lane still holds (being encoded, or kept until
//! their unit commits) count as well.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

struct State<T> {
    items: VecDeque<(T, Permit)>,
    closed: bool,
}

/// A multi-producer, multi-consumer queue of items with a weight in bytes.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
    budget: Arc<Budget>,
}

struct Budget {
    used: Mutex<usize>,
    freed: Condvar,
    limit: AtomicUsize,
}

/// The bytes an item counts for, given back on drop.
pub struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        *lock(&self.budget.used) -= self.bytes;
        self.budget.freed.notify_all();
    }
}

/// What a consumer got.
pub enum Popped<T> {
    /// An item and the memory it counts for.
    Item(T, Permit),
    /// Nothing came until the deadline.
    Timeout,
    /// The producer has closed the queue and it is empty.
    Closed,
}

/// A panicked lane must not hide its panic behind a poisoned lock in every other thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl<T> Queue<T> {
    /// A queue whose items weigh at most `limit` bytes together; one item may always pass, however heavy.
    pub fn new(limit: usize) -> Queue<T> {
        Queue {
            state: Mutex::new(State { items: VecDeque::new(), closed: false }),
            ready: Condvar::new(),
            budget: Arc::new(Budget {
                used: Mutex::new(0),
                freed: Condvar::new(),
                limit: AtomicUsize::new(limit),
            }),
        }
    }

    /// Waits until there is room, then adds an item. Gives it back if the queue has been closed.
    pub fn push(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut used = lock(&self.budget.used);
        while *used > 0 && *used + bytes > self.budget.limit.load(Relaxed) {
            if lock(&self.state).closed {
                return Err(item);
            }
            // Woken by freed memory; the timeout only serves to see a close.
            used = self
                .budget
                .freed
                .wait_timeout(used, std::time::Duration::from_millis(50))
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        *used += bytes;
        drop(used);
        let permit = Permit { budget: Arc::clone(&self.budget), bytes };
        let mut state = lock(&self.state);
        if state.closed {
            return Err(item);
        }
        state.items.push_back((item, permit));
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Takes the next item, waiting until the deadline if there is one.
    pub fn pop(&self, deadline: Option<Instant>) -> Popped<T> {
        let mut state = lock(&self.state);
        loop {
            if let Some((item, permit)) = state.items.pop_front() {
                return Popped::Item(item, permit);
            }
            if state.closed {
                return Popped::Closed;
            }
            state = match deadline {
                None => self.ready.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner),
                Some(deadline) => {
                    let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                        return Popped::Timeout;
                    };
                    self.ready.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0
                }
            };
        }
    }

    /// Changes the weight that items may have together.
    pub fn set_limit(&self, limit: usize) {
        self.budget.limit.store(limit, Relaxed);
        self.budget.freed.notify_all();
    }

    /// Whether items wait that no consumer has taken yet.
    pub fn is_backed_up(&self) -> bool {
        !lock(&self.state).items.is_empty()
    }

    /// No more items will come; those in the queue are still handed out.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.ready.notify_all();
    }

    /// Closes the queue and drops what is in it.
    pub fn abandon(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items);
        self.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_item_passes_alone_and_holds_others_back() {
        let queue = Arc::new(Queue::new(10));
        assert!(queue.push(1, 100).is_ok());
        let pusher = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || queue.push(2, 5).is_ok())
        };
        let Popped::Item(1, permit) = queue.pop(None) else { panic!("first item") };
        let soon = Instant::now() + std::time::Duration::from_millis(100);
        assert!(matches!(queue.pop(Some(soon)), Popped::Timeout), "held back while the first is in use");
        drop(permit);
        assert!(matches!(queue.pop(None), Popped::Item(2, _)));
        assert!(pusher.join().expect("pusher"));
        queue.close();
        assert!(matches!(queue.pop(None), Popped::Closed));
    }

    #[test]
    fn abandoning_frees_a_waiting_producer() {
        let queue = Arc::new(Queue::new(1));
        assert!(queue.push(1, 1).is_ok());
        let pusher = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || queue.push(2, 1))
        };
        queue.abandon();
        // Either it was still waiting and gives the item back, or it slipped in before.
        let _ = pusher.join().expect("pusher");
        assert!(!matches!(queue.pop(Some(Instant::now())), Popped::Timeout));
    }
}
