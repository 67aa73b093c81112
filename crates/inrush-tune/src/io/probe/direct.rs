//! Reads past the page cache: single pages in random order by depth, and long ones from front to back.

use super::aio::Aio;
use super::budget::{Halt, Limit};
use super::scratch::Aligned;
use super::{Run, threads};
use crate::io::measured::{Depth, Engine, PAGE, Sequential, Tail, median};
use inrush_core::{Code, Error, Result};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Reads in flight, in the order they are tried.
const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Up to here every depth is measured: the rules about stopping need a curve to look at.
const ALWAYS: u32 = 32;
/// A doubling that gives less than this gives nothing.
const WORTH: f64 = 1.05;
/// Passes that differ by more than this are followed by another.
pub(super) const APART: f64 = 0.25;
/// Most seconds of one measurement.
const SECONDS: f64 = 0.4;
/// Reads a second, one at a time, below which storage is slow.
const SLOW: f64 = 1000.0;

/// Reads that are to be kept in flight.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// So many.
    pub(super) depth: u32,
    /// Of these pages, in this order.
    pub(super) pages: &'a [u32],
    /// Not longer than until then.
    pub(super) until: Instant,
    /// Nor when somebody wants it to end.
    pub(super) ended: &'a AtomicBool,
}

impl Wanted<'_> {
    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Relaxed) || Instant::now() >= self.until
    }
}

/// What one measurement saw.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// Reads that ended while the queue was full.
    pub(super) reads: u64,
    /// Seconds while it was.
    pub(super) seconds: f64,
    /// What each read took, in microseconds; also those at the edges.
    pub(super) latencies: Vec<f32>,
}

impl Slice {
    /// A read has taken so long.
    pub(super) fn took(&mut self, time: Duration) {
        self.latencies.push(time.as_secs_f32() * 1e6);
    }

    /// Reads a second; `None` if there were too few to say.
    pub(super) fn iops(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)] // reads of less than a minute
        (self.reads >= 3 && self.seconds > 0.0).then(|| self.reads as f64 / self.seconds)
    }
}

/// How direct reads are kept in flight, ready to go.
#[derive(Debug)]
pub(super) enum Reader {
    Aio(Box<Aio>),
    Threads,
}

impl Reader {
    fn read(&mut self, file: &std::fs::File, wanted: &Wanted<'_>) -> Result<Slice> {
        match self {
            Reader::Aio(aio) => aio.read(file, wanted).map_err(|error| unreadable(&error)),
            Reader::Threads => threads::read(file, wanted),
        }
    }

    fn engine(&self) -> Engine {
        match self {
            Reader::Aio(_) => Engine::Aio,
            Reader::Threads => Engine::Threads,
        }
    }
}

/// The faster one at a depth of 8, each tried twice in turn: io_submit waits for the read on some file systems, and the
/// kernel may have no context left.
pub(super) fn choose(run: &mut Run<'_>) -> Result<Reader, Halt> {
    let Ok(aio) = Aio::new() else { return Ok(Reader::Threads) };
    let (mut aio, mut threads) = (Reader::Aio(Box::new(aio)), Reader::Threads);
    let (mut by_aio, mut by_threads) = (Vec::new(), Vec::new());
    let bytes = run.share(0.004);
    for turn in [true, false, false, true] {
        let (reader, into) = if turn { (&mut aio, &mut by_aio) } else { (&mut threads, &mut by_threads) };
        match slice(run, reader, 8, 0.1, bytes) {
            Ok(slice) => into.extend(slice.iops()),
            // A file system that cannot do one of them: the other is left.
            Err(Halt::Failed(_)) if turn => return Ok(Reader::Threads),
            // An account that may have no more threads; the kernel's reads have worked by now.
            Err(Halt::Failed(_)) => return Ok(aio),
            Err(halt) => return Err(halt),
        }
    }
    let aio_is_faster = median(&by_aio) >= median(&by_threads) && !by_aio.is_empty();
    Ok(if aio_is_faster { aio } else { threads })
}

/// Single pages in random order at one depth, once.
fn slice(
    run: &mut Run<'_>,
    reader: &mut Reader,
    depth: u32,
    seconds: f64,
    bytes: u64,
) -> Result<Slice, Halt> {
    run.budget.check()?;
    let Limit { until, bytes } = run.budget.limit(seconds, bytes);
    let pages = run.order.take(usize::try_from(bytes / PAGE).unwrap_or(usize::MAX));
    let wanted = Wanted { depth, pages: &pages, until, ended: run.ended };
    let slice = reader.read(run.scratch.direct(), &wanted)?;
    run.budget.asked(slice.latencies.len() as u64 * PAGE);
    // What an interruption has cut short is no measurement.
    if run.budget.is_ended() {
        run.budget.check()?;
    }
    Ok(slice)
}

/// The curve: up, down, and once more where the two differ. What there is of it is kept whenever it ends.
pub(super) fn curve(run: &mut Run<'_>, reader: &mut Reader) -> Result<(), Halt> {
    run.measured.engine = reader.engine();
    let mut seen: Vec<Seen> = Vec::new();
    for depth in DEPTHS {
        if !climb_on(&run.measured.random) {
            break;
        }
        seen.push(Seen { depth, passes: Vec::new(), latencies: Vec::new() });
        let last = seen.len() - 1;
        measure(run, reader, &mut seen, last)?;
    }
    for at in (0..seen.len()).rev() {
        measure(run, reader, &mut seen, at)?;
    }
    for at in 0..seen.len() {
        if apart(&seen[at].passes) {
            measure(run, reader, &mut seen, at)?;
        }
    }
    Ok(())
}

/// One depth's measurements so far.
struct Seen {
    depth: u32,
    passes: Vec<f64>,
    latencies: Vec<f32>,
}

fn measure(run: &mut Run<'_>, reader: &mut Reader, seen: &mut [Seen], at: usize) -> Result<(), Halt> {
    let depth = seen[at].depth;
    run.step(format!("random reads, {depth} in flight"));
    // Deep queues read much in little time, and need it: what they show is the mean over many turns of the queue.
    let bytes = run.share(if depth < 8 { 0.012 } else { 0.02 });
    // Of slow storage more is seen, for as many reads to come of it.
    let slow = run.measured.iops(1).is_some_and(|iops| iops < SLOW);
    let seconds = run.part(if slow { 2.0 * SECONDS } else { SECONDS });
    let slice = run.watched(|run| slice(run, reader, depth, seconds, bytes))?;
    if let Some(iops) = slice.iops() {
        seen[at].passes.push(iops);
        seen[at].latencies.extend(slice.latencies);
    }
    run.measured.random = seen.iter().filter_map(Seen::depth).collect();
    Ok(())
}

impl Seen {
    fn depth(&self) -> Option<Depth> {
        let iops = median(&self.passes)?;
        let mut sorted = self.latencies.clone();
        sorted.sort_by(f32::total_cmp);
        let at = |share: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            let place = (sorted.len() as f64 * share) as usize;
            sorted.get(place.min(sorted.len().saturating_sub(1))).map_or(0.0, |one| f64::from(*one))
        };
        let (p50_us, p99_us) = (at(0.5), at(0.99));
        Some(Depth { depth: self.depth, iops, p50_us, p99_us, passes: self.passes.clone() })
    }
}

/// Whether values differ by so much that they do not count as one.
pub(super) fn apart(passes: &[f64]) -> bool {
    let most = passes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = passes.iter().copied().fold(f64::INFINITY, f64::min);
    passes.len() > 1 && median(passes).is_some_and(|median| most - least > APART * median)
}

/// Whether a deeper queue is worth measuring: not when two doublings in a row gave nothing, nor when the slowest reads
/// take ten times as long as with nothing else in flight at a depth that is past the knee.
fn climb_on(curve: &[Depth]) -> bool {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return true };
    if last.depth < ALWAYS {
        return true;
    }
    let gains: Vec<bool> = curve.windows(2).map(|pair| pair[1].iops >= pair[0].iops * WORTH).collect();
    let flat = gains.len() >= 2 && gains[gains.len() - 2..].iter().all(|gained| !gained);
    let past = knee(curve).is_some_and(|knee| last.depth > knee);
    let slow = past && last.p99_us > 10.0 * first.p99_us;
    !flat && !slow
}

/// The smallest depth with nine tenths of the most reads a second.
pub(super) fn knee(curve: &[Depth]) -> Option<u32> {
    let most = curve.iter().map(|one| one.iops).fold(0.0, f64::max);
    curve.iter().find(|one| one.iops >= 0.9 * most).map(|one| one.depth)
}

/// Long reads from front to back, one at a time.
pub(super) fn sequential(run: &mut Run<'_>, request_bytes: usize, share: f64) -> Result<(), Halt> {
    run.step(format!("reads of {} KiB from front to back", request_bytes >> 10));
    let seconds = run.part(SECONDS);
    let bytes = run.share(share);
    let rate = run.watched(|run| {
        run.budget.check()?;
        let limit = run.budget.limit(seconds, bytes);
        let mut buffer = Aligned::new(request_bytes);
        let places = (run.scratch.bytes() / request_bytes as u64).max(1);
        let from = run.random.below(places);
        let (began, mut read) = (Instant::now(), 0u64);
        while read + request_bytes as u64 <= limit.bytes
            && Instant::now() < limit.until
            && !run.budget.is_ended()
        {
            let place = (from + read / request_bytes as u64) % places;
            let file = run.scratch.direct();
            file.read_exact_at(buffer.slice(), place * request_bytes as u64)
                .map_err(|error| unreadable(&error))?;
            read += request_bytes as u64;
        }
        let seconds = began.elapsed().as_secs_f64();
        run.budget.asked(read);
        if run.budget.is_ended() {
            run.budget.check()?;
        }
        #[allow(clippy::cast_precision_loss)] // below 2^53
        Ok((read > 0).then(|| read as f64 / seconds))
    })?;
    add_sequential(run, false, request_bytes as u64, rate);
    Ok(())
}

/// Takes a pass of reads from front to back into what was measured.
pub(super) fn add_sequential(run: &mut Run<'_>, buffered: bool, request_bytes: u64, rate: Option<f64>) {
    let Some(rate) = rate else { return };
    let all = &mut run.measured.sequential;
    let same = |one: &&mut Sequential| one.buffered == buffered && one.request_bytes == request_bytes;
    match all.iter_mut().find(same) {
        Some(one) => {
            one.passes.push(rate);
            one.bytes_per_second = median(&one.passes).unwrap_or(rate);
        }
        None => {
            all.push(Sequential { buffered, request_bytes, bytes_per_second: rate, passes: vec![rate] });
        }
    }
}

/// Fewest and most seconds at the knee, and the share of the seconds and bytes that they may take.
const TAIL: (f64, f64, f64) = (2.0, 20.0, 0.25);

/// Seconds that reads at the knee may go on for, and the bytes of those. Nothing where less than two seconds would come
/// of it: storage that fast is not the kind that has credits to use up.
pub(super) fn tail_for(run: &Run<'_>) -> Option<(f64, u64)> {
    let iops = knee(&run.measured.random).and_then(|depth| run.measured.iops(depth))?;
    #[allow(clippy::cast_precision_loss)] // at most 2 GB
    let (rate, bytes) = (iops * PAGE as f64, run.budget.bytes() as f64 * TAIL.2);
    let seconds = (bytes / rate.max(1.0)).min(run.budget.seconds() * TAIL.2).min(TAIL.1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most 2 GB
    (seconds >= TAIL.0).then_some((seconds, (seconds * rate) as u64))
}

/// Reads at the knee for longer: storage with credits shows what it has without them.
pub(super) fn tail(run: &mut Run<'_>, reader: &mut Reader) -> Result<(), Halt> {
    let Some(depth) = knee(&run.measured.random) else { return Ok(()) };
    let Some((seconds, bytes)) = tail_for(run) else { return Ok(()) };
    if run.budget.left_seconds() < seconds || run.budget.left_bytes() < bytes / 2 {
        return Ok(());
    }
    run.step(format!("random reads, {depth} in flight, for {seconds:.0} seconds"));
    let (began, mut slices) = (Instant::now(), Vec::new());
    // A few bytes are left, so that the tail is no reason to say that there were none.
    while began.elapsed().as_secs_f64() < seconds && run.budget.left_bytes() > 8 << 20 {
        // Short ones, so that live queries are looked after in between.
        let slice = run.watched(|run| slice(run, reader, depth, 0.5, u64::MAX))?;
        slices.extend(slice.iops());
        if let Some((first_iops, last_iops)) = thirds(&slices) {
            let seconds = began.elapsed().as_secs_f64();
            run.measured.tail = Some(Tail { depth, seconds, first_iops, last_iops });
        }
    }
    Ok(())
}

/// The medians of the first and of the last third.
fn thirds(values: &[f64]) -> Option<(f64, f64)> {
    let third = values.len() / 3;
    if third == 0 {
        return None;
    }
    Some((median(&values[..third])?, median(&values[values.len() - third..])?))
}

/// A read that failed.
pub(super) fn unreadable(error: &io::Error) -> Error {
    Error::new(Code::SourceRead, format!("the scratch file cannot be read: {error}"))
        .hint("Look at the kernel's log: storage that fails here fails the server, too.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u32, f64, f64)]) -> Vec<Depth> {
        let depth = |(depth, iops, p99_us): &(u32, f64, f64)| Depth {
            depth: *depth,
            iops: *iops,
            p99_us: *p99_us,
            ..Depth::default()
        };
        points.iter().map(depth).collect()
    }

    #[test]
    fn a_curve_that_grows_is_climbed_to_its_end() {
        assert!(climb_on(&[]));
        let grows =
            [(1, 1e3, 1e3), (2, 2e3, 1e3), (4, 4e3, 1e3), (8, 8e3, 1e3), (16, 16e3, 1e3), (32, 32e3, 1e3)];
        assert!((1..=6).all(|n| climb_on(&curve(&grows[..n]))));
    }

    #[test]
    fn a_flat_curve_is_left_but_not_before_it_was_seen() {
        let flat =
            [(1, 3e3, 1e3), (2, 3e3, 1e3), (4, 3e3, 2e3), (8, 3e3, 4e3), (16, 3e3, 8e3), (32, 3e3, 16e3)];
        assert!((1..=5).all(|n| climb_on(&curve(&flat[..n]))));
        assert!(!climb_on(&curve(&flat)));
        // One flat doubling is no reason.
        let once = [(1, 1e3, 1e3), (16, 10e3, 1e3), (32, 20e3, 1e3), (64, 20.5e3, 1e3)];
        assert!(climb_on(&curve(&once)));
        let twice = [(1, 1e3, 1e3), (32, 20e3, 1e3), (64, 20.5e3, 1e3), (128, 21e3, 1e3)];
        assert!(!climb_on(&curve(&twice)));
    }

    #[test]
    fn slow_reads_past_the_knee_end_the_climb() {
        let past = [(1, 10e3, 80.0), (16, 58e3, 400.0), (32, 64e3, 700.0), (64, 68e3, 2500.0)];
        assert_eq!(knee(&curve(&past)), Some(32));
        assert!(!climb_on(&curve(&past)));
        // At the knee itself they are the price.
        assert!(climb_on(&curve(&past[..3])));
    }

    #[test]
    fn credits_that_are_used_up_show_in_the_last_third() {
        assert_eq!(thirds(&[9.0, 9.0, 8.0, 3.0, 3.0, 3.0]), Some((9.0, 3.0)));
        assert_eq!(thirds(&[9.0, 9.0]), None);
    }

    #[test]
    fn passes_that_differ_are_seen() {
        assert!(apart(&[100.0, 130.0]) && apart(&[70.0, 100.0, 101.0]));
        assert!(!apart(&[100.0, 120.0]) && !apart(&[100.0]) && !apart(&[]));
    }
}
