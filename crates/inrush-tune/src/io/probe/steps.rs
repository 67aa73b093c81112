//! The steps of a probe, their order, and what happens between them.

use super::budget::{Budget, Halt, LEAST_SCRATCH_BYTES};
use super::live::{Judged, Watch};
use super::order::{Random, Shuffled};
use super::scratch::Scratch;
use super::{MOST_SCRATCH_BYTES, Plan, Progress, direct, replay, rounds, scratch};
use crate::io::measured::{Measured, StopReason, VERSION};
use crate::io::storage;
use inrush_core::{Code, Error, Result};
use inrush_sink::conninfo::ConnInfo;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Share of the seconds that writing the scratch file may take.
const WRITING: f64 = 0.15;
/// Seconds of the first quiet moment, and of those between measurements.
const QUIET: (f64, f64) = (1.0, 0.3);
/// What is still on its way for others when a measurement ends: not part of a quiet moment.
const SETTLING: f64 = 0.1;
/// Pieces of a quiet moment.
const PIECES: u32 = 4;
/// Seconds to wait when live queries suffer.
const RELIEF: f64 = 1.0;
/// How often a measurement is made again for the watcher to have seen enough.
const AGAIN: u32 = 5;
/// A probe of fewer seconds takes less of each measurement.
const UNHURRIED: f64 = 40.0;

/// A probe at work.
pub(super) struct Run<'a> {
    pub(super) budget: Budget<'a>,
    pub(super) ended: &'a AtomicBool,
    pub(super) scratch: Scratch,
    /// Pages for random reads: none again before all others were read.
    pub(super) order: Shuffled,
    pub(super) random: Random,
    pub(super) measured: Measured,
    watch: Watch,
    watched: Instant,
    progress: &'a mut dyn FnMut(Progress),
    step: usize,
    steps: usize,
}

/// Measures the storage of a directory.
///
/// `live` is a server whose queries must not suffer: its sessions are looked at all the while. Whoever sets `ended` has
/// the probe end, within a fifth of a second unless a single read takes longer.
///
/// # Errors
/// `usage`: what is named is no directory, or one in memory. `output`: no scratch file can be written there, or not one
/// that is large enough, or the file system has no reads past the page cache, without which nothing can be told.
/// `connect`: the server to be watched cannot be reached. `source-read`: reading failed, or the file system keeps in
/// memory what it was asked to drop. A limit that is reached is no error: [`Measured::stopped`].
pub fn run(
    plan: &Plan,
    live: Option<&ConnInfo>,
    ended: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Measured> {
    let storage = storage::look(&plan.directory)?;
    if storage.file_system.as_deref().is_some_and(storage::is_memory) {
        let fact = format!("{} is in memory, not on storage", storage.directory);
        return Err(Error::new(Code::Usage, fact).hint("Name a directory on the storage to measure."));
    }
    let mut watch = Watch::new(storage.device_number.as_deref(), live)?;
    let mut measured =
        Measured { version: VERSION, at: utc(SystemTime::now()), storage, ..Measured::default() };
    let read_ahead = measured.storage.read_ahead_kb.unwrap_or(0).saturating_mul(1024);
    let budget = Budget::new(plan, read_ahead, ended);
    measured.watched = Some(watch.words());
    // Whatever comes of this probe: what an earlier one has left goes.
    scratch::clean(&plan.directory);
    let prepared = quiet(&budget, &mut watch, QUIET.0.min(budget.seconds() / 10.0), false).and_then(|()| {
        let seconds = budget.seconds() * WRITING;
        progress(Progress { done: 0.0, text: "the scratch file is written".to_owned() });
        let bytes = plan.scratch_bytes.clamp(LEAST_SCRATCH_BYTES, MOST_SCRATCH_BYTES);
        let (mut begin, mut suffered) = (watch.begin(), false);
        Scratch::create(&plan.directory, bytes, seconds, &budget, &mut |share| {
            let text = format!("the scratch file is written, {:.0} %", share * 100.0);
            progress(Progress { done: 0.0, text });
            watch.wrote(&begin);
            bear(&budget, &mut watch, &mut suffered)?;
            begin = watch.begin();
            Ok(())
        })
    });
    let outcome = prepared.and_then(|scratch| {
        let mut random = Random::fresh();
        let mut run = Run {
            order: Shuffled::new(scratch.pages(), &mut random),
            random,
            measured: std::mem::take(&mut measured),
            watch,
            watched: Instant::now(),
            ended,
            progress,
            step: 0,
            // Two passes of eight depths and of three kinds of sequential reads, cached pages, the replays, the tail.
            steps: 16 + 6 + 1 + rounds::count(&plan.mechanisms) + 1,
            budget,
            scratch,
        };
        run.measured.scratch_bytes = run.scratch.bytes();
        let outcome = steps(&mut run, plan);
        measured = std::mem::take(&mut run.measured);
        (measured.seconds, measured.read_bytes) = (run.budget.used_seconds(), run.budget.used_bytes());
        outcome
    });
    match outcome {
        Ok(()) => {}
        Err(Halt::Stop(stop)) => measured.stopped = Some(stop),
        Err(Halt::Failed(error)) => return Err(error),
    }
    Ok(measured)
}

/// What matters most comes first: a probe that is ended has the curve.
fn steps(run: &mut Run<'_>, plan: &Plan) -> Result<(), Halt> {
    let mut reader = direct::choose(run)?;
    direct::curve(run, &mut reader)?;
    for pass in 0..3 {
        // A third where the two differ.
        if pass == 2 && !run.measured.sequential.iter().any(|one| direct::apart(&one.passes)) {
            break;
        }
        direct::sequential(run, 128 << 10, 0.012)?;
        direct::sequential(run, 1 << 20, 0.024)?;
        replay::sequential(run, 0.048)?;
    }
    replay::cached(run)?;
    rounds::replays(run, &plan.mechanisms)?;
    direct::tail(run, &mut reader)
}

impl Run<'_> {
    /// A share of the bytes that may be read in all.
    pub(super) fn share(&self, share: f64) -> u64 {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // at most 2 GB
        let bytes = (self.budget.bytes() as f64 * share) as u64;
        bytes
    }

    /// Seconds of a measurement, fewer where the probe has few.
    pub(super) fn part(&self, seconds: f64) -> f64 {
        seconds * (self.budget.seconds() / UNHURRIED).min(1.0)
    }

    /// Another step begins.
    pub(super) fn step(&mut self, text: String) {
        #[allow(clippy::cast_precision_loss)] // hundreds
        let done = (self.step as f64 / self.steps as f64).min(0.99);
        self.step += 1;
        (self.progress)(Progress { done, text });
    }

    /// Measures, and looks whether live queries suffered. If they did there is a pause, and the same once more; if they
    /// suffer again the probe ends. What was measured while they did is not kept: it is slower, too. Traffic that is not
    /// there in the pause either has ended by itself.
    pub(super) fn watched<T>(
        &mut self,
        mut measure: impl FnMut(&mut Self) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        if !self.watch.sees() {
            return measure(self);
        }
        if self.watched.elapsed().as_secs_f64() > self.watch.interval() {
            quiet(&self.budget, &mut self.watch, QUIET.1, false)?;
            self.watched = Instant::now();
        }
        let (out, judged) = self.judged(&mut measure)?;
        if matches!(judged, Judged::Well | Judged::Unknown) {
            return Ok(out);
        }
        // Compared with what they do in this pause: what has changed for another reason has changed there, too.
        quiet(&self.budget, &mut self.watch, RELIEF, true)?;
        self.watched = Instant::now();
        if self.watch.ended_by_itself(&judged) {
            return Ok(out);
        }
        let mut again = self.judged(&mut measure)?;
        for _ in 1..AGAIN {
            if again.1 == Judged::Unknown {
                again = self.judged(&mut measure)?;
            }
        }
        let (out, judged) = again;
        if matches!(judged, Judged::Missed { .. }) {
            // A burst may have come just in the pause: traffic that suffers is there in the next one, too.
            quiet(&self.budget, &mut self.watch, RELIEF, true)?;
            self.watched = Instant::now();
            if self.watch.ended_by_itself(&judged) {
                return Ok(out);
            }
        }
        match judged {
            Judged::Suffering(text) | Judged::Missed { text, .. } => {
                Err(Halt::stop(StopReason::LiveQueries, text))
            }
            Judged::Well | Judged::Unknown => Ok(out),
        }
    }

    fn judged<T>(
        &mut self,
        measure: &mut impl FnMut(&mut Self) -> Result<T, Halt>,
    ) -> Result<(T, Judged), Halt> {
        let begin = self.watch.begin();
        let out = measure(self)?;
        // What the kernel reads ahead is on its way still, and counted as ours: until it is there it would be missed.
        self.scratch.drop_cached()?;
        self.watch.measured(&begin);
        if let Some(lost) = self.watch.lost() {
            let text = format!("the session that watched the server was lost: {lost}");
            return Err(Halt::stop(StopReason::LiveQueries, text));
        }
        Ok((out, self.watch.judge()))
    }
}

/// Looks whether live queries suffered while something was written. A pause the first time; the end the second.
fn bear(budget: &Budget<'_>, watch: &mut Watch, suffered: &mut bool) -> Result<(), Halt> {
    match watch.judge() {
        Judged::Suffering(text) | Judged::Missed { text, .. } if *suffered => {
            Err(Halt::stop(StopReason::LiveQueries, text))
        }
        Judged::Suffering(_) | Judged::Missed { .. } => {
            *suffered = true;
            quiet(budget, watch, RELIEF, true)
        }
        Judged::Well | Judged::Unknown => Ok(()),
    }
}

/// Sees what others do while nothing is measured.
fn quiet(budget: &Budget<'_>, watch: &mut Watch, seconds: f64, afresh: bool) -> Result<(), Halt> {
    budget.check()?;
    if !watch.sees() {
        return Ok(());
    }
    budget.pause(SETTLING)?;
    // In pieces: traffic may come in bursts.
    for piece in 0..PIECES {
        let begin = watch.begin();
        budget.pause(seconds / f64::from(PIECES))?;
        watch.quiet(&begin, afresh && piece == 0);
    }
    Ok(())
}

/// A time as 2026-11-22T19:19:43Z. Days to dates by Howard Hinnant, chrono-Compatible Low-Level Date Algorithms.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, in eras of 400 of them.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::super::live::Window;
    use super::*;
    use std::fs;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    /// Ends the traffic however a test ends: the scope waits for it.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    /// Measures something that takes 0.3 seconds next to traffic of about 1000 writes a second, which stops while it is
    /// measured as often as is said, and comes back after so many of them. Returns how often it was measured, and what came
    /// of it.
    fn next_to_traffic(starved: u32, back: u32) -> (u32, Result<u32, Halt>) {
        let directory = tempfile::Builder::new().tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let counters = directory.path().join("stat");
        let write = |writes: u64| {
            // Whoever reads it sees the one or the other.
            fs::write(directory.path().join("next"), format!("0 0 0 0 {writes} 0 0\n")).unwrap();
            fs::rename(directory.path().join("next"), &counters).unwrap();
        };
        write(0);
        let (stopped, over, ended) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| {
                let mut writes = 0;
                while !over.load(Relaxed) {
                    if !stopped.load(Relaxed) {
                        writes += 5;
                        write(writes);
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let plan = Plan { seconds: 60.0, ..Plan::new(directory.path()) };
            let budget = Budget::new(&plan, 0, &ended);
            let mut watch = Watch::of_counters(counters.clone());
            quiet(&budget, &mut watch, 0.5, false).unwrap();
            let scratch = Scratch::create(directory.path(), 8 << 20, 10.0, &budget, &mut |_| Ok(())).unwrap();
            let mut random = Random::fresh();
            let mut run = Run {
                order: Shuffled::new(1, &mut random),
                random,
                measured: Measured::default(),
                watch,
                watched: Instant::now(),
                ended: &ended,
                progress: &mut |_| {},
                step: 0,
                steps: 1,
                budget,
                scratch,
            };
            let (mut times, mut ended_at, mut paused) = (0, None::<Instant>, true);
            let out = run.watched(|_| {
                times += 1;
                // A pause before the second time.
                paused =
                    paused && ended_at.is_none_or(|at| times != 2 || at.elapsed().as_secs_f64() > RELIEF);
                stopped.store(times <= starved, Relaxed);
                std::thread::sleep(Duration::from_millis(300));
                // Between measurements it flows, unless it has ended by itself.
                stopped.store(times <= starved && times > back, Relaxed);
                ended_at = Some(Instant::now());
                Ok(times)
            });
            assert!(paused, "there was no pause");
            (times, out)
        })
    }

    #[test]
    fn who_suffers_while_the_file_is_written_has_one_pause() {
        let ended = AtomicBool::new(false);
        let budget = Budget::new(&Plan::new("/nowhere"), 0, &ended);
        let waits = |looks, waiting| Window { seconds: 1.0, foreign: None, looks, waiting };
        let watch = |waiting| Watch::of_windows(&[waits(20, 0)], waits(20, waiting));
        let mut suffered = false;
        bear(&budget, &mut watch(0), &mut suffered).unwrap();
        assert!(!suffered);
        bear(&budget, &mut watch(60), &mut suffered).unwrap();
        assert!(suffered);
        bear(&budget, &mut watch(0), &mut suffered).unwrap();
        let Err(Halt::Stop(stop)) = bear(&budget, &mut watch(60), &mut suffered) else {
            panic!("it went on")
        };
        assert_eq!(stop.reason, StopReason::LiveQueries);
    }

    #[test]
    fn traffic_that_goes_on_is_no_reason_to_stop() {
        let (times, out) = next_to_traffic(0, u32::MAX);
        assert!(matches!(out, Ok(1)), "{times}: {out:?}");
    }

    #[test]
    fn traffic_that_suffers_once_has_a_pause_and_the_same_is_measured_again() {
        let (times, out) = next_to_traffic(1, u32::MAX);
        assert!(matches!(out, Ok(2)), "{times}: {out:?}");
    }

    #[test]
    fn traffic_that_suffers_again_ends_the_probe() {
        let (times, out) = next_to_traffic(u32::MAX, u32::MAX);
        let Err(Halt::Stop(stop)) = out else { panic!("{times}: {out:?}") };
        assert_eq!((times, stop.reason), (2, StopReason::LiveQueries));
        assert!(stop.text.contains("reads and writes a second"), "{}", stop.text);
    }

    #[test]
    fn traffic_that_ends_by_itself_is_no_reason_to_stop() {
        let (times, out) = next_to_traffic(u32::MAX, 0);
        assert!(matches!(out, Ok(1)), "{times}: {out:?}");
        // Also where it was back for the pause.
        let (times, out) = next_to_traffic(u32::MAX, 1);
        assert!(matches!(out, Ok(2)), "{times}: {out:?}");
    }

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_375_183), "2026-11-22T19:19:43Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
