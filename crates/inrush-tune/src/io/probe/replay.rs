//! Reads through the page cache as scans make them: pages in ascending order with gaps, asked for ahead, each way in
//! which versions of PostgreSQL do that; every page from front to back; and pages that are cached.

use super::budget::{Halt, Limit, counted};
use super::direct::{add_sequential, unreadable};
use super::order::ascending;
use super::stream::{Read, Reads, Stream};
use super::uring::Ring;
use super::workers::{MOST_IN_FLIGHT, Workers, buffer_bytes, read_run};
use super::{Run, budget::Budget};
use crate::io::measured::{Mechanism, PAGE, median};
use inrush_core::Error;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Fewest pages that say how long one takes.
pub(super) const LEAST: u64 = 16;
/// Pages between two looks at what the kernel has counted.
const LOOK: u64 = 32;

/// One replay to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// Who reads ahead.
    pub(super) mechanism: Mechanism,
    /// The share of the pages that is read.
    pub(super) density: f64,
    /// effective_io_concurrency.
    pub(super) ahead: u32,
}

/// What reads beside the session, made once: to make it takes longer than some replays.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Threads, as many as workers are wanted.
    pub(super) pools: Vec<Workers>,
    pub(super) ring: Option<Ring>,
}

/// One replay; microseconds for each page, `None` if too few were read. It ends after so many bytes, or so many seconds:
/// four times as many where the least number of pages takes them.
pub(super) fn replay(
    run: &mut Run<'_>,
    readers: &mut Readers,
    job: &Job,
    seconds: f64,
    (bytes, least): (u64, u64),
) -> Result<Option<f64>, Halt> {
    run.budget.check()?;
    run.scratch.drop_cached()?;
    let file = run.scratch.fresh()?;
    // Files of workers are opened before the clock runs, too.
    let pool = match job.mechanism {
        Mechanism::Workers { workers } => readers.pools.iter().find(|pool| pool.count() == workers as usize),
        _ => None,
    };
    let count = pool.map_or(0, Workers::count);
    let files: Vec<File> = (0..count).map(|_| run.scratch.fresh()).collect::<Result<_, Error>>()?;

    let limit = run.budget.limit(seconds, bytes);
    let wanted = usize::try_from(limit.bytes / PAGE).unwrap_or(usize::MAX);
    let pages = ascending(run.scratch.pages(), job.density, wanted, &mut run.random);
    let latest = run.budget.limit(4.0 * seconds, bytes).until;
    let mut end = End { least, latest, ..End::new(&run.budget, limit) };
    let most = match job.mechanism {
        Mechanism::Workers { .. } | Mechanism::IoUring => job.ahead.min(MOST_IN_FLIGHT),
        Mechanism::Advice | Mechanism::CombinedAdvice => job.ahead,
    };
    let mut steady = Steady::new(most);
    let began = Instant::now();
    let read = match (job.mechanism, pool) {
        (Mechanism::Advice, _) => advise(&file, &pages, most, &mut end, &mut steady),
        (Mechanism::Workers { .. }, Some(pool)) if job.ahead > 0 => {
            let mut scan = pool.scan(files, file);
            drain(&pages, most, false, &mut scan, &mut end, &mut steady)
        }
        (Mechanism::IoUring, _) if job.ahead > 0 => {
            let Some(ring) = &mut readers.ring else { return Ok(None) };
            drain(&pages, most, false, &mut ring.scan(file), &mut end, &mut steady)
        }
        // Without concurrency nobody is asked to read: the session does it, with neighbours in one read.
        _ => drain(&pages, most, true, &mut Kernel::new(&file), &mut end, &mut steady),
    };
    let read = read.map_err(|error| unreadable(&error))?;
    let took = began.elapsed().as_secs_f64();
    // Where nobody counts what the kernel reads ahead, it may have been all that lies in between.
    let span = pages.iter().take(usize::try_from(read).unwrap_or(usize::MAX)).max().zip(pages.first());
    let between = span.map_or(0, |(last, first)| u64::from(last.saturating_sub(*first)) + 1);
    let asked = if job.ahead == 0 && counted().is_none() { between.max(read) } else { read };
    run.budget.asked(asked * PAGE);
    if run.budget.is_ended() {
        run.budget.check()?;
    }
    #[allow(clippy::cast_precision_loss)] // pages of a file
    Ok((read >= LEAST).then(|| steady.page_us().unwrap_or(took * 1e6 / read as f64)))
}

/// What a page takes while as many reads are in flight as may be: without the first pages, of which few are asked for
/// ahead, and without the last, behind which none is. Of a scan those are a small part, and the model adds them.
#[derive(Debug)]
struct Steady {
    /// Most reads in flight.
    most: u64,
    /// When so many pages had been taken.
    from: Option<(Instant, u64)>,
    to: Option<(Instant, u64)>,
}

impl Steady {
    /// Pages come in bursts where all reads take the same time: only several of those say what one page takes.
    const BURSTS: u64 = 3;

    fn new(most: u32) -> Steady {
        Steady { most: u64::from(most), from: None, to: None }
    }

    /// So many pages have been taken; all have been asked for, or not.
    fn page(&mut self, taken: u64, asked_all: bool) {
        let moment = || (Instant::now(), taken);
        if asked_all {
            self.to.get_or_insert_with(moment);
        } else if taken >= self.most {
            self.from.get_or_insert_with(moment);
        }
    }

    /// Microseconds; `None` if there were too few pages, or if they were read one by one: nothing is to be left out then.
    fn page_us(&self) -> Option<f64> {
        let ((from, first), (to, last)) = (self.from?, self.to?);
        let pages = last - first;
        #[allow(clippy::cast_precision_loss)] // pages of a file
        (self.most > 1 && pages >= (Self::BURSTS * self.most).max(LEAST))
            .then(|| (to - from).as_secs_f64() * 1e6 / pages as f64)
    }
}

/// Says when a replay has read enough. It then ends by reading what has been asked for, and no more.
struct End<'a> {
    budget: &'a Budget<'a>,
    limit: Limit,
    /// Before so many pages only this moment ends it.
    least: u64,
    latest: Instant,
    counted_before: Option<u64>,
    pages: u64,
    over: bool,
}

impl<'a> End<'a> {
    fn new(budget: &'a Budget<'a>, limit: Limit) -> End<'a> {
        let latest = limit.until;
        End { budget, limit, least: 0, latest, counted_before: counted(), pages: 0, over: false }
    }

    /// A page is about to be asked for.
    fn is_over(&mut self) -> bool {
        self.pages += 1;
        let until = if self.pages > self.least { self.limit.until } else { self.latest };
        self.over = self.over || self.budget.is_ended() || Instant::now() >= until || self.is_enough();
        self.over
    }

    /// Whether the storage has delivered what it may, with what the kernel read ahead.
    fn is_enough(&self) -> bool {
        if !self.pages.is_multiple_of(LOOK) {
            return false;
        }
        let counted = self.counted_before.and_then(|before| Some(counted()?.saturating_sub(before)));
        counted.is_some_and(|bytes| bytes >= self.limit.bytes)
    }
}

/// What a bitmap heap scan of PostgreSQL 17 and older does (nodeBitmapHeapscan.c: BitmapAdjustPrefetchIterator,
/// BitmapAdjustPrefetchTarget, BitmapPrefetch): it advises *after* it has read a page, up to `most` pages beyond, so
/// with 1 the page that is advised is the next one read, at once. How far ahead it aims doubles page by page; tuples of
/// a page add to that, of which there is one here.
fn advise(file: &File, pages: &[u32], most: u32, end: &mut End<'_>, steady: &mut Steady) -> io::Result<u64> {
    #[allow(clippy::cast_possible_truncation)] // 8192
    let mut buffer = vec![0u8; PAGE as usize];
    let mut ramp = Ramp::new(most);
    // Pages up to here have been advised; the scan ends at `last`.
    let (mut advised, mut last) = (0, pages.len());
    let mut at = 0;
    while at < last {
        advised = advised.max(at + 1);
        file.read_exact_at(&mut buffer, u64::from(pages[at]) * PAGE)?;
        ramp.page();
        while most > 0 && advised < last && advised - (at + 1) < ramp.target {
            let offset = u64::from(pages[advised]) * PAGE;
            rustix::fs::fadvise(file, offset, NonZeroU64::new(PAGE), Advice::WillNeed)?;
            advised += 1;
        }
        at += 1;
        steady.page(at as u64, advised == last);
        if end.is_over() {
            last = last.min(advised.max(at));
        }
    }
    Ok(at as u64)
}

/// How far ahead a bitmap heap scan aims: nothing after the first page, 1 after the second, then twice as far each time.
#[derive(Debug)]
struct Ramp {
    most: usize,
    target: usize,
    begun: bool,
}

impl Ramp {
    fn new(most: u32) -> Ramp {
        Ramp { most: most as usize, target: 0, begun: false }
    }

    fn page(&mut self) {
        if !self.begun {
            self.begun = true;
        } else if self.target >= self.most / 2 {
            self.target = self.most;
        } else {
            self.target = (self.target * 2).max(1);
        }
    }
}

/// Reads all pages through a stream of PostgreSQL 18.
fn drain(
    pages: &[u32],
    concurrency: u32,
    sync: bool,
    reads: &mut impl Reads<io::Error>,
    end: &mut End<'_>,
    steady: &mut Steady,
) -> io::Result<u64> {
    let left = pages.iter().copied().take_while(|_| !end.is_over());
    let mut stream = Stream::new(left, concurrency, sync);
    let mut read = 0;
    while stream.next(reads)? {
        read += 1;
        steady.page(read, stream.has_asked_all());
    }
    Ok(read)
}

/// Reads by the session itself, of which the kernel is told before (io_method = sync).
struct Kernel<'a> {
    file: &'a File,
    buffer: Vec<u8>,
}

impl<'a> Kernel<'a> {
    fn new(file: &'a File) -> Kernel<'a> {
        Kernel { file, buffer: vec![0; buffer_bytes()] }
    }
}

impl Reads<io::Error> for Kernel<'_> {
    fn start(&mut self, read: Read) -> io::Result<()> {
        if read.advised {
            let length = NonZeroU64::new(u64::from(read.count) * PAGE);
            rustix::fs::fadvise(self.file, u64::from(read.page) * PAGE, length, Advice::WillNeed)?;
        }
        Ok(())
    }

    fn wait(&mut self, read: Read) -> io::Result<()> {
        read_run(self.file, &mut self.buffer, read)
    }
}

/// Every page from front to back, one by one, with the kernel's read-ahead: a sequential scan.
pub(super) fn sequential(run: &mut Run<'_>, share: f64) -> Result<(), Halt> {
    run.step("pages from front to back through the page cache".to_owned());
    let (seconds, bytes) = (run.part(0.5), run.share(share));
    let rate = run.watched(|run| {
        run.budget.check()?;
        run.scratch.drop_cached()?;
        let file = run.scratch.fresh()?;
        let limit = run.budget.limit(seconds, bytes);
        let pages = u64::from(run.scratch.pages());
        let count = (limit.bytes / PAGE).min(pages);
        let first = run.random.below(pages - count + 1);
        let mut end = End::new(&run.budget, limit);
        #[allow(clippy::cast_possible_truncation)] // 8192
        let mut buffer = vec![0u8; PAGE as usize];
        let (began, mut read) = (Instant::now(), 0);
        while read < count && !end.is_over() {
            file.read_exact_at(&mut buffer, (first + read) * PAGE).map_err(|error| unreadable(&error))?;
            read += 1;
        }
        let took = began.elapsed().as_secs_f64();
        run.budget.asked(read * PAGE);
        if run.budget.is_ended() {
            run.budget.check()?;
        }
        #[allow(clippy::cast_precision_loss)] // at most 2 GB
        Ok((read >= 16).then(|| (read * PAGE) as f64 / took))
    })?;
    add_sequential(run, true, PAGE, rate);
    Ok(())
}

/// Reads of pages that are in the page cache: what a read costs that waits for nothing.
pub(super) fn cached(run: &mut Run<'_>) -> Result<(), Halt> {
    run.step("pages that are cached".to_owned());
    run.budget.check()?;
    let file = run.scratch.fresh()?;
    let count = run.scratch.pages().min(1024);
    let first = run.random.below(u64::from(run.scratch.pages() - count) + 1);
    #[allow(clippy::cast_possible_truncation)] // 8192
    let mut buffer = vec![0u8; PAGE as usize];
    let mut passes = Vec::new();
    // The first of them fills the cache, which on slow storage would take longer than all the rest, one by one.
    for page in (0..u64::from(count)).step_by(16) {
        let length = NonZeroU64::new((u64::from(count) - page).min(16) * PAGE);
        rustix::fs::fadvise(&file, (first + page) * PAGE, length, Advice::WillNeed)
            .map_err(|error| unreadable(&error.into()))?;
    }
    for pass in 0..4 {
        let began = Instant::now();
        for page in 0..u64::from(count) {
            if run.budget.is_ended() {
                run.budget.check()?;
            }
            // In an order that no read-ahead makes anything of.
            let page = first + (page * 769) % u64::from(count);
            file.read_exact_at(&mut buffer, page * PAGE).map_err(|error| unreadable(&error))?;
        }
        if pass > 0 {
            passes.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(count));
        }
        run.budget.check()?;
    }
    run.budget.asked(u64::from(count) * PAGE);
    run.measured.cached_page_us = median(&passes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    fn targets(most: u32, pages: usize) -> Vec<usize> {
        let mut ramp = Ramp::new(most);
        (0..pages)
            .map(|_| {
                ramp.page();
                ramp.target
            })
            .collect()
    }

    #[test]
    fn the_ramp_is_that_of_the_server() {
        assert_eq!(targets(1, 3), [0, 1, 1]);
        assert_eq!(targets(2, 4), [0, 1, 2, 2]);
        assert_eq!(targets(16, 7), [0, 1, 2, 4, 8, 16, 16]);
        assert_eq!(targets(100, 9), [0, 1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(targets(0, 3), [0, 0, 0]);
    }

    #[test]
    fn only_full_flight_counts() {
        let began = Instant::now();
        let mut steady = Steady::new(4);
        (1..=20).for_each(|taken| steady.page(taken, taken >= 16));
        let ((from, first), (to, last)) = (steady.from.unwrap(), steady.to.unwrap());
        assert_eq!((first, last), (4, 16));
        assert!(from >= began && to >= from && steady.page_us().is_none());
        let mut steady = Steady::new(4);
        (1..=40).for_each(|taken| steady.page(taken, taken >= 36));
        steady.from = Some((began, 4));
        steady.to = Some((began + Duration::from_millis(32), 36));
        assert!((steady.page_us().unwrap() - 1000.0).abs() < 1e-6);
        // Three times as many as are in flight, or nothing is known; one by one there is nothing to leave out.
        let mut few = Steady::new(16);
        (1..=60).for_each(|taken| few.page(taken, taken >= 44));
        assert_eq!(few.page_us(), None);
        let mut alone = Steady::new(1);
        (1..=60).for_each(|taken| alone.page(taken, taken >= 59));
        assert_eq!(alone.page_us(), None);
    }

    #[test]
    fn a_replay_of_slow_storage_reads_enough_pages_before_its_time_counts() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &vec![1; 200 * 8192]).unwrap();
        let ended = AtomicBool::new(false);
        let budget = Budget::new(&super::super::Plan::new("/nowhere"), 0, &ended);
        let pages: Vec<u32> = (0..200).collect();
        let limit = budget.limit(10.0, u64::MAX);
        let over = Limit { until: Instant::now() - Duration::from_secs(1), ..limit };
        for most in [0, 1, 16] {
            let end = || End { least: LEAST, latest: limit.until, ..End::new(&budget, over) };
            assert!(
                (16..64).contains(&advise(&file, &pages, most, &mut end(), &mut Steady::new(most)).unwrap()),
                "{most}"
            );
            let read = drain(&pages, most, true, &mut Kernel::new(&file), &mut end(), &mut Steady::new(most))
                .unwrap();
            assert!((16..64).contains(&read), "{most}: {read}");
            let late = || End { latest: over.until, ..end() };
            assert_eq!(advise(&file, &pages, most, &mut late(), &mut Steady::new(most)).unwrap(), 1);
        }
    }

    #[test]
    fn a_replay_reads_what_it_has_asked_for_and_no_more() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &vec![1; 200 * 8192]).unwrap();
        let ended = AtomicBool::new(false);
        let budget = Budget::new(&super::super::Plan::new("/nowhere"), 0, &ended);
        let pages: Vec<u32> = (0..200).collect();
        for most in [0, 1, 16, 256] {
            let limit = budget.limit(10.0, u64::MAX);
            assert_eq!(
                advise(&file, &pages, most, &mut End::new(&budget, limit), &mut Steady::new(most)).unwrap(),
                200
            );
            // No time at all: the first page, and what is advised by then.
            let over = Limit { until: Instant::now() - Duration::from_secs(1), ..limit };
            assert_eq!(
                advise(&file, &pages, most, &mut End::new(&budget, over), &mut Steady::new(most)).unwrap(),
                1
            );
            let read = drain(
                &pages,
                most,
                true,
                &mut Kernel::new(&file),
                &mut End::new(&budget, over),
                &mut Steady::new(most),
            );
            assert_eq!(read.unwrap(), 0);
            let read = drain(
                &pages,
                most,
                true,
                &mut Kernel::new(&file),
                &mut End::new(&budget, limit),
                &mut Steady::new(most),
            );
            assert_eq!(read.unwrap(), 200);
        }
    }
}
