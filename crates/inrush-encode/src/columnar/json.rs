//! Scalars as JSON, as to_json of the server would write them (json.c, datum_to_json): numbers bare, NaN and
//! infinity as strings, dates and times as strings of ISO 8601, bytes in hexadecimal.

use super::text::{self, Form, print, text};
use super::values::{Scalar, Values, Zoned};

/// Appends a value.
pub(super) fn value(scalar: Scalar<'_>, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Bool(_)
        | Scalar::Int(_)
        | Scalar::UInt(_)
        | Scalar::Decimal(..)
        | Scalar::LongDecimal(..) => {
            text(scalar, &Form::Other, out);
        }
        Scalar::Float4(number) if number.is_finite() => text::float4(number, out),
        Scalar::Float8(number) if number.is_finite() => text::float8(number, out),
        Scalar::Text(value) => string(value, out),
        Scalar::List(values, start, end) => {
            out.push(b'[');
            for i in start..end {
                if i > start {
                    out.push(b',');
                }
                nullable(values, i, out);
            }
            out.push(b']');
        }
        Scalar::Struct(fields, row) => {
            object(fields.iter().map(|(name, values)| (name.as_bytes(), values.get(row))), out);
        }
        Scalar::Map(keys, values, start, end) => {
            out.push(b'{');
            let mut key_text = Vec::new();
            for i in start..end {
                if i > start {
                    out.push(b',');
                }
                key_text.clear();
                // Keys of maps are never NULL; one that is all the same has no text.
                if let Some(key) = keys.get(i) {
                    text(key, &Form::Other, &mut key_text);
                }
                string(&key_text, out);
                out.push(b':');
                nullable(values, i, out);
            }
            out.push(b'}');
        }
        Scalar::Timestamp(ticks, tick, zoned) => {
            out.push(b'"');
            text::timestamp(ticks, tick, Zoned::No, b'T', out);
            // The era, where there is one, comes last; its dates are beyond ISO 8601 in any case.
            if zoned == Zoned::Yes {
                out.extend_from_slice(b"+00:00");
            }
            out.push(b'"');
        }
        other => {
            out.push(b'"');
            let from = out.len();
            text(other, &Form::Other, out);
            // Of what is left only bytes have a character to escape: the backslash in front.
            if out.get(from) == Some(&b'\\') {
                out.insert(from, b'\\');
            }
            out.push(b'"');
        }
    }
}

/// Appends an object.
pub(super) fn object<'a>(fields: impl Iterator<Item = (&'a [u8], Option<Scalar<'a>>)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (i, (name, scalar)) in fields.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        string(name, out);
        out.push(b':');
        match scalar {
            Some(scalar) => value(scalar, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}

fn nullable(values: &Values, i: usize, out: &mut Vec<u8>) {
    match values.get(i) {
        Some(scalar) => value(scalar, out),
        None => out.extend_from_slice(b"null"),
    }
}

/// A string; the bytes are valid UTF-8.
fn string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => print(out, format_args!("\\u{byte:04x}")),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}
