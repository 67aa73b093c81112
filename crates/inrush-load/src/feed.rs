//! What a lane needs to turn the chunks of one input into wire bytes.

use crate::inputs::InputPlan;
use crate::plan::{Plan, WirePath};
use inrush_core::{
    BadRecord, Chunk, Code, Error, FieldSource, Fields, Format, Position, Record, Reject, RejectOrigin,
    Result,
};
use inrush_decode::encoding::{check_utf8, invalid_at};
use inrush_decode::{Decoder, Step};
use inrush_encode::frames::FrameEncoder;
use inrush_encode::{EncodeColumn, RowEncoder, copy_binary, copy_text};
use std::ops::Range;
use std::sync::Arc;

/// Decoder and encoders of one input, owned by one lane.
pub(crate) struct Feed {
    pub plan: Arc<InputPlan>,
    /// The chunk has bytes that are not valid UTF-8: every record is looked at.
    dirty: bool,
    check_utf8: bool,
    decoder: Box<dyn Decoder>,
    main: Box<dyn RowEncoder>,
    text: copy_text::CopyText,
    fields: Fields,
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
                Box::new(encoder.map_err(|unsupported| Error::new(Code::Internal, unsupported.to_string()))?)
            }
        };
        Ok(Feed {
            dirty: false,
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
        self.dirty = self.check_utf8 && check_utf8(bytes).is_err();
        self.decoder.begin(bytes);
    }

    /// The next record.
    pub fn next(&mut self, bytes: &[u8]) -> Option<Step> {
        let mut step = self.decoder.next(bytes, &mut self.fields)?;
        if self.dirty
            && step.result.is_ok()
            && let Err(offset) = check_utf8(&bytes[step.range.clone()])
        {
            step.result = Err(invalid_at(bytes, step.range.start + offset));
        }
        Some(step)
    }

    /// Encodes the record that `next` gave last.
    pub fn encode(&mut self, bytes: &[u8], main: &mut Vec<u8>, side: &mut Vec<u8>) -> Sent {
        let record = Record { input: bytes, fields: &self.fields };
        match self.main.row(&record, main) {
            Ok(()) => Sent::Main,
            Err(_) => self.encode_text(bytes, side),
        }
    }

    /// Encodes the record that `next` gave last as COPY text, whatever the path.
    pub fn encode_text(&mut self, bytes: &[u8], side: &mut Vec<u8>) -> Sent {
        let sure = self.text.row(&Record { input: bytes, fields: &self.fields }, side);
        debug_assert!(sure.is_ok(), "COPY text takes every value");
        Sent::Side
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
