//! Reads kept in flight by threads, one for each: for file systems whose io_submit waits for the read, and where the
//! kernel has no asynchronous I/O to give.

use super::direct::{Slice, Wanted, unreadable};
use super::scratch::Aligned;
use crate::io::measured::PAGE;
use inrush_core::{Code, Error, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Stack of a thread that only reads.
const STACK: usize = 128 << 10;

/// Where threads wait until all are there, or until it is known that not all will be.
#[derive(Debug, Default)]
struct Gate {
    go: Mutex<Option<bool>>,
    decided: Condvar,
}

impl Gate {
    /// Whether they are to go, once that is known.
    fn wait(&self) -> bool {
        let mut go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *go {
                Some(go) => return go,
                None => go = self.decided.wait(go).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn decide(&self, go: bool) {
        *self.go.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
        self.decided.notify_all();
    }
}

/// Reads the pages with so many in flight, until they, the time or the patience are at an end.
pub(super) fn read(file: &File, wanted: &Wanted<'_>) -> Result<Slice> {
    read_with(file, wanted, |_| STACK)
}

/// The same with stacks of so many bytes each, by the thread's number.
fn read_with(file: &File, wanted: &Wanted<'_>, stack: impl Fn(usize) -> usize) -> Result<Slice> {
    let threads = (wanted.depth as usize).min(wanted.pages.len()).max(1);
    let next = AtomicUsize::new(0);
    // All begin together, when all are there: making a thread takes about as long as a read.
    let gate = Gate::default();
    let (seen, began) = std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        for number in 0..threads {
            let work = || if gate.wait() { one(file, wanted, &next) } else { Ok(Vec::new()) };
            match std::thread::Builder::new().stack_size(stack(number)).spawn_scoped(scope, work) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    // Those that wait read nothing, and the scope ends with them.
                    gate.decide(false);
                    return Err(Error::new(
                        Code::Output,
                        format!("{threads} threads cannot be made: {error}"),
                    )
                    .hint("Allow this account more processes: each read in flight needs a thread here."));
                }
            }
        }
        let began = Instant::now();
        gate.decide(true);
        let seen: Vec<io::Result<Vec<(Instant, Duration)>>> = handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|_| Err(io::Error::other("a reading thread failed"))))
            .collect();
        Ok((seen, began))
    })?;
    let mut slice = Slice::default();
    let mut ends = Vec::new();
    // Up to when the first thread found nothing more to read: then the queue was no longer full.
    let mut first_end = None::<Instant>;
    for one in seen {
        let one = one.map_err(|error| unreadable(&error))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn threads_that_cannot_be_made_are_an_error_and_nobody_waits_for_them() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &vec![1; 64 * 8192]).unwrap();
        let (done, outcome) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let pages: Vec<u32> = (0..64).collect();
            let ended = AtomicBool::new(false);
            // No address space has room for a stack of that size.
            let never = (usize::MAX >> 2) & !0xffff;
            for made in [0, 5, 8] {
                let until = Instant::now() + Duration::from_secs(10);
                let wanted = Wanted { depth: 8, pages: &pages, until, ended: &ended };
                let stack = |number| if number < made { STACK } else { never };
                done.send(read_with(&file, &wanted, stack).map(|slice| slice.latencies.len())).unwrap();
            }
        });
        for made in [0, 5] {
            let seen = outcome.recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
            let error = seen.expect_err("read without its threads");
            assert!(error.fact().starts_with("8 threads cannot be made"), "{made}: {error}");
        }
        assert_eq!(outcome.recv_timeout(Duration::from_secs(60)).unwrap().unwrap(), 64);
    }
}
