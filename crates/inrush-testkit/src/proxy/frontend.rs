use std::collections::HashMap;

/// Cuts what a client sends into pieces so that what runs a statement is a piece of its own.
///
/// Message formats: PostgreSQL documentation, chapter "Frontend/Backend Protocol". Everything but the
/// messages that name or run statements passes through without waiting for its end.
#[derive(Debug, Default)]
pub(super) struct Frontend {
    /// Received, not yet taken.
    pending: Vec<u8>,
    /// Bytes of the current message still to pass through.
    pass: usize,
    /// The start-up message has gone by; from then on every message starts with its type.
    started: bool,
    /// Texts of prepared statements, and of portals bound to them, by their names.
    statements: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
}

/// Bytes to forward.
#[derive(Debug, PartialEq)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// This is one whole message, and it runs this.
    pub(super) statement: Option<String>,
}

/// Request codes in place of a protocol version (pqcomm.h): after these two the start-up message follows.
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;

impl Frontend {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next piece; `None` until more is fed.
    pub(super) fn take(&mut self) -> Option<Piece> {
        let mut end = 0;
        loop {
            let rest = &self.pending[end..];
            if self.pass > 0 {
                let step = self.pass.min(rest.len());
                self.pass -= step;
                end += step;
                if self.pass > 0 {
                    break;
                }
                continue;
            }
            let header = if self.started { 5 } else { 8 };
            if rest.len() < header {
                break;
            }
            let length = u32_at(rest, header & 1) as usize;
            if !self.started {
                self.started = !matches!(u32_at(rest, 4), SSL_REQUEST | GSSENC_REQUEST);
                self.pass = length;
                continue;
            }
            let whole = length + 1;
            if !matches!(rest[0], b'Q' | b'P' | b'B' | b'E') {
                self.pass = whole;
                continue;
            }
            if rest.len() < whole {
                break;
            }
            let message = rest[..whole].to_vec();
            if let Some(statement) = self.runs(message[0], &message[5..]) {
                if end == 0 {
                    self.pending.drain(..whole);
                    return Some(Piece { bytes: message, statement: Some(statement) });
                }
                // First what comes before it; it is looked at again with the next call.
                break;
            }
            end += whole;
        }
        let bytes: Vec<u8> = self.pending.drain(..end).collect();
        (!bytes.is_empty()).then_some(Piece { bytes, statement: None })
    }

    /// Notes what a message prepares or binds; the statement that it runs.
    fn runs(&mut self, kind: u8, body: &[u8]) -> Option<String> {
        let mut strings = body.split(|&byte| byte == 0).map(<[u8]>::to_vec);
        let (first, second) = (strings.next().unwrap_or_default(), strings.next().unwrap_or_default());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match kind {
            b'Q' => return Some(text(&first)),
            b'P' => drop(self.statements.insert(first, text(&second))),
            b'B' => {
                let bound = self.statements.get(&second).cloned().unwrap_or_default();
                self.portals.insert(first, bound);
            }
            _ => return self.portals.get(&first).cloned(),
        }
        None
    }
}

/// Whether one of the statements starts with COMMIT or END. Statements are parted at every semicolon: one
/// inside a literal would be misread, which no test needs.
pub(super) fn is_commit(sql: &str) -> bool {
    sql.split(';').any(|statement| {
        let statement = statement.trim_ascii();
        let word = statement.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(statement.len());
        statement[..word].eq_ignore_ascii_case("commit") || statement[..word].eq_ignore_ascii_case("end")
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// All pieces when the input comes in parts of `step` bytes, neighbours that are no COMMIT joined.
    fn pieces(input: &[u8], step: usize) -> Vec<(Vec<u8>, bool)> {
        let mut frontend = Frontend::default();
        let mut all: Vec<(Vec<u8>, bool)> = Vec::new();
        for part in input.chunks(step) {
            frontend.feed(part);
            while let Some(piece) = frontend.take() {
                let commits = piece.statement.is_some_and(|sql| is_commit(&sql));
                match all.last_mut() {
                    Some((bytes, false)) if !commits => bytes.extend(piece.bytes),
                    _ => all.push((piece.bytes, commits)),
                }
            }
        }
        assert!(frontend.pending.is_empty());
        all
    }

    #[test]
    fn finds_every_commit_however_the_bytes_arrive() {
        let mut before = Vec::new();
        before.extend([0, 0, 0, 8]);
        before.extend(SSL_REQUEST.to_be_bytes());
        before.extend([0, 0, 0, 16, 0, 3, 0, 0]);
        before.extend(b"user\0a\0\0");
        before.extend(message(b'Q', b"SET synchronous_commit = off\0"));
        before.extend(message(b'd', b"Q\0\0\0\x0bCOMMIT\0"));
        let simple = message(b'Q', b"SELECT 1; commit \0");
        let mut between = message(b'P', b"s\0COMMIT\0\0\0");
        between.extend(message(b'B', b"p\0s\0\0\0\0\0\0\0"));
        let execute = message(b'E', b"p\0\0\0\0\0");
        let after = message(b'S', b"");
        let all = [&before[..], &simple, &between, &execute, &after].concat();
        for step in [1, 2, 3, 5, 7, 64, 1000] {
            let expected =
                [(&before, false), (&simple, true), (&between, false), (&execute, true), (&after, false)];
            let expected: Vec<_> = expected.map(|(bytes, commit)| (bytes.clone(), commit)).into();
            assert_eq!(pieces(&all, step), expected, "in parts of {step}");
        }
    }
}
