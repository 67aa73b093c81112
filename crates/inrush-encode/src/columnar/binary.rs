//! Scalars in the form that the receive functions of PostgreSQL read, where that form holds exactly the
//! value. Everything else goes through its text and the encoders of text, which say where they are unsure.

use super::MICROS_PER_DAY;
use super::text::{Form, text};
use super::values::{Scalar, Tick, Values, Zoned};
use crate::types::array::Array;
use crate::types::{Encoder, numeric, put, put_sized, sized};

/// Days from 1970-01-01, where Arrow counts from, to 2000-01-01, where PostgreSQL does.
const EPOCH_DAYS: i64 = 10_957;
/// First and one past the last date (datetime.h, IS_VALID_DATE), in days since 2000-01-01.
const DATES: std::ops::Range<i64> = -2_451_545..2_145_031_949;
/// MIN_TIMESTAMP and END_TIMESTAMP (timestamp.h), in microseconds since 2000-01-01.
const TIMESTAMPS: std::ops::Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;
/// MAXDIM
const MAX_DIMENSIONS: usize = 6;

/// What a value goes to.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub encoder: &'a Encoder,
    pub form: &'a Form,
}

/// Appends length word and value; false if unsure, and then what was appended is to be cut off.
#[inline]
pub(super) fn field(
    scalar: Scalar<'_>,
    target: Target<'_>,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    let sure = match (target.encoder, scalar) {
        (Encoder::Verbatim, Scalar::Text(value) | Scalar::Bytes(value)) => {
            put_sized(value, out);
            true
        }
        (Encoder::Bytea, Scalar::Bytes(value) | Scalar::Uuid(value)) => {
            put_sized(value, out);
            true
        }
        (Encoder::Uuid, Scalar::Uuid(value) | Scalar::Bytes(value)) if value.len() == 16 => {
            put_sized(value, out);
            true
        }
        (Encoder::Bool, Scalar::Bool(truth)) => put(Some([u8::from(truth)]), out),
        (Encoder::Int2, Scalar::Int(value)) => put(i16::try_from(value).ok().map(i16::to_be_bytes), out),
        (Encoder::Int4, Scalar::Int(value)) => put(i32::try_from(value).ok().map(i32::to_be_bytes), out),
        (Encoder::Int8, Scalar::Int(value)) => put(Some(value.to_be_bytes()), out),
        (Encoder::Int8, Scalar::UInt(value)) => put(i64::try_from(value).ok().map(i64::to_be_bytes), out),
        (Encoder::Oid, Scalar::Int(value)) => put(u32::try_from(value).ok().map(u32::to_be_bytes), out),
        (Encoder::Float4, Scalar::Float4(value)) => put(Some(real(value).to_be_bytes()), out),
        (Encoder::Float8, Scalar::Float8(value)) => put(Some(double(value).to_be_bytes()), out),
        (Encoder::Float8, Scalar::Float4(value)) => put(Some(double(value.into()).to_be_bytes()), out),
        // Up to 2^53 every integer is a double.
        (Encoder::Float8, Scalar::Int(value)) if value.unsigned_abs() <= 1 << 53 => {
            put(Some((value as f64).to_be_bytes()), out)
        }
        (Encoder::Numeric, Scalar::Decimal(value, scale @ 0..)) => {
            sized(out, |out| numeric::decimal(value, scale.unsigned_abs(), out))
        }
        (Encoder::Numeric, Scalar::Int(value)) => sized(out, |out| numeric::decimal(value.into(), 0, out)),
        (Encoder::Numeric, Scalar::UInt(value)) => sized(out, |out| numeric::decimal(value.into(), 0, out)),
        (Encoder::Date, Scalar::Date(days)) => put(pg_date(days).map(i32::to_be_bytes), out),
        // date_in takes the date as it is written and leaves time and zone alone; ours are written in UTC.
        (Encoder::Date, Scalar::Timestamp(ticks, tick, _)) => {
            put(pg_date(ticks.div_euclid(tick.per_second() * 86_400)).map(i32::to_be_bytes), out)
        }
        (Encoder::Timestamp | Encoder::Timestamptz { timezone_is_utc: true }, Scalar::Date(days)) => {
            put(days.checked_mul(MICROS_PER_DAY).and_then(pg_micros).map(i64::to_be_bytes), out)
        }
        // timestamp_in does not look at the offset either.
        (Encoder::Timestamp, Scalar::Timestamp(ticks, tick, _))
        | (Encoder::Timestamptz { timezone_is_utc: true }, Scalar::Timestamp(ticks, tick, _))
        | (Encoder::Timestamptz { .. }, Scalar::Timestamp(ticks, tick, Zoned::Yes)) => {
            put(tick.micros(ticks).and_then(pg_micros).map(i64::to_be_bytes), out)
        }
        (Encoder::Time, Scalar::Time(ticks, tick)) => put(pg_time(ticks, tick).map(i64::to_be_bytes), out),
        (Encoder::Interval(_), Scalar::Interval(value)) => put(
            value.tick.micros(value.ticks).map(|micros| pg_interval(micros, value.days, value.months)),
            out,
        ),
        (Encoder::Array(elements), Scalar::List(values, start, end)) => {
            let Form::Array(form) = target.form else { return false };
            sized(out, |out| array(elements, form, (values, start, end), scratch, out))
        }
        _ => false,
    };
    sure || {
        // A number that could not be put was begun.
        out.truncate(start);
        // An array has no better chance as text.
        !matches!((target.encoder, scalar), (Encoder::Array(_), Scalar::List(..)))
            && through_text(scalar, &target, scratch, out)
    }
}

/// Everything without a case of its own, and values that a case of their own does not fit.
#[cold]
fn through_text(scalar: Scalar<'_>, target: &Target<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
    scratch.clear();
    text(scalar, target.form, scratch);
    target.encoder.field(scratch, out)
}

/// The bits of a real; a NaN is the one that the server's own input function makes.
pub(super) fn real(value: f32) -> u32 {
    if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
}

/// The bits of a double precision.
pub(super) fn double(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }
}

/// Days since 2000-01-01 of days since 1970-01-01, if it is a date of the server.
pub(super) fn pg_date(days: i64) -> Option<i32> {
    let days = days.checked_sub(EPOCH_DAYS).filter(|days| DATES.contains(days))?;
    i32::try_from(days).ok()
}

/// Microseconds since 2000-01-01 of those since 1970-01-01, if it is a timestamp of the server.
pub(super) fn pg_micros(micros: i64) -> Option<i64> {
    let micros = micros.checked_sub(EPOCH_DAYS * MICROS_PER_DAY)?;
    TIMESTAMPS.contains(&micros).then_some(micros)
}

/// Microseconds since midnight. time_recv takes 24:00:00, as time_in does.
pub(super) fn pg_time(ticks: i64, tick: Tick) -> Option<i64> {
    let micros = tick.micros(ticks)?;
    (0..=MICROS_PER_DAY).contains(&micros).then_some(micros)
}

/// As interval_recv reads it.
fn pg_interval(micros: i64, days: i32, months: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&micros.to_be_bytes());
    bytes[8..12].copy_from_slice(&days.to_be_bytes());
    bytes[12..].copy_from_slice(&months.to_be_bytes());
    bytes
}

/// Appends an array as array_recv reads it. Lists in lists are further dimensions where they are
/// rectangular; where not, the server says so of the text.
fn array(
    elements: &Array,
    form: &Form,
    (values, start, end): (&Values, usize, usize),
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    let at = out.len();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&elements.element_oid.to_be_bytes());
    if start == end {
        return true;
    }
    let mut walk = Walk { lengths: [0; MAX_DIMENSIONS], depth: 1, has_null: false };
    // A list that goes to an element of json is JSON, not a dimension.
    let nested = *form != Form::Json;
    let mut inner = values.first_list(start..end).filter(|_| nested);
    while let Some((values, start, end)) = inner {
        walk.depth += 1;
        inner = values.first_list(start..end);
    }
    if walk.depth > MAX_DIMENSIONS {
        return false;
    }
    out.resize(out.len() + walk.depth * 8, 0);
    let target = Target { encoder: &elements.element, form };
    if !walk.level(&target, (values, start, end), 0, scratch, out) {
        return false;
    }
    out[at + 3] = walk.depth as u8;
    out[at + 7] = u8::from(walk.has_null);
    for (word, length) in out[at + 12..].as_chunks_mut::<8>().0.iter_mut().zip(&walk.lengths[..walk.depth]) {
        let [a, b, c, d] = length.to_be_bytes();
        *word = [a, b, c, d, 0, 0, 0, 1];
    }
    true
}

struct Walk {
    /// Elements of each dimension; 0 while not known.
    lengths: [u32; MAX_DIMENSIONS],
    depth: usize,
    has_null: bool,
}

impl Walk {
    fn level(
        &mut self,
        target: &Target<'_>,
        (values, start, end): (&Values, usize, usize),
        at: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Ok(length) = u32::try_from(end - start) else { return false };
        if self.lengths[at] == 0 {
            self.lengths[at] = length;
        }
        if length == 0 || self.lengths[at] != length {
            return false;
        }
        (start..end).all(|i| match values.get(i) {
            Some(Scalar::List(values, start, end)) if at + 1 < self.depth => {
                self.level(target, (values, start, end), at + 1, scratch, out)
            }
            // A NULL, or a value beside lists, in a place where a dimension goes on.
            _ if at + 1 < self.depth => false,
            Some(scalar) => {
                field(scalar, Target { encoder: target.encoder, form: target.form }, scratch, out)
            }
            None => {
                self.has_null = true;
                out.extend_from_slice(&(-1i32).to_be_bytes());
                true
            }
        })
    }
}
