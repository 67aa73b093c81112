//! Reads kept in flight by the kernel's asynchronous I/O (io_submit(2)): one thread, as many reads as wanted.

use super::direct::{Slice, Wanted};
use super::scratch::Aligned;
use crate::io::measured::PAGE;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Most reads in flight.
const MOST: usize = 128;

/// How long to wait for a read before looking whether somebody wants the probe to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// struct iocb of linux/aio_abi.h. `key` and `rw_flags` change places on big-endian machines; both are zero here.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_descriptor: u32,
}

/// struct io_event of linux/aio_abi.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// IOCB_CMD_PREAD.
const READ: u16 = 0;

/// A context of the kernel with the memory that it writes into.
#[derive(Debug)]
pub(super) struct Aio {
    // Before the buffers: its end waits for all reads that are on their way into them.
    context: Context,
    buffers: Aligned,
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Context(libc::c_ulong);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by io_setup and destroyed once, here. It returns when nothing is in flight any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

impl Aio {
    /// An error where the kernel has none, or where all that it allows (fs.aio-max-nr) are taken.
    pub(super) fn new() -> io::Result<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number, of the type of aio_context_t, to where it is told.
        if unsafe { libc::syscall(libc::SYS_io_setup, MOST as libc::c_long, &raw mut context) } != 0 {
            return Err(io::Error::last_os_error());
        }
        #[allow(clippy::cast_possible_truncation)] // 8192
        let buffers = Aligned::new(MOST * PAGE as usize);
        Ok(Aio { context: Context(context), buffers, requests: vec![Request::default(); MOST] })
    }

    /// Reads the pages with so many in flight, until they, the time or the patience are at an end.
    pub(super) fn read(&mut self, file: &File, wanted: &Wanted<'_>) -> io::Result<Slice> {
        let depth = (wanted.depth as usize).clamp(1, MOST);
        let mut pages = wanted.pages.iter();
        let mut sent = vec![Instant::now(); depth];
        let mut slice = Slice::default();
        let mut in_flight = 0;
        let outcome = (|| {
            let mut window = Window::new(depth, Instant::now());
            for (slot, sent) in sent.iter_mut().enumerate() {
                let Some(page) = pages.next() else { break };
                *sent = Instant::now();
                self.submit(file, slot, *page)?;
                in_flight += 1;
            }
            while in_flight > 0 && !wanted.is_over() {
                let mut events = [Event::default(); MOST];
                let count = self.reap(&mut events)?;
                // All of them before any is looked at: after an error nobody comes back to the others.
                in_flight -= count;
                for event in &events[..count] {
                    if event.result != PAGE as i64 {
                        return Err(failure(event.result));
                    }
                    #[allow(clippy::cast_possible_truncation)] // a slot, as it was sent
                    let slot = event.data as usize;
                    let now = Instant::now();
                    slice.took(now.duration_since(sent[slot]));
                    // The queue is no longer full once there is nothing more to send: what comes then does not count.
                    if let Some(page) = pages.next() {
                        window.completed(now);
                        sent[slot] = now;
                        self.submit(file, slot, *page)?;
                        in_flight += 1;
                    }
                }
            }
            (slice.reads, slice.seconds) = window.counted();
            Ok(())
        })();
        // Nothing may be on its way into the buffers when the next measurement begins, whatever happened.
        while in_flight > 0 {
            let mut events = [Event::default(); MOST];
            match self.reap(&mut events) {
                Ok(count) => in_flight -= count,
                // What went wrong first says more.
                Err(error) => return Err(outcome.err().unwrap_or(error)),
            }
        }
        outcome.map(|()| slice)
    }

    fn submit(&mut self, file: &File, slot: usize, page: u32) -> io::Result<()> {
        #[allow(clippy::cast_possible_truncation)] // 8192
        let from = slot * PAGE as usize;
        let buffer = self.buffers.slice()[from..].as_mut_ptr();
        self.requests[slot] = Request {
            data: slot as u64,
            opcode: READ,
            descriptor: file.as_raw_fd().cast_unsigned(),
            buffer: buffer as u64,
            bytes: PAGE,
            offset: i64::from(page) * PAGE as i64,
            ..Request::default()
        };
        let mut list = [&raw mut self.requests[slot]];
        loop {
            // SAFETY: one request in the kernel's form, which it copies. Its slot is in nobody's use: each has at most one
            // read in flight. The page of the buffer is inside the allocation and stays until `Context` has ended.
            let done = unsafe { libc::syscall(libc::SYS_io_submit, self.context.0, 1, list.as_mut_ptr()) };
            match done {
                1 => return Ok(()),
                0 => {}
                _ => {
                    let error = io::Error::last_os_error();
                    if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                        return Err(error);
                    }
                }
            }
            std::thread::yield_now();
        }
    }

    /// Reads that have ended; none when the patience is over.
    fn reap(&self, events: &mut [Event; MOST]) -> io::Result<usize> {
        #[allow(clippy::cast_possible_wrap, clippy::useless_conversion)] // 50 ms
        let mut patience =
            libc::timespec { tv_sec: 0, tv_nsec: (PATIENCE.subsec_nanos() as libc::c_long).into() };
        // SAFETY: the kernel writes at most as many events as it is told there is room for, in its own form.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context.0,
                1 as libc::c_long,
                MOST as libc::c_long,
                events.as_mut_ptr(),
                &raw mut patience,
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count.min(MOST)),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error),
            },
        }
    }
}

/// What a read gave that did not give a page.
fn failure(result: i64) -> io::Error {
    match i32::try_from(result) {
        Ok(error) if error < 0 => io::Error::from_raw_os_error(-error),
        _ => io::Error::new(io::ErrorKind::UnexpectedEof, format!("a page had {result} bytes")),
    }
}

/// Reads and seconds while the queue was full: from the moment when as many reads had ended as fit into it. Where few
/// came in all, every one of them counts.
#[derive(Debug)]
struct Window {
    depth: u64,
    start: Instant,
    full: Option<Instant>,
    last: Option<Instant>,
    reads: u64,
}

impl Window {
    fn new(depth: usize, start: Instant) -> Window {
        Window { depth: depth as u64, start, full: None, last: None, reads: 0 }
    }

    fn completed(&mut self, now: Instant) {
        self.reads += 1;
        self.last = Some(now);
        if self.reads == self.depth {
            self.full = Some(now);
        }
    }

    fn counted(&self) -> (u64, f64) {
        let Some(last) = self.last else { return (0, 0.0) };
        match self.full.filter(|_| self.reads >= 3 * self.depth) {
            Some(full) => (self.reads - self.depth, last.duration_since(full).as_secs_f64()),
            None => (self.reads, last.duration_since(self.start).as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_kernel_have_their_size() {
        assert_eq!((size_of::<Request>(), size_of::<Event>()), (64, 32));
    }

    #[test]
    fn reads_that_fail_in_the_middle_of_many_end_it_with_the_error() {
        let mut file = tempfile::Builder::new().tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        io::Write::write_all(&mut file, &vec![1; 64 * 8192]).unwrap();
        let (done, outcome) = std::sync::mpsc::channel();
        // In a thread of its own: what never ends is to be seen.
        std::thread::spawn(move || {
            // The last 200 are past the end, at once or behind some that are not.
            for first in [64, 0] {
                let pages: Vec<u32> = (first..264).collect();
                let mut aio = Aio::new().unwrap();
                let ended = std::sync::atomic::AtomicBool::new(false);
                let until = Instant::now() + Duration::from_secs(1);
                let wanted = Wanted { depth: 32, pages: &pages, until, ended: &ended };
                let failed = aio.read(file.as_file(), &wanted).map_err(|error| error.kind());
                // It can be used again: nothing of the failed one is counted as new.
                let until = Instant::now() + Duration::from_secs(10);
                let wanted = Wanted { depth: 4, pages: &pages[..0], until, ended: &ended };
                let again = aio.read(file.as_file(), &wanted).map(|slice| slice.latencies.len());
                done.send((failed.map(|_| ()), again.ok())).unwrap();
            }
        });
        for _ in 0..2 {
            let seen = outcome.recv_timeout(Duration::from_secs(60)).expect("it goes on for ever");
            assert_eq!(seen, (Err(io::ErrorKind::UnexpectedEof), Some(0)));
        }
    }

    #[test]
    fn only_a_full_queue_counts() {
        let start = Instant::now();
        let mut window = Window::new(2, start);
        for i in 1..=10 {
            window.completed(start + Duration::from_millis(10 * i));
        }
        let (reads, seconds) = window.counted();
        assert_eq!(reads, 8);
        assert!((seconds - 0.08).abs() < 1e-9);
        assert_eq!(Window::new(4, start).counted(), (0, 0.0));
        // So few that it was hardly ever full.
        let mut few = Window::new(128, start);
        (1..=60).for_each(|i| few.completed(start + Duration::from_millis(10 * i)));
        assert_eq!(few.counted().0, 60);
    }
}
