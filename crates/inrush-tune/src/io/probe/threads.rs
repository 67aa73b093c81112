//! Reads kept in flight by threads, one for each: for file systems whose io_submit waits for the read, and where the
//! kernel has no asynchronous I/O to give.

use super::direct::{Slice, Wanted};
use super::scratch::Aligned;
use crate::io::measured::PAGE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Stack of a thread that only reads.
const STACK: usize = 128 << 10;

/// Reads the pages with so many in flight, until they, the time or the patience are at an end.
pub(super) fn read(file: &File, wanted: &Wanted<'_>) -> io::Result<Slice> {
    let threads = (wanted.depth as usize).min(wanted.pages.len()).max(1);
    let next = AtomicUsize::new(0);
    // All begin together, when all are there: making a thread takes about as long as a read.
    let start = Barrier::new(threads + 1);
    let (seen, began) = std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        let mut failed = None;
        for _ in 0..threads {
            let work = || {
                start.wait();
                one(file, wanted, &next)
            };
            match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
                Ok(handle) => handles.push(handle),
                Err(error) => failed = Some(error),
            }
        }
        if failed.is_some() {
            // Nothing is read, and those that wait have company to leave with.
            next.store(wanted.pages.len(), Relaxed);
            for _ in handles.len()..threads {
                let _ = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || start.wait());
            }
        }
        start.wait();
        let began = Instant::now();
        let seen: Vec<io::Result<Vec<(Instant, Duration)>>> = handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|_| Err(io::Error::other("a reading thread failed"))))
            .collect();
        match failed {
            Some(error) => Err(error),
            None => Ok((seen, began)),
        }
    })?;
    let mut slice = Slice::default();
    let mut ends = Vec::new();
    // Up to when the first thread found nothing more to read: then the queue was no longer full.
    let mut first_end = None::<Instant>;
    for one in seen {
        let one = one?;
        first_end = first_end.into_iter().chain(one.last().map(|(at, _)| *at)).min();
        ends.extend(one);
    }
    ends.iter().for_each(|(_, took)| slice.took(*took));
    // Where few came in all, every one of them counts.
    let few = ends.len() < 3 * threads;
    let until = if few { ends.iter().map(|(at, _)| *at).max() } else { first_end };
    if let Some(until) = until {
        slice.reads = ends.iter().filter(|(at, _)| *at <= until).count() as u64;
        slice.seconds = until.saturating_duration_since(began).as_secs_f64();
    }
    Ok(slice)
}

fn one(file: &File, wanted: &Wanted<'_>, next: &AtomicUsize) -> io::Result<Vec<(Instant, Duration)>> {
    #[allow(clippy::cast_possible_truncation)] // 8192
    let mut page = Aligned::new(PAGE as usize);
    let mut seen = Vec::with_capacity(1024);
    while !wanted.is_over() {
        let Some(number) = wanted.pages.get(next.fetch_add(1, Relaxed)) else { break };
        let sent = Instant::now();
        file.read_exact_at(page.slice(), u64::from(*number) * PAGE)?;
        let now = Instant::now();
        seen.push((now, now.duration_since(sent)));
    }
    Ok(seen)
}
