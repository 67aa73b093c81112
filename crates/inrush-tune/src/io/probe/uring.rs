//! Reads that the session itself keeps in flight, through the page cache, as with io_method = io_uring of PostgreSQL 18
//! (method_io_uring.c): submitted one by one as the scan asks for them, and reaped when the oldest is wanted.

use super::stream::{Read, Reads};
use super::workers::{MOST_IN_FLIGHT, buffer_bytes, read_run};
use crate::io::measured::PAGE;
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A ring with the memory that reads go to.
pub(super) struct Ring {
    ring: IoUring,
    /// A buffer for each read that may be in flight.
    buffers: Vec<u8>,
    /// Reads of a scan may still be in flight: nothing that completes can be told from them.
    broken: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Ring {
    /// An error where the kernel has no io_uring, or this process may not use it, as in many containers.
    pub(super) fn new() -> io::Result<Ring> {
        let ring = IoUring::new(MOST_IN_FLIGHT)?;
        Ok(Ring { ring, buffers: vec![0; MOST_IN_FLIGHT as usize * buffer_bytes()], broken: false })
    }

    /// A scan of a file.
    pub(super) fn scan(&mut self, file: File) -> Scan<'_> {
        Scan { ring: self, file, free: (0..MOST_IN_FLIGHT as usize).collect(), started: VecDeque::new() }
    }
}

/// A read that was started.
#[derive(Debug)]
struct Started {
    /// Its buffer, while the kernel may write into it.
    slot: Option<usize>,
    /// Bytes that were read.
    outcome: Option<io::Result<usize>>,
}

/// The reader's side of a scan.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    ring: &'a mut Ring,
    file: File,
    /// Buffers that nobody writes into.
    free: Vec<usize>,
    /// What was started and not waited for, the oldest first.
    started: VecDeque<Started>,
}

impl Scan<'_> {
    /// Hands the kernel what is to be read, and waits until so many reads have ended.
    fn enter(&self, ended: usize) -> io::Result<()> {
        loop {
            match self.ring.ring.submit_and_wait(ended) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map(drop),
            }
        }
    }

    /// Waits until a read has ended, and takes notice of all that have.
    fn reap(&mut self) -> io::Result<()> {
        self.enter(1)?;
        for ended in self.ring.ring.completion() {
            // The number of the buffer, as it was sent. Each is used by one read at a time.
            let slot = usize::try_from(ended.user_data()).unwrap_or(usize::MAX);
            let Some(read) = self.started.iter_mut().find(|one| one.slot == Some(slot)) else { continue };
            read.slot = None;
            self.free.push(slot);
            let result = ended.result();
            read.outcome = Some(
                usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg())),
            );
        }
        Ok(())
    }
}

impl Reads<io::Error> for Scan<'_> {
    fn start(&mut self, read: Read) -> io::Result<()> {
        if self.ring.broken {
            return Err(io::Error::other("reads of a scan before may still be on their way"));
        }
        while self.free.is_empty() {
            self.reap()?;
        }
        let Some(slot) = self.free.pop() else { return Err(io::Error::other("no buffer is free")) };
        let bytes = u64::from(read.count) * PAGE;
        let buffer = self.ring.buffers[slot * buffer_bytes()..][..buffer_bytes()].as_mut_ptr();
        #[allow(clippy::cast_possible_truncation)] // 128 KiB at most
        let entry = opcode::Read::new(types::Fd(self.file.as_raw_fd()), buffer, bytes as u32)
            .offset(u64::from(read.page) * PAGE)
            .build()
            .user_data(slot as u64);
        // SAFETY: the buffer is this read's alone until its completion gives the slot back, and has room for the longest
        // read. Buffers and file outlive the read: `drop` waits for what is in flight, and gives the buffers away if it
        // cannot.
        let pushed = unsafe { self.ring.ring.submission().push(&entry) };
        // As many entries as buffers, and each is submitted at once: there is room.
        pushed.map_err(io::Error::other)?;
        self.started.push_back(Started { slot: Some(slot), outcome: None });
        self.enter(0)
    }

    fn wait(&mut self, read: Read) -> io::Result<()> {
        loop {
            match self.started.front_mut() {
                Some(Started { outcome, .. }) if outcome.is_some() => break,
                Some(_) => self.reap()?,
                None => return Err(io::Error::other("a read that was never started")),
            }
        }
        let bytes = self.started.pop_front().and_then(|one| one.outcome).unwrap_or(Ok(0))?;
        if bytes as u64 == u64::from(read.count) * PAGE {
            return Ok(());
        }
        // Interrupted, or at the end of the file, which this then says.
        read_run(&self.file, &mut vec![0; buffer_bytes()], read)
    }
}

impl Drop for Scan<'_> {
    /// What is in flight must end here: its buffers are used again.
    fn drop(&mut self) {
        while self.started.iter().any(|one| one.slot.is_some()) {
            if self.reap().is_err() {
                // The kernel may still write into them.
                std::mem::take(&mut self.ring.buffers).leak();
                self.ring.broken = true;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::Stream;
    use super::*;
    use std::io::Write;

    /// A ring, or words about why nothing is tested.
    fn ring() -> Option<Ring> {
        let ring = Ring::new();
        if let Err(error) = &ring {
            // Not eprintln!: the test runner shows captured output of failed tests only.
            let _ = writeln!(io::stderr(), "SKIPPED: needs io_uring ({error})");
        }
        ring.ok()
    }

    /// Each page has its number in it.
    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        for page in 0..300u32 {
            file.write_all(&page.to_le_bytes().repeat(2048)).unwrap();
        }
        file
    }

    #[test]
    fn every_page_comes_and_a_ring_can_be_used_again() {
        let Some(mut ring) = ring() else { return };
        for concurrency in [1, 16, 64] {
            for step in [1, 2, 7] {
                let mut scan = ring.scan(file());
                let mut stream = Stream::new((0..300).step_by(step), concurrency, false);
                let mut taken = 0;
                while stream.next(&mut scan).unwrap() {
                    taken += 1;
                }
                assert_eq!(taken, 300usize.div_ceil(step));
                assert!(scan.started.is_empty() && scan.free.len() == MOST_IN_FLIGHT as usize);
            }
        }
    }

    #[test]
    fn what_is_read_is_what_was_asked_for() {
        let Some(mut ring) = ring() else { return };
        let mut scan = ring.scan(file());
        let reads: Vec<Read> =
            [(7, 1), (100, 16), (3, 2)].map(|(page, count)| Read { page, count, advised: false }).into();
        reads.iter().for_each(|read| scan.start(*read).unwrap());
        let slots: Vec<usize> = scan.started.iter().map(|one| one.slot.unwrap()).collect();
        reads.iter().for_each(|read| scan.wait(*read).unwrap());
        for (read, slot) in reads.iter().zip(slots) {
            let bytes = &scan.ring.buffers[slot * buffer_bytes()..][..read.count as usize * 8192];
            for (at, page) in bytes.chunks(8192).enumerate() {
                assert_eq!(page[..4], (read.page + u32::try_from(at).unwrap()).to_le_bytes());
            }
        }
    }

    #[test]
    fn a_scan_that_is_given_up_leaves_nothing_in_flight() {
        let Some(mut ring) = ring() else { return };
        for _ in 0..20 {
            let mut scan = ring.scan(file());
            let mut stream = Stream::new((0..300).step_by(3), 32, false);
            for _ in 0..20 {
                assert!(stream.next(&mut scan).unwrap());
            }
            assert!(!scan.started.is_empty());
        }
        let left = ring.ring.completion().count();
        assert!(left == 0 && !ring.broken, "{left}");
    }

    #[test]
    fn more_reads_than_there_are_buffers_wait_for_one() {
        let Some(mut ring) = ring() else { return };
        let mut scan = ring.scan(file());
        let reads: Vec<Read> = (0..200).map(|page| Read { page, count: 1, advised: false }).collect();
        reads.iter().for_each(|read| scan.start(*read).unwrap());
        reads.iter().for_each(|read| scan.wait(*read).unwrap());
    }

    #[test]
    fn a_read_past_the_end_is_an_error() {
        let Some(mut ring) = ring() else { return };
        for pages in [vec![1000u32], vec![298, 299, 300, 301]] {
            let mut scan = ring.scan(file());
            let mut stream = Stream::new(pages.into_iter(), 4, false);
            assert!((0..4).any(|_| stream.next(&mut scan).is_err()));
        }
    }
}
