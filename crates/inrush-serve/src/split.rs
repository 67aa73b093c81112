//! Splitters: threads that decode parts, find the leaf of each row and encode it.
//!
//! All parts of one origin go through the same splitter, so that each lane is given them in order.

mod leaves;
mod naming;
mod optional;
mod out;
mod reader;
mod records;

use crate::buffers::Buffers;
use crate::config::LimitsConfig;
use crate::lane::Lanes;
use crate::metrics::{Metrics, unix_micros};
use crate::origin::Kind;
use crate::part::{Body, Part, Reading};
use crate::target::{Registry, Target};
use inrush_core::{BadRecord, Code, Error, Fields, Position, Record, Reject, RejectOrigin, Result};
use inrush_decode::{line, ndjson};
use naming::Naming;
pub(crate) use naming::Template;
use optional::Optional;
use out::Out;
pub(crate) use reader::{MESSAGE, row_texts};
use reader::{Reader, Spot};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// How long a splitter waits before it asks a server again that cannot be reached.
const PAUSE: Duration = Duration::from_millis(250);

/// Bytes of a name (NAMEDATALEN - 1). The server cuts what is longer, and the key would find no column again.
const NAME_BYTES: usize = 63;

/// Readers that are kept at most: tables may be named from outside.
const READERS: usize = 1000;

/// One splitter.
pub(crate) struct Splitter {
    pub registry: Arc<Registry>,
    pub handle: tokio::runtime::Handle,
    pub lanes: Lanes,
    pub metrics: Arc<Metrics>,
    pub reject_limit: u64,
    /// How long rows that can be sent again wait for a server that is away.
    pub patience: Duration,
    /// For messages.
    pub blocks: Buffers,
    readers: HashMap<ReaderKey, Reader>,
}

/// What became of a key that no column took.
enum Drifted {
    /// The table has columns for all keys of the record now.
    Target(Arc<Target>),
    /// No column can be made for it.
    Refused(BadRecord),
}

/// What readers are told apart by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReaderKey {
    source: String,
    table: String,
    reading: String,
    present: Vec<Vec<u8>>,
}

impl Splitter {
    pub fn new(
        registry: Arc<Registry>,
        handle: tokio::runtime::Handle,
        lanes: Lanes,
        metrics: Arc<Metrics>,
        limits: &LimitsConfig,
        blocks: Buffers,
    ) -> Splitter {
        let (reject_limit, patience) = (limits.rejects_per_minute, limits.wait.0);
        Splitter { registry, handle, lanes, metrics, reject_limit, patience, blocks, readers: HashMap::new() }
    }

    /// Works until the channel is closed.
    pub fn run(mut self, parts: &mut mpsc::UnboundedReceiver<Part>) {
        while let Some(part) = parts.blocking_recv() {
            self.part(part);
        }
    }

    fn part(&mut self, part: Part) {
        let Part { body, next, share } = part;
        if body.origin.is_stale() {
            share.fail(&Error::new(Code::Fenced, "another reader has taken over"));
            return;
        }
        let body = Arc::new(body);
        let mut work = Work::new(body.origin.lanes());
        let split = match &body.table {
            Some(table) => self.one_table(&body, table, &mut work),
            None => Naming::of(&body.source.into).and_then(|naming| self.lines(&body, &mut work, naming)),
        };
        if let Err(error) = split {
            self.metrics.note_error(&error);
            share.fail(&error);
            // What was encoded is forgotten; nothing of the part has been given to a lane.
            return;
        }
        let counters = &body.source.counters;
        counters.bytes.fetch_add(body.bytes.len() as u64, Relaxed);
        counters.known.fetch_add(work.out.known, Relaxed);
        counters.dropped.fetch_add(work.out.dropped, Relaxed);
        share.count(work.out.known, work.out.dropped);
        let rejects = work.out.rejects();
        if rejects > 0 && !counters.reject(rejects, self.reject_limit) {
            tracing::warn!(
                input = body.source.name,
                "too many refused rows: the input is stopped for a while"
            );
        }
        work.out.give(&body, next, &share, &self.lanes, &self.blocks);
        share.settle(0);
    }

    /// Lines of line protocol, each with its own table.
    fn lines(&mut self, body: &Arc<Body>, work: &mut Work, mut naming: Naming<'_>) -> Result<()> {
        let mut name = String::new();
        let mut current: Option<(String, ReaderKey, Reader)> = None;
        for found in line::lines(&body.bytes) {
            let content = &body.bytes[found.content.clone()];
            if let Err(bad) = naming.name(content, &mut name) {
                self.refuse(body, &found.content, "", &bad, work);
                continue;
            }
            if current.as_ref().is_none_or(|(of, ..)| *of != name) {
                if let Some((_, key, reader)) = current.take() {
                    self.readers.insert(key, reader);
                }
                if let Err(bad) = naming.check(&name) {
                    self.refuse(body, &found.content, "", &bad, work);
                    continue;
                }
                let target = match self.target(&name, body) {
                    Ok(target) => target,
                    // The other lines of the body are not to suffer for it.
                    Err(error) if body.table.is_none() && is_about_the_table(&error) => {
                        self.refuse(body, &found.content, &name, &of_error(&error), work);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let (key, reader) = match self.reader(body, &target, content) {
                    Err(error) if body.table.is_none() && is_about_the_table(&error) => {
                        self.refuse(body, &found.content, &name, &of_error(&error), work);
                        continue;
                    }
                    other => other?,
                };
                current = Some((name.clone(), key, reader));
            }
            while let Some((_, key, reader)) = &mut current {
                match self.one_line(body, reader, &found.content, work)? {
                    None => break,
                    // Other columns: it is decoded again.
                    Some((target, present)) => {
                        let (new_key, new) = self.reader_for(body, &target, present)?;
                        let old_key = std::mem::replace(key, new_key);
                        let old = std::mem::replace(reader, new);
                        self.readers.insert(old_key, old);
                    }
                }
            }
        }
        if let Some((_, key, reader)) = current.take() {
            self.readers.insert(key, reader);
        }
        Ok(())
    }

    /// One line. Gives the table and the columns with a default that it fills, where the reader is for others: nothing
    /// has been done with the line then.
    #[allow(clippy::type_complexity)]
    fn one_line(
        &mut self,
        body: &Arc<Body>,
        reader: &mut Reader,
        content: &Range<usize>,
        work: &mut Work,
    ) -> Result<Option<(Arc<Target>, Vec<Vec<u8>>)>> {
        let line = &body.bytes[content.clone()];
        if !reader.suits(line) {
            let present = reader.present_in(line);
            return Ok(Some((Arc::clone(&reader.target), present)));
        }
        let decoded = reader.line(&body.bytes, content.clone(), &mut work.fields);
        if let Err(bad) = decoded {
            self.refuse(body, content, &reader.target.asked, &bad, work);
            return Ok(None);
        }
        if !reader.fills(&Record { input: &body.bytes, fields: &work.fields }, line) {
            return Ok(Some((Arc::clone(&reader.target), reader.present_in(line))));
        }
        let added = reader.drifted_columns();
        if !added.is_empty() {
            let target = Arc::clone(&reader.target);
            match self.add_columns(&target, body, &added)? {
                Drifted::Target(target) => return Ok(Some((target, reader.present_in(line)))),
                Drifted::Refused(bad) => {
                    self.refuse(body, content, &reader.target.asked, &bad, work);
                    return Ok(None);
                }
            }
        }
        let changed = self.row(reader, &body.bytes, 0, body, content, work)?;
        Ok(changed.map(|target| (target, reader.present_in(line))))
    }

    /// Finds the leaf of the record that was decoded last, and encodes it. Gives the table where it has other columns
    /// than the reader knows of: nothing has been done with the record then.
    fn row(
        &mut self,
        reader: &mut Reader,
        bytes: &[u8],
        base: usize,
        body: &Arc<Body>,
        range: &Range<usize>,
        work: &mut Work,
    ) -> Result<Option<Arc<Target>>> {
        let position = body.positions.of(range.start, &mut work.mark);
        let mut asked = false;
        let (leaf, number, event) = loop {
            match reader.spot(&Record { input: bytes, fields: &work.fields }) {
                Spot::Leaf(leaf, number, event) => break (leaf, number, event),
                Spot::Missing(_, number) if asked => {
                    let bad = late("no window is made for this event time");
                    self.refuse_at(reader, body, range, (position, number), &bad, work);
                    return Ok(None);
                }
                Spot::Missing(event, _) => {
                    asked = true;
                    let target = Arc::clone(&reader.target);
                    let target = self.wait_for(body, |registry, handle| {
                        handle.block_on(registry.ensure(&target, &body.source.into, event))
                    })?;
                    if !reader.follow(&target) {
                        return Ok(Some(target));
                    }
                }
                Spot::Late(number) => {
                    let lane = reader.target.lane(number, body.origin.lanes());
                    if body.origin.has(lane, position) {
                        work.out.known += 1;
                    } else if reader.drops_late() {
                        work.out.dropped += 1;
                    } else {
                        let bad = late("the event time lies before the oldest window");
                        self.refuse_at(reader, body, range, (position, number), &bad, work);
                    }
                    return Ok(None);
                }
                Spot::TooFarAhead(number) => {
                    let bad = late("the event time lies too far in the future");
                    self.refuse_at(reader, body, range, (position, number), &bad, work);
                    return Ok(None);
                }
            }
        };
        let lane = reader.target.lane(number, body.origin.lanes());
        if body.origin.has(lane, position) {
            work.out.known += 1;
            return Ok(None);
        }
        if !reader.can_write(leaf) {
            let (target, shape) = (Arc::clone(&reader.target), Arc::clone(&reader.shape));
            let layout = self.wait_for(body, |registry, handle| {
                handle.block_on(registry.layout(reader.leaf(leaf), &target, &shape))
            })?;
            reader.prepare(leaf, layout);
        }
        // Rows of a part are bytes of it: what lies behind 4 GB is not there.
        let start = u32::try_from(range.start).unwrap_or(u32::MAX);
        debug_assert!(base <= range.start);
        let record = Record { input: bytes, fields: &work.fields };
        if reader.write(&record, leaf, start, event, work.out.lane(lane), &self.blocks) {
            self.metrics.rows_as_text.fetch_add(1, Relaxed);
        }
        Ok(None)
    }

    fn refuse_at(
        &self,
        reader: &Reader,
        body: &Body,
        range: &Range<usize>,
        (position, number): (i64, u32),
        bad: &BadRecord,
        work: &mut Work,
    ) {
        let lane = reader.target.lane(number, body.origin.lanes());
        if body.origin.has(lane, position) {
            work.out.known += 1;
            return;
        }
        let reject = work.reject(body, range, bad);
        work.out.lane(lane).refuse(body, position, &reader.target.asked, reject);
    }

    /// Refuses a record of which no leaf is known: it belongs to the origin's own lane.
    fn refuse(&self, body: &Body, range: &Range<usize>, table: &str, bad: &BadRecord, work: &mut Work) {
        let position = body.positions.of(range.start, &mut work.mark);
        let name = &body.origin.name.partition;
        let lane = xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % body.origin.lanes().max(1) as u64;
        let lane = usize::try_from(lane).unwrap_or_default();
        if body.origin.has(lane, position) {
            work.out.known += 1;
            return;
        }
        let reject = work.reject(body, range, bad);
        work.out.lane(lane).refuse(body, position, table, reject);
    }

    /// The table, as soon as the server can be asked.
    fn target(&self, table: &str, body: &Body) -> Result<Arc<Target>> {
        self.wait_for(body, |registry, handle| handle.block_on(registry.find(table, &body.source.into)))
    }

    /// Adds columns for the keys of a record; or says what is wrong with the record, where that cannot be done.
    fn add_columns(
        &self,
        target: &Arc<Target>,
        body: &Body,
        columns: &[(String, &'static str)],
    ) -> Result<Drifted> {
        let refused = |sqlstate, fact| Ok(Drifted::Refused(BadRecord { sqlstate, fact, field: None }));
        if columns.is_empty() {
            return Ok(Drifted::Refused(BadRecord::format("a key that no column takes")));
        }
        let odd = columns
            .iter()
            .find(|(name, _)| name.is_empty() || name.len() > NAME_BYTES || name.contains('\0'));
        if let Some((name, _)) = odd {
            let fact = format!("no column can have the name of the key \"{}\"", name.escape_debug());
            return refused("42622", fact);
        }
        let added = self.wait_for(body, |registry, handle| {
            handle.block_on(registry.add_columns(target, &body.source.into, columns))
        });
        match added {
            Ok(target) => match columns.iter().find(|(name, _)| target.table.column(name).is_none()) {
                None => Ok(Drifted::Target(target)),
                Some((name, _)) => refused("42703", format!("column {name:?} cannot be added")),
            },
            // Too many columns, names of the system, keys that differ in nothing the server sees: the next record may do.
            Err(error) => match error.sqlstate_text() {
                Some("42601" | "42622" | "42701" | "42P16" | "54011") => {
                    refused("42703", format!("a column for a key cannot be added: {}", error.fact()))
                }
                _ => Err(error),
            },
        }
    }

    /// Asks the server until it answers or the process stops. Rows that their sender can send again, or keep on disk, do
    /// not wait for ever: others come behind them.
    fn wait_for<T>(
        &self,
        body: &Body,
        mut ask: impl FnMut(&Registry, &tokio::runtime::Handle) -> Result<T>,
    ) -> Result<T> {
        let began = Instant::now();
        let waits_on = match body.origin.kind {
            Kind::Partition { .. } => true,
            Kind::Request { .. } | Kind::Untraced => false,
        };
        loop {
            match ask(&self.registry, &self.handle) {
                Err(error)
                    if matches!(error.code(), Code::Connect | Code::ConnectionLost)
                        && !self.lanes.is_aborted() =>
                {
                    self.metrics.note_error(&error);
                    if !waits_on && began.elapsed() > self.patience {
                        return Err(Error::new(Code::ConnectionLost, error.fact()));
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    /// A reader for the rows of a part; it is taken, and put back when they are done.
    fn reader(&mut self, body: &Body, target: &Arc<Target>, bytes: &[u8]) -> Result<(ReaderKey, Reader)> {
        let present = Optional::of(target, &body.source.into, &body.reading).present_in(bytes);
        self.reader_for(body, target, present)
    }

    /// The same, for rows that fill these columns with a default.
    fn reader_for(
        &mut self,
        body: &Body,
        target: &Arc<Target>,
        present: Vec<Vec<u8>>,
    ) -> Result<(ReaderKey, Reader)> {
        let source = &body.source;
        let reading = match &body.reading {
            Reading::Csv { header, dialect } => format!("{dialect:?}{header:?}"),
            other => format!("{other:?}"),
        };
        let key = ReaderKey { source: source.name.clone(), table: target.key.clone(), reading, present };
        let received = unix_micros(body.received);
        if let Some(mut reader) = self.readers.remove(&key)
            && reader.follow(target)
        {
            reader.starts(received);
            return Ok((key, reader));
        }
        if self.readers.len() >= READERS {
            self.readers.clear();
        }
        let mut reader = Reader::new(target, &source.into, &body.reading, &key.present)?;
        reader.starts(received);
        Ok((key, reader))
    }
}

/// What is under way with a part.
struct Work {
    fields: Fields,
    out: Out,
    lines: Lines,
    mark: usize,
}

/// Counts lines up to a byte that only moves forward.
#[derive(Default)]
struct Lines {
    byte: usize,
    count: u64,
}

impl Work {
    fn new(lanes: usize) -> Work {
        Work { fields: Fields::new(), out: Out::new(lanes), lines: Lines::default(), mark: 0 }
    }

    fn reject(&mut self, body: &Body, range: &Range<usize>, bad: &BadRecord) -> Reject {
        if range.start < self.lines.byte {
            self.lines = Lines::default();
        }
        self.lines.count +=
            memchr::memchr_iter(b'\n', &body.bytes[self.lines.byte..range.start]).count() as u64;
        self.lines.byte = range.start;
        Reject {
            input: 0,
            position: Position {
                source: body.source.name.clone(),
                byte: Some(range.start as u64),
                line: Some(body.first_line + self.lines.count),
                record: None,
                column: None,
            },
            sqlstate: bad.sqlstate.to_owned(),
            reason: bad.fact.clone(),
            origin: RejectOrigin::Client,
            raw: body.bytes[range.clone()].to_vec(),
            full_len: None,
        }
    }
}

/// Whether an error says that a table, as it is, cannot be written by an input.
fn is_about_the_table(error: &Error) -> bool {
    matches!(error.code(), Code::Table | Code::Columns | Code::Clash)
}

fn of_error(error: &Error) -> BadRecord {
    BadRecord { sqlstate: "42P01", fact: error.fact().to_owned(), field: None }
}

fn late(fact: &str) -> BadRecord {
    BadRecord { sqlstate: "23514", fact: fact.to_owned(), field: None }
}

/// Columns for the keys of a record that no column takes.
fn new_columns(target: &Target, body: &Body, record: &[u8]) -> Vec<(String, &'static str)> {
    let into = &body.source.into;
    let mut added = Vec::new();
    for key in ndjson::keys_of(record).keys {
        let Ok(name) = String::from_utf8(key.name) else { continue };
        let taken = target.table.column(&name).is_some() || into.columns.values().any(|of| *of == name);
        let ty = match () {
            () if key.objects + key.arrays > 0 => "jsonb",
            () if key.strings > 0 => "text",
            () if key.numbers > 0 => "double precision",
            () if key.booleans > 0 => "boolean",
            // Null says nothing of a type; the next value will.
            () => "text",
        };
        if !taken {
            added.push((name, ty));
        }
    }
    added
}

/// Now, as event times count.
fn now(target: &Target) -> i64 {
    target.windows.as_ref().map_or(0, |windows| windows.windowed.instant(SystemTime::now()))
}
