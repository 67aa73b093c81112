//! Values as the heap stores them (docs/format-inrush.md, "Stored forms of native types"), of text.

use super::numeric::Modifier;
use super::{Encoder, bool, bytea, datetime, float, int, interval, net, numeric, text, uuid};
use crate::Session;
use crate::frames::place::Place;
use inrush_core::{BaseType, PgType, TypeKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The labels of an enum and their OIDs (pg_enum).
pub(crate) type Labels = Arc<BTreeMap<Vec<u8>, u32>>;

/// Which characters of ours the server's encoding has in the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Characters {
    /// All: its encoding is UTF8.
    All,
    /// ASCII: every encoding of a server has it.
    Ascii,
}

/// How to store the values of one column.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Text,
    Varchar {
        most: usize,
    },
    Bpchar {
        exactly: usize,
    },
    Name,
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric(Option<Modifier>),
    Bytea,
    Date,
    /// The number of digits behind the seconds, here and below; `None`: all six.
    Time(Option<u8>),
    Timetz(Option<u8>),
    Timestamp(Option<u8>),
    Timestamptz {
        timezone_is_utc: bool,
        digits: Option<u8>,
    },
    Interval(interval::Reading),
    Uuid,
    Macaddr,
    Macaddr8,
    Enum(Labels),
    /// What the type's receive function reads, without its length word.
    Received(Encoder),
    /// A text type where only ASCII is certain.
    Ascii(Box<Stored>),
}

impl Stored {
    /// The form of a native type and its length in bytes, -1 for a varlena; `None` if it is not known here.
    /// The types in `labels` are those of the enums whose labels are known.
    pub(crate) fn native(
        ty: &PgType,
        typmod: i32,
        session: &Session,
        characters: Characters,
        labels: &BTreeMap<u32, Labels>,
    ) -> Option<(Stored, i32)> {
        let digits = u8::try_from(typmod).ok();
        let base = match &ty.kind {
            TypeKind::Base(base) => *base,
            // Without its labels every value is unsure.
            TypeKind::Enum => {
                return Some((Stored::Enum(labels.get(&ty.oid).cloned().unwrap_or_default()), 4));
            }
            _ => return None,
        };
        // VARHDRSZ is part of a length's type modifier.
        let length = usize::try_from(i64::from(typmod) - 4).ok();
        let (stored, bytes) = match base {
            BaseType::Text => (Stored::Text, -1),
            BaseType::Varchar => (length.map_or(Stored::Text, |most| Stored::Varchar { most }), -1),
            BaseType::Bpchar => (length.map_or(Stored::Text, |exactly| Stored::Bpchar { exactly }), -1),
            BaseType::Name => (Stored::Name, 64),
            BaseType::Bool => (Stored::Bool, 1),
            BaseType::Int2 => (Stored::Int2, 2),
            BaseType::Int4 => (Stored::Int4, 4),
            BaseType::Int8 => (Stored::Int8, 8),
            BaseType::Oid => (Stored::Oid, 4),
            BaseType::Float4 => (Stored::Float4, 4),
            BaseType::Float8 => (Stored::Float8, 8),
            BaseType::Numeric => (Stored::Numeric(Modifier::of(typmod)), -1),
            BaseType::Bytea => (Stored::Bytea, -1),
            BaseType::Date => (Stored::Date, 4),
            BaseType::Time => (Stored::Time(digits), 8),
            BaseType::Timetz => (Stored::Timetz(digits), 12),
            BaseType::Timestamp => (Stored::Timestamp(digits), 8),
            BaseType::Timestamptz => {
                (Stored::Timestamptz { timezone_is_utc: session.timezone_is_utc, digits }, 8)
            }
            BaseType::Interval if typmod == -1 => {
                (Stored::Interval(interval::Reading::new(-1, session)?), 16)
            }
            BaseType::Uuid => (Stored::Uuid, 16),
            BaseType::Macaddr => (Stored::Macaddr, 6),
            BaseType::Macaddr8 => (Stored::Macaddr8, 8),
            BaseType::Interval | BaseType::Json | BaseType::Jsonb | BaseType::Inet | BaseType::Cidr => {
                return None;
            }
        };
        let is_text = matches!(base, BaseType::Text | BaseType::Varchar | BaseType::Bpchar | BaseType::Name);
        let stored = match characters {
            Characters::Ascii if is_text => Stored::Ascii(Box::new(stored)),
            _ => stored,
        };
        Some((stored, bytes))
    }

    /// The form of a type that its receive function reads; `None` if it is not known here.
    pub(crate) fn received(ty: &PgType, typmod: i32, session: &Session) -> Option<Stored> {
        Encoder::of(ty, typmod, session).map(Stored::Received)
    }

    /// Appends a value to a row; false if unsure, and then what was appended is to be cut off.
    #[inline(always)]
    pub(crate) fn append(&self, value: &[u8], place: Place, out: &mut Vec<u8>) -> bool {
        match self {
            // Most columns of most tables: not worth the call.
            Stored::Text => place.varlena(value, out),
            _ => self.append_any(value, place, out),
        }
    }

    /// [`Stored::append`], for every type.
    fn append_any(&self, value: &[u8], place: Place, out: &mut Vec<u8>) -> bool {
        match self {
            Stored::Text => place.varlena(value, out),
            Stored::Int4 => place.fixed(int::int4(value).map(i32::to_le_bytes), out),
            Stored::Int8 => place.fixed(int::int8(value).map(i64::to_le_bytes), out),
            Stored::Timestamp(digits) => {
                place.fixed(datetime::timestamp(value).and_then(|micros| timestamp(micros, *digits)), out)
            }
            Stored::Timestamptz { timezone_is_utc, digits } => {
                let micros = datetime::timestamptz(value, *timezone_is_utc);
                place.fixed(micros.and_then(|micros| timestamp(micros, *digits)), out)
            }
            Stored::Float8 => place.fixed(float::float8(value).map(u64::to_le_bytes), out),
            Stored::Numeric(modifier) => {
                place.short_or_long(out, |out| numeric::stored(value, *modifier, out))
            }
            Stored::Date => place.fixed(datetime::date(value).map(i32::to_le_bytes), out),
            Stored::Int2 => place.fixed(int::int2(value).map(i16::to_le_bytes), out),
            Stored::Bool => place.fixed(bool::bool(value).map(|truth| [u8::from(truth)]), out),
            Stored::Varchar { most } => match text::within(value, *most) {
                Some(value) => place.varlena(value, out),
                None => false,
            },
            Stored::Bpchar { exactly } => match text::padded(value, *exactly) {
                Some((value, spaces)) => bpchar(value, spaces, place, out),
                None => false,
            },
            Stored::Name => place.fixed(text::stored_name(value), out),
            Stored::Oid => place.fixed(int::oid(value).map(u32::to_le_bytes), out),
            Stored::Float4 => place.fixed(float::float4(value).map(u32::to_le_bytes), out),
            // A hex digit is half a byte.
            Stored::Bytea if value.len() <= 128 => place.short_or_long(out, |out| bytea::bytea(value, out)),
            Stored::Bytea => place.long_or_short(out, |out| bytea::bytea(value, out)),
            Stored::Time(digits) => {
                place.fixed(datetime::time(value).map(|micros| time(micros, *digits)), out)
            }
            Stored::Timetz(digits) => {
                place.fixed(datetime::timetz(value).map(|(micros, west)| timetz(micros, west, *digits)), out)
            }
            Stored::Interval(reading) => place.fixed(reading.stored(value), out),
            Stored::Uuid => place.fixed(uuid::uuid(value), out),
            Stored::Macaddr => place.fixed(net::macaddr(value), out),
            Stored::Macaddr8 => place.fixed(net::macaddr8(value), out),
            Stored::Enum(labels) => place.fixed(labels.get(value).map(|oid| oid.to_le_bytes()), out),
            Stored::Received(Encoder::Verbatim) => place.varlena(value, out),
            Stored::Received(encoder) => place.received(out, |out| encoder.field(value, out)),
            Stored::Ascii(stored) => value.is_ascii() && stored.append(value, place, out),
        }
    }
}

/// The last timestamp but one (timestamp.h, END_TIMESTAMP), in microseconds since 2000-01-01.
const END_TIMESTAMP: i64 = 9_223_371_331_200_000_000;

/// A timestamp in the digits its column keeps; `None` if rounding takes it out of range.
#[inline]
pub(crate) fn timestamp(micros: i64, digits: Option<u8>) -> Option<[u8; 8]> {
    let rounded = datetime::rounded(micros, digits);
    (rounded < END_TIMESTAMP || rounded == i64::MAX).then(|| rounded.to_le_bytes())
}

/// A time in the digits its column keeps. A day's last half microsecond becomes 24:00:00, which is a time too.
#[inline]
pub(crate) fn time(micros: i64, digits: Option<u8>) -> [u8; 8] {
    datetime::rounded(micros, digits).to_le_bytes()
}

fn timetz(micros: i64, west: i32, digits: Option<u8>) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&time(micros, digits));
    bytes[8..].copy_from_slice(&west.to_le_bytes());
    bytes
}

fn bpchar(value: &[u8], spaces: usize, place: Place, out: &mut Vec<u8>) -> bool {
    if spaces == 0 {
        return place.varlena(value, out);
    }
    place.sized(value.len() + spaces, out);
    out.extend_from_slice(value);
    out.resize(out.len() + spaces, b' ');
    true
}
