//! How PostgreSQL 18 asks for pages that are not cached: neighbours in one read, and a look-ahead that doubles whenever
//! the scan had to wait. It follows read_stream.c of PostgreSQL 18 (read_stream_look_ahead,
//! read_stream_start_pending_read, read_stream_next_buffer) for pages none of which is in shared buffers, without the
//! limits of a server on how many buffers a session may pin.

use std::collections::VecDeque;

/// Pages of one read: io_combine_limit of 128 kB.
pub(super) const COMBINE: u32 = 16;

/// A run of neighbouring pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// The first.
    pub(super) page: u32,
    /// How many.
    pub(super) count: u32,
    /// Whether the kernel is told of it before it is read: with io_method = sync.
    pub(super) advised: bool,
}

/// What becomes of reads.
pub(super) trait Reads<E> {
    /// A read is wanted soon.
    fn start(&mut self, read: Read) -> Result<(), E>;
    /// The oldest read that was started and not waited for is wanted now.
    fn wait(&mut self, read: Read) -> Result<(), E>;
}

/// A stream of pages.
#[derive(Debug)]
pub(super) struct Stream<I> {
    pages: I,
    /// A page that was taken and does not fit into the pending read.
    held: Option<u32>,
    /// Most reads in flight.
    most_reads: usize,
    /// Most pages between the first that is wanted and the last that was asked for.
    most_pages: u32,
    /// How many of those at the moment; 0 at the end.
    distance: u32,
    /// Pages that were asked for and not taken.
    pinned: u32,
    pending: Option<(u32, u32)>,
    /// Reads that were started, with how many of their pages have been taken.
    started: VecDeque<Read>,
    waited: VecDeque<u32>,
    /// Whether the kernel is told at all.
    advises: bool,
    /// The page behind the last read.
    behind: Option<u32>,
    /// Where the region of neighbours begins of which the kernel is still told.
    told_from: Option<u32>,
}

impl<I: Iterator<Item = u32>> Stream<I> {
    /// With effective_io_concurrency, and whether the kernel is told (io_method = sync).
    pub(super) fn new(pages: I, concurrency: u32, sync: bool) -> Stream<I> {
        Stream {
            pages,
            held: None,
            most_reads: concurrency.max(1) as usize,
            most_pages: (concurrency + 1) * COMBINE,
            distance: 1,
            pinned: 0,
            pending: None,
            started: VecDeque::new(),
            waited: VecDeque::new(),
            advises: sync && concurrency > 0,
            behind: None,
            told_from: None,
        }
    }

    /// Whether every page has been asked for.
    pub(super) fn has_asked_all(&self) -> bool {
        self.distance == 0 && self.pending.is_none()
    }

    /// Takes the next page, when it is there; false at the end.
    pub(super) fn next<E>(&mut self, reads: &mut impl Reads<E>) -> Result<bool, E> {
        if self.pinned == 0 {
            if self.distance == 0 && self.started.is_empty() && self.pending.is_none() {
                return Ok(false);
            }
            self.look_ahead(reads)?;
            if self.pinned == 0 {
                return Ok(false);
            }
        }
        // A page of a read that was waited for, or the first of the next one.
        match self.waited.front_mut() {
            Some(left) => {
                *left -= 1;
                if *left == 0 {
                    self.waited.pop_front();
                }
            }
            None => {
                if let Some(read) = self.started.pop_front() {
                    reads.wait(read)?;
                    if self.distance > 0 {
                        self.distance = (self.distance * 2).min(self.most_pages);
                    }
                    if self.told_from == Some(read.page) {
                        self.told_from = None;
                    }
                    if read.count > 1 {
                        self.waited.push_back(read.count - 1);
                    }
                }
            }
        }
        self.pinned -= 1;
        self.look_ahead(reads)?;
        Ok(true)
    }

    fn look_ahead<E>(&mut self, reads: &mut impl Reads<E>) -> Result<(), E> {
        while self.started.len() < self.most_reads && self.pinned + self.pending_count() < self.distance {
            if self.pending_count() == COMBINE {
                self.start(reads)?;
                continue;
            }
            let Some(page) = self.held.take().or_else(|| self.pages.next()) else {
                self.distance = 0;
                break;
            };
            match &mut self.pending {
                Some((from, count)) if *from + *count == page => {
                    *count += 1;
                    continue;
                }
                Some(_) => {
                    self.start(reads)?;
                    if self.started.len() == self.most_reads {
                        self.held = Some(page);
                        return Ok(());
                    }
                }
                None => {}
            }
            self.pending = Some((page, 1));
        }
        // A read that may still grow waits, unless nothing else is on its way.
        let count = self.pending_count();
        let due = count == COMBINE || (count >= self.distance && self.pinned == 0) || self.distance == 0;
        if count > 0 && due && self.started.len() < self.most_reads {
            self.start(reads)?;
        }
        Ok(())
    }

    fn start<E>(&mut self, reads: &mut impl Reads<E>) -> Result<(), E> {
        let Some((page, count)) = self.pending.take() else { return Ok(()) };
        let mut advised = false;
        if self.advises {
            if self.behind == Some(page) {
                // Neighbours of what was asked for last: told of until the reads have caught up with the first of them;
                // from then on the kernel's own read-ahead sees them coming.
                advised = self.told_from.is_some();
            } else {
                self.told_from = Some(page);
                advised = self.pinned > 0;
            }
        }
        let read = Read { page, count, advised };
        reads.start(read)?;
        self.pinned += count;
        self.started.push_back(read);
        self.behind = Some(page + count);
        Ok(())
    }

    fn pending_count(&self) -> u32 {
        self.pending.map_or(0, |(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Writes down what happens: S for started, A for started with advice, W for waited.
    #[derive(Default)]
    struct Log {
        lines: Vec<String>,
        in_flight: usize,
        most: usize,
        pages: u32,
    }

    impl Reads<Infallible> for Log {
        fn start(&mut self, read: Read) -> Result<(), Infallible> {
            let what = if read.advised { 'A' } else { 'S' };
            self.lines.push(format!("{what}{}+{}", read.page, read.count));
            self.in_flight += 1;
            self.most = self.most.max(self.in_flight);
            Ok(())
        }

        fn wait(&mut self, read: Read) -> Result<(), Infallible> {
            self.lines.push(format!("W{}", read.page));
            self.in_flight -= 1;
            self.pages += read.count;
            Ok(())
        }
    }

    fn run(pages: &[u32], concurrency: u32, sync: bool) -> (Log, u32) {
        let mut stream = Stream::new(pages.iter().copied(), concurrency, sync);
        let (mut log, mut taken) = (Log::default(), 0);
        while stream.next(&mut log).unwrap() {
            taken += 1;
        }
        (log, taken)
    }

    #[test]
    fn every_page_is_read_once_whatever_the_setting() {
        let pages: Vec<u32> = (0..500).filter(|page| page % 3 != 0 || page % 7 == 0).collect();
        for concurrency in [0, 1, 2, 3, 16, 256] {
            for sync in [true, false] {
                let (log, taken) = run(&pages, concurrency, sync);
                assert_eq!((taken, log.pages), (pages.len() as u32, pages.len() as u32), "{concurrency}");
                assert!(log.most <= concurrency.max(1) as usize, "{concurrency}: {}", log.most);
                assert_eq!(log.in_flight, 0);
            }
        }
        assert_eq!(run(&[], 16, true).1, 0);
    }

    #[test]
    fn the_look_ahead_doubles_and_neighbours_are_one_read() {
        let (log, _) = run(&[10, 42, 43, 60, 61, 62, 80, 90, 95], 16, true);
        // The first is waited for at once. Then 2, 4, 8 pages are asked for: what is read next without anything else on
        // its way needs no advice, and what may still grow is held back.
        let expected =
            ["S10+1", "W10", "S42+2", "W42", "S60+3", "W60", "A80+1", "A90+1", "A95+1", "W80", "W90", "W95"];
        assert_eq!(log.lines, expected);
        let deep: Vec<u32> = (0..200).map(|i| i * 10).collect();
        assert_eq!(run(&deep, 16, false).0.most, 16);
        assert_eq!(run(&deep, 1, false).0.most, 1);
    }

    #[test]
    fn nothing_is_advised_without_concurrency_or_with_workers() {
        let pages: Vec<u32> = (0..100).map(|i| i * 7).collect();
        for (concurrency, sync) in [(0, true), (16, false)] {
            assert!(run(&pages, concurrency, sync).0.lines.iter().all(|line| !line.starts_with('A')));
        }
        assert!(run(&pages, 16, true).0.lines.iter().filter(|line| line.starts_with('A')).count() > 90);
    }

    #[test]
    fn a_long_run_of_neighbours_is_left_to_the_kernel() {
        let pages: Vec<u32> = (1000..2000).collect();
        let (log, _) = run(&pages, 16, true);
        let advised = log.lines.iter().filter(|line| line.starts_with('A')).count();
        assert!(advised <= 3, "{:?}", &log.lines[..20]);
        assert!(log.lines.iter().any(|line| line.ends_with("+16")));
    }
}
