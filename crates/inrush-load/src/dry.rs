//! `--dry-run`: everything but the server. Reads, cuts, decodes and encodes all input against the table that
//! the sample asks for, and reports what it found.

use crate::columnar::ColumnFeed;
use crate::feed::{Feed, Place, Refusal, Sent};
use crate::inputs::{Opened, table_name};
use crate::job::{Job, Work};
use crate::options::{LedgerChoice, Options};
use crate::plan::{Plan, ServerFacts};
use crate::progress::{Progress, Stop, add_time};
use crate::queue::Popped;
use crate::reader::{self, ReaderReport};
use crate::report::{Failure, Outcome, Report};
use crate::run::Finished;
use crate::target;
use inrush_core::{Code, Error, Result};
use inrush_sink::catalog::TableName;
use inrush_sink::conninfo::ConnInfo;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Decodes and encodes all input without a server.
///
/// Values the encoder is not sure of are counted, not judged: only the server knows them.
pub fn dry_run(options: &Options, progress: Arc<Progress>) -> Result<Finished> {
    let specs = inrush_source::expand(&options.sources)?;
    let name = match &options.table {
        Some(name) => TableName::parse(name)?,
        None => TableName::parse(&table_name(&specs).unwrap_or_else(|_| "input".to_owned()))?,
    };
    let opened = Opened::default();
    let columns = target::columns_of(options, &specs, &opened)?;
    let facts =
        ServerFacts { session: inrush_encode::Session::default(), server_encoding: "UTF8".to_owned() };
    // Nothing is recorded, and nothing is atomic where nothing is stored: all processors may work.
    let options = Options { ledger: LedgerChoice::Schema(String::new()), atomic: false, ..options.clone() };
    let mut plan = Plan::new(&options, target::imagined(&name, &columns), &specs, &opened, &facts)?;
    plan.jobs =
        Some(options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |n| n.get())));
    progress.bytes_total.store(plan.inputs.iter().filter_map(|i| i.stored_len()).sum(), Relaxed);
    let job = Job::new(plan, progress, ConnInfo::unix("", 0, "", ""), None);
    let lanes = job.plan.jobs.unwrap_or(1);
    job.fit_queue(lanes);
    let ReaderReport { ignored, .. } = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            reader::read(&job, &[]).unwrap_or_else(|error| {
                job.fail(error);
                ReaderReport::default()
            })
        });
        let lanes: Vec<_> = (0..lanes)
            .map(|_| {
                scope.spawn(|| {
                    job.progress.lanes.fetch_add(1, Relaxed);
                    if let Err(error) = lane(&job) {
                        job.fail(error);
                    }
                })
            })
            .collect();
        for lane in lanes {
            if lane.join().is_err() {
                job.fail(Error::new(Code::Internal, "a lane panicked"));
            }
        }
        job.queue.abandon();
        reader.join().unwrap_or_default()
    });
    let mut error = job.take_failure();
    let records = job.progress.records.load(Relaxed);
    if error.is_none() {
        error = job.rejects.judge(records).err();
    }
    let mut report = Report::new(&options, &job.plan, &job.progress, "");
    report.dry_run = true;
    for (name, bytes) in ignored {
        report.notes.push(format!("{name}: {bytes} bytes after the end-of-data marker \\. were not read"));
    }
    report.outcome = match &error {
        Some(_) => Outcome::Failed,
        None if job.progress.stopping() != Stop::No => Outcome::Interrupted,
        None if report.totals.rejects > 0 => Outcome::LoadedWithRejects,
        None => Outcome::Loaded,
    };
    report.error = error.as_ref().map(Failure::from);
    Ok(Finished { report, error })
}

fn lane(job: &Job) -> Result<()> {
    let mut feeds: HashMap<u32, Feed> = HashMap::new();
    let mut column_feeds: HashMap<u32, ColumnFeed> = HashMap::new();
    let (mut out, mut side) = (Vec::new(), Vec::new());
    while let Popped::Item(work, _permit) = job.queue.pop(None) {
        let started = Instant::now();
        let records = job.progress.records.load(Relaxed);
        match work {
            Work::TooLong { reject, .. } => {
                job.progress.records.fetch_add(1, Relaxed);
                job.progress.rejects.fetch_add(1, Relaxed);
                job.rejects.add(&reject, records + 1)?;
                job.rejects.keep(vec![reject]);
            }
            Work::Rows(rows) => {
                let feed = match column_feeds.entry(rows.input) {
                    std::collections::hash_map::Entry::Occupied(feed) => feed.into_mut(),
                    std::collections::hash_map::Entry::Vacant(place) => {
                        place.insert(ColumnFeed::new(&job.plan, &job.plan.inputs[rows.input as usize])?)
                    }
                };
                let (as_text, bytes) = feed.rehearse(&rows)?;
                job.progress.rows_as_text.fetch_add(as_text, Relaxed);
                job.progress.bytes_out.fetch_add(bytes, Relaxed);
                job.progress.rows.fetch_add(rows.end - rows.start, Relaxed);
                job.progress.read(rows.bytes, rows.end - rows.start);
            }
            Work::Chunk(chunk) => {
                let feed = match feeds.entry(chunk.input) {
                    std::collections::hash_map::Entry::Occupied(feed) => feed.into_mut(),
                    std::collections::hash_map::Entry::Vacant(place) => {
                        place.insert(Feed::new(&job.plan, &job.plan.inputs[chunk.input as usize])?)
                    }
                };
                feed.begin(&chunk.bytes);
                let (mut rows, mut read, mut rejects) = (0, 0, Vec::new());
                while let Some(step) = feed.next(&chunk.bytes) {
                    read += 1;
                    match step.result {
                        Ok(()) => {
                            rows += 1;
                            if feed.encode(&chunk.bytes, &mut out, &mut side) == Sent::Side {
                                job.progress.rows_as_text.fetch_add(1, Relaxed);
                                side.clear();
                            }
                            if out.len() > 1 << 20 {
                                job.progress.bytes_out.fetch_add(out.len() as u64, Relaxed);
                                out.clear();
                            }
                        }
                        Err(bad) => {
                            let place = Place { record: read - 1, range: step.range };
                            let reject = feed.reject(&chunk, &place, Refusal::Decoder(&bad));
                            job.rejects.add(&reject, records + read)?;
                            rejects.push(reject);
                        }
                    }
                }
                job.progress.rows.fetch_add(rows, Relaxed);
                job.progress.records.fetch_add(read, Relaxed);
                job.progress.rejects.fetch_add(rejects.len() as u64, Relaxed);
                job.progress.bytes_in.fetch_add(chunk.bytes.len() as u64, Relaxed);
                job.rejects.keep(rejects);
                job.plan.recycle(chunk);
            }
        }
        add_time(&job.progress.encode_nanos, started.elapsed());
    }
    Ok(())
}
