//! Columns of Arrow to rows of COPY: each value goes from its array to the wire without becoming text, where
//! its binary form is exactly what the server would make of its text. Where it is not, the row is [`Unsure`]
//! and goes as COPY text, and the server judges it.
//!
//! What a value means where its type does not say:
//! - a timestamp with a zone is a moment; a column without time zone gets its reading in UTC, one of date the
//!   date in UTC; a timestamp without a zone goes to timestamptz as the server would read it, in the
//!   session's TimeZone;
//! - nanoseconds are rounded to microseconds as the server rounds them;
//! - binary values in a column of text, json or an enum are text, in one of uuid its sixteen bytes;
//! - lists in a column of an array are its elements, lists in lists its dimensions; lists, structs and maps
//!   in any other column are JSON.

mod binary;
mod frames;
mod json;
#[cfg(test)]
mod tests;
mod text;
mod values;

use crate::types::Encoder;
use crate::{EncodeColumn, Session, Unsure, copy_text};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use binary::Target;
pub use frames::ColumnarFrames;
use inrush_core::{Code, Error, FieldSource, Result};
use text::Form;
use values::Values;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Encodes the rows of record batches for COPY, binary or text; header and trailer are the caller's.
pub struct ColumnarEncoder {
    /// The row's first two bytes in binary: its number of fields.
    count: [u8; 2],
    columns: Vec<Column>,
    names: Vec<String>,
    /// The columns of the batch at hand.
    batch: Vec<Values>,
    scratch: Vec<u8>,
}

struct Column {
    source: Source,
    encoder: Option<Encoder>,
    form: Form,
}

enum Source {
    /// A column of the batch.
    Field(usize),
    /// A value that is the same for all rows. Binary with its length word; `None`: unsure. Text escaped.
    Constant { binary: Option<Vec<u8>>, text: Vec<u8> },
}

impl ColumnarEncoder {
    /// An encoder for these columns; [`FieldSource::Field`] counts the fields of `schema`, which is that of
    /// the batches to come. A column whose type has no binary encoder makes every row [`Unsure`].
    ///
    /// Fails with [`Code::Columns`] for a field that has a type which cannot be loaded.
    pub fn new(columns: &[EncodeColumn], schema: &Schema, session: &Session) -> Result<ColumnarEncoder> {
        let columns: Vec<Column> = columns
            .iter()
            .map(|column| {
                let encoder = Encoder::of(&column.ty, column.typmod, session);
                let source = match &column.source {
                    FieldSource::Field(i) if *i < schema.fields().len() => Source::Field(*i),
                    FieldSource::Field(i) => {
                        return Err(Error::new(Code::Internal, format!("there is no field {i} in the file")));
                    }
                    FieldSource::Constant(value) => constant(value.as_deref(), encoder.as_ref()),
                };
                Ok(Column { source, encoder, form: Form::of(&column.ty) })
            })
            .collect::<Result<_>>()?;
        // As in COPY binary of text: at most 1600 columns (MaxHeapAttributeNumber).
        let count = u16::try_from(columns.len()).unwrap_or(u16::MAX).to_be_bytes();
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        Ok(ColumnarEncoder { count, columns, names, batch: Vec::new(), scratch: Vec::new() })
    }

    /// Starts on a batch; its rows are then named by number.
    pub fn begin(&mut self, batch: &RecordBatch) -> Result<()> {
        self.batch.clear();
        if batch.num_columns() != self.names.len() {
            return Err(Error::new(Code::Internal, "a batch has another number of columns than its file"));
        }
        for (array, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
            self.batch
                .push(Values::new(array, field).ok_or_else(|| unsupported(field.name(), field.data_type()))?);
        }
        Ok(())
    }

    /// Appends row `i` of the batch for COPY binary. On `Err` the buffer is as it was.
    pub fn row(&mut self, i: usize, out: &mut Vec<u8>) -> Result<(), Unsure> {
        let start = out.len();
        out.extend_from_slice(&self.count);
        for (number, column) in self.columns.iter().enumerate() {
            let sure = match &column.source {
                Source::Constant { binary: Some(bytes), .. } => {
                    out.extend_from_slice(bytes);
                    true
                }
                Source::Constant { binary: None, .. } => false,
                Source::Field(field) => match (self.batch[*field].get(i), &column.encoder) {
                    (None, Some(_)) => {
                        out.extend_from_slice(&NULL);
                        true
                    }
                    (Some(scalar), Some(encoder)) => {
                        let target = Target { encoder, form: &column.form };
                        binary::field(scalar, target, &mut self.scratch, out)
                    }
                    (_, None) => false,
                },
            };
            if !sure {
                out.truncate(start);
                return Err(Unsure { column: number });
            }
        }
        Ok(())
    }

    /// Appends row `i` of the batch for COPY text.
    pub fn row_text(&mut self, i: usize, out: &mut Vec<u8>) {
        for (number, column) in self.columns.iter().enumerate() {
            if number > 0 {
                out.push(b'\t');
            }
            match &column.source {
                Source::Constant { text, .. } => out.extend_from_slice(text),
                Source::Field(field) => match self.batch[*field].get(i) {
                    None => copy_text::field(None, out),
                    Some(scalar) => {
                        self.scratch.clear();
                        text::text(scalar, &column.form, &mut self.scratch);
                        copy_text::field(Some(&self.scratch), out);
                    }
                },
            }
        }
        out.push(b'\n');
    }

    /// Appends row `i` of the batch as a JSON object of its fields and a line end, for a person to read and
    /// to load again as NDJSON.
    pub fn row_json(&self, i: usize, out: &mut Vec<u8>) {
        let fields = self.names.iter().zip(&self.batch);
        json::object(fields.map(|(name, values)| (name.as_bytes(), values.get(i))), out);
        out.push(b'\n');
    }
}

/// The length word of NULL.
const NULL: [u8; 4] = (-1i32).to_be_bytes();

fn constant(value: Option<&[u8]>, encoder: Option<&Encoder>) -> Source {
    let mut text = Vec::new();
    copy_text::field(value, &mut text);
    let mut bytes = Vec::new();
    let binary = match (value, encoder) {
        (None, _) => Some(NULL.to_vec()),
        (Some(value), Some(encoder)) => encoder.field(value, &mut bytes).then_some(bytes),
        (Some(_), None) => None,
    };
    Source::Constant { binary, text }
}

fn unsupported(name: &str, ty: &DataType) -> Error {
    Error::new(
        Code::Columns,
        format!("field {name:?} has the type {ty}, which has no counterpart in PostgreSQL"),
    )
    .hint("Write the file without this field, or with another type for it.")
}
