//! The threads of a load while rows are sent: the reader, the lanes, and those that watch them.

use crate::ahead::{self, Line, Lines, Opening};
use crate::job::Job;
use crate::lag;
use crate::lane::Lane;
use crate::levers;
use crate::options::Options;
use crate::reader::{self, ReaderReport};
use crate::session::Session;
use crate::walwriter;
use inrush_core::{Code, Error, Limits, Result};
use inrush_profile::{Class, ClassTimes, SamplerOptions};
use inrush_sink::ledger::RangeDone;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

/// What is left when all have ended.
pub(crate) struct Worked {
    pub read: ReaderReport,
    /// The sessions of the lanes that came to their end, and what drives them. Closing one keeps a processor of the
    /// server busy for some time (it unmaps the buffers it has seen): that can wait until nobody waits for the load.
    pub sessions: Vec<(Session, Runtime)>,
}

/// Runs the reader and the lanes until all input is dealt with or something fails.
///
/// The first lanes take `lines` as long as there are some. `client`, driven by `runtime`, is the control connection: it
/// keeps the WAL writer at work meanwhile.
pub(crate) fn work(
    job: &Job,
    options: &Options,
    done: &[RangeDone],
    lines: &mut Lines,
    notice: &(dyn Fn(&str) + Sync),
    runtime: &Runtime,
    client: &Client,
) -> Worked {
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("inrush reader".into()).spawn_scoped(scope, || {
            reader::read(job, done).unwrap_or_else(|error| {
                job.fail(error);
                ReaderReport::default()
            })
        });
        if let Some(max_lag) = job.plan.max_lag {
            scope.spawn(move || {
                if let Err(error) = lag::watch(job, max_lag, notice) {
                    job.progress.pause(false);
                    notice(&format!("--max-lag watches no longer: {}", error.fact()));
                }
            });
        }
        if job.plan.spread.is_some() {
            scope.spawn(move || pass_on(job, notice));
        }
        if options.levers.fast {
            scope.spawn(move || choose(job, options, notice));
        }
        if let Some(hz) = job.plan.sample_hz {
            scope.spawn(move || sample(job, hz, notice));
        }
        // Where rows go to nodes, the coordinator has little WAL to write.
        if !job.plan.table.unlogged && job.plan.spread.is_none() {
            scope.spawn(move || runtime.block_on(walwriter::nudge(client, job)));
        }
        let first = job.plan.jobs.unwrap_or_else(|| {
            let lanes = starting_lanes(&job.plan.limits);
            // Each has a session on every node: those are what stores.
            let nodes = job.plan.spread.as_ref().map_or(1, |spread| spread.aim.topology.nodes.len());
            lanes.div_ceil(nodes.max(1))
        });
        job.fit_queue(first);
        let mut lanes = Vec::new();
        for number in 0..first {
            match spawn_lane(scope, job, number, lines.take()) {
                Ok(lane) => lanes.push(lane),
                Err(error) => job.fail(error),
            }
        }
        lines.close();
        if job.plan.jobs.is_none() {
            climb(scope, job, &mut lanes);
        }
        let mut sessions = Vec::new();
        for lane in lanes {
            match lane.join() {
                Ok(session) => sessions.extend(session),
                Err(_) => job.fail(Error::new(Code::Internal, "a lane panicked")),
            }
        }
        job.queue.abandon();
        job.progress.over.store(true, Relaxed);
        job.end_nudges();
        job.progress.recorder.end();
        let read = match reader.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(report)) => report,
            _ => {
                job.fail(Error::new(Code::Internal, "the reader panicked or could not be started"));
                ReaderReport::default()
            }
        };
        Worked { read, sessions }
    })
}

/// Tells the user what lanes have to say, until they have ended.
fn pass_on(job: &Job, notice: &(dyn Fn(&str) + Sync)) {
    let mut said = 0;
    while !job.progress.over.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        let new = job.told(said);
        said += new.len();
        new.iter().for_each(|what| notice(what));
    }
}

/// Chooses levers by what the first seconds show. That nothing comes of it does not stop the load.
fn choose(job: &Job, options: &Options, notice: &(dyn Fn(&str) + Sync)) {
    let Ok(runtime) = ahead::runtime() else { return };
    match runtime.block_on(levers::after_first_seconds(job, options, notice)) {
        Ok(pulled) => {
            for pulled in &pulled {
                notice(&format!("--{}: {}", pulled.lever, pulled.what));
            }
            job.keep_pulled(pulled);
        }
        Err(error) => notice(&format!("--fast chooses nothing more: {}", error.fact())),
    }
}

/// Samples what the lanes' backends wait for, until the lanes have ended. The load goes on without if that is not
/// possible.
fn sample(job: &Job, hz: u32, notice: &(dyn Fn(&str) + Sync)) {
    // A connection costs a few milliseconds of both processors: a load that is over by then is not slowed down.
    let options =
        SamplerOptions { hz, after: Duration::from_millis(100), application: "inrush load: sampler" };
    let progress = &job.progress;
    let counted = || (progress.bytes_in.load(Relaxed), progress.rows.load(Relaxed));
    if let Err(error) = inrush_profile::run(&progress.recorder, &job.conninfo, &options, &counted, notice) {
        tracing::debug!(%error, "the load is not sampled");
    }
}

/// Lanes to begin with when none were asked for: the processors this machine has, at most four.
pub(crate) fn starting_lanes(limits: &Limits) -> usize {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    cores.clamp(1, 4).min(limits.max_jobs.max(1))
}

type LaneHandle<'scope> = std::thread::ScopedJoinHandle<'scope, Option<(Session, Runtime)>>;

fn spawn_lane<'scope, 'env>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    job: &'env Job,
    number: usize,
    early: Option<Opening>,
) -> Result<LaneHandle<'scope>> {
    std::thread::Builder::new()
        .name(format!("inrush lane {number}"))
        .spawn_scoped(scope, move || {
            run_lane(job, number, early).unwrap_or_else(|error| {
                job.fail(error);
                None
            })
        })
        .map_err(|e| Error::new(Code::Internal, format!("cannot start a thread: {e}")))
}

/// Works until there is nothing more to do. Gives the session, if the lane has come to its end with it.
fn run_lane(job: &Job, number: usize, early: Option<Opening>) -> Result<Option<(Session, Runtime)>> {
    let (early, runtime) = match early.and_then(Opening::line) {
        Some(Line { connected, runtime }) => (Some(connected), runtime),
        None => (None, ahead::runtime()?),
    };
    let session = runtime.block_on(async {
        let mut lane = match Lane::connect(job, number, early).await {
            // Nobody asked for this many connections, and the server has no more: the others do the work.
            Err(error) if number > 0 && job.plan.jobs.is_none() && no_more_connections(&error) => {
                return Ok(None);
            }
            other => other?,
        };
        job.progress.lanes.fetch_add(1, Relaxed);
        lane.run().await?;
        if job.plan.atomic {
            lane.finish_atomic().await?;
        }
        Ok(Some(lane.session))
    })?;
    Ok(session.map(|session| (session, runtime)))
}

/// Whether the server, the database or the role has no connection left (53300 too_many_connections).
fn no_more_connections(error: &Error) -> bool {
    error.sqlstate_text() == Some("53300")
}

/// Of backend time, what may go to waits for each other before a lane that brought nothing is given up again.
const CONTENTION: f64 = 0.3;

/// Share of backend time that went to locks and WAL since `before`: more lanes only wait longer for each other.
fn contention(now: &ClassTimes, before: &ClassTimes) -> f64 {
    let times = now.since(before);
    let sum = times.sum();
    let waits = times.of(Class::ExtendLock) + times.of(Class::Lock) + times.of(Class::Wal);
    if sum > 0.0 { waits / sum } else { 0.0 }
}

/// Adds lanes while the throughput grows by it: each is given two seconds to show that it helps. The last one is given
/// up again if it brought nothing and the lanes wait for each other in the server.
fn climb<'scope, 'env>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    job: &'env Job,
    lanes: &mut Vec<LaneHandle<'scope>>,
) {
    const STEP: Duration = Duration::from_secs(2);
    let mut before = 0.0;
    let mut mark = (Instant::now(), job.progress.bytes_in.load(Relaxed));
    let mut times = job.progress.recorder.times();
    let mut added = false;
    while lanes.iter().any(|lane| !lane.is_finished()) {
        std::thread::sleep(Duration::from_millis(20));
        if mark.0.elapsed() < STEP {
            continue;
        }
        let now = job.progress.bytes_in.load(Relaxed);
        #[allow(clippy::cast_precision_loss)] // a rate, for comparison
        let rate = now.saturating_sub(mark.1) as f64 / mark.0.elapsed().as_secs_f64();
        mark = (Instant::now(), now);
        // A lane more is worth it when the one before brought a tenth more and the reader is ahead.
        let helps = rate > before * 1.1;
        if !helps || lanes.len() >= job.plan.limits.max_jobs || !job.queue.is_backed_up() {
            let waits = contention(&job.progress.recorder.times(), &times);
            if added && rate < before * 1.02 && waits > CONTENTION {
                tracing::debug!(rate, before, waits, "a lane is given up");
                job.retire_a_lane();
            }
            if !helps {
                return;
            }
            continue;
        }
        before = rate;
        times = job.progress.recorder.times();
        added = true;
        match spawn_lane(scope, job, lanes.len(), None) {
            Ok(lane) => {
                lanes.push(lane);
                job.fit_queue(lanes.len());
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_is_that_of_the_last_step() {
        let mut before = ClassTimes::default();
        before.add(Class::ExtendLock, 10.0);
        let mut now = before;
        now.add(Class::Cpu, 3.0);
        now.add(Class::Wal, 1.0);
        assert!((contention(&now, &before) - 0.25).abs() < 1e-9);
        assert!(contention(&now, &now).abs() < 1e-9);
    }
}
