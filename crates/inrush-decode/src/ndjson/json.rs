//! JSON as RFC 8259 has it and nothing more: tells tokens apart and skips whole values without a tree.

use std::ops::Range;

/// How deep objects and arrays may nest. The walk keeps one bit per level and does not recurse.
pub(super) const MAX_DEPTH: usize = 1024;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    String { escaped: bool },
    Number,
    Bool,
    Null,
    Object,
    Array,
}

/// What is wrong, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub at: usize,
    pub what: &'static str,
}

/// A place in a text.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    #[inline(always)]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The text from a fault on, a few characters of it, for a message.
    pub fn rest(&self, at: usize) -> &'a [u8] {
        let tail = &self.bytes[at.min(self.bytes.len())..];
        let mut len = tail.len().min(24);
        while len < tail.len() && len > 20 && tail[len] & 0xc0 == 0x80 {
            len -= 1;
        }
        &tail[..len]
    }

    #[inline(always)]
    pub fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Passes `byte`, or complains.
    #[inline(always)]
    pub fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            self.fault(what)
        }
    }

    pub fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(Fault { at: self.at, what })
    }

    /// Passes a key with its colon and the space around; gives what is between its quotes, and whether
    /// there are escapes in it.
    #[inline]
    pub fn key(&mut self) -> Result<(Range<usize>, bool), Fault> {
        if self.peek() != Some(b'"') {
            return self.fault("expected a key in double quotes");
        }
        let start = self.at + 1;
        let escaped = self.string()?;
        let range = start..self.at - 1;
        self.skip_space();
        self.expect(b':', "expected a colon behind the key")?;
        self.skip_space();
        Ok((range, escaped))
    }

    /// Passes a string, the cursor on its opening quote; gives whether there are escapes in it.
    #[inline]
    fn string(&mut self) -> Result<bool, Fault> {
        let mut escaped = false;
        self.at += 1;
        loop {
            self.skip_plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return self.fault("control character in a string"),
                None => return self.fault("string without an end"),
            }
        }
    }

    /// Passes the bytes of a string that stand for themselves, eight at a time.
    #[inline(always)]
    fn skip_plain(&mut self) {
        const ONES: u64 = u64::MAX / 255;
        const HIGH: u64 = ONES * 0x80;
        // A zero byte of `x` sets its high bit; a borrow can set others, but only above it, and only the
        // lowest counts.
        let zero = |x: u64| x.wrapping_sub(ONES) & !x & HIGH;
        while let Some(word) = self.bytes[self.at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
            let special = zero(word ^ (ONES * b'"' as u64)) | zero(word ^ (ONES * b'\\' as u64)) | control;
            if special != 0 {
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        while self.peek().is_some_and(|b| b != b'"' && b != b'\\' && b >= 0x20) {
            self.at += 1;
        }
    }

    /// Passes an escape, the cursor on its backslash.
    fn escape(&mut self) -> Result<(), Fault> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') if hex4(self.bytes, self.at + 2).is_some() => self.at += 6,
            Some(b'u') => return self.fault("\\u without four hexadecimal digits"),
            _ => return self.fault("unknown escape in a string"),
        }
        Ok(())
    }

    /// Passes a whole value, however deep; gives its kind and its bytes.
    #[inline]
    pub fn value(&mut self) -> Result<(Kind, Range<usize>), Fault> {
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => self.container().map(|()| Kind::Object)?,
            Some(b'[') => self.container().map(|()| Kind::Array)?,
            _ => self.scalar()?,
        };
        Ok((kind, start..self.at))
    }

    #[inline]
    fn scalar(&mut self) -> Result<Kind, Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(|escaped| Kind::String { escaped }),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| Kind::Number),
            Some(b't') => self.word(b"true").map(|()| Kind::Bool),
            Some(b'f') => self.word(b"false").map(|()| Kind::Bool),
            Some(b'n') => self.word(b"null").map(|()| Kind::Null),
            _ => self.fault("expected a value"),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Fault> {
        if !self.bytes[self.at..].starts_with(word) {
            return self.fault("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Passes one digit or more.
    #[inline]
    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { self.fault("expected a digit") } else { Ok(()) }
    }

    /// Passes an object or array, the cursor on its bracket.
    fn container(&mut self) -> Result<(), Fault> {
        let mut open = Nesting::default();
        loop {
            // On a value.
            let bracket = self.peek();
            match bracket {
                Some(b'{' | b'[') => {
                    let is_object = bracket == Some(b'{');
                    if !open.push(is_object) {
                        return self.fault("nested too deep");
                    }
                    self.at += 1;
                    self.skip_space();
                    if self.peek() != Some(if is_object { b'}' } else { b']' }) {
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => {
                    self.scalar()?;
                    self.skip_space();
                }
            }
            // Behind a value, or on the bracket that closes an empty container.
            loop {
                let Some(in_object) = open.top() else { return Ok(()) };
                match (self.peek(), in_object) {
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        open.pop();
                        if open.top().is_some() {
                            self.skip_space();
                        }
                    }
                    (Some(b','), _) => {
                        self.at += 1;
                        self.skip_space();
                        if in_object {
                            self.key()?;
                        }
                        break;
                    }
                    (_, true) => return self.fault("expected a comma or a closing brace"),
                    (_, false) => return self.fault("expected a comma or a closing bracket"),
                }
            }
        }
    }
}

/// Which of the open containers are objects, one bit each.
#[derive(Default)]
struct Nesting {
    depth: usize,
    objects: [u64; MAX_DEPTH / 64],
}

impl Nesting {
    fn push(&mut self, is_object: bool) -> bool {
        let Some(word) = self.objects.get_mut(self.depth / 64) else { return false };
        *word = *word & !(1 << (self.depth % 64)) | u64::from(is_object) << (self.depth % 64);
        self.depth += 1;
        true
    }

    fn pop(&mut self) {
        self.depth -= 1;
    }

    fn top(&self) -> Option<bool> {
        let last = self.depth.checked_sub(1)?;
        Some(self.objects[last / 64] >> (last % 64) & 1 == 1)
    }
}

/// The number four hexadecimal digits at `at` stand for.
fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..)?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |n, &digit| Some(n << 4 | char::from(digit).to_digit(16)?))
}

/// Why a well-formed string is no text for the server (jsonapi.c, json_lex_string).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoText {
    /// `\u0000`
    Nul,
    /// One half of a surrogate pair without the other.
    Surrogate,
}

/// Appends the text of a well-formed string, given without its quotes.
pub(super) fn unescape(string: &[u8], out: &mut Vec<u8>) -> Result<(), NoText> {
    let mut run = 0;
    while let Some(found) = memchr::memchr(b'\\', &string[run..]) {
        let backslash = run + found;
        out.extend_from_slice(&string[run..backslash]);
        run = backslash + 2;
        match string.get(backslash + 1) {
            Some(b'b') => out.push(0x08),
            Some(b'f') => out.push(0x0c),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'u') => {
                let (c, end) = code_point(string, backslash)?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                run = end;
            }
            Some(&other) => out.push(other),
            None => return Ok(()),
        }
    }
    out.extend_from_slice(&string[run..]);
    Ok(())
}

/// The character a `\u` escape, or a pair of them, stands for, and where it ends.
fn code_point(string: &[u8], backslash: usize) -> Result<(char, usize), NoText> {
    let unit = |at: usize| {
        let is_escape = string.get(at..).is_some_and(|tail| tail.starts_with(b"\\u"));
        if is_escape { hex4(string, at + 2) } else { None }
    };
    let (code, end) = match (unit(backslash), unit(backslash + 6)) {
        (Some(0), _) => return Err(NoText::Nul),
        (Some(high @ 0xd800..0xdc00), Some(low @ 0xdc00..0xe000)) => {
            (0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), backslash + 12)
        }
        (Some(code), _) => (code, backslash + 6),
        (None, _) => return Err(NoText::Surrogate),
    };
    char::from_u32(code).map(|c| (c, end)).ok_or(NoText::Surrogate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<Kind, Fault> {
        let mut cursor = Cursor::new(text.as_bytes(), 0);
        let (kind, range) = cursor.value()?;
        assert_eq!(range.start, 0);
        if range.end < text.len() { cursor.fault("more") } else { Ok(kind) }
    }

    #[test]
    fn takes_the_grammar_and_nothing_else() {
        let good = [
            "0",
            "-0",
            "1.50e+3",
            "\"\"",
            "\"\\u00e4\\n\"",
            "[]",
            "{}",
            "[ 1 , [ ] ]",
            "{\"a\" : {\"b\":[]}}",
        ];
        for text in good.iter().chain(&["true", "false", "null"]) {
            assert!(whole(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "01",
            "+1",
            ".5",
            "1.",
            "1e",
            "-",
            "nul",
            "tru",
            "'a'",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\t\"",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{a:1}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1]",
            "[1}",
            "[",
            "NaN",
        ] {
            assert!(whole(text).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_without_recursion() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert_eq!(whole(&nested(MAX_DEPTH)), Ok(Kind::Array));
        assert_eq!(whole(&nested(MAX_DEPTH + 1)), Err(Fault { at: MAX_DEPTH, what: "nested too deep" }));
        assert!(whole(&"{\"a\":".repeat(100_000)).is_err());
    }

    #[test]
    fn finds_the_end_of_strings_at_every_offset() {
        for len in 0..40 {
            for special in ["\"", "\\\"\"", "\\n\"", "ä\""] {
                let text = format!("\"{}{special}", "é".repeat(len % 3) + &"x".repeat(len));
                assert!(whole(&text).is_ok(), "{text}");
            }
            assert_eq!(whole(&format!("\"{}\x1f\"", "x".repeat(len))).map_err(|f| f.at), Err(len + 1));
        }
    }

    #[test]
    fn escapes_become_text() {
        let text = |string: &str| {
            let mut out = Vec::new();
            unescape(string.as_bytes(), &mut out).map(|()| String::from_utf8(out).expect("UTF-8"))
        };
        assert_eq!(text(r#"a\"\\\/\b\f\n\r\tz"#).as_deref(), Ok("a\"\\/\u{8}\u{c}\n\r\tz"));
        assert_eq!(text(r"\u00e4\ud83d\ude00!").as_deref(), Ok("ä😀!"));
        assert_eq!(text(r"a\u0000"), Err(NoText::Nul));
        for lone in [r"\ud83d", r"\ud83dx", r"\ude00", r"\ud83d\ud83d\ude00", r"\ud83d\n"] {
            assert_eq!(text(lone), Err(NoText::Surrogate), "{lone}");
        }
    }
}
