//! A lane: one connection and the thread that feeds it.
//!
//! A lane takes chunks from the queue, gathers them into commit units, and sees each unit through: fast as
//! long as nothing goes wrong, again after a deadlock or a lost connection, and carefully (see `careful.rs`)
//! when the server refuses rows.

use crate::buffers::Buffers;
use crate::columnar::ColumnFeed;
use crate::copies::MainCopy;
use crate::feed::{End, Feed, Place, Refusal};
use crate::job::{Job, Work};
use crate::progress::{Stop, add_time};
use crate::queue::Popped;
use crate::session::{GONE, Session};
use crate::spread;
use crate::unit::{Held, Unit};
use inrush_cluster::Scatter;
use inrush_core::{Chunk, Code, Error, Result};
use inrush_profile::Stage;
use inrush_sink::connect::Connected;
use inrush_sink::failure::{Failure, server_error};
use inrush_sink::ledger::{RangeDone, UnitLedger};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Rows the encoder was not sure of are sent as text when this many bytes of them have gathered: they stay
/// in memory until then.
pub(crate) const SIDE_LIMIT: usize = 4 << 20;

/// A lane of a load.
pub(crate) struct Lane<'a> {
    pub job: &'a Job,
    pub session: Session,
    pub feeds: HashMap<u32, Feed>,
    pub column_feeds: HashMap<u32, ColumnFeed>,
    /// The main COPY that is open.
    pub copy: Option<MainCopy>,
    /// Bytes of a message that are worth sending.
    pub message: usize,
    number: usize,
    /// What the sampler knows of this lane.
    gauge: Gauge,
    /// Message under construction.
    pub out: Vec<u8>,
    pub buffers: Buffers,
    /// Rows for the COPY text beside the main COPY.
    pub side: Vec<u8>,
    /// Nodes that rows are sent to, where they are not sent to the table.
    pub spread: Option<Scatter>,
}

/// How a unit is being sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Fast,
    Careful { immediate: bool },
}

impl<'a> Lane<'a> {
    /// Connects a lane, unless its connection is there already, and records its backend.
    pub async fn connect(job: &'a Job, number: usize, early: Option<Connected>) -> Result<Lane<'a>> {
        let gauge = Gauge(job.progress.recorder.lanes.add());
        let session = match early {
            Some(connected) => Session::over(connected, job, &gauge.0).await.ok(),
            None => None,
        };
        let session = match session {
            Some(session) => session,
            // The server may have ended the early one since; another error comes again.
            None => Session::open(job, &gauge.0).await?,
        };
        let spread = spread::scatter(job, number, &session.connected.client).await?;
        Ok(Lane {
            spread,
            job,
            session,
            feeds: HashMap::new(),
            column_feeds: HashMap::new(),
            copy: None,
            message: job.plan.message(),
            number,
            gauge,
            out: Vec::new(),
            buffers: Buffers::default(),
            side: Vec::new(),
        })
    }

    /// Works until the queue is closed or the load is stopped.
    pub async fn run(&mut self) -> Result<()> {
        if self.job.plan.atomic {
            self.begin_atomic().await?;
        }
        while let Some(partial) = self.job.next_partial() {
            self.unit(Unit::mending(&partial)).await?;
        }
        loop {
            let waited = Instant::now();
            self.enter(Stage::Input);
            let popped = self.job.queue.pop(None);
            add_time(&self.job.progress.wait_nanos, waited.elapsed());
            match popped {
                Popped::Closed | Popped::Timeout => break,
                Popped::Item(work, permit) => {
                    let unit = Unit::new(work, permit, self.job.plan.unit_age());
                    self.unit(unit).await?;
                }
            }
            if self.job.progress.stopping() != Stop::No || self.job.is_surplus() {
                break;
            }
        }
        if let Some(spread) = &mut self.spread {
            spread.end(&self.session.connected.client).await;
        }
        Ok(())
    }

    /// Tells the sampler what this lane does from now on.
    pub fn enter(&self, stage: Stage) {
        self.gauge.0.enter(stage);
    }

    /// Sees one unit through to its commit.
    async fn unit(&mut self, mut unit: Unit) -> Result<()> {
        let mut mode = Mode::Fast;
        let mut live = unit.mends.is_none();
        let mut tries = 0;
        let mut refused = None;
        loop {
            let attempt = match mode {
                Mode::Fast => self.fast(&mut unit, live).await,
                Mode::Careful { immediate } => self.careful(&mut unit, immediate).await,
            };
            let failure = match attempt {
                Ok(()) => {
                    self.account(&mut unit);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            live = false;
            self.out.clear();
            self.side.clear();
            // The server stopped at the refused line; rows behind it were sent, but never stored.
            let dead = match &failure {
                Failure::Row(row) => row.line.map_or(unit.sent, |line| line.min(unit.sent)),
                _ => unit.sent,
            };
            self.job.progress.dead_rows.fetch_add(dead, Relaxed);
            let commit_sent = unit.commit_sent;
            match failure {
                Failure::Fatal(error) => {
                    self.roll_back().await;
                    return Err(error);
                }
                // Its savepoint would not be the (sub)transaction that emptied the table.
                Failure::Row(refusal) if self.job.plan.freeze => {
                    self.roll_back().await;
                    return Err(refusal.error.hint(
                        "Nothing was loaded: with --freeze a row that the server refuses cannot be left out. Repair it, \
                         or load without --freeze.",
                    ));
                }
                Failure::Row(refusal) => {
                    if self.roll_back().await {
                        // A refusal that only comes with COMMIT is a deferred constraint: check it early.
                        let immediate = commit_sent;
                        if mode == (Mode::Careful { immediate: true }) {
                            return Err(refusal.error);
                        }
                        mode = Mode::Careful { immediate };
                        refused = Some(refusal.error);
                    } else {
                        self.reconnect().await?;
                    }
                }
                Failure::Retry(error) => {
                    tries += 1;
                    if self.job.plan.atomic || tries > self.job.plan.limits.retries {
                        self.roll_back().await;
                        return Err(error);
                    }
                    if !self.roll_back().await {
                        self.reconnect().await?;
                    }
                    // Lanes that met in a deadlock must not meet again at once.
                    let pause = 20 * u64::from(tries) * (1 + self.number as u64 % 7);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                Failure::Lost(error) => {
                    tries += 1;
                    if self.job.plan.atomic || tries > self.job.plan.limits.retries {
                        // A refusal before the first row is read (a trigger of the statement) leaves a session
                        // that the driver cannot use, time and again: the refusal is what there is to say.
                        return Err(match refused {
                            Some(refused) if error.fact().contains("unexpected message") => refused,
                            _ => lost(&error, self.job),
                        });
                    }
                    // A node may be lost, and not the session that decides: then nothing is decided.
                    let here = self.spread.is_some() && self.session.execute("ROLLBACK").await.is_ok();
                    if !here {
                        self.reconnect().await?;
                    }
                    if commit_sent && !here && self.has_committed(&unit).await? {
                        match self.tell_spread(&mut unit).await {
                            Ok(()) => {
                                self.account(&mut unit);
                                return Ok(());
                            }
                            // Some nodes lack it: they are sent it again.
                            Err(Failure::Retry(_)) => {}
                            Err(failure) => return Err(failure.into_error()),
                        }
                    } else if let Some(spread) = &mut self.spread {
                        spread.roll_back().await;
                    }
                }
            }
            self.job.progress.retries.fetch_add(1, Relaxed);
            self.job.progress.records.fetch_sub(unit.records, Relaxed);
            self.job.progress.bytes_in.fetch_sub(unit.bytes, Relaxed);
            self.job.rejects.take_back(unit.counted);
            unit.forget_attempt();
            if self.job.progress.stopping() == Stop::Abort {
                return Err(interrupted());
            }
        }
    }

    /// Sends a unit with one COPY (or few), taking chunks from the queue while `live`.
    async fn fast(&mut self, unit: &mut Unit, live: bool) -> Result<(), Failure> {
        self.begin(unit).await?;
        let mut i = 0;
        loop {
            while i < unit.held.len() {
                if self.job.progress.stopping() == Stop::Abort {
                    return Err(Failure::Fatal(interrupted()));
                }
                self.send_held(unit, i).await?;
                i += 1;
            }
            let full = unit.input_bytes >= self.job.plan.unit_bytes();
            if !live || full || self.job.progress.stopping() != Stop::No {
                break;
            }
            let waited = Instant::now();
            self.enter(Stage::Input);
            let popped = self.job.queue.pop(unit.deadline);
            add_time(&self.job.progress.wait_nanos, waited.elapsed());
            match popped {
                Popped::Item(work, permit) => unit.hold(work, permit),
                Popped::Timeout | Popped::Closed => break,
            }
            if unit.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // The piece just taken belongs to this unit; it is the last one.
                while i < unit.held.len() {
                    self.send_held(unit, i).await?;
                    i += 1;
                }
                break;
            }
        }
        self.finish_copies(unit).await?;
        self.commit(unit).await
    }

    async fn send_held(&mut self, unit: &mut Unit, i: usize) -> Result<(), Failure> {
        let placeholder =
            Held::Range { input: 0, start: 0, end: 0, first_line: 0, first_record: 0, records: 0, lines: 0 };
        let held = std::mem::replace(&mut unit.held[i], placeholder);
        let (held, result) = match held {
            Held::Bytes { work: Work::TooLong { reject, end, lines }, _permit } => {
                let result = self.too_long(unit, &reject, end, lines);
                (Held::Bytes { work: Work::TooLong { reject, end, lines }, _permit }, result)
            }
            Held::Bytes { work: Work::Rows(rows), _permit } => {
                let result = self.send_rows(unit, &rows).await;
                // Rows that can be read again take no memory once they are sent.
                let _permit = if result.is_ok() && rows.batch.is_none() { None } else { _permit };
                (Held::Bytes { work: Work::Rows(rows), _permit }, result)
            }
            Held::Bytes { work: Work::Chunk(chunk), _permit } => {
                let result = self.send_chunk(unit, &chunk).await;
                if result.is_ok() && self.job.plan.inputs[chunk.input as usize].can_reread {
                    let range = Held::Range {
                        input: chunk.input,
                        start: chunk.start,
                        end: chunk.end(),
                        first_line: chunk.first_line,
                        first_record: chunk.first_record,
                        records: chunk.records,
                        lines: chunk.lines,
                    };
                    self.job.plan.recycle(chunk);
                    (range, result)
                } else {
                    (Held::Bytes { work: Work::Chunk(chunk), _permit }, result)
                }
            }
            range @ Held::Range { .. } => {
                let chunk = self.job.plan.reread(&range).map_err(Failure::Fatal)?;
                let result = self.send_chunk(unit, &chunk).await;
                self.job.plan.recycle(chunk);
                (range, result)
            }
        };
        unit.held[i] = held;
        result
    }

    /// A record longer than the limit is a reject and nothing else.
    pub fn too_long(
        &self,
        unit: &mut Unit,
        reject: &inrush_core::Reject,
        end: u64,
        lines: u64,
    ) -> Result<(), Failure> {
        let start = reject.position.byte.unwrap_or_default();
        let records = self.job.progress.records.fetch_add(1, Relaxed) + 1;
        unit.record.add(RangeDone {
            input: reject.input,
            start,
            end,
            rows: 0,
            rejects: 1,
            records: 1,
            lines,
        });
        unit.records += 1;
        unit.counted += 1;
        unit.record.rejects.push(reject.clone());
        self.job.rejects.add(reject, records).map_err(Failure::Fatal)
    }

    async fn send_chunk(&mut self, unit: &mut Unit, chunk: &Chunk) -> Result<(), Failure> {
        let job = self.job;
        let input = &job.plan.inputs[chunk.input as usize];
        self.open_copy(unit, input).await?;
        let (mut rows, mut records) = (0, 0);
        let mut rejects = Vec::new();
        self.feed(chunk.input)?.begin(&chunk.bytes);
        loop {
            let started = Instant::now();
            self.enter(Stage::Encode);
            let feed = self.feeds.get_mut(&chunk.input).expect("made above");
            let ended = loop {
                let ran = feed.run(&chunk.bytes, &mut self.out, &mut self.side, self.message);
                rows += ran.rows;
                records += ran.rows;
                unit.side_rows += ran.side_rows;
                match ran.end {
                    End::Chunk => break true,
                    End::Full => break false,
                    End::Refused(range, bad) => {
                        let place = Place { record: records, range };
                        records += 1;
                        let reject = feed.reject(chunk, &place, Refusal::Decoder(&bad));
                        job.rejects
                            .add(&reject, job.progress.records.load(Relaxed) + records)
                            .map_err(Failure::Fatal)?;
                        unit.counted += 1;
                        rejects.push(reject);
                    }
                }
            };
            let encoded = Instant::now();
            add_time(&job.progress.encode_nanos, encoded - started);
            if ended {
                break;
            }
            if self.spread.is_none() && self.side.len() >= SIDE_LIMIT {
                self.finish_copies(unit).await?;
                self.open_copy(unit, input).await?;
            } else {
                self.flush(input.shape).await?;
            }
            add_time(&job.progress.send_nanos, encoded.elapsed());
        }
        if self.spread.is_some() {
            self.flush(input.shape).await?;
        }
        unit.sent += rows;
        job.progress.read(chunk.bytes.len() as u64, records);
        if input.counts_records() && records != chunk.records {
            return Err(Failure::Fatal(disagreement(chunk, records, &input.name)));
        }
        unit.done(chunk, records, rows, rejects);
        Ok(())
    }

    /// The feed of an input, made when its first chunk comes.
    pub fn feed(&mut self, input: u32) -> Result<&mut Feed, Failure> {
        let plan = &self.job.plan;
        match self.feeds.entry(input) {
            Entry::Occupied(feed) => Ok(feed.into_mut()),
            Entry::Vacant(place) => {
                let feed = Feed::new(plan, &plan.inputs[input as usize]).map_err(Failure::Fatal)?;
                Ok(place.insert(feed))
            }
        }
    }

    /// First statements of a unit.
    pub async fn begin(&mut self, unit: &mut Unit) -> Result<(), Failure> {
        let started = Instant::now();
        self.enter(Stage::Answer);
        if self.job.plan.freeze {
            // The transaction has begun, and a savepoint would be in its way.
        } else if self.job.plan.atomic {
            self.session.execute("SAVEPOINT inrush_unit").await?;
        } else {
            self.session.execute("BEGIN").await?;
            if let Some(ledger) = &self.session.ledger {
                ledger.fence(&self.session.connected.client).await?;
            }
            self.begin_spread(unit).await?;
        }
        add_time(&self.job.progress.commit_nanos, started.elapsed());
        Ok(())
    }

    /// Last statements of a unit: its ledger rows, then COMMIT.
    pub async fn commit(&mut self, unit: &mut Unit) -> Result<(), Failure> {
        let started = Instant::now();
        self.enter(Stage::Answer);
        if unit.mends.is_none() {
            unit.settle_left_out();
        }
        if self.spread.is_some() {
            self.commit_spread(unit).await?;
            add_time(&self.job.progress.commit_nanos, started.elapsed());
            return Ok(());
        }
        if let Some(ledger) = &self.session.ledger {
            ledger.record(&self.session.connected.client, &unit.record).await?;
        }
        if self.job.plan.freeze {
            // All of it is committed at once.
        } else if self.job.plan.atomic {
            self.session.execute("RELEASE inrush_unit").await?;
        } else {
            unit.commit_sent = true;
            // Deferred constraints are checked now: a row may be to blame.
            let committed = self.session.connected.client.batch_execute("COMMIT").await;
            committed.map_err(|e| self.session.copy_failure(self.job, 0, &e))?;
        }
        add_time(&self.job.progress.commit_nanos, started.elapsed());
        Ok(())
    }

    /// Adds a committed unit to the totals.
    fn account(&self, unit: &mut Unit) {
        let progress = &self.job.progress;
        if unit.mends.as_ref().is_some_and(|mends| mends.earlier) {
            // An earlier run has counted it.
            progress.records.fetch_sub(unit.records, Relaxed);
            self.job.rejects.take_back(unit.counted);
            return;
        }
        let rows: u64 = unit.record.ranges.iter().map(|r| r.rows).sum();
        progress.rows.fetch_add(rows, Relaxed);
        progress.rejects.fetch_add(unit.record.rejects.len() as u64, Relaxed);
        progress.units.fetch_add(1, Relaxed);
        progress.rows_as_text.fetch_add(unit.side_rows, Relaxed);
        if unit.mends.is_none() {
            progress.rows_left_out.fetch_add(unit.sent.saturating_sub(unit.stored), Relaxed);
        }
        if self.job.ledger.is_none() {
            self.job.rejects.keep(std::mem::take(&mut unit.record.rejects));
        }
    }

    /// Undoes the unit on the server. `false` if the connection is gone.
    async fn roll_back(&mut self) -> bool {
        // Dropping an unfinished COPY sends CopyFail.
        self.copy = None;
        if let Some(spread) = &mut self.spread {
            spread.roll_back().await;
        }
        let savepoint = self.job.plan.atomic && !self.job.plan.freeze;
        let statement = if savepoint { "ROLLBACK TO inrush_unit; RELEASE inrush_unit" } else { "ROLLBACK" };
        self.session.execute(statement).await.is_ok()
    }

    /// A new connection in place of a lost one, once the old backend is certain to be gone.
    async fn reconnect(&mut self) -> Result<()> {
        self.copy = None;
        let old = self.session.backend.clone();
        let started = Instant::now();
        let limit = Duration::from_secs(self.job.plan.limits.reconnect_secs);
        loop {
            let attempt = match Session::open(self.job, &self.gauge.0).await {
                Ok(session) => match old.wait_until_gone(&session.connected.client, GONE).await {
                    Ok(()) => Ok(session),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            match attempt {
                Ok(session) => {
                    self.session = session;
                    return Ok(());
                }
                Err(error) if error.code() == Code::Fenced || started.elapsed() > limit => {
                    return Err(lost(&error, self.job));
                }
                Err(_) if self.job.progress.stopping() == Stop::Abort => return Err(interrupted()),
                Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
    }

    /// Whether a unit whose COMMIT was not answered has been committed.
    async fn has_committed(&self, unit: &Unit) -> Result<bool> {
        let (Some((ledger, load)), Some(range)) = (&self.job.ledger, unit.record.ranges.first()) else {
            return Ok(false);
        };
        if unit.mends.is_some() {
            // Each node knows by its mark, and is asked when the unit begins again.
            return Ok(false);
        }
        UnitLedger::has(ledger, &self.session.connected.client, load, range).await.map_err(server_error)
    }
}

/// Tells the sampler of a lane, and of its end.
struct Gauge(Arc<inrush_profile::Lane>);

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.ended();
    }
}

fn lost(error: &Error, job: &Job) -> Error {
    let lost = Error::new(Code::ConnectionLost, error.fact().to_owned());
    let again = if job.plan.atomic {
        "Nothing was loaded; give the same command again."
    } else {
        "Give the same command again: what was committed is skipped, the rest is loaded."
    };
    // Of a node there is more to say: perhaps it is never reached from here.
    match error.hint_text().filter(|_| job.plan.spread.is_some()) {
        Some(hint) => lost.hint(format!("{again} {hint}")),
        None => lost.hint(again),
    }
}

/// Cutter and decoder found different numbers of records: rows may be lost, so nothing of it is committed.
pub(crate) fn disagreement(chunk: &Chunk, records: u64, name: &str) -> Error {
    Error::new(
        Code::Internal,
        format!(
            "{records} records were decoded where {} were cut, in bytes {} to {} of {name}",
            chunk.records,
            chunk.start,
            chunk.end()
        ),
    )
    .hint("This is a bug in Inrush; the unit was not committed.")
}

/// The end of a lane because another part of the load failed; the other part's error is the one reported.
pub(crate) fn interrupted() -> Error {
    Error::new(Code::Interrupted, "the load was stopped")
}
