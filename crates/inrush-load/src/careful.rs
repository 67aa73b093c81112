//! Finding the rows that the server refuses, while the good rows of the unit commit.
//!
//! A unit that the server refused is rolled back and sent again chunk by chunk, rows in segments, each
//! segment in a savepoint. A refused segment tells its bad row by the COPY line in the error's context
//! (rows are lines: neither COPY binary nor our COPY text has a line end inside a row); the rows before it
//! are sent again, the row is rejected, and sending goes on behind it. Errors that name no line (constraints
//! checked at the end of the statement) are narrowed down by halving.
//!
//! On the direct path all of this goes as COPY text.
//!
//! The segment shrinks after a refusal and grows after a success, so a bad row costs a bounded number of
//! rows sent again: n bad rows among m cost O(m + n * MIN_SEGMENT * log) rows, not O(n * m).

use crate::feed::{Feed, Place, Refusal, Sent};
use crate::job::Work;
use crate::lane::{Lane, disagreement, interrupted};
use crate::progress::Stop;
use crate::unit::{Held, Unit};
use bytes::Bytes;
use inrush_cluster::Refused;
use inrush_core::{Chunk, Reject};
use inrush_encode::copy_binary;
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::{Failure, RowFailure};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// A segment is not made smaller than this because of a refusal that names its row.
const MIN_SEGMENT: usize = 64;

impl Lane<'_> {
    /// Sends a unit again, leaving out the rows the server refuses. `immediate` checks deferred constraints
    /// with each segment: the unit's COMMIT was refused before.
    pub(crate) async fn careful(&mut self, unit: &mut Unit, immediate: bool) -> Result<(), Failure> {
        self.begin(unit).await?;
        for i in 0..unit.held.len() {
            let placeholder = Held::Range {
                input: 0,
                start: 0,
                end: 0,
                first_line: 0,
                first_record: 0,
                records: 0,
                lines: 0,
            };
            let held = std::mem::replace(&mut unit.held[i], placeholder);
            let result = match &held {
                Held::Bytes { work: Work::TooLong { reject, end, lines }, .. } => {
                    self.too_long(unit, reject, *end, *lines)
                }
                Held::Bytes { work: Work::Rows(rows), .. } => self.careful_rows(unit, rows, immediate).await,
                Held::Bytes { work: Work::Chunk(chunk), .. } => {
                    self.careful_chunk(unit, chunk, immediate).await
                }
                Held::Range { .. } => match self.job.plan.reread(&held) {
                    Ok(chunk) => self.careful_chunk(unit, &chunk, immediate).await,
                    Err(error) => Err(Failure::Fatal(error)),
                },
            };
            unit.held[i] = held;
            result?;
        }
        self.finish_copies(unit).await?;
        self.commit(unit).await
    }

    async fn careful_chunk(
        &mut self,
        unit: &mut Unit,
        chunk: &Chunk,
        immediate: bool,
    ) -> Result<(), Failure> {
        let job = self.job;
        let (rows, records, rejects) = self.decode_rows(chunk)?;
        unit.counted += rejects.len() as u64;
        self.feed(chunk.input)?;
        let feed = self.feeds.remove(&chunk.input).expect("made above");
        let mut piece = ChunkPiece { chunk, rows, feed };
        let narrowed = self.narrow(unit, &mut piece, records, rejects, immediate).await;
        self.feeds.insert(chunk.input, piece.feed);
        let (sent, rejects) = narrowed?;
        job.progress.read(chunk.bytes.len() as u64, records);
        unit.done(chunk, records, sent, rejects);
        Ok(())
    }

    /// Sends the rows of a piece but those that the server refuses. Gives the number of rows sent, and the
    /// rejects; `rejects` are those of the piece already found among its `records`.
    pub(crate) async fn narrow(
        &mut self,
        unit: &mut Unit,
        piece: &mut dyn Piece,
        records: u64,
        mut rejects: Vec<Reject>,
        immediate: bool,
    ) -> Result<(u64, Vec<Reject>), Failure> {
        let job = self.job;
        let mut at = 0;
        let mut segment = piece.len();
        let mut known: Option<(usize, RowFailure)> = None;
        let mut sent = 0;
        while at < piece.len() {
            if job.progress.stopping() == Stop::Abort {
                return Err(Failure::Fatal(interrupted()));
            }
            let bad = match known.take() {
                Some((row, refusal)) if row == at => Some(refusal),
                other => {
                    known = other;
                    None
                }
            };
            if let Some(refusal) = bad {
                let reject = piece.reject(at, &refusal)?;
                job.rejects
                    .add(&reject, job.progress.records.load(Relaxed) + records)
                    .map_err(Failure::Fatal)?;
                unit.counted += 1;
                rejects.push(reject);
                at += 1;
                continue;
            }
            let end = match &known {
                Some((row, _)) => (*row).min(at + segment),
                None => piece.len().min(at + segment.max(1)),
            };
            match self.try_rows(unit, piece, at..end, immediate).await? {
                Ok(()) => {
                    sent += (end - at) as u64;
                    at = end;
                    segment = segment.max(1).saturating_mul(4);
                }
                Err(Refused { row: Some(i), refusal }) => {
                    known = Some((at + i, refusal));
                    segment = (segment / 4).max(MIN_SEGMENT);
                }
                Err(Refused { row: None, refusal }) if end - at == 1 => known = Some((at, refusal)),
                Err(Refused { row: None, .. }) => segment = (end - at) / 2,
            }
        }
        Ok((sent, rejects))
    }

    /// Places of the well-formed records of a chunk, the number of all, and rejects for the others.
    fn decode_rows(&mut self, chunk: &Chunk) -> Result<(Vec<Place>, u64, Vec<Reject>), Failure> {
        let job = self.job;
        let feed = self.feed(chunk.input)?;
        feed.begin(&chunk.bytes);
        let mut rows = Vec::new();
        let mut rejects = Vec::new();
        let mut records = 0;
        while let Some(step) = feed.next(&chunk.bytes) {
            let place = Place { record: records, range: step.range };
            records += 1;
            match step.result {
                Ok(()) => rows.push(place),
                Err(bad) => {
                    let reject = feed.reject(chunk, &place, Refusal::Decoder(&bad));
                    job.rejects
                        .add(&reject, job.progress.records.load(Relaxed) + records)
                        .map_err(Failure::Fatal)?;
                    rejects.push(reject);
                }
            }
        }
        Ok((rows, records, rejects))
    }

    /// Sends some rows in a savepoint. The outer error ends the unit; the inner one is about a row.
    async fn try_rows(
        &mut self,
        unit: &mut Unit,
        piece: &mut dyn Piece,
        rows: Range<usize>,
        immediate: bool,
    ) -> Result<Result<(), Refused>, Failure> {
        if self.spread.is_some() {
            return self.try_rows_spread(unit, piece, rows, immediate).await;
        }
        self.session.execute("SAVEPOINT inrush_rows").await?;
        let (mut main_rows, mut side_rows) = (Vec::new(), Vec::new());
        match self.copy_rows(piece, rows.clone(), immediate, &mut main_rows, &mut side_rows).await {
            Ok(stored) => {
                if let Some(ledger) = &self.session.ledger {
                    let ids = ledger.transaction_ids(&self.session.connected.client).await?;
                    unit.record.xids.extend(ids);
                }
                self.session.execute("RELEASE inrush_rows").await?;
                unit.sent += rows.len() as u64;
                unit.stored += stored;
                unit.side_rows += side_rows.len() as u64;
                Ok(Ok(()))
            }
            Err((in_side, Failure::Row(refusal))) => {
                self.session.execute("ROLLBACK TO inrush_rows; RELEASE inrush_rows").await?;
                let order = if in_side { &side_rows } else { &main_rows };
                let row = refusal
                    .line
                    .filter(|_| refusal.line_exact)
                    .and_then(|line| usize::try_from(line).ok()?.checked_sub(1))
                    .and_then(|i| order.get(i).copied());
                let dead = row.unwrap_or(rows.len()) as u64;
                self.job.progress.dead_rows.fetch_add(dead, Relaxed);
                Ok(Err(Refused { row, refusal: *refusal }))
            }
            Err((_, failure)) => Err(failure),
        }
    }

    /// The COPYs of one segment; the rows of each in the order sent. On failure tells whether it was the
    /// COPY text beside the main one.
    ///
    /// The rows that go as text are sent first: they are few, they are the likeliest to be refused, and a
    /// refusal then wastes nothing else.
    async fn copy_rows(
        &mut self,
        piece: &mut dyn Piece,
        rows: Range<usize>,
        immediate: bool,
        main_rows: &mut Vec<usize>,
        side_rows: &mut Vec<usize>,
    ) -> Result<u64, (bool, Failure)> {
        let job = self.job;
        let input = &job.plan.inputs[piece.input() as usize];
        // The direct path only takes what goes well: why a row is refused is COPY's to say.
        let as_text = job.plan.wire(input) == WireFormat::Direct;
        let format = if as_text { WireFormat::Text } else { job.plan.wire(input) };
        let (mut main, mut side) = (Vec::new(), Vec::new());
        if format == WireFormat::Binary {
            main.extend_from_slice(copy_binary::HEADER);
        }
        let start = rows.start;
        let mut sent = |row: usize, how| match how {
            Sent::Main => main_rows.push(row - start),
            Sent::Side => side_rows.push(row - start),
        };
        piece.encode(rows, as_text, &mut main, &mut side, &mut sent).map_err(|failure| (false, failure))?;
        if format == WireFormat::Binary {
            main.extend_from_slice(copy_binary::TRAILER);
        }
        let mut stored = 0;
        if !side_rows.is_empty() {
            stored += self
                .copy_bytes(input.shape, WireFormat::Text, side)
                .await
                .map_err(|failure| (true, failure))?;
        }
        if !main_rows.is_empty() {
            stored += self.copy_bytes(input.shape, format, main).await.map_err(|failure| (false, failure))?;
        }
        if immediate {
            let checked = self.session.connected.client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await;
            // Which COPY the row came with is not known, and no line is given either.
            checked.map_err(|e| (false, self.session.copy_failure(job, input.shape, &e)))?;
        }
        Ok(stored)
    }

    /// One whole COPY.
    async fn copy_bytes(&mut self, shape: usize, format: WireFormat, bytes: Vec<u8>) -> Result<u64, Failure> {
        let job = self.job;
        let mut copy = self.session.start_copy(job, shape, format).await?;
        let sent = copy.send(Bytes::from(bytes)).await;
        sent.map_err(|e| self.session.copy_failure(job, shape, &e))?;
        self.session.finish_copy(job, shape, copy).await
    }
}

/// Rows of an input, in memory, that bad ones are looked for among.
pub(crate) trait Piece {
    /// Which input of the load.
    fn input(&self) -> u32;

    /// Rows that may be sent.
    fn len(&self) -> usize;

    /// Appends the wire bytes of some rows and says of each where it went; all go as text if so wanted.
    fn encode(
        &mut self,
        rows: Range<usize>,
        as_text: bool,
        main: &mut Vec<u8>,
        side: &mut Vec<u8>,
        sent: &mut dyn FnMut(usize, Sent),
    ) -> Result<(), Failure>;

    /// The reject for a row that the server refused.
    fn reject(&mut self, row: usize, refusal: &RowFailure) -> Result<Reject, Failure>;
}

/// The well-formed records of a chunk.
struct ChunkPiece<'a> {
    chunk: &'a Chunk,
    rows: Vec<Place>,
    feed: Feed,
}

impl Piece for ChunkPiece<'_> {
    fn input(&self) -> u32 {
        self.chunk.input
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn encode(
        &mut self,
        rows: Range<usize>,
        as_text: bool,
        main: &mut Vec<u8>,
        side: &mut Vec<u8>,
        sent: &mut dyn FnMut(usize, Sent),
    ) -> Result<(), Failure> {
        let places = &self.rows[rows.clone()];
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(()) };
        let start = first.range.start;
        let bytes = &self.chunk.bytes[start..last.range.end];
        self.feed.begin(bytes);
        let mut i = 0;
        while i < places.len()
            && let Some(step) = self.feed.next(bytes)
        {
            if start + step.range.start != places[i].range.start {
                // A record between the rows that was rejected before.
                continue;
            }
            let how = if as_text {
                self.feed.encode_text(bytes, side)
            } else {
                self.feed.encode(bytes, main, side)
            };
            sent(rows.start + i, how);
            i += 1;
        }
        if i < places.len() {
            return Err(Failure::Fatal(disagreement(self.chunk, i as u64, &self.feed.plan.name)));
        }
        Ok(())
    }

    fn reject(&mut self, row: usize, refusal: &RowFailure) -> Result<Reject, Failure> {
        let why = Refusal::Server {
            sqlstate: &refusal.sqlstate,
            reason: &refusal.reason,
            column: refusal.column.as_deref(),
        };
        Ok(self.feed.reject(self.chunk, &self.rows[row], why))
    }
}
