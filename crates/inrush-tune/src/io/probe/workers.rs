//! Reads made by others, as by the I/O workers of PostgreSQL 18: a queue, so many who take from it, and a reader who does
//! the read himself when the queue is full (method_worker.c).

use super::stream::{COMBINE, Read, Reads};
use crate::io::measured::PAGE;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Reads that the queue takes: io_worker_queue_size, a constant of method_worker.c.
const QUEUE: usize = 64;

/// Most reads of one session in flight: io_max_concurrency is at most this unless somebody has set it.
pub(super) const MOST_IN_FLIGHT: u32 = 64;

/// Threads that read what they are asked to.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Somebody has work.
    work: Condvar,
    /// A read has ended.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The file of each worker: every process of a server has its own descriptor, and so its own read-ahead.
    files: Arc<Vec<File>>,
    /// Reads that have ended, by their number.
    ended: Vec<Option<io::Result<()>>>,
    over: bool,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    number: usize,
    read: Read,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workers {
    /// So many.
    pub(super) fn new(count: u32) -> io::Result<Workers> {
        let shared = Arc::new(Shared { queue: Mutex::default(), work: Condvar::new(), done: Condvar::new() });
        let mut workers = Workers { shared, threads: Vec::new() };
        for number in 0..count {
            let shared = Arc::clone(&workers.shared);
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            workers.threads.push(thread.spawn(move || work(&shared, number as usize))?);
        }
        Ok(workers)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// A scan with a file for each worker and one for the reader.
    pub(super) fn scan(&self, files: Vec<File>, own: File) -> Scan<'_> {
        let mut queue = self.shared.lock();
        queue.files = Arc::new(files);
        queue.ended.clear();
        Scan { workers: self, own, buffer: vec![0; buffer_bytes()], first: 0, next: 0 }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared, number: usize) {
    let mut buffer = vec![0; buffer_bytes()];
    let mut queue = shared.lock();
    while !queue.over {
        let Some(job) = queue.jobs.pop_front() else {
            queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let files = Arc::clone(&queue.files);
        drop(queue);
        let outcome = match files.get(number) {
            Some(file) => read_run(file, &mut buffer, job.read),
            None => Err(io::Error::other("a worker has no file")),
        };
        queue = shared.lock();
        if let Some(slot) = queue.ended.get_mut(job.number) {
            *slot = Some(outcome);
        }
        shared.done.notify_all();
    }
}

/// Reads neighbouring pages in one call.
pub(super) fn read_run(file: &File, buffer: &mut [u8], read: Read) -> io::Result<()> {
    #[allow(clippy::cast_possible_truncation)] // 16 pages
    let bytes = (u64::from(read.count) * PAGE) as usize;
    file.read_exact_at(&mut buffer[..bytes], u64::from(read.page) * PAGE)
}

/// Room for the longest read.
pub(super) fn buffer_bytes() -> usize {
    #[allow(clippy::cast_possible_truncation)] // 128 KiB
    let bytes = (u64::from(COMBINE) * PAGE) as usize;
    bytes
}

/// The reader's side of a scan.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    workers: &'a Workers,
    own: File,
    buffer: Vec<u8>,
    /// The number of the oldest read that was not waited for, and of the next to be started.
    first: usize,
    next: usize,
}

impl Reads<io::Error> for Scan<'_> {
    fn start(&mut self, read: Read) -> io::Result<()> {
        let shared = &self.workers.shared;
        let mut queue = shared.lock();
        let number = self.next;
        self.next += 1;
        queue.ended.push(None);
        if queue.jobs.len() < QUEUE {
            queue.jobs.push_back(Job { number, read });
            drop(queue);
            shared.work.notify_one();
            return Ok(());
        }
        drop(queue);
        let outcome = read_run(&self.own, &mut self.buffer, read);
        if let Some(slot) = shared.lock().ended.get_mut(number) {
            *slot = Some(outcome);
        }
        Ok(())
    }

    fn wait(&mut self, _read: Read) -> io::Result<()> {
        let shared = &self.workers.shared;
        let mut queue = shared.lock();
        loop {
            if let Some(outcome) = queue.ended.get_mut(self.first).and_then(Option::take) {
                self.first += 1;
                return outcome;
            }
            queue = shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Scan<'_> {
    /// What is on its way must end here: the next scan counts from nought again.
    fn drop(&mut self) {
        let shared = &self.workers.shared;
        let mut queue = shared.lock();
        // What no worker has begun, none will.
        let dropped: Vec<usize> = queue.jobs.drain(..).map(|job| job.number).collect();
        for number in dropped {
            queue.ended[number] = Some(Ok(()));
        }
        while queue.ended.iter().skip(self.first).any(Option::is_none) {
            queue = shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.files = Arc::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::Stream;
    use super::*;
    use std::io::Write;

    fn file() -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![1; 300 * 8192]).unwrap();
        file
    }

    #[test]
    fn workers_read_every_page_and_can_be_used_again() {
        let file = file();
        let open = || File::open(file.path()).unwrap();
        for count in [0, 1, 3] {
            let workers = Workers::new(count).unwrap();
            for concurrency in [1, 16, 64, 256] {
                if count == 0 {
                    continue;
                }
                let mut scan = workers.scan((0..count).map(|_| open()).collect(), open());
                let mut stream = Stream::new((0..300).filter(|page| page % 2 == 0), concurrency, false);
                let mut taken = 0;
                while stream.next(&mut scan).unwrap() {
                    taken += 1;
                }
                assert_eq!(taken, 150);
            }
        }
    }

    #[test]
    fn a_scan_that_is_given_up_leaves_nothing_in_flight() {
        let file = file();
        let open = || File::open(file.path()).unwrap();
        let workers = Workers::new(2).unwrap();
        for _ in 0..20 {
            let mut scan = workers.scan(vec![open(), open()], open());
            let mut stream = Stream::new((0..300).step_by(3), 32, false);
            for _ in 0..20 {
                assert!(stream.next(&mut scan).unwrap());
            }
        }
        assert!(workers.shared.lock().jobs.is_empty());
    }

    #[test]
    fn a_read_past_the_end_is_an_error() {
        let file = file();
        let open = || File::open(file.path()).unwrap();
        let workers = Workers::new(1).unwrap();
        let mut scan = workers.scan(vec![open()], open());
        let mut stream = Stream::new([1000u32].into_iter(), 4, false);
        assert!(stream.next(&mut scan).is_err());
    }
}
