//! Decoder and encoders for the rows of one input into one table.

use super::leaves::{LeafWriter, Leaves, Met};
use super::now;
use super::optional::Optional;
use super::out::LaneOut;
use crate::buffers::Buffers;
use crate::config::{Into, Unknown};
use crate::lane::RowText;
use crate::metrics::unix_micros;
use crate::part::{Batch, Body, Reading};
use crate::target::{Leaf, Shape, Target, Wish, instant};
use bytes::Bytes;
use inrush_cluster::KeyedFrames;
use inrush_core::{BadRecord, Code, Error, FieldSource, Fields, Record, Result};
use inrush_decode::line::{self, LineDecoder};
use inrush_decode::{Decoder, Step, csv, ndjson};
use inrush_encode::frames::{BLOCK, BlockWriter, FrameEncoder, FrameLayout};
use inrush_encode::{RowEncoder, ValueEncoder, copy_binary, copy_text};
use inrush_route::{HashKind, partition_hash};
use inrush_sink::copy::WireFormat;
use inrush_windows::{Late, Place};
use std::ops::Range;
use std::sync::Arc;

/// Decoder and encoders.
pub(super) struct Reader {
    pub target: Arc<Target>,
    pub shape: Arc<Shape>,
    decoder: Decoding,
    time: Option<(FieldSource, ValueEncoder)>,
    key: Option<(FieldSource, ValueEncoder, HashKind)>,
    text: copy_text::CopyText,
    leaves: Leaves,
    /// Where the last row went: the next one most often goes there, too.
    hot: Option<Hot>,
    optional: Optional,
    /// Columns with a default that it fills.
    present: Vec<Vec<u8>>,
    /// Value of the time or key under way.
    value: Vec<u8>,
    now: i64,
}

/// A leaf: its window, its number in the window, and in the reader.
struct Hot {
    window: Range<i64>,
    lane: u32,
    leaf: usize,
}

enum Decoding {
    Records(Box<dyn Decoder>),
    Lines(Box<LineDecoder>),
}

/// Where a row belongs. Numbers are those of the leaf in its window, but for that of a leaf that is there: it is the
/// reader's.
pub(super) enum Spot {
    /// The number in the window is that of the row's own leaf, also where it goes to the table for late rows: it comes
    /// to the same lane when it is read again.
    Leaf(usize, u32, Option<i64>),
    /// The window of this instant may be made, but is not.
    Missing(i64, u32),
    Late(u32),
    TooFarAhead(u32),
}

impl Reader {
    pub fn new(target: &Arc<Target>, into: &Into, reading: &Reading, present: &[Vec<u8>]) -> Result<Reader> {
        let wish = match reading {
            Reading::Csv { header, .. } => Wish::Header(header),
            _ => Wish::Keys(present),
        };
        let shape = Arc::new(Shape::fit(target, into, wish)?);
        let mut reader = Reader::of_shape(target, shape, into, reading);
        reader.optional = Optional::of(target, into, reading);
        present.clone_into(&mut reader.present);
        Ok(reader)
    }

    /// A reader for rows of a shape that is there.
    fn of_shape(target: &Arc<Target>, shape: Arc<Shape>, into: &Into, reading: &Reading) -> Reader {
        let decoder = match reading {
            Reading::Ndjson => {
                let unknown = match into.unknown {
                    Unknown::Ignore => ndjson::Unknown::Ignore,
                    Unknown::Reject | Unknown::Add => ndjson::Unknown::Reject,
                };
                let decoder = ndjson::NdjsonDecoder::new(shape.ndjson_keys(into)).unknown(unknown);
                Decoding::Records(Box::new(decoder))
            }
            Reading::Csv { dialect, header } => {
                Decoding::Records(Box::new(csv::CsvDecoder::new(dialect, Some(header.len()))))
            }
            Reading::Line { precision } => {
                let unknown = match into.unknown {
                    Unknown::Ignore => line::Unknown::Ignore,
                    Unknown::Reject => line::Unknown::Reject,
                    Unknown::Add => line::Unknown::Report,
                };
                let form = if shape.time_is_number(target, into) {
                    line::TimeForm::Number
                } else {
                    line::TimeForm::Timestamp
                };
                let keys = shape.line_keys(target, into);
                Decoding::Lines(Box::new(LineDecoder::new(&keys, *precision, form).unknown(unknown)))
            }
        };
        let value_of = |column: &str| -> Option<(FieldSource, ValueEncoder)> {
            let source = shape.source(column)?.clone();
            let column = target.table.column(column)?;
            Some((source, ValueEncoder::of(&column.ty, column.typmod, &target.session)?))
        };
        let (mut time, mut key) = (None, None);
        if let Some(windows) = &target.windows {
            // A time that the server rounds is not the one that is read here.
            let column = target.table.column(&windows.windowed.time_column);
            if column.is_some_and(|column| column.typmod == -1) {
                time = value_of(&windows.windowed.time_column);
            }
            key = windows.key.as_ref().and_then(|key| {
                let (source, encoder) = value_of(&key.column)?;
                Some((source, encoder, key.hash?))
            });
        }
        Reader {
            target: Arc::clone(target),
            decoder,
            time,
            key,
            text: copy_text::CopyText::new(&shape.encode_columns()),
            leaves: Leaves::default(),
            hot: None,
            optional: Optional::default(),
            present: Vec::new(),
            value: Vec::new(),
            now: now(target),
            shape,
        }
    }

    /// Goes on with the table as it is now. `false` if its columns are others.
    pub fn follow(&mut self, target: &Arc<Target>) -> bool {
        if target.version == self.target.version {
            return true;
        }
        if target.table != self.target.table || !target.way.takes_the_same_rows(&self.target.way) {
            return false;
        }
        self.target = Arc::clone(target);
        self.leaves.follow(target);
        self.hot = None;
        true
    }

    /// Whether records of one input may fill different columns of the table.
    pub fn tells_apart(&self) -> bool {
        !self.optional.is_empty()
    }

    /// Whether a record fills the columns that this is for.
    pub fn suits(&self, record: &[u8]) -> bool {
        self.optional.suits(record, &self.present)
    }

    /// Whether the record that was decoded last does, too: what looked like a key may have stood in a value.
    pub fn fills(&self, record: &Record<'_>, bytes: &[u8]) -> bool {
        let filled = |name: &Vec<u8>| {
            let source = std::str::from_utf8(name).ok().and_then(|name| self.shape.source(name));
            source.is_some_and(|source| source.value(record).is_some())
        };
        self.present.iter().all(filled) || self.optional.present_in(bytes) == self.present
    }

    /// The columns with a default that a record fills.
    pub fn present_in(&self, record: &[u8]) -> Vec<Vec<u8>> {
        self.optional.present_in(record)
    }

    /// A part begins that was received then.
    pub fn starts(&mut self, received: i64) {
        self.now = now(&self.target);
        if let Decoding::Lines(decoder) = &mut self.decoder {
            decoder.received(received);
        }
    }

    pub fn begin(&mut self, bytes: &[u8]) {
        match &mut self.decoder {
            Decoding::Records(decoder) => decoder.begin(bytes),
            Decoding::Lines(decoder) => decoder.begin(bytes),
        }
    }

    pub fn next(&mut self, bytes: &[u8], fields: &mut Fields) -> Option<Step> {
        let decoder: &mut dyn Decoder = match &mut self.decoder {
            Decoding::Records(decoder) => decoder.as_mut(),
            Decoding::Lines(decoder) => decoder.as_mut(),
        };
        match decoder.simple(bytes, fields) {
            Some(range) => Some(Step { range, result: Ok(()) }),
            None => decoder.next(bytes, fields),
        }
    }

    /// Decodes one line of line protocol.
    pub fn line(&mut self, bytes: &[u8], line: Range<usize>, fields: &mut Fields) -> Result<(), BadRecord> {
        match &mut self.decoder {
            Decoding::Lines(decoder) => decoder.line(bytes, line, fields),
            Decoding::Records(_) => Err(BadRecord::format("not line protocol")),
        }
    }

    /// Columns for the keys of lines that no column takes.
    pub fn drifted_columns(&mut self) -> Vec<(String, &'static str)> {
        let Decoding::Lines(decoder) = &mut self.decoder else { return Vec::new() };
        let ty = |drift: &line::Drift| match drift.kind {
            line::FieldKind::Float => "double precision",
            line::FieldKind::Int => "bigint",
            line::FieldKind::Unsigned => "numeric(20)",
            line::FieldKind::Bool => "boolean",
            line::FieldKind::String => "text",
        };
        let columns = decoder
            .drift()
            .iter()
            .filter_map(|drift| Some((String::from_utf8(drift.name.clone()).ok()?, ty(drift))))
            .filter(|(name, _)| self.target.table.column(name).is_none())
            .collect();
        decoder.clear_drift();
        columns
    }

    /// Whether late rows are counted and dropped.
    pub fn drops_late(&self) -> bool {
        let windows = self.target.windows.as_ref();
        windows.is_some_and(|windows| windows.windowed.policy.late == Late::Drop)
    }

    /// Where the record belongs. What cannot be told here, the server tells.
    pub fn spot(&mut self, record: &Record<'_>) -> Spot {
        match self.window_spot(record) {
            Some(spot) => spot,
            None => {
                let root = &self.target.root;
                let leaf = self.leaves.number(root.relid, || Some(Arc::clone(root)));
                Spot::Leaf(leaf.unwrap_or_default(), root.number, None)
            }
        }
    }

    /// The same, if it can be told here.
    fn window_spot(&mut self, record: &Record<'_>) -> Option<Spot> {
        let windows = self.target.windows.as_ref()?;
        let (source, encoder) = self.time.as_ref()?;
        let text = source.value(record)?;
        self.value.clear();
        if !encoder.encode(text, &mut self.value) {
            return None;
        }
        let event = instant(windows.windowed.time_kind, &self.value)?;
        let number = match (&windows.key, &self.key) {
            (None, _) => 0,
            (Some(_), Some((source, encoder, hash))) => {
                self.value.clear();
                let value = match source.value(record) {
                    None => None,
                    Some(text) if encoder.encode(text, &mut self.value) => Some(self.value.as_slice()),
                    Some(_) => return None,
                };
                let hash = partition_hash(&[(*hash, value)])?;
                // The remainder is less than the number of lanes.
                #[allow(clippy::cast_possible_truncation)]
                let number = (hash % u64::from(windows.windowed.policy.lanes.max(1))) as u32;
                number
            }
            (Some(_), None) => return None,
        };
        if let Some(hot) = &self.hot
            && hot.window.contains(&event)
            && hot.lane == number
        {
            return Some(Spot::Leaf(hot.leaf, number, Some(event)));
        }
        Some(match windows.windowed.place(event, self.now) {
            Place::Window(window) => {
                let leaf = window.leaves.iter().find(|leaf| leaf.lane == number);
                let leaf = leaf.and_then(|leaf| {
                    self.leaves.number(leaf.relid, || windows.leaves.get(&leaf.relid).map(Arc::clone))
                });
                let leaf = leaf?;
                self.hot = Some(Hot { window: window.start..window.end, lane: number, leaf });
                Spot::Leaf(leaf, number, Some(event))
            }
            Place::Missing => Spot::Missing(event, number),
            Place::Late => match &windows.overflow {
                Some(overflow) => {
                    let leaf = self.leaves.number(overflow.relid, || Some(Arc::clone(overflow)));
                    Spot::Leaf(leaf.unwrap_or_default(), number, None)
                }
                None => Spot::Late(number),
            },
            Place::TooFarAhead => Spot::TooFarAhead(number),
        })
    }

    /// A leaf of which [`Reader::spot`] gave the number.
    pub fn leaf(&self, number: usize) -> &Arc<Leaf> {
        self.leaves.get(number).map_or(&self.target.root, |met| &met.leaf)
    }

    /// Whether the encoder of a leaf is there.
    pub fn can_write(&self, leaf: usize) -> bool {
        self.leaves.get(leaf).is_some_and(|met| met.writer.is_some())
    }

    /// Makes the encoder of a leaf: of frames, if there is a layout for it.
    pub fn prepare(&mut self, number: usize, layout: Option<Arc<FrameLayout>>) {
        let leaf = Arc::clone(self.leaf(number));
        let columns = self.shape.encode_columns();
        let session = &self.target.session;
        let direct = layout.and_then(|layout| {
            let encoder = FrameEncoder::new(&layout, &self.shape.names, &columns, session).ok()?;
            let encoder: Box<dyn RowEncoder> = match self.target.way.nodes() {
                Some(nodes) => {
                    let (topology, named) = (&nodes.aim.topology, &self.shape.columns);
                    Box::new(KeyedFrames::new(topology, named, &columns, *session, encoder).ok()?)
                }
                None => Box::new(encoder),
            };
            Some(LeafWriter { encoder, wire: WireFormat::Direct, blocks: Some(BlockWriter::new(&layout)) })
        });
        // A parent takes rows whose values could not be read here: binary would be unsure of most.
        let is_parent = self.target.windows.is_some() && leaf.relid == self.target.root.relid;
        let text = self.target.way.nodes().is_some_and(|nodes| nodes.text.is_some());
        let binary = !is_parent
            && !text
            && columns.iter().all(|c| copy_binary::CopyBinary::supports_column(&c.ty, c.typmod));
        let writer = match direct {
            Some(writer) => writer,
            None if binary => LeafWriter {
                encoder: Box::new(copy_binary::CopyBinary::new(&columns, session)),
                wire: WireFormat::Binary,
                blocks: None,
            },
            None => LeafWriter {
                encoder: Box::new(copy_text::CopyText::new(&columns)),
                wire: WireFormat::Text,
                blocks: None,
            },
        };
        if let Some(met) = self.leaves.get_mut(number) {
            met.writer = Some(writer);
        }
    }

    /// Encodes a record for a leaf. `true` if it went as text beside the others.
    pub fn write(
        &mut self,
        record: &Record<'_>,
        leaf: usize,
        start: u32,
        event: Option<i64>,
        out: &mut LaneOut,
        blocks: &Buffers,
    ) -> bool {
        let Some(Met { leaf, writer: Some(writer) }) = self.leaves.get_mut(leaf) else { return false };
        let fits = |batch: &Batch| batch.leaf.relid == leaf.relid && batch.shape.id == self.shape.id;
        if !out.batches.get(out.last).is_some_and(fits) {
            out.last = match out.batches.iter().position(fits) {
                Some(at) => at,
                None => {
                    out.batches.push(Batch {
                        target: Arc::clone(&self.target),
                        leaf: Arc::clone(leaf),
                        shape: Arc::clone(&self.shape),
                        wire: writer.wire,
                        blocks: writer.blocks.clone(),
                        open: Vec::new(),
                        messages: Vec::new(),
                        side: Bytes::new(),
                        open_side: Vec::new(),
                        rows: 0,
                        starts: Vec::new(),
                        up_to: None,
                    });
                    out.batches.len() - 1
                }
            };
        }
        let batch = &mut out.batches[out.last];
        batch.rows += 1;
        batch.starts.push(start);
        batch.up_to = batch.up_to.max(event);
        let as_text = !writer.write(record, batch);
        if as_text {
            let sure = self.text.row(record, &mut batch.open_side);
            debug_assert!(sure.is_ok(), "COPY text takes every value");
        }
        if batch.open.len() >= BLOCK {
            flush(batch, blocks);
            batch.open = blocks.take();
        } else if batch.open.len() >= BLOCK / 2 && batch.open.capacity() < blocks.size() {
            // Not before: a part may have rows for very many leaves.
            let mut open = blocks.take();
            open.extend_from_slice(&batch.open);
            batch.open = open;
        }
        as_text
    }
}

/// Bytes of the buffers that messages are made in: one row may go beyond a block.
pub(crate) const MESSAGE: usize = BLOCK + BLOCK / 8;

/// Makes messages of what is open.
fn flush(batch: &mut Batch, buffers: &Buffers) {
    let open = std::mem::take(&mut batch.open);
    // Frames for nodes go into blocks when their place is known.
    match batch.blocks.as_ref().filter(|_| batch.target.way.nodes().is_none()) {
        Some(writer) => batch.messages.extend(writer.seal(open).into_iter().map(|one| buffers.lend(one))),
        None if open.is_empty() => {}
        None => batch.messages.push(buffers.lend(open)),
    }
}

/// A batch that takes no more rows.
pub(super) fn sealed(mut batch: Batch, buffers: &Buffers) -> Batch {
    flush(&mut batch, buffers);
    batch.side = Bytes::from(std::mem::take(&mut batch.open_side));
    batch
}

/// The rows of a batch as COPY text, decoded again.
///
/// # Errors
/// Code `internal`, where not all of them are found again.
pub(crate) fn row_texts(body: &Body, batch: &Batch) -> Result<Vec<RowText>> {
    let into = &body.source.into;
    let mut reader = Reader::of_shape(&batch.target, Arc::clone(&batch.shape), into, &body.reading);
    reader.starts(unix_micros(body.received));
    let mut fields = Fields::new();
    let mut rows = Vec::with_capacity(batch.starts.len());
    let mut wanted = batch.starts.iter().map(|start| *start as usize).peekable();
    let mut push = |reader: &mut Reader, range: Range<usize>, fields: &Fields| {
        let mut text = Vec::new();
        let sure = reader.text.row(&Record { input: &body.bytes, fields }, &mut text);
        debug_assert!(sure.is_ok(), "COPY text takes every value");
        rows.push(RowText { range, text });
    };
    if matches!(body.reading, Reading::Line { .. }) {
        for found in line::lines(&body.bytes) {
            if wanted.next_if_eq(&found.content.start).is_some()
                && reader.line(&body.bytes, found.content.clone(), &mut fields).is_ok()
            {
                push(&mut reader, found.content, &fields);
            }
        }
    } else {
        reader.begin(&body.bytes);
        while let Some(step) = reader.next(&body.bytes, &mut fields) {
            if wanted.next_if_eq(&step.range.start).is_some() && step.result.is_ok() {
                push(&mut reader, step.range, &fields);
            }
        }
    }
    if rows.len() != batch.starts.len() {
        return Err(Error::new(
            Code::Internal,
            format!("{} rows of a batch were found again, of {}", rows.len(), batch.starts.len()),
        ));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
