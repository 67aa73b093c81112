//! What a lane needs to turn the chunks of one input into wire bytes.

use crate::inputs::InputPlan;
use crate::lane::SIDE_LIMIT;
use crate::plan::{Plan, WirePath};
use inrush_cluster::KeyedFrames;
use inrush_core::{
    BadRecord, Chunk, Code, Error, FieldSource, Fields, Format, Position, Record, Reject, RejectOrigin,
    Result,
};
use inrush_decode::encoding::{check_utf8, invalid_at};
use inrush_decode::{Decoder, Run, Step};
use inrush_encode::frames::FrameEncoder;
use inrush_encode::{EncodeColumn, RowEncoder, copy_binary, copy_text};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Decoder and encoders of one input, owned by one lane.
pub(crate) struct Feed {
    pub plan: Arc<InputPlan>,
    check_utf8: bool,
    characters: Characters,
    decoder: Box<dyn Decoder>,
    main: Box<dyn RowEncoder>,
    text: copy_text::CopyText,
    fields: Fields,
}

/// What is known of the characters of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Characters {
    /// Nothing: the decoder watches for bytes that are not ASCII.
    Watched,
    /// Nothing is to be found, or nothing is looked for.
    Clean,
    /// There are bytes that are not valid UTF-8: every record is looked at.
    Dirty,
}

impl Characters {
    /// Looks at all characters of the chunk, if that has not been done.
    fn look(&mut self, bytes: &[u8]) {
        if *self == Characters::Watched {
            *self = if check_utf8(bytes).is_ok() { Characters::Clean } else { Characters::Dirty };
        }
    }

    /// Judges the characters of a record that the decoder gave.
    fn judged(self, bytes: &[u8], mut step: Step) -> Step {
        if self == Characters::Dirty
            && step.result.is_ok()
            && let Err(offset) = check_utf8(&bytes[step.range.clone()])
        {
            step.result = Err(invalid_at(bytes, step.range.start + offset));
        }
        step
    }
}

/// What [`Feed::run`] has done.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Rows it encoded, and how many of them as COPY text beside the main COPY.
    pub rows: u64,
    pub side_rows: u64,
    pub end: End,
}

/// Why [`Feed::run`] came to an end.
#[derive(Debug)]
pub(crate) enum End {
    Chunk,
    /// There is enough to send.
    Full,
    /// Behind a record that is refused: its bytes, and why.
    Refused(Range<usize>, BadRecord),
}

/// Where a row went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Into the main COPY.
    Main,
    /// Into the COPY text beside it: the encoder was not sure of a value.
    Side,
}

/// The columns of an input's shape, as an encoder takes them, each from one of these sources.
pub(crate) fn columns_of(plan: &Plan, input: &InputPlan, sources: &[FieldSource]) -> Vec<EncodeColumn> {
    let columns = plan.shapes[input.shape].columns.iter().zip(sources);
    columns
        .map(|(column, source)| EncodeColumn {
            source: source.clone(),
            ty: column.ty.clone(),
            typmod: column.typmod,
        })
        .collect()
}

impl Feed {
    pub fn new(plan: &Plan, input: &Arc<InputPlan>) -> Result<Feed> {
        let shape = &plan.shapes[input.shape];
        let columns = columns_of(plan, input, &input.sources);
        let main: Box<dyn RowEncoder> = match (plan.path, &input.format) {
            (_, Format::Binary) => {
                let raw = copy_binary::CopyBinaryRaw::new(&columns, &plan.session).map_err(|unsure| {
                    let column = &shape.columns[unsure.column].name;
                    Error::new(
                        Code::Columns,
                        format!("the constant for column {column:?} has no binary form here"),
                    )
                    .hint("Beside the fields of a COPY binary file only plain constants are possible.")
                })?;
                Box::new(raw)
            }
            (WirePath::CopyBinary, _) => Box::new(copy_binary::CopyBinary::new(&columns, &plan.session)),
            (WirePath::CopyText, _) => Box::new(copy_text::CopyText::new(&columns)),
            (WirePath::Direct, _) => {
                let names = shape.names();
                let encoder = FrameEncoder::new(&plan.layouts[input.shape], &names, &columns, &plan.session);
                let encoder =
                    encoder.map_err(|unsupported| Error::new(Code::Internal, unsupported.to_string()))?;
                match &plan.spread {
                    Some(spread) => {
                        let topology = &spread.aim.topology;
                        let keyed =
                            KeyedFrames::new(topology, &shape.columns, &columns, plan.session, encoder)?;
                        Box::new(keyed)
                    }
                    None => Box::new(encoder),
                }
            }
        };
        Ok(Feed {
            characters: Characters::Clean,
            check_utf8: plan.check_utf8 && input.format != Format::Binary,
            plan: Arc::clone(input),
            decoder: input.decoder(),
            main,
            text: copy_text::CopyText::new(&columns),
            fields: Fields::new(),
        })
    }

    /// Starts on a chunk, or on the bytes of a single record of one.
    pub fn begin(&mut self, bytes: &[u8]) {
        self.characters = if self.check_utf8 { Characters::Watched } else { Characters::Clean };
        self.decoder.begin(bytes);
    }

    /// The next record.
    pub fn next(&mut self, bytes: &[u8]) -> Option<Step> {
        self.characters.look(bytes);
        let step = self.decoder.next(bytes, &mut self.fields)?;
        Some(self.characters.judged(bytes, step))
    }

    /// Decodes records and encodes them, as [`Feed::next`] and [`Feed::encode`] do, until one is refused, the
    /// chunk ends, or so many bytes are to be sent: `most` in the main COPY, or `SIDE_LIMIT` beside it.
    pub fn run(&mut self, bytes: &[u8], main: &mut Vec<u8>, side: &mut Vec<u8>, most: usize) -> Ran {
        let (mut rows, mut side_rows) = (0, 0);
        let mut take = |fields: &Fields| {
            rows += 1;
            let record = Record { input: bytes, fields };
            if encode(self.main.as_mut(), &mut self.text, &record, main, side) == Sent::Side {
                side_rows += 1;
            }
            if main.len() >= most || side.len() >= SIDE_LIMIT {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let end = loop {
            let watch = self.characters == Characters::Watched;
            let run = if self.characters == Characters::Dirty {
                // One at a time: its characters are judged before it is taken.
                self.decoder.next(bytes, &mut self.fields).map_or(Run::Ended, Run::Unwatched)
            } else {
                self.decoder.run(bytes, &mut self.fields, watch, &mut take)
            };
            let step = match run {
                Run::Ended => break End::Chunk,
                Run::Broken => break End::Full,
                Run::Refused(step) => step,
                Run::Unwatched(step) => {
                    self.characters.look(bytes);
                    self.characters.judged(bytes, step)
                }
            };
            if let Err(bad) = step.result {
                break End::Refused(step.range, bad);
            }
            if take(&self.fields).is_break() {
                break End::Full;
            }
        };
        Ran { rows, side_rows, end }
    }

    /// Encodes the record that `next` gave last.
    pub fn encode(&mut self, bytes: &[u8], main: &mut Vec<u8>, side: &mut Vec<u8>) -> Sent {
        let record = Record { input: bytes, fields: &self.fields };
        encode(self.main.as_mut(), &mut self.text, &record, main, side)
    }

    /// Encodes the record that `next` gave last as COPY text, whatever the path.
    pub fn encode_text(&mut self, bytes: &[u8], side: &mut Vec<u8>) -> Sent {
        encode_text(&mut self.text, &Record { input: bytes, fields: &self.fields }, side)
    }

    /// A reject for a record of this chunk.
    pub fn reject(&self, chunk: &Chunk, place: &Place, why: Refusal<'_>) -> Reject {
        let raw = &chunk.bytes[place.range.clone()];
        let before = &chunk.bytes[..place.range.start];
        let lines = memchr::memchr_iter(self.plan.line_end, before).count() as u64;
        let (sqlstate, reason, column, origin) = match why {
            Refusal::Decoder(bad) => {
                let field = bad.field.and_then(|i| self.plan.field_names.get(i).cloned());
                let reason = match &field {
                    // As the server says it, with the name that the decoder does not know.
                    Some(name) if bad.fact.starts_with("missing data for column") => {
                        format!("missing data for column \"{name}\"")
                    }
                    _ => bad.fact.clone(),
                };
                (bad.sqlstate.to_owned(), reason, field, RejectOrigin::Client)
            }
            Refusal::Server { sqlstate, reason, column } => {
                (sqlstate.to_owned(), reason.to_owned(), column.map(str::to_owned), RejectOrigin::Server)
            }
        };
        Reject {
            input: chunk.input,
            position: Position {
                source: self.plan.name.clone(),
                byte: Some(chunk.start + place.range.start as u64),
                line: self.plan.has_lines().then_some(chunk.first_line + lines),
                record: Some(chunk.first_record + place.record),
                column,
            },
            sqlstate,
            reason,
            origin,
            raw: raw.to_vec(),
            full_len: None,
        }
    }
}

/// Encodes a row for the main COPY or, if the encoder is not sure of it, for the one beside it.
fn encode(
    encoder: &mut dyn RowEncoder,
    text: &mut copy_text::CopyText,
    record: &Record<'_>,
    main: &mut Vec<u8>,
    side: &mut Vec<u8>,
) -> Sent {
    match encoder.row(record, main) {
        Ok(()) => Sent::Main,
        Err(_) => encode_text(text, record, side),
    }
}

fn encode_text(text: &mut copy_text::CopyText, record: &Record<'_>, side: &mut Vec<u8>) -> Sent {
    let sure = text.row(record, side);
    debug_assert!(sure.is_ok(), "COPY text takes every value");
    Sent::Side
}

/// Where a record is in its chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the record in the chunk, from 0.
    pub record: u64,
    /// Its bytes.
    pub range: Range<usize>,
}

/// Why a record was refused.
#[derive(Clone, Copy)]
pub(crate) enum Refusal<'a> {
    Decoder(&'a BadRecord),
    Server { sqlstate: &'a str, reason: &'a str, column: Option<&'a str> },
}
