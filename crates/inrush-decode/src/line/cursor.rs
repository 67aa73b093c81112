//! One line, token by token.

use super::split::string_end;
use std::ops::Range;

/// A name or a text, and whether escapes are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) range: Range<usize>,
    pub(super) escaped: bool,
}

/// A field's value; ranges are without suffix and quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Float(Range<usize>),
    Int(Range<usize>),
    Unsigned(Range<usize>),
    Bool(bool),
    String(Token),
}

/// Why a line is refused, and where.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: &'static str,
    pub(super) sqlstate: &'static str,
}

const COMMA: u8 = 1;
const EQUALS: u8 = 2;
const SPACE: u8 = 4;
const BACKSLASH: u8 = 8;
/// Never part of a name; a line that was split well has none outside its strings.
const NEWLINE: u8 = 16;

/// What ends a measurement, and what a backslash before it makes part of one.
pub(super) const IN_MEASUREMENT: u8 = COMMA | SPACE;
/// The same for keys and tag values.
pub(super) const IN_KEY: u8 = COMMA | EQUALS | SPACE;

const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    class[b',' as usize] = COMMA;
    class[b'=' as usize] = EQUALS;
    class[b' ' as usize] = SPACE;
    class[b'\\' as usize] = BACKSLASH;
    class[b'\n' as usize] = NEWLINE;
    class
};

#[inline]
fn class(byte: u8) -> u8 {
    CLASS[byte as usize]
}

pub(super) struct Cursor<'a> {
    /// Up to the end of the line.
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Passes the byte if it is the next.
    #[inline]
    pub(super) fn pass(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Passes all spaces; whether there was one.
    #[inline]
    pub(super) fn spaces(&mut self) -> bool {
        let start = self.at;
        while self.pass(b' ') {}
        self.at > start
    }

    #[cold]
    pub(super) fn fault(&self, what: &'static str) -> Fault {
        Fault { at: self.at, what, sqlstate: "22P04" }
    }

    /// Up to the next byte of `stops` that no backslash stands before.
    #[inline]
    pub(super) fn token(&mut self, stops: u8) -> Token {
        let start = self.at;
        let mut escaped = false;
        let ends = stops | BACKSLASH | NEWLINE;
        while let Some(&byte) = self.bytes.get(self.at) {
            let found = class(byte) & ends;
            if found == 0 {
                self.at += 1;
            } else if found == BACKSLASH {
                let special = self.bytes.get(self.at + 1).is_some_and(|&next| class(next) & stops != 0);
                escaped |= special;
                self.at += 1 + usize::from(special);
            } else {
                break;
            }
        }
        Token { range: start..self.at, escaped }
    }

    /// Measurement, behind it a comma, a space or nothing.
    #[inline]
    pub(super) fn measurement(&mut self) -> Result<Token, Fault> {
        let token = self.token(IN_MEASUREMENT);
        if token.range.is_empty() { Err(self.fault("expected a measurement")) } else { Ok(token) }
    }

    /// What is left of the line.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// A key and the `=` behind it. `expected`: the next so many bytes are a key, and an `=` is behind it.
    #[inline]
    pub(super) fn key(&mut self, missing: &'static str, expected: Option<usize>) -> Result<Token, Fault> {
        if let Some(len) = expected {
            let start = self.at;
            self.at += len + 1;
            return Ok(Token { range: start..start + len, escaped: false });
        }
        let key = self.token(IN_KEY);
        if key.range.is_empty() {
            return Err(self.fault(missing));
        }
        if !self.pass(b'=') {
            return Err(self.fault("expected \"=\" behind the key"));
        }
        Ok(key)
    }

    /// A tag's value. What stands behind it is for the caller.
    #[inline]
    pub(super) fn tag_value(&mut self) -> Result<Token, Fault> {
        let value = self.token(IN_KEY);
        if value.range.is_empty() { Err(self.fault("expected a tag value")) } else { Ok(value) }
    }

    #[inline]
    pub(super) fn value(&mut self) -> Result<Value, Fault> {
        match self.peek() {
            Some(b'0'..=b'9' | b'-' | b'.') => self.number(),
            Some(b'"') => self.string(),
            Some(b't' | b'T' | b'f' | b'F') => self.bool(),
            _ => Err(self.fault("expected a field value")),
        }
    }

    fn string(&mut self) -> Result<Value, Fault> {
        let start = self.at + 1;
        let Some(end) = string_end(self.bytes, start) else {
            return Err(self.fault("expected a string with a closing quote"));
        };
        self.at = end + 1;
        let escaped = memchr::memchr(b'\\', &self.bytes[start..end]).is_some();
        Ok(Value::String(Token { range: start..end, escaped }))
    }

    fn bool(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        let Token { range, .. } = self.token(IN_KEY);
        match &self.bytes[range] {
            b"t" | b"T" | b"true" | b"True" | b"TRUE" => Ok(Value::Bool(true)),
            b"f" | b"F" | b"false" | b"False" | b"FALSE" => Ok(Value::Bool(false)),
            _ => {
                self.at = start;
                Err(self.fault("expected a field value"))
            }
        }
    }

    #[inline]
    fn digits(&mut self) -> usize {
        let start = self.at;
        // Eight at once: measured (examples/line_speed), one at a time costs a tenth of a wide point.
        while let Some(eight) = self.bytes[self.at..].first_chunk() {
            let run = digit_run(*eight);
            self.at += run;
            if run < 8 {
                return self.at - start;
            }
        }
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at - start
    }

    #[inline]
    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        let negative = self.pass(b'-');
        let whole = self.digits();
        match self.peek() {
            Some(suffix @ (b'i' | b'u')) if whole > 0 => {
                let range = start..self.at;
                self.at += 1;
                return self.integer(range, suffix == b'u', negative);
            }
            Some(b'.') => {
                self.at += 1;
                if whole + self.digits() == 0 {
                    return Err(self.fault("expected a digit"));
                }
            }
            _ if whole == 0 => return Err(self.fault("expected a digit")),
            _ => {}
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            let _ = self.pass(b'-') || self.pass(b'+');
            if self.digits() == 0 {
                return Err(self.fault("expected a digit"));
            }
        }
        Ok(Value::Float(start..self.at))
    }

    /// Integers are of 64 bits in the protocol. Eighteen digits always are.
    #[inline]
    fn integer(&self, range: Range<usize>, unsigned: bool, negative: bool) -> Result<Value, Fault> {
        let text = &self.bytes[range.clone()];
        if unsigned && negative {
            return Err(Fault {
                at: range.start,
                what: "an unsigned integer has no sign",
                sqlstate: "22P04",
            });
        }
        let fits = text.len() <= 18
            || std::str::from_utf8(text).is_ok_and(|text| {
                if unsigned { text.parse::<u64>().is_ok() } else { text.parse::<i64>().is_ok() }
            });
        if !fits {
            return Err(Fault { at: range.start, what: "an integer out of range", sqlstate: "22003" });
        }
        Ok(if unsigned { Value::Unsigned(range) } else { Value::Int(range) })
    }

    /// A timestamp: a sign, digits, and nothing behind them.
    #[inline]
    pub(super) fn timestamp(&mut self) -> Result<i64, Fault> {
        let start = self.at;
        let negative = self.pass(b'-');
        let first = self.at;
        if self.digits() == 0 {
            return Err(self.fault("expected a timestamp"));
        }
        let digits = &self.bytes[first..self.at];
        // Nineteen digits, as nanoseconds have, fit 64 bits without a sign.
        let number = if digits.len() <= 19 {
            Some(digits.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0')))
        } else {
            digits.iter().try_fold(0, |number: u64, digit| {
                number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
            })
        };
        let signed = if negative {
            number.and_then(|number| 0_i64.checked_sub_unsigned(number))
        } else {
            number.and_then(|number| i64::try_from(number).ok())
        };
        signed.ok_or(Fault { at: start, what: OUT_OF_RANGE, sqlstate: "22008" })
    }
}

/// How many of the bytes are digits before the first that is none.
#[inline]
fn digit_run(bytes: [u8; 8]) -> usize {
    let digits = u64::from_le_bytes(bytes) ^ 0x3030_3030_3030_3030;
    // A digit is 0 to 9 now; adding what is missing to 128 sets the high bit of all others. What carries over
    // from one of those changes only bytes behind it.
    let others = (digits | digits.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080;
    others.trailing_zeros() as usize / 8
}

pub(super) const OUT_OF_RANGE: &str = "a timestamp out of range";

/// Appends a name or a tag's value without its escapes: a backslash counts only before one of `specials`.
pub(super) fn unescape(raw: &[u8], specials: u8, out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let special = rest.get(at + 1).is_some_and(|&next| class(next) & specials != 0);
        out.extend_from_slice(&rest[..at]);
        out.push(if special { rest[at + 1] } else { b'\\' });
        rest = &rest[at + 1 + usize::from(special)..];
    }
    out.extend_from_slice(rest);
}

/// Appends a string value without its escapes: `\"` and `\\`.
pub(super) fn unescape_string(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let special = matches!(rest.get(at + 1), Some(b'"' | b'\\'));
        out.extend_from_slice(&rest[..at]);
        out.push(if special { rest[at + 1] } else { b'\\' });
        rest = &rest[at + 1 + usize::from(special)..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamps_to_the_ends_of_their_range() {
        let read = |text: &str| Cursor::new(text.as_bytes(), 0).timestamp().ok();
        assert_eq!(read("9223372036854775807"), Some(i64::MAX));
        assert_eq!(read("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(read("000000000000000000000000012"), Some(12));
        assert_eq!(read("-0"), Some(0));
        for odd in
            ["9223372036854775808", "-9223372036854775809", "18446744073709551616", "99999999999999999999"]
        {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn digits_are_counted(bytes in any::<[u8; 8]>(), digits in 0usize..9) {
            let mut bytes = bytes;
            bytes[..digits].iter_mut().for_each(|byte| *byte = b'0' + *byte % 10);
            let judged = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            prop_assert_eq!(digit_run(bytes), judged);
        }
    }
}
