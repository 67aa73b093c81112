//! Buffers of messages, used again once they are sent: a new one of some hundred KB would be fresh memory each time,
//! and the kernel's clearing of its pages costs more than filling them.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of one lane that wait to be used again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// Buffers kept: the driver has at most a few messages in hand.
const KEEP: usize = 4;

/// A buffer larger than so many times what is wanted is not kept: a long record made it so.
const TOO_LARGE: usize = 4;

impl Buffers {
    /// An empty buffer of at least this capacity.
    pub fn take(&self, capacity: usize) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match kept {
            Some(buffer) if (capacity..capacity * TOO_LARGE).contains(&buffer.capacity()) => buffer,
            _ => Vec::with_capacity(capacity),
        }
    }

    /// A message that gives its buffer back when it has been sent.
    pub fn message(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { bytes, back: self.clone() })
    }
}

struct Lent {
    bytes: Vec<u8>,
    back: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut kept = self.back.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEEP {
            kept.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_the_message_is_gone() {
        let buffers = Buffers::default();
        let mut bytes = buffers.take(1000);
        bytes.extend_from_slice(b"rows");
        let at = bytes.as_ptr();
        let message = buffers.message(bytes);
        let part = message.slice(1..3);
        drop(message);
        let other = buffers.take(1000);
        assert_ne!(other.as_ptr(), at, "a part of it is still in use");
        drop(part);
        let again = buffers.take(1000);
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        drop(buffers.message(Vec::with_capacity(1_000_000)));
        assert!(buffers.take(1000).capacity() < 1_000_000);
    }
}
