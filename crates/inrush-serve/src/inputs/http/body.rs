//! The body of a request, from the socket to its answer.

use super::{Answer, HttpInput};
use crate::ack::{Outcome, Refused, Share, TOLD};
use crate::inputs::borders::{first_csv_border, last_border};
use crate::inputs::{Piece, csv_header, outcome};
use crate::origin::Origin;
use crate::part::{Positions, Reading};
use crate::pressure::covered;
use crate::spill::{KeptReading, Meta};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;
use inrush_core::{Code, Error};
use inrush_sink::ledger::stream::{PartitionName, RequestState};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::OwnedSemaphorePermit;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a body by which it is told from another one that comes with the same key.
const HEAD: usize = 4096;

/// Bytes per second that a sender must reach in the long run.
const SLOWEST: f64 = 16384.0;

/// What a request wants.
pub(super) struct Ingest {
    pub table: Option<String>,
    pub rows: RowsOf,
}

/// How its body is read.
#[derive(Debug)]
pub(super) enum RowsOf {
    Known(Reading),
    /// The first line says what the columns are.
    CsvWithHeader,
}

/// What has been handed on of a body.
enum Kept {
    Nothing,
    All(Meta, Bytes),
    /// It is too long to be kept here.
    TooMuch,
}

/// A body on its way.
struct Flow<'a> {
    input: &'a HttpInput,
    ingest: Ingest,
    key: Option<String>,
    origin: Option<Arc<Origin>>,
    /// Hash of the first bytes of the body.
    head: Option<Vec<u8>>,
    buffer: Vec<u8>,
    memory: Option<OwnedSemaphorePermit>,
    /// The key is ours: the sender has none, and a spill must know what the server has of the body.
    own_key: bool,
    /// What has been handed on, as long as it is one piece: it can go to the spill if the server goes away.
    kept: Kept,
    /// It goes to the spill from here on.
    spills: bool,
    /// Bytes of the body before the buffer.
    passed: usize,
    line: u64,
    /// What was handed on last: its lines are counted when something comes behind it.
    uncounted: Bytes,
    share: Option<Share>,
}

impl HttpInput {
    /// Whether too many rows have been refused.
    fn refuse_poisoned(&self) -> Result<(), Answer> {
        match self.source.counters.poisoned(self.feeder.limits.rejects_per_minute) {
            Some(left) => {
                let fact = "too many rows were refused in the last minute; nothing is taken until it is over";
                Err(Answer::later(429, left.as_secs(), fact).closing())
            }
            None => Ok(()),
        }
    }

    /// Reads a body, stores it, and says what became of it.
    pub(super) async fn ingest(&self, request: Request<Incoming>, ingest: Ingest) -> Answer {
        if let Err(answer) = self.refuse_poisoned() {
            return answer;
        }
        if self.feeder.is_stopping() {
            return Answer::later(503, 1, "the process stops").closing();
        }
        let key = request.headers().get("idempotency-key").map(|value| value.to_str().map(str::to_owned));
        let key = match key {
            None => None,
            Some(Ok(key)) if (1..=255).contains(&key.len()) => Some(key),
            Some(_) => {
                return Answer::error(400, "the Idempotency-Key must be 1 to 255 printable characters")
                    .closing();
            }
        };
        let unzip = match request.headers().get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"identity" | b"") => false,
            Some(b"gzip" | b"x-gzip") => true,
            Some(_) => return Answer::error(415, "the Content-Encoding must be gzip or identity").closing(),
        };
        let length = request.body().size_hint().exact();
        if length.is_some_and(|length| length > self.config.max_body.0) {
            return self.too_large();
        }
        let busy = match &key {
            None => None,
            Some(key) => match self.wait_for_key(key).await {
                Some(busy) => Some(busy),
                None => {
                    return Answer::later(409, 1, "a request with this Idempotency-Key is under way")
                        .closing();
                }
            },
        };
        let (share, told) = Share::new();
        let own_key = key.is_none() && self.feeder.spill.is_some() && !self.config.once_by_content;
        let key = if own_key { Some(own_key_of_a_body()) } else { key };
        let mut flow = Flow {
            input: self,
            ingest,
            key,
            own_key,
            kept: Kept::Nothing,
            origin: None,
            head: None,
            buffer: Vec::new(),
            memory: None,
            spills: self.feeder.spill.is_some() && self.feeder.metrics.is_down(),
            passed: 0,
            line: 1,
            uncounted: Bytes::new(),
            share: Some(share),
        };
        let expected = if unzip { None } else { length };
        let ended = flow.run(request.into_body(), unzip, expected).await;
        flow.share = None;
        flow.uncounted = Bytes::new();
        let mut outcome = outcome(told).await;
        if let (Kept::All(meta, bytes), Some(spill)) = (&flow.kept, &self.feeder.spill)
            && outcome.failed.as_ref().is_some_and(|error| error.code() == Code::ConnectionLost)
            && ended.is_ok()
        {
            // The server went away. Under its key the body is stored once, whatever the server has of it.
            outcome = Outcome { failed: spill.append(meta, bytes.clone()).await.err(), ..Outcome::default() };
            flow.spills = true;
            self.feeder.metrics.spilled.fetch_add(1, Relaxed);
        }
        if outcome.known > 0
            && outcome.failed.is_none()
            && let Some(key) = flow.key.as_ref().filter(|_| !flow.own_key)
        {
            self.remember(key, &mut outcome).await;
        }
        let ended = ended.map(|()| flow.spills);
        drop(busy);
        match ended {
            Ok(true) if outcome.failed.is_none() => Answer::of(&outcome, "spilled; on disk, and on its way"),
            Ok(_) => {
                let unlogged = self.config.into.unlogged;
                let durability =
                    if unlogged { "unlogged; accepted, lost if the database crashes" } else { "durable" };
                Answer::of(&outcome, durability)
            }
            Err(answer) => answer,
        }
    }

    /// Tells again what an earlier attempt was told of rows that were refused.
    async fn remember(&self, key: &str, outcome: &mut Outcome) {
        let Ok(control) = self.feeder.registry.control().await else { return };
        let name = PartitionName { source: self.source.name.clone(), partition: key.to_owned() };
        let most = i64::try_from(TOLD).unwrap_or(i64::MAX);
        let client = &control.connected.client;
        let found = control.ledger.refused_of(client, &name, self.config.into.unlogged, most).await;
        // Without an answer the rows count as known, which they are.
        let Ok((count, refused)) = found else { return };
        // Those of this attempt are among them.
        outcome.known = outcome.known.saturating_sub(count.saturating_sub(outcome.rejects));
        outcome.rejects = outcome.rejects.max(count);
        outcome.refused =
            refused.into_iter().map(|(line, sqlstate, reason)| Refused { line, sqlstate, reason }).collect();
    }

    async fn wait_for_key(&self, key: &str) -> Option<super::Busy<'_>> {
        let began = Instant::now();
        loop {
            if let Some(busy) = self.take_key(key) {
                return Some(busy);
            }
            if began.elapsed() > self.feeder.limits.wait.0 {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn too_large(&self) -> Answer {
        Answer::error(413, &format!("the body is larger than {} bytes", self.config.max_body.0)).closing()
    }
}

impl Flow<'_> {
    /// Reads all of the body and hands it on in pieces.
    async fn run(&mut self, mut body: Incoming, unzip: bool, length: Option<u64>) -> Result<(), Answer> {
        let part = self.input.feeder.part_bytes();
        let expected = length.and_then(|length| usize::try_from(length).ok());
        let mut unzipper = unzip.then(|| MultiGzDecoder::new(Vec::new()));
        let began = Instant::now();
        let mut read = 0usize;
        loop {
            if self.memory.is_none() {
                let left = expected.map_or(part, |expected| expected.saturating_sub(read).min(part));
                self.memory = Some(self.take_memory(left).await?);
                self.make_room(left);
            }
            // Bytes are counted, not told apart: a float is exact enough.
            #[allow(clippy::cast_precision_loss)]
            let allowed = self.input.config.timeout.0 + Duration::from_secs_f64(read as f64 / SLOWEST);
            let left = allowed.saturating_sub(began.elapsed());
            let frame = match tokio::time::timeout(left, body.frame()).await {
                Err(_) => return Err(Answer::error(408, "the body comes too slowly").closing()),
                Ok(None) => break,
                // Nobody is left to be told.
                Ok(Some(Err(e))) => {
                    return Err(Answer::error(400, &format!("the body ends early: {e}")).closing());
                }
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            read += data.len();
            match &mut unzipper {
                None => self.add(&data).await?,
                Some(unzipper) => {
                    // In steps, none of which makes more than a part: a small frame may hold very much.
                    for some in data.chunks(1 << 10) {
                        unzipper.write_all(some).map_err(|e| bad_gzip(&e))?;
                        let plain = std::mem::take(unzipper.get_mut());
                        self.add(&plain).await?;
                    }
                }
            }
        }
        if let Some(unzipper) = unzipper {
            let plain = unzipper.finish().map_err(|e| bad_gzip(&e))?;
            self.add(&plain).await?;
        }
        if !self.buffer.is_empty() {
            let all = self.buffer.len();
            self.key_by_content(true)?;
            self.cut(all).await?;
        }
        if let Some(share) = self.share.take() {
            share.settle(0);
        }
        Ok(())
    }

    async fn take_memory(&mut self, bytes: usize) -> Result<OwnedSemaphorePermit, Answer> {
        let feeder = &self.input.feeder;
        if !self.spills {
            match tokio::time::timeout(feeder.limits.wait.0, feeder.memory.take(bytes)).await {
                Ok(permit) => return Ok(permit),
                // What is left of the body does not wait for the server. With a key all of it goes one way: the offset of
                // a lane says that the lane has everything before it.
                Err(_) => {
                    self.spills = feeder.spill.is_some() && (self.key.is_none() || self.origin.is_none());
                }
            }
        }
        let spilled = async {
            match self.spills {
                true => Some(feeder.spill_memory.take(bytes).await),
                false => None,
            }
        };
        match tokio::time::timeout(feeder.limits.wait.0, spilled).await {
            Ok(Some(permit)) => Ok(permit),
            Ok(None) | Err(_) => {
                let why = feeder.metrics.not_ready(feeder.limits.rejects_per_minute).join("; ");
                let why =
                    if why.is_empty() { "the server takes rows more slowly than they come" } else { &why };
                Err(Answer::later(503, 1, &format!("no memory for more rows: {why}")).closing())
            }
        }
    }

    /// Memory for a row that does not end: the buffer may grow by another part.
    async fn take_more_memory(&mut self, part: usize) -> Result<(), Answer> {
        let covered = self.memory.as_ref().map_or(0, covered);
        if self.buffer.len() + part <= covered {
            return Ok(());
        }
        let more = self.take_memory(part).await?;
        match &mut self.memory {
            Some(memory) if Arc::ptr_eq(memory.semaphore(), more.semaphore()) => memory.merge(more),
            memory => *memory = Some(more),
        }
        Ok(())
    }

    /// Has the buffer hold what is to come without being copied while it grows. A short body has a short one.
    fn make_room(&mut self, bytes: usize) {
        let buffers = &self.input.feeder.buffers;
        if bytes < buffers.size() / 2 {
            self.buffer.reserve(bytes);
        } else if self.buffer.capacity() < buffers.size() {
            let mut buffer = buffers.take();
            buffer.extend_from_slice(&self.buffer);
            self.buffer = buffer;
        }
    }

    /// Adds bytes, and hands on what is enough for a part.
    async fn add(&mut self, mut bytes: &[u8]) -> Result<(), Answer> {
        let max = self.input.config.max_body.0;
        if (self.passed + self.buffer.len() + bytes.len()) as u64 > max {
            return Err(self.input.too_large());
        }
        while !bytes.is_empty() {
            // A buffer that is full without the end of a record grows.
            let room = match self.buffer.capacity() - self.buffer.len() {
                0 => bytes.len(),
                room => room,
            };
            let (some, rest) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(some);
            bytes = rest;
            if self.head.is_none() && self.buffer.len() >= HEAD {
                self.head = Some(head_of(&self.buffer));
            }
            self.cut_parts().await?;
        }
        Ok(())
    }

    /// Hands on what is enough for a part.
    async fn cut_parts(&mut self) -> Result<(), Answer> {
        let part = self.input.feeder.part_bytes();
        while self.buffer.len() >= part {
            if let RowsOf::CsvWithHeader = self.ingest.rows {
                self.header(false)?;
                continue;
            }
            let RowsOf::Known(reading) = &self.ingest.rows else { break };
            let Some(border) = last_border(reading, &self.buffer) else {
                if self.buffer.len() > self.input.feeder.memory.largest_part() {
                    return Err(Answer::error(413, "a row is larger than the memory for rows").closing());
                }
                self.take_more_memory(part).await?;
                break;
            };
            // A body may be nothing but rows that are refused.
            self.input.refuse_poisoned()?;
            self.key_by_content(false)?;
            self.cut(border).await?;
            if self.memory.is_none() {
                self.memory = Some(self.take_memory(part).await?);
                self.make_room(part);
            }
        }
        Ok(())
    }

    /// Gives a body without a key one that is made of all there is of it, where the input is to tell bodies apart by that.
    fn key_by_content(&mut self, whole: bool) -> Result<(), Answer> {
        if self.key.is_some() || !self.input.config.once_by_content {
            return Ok(());
        }
        if !whole {
            let fact = format!(
                "a body of more than {} bytes needs an Idempotency-Key: this input tells shorter ones apart by what is in them",
                self.input.feeder.part_bytes()
            );
            return Err(Answer::error(413, &fact).closing());
        }
        // The same bytes for another table, or read another way, are other rows.
        let (table, rows) = (self.ingest.table.as_deref().unwrap_or_default(), &self.ingest.rows);
        let how = xxh3_128(format!("{table}\0{rows:?}").as_bytes());
        self.key = Some(format!("={how:032x}{:032x}{:x}", xxh3_128(&self.buffer), self.buffer.len()));
        Ok(())
    }

    /// Takes the header off.
    fn header(&mut self, at_end: bool) -> Result<(), Answer> {
        let end = match first_csv_border(&self.buffer, b'"') {
            Some(end) => end,
            None if at_end => self.buffer.len(),
            None => return Err(Answer::error(400, "the header of the CSV does not end").closing()),
        };
        let reading = csv_header(&self.buffer[..end], "the body");
        let reading = reading.map_err(|error| Answer::error(400, error.fact()).closing())?;
        self.ingest.rows = RowsOf::Known(reading);
        self.passed += end;
        self.line += memchr::memchr_iter(b'\n', &self.buffer[..end]).count() as u64;
        self.buffer.drain(..end);
        Ok(())
    }

    /// Hands on the first bytes of the buffer.
    async fn cut(&mut self, mut end: usize) -> Result<(), Answer> {
        if self.spills {
            return self.spill(end).await;
        }
        let origin = match &self.origin {
            Some(origin) => Arc::clone(origin),
            None => {
                let origin = self.begin().await?;
                self.origin = Some(Arc::clone(&origin));
                origin
            }
        };
        if let RowsOf::CsvWithHeader = self.ingest.rows {
            let before = self.buffer.len();
            self.header(true)?;
            end -= before - self.buffer.len();
        }
        let RowsOf::Known(reading) = &self.ingest.rows else { return Ok(()) };
        let reading = reading.clone();
        if end == 0 {
            return Ok(());
        }
        let bytes = self.split(end);
        let start = i64::try_from(self.passed).unwrap_or(i64::MAX);
        self.count_lines();
        self.uncounted = bytes.clone();
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => self.take_memory(bytes.len()).await?,
        };
        if self.input.feeder.spill.is_some() {
            self.kept = match self.kept {
                Kept::Nothing => Kept::All(self.meta(&reading, start), bytes.clone()),
                Kept::All(..) | Kept::TooMuch => Kept::TooMuch,
            };
        }
        let piece = Piece {
            table: self.ingest.table.clone(),
            reading,
            first_line: self.line,
            positions: Positions::Bytes(start),
            next: start + i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            memory,
            bytes,
        };
        self.passed += end;
        if let Some(share) = &self.share {
            self.input.feeder.feed(&self.input.source, &origin, piece, share.another());
        }
        Ok(())
    }

    /// Counts the lines of what was handed on: only now something comes behind them.
    fn count_lines(&mut self) {
        let bytes = std::mem::take(&mut self.uncounted);
        self.line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
    }

    /// Takes the first bytes out of the buffer.
    fn split(&mut self, end: usize) -> Bytes {
        let rest = self.buffer.split_off(end);
        self.input.feeder.buffers.lend(std::mem::replace(&mut self.buffer, rest))
    }

    /// Has the first bytes of the buffer kept on disk.
    async fn spill(&mut self, mut end: usize) -> Result<(), Answer> {
        // A body that is shorter is still here as a whole.
        self.head.get_or_insert_with(|| head_of(&self.buffer));
        if let RowsOf::CsvWithHeader = self.ingest.rows {
            let before = self.buffer.len();
            self.header(true)?;
            end -= before - self.buffer.len();
        }
        let input = self.input;
        let Some(spill) = input.feeder.spill.as_ref().filter(|_| end > 0) else { return Ok(()) };
        self.count_lines();
        let RowsOf::Known(reading) = &self.ingest.rows else { return Ok(()) };
        let meta = self.meta(reading, i64::try_from(self.passed).unwrap_or(i64::MAX));
        let bytes = self.split(end);
        self.uncounted = bytes.clone();
        let kept = spill.append(&meta, bytes).await;
        self.input.feeder.metrics.spilled.fetch_add(1, Relaxed);
        self.memory = None;
        self.passed += end;
        kept.map_err(|error| {
            self.input.feeder.metrics.note_error(&error);
            Answer::later(503, 5, error.fact()).closing()
        })
    }

    /// What has to be known of a piece beside its bytes.
    fn meta(&self, reading: &Reading, start: i64) -> Meta {
        Meta {
            input: self.input.source.name.clone(),
            table: self.ingest.table.clone(),
            reading: KeptReading::of(reading),
            first_line: self.line,
            start,
            key: self.key.clone().zip(self.head.clone()),
        }
    }

    /// What is known of the request: nothing without a key.
    async fn begin(&mut self) -> Result<Arc<Origin>, Answer> {
        let HttpInput { feeder, source, config, .. } = self.input;
        let unlogged = config.into.unlogged;
        let Some(key) = &self.key else {
            let name = PartitionName { source: source.name.clone(), partition: String::new() };
            return Ok(Arc::new(Origin::untraced(name, feeder.lanes, unlogged)));
        };
        // A body that is shorter is still here as a whole.
        let head = self.head.get_or_insert_with(|| head_of(&self.buffer)).clone();
        let known = match self.own_key {
            // Nobody has seen it before.
            true => None,
            false => self.known(key, unlogged).await.map_err(|error| {
                feeder.metrics.note_error(&error);
                Answer::failed(&error).closing()
            })?,
        };
        if known.as_ref().is_some_and(|known| known.head != head) {
            let fact = "this Idempotency-Key came with another body before";
            return Err(Answer::error(422, fact).closing());
        }
        let name = PartitionName { source: source.name.clone(), partition: key.clone() };
        Ok(Arc::new(Origin::request(name, head, known.as_ref(), feeder.lanes, unlogged)))
    }

    async fn known(&self, key: &str, unlogged: bool) -> Result<Option<RequestState>, Error> {
        let HttpInput { feeder, source, .. } = self.input;
        let control = feeder.registry.control().await?;
        let client = &control.connected.client;
        let known = control.ledger.request(client, &source.name, key, unlogged).await;
        known.map_err(|e| {
            let failure = control.connected.failure(&e);
            Error::new(Code::ConnectionLost, failure.error().fact().to_owned())
        })
    }
}

/// A key that nobody else has.
fn own_key_of_a_body() -> String {
    let random = || RandomState::new().build_hasher().finish();
    // Random keys of SipHash, different in each process and counted up in it; and the time.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("~{now:x}-{:016x}{:016x}", random(), random())
}

fn head_of(body: &[u8]) -> Vec<u8> {
    xxh3_128(&body[..body.len().min(HEAD)]).to_be_bytes().to_vec()
}

fn bad_gzip(error: &std::io::Error) -> Answer {
    Answer::error(400, &format!("the body is not valid gzip: {error}")).closing()
}
