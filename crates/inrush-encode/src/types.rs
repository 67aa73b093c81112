//! One file per family of types: text of a field to the form the type's receive function reads.
//!
//! Each parser answers `None` (or `false`) for what it does not know for certain; none judges a value bad.

pub(crate) mod array;
mod bool;
mod bytea;
mod datetime;
mod digits;
mod float;
mod int;
pub(crate) mod interval;
mod net;
pub(crate) mod numeric;
pub(crate) mod stored;
mod text;
mod uuid;

use crate::Session;
use inrush_core::{BaseType, PgType, TypeKind};

/// How to encode the values of one type.
#[derive(Debug, Clone)]
pub(crate) enum Encoder {
    /// The bytes as they are: text, varchar, bpchar, json, enums. The receive functions check encoding,
    /// syntax, label and length as the input functions do (varchar_input and bpchar_input are shared).
    Verbatim,
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Name,
    Jsonb,
    Bytea,
    Date,
    Time,
    Timetz,
    Timestamp,
    Timestamptz {
        timezone_is_utc: bool,
    },
    Interval(interval::Reading),
    Uuid,
    Inet,
    Cidr,
    Macaddr,
    Macaddr8,
    Array(Box<array::Array>),
}

impl Encoder {
    /// The encoder for a column of this type, `None` if there is none. Type modifiers are applied by the
    /// receive functions, which get the column's, except where they change how text is read.
    pub(crate) fn of(ty: &PgType, typmod: i32, session: &Session) -> Option<Encoder> {
        let (ty, typmod) = ty.under_domains(typmod);
        Some(match &ty.kind {
            TypeKind::Base(base) => match base {
                BaseType::Bool => Encoder::Bool,
                BaseType::Bytea => Encoder::Bytea,
                BaseType::Name => Encoder::Name,
                BaseType::Int8 => Encoder::Int8,
                BaseType::Int2 => Encoder::Int2,
                BaseType::Int4 => Encoder::Int4,
                BaseType::Oid => Encoder::Oid,
                BaseType::Text | BaseType::Varchar | BaseType::Bpchar | BaseType::Json => Encoder::Verbatim,
                BaseType::Float4 => Encoder::Float4,
                BaseType::Float8 => Encoder::Float8,
                BaseType::Macaddr8 => Encoder::Macaddr8,
                BaseType::Macaddr => Encoder::Macaddr,
                BaseType::Cidr => Encoder::Cidr,
                BaseType::Inet => Encoder::Inet,
                BaseType::Date => Encoder::Date,
                BaseType::Time => Encoder::Time,
                BaseType::Timestamp => Encoder::Timestamp,
                BaseType::Timestamptz => Encoder::Timestamptz { timezone_is_utc: session.timezone_is_utc },
                BaseType::Interval => Encoder::Interval(interval::Reading::new(typmod, session)?),
                BaseType::Timetz => Encoder::Timetz,
                BaseType::Numeric => Encoder::Numeric,
                BaseType::Uuid => Encoder::Uuid,
                BaseType::Jsonb => Encoder::Jsonb,
            },
            TypeKind::Enum => Encoder::Verbatim,
            TypeKind::Array { element } => Encoder::Array(Box::new(array::Array {
                element: Encoder::of(element, typmod, session)?,
                element_oid: element.oid,
                nulls: session.array_nulls,
            })),
            TypeKind::Domain { .. } | TypeKind::Other => return None,
        })
    }

    /// Appends length word and value; false if unsure, and then what was appended is to be cut off.
    #[inline]
    pub(crate) fn field(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Encoder::Verbatim => {
                put_sized(value, out);
                true
            }
            Encoder::Int4 => put(int::int4(value).map(i32::to_be_bytes), out),
            Encoder::Int8 => put(int::int8(value).map(i64::to_be_bytes), out),
            Encoder::Timestamp => put(datetime::timestamp(value).map(i64::to_be_bytes), out),
            Encoder::Timestamptz { timezone_is_utc } => {
                put(datetime::timestamptz(value, *timezone_is_utc).map(i64::to_be_bytes), out)
            }
            Encoder::Float8 => put(float::float8(value).map(u64::to_be_bytes), out),
            Encoder::Int2 => put(int::int2(value).map(i16::to_be_bytes), out),
            Encoder::Date => put(datetime::date(value).map(i32::to_be_bytes), out),
            Encoder::Bool => put(bool::bool(value).map(|truth| [u8::from(truth)]), out),
            Encoder::Float4 => put(float::float4(value).map(u32::to_be_bytes), out),
            Encoder::Oid => put(int::oid(value).map(u32::to_be_bytes), out),
            Encoder::Time => put(datetime::time(value).map(i64::to_be_bytes), out),
            Encoder::Timetz => put(datetime::timetz(value).map(timetz_bytes), out),
            Encoder::Uuid => put(uuid::uuid(value), out),
            Encoder::Macaddr => put(net::macaddr(value), out),
            Encoder::Macaddr8 => put(net::macaddr8(value), out),
            Encoder::Interval(reading) => put(reading.interval(value), out),
            Encoder::Name => {
                let fits = text::name_fits(value);
                if fits {
                    put_sized(value, out);
                }
                fits
            }
            Encoder::Jsonb => sized(out, |out| {
                text::jsonb(value, out);
                true
            }),
            Encoder::Numeric => sized(out, |out| numeric::numeric(value, out)),
            Encoder::Bytea => sized(out, |out| bytea::bytea(value, out)),
            Encoder::Inet => sized(out, |out| net::inet(value, out)),
            Encoder::Cidr => sized(out, |out| net::cidr(value, out)),
            Encoder::Array(array) => sized(out, |out| array.encode(value, out)),
        }
    }
}

fn timetz_bytes((time, west): (i64, i32)) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&time.to_be_bytes());
    bytes[8..].copy_from_slice(&west.to_be_bytes());
    bytes
}

/// The length word of a value. Values are bounded by Limits::MAX_RECORD_CEILING, which is below 2^31.
#[inline]
#[allow(clippy::cast_possible_truncation)]
fn length_word(len: usize) -> [u8; 4] {
    debug_assert!(i32::try_from(len).is_ok());
    (len as u32).to_be_bytes()
}

/// Appends a value as it is, after its length.
#[inline]
pub(crate) fn put_sized(value: &[u8], out: &mut Vec<u8>) {
    let len = value.len();
    out.reserve(4 + len);
    let start = out.len();
    // SAFETY: 4 + len bytes from `start` are within the capacity, all of them are written before set_len,
    // and `value` cannot overlap a vector that is borrowed mutably.
    unsafe {
        let at = out.as_mut_ptr().add(start);
        at.cast::<[u8; 4]>().write_unaligned(length_word(len));
        copy(value, at.add(4));
        out.set_len(start + 4 + len);
    }
}

/// Copies a value that is probably short.
///
/// Measured (examples/encode_speed, C1): 149 ns a row instead of 190 with extend_from_slice, as most fields are
/// short and the call of memcpy costs more than the copy.
///
/// # Safety
/// `value.len()` bytes at `at` are writable, and none of them is one of `value`.
#[inline]
pub(crate) unsafe fn copy(value: &[u8], at: *mut u8) {
    let len = value.len();
    // SAFETY: `ends` writes N bytes at both ends of the len >= N bytes, which covers all of them as
    // len <= 2 * N.
    unsafe {
        match len {
            16..=32 => ends::<16>(value, at),
            8..16 => ends::<8>(value, at),
            4..8 => ends::<4>(value, at),
            _ => std::ptr::copy_nonoverlapping(value.as_ptr(), at, len),
        }
    }
}

/// Writes the first and the last N bytes of the value to where they belong.
///
/// # Safety
/// `value.len()` bytes at `at` are writable.
#[inline]
unsafe fn ends<const N: usize>(value: &[u8], at: *mut u8) {
    if let (Some(head), Some(tail)) = (value.first_chunk::<N>(), value.last_chunk::<N>()) {
        // SAFETY: the value has at least N bytes, so both writes stay within its length.
        unsafe {
            at.cast::<[u8; N]>().write_unaligned(*head);
            at.add(value.len() - N).cast::<[u8; N]>().write_unaligned(*tail);
        }
    }
}

/// Appends a value of fixed size after its length, if there is one.
#[inline]
pub(crate) fn put<const N: usize>(value: Option<[u8; N]>, out: &mut Vec<u8>) -> bool {
    match value {
        Some(value) => {
            out.reserve(4 + N);
            out.extend_from_slice(&length_word(N));
            out.extend_from_slice(&value);
            true
        }
        None => false,
    }
}

/// Appends a value of unknown size and then fills in its length.
#[inline]
pub(crate) fn sized(out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let sure = append(out);
    let len = length_word(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&len);
    sure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_length_is_copied_whole() {
        let value: Vec<u8> = (1..=70).collect();
        for len in 0..=70 {
            let mut out = vec![9];
            put_sized(&value[..len], &mut out);
            assert_eq!(out[..5], [9, 0, 0, 0, u8::try_from(len).expect("small")]);
            assert_eq!(out[5..], value[..len]);
        }
    }
}
