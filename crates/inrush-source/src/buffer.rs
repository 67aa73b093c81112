use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of chunk size that go round between the reader and the consumers of its chunks.
///
/// A fresh buffer of 4 MiB costs about a thousand page faults, which is more than reading it from the page
/// cache; a recycled one costs nothing. Whoever is done with [`inrush_core::Chunk::bytes`] hands it back
/// with [`BufferPool::give`]; a buffer that is not handed back is merely freed.
///
/// Clones share the same buffers.
#[derive(Debug, Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    keep: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

impl BufferPool {
    /// A pool of buffers of `size` bytes that keeps at most `keep` of them while nobody uses them.
    pub fn new(size: usize, keep: usize) -> BufferPool {
        BufferPool { shared: Arc::new(Shared { size: size.max(1), keep, free: Mutex::default() }) }
    }

    /// Size of the buffers in bytes.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// A buffer with a length of at least the pool's size and arbitrary content.
    ///
    /// The length, not only the capacity: buffers come back as long as their chunk was, so that bringing
    /// them to full length writes only the few bytes that the chunk lacked, and no `unsafe` is needed to
    /// read into bytes that were never written.
    pub(crate) fn take(&self) -> Vec<u8> {
        let size = self.shared.size;
        let recycled = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match recycled {
            Some(mut buffer) => {
                buffer.resize(size, 0);
                buffer
            }
            None => vec![0; size],
        }
    }

    /// Hands a buffer back. Buffers that grew for a long record or shrank are freed instead of kept, so
    /// that the pool never holds more than `keep` times its size (and a little).
    pub fn give(&self, buffer: Vec<u8>) {
        let size = self.shared.size;
        if buffer.capacity() < size || buffer.capacity() > size.saturating_add(size / 2) {
            return;
        }
        let mut free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.shared.keep {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BufferPool;

    #[test]
    fn recycles_what_fits_and_no_more_than_it_keeps() {
        let pool = BufferPool::new(100, 1);
        let mut first = pool.take();
        first.truncate(10);
        let address = first.as_ptr();
        pool.give(first);
        pool.give(vec![0; 100]);
        pool.give(vec![0; 1000]);
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.len()), (address, 100));
        let fresh = pool.take();
        assert_ne!(fresh.as_ptr(), address);
    }
}
