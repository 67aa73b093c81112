//! Scalars as the text that the input functions of PostgreSQL read. Rows go this way where a value has no
//! exact binary form, so that the server says of it what it would say of the same text in a CSV file.

use super::json;
use super::values::{Interval, Scalar, Tick, Values, Zoned};
use inrush_core::{BaseType, PgType, TypeKind};
use std::io::Write;

/// What kind of text a column takes; it decides where a scalar has more than one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Text types and enums: binary values are taken to be text, since files of old writers do not mark text.
    Text,
    /// json and jsonb: text is taken to be JSON.
    Json,
    Bytea,
    Uuid,
    /// double precision: a narrow float becomes the same number, not the one its decimal digits stand for.
    Float8,
    Array(Box<Form>),
    Other,
}

impl Form {
    pub fn of(ty: &PgType) -> Form {
        let (ty, _) = ty.under_domains(-1);
        match &ty.kind {
            TypeKind::Base(base) => match base {
                BaseType::Text | BaseType::Varchar | BaseType::Bpchar | BaseType::Name => Form::Text,
                BaseType::Json | BaseType::Jsonb => Form::Json,
                BaseType::Bytea => Form::Bytea,
                BaseType::Uuid => Form::Uuid,
                BaseType::Float8 => Form::Float8,
                _ => Form::Other,
            },
            TypeKind::Enum => Form::Text,
            TypeKind::Array { element } => Form::Array(Box::new(Form::of(element))),
            TypeKind::Domain { .. } | TypeKind::Other => Form::Other,
        }
    }
}

/// Appends the text of a value.
pub(super) fn text(scalar: Scalar<'_>, form: &Form, out: &mut Vec<u8>) {
    match (scalar, form) {
        (Scalar::Text(value), _) | (Scalar::Bytes(value), Form::Text | Form::Json) => {
            out.extend_from_slice(value);
        }
        (scalar, Form::Json) => json::value(scalar, out),
        (Scalar::List(values, start, end), Form::Array(element)) => array(values, start, end, element, out),
        // What reads brackets (text itself, vectors of extensions) reads JSON rather than braces.
        (Scalar::List(..) | Scalar::Struct(..) | Scalar::Map(..), _) => json::value(scalar, out),
        (Scalar::Uuid(value), Form::Bytea) => hex(value, out),
        (Scalar::Uuid(value), _) => uuid(value, out),
        (Scalar::Bytes(value), Form::Uuid) if value.len() == 16 => uuid(value, out),
        (Scalar::Bytes(value), _) => hex(value, out),
        (Scalar::Float4(value), Form::Float8) => float8(value.into(), out),
        (Scalar::Bool(truth), _) => out.extend_from_slice(if truth { b"true" } else { b"false" }),
        (Scalar::Int(value), _) => print(out, format_args!("{value}")),
        (Scalar::UInt(value), _) => print(out, format_args!("{value}")),
        (Scalar::Float4(value), _) => float4(value, out),
        (Scalar::Float8(value), _) => float8(value, out),
        (Scalar::Decimal(value, scale), _) => decimal(value, scale, out),
        (Scalar::LongDecimal(value, scale), _) => {
            // Beyond 38 digits; rare enough for a string.
            let digits = value.to_string();
            let (negative, digits) = match digits.strip_prefix('-') {
                Some(digits) => (true, digits),
                None => (false, digits.as_str()),
            };
            place_point(negative, digits.as_bytes(), scale, out);
        }
        (Scalar::Date(days), _) => {
            let era = date(days, out);
            out.extend_from_slice(era);
        }
        (Scalar::Time(ticks, tick), _) => {
            let sign = if ticks < 0 { "-" } else { "" };
            print(out, format_args!("{sign}"));
            clock(ticks.unsigned_abs(), tick, out);
        }
        (Scalar::Timestamp(ticks, tick, zoned), _) => timestamp(ticks, tick, zoned, b' ', out),
        (Scalar::Interval(value), _) => interval(value, out),
    }
}

/// Writing to a vector cannot fail.
pub(super) fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok());
}

/// An array literal (arrayfuncs.c, array_in); every element is quoted, which is always right.
fn array(values: &Values, start: usize, end: usize, element: &Form, out: &mut Vec<u8>) {
    out.push(b'{');
    for i in start..end {
        if i > start {
            out.push(b',');
        }
        match values.get(i) {
            None => out.extend_from_slice(b"NULL"),
            Some(Scalar::List(values, start, end)) if *element != Form::Json => {
                array(values, start, end, element, out);
            }
            Some(scalar) => {
                out.push(b'"');
                let from = out.len();
                text(scalar, element, out);
                escape_from(out, from);
                out.push(b'"');
            }
        }
    }
    out.push(b'}');
}

/// Puts a backslash before the quotes and backslashes of what was appended since `from`.
fn escape_from(out: &mut Vec<u8>, from: usize) {
    if memchr::memchr2(b'"', b'\\', &out[from..]).is_some() {
        let plain = out.split_off(from);
        for byte in plain {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
    }
}

fn hex(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\x");
    hex_digits(value, out);
}

fn hex_digits(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(
        value.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
    );
}

pub(super) fn uuid(value: &[u8], out: &mut Vec<u8>) {
    for (i, byte) in value.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        hex_digits(&[*byte], out);
    }
}

/// As float4out and float8out write: the shortest digits that give the same number.
pub(super) fn float4(value: f32, out: &mut Vec<u8>) {
    // FLT_DIG
    float(
        value.is_nan(),
        value.is_infinite(),
        value.is_sign_negative(),
        6,
        format_args!("{:e}", value.abs()),
        out,
    );
}

/// See [`float4`].
pub(super) fn float8(value: f64, out: &mut Vec<u8>) {
    // DBL_DIG
    float(
        value.is_nan(),
        value.is_infinite(),
        value.is_sign_negative(),
        15,
        format_args!("{:e}", value.abs()),
        out,
    );
}

/// `scientific`: the number without sign as `d[.ddd]e[-]x`. Written without exponent from 1e-4 to below
/// 10 to the power of `most` (f2s.c and d2s.c, to_chars).
fn float(
    nan: bool,
    infinite: bool,
    negative: bool,
    most: i32,
    scientific: std::fmt::Arguments<'_>,
    out: &mut Vec<u8>,
) {
    if nan {
        out.extend_from_slice(b"NaN");
        return;
    }
    if negative {
        out.push(b'-');
    }
    if infinite {
        out.extend_from_slice(b"Infinity");
        return;
    }
    // At most 17 digits, a point and `e-324`.
    let mut buffer = [0u8; 32];
    let mut rest = &mut buffer[..];
    let written = rest.write_fmt(scientific);
    debug_assert!(written.is_ok());
    let left = rest.len();
    let text = &buffer[..32 - left];
    let e = text.iter().position(|b| *b == b'e').unwrap_or(text.len());
    let exponent: i32 = std::str::from_utf8(&text[(e + 1).min(text.len())..])
        .ok()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default();
    let (first, after) = (text[0], text.get(2..e).unwrap_or_default());
    if !(-4..most).contains(&exponent) {
        out.push(first);
        if !after.is_empty() {
            out.push(b'.');
            out.extend_from_slice(after);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        print(out, format_args!("e{sign}{:02}", exponent.abs()));
        return;
    }
    let zeros =
        |n: i32, out: &mut Vec<u8>| out.extend(std::iter::repeat_n(b'0', usize::try_from(n).unwrap_or(0)));
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        zeros(-exponent - 1, out);
        out.push(first);
        out.extend_from_slice(after);
        return;
    }
    out.push(first);
    let whole = usize::try_from(exponent).unwrap_or(0).min(after.len());
    out.extend_from_slice(&after[..whole]);
    zeros(exponent - i32::try_from(whole).unwrap_or(0), out);
    if whole < after.len() {
        out.push(b'.');
        out.extend_from_slice(&after[whole..]);
    }
}

pub(super) fn decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    let mut buffer = [0u8; 40];
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    place_point(value < 0, &buffer[at..], scale, out);
}

fn place_point(negative: bool, digits: &[u8], scale: i8, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    let behind = usize::from(scale.unsigned_abs());
    if scale <= 0 {
        out.extend_from_slice(digits);
        if digits != b"0" {
            out.extend(std::iter::repeat_n(b'0', behind));
        }
        return;
    }
    match digits.len().checked_sub(behind) {
        Some(before) if before > 0 => {
            out.extend_from_slice(&digits[..before]);
            out.push(b'.');
            out.extend_from_slice(&digits[before..]);
        }
        _ => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', behind - digits.len()));
            out.extend_from_slice(digits);
        }
    }
}

/// The date so many days after 1970-01-01, without the era, which it gives: ` BC` or nothing.
pub(super) fn date(days: i64, out: &mut Vec<u8>) -> &'static [u8] {
    let (year, month, day) = civil(days);
    // There is no year 0: 1 BC is the year before 1.
    let (year, era): (i64, &[u8]) = if year > 0 { (year, b"") } else { (1 - year, b" BC") };
    print(out, format_args!("{year:04}-{month:02}-{day:02}"));
    era
}

/// Year, month and day in the proleptic Gregorian calendar. Years start in March here, so that the leap day
/// is the last; 400 of them have 146097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    // 0000-03-01 is 719468 days before 1970-01-01. Days of every tick of 64 bits are far from overflow.
    let days = days.saturating_add(719_468);
    let cycle = days.div_euclid(146_097);
    let of_cycle = days.rem_euclid(146_097);
    let year = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + i64::from(month <= 2), month, day)
}

/// `HH:MM:SS[.f]`, with as many hours as it takes.
fn clock(ticks: u64, tick: Tick, out: &mut Vec<u8>) {
    let per_second = tick.per_second().unsigned_abs();
    let (seconds, fraction) = (ticks / per_second, ticks % per_second);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    print(out, format_args!("{hours:02}:{minutes:02}:{seconds:02}"));
    match tick {
        _ if fraction == 0 => {}
        Tick::Second => {}
        Tick::Milli => print(out, format_args!(".{fraction:03}")),
        Tick::Micro => print(out, format_args!(".{fraction:06}")),
        Tick::Nano => print(out, format_args!(".{fraction:09}")),
    }
}

/// A timestamp; one with a zone is written in UTC with its offset.
pub(super) fn timestamp(ticks: i64, tick: Tick, zoned: Zoned, separator: u8, out: &mut Vec<u8>) {
    let per_day = tick.per_second() * 86_400;
    let era = date(ticks.div_euclid(per_day), out);
    out.push(separator);
    clock(ticks.rem_euclid(per_day).unsigned_abs(), tick, out);
    if zoned == Zoned::Yes {
        out.extend_from_slice(b"+00");
    }
    out.extend_from_slice(era);
}

/// Every part with its sign, so that IntervalStyle does not matter (datetime.c, DecodeInterval).
pub(super) fn interval(value: Interval, out: &mut Vec<u8>) {
    let sign = if value.ticks < 0 { '-' } else { '+' };
    print(out, format_args!("{:+} mons {:+} days {sign}", value.months, value.days));
    clock(value.ticks.unsigned_abs(), value.tick, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(scalar: Scalar<'_>) -> String {
        let mut out = Vec::new();
        text(scalar, &Form::Other, &mut out);
        String::from_utf8(out).expect("text is UTF-8")
    }

    #[test]
    fn numbers() {
        assert_eq!(show(Scalar::Decimal(-12345, 2)), "-123.45");
        assert_eq!(show(Scalar::Decimal(5, 3)), "0.005");
        assert_eq!(show(Scalar::Decimal(-5, 1)), "-0.5");
        assert_eq!(show(Scalar::Decimal(12, -3)), "12000");
        assert_eq!(show(Scalar::Decimal(0, -3)), "0");
        assert_eq!(show(Scalar::Decimal(i128::MIN, 0)), i128::MIN.to_string());
        for (number, written) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (123.456, "123.456"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001234, "1.234e-05"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(show(Scalar::Float8(number)), written);
        }
        assert_eq!(show(Scalar::Float4(0.1)), "0.1");
        assert_eq!(show(Scalar::Float4(1e6)), "1e+06");
    }

    #[test]
    fn moments() {
        assert_eq!(show(Scalar::Date(0)), "1970-01-01");
        assert_eq!(show(Scalar::Date(19_782)), "2024-02-29");
        assert_eq!(show(Scalar::Date(-719_529)), "0002-12-31 BC");
        assert_eq!(show(Scalar::Date(2_932_897)), "10000-01-01");
        let noon = 12 * 3600;
        assert_eq!(show(Scalar::Timestamp(noon, Tick::Second, Zoned::No)), "1970-01-01 12:00:00");
        assert_eq!(show(Scalar::Timestamp(-1, Tick::Nano, Zoned::Yes)), "1969-12-31 23:59:59.999999999+00");
        assert_eq!(
            show(Scalar::Timestamp(i64::MIN, Tick::Micro, Zoned::No)),
            "290309-12-21 19:59:05.224192 BC"
        );
        assert_eq!(show(Scalar::Time(86_400_000, Tick::Milli)), "24:00:00");
        let value = Interval { months: -1, days: 2, ticks: -1_500, tick: Tick::Milli };
        assert_eq!(show(Scalar::Interval(value)), "-1 mons +2 days -00:00:01.500");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = civil(-800_000);
        for days in -799_999..800_000 {
            let (year, month, day) = civil(days);
            let leap = (year.rem_euclid(4) == 0 && year.rem_euclid(100) != 0) || year.rem_euclid(400) == 0;
            let next = match last {
                (y, m, d) if y == year && m == month => day == d + 1,
                (y, m, _) if y == year => month == m + 1 && day == 1,
                (y, m, d) => year == y + 1 && (m, d, month, day) == (12, 31, 1, 1),
            };
            assert!(
                next && day <= if month == 2 { 28 + i64::from(leap) } else { 31 },
                "{year}-{month}-{day}"
            );
            last = (year, month, day);
        }
        assert_eq!(civil(0), (1970, 1, 1));
    }
}
