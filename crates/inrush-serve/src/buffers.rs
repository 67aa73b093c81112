//! Buffers that are used again. Fresh memory of this size costs the kernel a fault and a cleared page for each 4 KiB,
//! which is as much time as decoding takes.

use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers of one size. What is lent and what is free together is never more than what was lent at once.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    size: usize,
    free: Arc<Mutex<Free>>,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    /// How many were free at least since [`Buffers::release_idle`] looked.
    fewest: usize,
}

impl Buffers {
    /// Buffers with room for so many bytes.
    pub fn new(size: usize) -> Buffers {
        Buffers { size, free: Arc::default() }
    }

    /// Bytes that a buffer has room for.
    pub fn size(&self) -> usize {
        self.size
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer.
    pub fn take(&self) -> Vec<u8> {
        let mut free = self.free();
        let buffer = free.buffers.pop();
        free.fewest = free.fewest.min(free.buffers.len());
        drop(free);
        buffer.unwrap_or_else(|| Vec::with_capacity(self.size))
    }

    /// What a buffer holds; it comes back when the last of these bytes has gone. A buffer from elsewhere, or one that
    /// has grown, does not. Of one that holds little a copy is made: what is counted is bytes, not buffers.
    pub fn lend(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() != self.size {
            return Bytes::from(buffer);
        }
        let lent = Lent { buffer, to: Arc::clone(&self.free) };
        match lent.buffer.len() < self.size / 4 {
            true => Bytes::copy_from_slice(&lent.buffer),
            false => Bytes::from_owner(lent),
        }
    }

    /// Gives back to the system what nobody has needed since the last call.
    pub fn release_idle(&self) {
        let mut free = self.free();
        let keep = free.buffers.len() - free.fewest.min(free.buffers.len());
        let idle = free.buffers.split_off(keep);
        free.fewest = keep;
        drop(free);
        drop(idle);
    }
}

/// A buffer on its way.
struct Lent {
    buffer: Vec<u8>,
    to: Arc<Mutex<Free>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        self.to.lock().unwrap_or_else(PoisonError::into_inner).buffers.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::Buffers;

    #[test]
    fn buffers_come_back_and_idle_ones_go() {
        let buffers = Buffers::new(8);
        let free = || buffers.free().buffers.len();
        let mut one = buffers.take();
        one.extend_from_slice(b"abc");
        let address = one.as_ptr();
        let bytes = buffers.lend(one);
        let part = bytes.slice(1..);
        assert_eq!(bytes, b"abc"[..]);
        drop(bytes);
        assert_eq!((part.as_ref(), free()), (&b"bc"[..], 0));
        drop(part);
        assert_eq!(free(), 1);
        let (again, other) = (buffers.take(), buffers.take());
        assert_eq!((again.as_ptr(), again.len(), free()), (address, 0, 0));
        assert_eq!(buffers.lend(again).len(), 0);
        assert_eq!(free(), 1, "of little a copy is made");
        drop(buffers.lend(other));
        buffers.release_idle();
        assert_eq!(free(), 2, "both were needed since");
        drop(buffers.lend(buffers.take()));
        buffers.release_idle();
        assert_eq!(free(), 1, "one was");
        buffers.release_idle();
        assert_eq!(free(), 0);
    }

    #[test]
    fn what_has_grown_does_not_come_back() {
        let buffers = Buffers::new(100);
        let mut one = buffers.take();
        one.resize(101, 0);
        drop(buffers.lend(one));
        drop(buffers.lend(vec![1, 2]));
        assert_eq!(buffers.free().buffers.len(), 0);
    }
}
