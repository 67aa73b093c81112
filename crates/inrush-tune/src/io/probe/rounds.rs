//! Which replays are made, how often, and what each may read: all densities and distances, up and down, and again where
//! they differ.

use super::Run;
use super::budget::Halt;
use super::direct::{APART, apart, tail_for};
use super::replay::{Job, LEAST, Readers, replay};
use super::uring::Ring;
use super::workers::{MOST_IN_FLIGHT, Workers};
use crate::io::measured::{Mechanism, PAGE, Replay, median, spread};
use inrush_core::{Code, Error};

/// Shares of the pages that are read.
const DENSITIES: [f64; 4] = [0.01, 0.1, 0.5, 1.0];
/// Values of effective_io_concurrency.
const AHEADS: [u32; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Those for a bitmap of all pages: what the kernel reads ahead by itself, what spoils that, and what makes up for it.
const AHEADS_OF_ALL: [u32; 4] = [0, 1, 16, 64];
/// Those of io_uring beside workers.
const BESIDE: [u32; 2] = [16, 64];
/// Most seconds of one replay.
const SECONDS: f64 = 0.35;
/// Shares of the bytes and of the seconds that are not given to replays, beside what the tail takes.
const KEPT: (f64, f64) = (0.02, 0.1);
/// Share of the bytes of replays that is kept for those whose passes differ, and how many more of each there are at most.
const AGAIN: (f64, usize) = (0.2, 3);
/// Microseconds of a read alone from which on storage is slow: there is no time for all replays, so there are fewer.
const SLOW_US: f64 = 2000.0;
/// Values of effective_io_concurrency on slow storage.
const SLOW_AHEADS: [u32; 6] = [0, 1, 4, 16, 64, 256];
/// Shares of the pages on slow storage, those first that say most: where there are not enough seconds the others are
/// left out.
const SLOW_DENSITIES: [f64; 4] = [0.01, 0.5, 1.0, 0.1];
/// Seconds of a replay on slow storage, in reads one after the other; and how many times longer it is with the quiet
/// moments, and with what is on its way when it ends.
const PACE: f64 = 20.0;
const BETWEEN: f64 = 1.4;
/// How many replays there are of these ways to read ahead, both passes together.
pub(super) fn count(mechanisms: &[Mechanism]) -> usize {
    let of = |density| jobs(mechanisms, density, aheads(density)).len();
    2 * DENSITIES.into_iter().map(of).sum::<usize>()
}

/// The distances for a share of the pages.
fn aheads(density: f64) -> &'static [u32] {
    if density < 1.0 { &AHEADS } else { &AHEADS_OF_ALL }
}

/// All replays of these ways to read ahead, up and down, and again where the passes differ. What there is of
/// them is kept whenever it ends.
pub(super) fn replays(run: &mut Run<'_>, mechanisms: &[Mechanism]) -> Result<(), Halt> {
    let mut readers = readers(mechanisms)?;
    let possible = |one: &&Mechanism| **one != Mechanism::IoUring || readers.ring.is_some();
    let mechanisms: Vec<Mechanism> = mechanisms.iter().filter(possible).copied().collect();
    let slow = run.measured.latency_us().filter(|latency| *latency > SLOW_US);
    let outcome = match slow {
        Some(latency) => slowly(run, &mut readers, &mechanisms, latency / 1e6),
        None => quickly(run, &mut readers, &mechanisms),
    };
    if slow.is_some() {
        whole(&mut run.measured.replays, &mechanisms);
    }
    let key = |one: &Replay| (one.mechanism, one.density, one.ahead);
    run.measured.replays.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    outcome
}

/// The replays of one density.
fn jobs(mechanisms: &[Mechanism], density: f64, aheads: &[u32]) -> Vec<Job> {
    let mut jobs = Vec::new();
    // Index scans read page by page in all versions.
    let plain = (!mechanisms.contains(&Mechanism::Advice)).then_some(Mechanism::Advice);
    for ahead in aheads.iter().copied() {
        let these = mechanisms.iter().filter(|one| says_more(mechanisms, **one, ahead));
        for mechanism in these.chain(plain.as_ref().filter(|_| ahead == 0)) {
            jobs.push(Job { mechanism: *mechanism, density, ahead });
        }
    }
    jobs
}

/// Whether the replay of this distance says more than others do: each takes bytes from all the others.
fn says_more(mechanisms: &[Mechanism], mechanism: Mechanism, ahead: u32) -> bool {
    match mechanism {
        Mechanism::Advice | Mechanism::CombinedAdvice => true,
        Mechanism::Workers { .. } => ahead <= MOST_IN_FLIGHT,
        // Beside workers, which it could replace: whether that is worth a restart.
        Mechanism::IoUring if mechanisms.len() > 1 => BESIDE.contains(&ahead),
        Mechanism::IoUring => ahead <= MOST_IN_FLIGHT,
    }
}

/// The share of the bytes of a replay. Without advice, or with that for one of all pages, the kernel reads ahead by itself where pages are dense: whole
/// windows, of which a few must be seen.
fn weight(job: &Job) -> f64 {
    let density = job.density;
    match job.ahead {
        0 if density > 0.2 => 4.0,
        1 if density > 0.9 => 2.0,
        _ => 1.0,
    }
}

fn quickly(run: &mut Run<'_>, readers: &mut Readers, mechanisms: &[Mechanism]) -> Result<(), Halt> {
    let all: Vec<Job> =
        DENSITIES.iter().flat_map(|density| jobs(mechanisms, *density, aheads(*density))).collect();
    let order: Vec<Job> = all.iter().chain(all.iter().rev()).copied().collect();
    let all_weights: f64 = order.iter().map(weight).sum();
    #[allow(clippy::cast_precision_loss)] // at most 2 GB
    let bytes = run.budget.left_bytes().saturating_sub(kept(run).1) as f64;
    // Where reads are counted out, those of a slice of time come at once: a longer replay says more than another one.
    let again = if counted_out(run) { 0.0 } else { AGAIN.0 };
    let unit = bytes * (1.0 - again) / all_weights;
    make(run, readers, &order, &Bounds { seconds: None, kept_bytes: bytes * again, unit })?;
    for _ in 0..AGAIN.1 {
        #[allow(clippy::cast_precision_loss)] // at most 2 GB
        let left = run.budget.left_bytes().saturating_sub(kept(run).1) as f64;
        let order = differing(&run.measured.replays, &all, left / unit);
        if order.is_empty() {
            break;
        }
        make(run, readers, &order, &Bounds { seconds: None, kept_bytes: 0.0, unit })?;
    }
    Ok(())
}

/// Whether 16 reads in flight give less than twice what one gives, which only a limit on reads does.
fn counted_out(run: &Run<'_>) -> bool {
    let given = |depth| run.measured.iops(depth);
    given(1).zip(given(16)).is_some_and(|(one, many)| many < 2.0 * one)
}

/// Those whose passes differ, or are fewer than two, one pass forgiven where there are three: the farthest apart first, as many as have a place
/// within a sum of weights.
fn differing(replays: &[Replay], jobs: &[Job], mut room: f64) -> Vec<Job> {
    // One pass, or none, as where the kernel has read far more than it was asked for, says less than two that differ.
    let apart = |job: &Job| {
        let passes = replays.iter().find(|one| is_of(one, job)).map(|one| &one.passes);
        Some(passes.and_then(|passes| spread(passes)).unwrap_or(f64::INFINITY))
    };
    let mut order: Vec<(f64, Job)> =
        jobs.iter().filter_map(|job| Some((apart(job).filter(|apart| *apart > APART)?, *job))).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    order.retain(|(_, job)| {
        let fits = weight(job) <= room;
        room -= if fits { weight(job) } else { 0.0 };
        fits
    });
    order.into_iter().map(|(_, job)| job).collect()
}

/// What bounds replays beside the probe's own bounds.
struct Bounds {
    /// Seconds of each, if that is not what comes of dividing those that are left.
    seconds: Option<f64>,
    /// Bytes that are left for later.
    kept_bytes: f64,
    /// Most bytes of a replay of weight 1.
    unit: f64,
}

/// What replays leave to what comes after them: seconds and bytes.
fn kept(run: &Run<'_>) -> (f64, u64) {
    let (tail_seconds, tail_bytes) = tail_for(run).unwrap_or_default();
    (run.budget.seconds() * KEPT.1 + tail_seconds, run.share(KEPT.0) + tail_bytes)
}

/// On slow storage: whole densities, what matters most first, as long as the seconds suffice; then all of them once more
/// from the back, and a third time where the two differ, as far as there are seconds beside those of the
/// tail. `latency`: seconds of a read.
fn slowly(
    run: &mut Run<'_>,
    readers: &mut Readers,
    mechanisms: &[Mechanism],
    latency: f64,
) -> Result<(), Halt> {
    let pace = latency * PACE;
    let bounds = Bounds { seconds: Some(pace), kept_bytes: 0.0, unit: f64::INFINITY };
    let mut done: Vec<Job> = Vec::new();
    for density in SLOW_DENSITIES {
        let aheads = if density < 1.0 { &SLOW_AHEADS[..] } else { &AHEADS_OF_ALL };
        let jobs = jobs(mechanisms, density, aheads);
        if run.budget.left_seconds() < needed(jobs.len(), pace) {
            break;
        }
        make(run, readers, &jobs, &bounds)?;
        done.extend(jobs);
    }
    let kept = kept(run).0 + needed(1, pace);
    for pass in 1..3 {
        for job in done.iter().rev() {
            let all = &run.measured.replays;
            // A third time only where the two differ.
            let wanted = pass == 1 || all.iter().any(|one| is_of(one, job) && apart(&one.passes));
            if wanted && run.budget.left_seconds() >= kept {
                make(run, readers, &[*job], &bounds)?;
            }
        }
    }
    Ok(())
}

/// Seconds that so many replays take on slow storage, with what lies between them.
#[allow(clippy::cast_precision_loss)] // tens
fn needed(replays: usize, pace: f64) -> f64 {
    replays as f64 * pace * BETWEEN
}

/// Takes out the densities that a limit has cut short before anything was known of reads without and with little advice:
/// a curve without its beginning misleads.
#[allow(clippy::float_cmp)] // the constants above
fn whole(replays: &mut Vec<Replay>, mechanisms: &[Mechanism]) {
    let all: Vec<_> = replays.iter().map(|one| (one.mechanism, one.density, one.ahead)).collect();
    replays.retain(|one| {
        let has = |ahead| all.contains(&(one.mechanism, one.density, ahead));
        let begins = |ahead| has(ahead) || !says_more(mechanisms, one.mechanism, ahead);
        !mechanisms.contains(&one.mechanism) || (begins(0) && begins(1))
    });
}

/// Threads and a ring for those ways to read that need them. No ring where it may not be.
fn readers(mechanisms: &[Mechanism]) -> Result<Readers, Halt> {
    let mut readers = Readers::default();
    for mechanism in mechanisms {
        match mechanism {
            Mechanism::Workers { workers }
                if readers.pools.iter().all(|pool| pool.count() != *workers as usize) =>
            {
                let pool = Workers::new(*workers).map_err(|error| {
                    Error::new(Code::Output, format!("{workers} threads cannot be made: {error}"))
                        .hint("Allow this account more processes, or measure fewer workers.")
                })?;
                readers.pools.push(pool);
            }
            Mechanism::IoUring => readers.ring = Ring::new().ok(),
            _ => {}
        }
    }
    Ok(readers)
}

/// Makes replays, one after the other: seconds and bytes are shared out among them.
fn make(run: &mut Run<'_>, readers: &mut Readers, jobs: &[Job], bounds: &Bounds) -> Result<(), Halt> {
    let mut weights: f64 = jobs.iter().map(weight).sum();
    let (kept_seconds, kept_bytes) = kept(run);
    for (at, job) in jobs.iter().enumerate() {
        run.step(format!(
            "{:.0} % of the pages, {} ahead ({})",
            job.density * 100.0,
            job.ahead,
            named(job.mechanism)
        ));
        let seconds = (run.budget.left_seconds() - kept_seconds).max(0.0) / (jobs.len() - at).max(1) as f64;
        let (own, left) = (weight(job), run.budget.left_bytes().saturating_sub(kept_bytes));
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // at most 2 GB
        let bytes = {
            let shared = (left as f64 - bounds.kept_bytes).max(0.0);
            // Where the kernel has read far ahead before, each still has some pages, as long as there are any.
            let fewest = left.min(2 * LEAST * PAGE) as f64;
            (shared * own / weights.max(own)).min(bounds.unit * own).max(fewest) as u64
        };
        weights -= own;
        let page_us = run.watched(|run| {
            let least = if bounds.seconds.is_some() { LEAST } else { 0 };
            replay(run, readers, job, bounds.seconds.unwrap_or(seconds.min(SECONDS)), (bytes, least))
        })?;
        let Some(page_us) = page_us else { continue };
        let all = &mut run.measured.replays;
        match all.iter_mut().find(|one| is_of(one, job)) {
            Some(one) => {
                one.passes.push(page_us);
                one.page_us = median(&one.passes).unwrap_or(page_us);
            }
            None => {
                let Job { mechanism, density, ahead, .. } = *job;
                all.push(Replay { mechanism, density, ahead, page_us, passes: vec![page_us] });
            }
        }
    }
    Ok(())
}

#[allow(clippy::float_cmp)] // the constants above
fn is_of(replay: &Replay, job: &Job) -> bool {
    (replay.mechanism, replay.density, replay.ahead) == (job.mechanism, job.density, job.ahead)
}

fn named(mechanism: Mechanism) -> String {
    match mechanism {
        Mechanism::Advice => "advice".to_owned(),
        Mechanism::CombinedAdvice => "advice for neighbours".to_owned(),
        Mechanism::Workers { workers } => format!("{workers} workers"),
        Mechanism::IoUring => "io_uring".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_density_without_its_beginning_is_left_out() {
        let (sync, plain) = (Mechanism::CombinedAdvice, Mechanism::Advice);
        let one =
            |mechanism, density, ahead| Replay { mechanism, density, ahead, page_us: 1.0, passes: vec![1.0] };
        let mut replays = vec![one(sync, 0.01, 0), one(sync, 0.01, 1), one(sync, 0.01, 4)];
        replays.extend([one(sync, 0.5, 0), one(sync, 0.5, 4), one(plain, 0.5, 0), one(sync, 1.0, 1)]);
        whole(&mut replays, &[sync]);
        let left: Vec<_> = replays.iter().map(|one| (one.mechanism, one.density, one.ahead)).collect();
        assert_eq!(left, [(sync, 0.01, 0), (sync, 0.01, 1), (sync, 0.01, 4), (plain, 0.5, 0)]);
    }

    #[test]
    fn no_bytes_go_to_replays_that_say_nothing_new() {
        let of = |mechanisms: &[Mechanism], wanted: Mechanism| -> Vec<u32> {
            let jobs = jobs(mechanisms, 0.5, &AHEADS);
            jobs.iter().filter(|job| job.mechanism == wanted).map(|job| job.ahead).collect()
        };
        let workers = Mechanism::Workers { workers: 3 };
        assert_eq!(of(&[Mechanism::Advice], Mechanism::Advice), AHEADS);
        assert_eq!(of(&[workers], workers), AHEADS[..8]);
        assert_eq!(of(&[workers], Mechanism::Advice), [0]);
        assert_eq!(of(&[Mechanism::IoUring], Mechanism::IoUring), AHEADS[..8]);
        assert_eq!(of(&[workers, Mechanism::IoUring], Mechanism::IoUring), BESIDE);
        // What has no beginning to be made is kept without it.
        let one = |mechanism, ahead| Replay { mechanism, density: 0.5, ahead, page_us: 1.0, passes: vec![] };
        let mut replays = vec![one(workers, 0), one(workers, 1), one(Mechanism::IoUring, 16)];
        whole(&mut replays, &[workers, Mechanism::IoUring]);
        assert_eq!(replays.len(), 3);
    }

    #[test]
    fn what_differs_most_is_made_again_first_as_far_as_there_are_bytes() {
        let all = jobs(&[Mechanism::Advice], 0.5, &[0, 1, 4, 16, 64]);
        let passes: [&[f64]; 5] =
            [&[10.0, 30.0], &[10.0, 11.0], &[10.0, 20.0], &[10.0, 40.0], &[10.0, 30.0, 11.0]];
        let replays: Vec<Replay> = all
            .iter()
            .zip(passes)
            .map(|(Job { mechanism, density, ahead, .. }, passes)| Replay {
                mechanism: *mechanism,
                density: *density,
                ahead: *ahead,
                page_us: 1.0,
                passes: passes.to_vec(),
            })
            .collect();
        let aheads =
            |room| -> Vec<u32> { differing(&replays, &all, room).into_iter().map(|job| job.ahead).collect() };
        // That without advice takes four times the bytes; of three passes one is forgiven.
        assert_eq!(aheads(6.0), [16, 0, 4]);
        assert_eq!(aheads(4.5), [16, 4]);
        assert_eq!(aheads(0.9), [] as [u32; 0]);
        assert_eq!(aheads(f64::NAN), [] as [u32; 0]);
        // Of what there is no replay yet, or one pass only, that comes first.
        let all = jobs(&[Mechanism::Advice], 0.5, &[0, 1, 4, 16, 64, 256]);
        let first: Vec<u32> = differing(&replays, &all, 1.0).into_iter().map(|job| job.ahead).collect();
        assert_eq!(first, [256]);
    }
}
