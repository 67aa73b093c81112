//! Arrays (arrayfuncs.c, array_in and array_recv) of every type that has an encoder.
//!
//! Encoded: braces nested to the same depth everywhere, rectangular, elements separated by commas, quoted
//! or not. Explicit bounds, empty inner braces, backslashes outside quotes and whatever else versions of
//! the server have read differently are left to the server.

use super::digits::is_space;
use super::{Encoder, digits};

/// MAXDIM
const MAX_DIMENSIONS: usize = 6;

/// How to encode an array.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) element: Encoder,
    /// The element type itself, a domain included: array_recv compares it.
    pub(crate) element_oid: u32,
    /// Whether array_nulls is on.
    pub(super) nulls: bool,
}

impl Array {
    /// Appends ndim, flags, element type, (length, lower bound) of each dimension, and the elements.
    pub(super) fn encode(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        if value == b"{}" {
            self.header(0, false, out);
            return true;
        }
        let depth = depth(value);
        if depth == 0 || depth > MAX_DIMENSIONS {
            return false;
        }
        let start = out.len();
        self.header(depth, false, out);
        let dimensions = out.len();
        out.resize(dimensions + depth * 8, 0);
        let mut walk = Walk { rest: value, lengths: [0; MAX_DIMENSIONS], has_null: false };
        if walk.level(self, 0, depth, out).is_none() || !walk.rest.is_empty() {
            return false;
        }
        for (word, length) in out[dimensions..].as_chunks_mut::<8>().0.iter_mut().zip(&walk.lengths[..depth])
        {
            let [a, b, c, d] = length.to_be_bytes();
            *word = [a, b, c, d, 0, 0, 0, 1];
        }
        out[start + 7] = u8::from(walk.has_null);
        true
    }

    fn header(&self, dimensions: usize, has_null: bool, out: &mut Vec<u8>) {
        debug_assert!(dimensions <= MAX_DIMENSIONS);
        out.extend_from_slice(&[0, 0, 0, dimensions as u8, 0, 0, 0, u8::from(has_null)]);
        out.extend_from_slice(&self.element_oid.to_be_bytes());
    }
}

/// Opening braces at the start.
fn depth(value: &[u8]) -> usize {
    value.iter().filter(|byte| !is_space(**byte)).take_while(|byte| **byte == b'{').count()
}

/// Where the reader is, and what it has seen so far.
struct Walk<'a> {
    rest: &'a [u8],
    /// Elements of each dimension; 0 while not known.
    lengths: [u32; MAX_DIMENSIONS],
    has_null: bool,
}

impl Walk<'_> {
    /// Reads one pair of braces. Recursion ends at MAX_DIMENSIONS.
    fn level(&mut self, array: &Array, at: usize, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        self.eat(b'{')?;
        let mut length = 0u32;
        loop {
            self.skip_spaces();
            if at + 1 < depth {
                self.level(array, at + 1, depth, out)?;
            } else {
                self.element(array, out)?;
            }
            length += 1;
            self.skip_spaces();
            match self.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        // The first pair of braces of a dimension fixes its length, all others must have the same.
        if self.lengths[at] == 0 {
            self.lengths[at] = length;
        }
        (self.lengths[at] == length).then_some(())
    }

    fn element(&mut self, array: &Array, out: &mut Vec<u8>) -> Option<()> {
        if self.rest.first()? == &b'"' {
            self.rest = &self.rest[1..];
            return self.quoted(&array.element, out);
        }
        let odd = |byte: &u8| matches!(byte, b',' | b'}' | b'{' | b'"' | b'\\');
        let end = self.rest.iter().position(odd)?;
        let (element, rest) = self.rest.split_at(end);
        self.rest = rest;
        let element = digits::trim(element);
        if element.is_empty() {
            return None;
        }
        if element.eq_ignore_ascii_case(b"NULL") {
            self.has_null = true;
            out.extend_from_slice(&(-1i32).to_be_bytes());
            return array.nulls.then_some(());
        }
        array.element.field(element, out).then_some(())
    }

    /// Reads an element whose opening quote was taken.
    fn quoted(&mut self, element: &Encoder, out: &mut Vec<u8>) -> Option<()> {
        let end = memchr::memchr2(b'"', b'\\', self.rest)?;
        if self.rest[end] == b'"' {
            let (value, rest) = self.rest.split_at(end);
            self.rest = &rest[1..];
            return element.field(value, out).then_some(());
        }
        if matches!(element, Encoder::Verbatim) {
            return super::sized(out, |out| self.unescape(|part| out.extend_from_slice(part)).is_some())
                .then_some(());
        }
        // Rare and mostly short: bytea, or an author that quotes everything.
        let mut value = Vec::new();
        self.unescape(|part| value.extend_from_slice(part))?;
        element.field(&value, out).then_some(())
    }

    /// Reads up to and including the closing quote.
    fn unescape(&mut self, mut append: impl FnMut(&[u8])) -> Option<()> {
        loop {
            let end = memchr::memchr2(b'"', b'\\', self.rest)?;
            append(&self.rest[..end]);
            let closing = self.rest[end] == b'"';
            self.rest = &self.rest[end + 1..];
            if closing {
                return Some(());
            }
            let (escaped, rest) = self.rest.split_at_checked(1)?;
            // A backslash inside a character: the literal is not valid UTF-8 and COPY text refuses it, but
            // without the backslash it would be.
            if matches!(escaped, [0x80..=0xbf]) {
                return None;
            }
            append(escaped);
            self.rest = rest;
        }
    }

    fn skip_spaces(&mut self) {
        while let [first, rest @ ..] = self.rest
            && is_space(*first)
        {
            self.rest = rest;
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Session;
    use inrush_core::{BaseType, PgType, TypeKind};

    fn encode(base: BaseType, value: &str) -> Option<Vec<u8>> {
        let session = Session { array_nulls: true, ..Session::default() };
        let element = Box::new(PgType::base(base));
        let ty = PgType { oid: 0, name: String::new(), kind: TypeKind::Array { element } };
        let mut out = Vec::new();
        let encoder = Encoder::of(&ty, -1, &session).expect("arrays of base types have an encoder");
        encoder.field(value.as_bytes(), &mut out).then(|| out.split_off(4))
    }

    #[test]
    fn golden() {
        assert_eq!(encode(BaseType::Int2, "{}").as_deref(), Some(&b"\0\0\0\0\0\0\0\0\0\0\0\x15"[..]));
        assert_eq!(
            encode(BaseType::Int2, "{1, NULL}").as_deref(),
            Some(&b"\0\0\0\x01\0\0\0\x01\0\0\0\x15\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x01\xff\xff\xff\xff"[..])
        );
        assert_eq!(
            encode(BaseType::Text, r#"{{"a,\"b"},{ c d }}"#).as_deref(),
            Some(
                &b"\0\0\0\x02\0\0\0\0\0\0\0\x19\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x04a,\"b\0\0\0\x03c d"[..]
            )
        );
        let nulls_off = Array { element: Encoder::Int2, element_oid: 21, nulls: false };
        assert!(!nulls_off.encode(b"{NULL}", &mut Vec::new()));
        assert!(nulls_off.encode(b"{1}", &mut Vec::new()));
    }

    #[test]
    fn taking_a_backslash_away_never_mends_a_character() {
        let texts = Array { element: Encoder::Verbatim, element_oid: 25, nulls: true };
        assert!(!texts.encode(b"{\"\xc3\\\x9f\"}", &mut Vec::new()));
        assert!(texts.encode("{\"\\ß\"}".as_bytes(), &mut Vec::new()));
    }

    #[test]
    fn left_to_the_server() {
        for odd in [
            "",
            "{",
            "}",
            "{}}",
            "{{}}",
            "{1",
            "{1}}",
            "{1},",
            "{,}",
            "{1,}",
            "{{1},2}",
            "{{1},{2,3}}",
            "{1,{2}}",
            "[0:1]={1,2}",
            " {1}",
            "{1} ",
            "{1}x",
            "{\"1}",
            "{1\"2\"}",
            "{\"1\"2}",
            "{1\\2}",
            "{{{{{{{1}}}}}}}",
        ] {
            assert_eq!(encode(BaseType::Int4, odd), None, "{odd}");
        }
    }
}
