//! The reader thread: inputs in order, cut into chunks, into the queue.

use crate::inputs::InputPlan;
use crate::job::{Job, Work};
use crate::progress::{Stop, add_time};
use inrush_core::{Code, Error, Position, Reject, RejectOrigin, Result};
use inrush_sink::ledger::RangeDone;
use inrush_source::{Borders, Cut, Cutter, DoneRange, DropBehind, TooLong};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What the reader has to tell beside chunks.
#[derive(Debug, Default)]
pub(crate) struct ReaderReport {
    /// Bytes behind an end-of-data marker, per input.
    pub ignored: Vec<(String, u64)>,
    /// Inputs that were written to while they were read.
    pub changed: Vec<String>,
}

/// Reads all inputs but the ranges in `done` and closes the queue.
pub(crate) fn read(job: &Job, done: &[RangeDone]) -> Result<ReaderReport> {
    let mut report = ReaderReport::default();
    let mut rate = job.plan.max_rate.map(Rate::new);
    let mut before = 0;
    for (number, plan) in job.plan.inputs.iter().enumerate() {
        let number =
            u32::try_from(number).map_err(|_| Error::new(Code::Usage, "more inputs than a load can have"))?;
        let ranges: Vec<DoneRange> = done
            .iter()
            .filter(|r| r.input == number)
            .map(|r| DoneRange { start: r.start, end: r.end, lines: r.lines, records: r.records })
            .collect();
        before = read_input(job, number, plan, ranges, before, &mut rate, &mut report)?;
        if job.progress.stopping() != Stop::No {
            break;
        }
    }
    job.queue.close();
    Ok(report)
}

fn read_input(
    job: &Job,
    number: u32,
    plan: &InputPlan,
    ranges: Vec<DoneRange>,
    before: u64,
    rate: &mut Option<Rate>,
    report: &mut ReaderReport,
) -> Result<u64> {
    if let Some(columnar) = &plan.columnar {
        return crate::columnar::read(job, number, plan, columnar, ranges, before, rate);
    }
    let borders = Borders::of(&plan.format)
        .ok_or_else(|| Error::new(Code::Internal, format!("{} is not cut by bytes", plan.name)))?;
    let input = plan.open(&job.plan.limits)?;
    let consumed = input.consumed();
    let mut cutter =
        Cutter::new(input, number, borders, plan.header, &job.plan.limits)?.with_pool(job.plan.pool.clone());
    cutter.skip(ranges)?;
    let mut behind = job.plan.drop_cache.then(|| DropBehind::of(&plan.spec)).flatten();
    loop {
        let started = Instant::now();
        let cut = cutter.next()?;
        add_time(&job.progress.read_nanos, started.elapsed());
        job.progress.bytes_read.store(before + consumed.get(), Relaxed);
        if let Some(behind) = &mut behind {
            behind.read_up_to(consumed.get());
        }
        let (work, bytes) = match cut {
            Some(Cut::Chunk(chunk)) => {
                let bytes = chunk.bytes.len();
                (Work::Chunk(chunk), bytes)
            }
            Some(Cut::TooLong(long)) => {
                let bytes = long.head.len();
                (too_long(plan, long, job.plan.limits.max_record), bytes)
            }
            None => break,
        };
        if !hand_over(job, rate, work, bytes as u64, bytes) {
            break;
        }
    }
    if let Some(ignored) = cutter.ignored()
        && ignored.len > 0
    {
        report.ignored.push((plan.name.clone(), ignored.len));
    }
    if plan.identity.unchanged().is_err() {
        report.changed.push(plan.name.clone());
    }
    Ok(before + plan.stored_len().unwrap_or_else(|| consumed.get()))
}

/// Gives a piece of input to the lanes, as soon as rate, pauses and queue allow. False: the load stops.
pub(crate) fn hand_over(job: &Job, rate: &mut Option<Rate>, work: Work, bytes: u64, weight: usize) -> bool {
    if let Some(rate) = rate {
        rate.wait_for(bytes, || job.progress.stopping() != Stop::No);
    }
    while job.progress.is_paused() && job.progress.stopping() == Stop::No {
        std::thread::sleep(Duration::from_millis(20));
    }
    job.progress.stopping() == Stop::No && job.queue.push(work, weight).is_ok()
}

fn too_long(plan: &InputPlan, long: TooLong, max_record: usize) -> Work {
    Work::TooLong {
        end: long.start + long.len,
        lines: long.lines,
        reject: Reject {
            input: long.input,
            position: Position {
                source: plan.name.clone(),
                byte: Some(long.start),
                line: plan.has_lines().then_some(long.first_line),
                record: Some(long.record),
                column: None,
            },
            sqlstate: "54000".into(),
            reason: format!("record of {} bytes is longer than --max-record ({max_record} bytes)", long.len),
            origin: RejectOrigin::Client,
            raw: long.head,
            full_len: Some(long.len),
        },
    }
}

/// Keeps to a number of bytes per second.
pub(crate) struct Rate {
    bytes_per_second: u64,
    next: Instant,
}

impl Rate {
    fn new(bytes_per_second: u64) -> Rate {
        Rate { bytes_per_second: bytes_per_second.max(1), next: Instant::now() }
    }

    /// Waits until `bytes` more may pass, or `give_up`.
    fn wait_for(&mut self, bytes: u64, give_up: impl Fn() -> bool) {
        let now = Instant::now();
        // Time not used is not saved up: the limit holds over every second, not on average.
        self.next = self.next.max(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        self.next += Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        while Instant::now() < self.next && !give_up() {
            let left = self.next.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
