//! COPY text (copyfromparse.c, CopyReadAttributesText): fields separated by tabs, rows ended by a newline,
//! `\N` for NULL, a backslash before what would be misread.

use crate::{EncodeColumn, RowEncoder, Unsure};
use inrush_core::{FieldSource, Record};

/// Encodes rows for `COPY ... FROM STDIN` in its default (text) format. Never [`Unsure`].
#[derive(Debug, Clone)]
pub struct CopyText {
    columns: Vec<Source>,
}

/// Where a field comes from; constants are escaped once.
#[derive(Debug, Clone)]
enum Source {
    Field(usize),
    Constant(Vec<u8>),
}

impl CopyText {
    /// An encoder for these columns.
    pub fn new(columns: &[EncodeColumn]) -> CopyText {
        let columns = columns
            .iter()
            .map(|column| match &column.source {
                FieldSource::Field(i) => Source::Field(*i),
                FieldSource::Constant(value) => {
                    let mut escaped = Vec::new();
                    field(value.as_deref(), &mut escaped);
                    Source::Constant(escaped)
                }
            })
            .collect();
        CopyText { columns }
    }
}

impl RowEncoder for CopyText {
    fn row(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Unsure> {
        for (i, source) in self.columns.iter().enumerate() {
            if i > 0 {
                out.push(b'\t');
            }
            match source {
                Source::Field(number) => field(record.get(*number), out),
                Source::Constant(escaped) => out.extend_from_slice(escaped),
            }
        }
        out.push(b'\n');
        Ok(())
    }
}

#[inline]
pub(crate) fn field(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None => out.extend_from_slice(b"\\N"),
        Some(value) if !any_special(value) => out.extend_from_slice(value),
        Some(value) => escape(value, out),
    }
}

#[inline]
fn is_special(byte: u8) -> bool {
    // `|` and not `||` or `matches!`: a branch would keep the loop below from becoming vector compares.
    (byte == b'\\') | (byte == b'\n') | (byte == b'\r') | (byte == b'\t')
}

/// Whether any byte needs a backslash. Whole blocks without an early exit inside become vector compares;
/// the last block overlaps the one before instead of being taken byte by byte.
#[inline]
fn any_special(value: &[u8]) -> bool {
    let block = |block: &[u8; 16]| block.iter().fold(0, |any, byte| any | u8::from(is_special(*byte))) != 0;
    match value.last_chunk::<16>() {
        Some(last) => value.as_chunks::<16>().0.iter().any(block) || block(last),
        None => {
            let mut padded = [0; 16];
            padded[..value.len()].copy_from_slice(value);
            block(&padded)
        }
    }
}

#[cold]
fn escape(value: &[u8], out: &mut Vec<u8>) {
    let mut rest = value;
    while let Some(at) = rest.iter().position(|byte| is_special(*byte)) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            _ => b"\\\\",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_core::{BaseType, Fields, PgType};

    fn columns(sources: Vec<FieldSource>) -> Vec<EncodeColumn> {
        sources
            .into_iter()
            .map(|source| EncodeColumn { source, ty: PgType::base(BaseType::Text), typmod: -1 })
            .collect()
    }

    fn line(values: &[Option<&str>]) -> String {
        let mut fields = Fields::new();
        for value in values {
            match value {
                None => fields.push_null(),
                Some(value) => {
                    let start = fields.scratch().len();
                    fields.scratch().extend_from_slice(value.as_bytes());
                    fields.push_scratch(start);
                }
            }
        }
        let record = Record { input: b"", fields: &fields };
        let mut out = Vec::new();
        let mut encoder = CopyText::new(&columns((0..values.len()).map(FieldSource::Field).collect()));
        encoder.row(&record, &mut out).expect("text is always sure");
        String::from_utf8(out).expect("input was UTF-8")
    }

    #[test]
    fn escapes_what_would_be_misread() {
        assert_eq!(line(&[Some("a"), None, Some("")]), "a\t\\N\t\n");
        assert_eq!(line(&[Some("\\.")]), "\\\\.\n");
        assert_eq!(line(&[Some("\\N"), Some("a\tb\nc\rd\\")]), "\\\\N\ta\\tb\\nc\\rd\\\\\n");
        assert_eq!(line(&[]), "\n");
        let long = "x".repeat(40);
        assert_eq!(line(&[Some(&format!("{long}\n"))]), format!("{long}\\n\n"));
        assert_eq!(line(&[Some(&format!("\t{long}"))]), format!("\\t{long}\n"));
    }

    #[test]
    fn constants_are_escaped_once() {
        let sources = vec![
            FieldSource::Constant(Some(b"a\tb".to_vec())),
            FieldSource::Constant(None),
            FieldSource::Field(0),
        ];
        let mut encoder = CopyText::new(&columns(sources));
        let mut fields = Fields::new();
        fields.push_input(0..1);
        let mut out = Vec::new();
        for _ in 0..2 {
            encoder.row(&Record { input: b"z", fields: &fields }, &mut out).expect("text is always sure");
        }
        assert_eq!(out, b"a\\tb\t\\N\tz\na\\tb\t\\N\tz\n");
    }
}
