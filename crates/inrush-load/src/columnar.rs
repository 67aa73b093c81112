//! Inputs with columns: Parquet and Arrow. Their ranges in the ledger count rows, from 0.
//!
//! A file is read by the lanes: the reader thread only says which rows are next, in spans of one row group or
//! part of one. A stream is read by the reader thread, and its batches are handed over.

use crate::careful::Piece;
use crate::feed::{Sent, columns_of};
use crate::inputs::InputPlan;
use crate::job::{Job, Work};
use crate::lane::{Lane, SIDE_LIMIT};
use crate::options::Stated;
use crate::plan::{Plan, WirePath, is_utf8};
use crate::progress::{Stop, add_time};
use crate::reader::{Rate, hand_over};
use crate::unit::Unit;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use inrush_core::{BaseType, Code, Error, FieldSource, Position, Reject, RejectOrigin, Result};
use inrush_decode::columnar::{ArrowStream, Kind, ReadAt, RowFile, RowReader, base_type};
use inrush_decode::sniff::SniffedColumn;
use inrush_encode::EncodeColumn;
use inrush_encode::columnar::{ColumnarEncoder, ColumnarFrames};
use inrush_profile::Stage;
use inrush_sink::failure::{Failure, RowFailure};
use inrush_sink::ledger::RangeDone;
use inrush_source::{Compression, DoneRange, Input, InputKind, InputSpec, Reread};
use std::collections::hash_map::Entry;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Rows of a span at most: what a bad row makes go again, and what a lane does between two looks at whether
/// the load is to stop.
const SPAN_ROWS: u64 = 64 << 10;

/// Rows of a span at least, however wide they are: a span costs the opening of its row group.
const MIN_SPAN_ROWS: u64 = 1 << 10;

/// Uncompressed bytes of a span that it should not exceed: where rows are refused, all of it is in memory.
const SPAN_BYTES: u64 = 16 << 20;

/// What is known of a columnar input before it is loaded.
pub(crate) struct Columnar {
    schema: SchemaRef,
    /// `None` for a stream.
    file: Option<(Arc<RowFile>, Arc<Positioned>)>,
    /// Fields that go to a column, in ascending order: only these are read.
    used: Vec<usize>,
    /// Where each column of the shape comes from, counted in `used`.
    sources: Vec<FieldSource>,
}

/// Some rows of a columnar input, one after another.
pub(crate) struct Rows {
    pub input: u32,
    /// First row, from 0.
    pub start: u64,
    /// One past the last row.
    pub end: u64,
    /// Bytes they take without compression, as far as that is known.
    pub bytes: u64,
    /// The rows themselves where they cannot be read again.
    pub batch: Option<RecordBatch>,
}

/// A plain file as the decoder reads it.
struct Positioned(Reread);

impl ReadAt for Positioned {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl Columnar {
    /// Reads what an input says about itself. `head` are its first bytes.
    pub fn open(stated: &Stated, spec: &InputSpec, input: &Input, head: &[u8]) -> Result<Columnar> {
        if let Some(encoding) = stated.encoding.as_ref().filter(|e| !is_utf8(e)) {
            return Err(Error::new(
                Code::Clash,
                format!("--encoding {encoding} contradicts the format: text in it is always UTF-8"),
            )
            .at(Position::source(&spec.name))
            .hint("Leave --encoding out."));
        }
        let (schema, file) = match Kind::detect(head) {
            Some(Kind::ArrowStream) => (ArrowStream::new(&spec.name, head)?.schema(), None),
            kind => {
                let source = Arc::new(Positioned(by_position(spec, input, kind)?));
                let file = Arc::new(RowFile::open(&spec.name, Arc::<Positioned>::clone(&source) as _)?);
                (Arc::clone(file.schema()), Some((file, source)))
            }
        };
        Ok(Columnar { schema, file, used: Vec::new(), sources: Vec::new() })
    }

    /// Notes where the columns of the shape come from.
    #[must_use]
    pub fn with_sources(mut self, sources: &[FieldSource]) -> Columnar {
        self.used = sources
            .iter()
            .filter_map(|source| match source {
                FieldSource::Field(i) => Some(*i),
                FieldSource::Constant(_) => None,
            })
            .collect();
        self.used.sort_unstable();
        self.used.dedup();
        self.sources = sources
            .iter()
            .map(|source| match source {
                FieldSource::Field(i) => {
                    FieldSource::Field(self.used.iter().position(|used| used == i).unwrap_or(usize::MAX))
                }
                constant @ FieldSource::Constant(_) => constant.clone(),
            })
            .collect();
        self
    }

    /// Names of the fields.
    pub fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Whether rows of it can be read again.
    pub fn can_reread(&self) -> bool {
        self.file.is_some()
    }

    /// Bytes without compression, where the file tells.
    pub fn bytes(&self) -> Option<u64> {
        self.file.as_ref().map(|(file, _)| file.bytes())
    }
}

/// The file of an input that must be one.
fn by_position(spec: &InputSpec, input: &Input, kind: Option<Kind>) -> Result<Reread> {
    let what = match kind {
        Some(Kind::ArrowFile) => "an Arrow file",
        _ => "a Parquet file",
    };
    if let Some(reread) = Reread::of(input)? {
        return Ok(reread);
    }
    let error = Error::new(
        Code::Format,
        match (&spec.kind, input.compression()) {
            (InputKind::File(_), compression) if compression != Compression::None => {
                format!("{what} is read by position and cannot be inside of {}", compression.name())
            }
            _ => format!("{what} is read by position and cannot come through a pipe"),
        },
    )
    .at(Position::source(&spec.name));
    Err(error.hint(match (&spec.kind, kind) {
        (InputKind::File(_), _) => "Decompress it first; such files are compressed inside.",
        (_, Some(Kind::ArrowFile)) => {
            "Write it to a file first, or send an Arrow stream, which can be piped."
        }
        _ => "Write it to a file first and name the file.",
    }))
}

/// The columns of a table for a columnar input, and how many rows it has if it tells.
pub(crate) fn sniffed_columns(
    stated: &Stated,
    spec: &InputSpec,
    input: &Input,
    head: &[u8],
) -> Result<(Vec<SniffedColumn>, Option<u64>)> {
    let columnar = Columnar::open(stated, spec, input, head)?;
    let columns = columnar.schema.fields().iter().map(|field| SniffedColumn {
        name: field.name().clone(),
        ty: base_type(field).unwrap_or(BaseType::Text),
        nullable: field.is_nullable(),
    });
    Ok((columns.collect(), columnar.file.as_ref().map(|(file, _)| file.rows())))
}

/// Says which rows are next, or reads them from a stream. Gives the stored bytes of all inputs up to this one.
pub(crate) fn read(
    job: &Job,
    number: u32,
    plan: &InputPlan,
    columnar: &Columnar,
    mut done: Vec<DoneRange>,
    before: u64,
    rate: &mut Option<Rate>,
) -> Result<u64> {
    done.sort_unstable_by_key(|range| range.start);
    match &columnar.file {
        Some((file, _)) => {
            let stored = plan.stored_len().unwrap_or_default();
            for group in file.groups() {
                let per_row = (group.bytes / group.rows).max(1);
                let rows = (SPAN_BYTES / per_row).clamp(MIN_SPAN_ROWS, SPAN_ROWS);
                for (start, end) in missing(group.start, group.start + group.rows, &done, rows) {
                    let rows =
                        Rows { input: number, start, end, bytes: (end - start) * per_row, batch: None };
                    if !push(job, rows, rate) {
                        return Ok(before + stored);
                    }
                    let share = u128::from(stored) * u128::from(end) / u128::from(file.rows().max(1));
                    job.progress.bytes_read.store(before + u64::try_from(share).unwrap_or(stored), Relaxed);
                }
            }
            Ok(before + stored)
        }
        None => read_stream(job, number, plan, columnar, &done, before, rate),
    }
}

fn read_stream(
    job: &Job,
    number: u32,
    plan: &InputPlan,
    columnar: &Columnar,
    done: &[DoneRange],
    before: u64,
    rate: &mut Option<Rate>,
) -> Result<u64> {
    let input = plan.open(&job.plan.limits)?;
    let consumed = input.consumed();
    let failure = Failing::default();
    let mut stream = ArrowStream::new(&plan.name, InputReader { input, failure: Arc::clone(&failure) })
        .map_err(|error| own_failure(&failure, error))?;
    let mut row = 0;
    loop {
        let started = Instant::now();
        let batch = stream.next().map_err(|error| own_failure(&failure, error))?;
        add_time(&job.progress.read_nanos, started.elapsed());
        job.progress.bytes_read.store(before + consumed.get(), Relaxed);
        let Some(batch) = batch else { break };
        let batch = batch
            .project(&columnar.used)
            .map_err(|e| Error::new(Code::Format, e.to_string()).at(Position::source(&plan.name)))?;
        let rows = batch.num_rows() as u64;
        let per_row = batch.get_array_memory_size() as u64 / rows.max(1);
        for (start, end) in missing(row, row + rows, done, SPAN_ROWS) {
            // Both lie in the batch, whose length is a usize.
            #[allow(clippy::cast_possible_truncation)]
            let part = batch.slice((start - row) as usize, (end - start) as usize);
            let bytes = (end - start) * per_row;
            if !push(job, Rows { input: number, start, end, bytes, batch: Some(part) }, rate) {
                return Ok(before + consumed.get());
            }
        }
        row += rows;
    }
    if let Some(end) = done.iter().map(|range| range.end).max().filter(|end| *end > row) {
        return Err(Error::new(
            Code::SourceChanged,
            format!("the input ends at row {row}, but {end} of its rows were loaded before"),
        )
        .at(Position::source(&plan.name))
        .hint("Resume with the same input, or load this one as a new load with --again."));
    }
    Ok(before + plan.stored_len().unwrap_or_else(|| consumed.get()))
}

fn push(job: &Job, rows: Rows, rate: &mut Option<Rate>) -> bool {
    // Rows of a file take no memory before a lane reads them; their weight keeps the reader from running ahead.
    let bytes = usize::try_from(rows.bytes).unwrap_or(usize::MAX).max(1);
    let weight = if rows.batch.is_some() { bytes } else { bytes.min(job.plan.limits.chunk) };
    hand_over(job, rate, Work::Rows(rows), bytes as u64, weight)
}

/// Ranges of at most `most` rows between `start` and `end` that are not done.
fn missing(start: u64, end: u64, done: &[DoneRange], most: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut ranges = Vec::new();
    let mut at = start;
    for range in done.iter().filter(|range| range.end > start && range.start < end) {
        if range.start > at {
            ranges.push((at, range.start));
        }
        at = at.max(range.end);
    }
    if at < end {
        ranges.push((at, end));
    }
    ranges.into_iter().flat_map(move |(start, end)| {
        (0..(end - start).div_ceil(most)).map(move |i| (start + i * most, (start + (i + 1) * most).min(end)))
    })
}

/// Why reading a stream failed: the decoder would only keep the words.
type Failing = Arc<std::sync::Mutex<Option<Error>>>;

fn own_failure(failure: &Failing, error: Error) -> Error {
    failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take().unwrap_or(error)
}

struct InputReader {
    input: Input,
    failure: Failing,
}

impl Read for InputReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.input.read(buf).map_err(|error| {
            let said = error.fact().to_owned();
            *self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
            io::Error::other(said)
        })
    }
}

/// Reader and encoder of one columnar input, owned by one lane.
pub(crate) struct ColumnFeed {
    plan: Arc<InputPlan>,
    path: WirePath,
    reader: Option<RowReader>,
    encoder: ColumnarEncoder,
    /// Encodes on the direct path.
    frames: Option<ColumnarFrames>,
}

impl ColumnFeed {
    pub fn new(plan: &Plan, input: &Arc<InputPlan>) -> Result<ColumnFeed> {
        let columnar = columnar_of(input)?;
        let columns: Vec<EncodeColumn> = columns_of(plan, input, &columnar.sources);
        let schema = columnar.schema.project(&columnar.used);
        let schema = schema.map_err(|e| Error::new(Code::Internal, e.to_string()))?;
        let reader =
            columnar.file.as_ref().map(|(file, _)| RowReader::new(file, &columnar.used)).transpose()?;
        let encoder = ColumnarEncoder::new(&columns, &schema, &plan.session)?;
        let frames = match plan.layouts.get(input.shape) {
            None => None,
            Some(layout) => {
                let names = plan.shapes[input.shape].names();
                let frames = ColumnarFrames::new(layout, &names, &columns, &plan.session);
                Some(frames.map_err(|unsupported| Error::new(Code::Internal, unsupported.to_string()))?)
            }
        };
        Ok(ColumnFeed { plan: Arc::clone(input), path: plan.path, reader, encoder, frames })
    }

    /// Goes to the first of some rows.
    fn begin(&mut self, rows: &Rows) -> Result<()> {
        match (&mut self.reader, &rows.batch) {
            (Some(reader), None) => reader.seek(rows.start, rows.end),
            _ => Ok(()),
        }
    }

    /// The next batch of the rows; `at` is how many came before.
    fn next(&mut self, rows: &Rows, at: u64) -> Result<Option<RecordBatch>> {
        let batch = match (&mut self.reader, &rows.batch) {
            (_, Some(batch)) => (at == 0).then(|| batch.clone()),
            (Some(reader), None) => reader.next()?,
            (None, None) => return Err(Error::new(Code::Internal, "rows of a stream came without a batch")),
        };
        match &batch {
            Some(batch) => self.encoder.begin(batch)?,
            // What was read is only worth something if the file is still the one it was.
            None => {
                if let Some((_, source)) = &columnar_of(&self.plan)?.file {
                    source.0.unchanged()?;
                }
            }
        }
        Ok(batch)
    }

    /// Encodes row `i` of the batch at hand.
    fn encode(&mut self, i: usize, main: &mut Vec<u8>, side: &mut Vec<u8>) -> Sent {
        let sure = match &mut self.frames {
            Some(frames) => frames.row(&self.encoder, i, main),
            None if self.path == WirePath::CopyText => {
                self.encoder.row_text(i, main);
                return Sent::Main;
            }
            None => self.encoder.row(i, main),
        };
        if sure.is_ok() {
            return Sent::Main;
        }
        self.encoder.row_text(i, side);
        Sent::Side
    }

    /// Encodes rows for nothing but the count of those that go as text, and the bytes of the others.
    pub fn rehearse(&mut self, rows: &Rows) -> Result<(u64, u64)> {
        let (mut out, mut side) = (Vec::new(), Vec::new());
        let (mut at, mut as_text, mut bytes) = (0, 0, 0);
        self.begin(rows)?;
        while let Some(batch) = self.next(rows, at)? {
            for i in 0..batch.num_rows() {
                as_text += u64::from(self.encode(i, &mut out, &mut side) == Sent::Side);
                side.clear();
            }
            bytes += out.len() as u64;
            out.clear();
            at += batch.num_rows() as u64;
        }
        Ok((as_text, bytes))
    }
}

fn columnar_of(input: &InputPlan) -> Result<&Columnar> {
    input
        .columnar
        .as_ref()
        .ok_or_else(|| Error::new(Code::Internal, format!("{} has no columns to read", input.name)))
}

impl Lane<'_> {
    /// The feed of a columnar input, made when its first rows come.
    fn column_feed(&mut self, input: u32) -> Result<&mut ColumnFeed, Failure> {
        let plan = &self.job.plan;
        match self.column_feeds.entry(input) {
            Entry::Occupied(feed) => Ok(feed.into_mut()),
            Entry::Vacant(place) => {
                let feed = ColumnFeed::new(plan, &plan.inputs[input as usize]).map_err(Failure::Fatal)?;
                Ok(place.insert(feed))
            }
        }
    }

    /// Sends some rows of a columnar input.
    pub(crate) async fn send_rows(&mut self, unit: &mut Unit, rows: &Rows) -> Result<(), Failure> {
        let job = self.job;
        let input = &job.plan.inputs[rows.input as usize];
        self.open_copy(unit, input).await?;
        self.column_feed(rows.input)?.begin(rows).map_err(Failure::Fatal)?;
        let mut at = 0;
        loop {
            let started = Instant::now();
            let next = self.column_feed(rows.input)?.next(rows, at);
            let Some(batch) = next.map_err(Failure::Fatal)? else { break };
            let mut i = 0;
            while i < batch.num_rows() {
                let encoding = Instant::now();
                self.enter(Stage::Encode);
                let feed = self.column_feeds.get_mut(&rows.input).expect("made above");
                while i < batch.num_rows() && self.out.len() < self.message && self.side.len() < SIDE_LIMIT {
                    if feed.encode(i, &mut self.out, &mut self.side) == Sent::Side {
                        unit.side_rows += 1;
                    }
                    i += 1;
                }
                // Reading the batch counts here: it is decompressing and decoding far more than waiting.
                let begun = if i < batch.num_rows() { encoding } else { started };
                add_time(&job.progress.encode_nanos, begun.elapsed());
                let sending = Instant::now();
                if self.spread.is_none() && self.side.len() >= SIDE_LIMIT {
                    self.finish_copies(unit).await?;
                    self.open_copy(unit, input).await?;
                } else if self.out.len() >= self.message || !self.side.is_empty() && self.spread.is_some() {
                    self.flush(input.shape).await?;
                }
                add_time(&job.progress.send_nanos, sending.elapsed());
                if job.progress.stopping() == Stop::Abort {
                    return Err(Failure::Fatal(crate::lane::interrupted()));
                }
            }
            at += batch.num_rows() as u64;
        }
        if self.spread.is_some() {
            self.flush(input.shape).await?;
        }
        if at != rows.end - rows.start {
            return Err(Failure::Fatal(Error::new(
                Code::Internal,
                format!("{at} of rows {} to {} of {} came", rows.start, rows.end, input.name),
            )));
        }
        unit.sent += at;
        job.progress.read(rows.bytes, at);
        unit.done_rows(rows, at, Vec::new());
        Ok(())
    }

    /// Sends some rows again, leaving out those the server refuses. All of them are in memory meanwhile.
    pub(crate) async fn careful_rows(
        &mut self,
        unit: &mut Unit,
        rows: &Rows,
        immediate: bool,
    ) -> Result<(), Failure> {
        let job = self.job;
        let count = rows.end - rows.start;
        self.column_feed(rows.input)?;
        let mut feed = self.column_feeds.remove(&rows.input).expect("made above");
        let mut batches = Vec::new();
        feed.begin(rows).map_err(Failure::Fatal)?;
        let mut at = 0;
        while let Some(batch) = feed.next(rows, at).map_err(Failure::Fatal)? {
            let start = at;
            at += batch.num_rows() as u64;
            batches.push((start, batch));
        }
        let mut piece = RowsPiece { rows, feed, batches, current: usize::MAX };
        let narrowed = self.narrow(unit, &mut piece, count, Vec::new(), immediate).await;
        self.column_feeds.insert(rows.input, piece.feed);
        let (stored, rejects) = narrowed?;
        job.progress.read(rows.bytes, count);
        unit.done_rows(rows, stored, rejects);
        Ok(())
    }
}

impl Unit {
    /// Notes rows of a columnar input as dealt with.
    fn done_rows(&mut self, rows: &Rows, stored: u64, rejects: Vec<Reject>) {
        let records = rows.end - rows.start;
        self.records += records;
        self.bytes += rows.bytes;
        self.record.add(RangeDone {
            input: rows.input,
            start: rows.start,
            end: rows.end,
            rows: stored,
            rejects: rejects.len() as u64,
            records,
            lines: 0,
        });
        self.record.rejects.extend(rejects);
    }
}

/// Rows of a columnar input while the bad ones among them are looked for.
struct RowsPiece<'a> {
    rows: &'a Rows,
    feed: ColumnFeed,
    /// Each with the number of rows before it.
    batches: Vec<(u64, RecordBatch)>,
    /// The batch that the encoder has.
    current: usize,
}

impl RowsPiece<'_> {
    /// Has the encoder begin with the batch of a row; the row in it.
    fn locate(&mut self, row: usize) -> Result<usize> {
        let row = row as u64;
        let at = self.batches.partition_point(|(start, _)| *start <= row).saturating_sub(1);
        let (start, batch) = self
            .batches
            .get(at)
            .ok_or_else(|| Error::new(Code::Internal, "a row of a unit is not in its batches"))?;
        if self.current != at {
            self.feed.encoder.begin(batch)?;
            self.current = at;
        }
        Ok(usize::try_from(row - start).unwrap_or(usize::MAX))
    }
}

impl Piece for RowsPiece<'_> {
    fn input(&self) -> u32 {
        self.rows.input
    }

    fn len(&self) -> usize {
        self.batches.iter().map(|(_, batch)| batch.num_rows()).sum()
    }

    fn encode(
        &mut self,
        rows: Range<usize>,
        as_text: bool,
        main: &mut Vec<u8>,
        side: &mut Vec<u8>,
        sent: &mut dyn FnMut(usize, Sent),
    ) -> Result<(), Failure> {
        for row in rows {
            let i = self.locate(row).map_err(Failure::Fatal)?;
            let how = if as_text {
                self.feed.encoder.row_text(i, side);
                Sent::Side
            } else {
                self.feed.encode(i, main, side)
            };
            sent(row, how);
        }
        Ok(())
    }

    fn reject(&mut self, row: usize, refusal: &RowFailure) -> Result<Reject, Failure> {
        let i = self.locate(row).map_err(Failure::Fatal)?;
        let mut raw = Vec::new();
        self.feed.encoder.row_json(i, &mut raw);
        let mut position = Position::source(self.feed.plan.name.clone());
        position.record = Some(self.rows.start + row as u64 + 1);
        position.column = refusal.column.clone();
        Ok(Reject {
            input: self.rows.input,
            position,
            sqlstate: refusal.sqlstate.clone(),
            reason: refusal.reason.clone(),
            origin: RejectOrigin::Server,
            raw,
            full_len: None,
        })
    }
}
