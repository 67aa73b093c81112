use std::ops::Range;

/// Where the bytes of one field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    Null,
    /// A slice of the chunk, used as it stands.
    Input {
        start: u32,
        len: u32,
    },
    /// A slice of the scratch space: the field had escapes or quotes inside.
    Scratch {
        start: u32,
        len: u32,
    },
}

/// The fields of one record, reused for record after record: a decoder clears and fills it, an encoder
/// reads it. Fields stay slices of the chunk; only those with escapes are copied, into `scratch`.
///
/// Offsets are 32 bits: a chunk holds at most `Limits::MAX_RECORD_CEILING` (1 GB) bytes.
#[derive(Debug, Default)]
pub struct Fields {
    spans: Vec<Span>,
    scratch: Vec<u8>,
}

impl Fields {
    /// No fields yet.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Forgets the fields of the last record and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.spans.clear();
        self.scratch.clear();
    }

    /// Makes room for exactly `n` fields, all NULL: for formats whose fields come in any order (NDJSON).
    pub fn reset_nulls(&mut self, n: usize) {
        self.clear();
        self.spans.resize(n, Span::Null);
    }

    /// Number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no field.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Adds a NULL field.
    #[inline]
    pub fn push_null(&mut self) {
        self.spans.push(Span::Null);
    }

    /// Adds a field that is `range` of the chunk.
    #[inline]
    pub fn push_input(&mut self, range: Range<usize>) {
        self.spans.push(Span::input(range));
    }

    /// Adds a field that was written to the scratch space from `start` (see [`Fields::scratch`]) to its end.
    #[inline]
    pub fn push_scratch(&mut self, start: usize) {
        self.spans.push(Span::scratch(start, self.scratch.len()));
    }

    /// Sets field `i` to `range` of the chunk.
    pub fn set_input(&mut self, i: usize, range: Range<usize>) {
        self.spans[i] = Span::input(range);
    }

    /// Sets field `i` to what was written to the scratch space from `start` to its end.
    pub fn set_scratch(&mut self, i: usize, start: usize) {
        self.spans[i] = Span::scratch(start, self.scratch.len());
    }

    /// Sets field `i` to NULL.
    pub fn set_null(&mut self, i: usize) {
        self.spans[i] = Span::Null;
    }

    /// The scratch space; append unescaped bytes, having noted its length before.
    pub fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.scratch
    }
}

impl Span {
    // The casts cannot truncate: chunks and scratch are bounded by Limits::MAX_RECORD_CEILING < 2^32.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn input(range: Range<usize>) -> Span {
        debug_assert!(range.end <= u32::MAX as usize);
        Span::Input { start: range.start as u32, len: (range.end - range.start) as u32 }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn scratch(start: usize, end: usize) -> Span {
        debug_assert!(end <= u32::MAX as usize);
        Span::Scratch { start: start as u32, len: (end - start) as u32 }
    }
}

/// One decoded record: the fields and the chunk they are slices of.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The bytes of the chunk.
    pub input: &'a [u8],
    /// The fields.
    pub fields: &'a Fields,
}

impl<'a> Record<'a> {
    /// Field `i`; `None` is NULL. Panics if there is no such field: decoders check the number of fields.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        match self.fields.spans[i] {
            Span::Null => None,
            Span::Input { start, len } => Some(&self.input[start as usize..start as usize + len as usize]),
            Span::Scratch { start, len } => {
                Some(&self.fields.scratch[start as usize..start as usize + len as usize])
            }
        }
    }
}

/// Where the value of one target column comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldSource {
    /// Field of the record, from 0.
    Field(usize),
    /// The same value for every record of the input, `None` for NULL.
    Constant(Option<Vec<u8>>),
}

impl FieldSource {
    /// The value for this record.
    #[inline]
    pub fn value<'a>(&'a self, record: &Record<'a>) -> Option<&'a [u8]> {
        match self {
            FieldSource::Field(i) => record.get(*i),
            FieldSource::Constant(value) => value.as_deref(),
        }
    }
}

/// A record the decoder refuses. The fact reads as the server's COPY would say it, so that both sides'
/// rejects look alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// SQLSTATE COPY gives for the same thing (22P04 bad_copy_file_format, 22021 character_not_in_repertoire).
    pub sqlstate: &'static str,
    /// One lowercase fact.
    pub fact: String,
    /// Field of the file it is about, from 0.
    pub field: Option<usize>,
}

impl BadRecord {
    /// The file format is violated: SQLSTATE 22P04.
    pub fn format(fact: impl Into<String>) -> BadRecord {
        BadRecord { sqlstate: "22P04", fact: fact.into(), field: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_to_their_record() {
        let input = b"ab,c\"\"d,";
        let mut fields = Fields::new();
        fields.push_input(0..2);
        let start = fields.scratch().len();
        fields.scratch().extend_from_slice(b"c\"d");
        fields.push_scratch(start);
        fields.push_null();
        let record = Record { input, fields: &fields };
        assert_eq!(record.get(0), Some(&b"ab"[..]));
        assert_eq!(record.get(1), Some(&b"c\"d"[..]));
        assert_eq!(record.get(2), None);
        fields.clear();
        assert!(fields.is_empty());
    }
}
