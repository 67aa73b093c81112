//! Scalars in the form that the heap has them, and frames of them. What has no exact stored form goes through its
//! text and the encoders of text, which say where they are unsure.

use super::binary::{self, Target, double, pg_date, pg_micros, pg_time, real};
use super::text::{Form, text};
use super::values::{Scalar, Zoned};
use super::{ColumnarEncoder, MICROS_PER_DAY};
use crate::frames::encoder::{Constant, Source};
use crate::frames::place::Place;
use crate::frames::row::{Outcome, RowShape};
use crate::frames::{FrameLayout, Unsupported};
use crate::types::stored::{self, Stored};
use crate::types::{Encoder, interval, numeric};
use crate::{EncodeColumn, Session, Unsure};
use inrush_core::FieldSource;

/// Encodes the rows of record batches for `COPY ... FROM STDIN (FORMAT inrush)`, as
/// [`crate::frames::FrameEncoder`] does with fields of text, and with the same buffers.
pub struct ColumnarFrames {
    shape: RowShape,
    /// For each attribute that is sent.
    sources: Vec<(Source, Form)>,
    scratch: Vec<u8>,
}

impl ColumnarFrames {
    /// An encoder for the columns of a COPY's column list, and their names; the columns are those that the
    /// [`ColumnarEncoder`] was made with. Fails as [`crate::frames::FrameEncoder::new`].
    pub fn new<N: AsRef<str>>(
        layout: &FrameLayout,
        names: &[N],
        columns: &[EncodeColumn],
        session: &Session,
    ) -> Result<ColumnarFrames, Unsupported> {
        let shape = RowShape::new(layout, names, columns, session)?;
        let sources = shape
            .attributes()
            .iter()
            .map(|attribute| {
                let column = &columns[attribute.column];
                let source = match &column.source {
                    FieldSource::Field(i) => Source::Field(*i),
                    FieldSource::Constant(value) => {
                        Source::Constant(Constant::of(value.as_deref(), attribute))
                    }
                };
                (source, Form::of(&column.ty))
            })
            .collect();
        Ok(ColumnarFrames { shape, sources, scratch: Vec::new() })
    }

    /// Appends row `i` of the batch that `rows` is at. On `Err` the buffer is as it was.
    pub fn row(&mut self, rows: &ColumnarEncoder, i: usize, out: &mut Vec<u8>) -> Result<(), Unsure> {
        let mut sources = self.sources.iter();
        let scratch = &mut self.scratch;
        self.shape.frame(out, |attribute, place, out| match sources.next() {
            Some((Source::Field(field), form)) => match rows.batch[*field].get(i) {
                Some(scalar) => Outcome::sure(append(scalar, &attribute.stored, form, place, scratch, out)),
                None => Outcome::Null,
            },
            Some((Source::Constant(constant), _)) => constant.append(attribute, place, out),
            // There is a source for each attribute.
            None => Outcome::Unsure,
        })
    }
}

/// Appends an attribute; false if unsure, and then what was appended is to be cut off.
#[inline]
fn append(
    scalar: Scalar<'_>,
    stored: &Stored,
    form: &Form,
    place: Place,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    let sure = match (stored, scalar) {
        // A binary value in a column of text is text.
        (
            Stored::Text
            | Stored::Varchar { .. }
            | Stored::Bpchar { .. }
            | Stored::Name
            | Stored::Enum(_)
            | Stored::Ascii(_)
            | Stored::Received(Encoder::Verbatim),
            Scalar::Text(value) | Scalar::Bytes(value),
        ) => return stored.append(value, place, out),
        (Stored::Received(encoder), scalar) => {
            return place.received(out, |out| binary::field(scalar, Target { encoder, form }, scratch, out));
        }
        (Stored::Bytea, Scalar::Bytes(value) | Scalar::Uuid(value)) => place.varlena(value, out),
        (Stored::Uuid, Scalar::Uuid(value) | Scalar::Bytes(value)) if value.len() == 16 => {
            place.fixed(value.first_chunk::<16>().copied(), out)
        }
        (Stored::Bool, Scalar::Bool(truth)) => place.fixed(Some([u8::from(truth)]), out),
        (Stored::Int2, Scalar::Int(value)) => {
            place.fixed(i16::try_from(value).ok().map(i16::to_le_bytes), out)
        }
        (Stored::Int4, Scalar::Int(value)) => {
            place.fixed(i32::try_from(value).ok().map(i32::to_le_bytes), out)
        }
        (Stored::Int8, Scalar::Int(value)) => place.fixed(Some(value.to_le_bytes()), out),
        (Stored::Int8, Scalar::UInt(value)) => {
            place.fixed(i64::try_from(value).ok().map(i64::to_le_bytes), out)
        }
        (Stored::Oid, Scalar::Int(value)) => {
            place.fixed(u32::try_from(value).ok().map(u32::to_le_bytes), out)
        }
        (Stored::Float4, Scalar::Float4(value)) => place.fixed(Some(real(value).to_le_bytes()), out),
        (Stored::Float8, Scalar::Float8(value)) => place.fixed(Some(double(value).to_le_bytes()), out),
        (Stored::Float8, Scalar::Float4(value)) => place.fixed(Some(double(value.into()).to_le_bytes()), out),
        // Up to 2^53 every integer is a double.
        (Stored::Float8, Scalar::Int(value)) if value.unsigned_abs() <= 1 << 53 => {
            place.fixed(Some((value as f64).to_le_bytes()), out)
        }
        (Stored::Numeric(modifier), Scalar::Decimal(value, scale @ 0..)) => place
            .short_or_long(out, |out| numeric::stored_decimal(value, scale.unsigned_abs(), *modifier, out)),
        (Stored::Numeric(modifier), Scalar::Int(value)) => {
            place.short_or_long(out, |out| numeric::stored_decimal(value.into(), 0, *modifier, out))
        }
        (Stored::Numeric(modifier), Scalar::UInt(value)) => {
            place.short_or_long(out, |out| numeric::stored_decimal(value.into(), 0, *modifier, out))
        }
        (Stored::Date, Scalar::Date(days)) => place.fixed(pg_date(days).map(i32::to_le_bytes), out),
        // As in COPY binary: the date in UTC.
        (Stored::Date, Scalar::Timestamp(ticks, tick, _)) => {
            let days = ticks.div_euclid(tick.per_second() * 86_400);
            place.fixed(pg_date(days).map(i32::to_le_bytes), out)
        }
        (
            Stored::Timestamp(digits) | Stored::Timestamptz { timezone_is_utc: true, digits },
            Scalar::Date(days),
        ) => {
            let micros = days.checked_mul(MICROS_PER_DAY).and_then(pg_micros);
            place.fixed(micros.and_then(|micros| stored::timestamp(micros, *digits)), out)
        }
        // timestamp_in does not look at the offset either.
        (
            Stored::Timestamp(digits) | Stored::Timestamptz { timezone_is_utc: true, digits },
            Scalar::Timestamp(ticks, tick, _),
        )
        | (Stored::Timestamptz { digits, .. }, Scalar::Timestamp(ticks, tick, Zoned::Yes)) => {
            let micros = tick.micros(ticks).and_then(pg_micros);
            place.fixed(micros.and_then(|micros| stored::timestamp(micros, *digits)), out)
        }
        (Stored::Time(digits), Scalar::Time(ticks, tick)) => {
            place.fixed(pg_time(ticks, tick).map(|micros| stored::time(micros, *digits)), out)
        }
        (Stored::Interval(_), Scalar::Interval(value)) => {
            let micros = value.tick.micros(value.ticks);
            place.fixed(micros.map(|micros| interval::stored(micros, value.days, value.months)), out)
        }
        _ => false,
    };
    sure || {
        out.truncate(start);
        through_text(scalar, stored, form, place, scratch, out)
    }
}

/// Everything without a case of its own, and values that a case of their own does not fit.
#[cold]
fn through_text(
    scalar: Scalar<'_>,
    stored: &Stored,
    form: &Form,
    place: Place,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    scratch.clear();
    text(scalar, form, scratch);
    stored.append(scratch, place, out)
}
