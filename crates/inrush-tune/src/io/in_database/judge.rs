//! Whether trials say anything of the storage, and the figures that they make.

use super::candidate::Candidate;
use super::trial::Trial;
use super::{PAGES, PASSES, Plan};
use crate::io::measured::{
    Depth, Engine, Measured, Mechanism, PAGE, Replay, Stop, StopReason, VERSION, median, spread,
};
use crate::io::report::Server;
use inrush_core::{Code, Error, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// Trials by effective_io_concurrency.
pub(super) type Trials = BTreeMap<u32, Vec<Trial>>;

/// A page that takes less, one at a time, came from a cache: local flash answers in 50 us or more, and a page
/// that is in the page cache costs a system call and a copy.
const CACHED_US: f64 = 35.0;

/// The same on a server with a slow or busy processor, where a page from its storage takes ten times as long:
/// flash may take so little, too.
const SLOWLY_CACHED_US: f64 = 70.0;
const CACHED_SHARE: f64 = 0.1;

/// Pages from a cache, as a share of those that were read alone, that make the rest worthless.
const MOST_CACHED: f64 = 0.125;

/// Distance of passes, and what a later one may be faster than the first, as a share.
const MOST_SPREAD: f64 = 0.25;

/// Reads of others, as a share of ours, that make the figures worthless.
const FOREIGN: f64 = 0.5;

/// Passes of a value that say whether it is steady.
const FEW_PASSES: usize = 2;

/// What others did meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around {
    /// Pages that we had read.
    pub(super) ours: u64,
    /// Pages that others had read.
    pub(super) foreign: u64,
}

const OTHER_TABLE: &str = "Name a table with --table that has not been read for long, or wait until its \
                           pages have gone from the cache.";

fn refused(fact: impl std::fmt::Display, hint: &str) -> Error {
    Error::new(Code::Server, format!("cannot tell: {fact}")).hint(hint)
}

/// Refuses a table of which the first trial has found hardly anything.
pub(super) fn judge_first(candidate: &Candidate, asked: usize, first: &Trial) -> Result<()> {
    if first.rows * 4 < asked as u64 {
        let fact = format!(
            "of {asked} values of {} in {} only {} exist",
            candidate.column, candidate.table, first.rows
        );
        return Err(refused(fact, "Name a table with --table whose keys have few gaps."));
    }
    if first.pages * 4 < *PAGES.start() {
        let fact = format!(
            "nearly all pages of {} were in shared_buffers: {} of {}",
            candidate.table,
            first.hits,
            first.hits + first.pages
        );
        return Err(refused(fact, "A larger table can be named with --table."));
    }
    Ok(())
}

/// Refuses a table of which pages that were read alone came out of a cache: each of them is far faster or
/// slower than the limit, while a mean over both says nothing. The limit is higher where the storage is slow.
#[allow(clippy::cast_precision_loss)] // a few
pub(super) fn judge_alone(alone: &[Trial]) -> Result<()> {
    let each = alone.iter().map(|one| one.waited_us.unwrap_or(one.page_us));
    let mut read: Vec<f64> = each.filter(|us| us.is_finite()).collect();
    read.sort_by(f64::total_cmp);
    // Three quarters may be cached.
    let slow = read.get(read.len() * 3 / 4).copied().unwrap_or(0.0);
    let limit = (slow * CACHED_SHARE).clamp(CACHED_US, SLOWLY_CACHED_US);
    let cached = read.iter().filter(|us| **us < limit).count();
    if cached as f64 <= MOST_CACHED * read.len() as f64 {
        return Ok(());
    }
    let fact = format!(
        "{cached} of {} pages that were read alone took less than {limit:.0} us (a quarter of them \
         {slow:.0} us or more), so they came from a cache of the server's machine",
        read.len()
    );
    Err(refused(fact, OTHER_TABLE))
}

/// Leaves out values with a single pass, and refuses figures that say nothing.
pub(super) fn judge(plan: &Plan, trials: &mut Trials, around: Around, stop: Option<&Stop>) -> Result<()> {
    for passes in trials.values_mut() {
        passes.retain(|trial| trial.page_us.is_finite());
    }
    trials.retain(|_, passes| passes.len() >= FEW_PASSES);
    let Some(alone) = trials.get(&0).filter(|_| trials.len() >= 3) else { return Err(too_few(plan, stop)) };
    #[allow(clippy::cast_precision_loss)] // counters
    if around.foreign as f64 > FOREIGN * around.ours as f64 {
        let Around { ours, foreign } = around;
        let fact = format!("other sessions read {foreign} pages meanwhile, and the trials {ours}");
        return Err(refused(fact, "Give the command again when the server is quieter."));
    }
    let passes: Vec<f64> = alone.iter().map(|trial| trial.page_us).collect();
    let waited: Vec<f64> = alone.iter().filter_map(|trial| trial.waited_us).collect();
    let page_us = median(&passes).unwrap_or(0.0);
    if page_us < CACHED_US || median(&waited).is_some_and(|us| us < CACHED_US) {
        let waited = median(&waited).map(|us| format!(" ({us:.0} us of it waiting)")).unwrap_or_default();
        let fact = format!(
            "a page took {page_us:.0} us{waited} one at a time, so it came from a cache of the \
             server's machine"
        );
        return Err(refused(fact, OTHER_TABLE));
    }
    steady(&passes)
}

/// Refuses passes without read-ahead, in the order of time, that say that the pages are cached by and by, or
/// that something else uses the storage. With more passes than usual one is forgiven, whichever it is.
pub(super) fn steady(passes: &[f64]) -> Result<()> {
    let list: Vec<String> = passes.iter().map(|us| format!("{us:.0}")).collect();
    let list = list.join(", ");
    let mut judged = passes.to_vec();
    if let Some(median) = median(passes).filter(|_| passes.len() > PASSES) {
        let distance = |at: &usize| (passes[*at] - median).abs();
        let farthest = (0..passes.len()).max_by(|a, b| distance(a).total_cmp(&distance(b)));
        farthest.map(|at| judged.remove(at));
    }
    let fastest = judged.iter().copied().fold(f64::INFINITY, f64::min);
    if judged.first().is_some_and(|first| fastest < first * (1.0 - MOST_SPREAD)) {
        let fact = format!(
            "the passes get faster: {list} us a page one at a time; pages come from a cache of the server's \
             machine by now, or something else used the storage before"
        );
        return Err(refused(fact, OTHER_TABLE));
    }
    if let Some(apart) = spread(passes).filter(|apart| *apart > MOST_SPREAD) {
        let fact = format!(
            "the passes differ by {:.0} %: {list} us a page one at a time; some pages come from a \
             cache of the server's machine, or something else uses the storage",
            apart * 100.0
        );
        return Err(refused(fact, OTHER_TABLE));
    }
    Ok(())
}

/// Microseconds of a page without read-ahead, by pass.
pub(super) fn without_read_ahead(trials: &Trials) -> Vec<f64> {
    let all = trials.get(&0).into_iter().flatten().map(|trial| trial.page_us);
    all.filter(|us| us.is_finite()).collect()
}

/// The end of a run that was not let have enough.
pub(super) fn interrupted() -> Error {
    Error::new(Code::Interrupted, "interrupted: nothing was changed")
}

/// The refusal of a run that ended before there was enough.
pub(super) fn too_few(plan: &Plan, stop: Option<&Stop>) -> Error {
    let why = match stop {
        Some(Stop { reason: StopReason::Interrupted, .. }) => return interrupted(),
        Some(Stop { reason: StopReason::Bytes, text }) => format!("{text}, and more was needed"),
        Some(Stop { text, .. }) if *text == plan.time_is_over() => {
            format!("{:.0} s were too few to try three values twice each", plan.seconds)
        }
        Some(Stop { text, .. }) => format!("{:.0} s were too few: {text}", plan.seconds),
        None => "the trials read hardly any pages that were not in shared_buffers".to_owned(),
    };
    refused(why, "Give it more time with --seconds, or name another table with --table.")
}

/// The figures in the form that a probe of a directory has: a replay for each value, and a curve of depths
/// from them.
pub(super) fn measured(
    server: &Server,
    candidate: &Candidate,
    trials: &Trials,
    at: String,
    took: Duration,
    around: Around,
) -> Measured {
    #[allow(clippy::cast_precision_loss)] // pages
    let share = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let all: Vec<Trial> = trials.values().flatten().copied().collect();
    let pages: Vec<f64> = all.iter().map(|trial| share(trial.pages, candidate.pages)).collect();
    let density = median(&pages).unwrap_or(0.0);
    let mut random = Vec::new();
    let mut replays = Vec::new();
    let mechanism = Mechanism::of(server.version_num, server.io_method.as_deref(), server.io_workers);
    for (concurrency, trials) in trials {
        let passes: Vec<f64> = trials.iter().map(|trial| trial.page_us).collect();
        let Some(page_us) = median(&passes) else { continue };
        // One at a time, as far as pages lie apart: without read-ahead. With 1 there are up to two in flight.
        if *concurrency != 1 {
            random.push(Depth {
                depth: (*concurrency).max(1),
                iops: 1e6 / page_us,
                p50_us: 0.0,
                p99_us: 0.0,
                passes: passes.iter().map(|us| 1e6 / us).collect(),
            });
        }
        replays.push(Replay { mechanism, density, ahead: *concurrency, page_us, passes });
    }
    let mut measured = Measured {
        version: VERSION,
        at,
        engine: Engine::Server,
        read_bytes: around.ours * PAGE,
        seconds: took.as_secs_f64(),
        random,
        replays,
        ..Measured::default()
    };
    measured.watched = Some(format!(
        "other sessions read {} pages meanwhile, the trials {} (pg_stat_database)",
        around.foreign, around.ours
    ));
    let hits = all.iter().map(|trial| trial.hits).sum::<u64>();
    let pages = hits + all.iter().map(|trial| trial.pages).sum::<u64>();
    measured.storage.directory = format!("table {}", candidate.table);
    measured.storage.file_system_note = Some(format!(
        "{:.0} % of {pages} pages came from shared_buffers and do not count",
        share(hits, pages) * 100.0
    ));
    measured
}

#[cfg(test)]
mod tests {
    use super::super::candidate::made_up;
    use super::*;

    const QUIET: Around = Around { ours: 5_000, foreign: 100 };

    fn plan() -> Plan {
        Plan { table: None, seconds: 60.0, read_bytes: 2_000_000_000 }
    }

    fn one(us: f64) -> Trial {
        Trial { pages: 400, hits: 100, reads: 500, rows: 500, page_us: us, ..Trial::default() }
    }

    fn trials(page_us: &[(u32, f64)]) -> Trials {
        page_us.iter().map(|(n, us)| (*n, vec![one(*us), one(us * 1.02), one(us * 0.99)])).collect()
    }

    fn slow() -> Trials {
        trials(&[(0, 1_000.0), (1, 1_100.0), (4, 260.0), (16, 65.0), (64, 20.0), (256, 20.0)])
    }

    fn told(trials: &mut Trials, around: Around, stop: Option<&Stop>) -> String {
        judge(&plan(), trials, around, stop).unwrap_err().to_string()
    }

    #[test]
    fn trials_make_a_curve() {
        let mut trials = slow();
        judge(&plan(), &mut trials, QUIET, None).unwrap();
        let server = Server { version_num: 150_000, ..Server::default() };
        let measured =
            measured(&server, &made_up(100_000), &trials, String::new(), Duration::from_secs(9), QUIET);
        assert_eq!(measured.random.iter().map(|one| one.depth).collect::<Vec<_>>(), [1, 4, 16, 64, 256]);
        assert_eq!(measured.replays.len(), 6);
        assert!((measured.replays[0].density - 0.004).abs() < 1e-9);
        let note = measured.storage.file_system_note.as_deref().unwrap();
        assert!(note.starts_with("20 % of 9000 pages came from shared_buffers"), "{note}");
        let verdict = crate::io::Verdict::of(&measured);
        assert_eq!((verdict.class, verdict.knee), (crate::io::Class::LatencyBound, Some(64)));
    }

    #[test]
    fn pages_from_a_cache_are_not_called_storage() {
        let mut cached = trials(&[(0, 8.0), (16, 7.0), (64, 7.0)]);
        assert!(told(&mut cached, QUIET, None).contains("came from a cache"));
        // Busy, so it takes longer than the limit; what it waits for reads does not.
        let mut busy = slow();
        busy.get_mut(&0).unwrap().iter_mut().for_each(|trial| trial.waited_us = Some(6.0));
        assert!(told(&mut busy, QUIET, None).contains("(6 us of it waiting)"));
        let with = |passes: [f64; 3]| {
            let mut trials = slow();
            trials.insert(0, passes.map(one).to_vec());
            trials
        };
        let text = told(&mut with([1_000.0, 990.0, 700.0]), QUIET, None);
        assert!(text.contains("get faster: 1000, 990, 700 us"), "{text}");
        // Forgiving the first as the farthest would leave two that agree.
        assert!(told(&mut with([1_000.0, 700.0, 760.0]), QUIET, None).contains("get faster"));
        assert!(told(&mut with([1_000.0, 1_500.0, 2_000.0]), QUIET, None).contains("differ by 33 %"));
        // One pass that differs is forgiven, unless the passes get faster.
        assert!(judge(&plan(), &mut with([1_000.0, 1_900.0, 1_010.0]), QUIET, None).is_ok());
    }

    #[test]
    fn further_passes_tell_noise_from_a_cache() {
        // Flash, and a machine that was busy at first.
        assert!(steady(&[101.0, 72.0, 68.0]).is_err());
        assert!(steady(&[101.0, 72.0, 68.0, 70.0]).is_ok());
        assert!(steady(&[72.0, 68.0, 101.0, 70.0, 69.0]).is_ok());
        let fading = steady(&[1_000.0, 800.0, 640.0, 510.0, 410.0]).unwrap_err().to_string();
        assert!(fading.contains("get faster: 1000, 800, 640, 510, 410 us"), "{fading}");
        let noise = steady(&[1_000.0, 1_600.0, 1_010.0, 1_700.0, 990.0]).unwrap_err().to_string();
        assert!(noise.contains("differ by"), "{noise}");
    }

    #[test]
    fn a_mix_is_seen_by_pages_alone() {
        let mix = |cached: usize, cached_us: f64, us: f64| {
            let one =
                |i| Trial { pages: 1, page_us: if i < cached { cached_us } else { us }, ..Trial::default() };
            judge_alone(&(0..32).map(one).collect::<Vec<Trial>>())
        };
        assert!(mix(0, 9.0, 1_050.0).is_ok() && mix(4, 9.0, 1_050.0).is_ok());
        let text = mix(16, 9.0, 1_050.0).unwrap_err().to_string();
        assert!(text.contains("16 of 32 pages that were read alone took less than 70 us"), "{text}");
        // A slow processor, and flash.
        assert!(mix(5, 60.0, 1_050.0).is_err() && mix(0, 9.0, 60.0).is_ok() && mix(8, 50.0, 60.0).is_ok());
        assert!(mix(24, 9.0, 60.0).is_err() && mix(32, 9.0, 60.0).is_err());
        // Flash that is busy.
        assert!(mix(22, 95.0, 1_767.0).is_ok());
    }

    #[test]
    fn a_table_without_rows_or_reads_is_refused() {
        let first = |rows, pages| Trial { rows, pages, hits: 100 - pages, ..Trial::default() };
        let judged = |first: Trial| judge_first(&made_up(100_000), 100, &first);
        assert!(judged(first(100, 90)).is_ok());
        assert!(judged(first(3, 3)).unwrap_err().to_string().contains("only 3 exist"));
        let text = judged(first(100, 3)).unwrap_err().to_string();
        assert!(text.contains("were in shared_buffers: 97 of 100"), "{text}");
    }

    #[test]
    fn what_there_is_when_time_is_up_is_judged() {
        let stop = |reason| Stop { reason, text: "a trial took long".to_owned() };
        let mut some = slow();
        some.get_mut(&16).unwrap().truncate(1);
        judge(&plan(), &mut some, QUIET, Some(&stop(StopReason::Time))).unwrap();
        assert_eq!(some.len(), 5);
        let mut few = trials(&[(0, 1_000.0), (16, 65.0)]);
        let text = told(&mut few, QUIET, Some(&stop(StopReason::Time)));
        assert!(text.contains("60 s were too few: a trial took long"), "{text}");
        let over = Stop { reason: StopReason::Time, text: plan().time_is_over() };
        let text = told(&mut few, QUIET, Some(&over));
        assert!(text.contains("60 s were too few to try three values twice"), "{text}");
        let error = judge(&plan(), &mut few, QUIET, Some(&stop(StopReason::Interrupted))).unwrap_err();
        assert_eq!(error.code(), Code::Interrupted);
        let text = told(&mut slow(), Around { ours: 5_000, foreign: 4_000 }, None);
        assert!(text.contains("other sessions read 4000 pages"), "{text}");
    }
}
