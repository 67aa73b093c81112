//! One key column: how the hash operator class of its type reads a value.

use crate::hash::{hash_bytes, hash_word, high, low};
use inrush_core::{BaseType, PgType, TypeKind};

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// How values of a type are hashed by the type's default hash operator class. Values are the binary form that
/// COPY carries, without the length word; type modifiers are applied, as the receive functions would.
///
/// **Text under a nondeterministic collation is not hashed by its bytes** (hashfunc.c, hashtextextended): for
/// [`HashKind::Text`], [`HashKind::Varchar`] and [`HashKind::Bpchar`] the caller makes sure that
/// pg_collation.collisdeterministic holds for the collation of the partition key (pg_partitioned_table.partcollation),
/// that the operator class is the default one (partclass), and that the key is a column, not an expression. The
/// database's encoding must be UTF8, or what is sent is not what is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashKind {
    /// boolean (hashchar)
    Bool,
    /// smallint (hashint2)
    Int2,
    /// integer and date (hashint4)
    Int4,
    /// bigint (hashint8)
    Int8,
    /// oid (hashoid)
    Oid,
    /// real (hashfloat4)
    Float4,
    /// double precision (hashfloat8)
    Float8,
    /// text and name (hashtext, hashname)
    Text,
    /// varchar (hashtext)
    Varchar {
        /// Characters it may have; spaces beyond are cut off (varchar.c, varchar_input).
        limit: Option<u32>,
    },
    /// character (hashbpchar): trailing spaces do not count.
    Bpchar,
    /// bytea (hashvarlena)
    Bytea,
    /// uuid (uuid_hash)
    Uuid,
    /// time, timestamp and timestamptz (time_hash, timestamp_hash)
    Micros {
        /// Digits of the fraction to which the column rounds.
        digits: Option<u8>,
    },
    /// interval without a modifier (interval_hash)
    Interval,
    /// numeric without a modifier (hash_numeric)
    Numeric,
}

impl HashKind {
    /// How a column of this type is hashed; `None` where this crate does not know: numeric with a modifier (the
    /// server rounds), jsonb, network types, enums (hashed by the OID of the label), arrays and everything else.
    pub fn of(ty: &PgType, typmod: i32) -> Option<HashKind> {
        let (ty, typmod) = ty.under_domains(typmod);
        let TypeKind::Base(base) = &ty.kind else { return None };
        Some(match base {
            BaseType::Bool => HashKind::Bool,
            BaseType::Int2 => HashKind::Int2,
            BaseType::Int4 | BaseType::Date => HashKind::Int4,
            BaseType::Int8 => HashKind::Int8,
            BaseType::Oid => HashKind::Oid,
            BaseType::Float4 => HashKind::Float4,
            BaseType::Float8 => HashKind::Float8,
            BaseType::Text | BaseType::Name => HashKind::Text,
            // VARHDRSZ is part of the modifier (varchar.c, anychar_typmodin).
            BaseType::Varchar => {
                HashKind::Varchar { limit: typmod.checked_sub(4).and_then(|n| u32::try_from(n).ok()) }
            }
            BaseType::Bpchar => HashKind::Bpchar,
            BaseType::Bytea => HashKind::Bytea,
            BaseType::Uuid => HashKind::Uuid,
            BaseType::Time | BaseType::Timestamp | BaseType::Timestamptz => {
                HashKind::Micros { digits: u8::try_from(typmod).ok() }
            }
            BaseType::Interval if typmod == -1 => HashKind::Interval,
            BaseType::Numeric if typmod == -1 => HashKind::Numeric,
            _ => return None,
        })
    }

    /// Why a column of this type is not hashed here; `None` where [`HashKind::of`] knows how.
    pub fn why_not(ty: &PgType, typmod: i32) -> Option<String> {
        if HashKind::of(ty, typmod).is_some() {
            return None;
        }
        let (base, _) = ty.under_domains(typmod);
        let why = match &base.kind {
            TypeKind::Base(BaseType::Numeric | BaseType::Interval) => "the server rounds them first",
            TypeKind::Base(BaseType::Json) => "the type has no hash",
            TypeKind::Enum => "the hash is that of a number which only the server knows",
            TypeKind::Array { .. } => "arrays are hashed element by element, as the server has them",
            TypeKind::Base(_) | TypeKind::Other | TypeKind::Domain { .. } => "only the server knows how",
        };
        Some(format!("keys of type {} are not hashed here: {why}", ty.name))
    }

    /// The hash of a value with a seed; `None` if the bytes are no value of the type or would be refused.
    #[inline]
    pub fn hash(self, value: &[u8], seed: u64) -> Option<u64> {
        Some(match self {
            HashKind::Bool => hash_word(u32::from(<[u8; 1]>::try_from(value).ok()?[0] != 0), seed),
            HashKind::Int2 => {
                let number = i16::from_be_bytes(value.try_into().ok()?);
                hash_word(i32::from(number).cast_unsigned(), seed)
            }
            HashKind::Int4 | HashKind::Oid => hash_word(u32::from_be_bytes(value.try_into().ok()?), seed),
            HashKind::Int8 => hash_int8(i64::from_be_bytes(value.try_into().ok()?), seed),
            HashKind::Float4 => {
                let number = f32::from_be_bytes(value.try_into().ok()?);
                hash_float8(f64::from(number), seed)
            }
            HashKind::Float8 => hash_float8(f64::from_be_bytes(value.try_into().ok()?), seed),
            HashKind::Text | HashKind::Bytea => hash_bytes(value, seed),
            HashKind::Varchar { limit } => hash_bytes(within(value, limit)?, seed),
            HashKind::Bpchar => hash_bytes(without_blanks(value), seed),
            HashKind::Uuid => hash_bytes(<&[u8; 16]>::try_from(value).ok()?, seed),
            HashKind::Micros { digits } => {
                hash_int8(rounded(i64::from_be_bytes(value.try_into().ok()?), digits), seed)
            }
            HashKind::Interval => hash_int8(span(value.try_into().ok()?), seed),
            HashKind::Numeric => hash_numeric(value, seed)?,
        })
    }
}

/// hashint8extended: numbers that fit int4 hash as int4 does.
#[inline]
fn hash_int8(number: i64, seed: u64) -> u64 {
    let bits = number.cast_unsigned();
    let folded = low(bits) ^ if number >= 0 { high(bits) } else { !high(bits) };
    hash_word(folded, seed)
}

/// hashfloat8extended: both zeros are one value, and so are all NaNs.
#[inline]
fn hash_float8(number: f64, seed: u64) -> u64 {
    if number == 0.0 {
        return seed;
    }
    let bits = if number.is_nan() { 0x7ff8_0000_0000_0000 } else { number.to_bits() };
    hash_bytes(&bits.to_le_bytes(), seed)
}

/// hash_numeric_extended (numeric.c): the digits to base 10000 without zeros at either end, and where the point is; the
/// sign does not count.
fn hash_numeric(value: &[u8], seed: u64) -> Option<u64> {
    let (header, digits) = value.split_first_chunk::<8>()?;
    let [n0, n1, w0, w1, s0, s1, _, _] = *header;
    if digits.len() != 2 * usize::from(u16::from_be_bytes([n0, n1])) {
        return None;
    }
    match u16::from_be_bytes([s0, s1]) {
        0x0000 | 0x4000 => {}
        // NaN and the infinities.
        0xC000 | 0xD000 | 0xF000 => return Some(seed),
        _ => return None,
    }
    let digits: Vec<u16> = digits.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
    if digits.iter().any(|digit| *digit >= 10_000) {
        return None;
    }
    let Some(first) = digits.iter().position(|digit| *digit != 0) else { return Some(seed.wrapping_sub(1)) };
    let last = digits.iter().rposition(|digit| *digit != 0)?;
    let weight = i64::from(i16::from_be_bytes([w0, w1])) - i64::try_from(first).ok()?;
    // The server has them as native words.
    let bytes: Vec<u8> = digits[first..=last].iter().flat_map(|digit| digit.to_le_bytes()).collect();
    Some(hash_bytes(&bytes, seed) ^ weight.cast_unsigned())
}

/// bcTruelen (varchar.c)
fn without_blanks(value: &[u8]) -> &[u8] {
    &value[..value.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1)]
}

/// What varchar(n) stores of it: spaces beyond n characters are cut off, anything else there is refused.
fn within(value: &[u8], limit: Option<u32>) -> Option<&[u8]> {
    let limit = limit.map_or(usize::MAX, |n| n as usize);
    if value.len() <= limit {
        return Some(value);
    }
    let text = std::str::from_utf8(value).ok()?;
    match text.char_indices().nth(limit) {
        None => Some(value),
        Some((at, _)) => value[at..].iter().all(|&byte| byte == b' ').then_some(&value[..at]),
    }
}

/// AdjustTimestampForTypmod (timestamp.c), AdjustTimeForTypmod (date.c): halves away from zero.
fn rounded(micros: i64, digits: Option<u8>) -> i64 {
    const UNITS: [i64; 6] = [1_000_000, 100_000, 10_000, 1_000, 100, 10];
    match digits.and_then(|digits| UNITS.get(usize::from(digits))) {
        Some(unit) if micros != i64::MIN && micros != i64::MAX => {
            micros.saturating_add(micros.signum() * (unit / 2)) / unit * unit
        }
        _ => micros,
    }
}

/// interval_cmp_value (timestamp.c), of which interval_hash takes the lower 64 bits: a month is 30 days and a
/// day 24 hours.
fn span(value: &[u8; 16]) -> i64 {
    let [t0, t1, t2, t3, t4, t5, t6, t7, d0, d1, d2, d3, m0, m1, m2, m3] = *value;
    let micros = i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    let days = i64::from(i32::from_be_bytes([d0, d1, d2, d3]));
    let months = i64::from(i32::from_be_bytes([m0, m1, m2, m3]));
    micros.wrapping_add((months * 30 + days).wrapping_mul(MICROS_PER_DAY))
}
