//! What a storage does, asked through the server alone: for clients on another machine and for managed
//! services.
//!
//! A trial reads pages that nobody has read lately: rows of keys picked at random, by a bitmap heap scan, at
//! one effective_io_concurrency. What it took for each page that was not in shared_buffers is that of the
//! heap part of the plan alone; the index is read page by page whatever the setting. Trials follow each other
//! in an order that tells a drift from a difference (ABBA). Whether pages came from the storage or from the
//! page cache of a machine that cannot be seen is told by what they take, some of them read alone, and by
//! whether the passes agree; where that cannot be told, nothing is.

mod candidate;
mod judge;
mod keys;
mod session;
mod trial;

use super::measured::{Measured, PAGE, Stop, StopReason};
use super::report::Server;
use candidate::Candidate;
use inrush_core::{Code, Error, Result};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use judge::{
    Around, Trials, interrupted, judge_alone, judge_first, measured, steady, too_few, without_read_ahead,
};
use keys::Keys;
use session::Session;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trial::{Reader, Trial};

/// Values of effective_io_concurrency that are tried, by how much they tell: what is left out when time is up
/// is last.
const TRIED: [u32; 9] = [0, 16, 1, 64, 4, 256, 32, 8, 128];

/// Trials of each value.
const PASSES: usize = 3;

/// Trials of each value where those without read-ahead do not agree: machines are shared.
const MOST_PASSES: usize = 5;

/// A trial reads this share of a table's pages: fifty of them leave most of it untouched.
const SHARE: f64 = 0.004;

/// Pages of a trial: fewer say nothing, and more are not needed.
const PAGES: std::ops::RangeInclusive<u64> = 100..=1_500;

/// Pages that are read alone, one statement each.
const ALONE: u64 = 32;

/// What one pass over all values may take, as a share of the time, if nothing is faster than one read at a
/// time.
const PASS_SHARE: f64 = 0.25;

/// A trial that takes so many times as long as one read at a time would, reads something else.
const PATIENCE: f64 = 10.0;

/// What a probe through the server may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The table to read from, as SQL names it; `None`: the largest that is fit for it.
    pub table: Option<String>,
    /// Seconds in all.
    pub seconds: f64,
    /// Bytes to be read in all.
    pub read_bytes: u64,
}

impl Plan {
    fn time_is_over(&self) -> String {
        format!("{:.0} s were over", self.seconds)
    }
}

/// Measures by reading from a table, in a session of its own. The name of its tablespace comes with the
/// figures. `ended` is looked at between trials, and a trial that runs is cancelled; what was measured by
/// then counts if it is enough.
///
/// # Errors
/// `server` where no table is fit, or nothing can be told: why, and what would help; `interrupted`.
pub async fn run(
    conninfo: &ConnInfo,
    server: &Server,
    plan: &Plan,
    ended: &AtomicBool,
    tell: &mut dyn FnMut(f64, &str),
) -> Result<(String, Measured)> {
    let began = Instant::now();
    let session = Session::open(conninfo, ended).await?;
    let at = now(session.client()).await?;
    let found = candidate::find(&session, plan, seconds(plan.seconds)).await;
    let candidate = found.map_err(|error| if session.ended() { interrupted() } else { error })?;
    let most = most_pages(&candidate, plan)?;
    let reader = Reader::new(&session, &candidate).await?;
    let reads_before = all_reads(session.client()).await?;
    let seed = u64::from(candidate.oid) ^ nanoseconds();
    let mut run = Run {
        plan,
        reader,
        keys: Keys::new(&candidate, most.div_ceil(candidate.rows_per_key).max(ALONE), seed),
        began,
        reads: 0,
        stop: None,
    };
    let mut trials = Trials::new();
    run.all(most, &mut trials, tell).await?;
    let (ours, stop) = (run.reads, run.stop);
    // Of a session that does not even react to a request to cancel nothing more is to be had.
    let Ok(reads) = tokio::time::timeout(session::PATIENCE, all_reads(session.client())).await else {
        return Err(too_few(plan, stop.as_ref()));
    };
    let foreign = reads?.saturating_sub(reads_before).saturating_sub(ours);
    let around = Around { ours, foreign };
    judge::judge(plan, &mut trials, around, stop.as_ref())?;
    let mut measured = measured(server, &candidate, &trials, at, began.elapsed(), around);
    measured.stopped = stop;
    Ok((candidate.tablespace.clone(), measured))
}

/// A run, as far as it has come.
struct Run<'a> {
    plan: &'a Plan,
    reader: Reader<'a>,
    keys: Keys<'a>,
    began: Instant,
    /// Pages that were read.
    reads: u64,
    /// Why it is over before all was measured.
    stop: Option<Stop>,
}

impl Run<'_> {
    /// All trials, until the time, the bytes or the user's patience are at their end.
    #[allow(clippy::cast_precision_loss)] // trials
    async fn all(&mut self, most: u64, trials: &mut Trials, tell: &mut dyn FnMut(f64, &str)) -> Result<()> {
        let candidate = self.reader.candidate;
        let table = candidate.table.clone();
        tell(0.0, &format!("reading {} pages of {table} to see how fast it is", *PAGES.start()));
        let few = *PAGES.start();
        let (asked, first) = self.trial(0, few, f64::INFINITY).await?;
        let Some(first) = first else { return Err(too_few(self.plan, self.stop.as_ref())) };
        judge_first(candidate, asked, &first)?;
        let page_us = first.scan_us / first.pages.max(1) as f64;
        if !self.alone(page_us).await? {
            return Err(too_few(self.plan, self.stop.as_ref()));
        }
        let pages = pages_in_time(self.plan, page_us).min(most);
        let text = format!("reading {pages} pages at random from {table} at each setting");
        let mut done = 0;
        for pass in 0..MOST_PASSES {
            if pass >= PASSES && steady(&without_read_ahead(trials)).is_ok() {
                break;
            }
            let mut order = TRIED;
            if pass % 2 == 1 {
                order.reverse();
            }
            for concurrency in order {
                let share = f64::from(done) / (TRIED.len() * PASSES) as f64;
                tell(
                    share.min(1.0),
                    if pass < PASSES { &text } else { "the passes differ: reading once more" },
                );
                let (_, trial) = self.trial(concurrency, pages, page_us).await?;
                let Some(trial) = trial else { return Ok(()) };
                trials.entry(concurrency).or_default().push(trial);
                done += 1;
            }
        }
        // What others have read meanwhile may be in a cache by now.
        self.alone(page_us).await.map(drop)
    }

    /// A trial, and the number of its keys; none where the run is over. A page is expected to take `page_us`.
    #[allow(clippy::cast_precision_loss)] // pages
    async fn trial(&mut self, concurrency: u32, pages: u64, page_us: f64) -> Result<(usize, Option<Trial>)> {
        let wanted = pages.div_ceil(self.reader.candidate.rows_per_key);
        if self.over(pages) {
            return Ok((0, None));
        }
        let keys = self.next(wanted)?;
        let limit = self.limit(page_us * pages as f64);
        let trial = self.reader.read(concurrency, &keys, limit).await;
        let trial = self.unless_stopped(trial, concurrency, limit)?;
        self.reads += trial.map_or(0, |trial| trial.reads);
        Ok((keys.len(), trial))
    }

    /// Reads pages one by one, and refuses those of a cache. Whether there was time for it.
    #[allow(clippy::cast_precision_loss)] // pages
    async fn alone(&mut self, page_us: f64) -> Result<bool> {
        if self.over(ALONE) {
            return Ok(false);
        }
        let keys = self.next(ALONE)?;
        let limit = self.limit(page_us * ALONE as f64);
        let alone = self.reader.read_each(&keys, limit).await;
        let Some(alone) = self.unless_stopped(alone, 0, limit)? else { return Ok(false) };
        self.reads += alone.iter().map(|trial| trial.reads).sum::<u64>();
        judge_alone(&alone)?;
        Ok(true)
    }

    fn next(&mut self, wanted: u64) -> Result<Vec<i64>> {
        let keys = self.keys.take(wanted).unwrap_or_default();
        if keys.len() as u64 * 2 >= wanted {
            return Ok(keys);
        }
        let Candidate { table, column, .. } = self.reader.candidate;
        let fact =
            format!("cannot tell: {column} of {table} has too few values for trials of different ones");
        Err(Error::new(Code::Server, fact).hint("Another table can be named with --table."))
    }

    /// How long a statement may take that should take so many microseconds.
    fn limit(&self, expected_us: f64) -> Duration {
        let left = (self.plan.seconds - self.began.elapsed().as_secs_f64()).max(0.1);
        // The first trial may take what a pass may.
        let most = if expected_us.is_finite() {
            (expected_us * PATIENCE / 1e6).max(2.0)
        } else {
            self.plan.seconds * PASS_SHARE
        };
        seconds(left.min(most))
    }

    /// Whether there is nothing left to spend.
    #[allow(clippy::cast_precision_loss)] // bytes
    fn over(&mut self, pages: u64) -> bool {
        let left = self.plan.seconds - self.began.elapsed().as_secs_f64();
        let (reason, text) = if self.reader.session.ended() {
            (StopReason::Interrupted, "it was interrupted".to_owned())
        } else if left <= 0.2 {
            (StopReason::Time, self.plan.time_is_over())
        } else if (self.reads + pages) * PAGE > self.plan.read_bytes {
            (StopReason::Bytes, format!("{:.0} MB had been read", (self.reads * PAGE) as f64 / 1e6))
        } else {
            return false;
        };
        self.stop = Some(Stop { reason, text });
        true
    }

    /// A statement that was cancelled ends the run, and is no error.
    fn unless_stopped<T>(
        &mut self,
        result: Result<T>,
        concurrency: u32,
        limit: Duration,
    ) -> Result<Option<T>> {
        match result {
            Ok(done) => return Ok(Some(done)),
            Err(_) if self.reader.session.ended() => {
                self.stop =
                    Some(Stop { reason: StopReason::Interrupted, text: "it was interrupted".to_owned() });
            }
            // query_canceled: by statement_timeout, if nobody else has asked for it.
            Err(error) if error.sqlstate_text() == Some("57014") => {
                let text = format!(
                    "a trial at effective_io_concurrency = {concurrency} was not done within {:.1} s",
                    limit.as_secs_f64()
                );
                self.stop = Some(Stop { reason: StopReason::Time, text });
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}

/// Pages of a trial at most: few of those there are, and of the bytes that may be read.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // pages
fn most_pages(candidate: &Candidate, plan: &Plan) -> Result<u64> {
    // With the pages of the index, which are about as many if each row has one of its own.
    let bytes = plan.read_bytes / PAGE / (2 * TRIED.len() * MOST_PASSES) as u64;
    let pages = ((candidate.pages as f64 * SHARE) as u64).min(*PAGES.end()).min(bytes);
    if pages >= *PAGES.start() {
        return Ok(pages);
    }
    let fact = format!(
        "cannot tell: {} has {} pages, too few for trials on disjoint parts",
        candidate.table, candidate.pages
    );
    let least = (*PAGES.start() as f64 / SHARE) as u64;
    Err(Error::new(Code::Server, fact)
        .hint(format!("Through the server a table of at least {least} pages is needed.")))
}

/// Pages of a trial so that a pass is over in its share of the time, if no setting helps.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // pages
fn pages_in_time(plan: &Plan, page_us: f64) -> u64 {
    let trial_us = plan.seconds * PASS_SHARE * 1e6 / TRIED.len() as f64;
    ((trial_us / page_us.max(1.0)) as u64).clamp(*PAGES.start(), *PAGES.end())
}

/// So many seconds, at least a tenth and at most a day.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.1, 86_400.0) } else { 86_400.0 })
}

fn nanoseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs().rotate_left(32) ^ u64::from(since.subsec_nanos()))
}

/// Pages that all sessions have had read into shared_buffers so far.
async fn all_reads(client: &Client) -> Result<u64> {
    // Own figures come in with the end of a transaction, at most once a second.
    let sql =
        "SELECT coalesce(pg_catalog.sum(d.blks_read), 0)::pg_catalog.int8 FROM pg_catalog.pg_stat_database d";
    let row = client.query_one(sql, &[]).await.map_err(server_error)?;
    Ok(row.try_get::<_, i64>(0).map_err(server_error)?.unsigned_abs())
}

async fn now(client: &Client) -> Result<String> {
    let sql = "SELECT pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.now()), \
                                         'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    client.query_one(sql, &[]).await.map_err(server_error)?.try_get(0).map_err(server_error)
}

#[cfg(test)]
mod tests {
    use super::candidate::made_up;
    use super::*;

    fn plan() -> Plan {
        Plan { table: None, seconds: 60.0, read_bytes: 2_000_000_000 }
    }

    #[test]
    fn trials_read_little_of_a_table_and_enough_to_tell() {
        assert_eq!(most_pages(&made_up(100_000), &plan()).unwrap(), 400);
        assert_eq!(most_pages(&made_up(10_000_000), &plan()).unwrap(), 1_500);
        assert!(most_pages(&made_up(10_000), &plan()).unwrap_err().to_string().contains("cannot tell"));
        let little = Plan { read_bytes: 1 << 20, ..plan() };
        assert!(most_pages(&made_up(10_000_000), &little).is_err());
    }

    #[test]
    fn trials_fit_into_the_time() {
        // 9 trials of 277 pages at 6 ms: 15 s.
        assert_eq!(pages_in_time(&plan(), 6_000.0), 277);
        assert_eq!(pages_in_time(&plan(), 60.0), 1_500);
        assert_eq!(pages_in_time(&plan(), 60_000.0), 100);
    }

    #[test]
    fn trials_are_no_more_than_there_are_slots() {
        assert!(MOST_PASSES * TRIED.len() + 3 <= usize::try_from(keys::MOST_TRIALS).unwrap());
    }
}
