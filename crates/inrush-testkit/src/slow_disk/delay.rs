//! Reads that are answered after a fixed time.
//!
//! Each waits for the same time, so what came first is due first: a queue is enough, no timer wheel. One
//! thread, the leader, holds the queue's end and sleeps until the first read is due; then another becomes the
//! leader, and it answers. So no read is handed from thread to thread, and as many wait at once as there are.

use super::Reads;
use fuser::{Errno, ReplyData};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use std::{io, mem};

/// Threads that answer. More than cores: what is not in the page cache of the backing directory makes them
/// wait for a disk.
const THREADS: usize = 16;

/// A read that waits.
#[derive(Debug)]
pub struct Read {
    pub file: Arc<File>,
    pub offset: u64,
    pub size: usize,
    pub reply: ReplyData,
}

/// Counters that outlive the file system.
#[derive(Debug, Default)]
pub struct Counters {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    pub fn get(&self) -> Reads {
        Reads { count: self.count.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

/// Takes reads, and answers them later. Dropping it answers what still waits, and ends the threads.
#[derive(Debug)]
pub struct Delay {
    after: Duration,
    waiting: Mutex<Option<Sender<(Instant, Read)>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Delay {
    /// Starts the threads.
    pub fn start(after: Duration, counters: &Arc<Counters>) -> io::Result<Delay> {
        let (sender, receiver) = channel();
        let queue = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::with_capacity(THREADS);
        for n in 0..THREADS {
            let (queue, counters) = (Arc::clone(&queue), Arc::clone(counters));
            let thread = Builder::new().name(format!("delay-{n}"));
            threads.push(thread.spawn(move || answer(&queue, &counters))?);
        }
        Ok(Delay { after, waiting: Mutex::new(Some(sender)), threads })
    }

    /// Has a read answered when its time has come.
    pub fn push(&self, read: Read) {
        // The time counts from here: what the lock costs is part of it.
        let due = Instant::now() + self.after;
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(lost)) = waiting.as_ref().map(|sender| sender.send((due, read))) {
            lost.0.1.reply.error(Errno::EIO);
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take());
        for thread in mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}

/// A thread's life.
fn answer(queue: &Mutex<Receiver<(Instant, Read)>>, counters: &Counters) {
    // Else the kernel wakes sleepers up to 50 us late, so as to wake several at once. If it will not, delays
    // are longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut buffer = Vec::new();
    loop {
        let leader = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok((due, read)) = leader.recv() else { return };
        sleep(due.saturating_duration_since(Instant::now()));
        drop(leader);
        if buffer.len() < read.size {
            buffer.resize(read.size, 0);
        }
        match fill(&read.file, &mut buffer[..read.size], read.offset) {
            Ok(filled) => {
                counters.count.fetch_add(1, Relaxed);
                counters.bytes.fetch_add(filled as u64, Relaxed);
                read.reply.data(&buffer[..filled]);
            }
            Err(e) => read.reply.error(e.into()),
        }
    }
}

/// Reads as much as there is: a short answer would mean the end of the file to the kernel.
fn fill(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
