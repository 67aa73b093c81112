//! Tags or fields as the text of one JSON object.

use super::cursor::{Value, unescape_string};

/// An object in the making, and the columns it is for.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) columns: Vec<usize>,
    /// Only what no other column asks for.
    pub(super) rest: bool,
    text: Vec<u8>,
    unescaped: Vec<u8>,
}

impl Object {
    pub(super) fn new(column: usize, rest: bool) -> Object {
        Object { columns: vec![column], rest, text: Vec::new(), unescaped: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
    }

    /// The object, whole.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(&self.text);
        out.push(b'}');
    }

    pub(super) fn string(&mut self, name: &[u8], value: &[u8]) {
        self.name(name);
        string(value, &mut self.text);
    }

    pub(super) fn value(&mut self, name: &[u8], bytes: &[u8], value: &Value) {
        self.name(name);
        match value {
            Value::Float(range) | Value::Int(range) | Value::Unsigned(range) => {
                number(&bytes[range.clone()], &mut self.text);
            }
            Value::Bool(truth) => self.text.extend_from_slice(if *truth { b"true" } else { b"false" }),
            Value::String(token) if token.escaped => {
                self.unescaped.clear();
                unescape_string(&bytes[token.range.clone()], &mut self.unescaped);
                string(&self.unescaped, &mut self.text);
            }
            Value::String(token) => string(&bytes[token.range.clone()], &mut self.text),
        }
    }

    fn name(&mut self, name: &[u8]) {
        if !self.text.is_empty() {
            self.text.push(b',');
        }
        string(name, &mut self.text);
        self.text.push(b':');
    }
}

/// A JSON string (RFC 8259, section 7). The text is UTF-8 without NUL, as every line is.
fn string(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A JSON number: JSON knows no `007`, `.5` or `1.`, and line protocol does.
fn number(text: &[u8], out: &mut Vec<u8>) {
    let (sign, text) = match text {
        [b'-', text @ ..] => (&b"-"[..], text),
        _ => (&b""[..], text),
    };
    let (mantissa, exponent) =
        text.split_at(text.iter().position(|b| matches!(b, b'e' | b'E')).unwrap_or(text.len()));
    let (whole, fraction) =
        mantissa.split_at(mantissa.iter().position(|&b| b == b'.').unwrap_or(mantissa.len()));
    let whole = &whole[whole.iter().position(|&b| b != b'0').unwrap_or(whole.len())..];
    out.extend_from_slice(sign);
    out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
    if fraction.len() > 1 {
        out.extend_from_slice(fraction);
    }
    out.extend_from_slice(exponent);
}
