//! COPY binary (copyfromparse.c, CopyReadBinaryHeader and NextCopyFrom): a header, rows of length-prefixed
//! values in the form the types' receive functions read, a trailer.

use crate::types::Encoder;
use crate::{EncodeColumn, RowEncoder, Session, Unsure};
use inrush_core::{FieldSource, PgType, Record};

/// What a COPY binary stream starts with: signature, no flags, no header extension.
pub const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What it ends with: a field count of -1.
pub const TRAILER: &[u8] = b"\xff\xff";

/// The length word of NULL.
const NULL: [u8; 4] = (-1i32).to_be_bytes();

/// Encodes fields of text for `COPY ... FROM STDIN (FORMAT binary)`; header and trailer are the caller's.
#[derive(Debug, Clone)]
pub struct CopyBinary {
    /// The row's first two bytes: its number of fields.
    count: [u8; 2],
    columns: Vec<Source>,
}

#[derive(Debug, Clone)]
enum Source {
    Field(usize, Encoder),
    /// Length word and value.
    Constant(Vec<u8>),
    /// A constant the encoder is unsure of, or a column without an encoder.
    Unsure,
}

impl CopyBinary {
    /// An encoder for these columns, in a session with these settings. A column whose type has no encoder
    /// (see [`CopyBinary::supports`]) makes every row [`Unsure`].
    pub fn new(columns: &[EncodeColumn], session: &Session) -> CopyBinary {
        let sources = columns
            .iter()
            .map(|column| {
                let encoder = Encoder::of(&column.ty, column.typmod, session);
                match (&column.source, encoder) {
                    (FieldSource::Field(i), Some(encoder)) => Source::Field(*i, encoder),
                    (FieldSource::Field(_), None) => Source::Unsure,
                    (FieldSource::Constant(value), encoder) => constant(value.as_deref(), encoder),
                }
            })
            .collect();
        CopyBinary { count: count(columns), columns: sources }
    }

    /// Whether values of this type can be encoded at all. If not, the table goes as COPY text.
    pub fn supports(ty: &PgType) -> bool {
        CopyBinary::supports_column(ty, -1)
    }

    /// As [`CopyBinary::supports`], for a column with this type modifier: `interval year to month` and its
    /// like have no encoder.
    pub fn supports_column(ty: &PgType, typmod: i32) -> bool {
        Encoder::of(ty, typmod, &Session::default()).is_some()
    }
}

/// Tables have at most 1600 columns (MaxHeapAttributeNumber), far from where the count would wrap.
#[allow(clippy::cast_possible_truncation)]
fn count(columns: &[EncodeColumn]) -> [u8; 2] {
    debug_assert!(columns.len() <= 1600);
    (columns.len() as u16).to_be_bytes()
}

fn constant(value: Option<&[u8]>, encoder: Option<Encoder>) -> Source {
    let mut bytes = Vec::new();
    match (value, encoder) {
        (None, _) => Source::Constant(NULL.to_vec()),
        (Some(value), Some(encoder)) if encoder.field(value, &mut bytes) => Source::Constant(bytes),
        (Some(_), _) => Source::Unsure,
    }
}

impl RowEncoder for CopyBinary {
    fn row(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Unsure> {
        let start = out.len();
        out.extend_from_slice(&self.count);
        for (column, source) in self.columns.iter().enumerate() {
            let sure = match source {
                Source::Field(number, encoder) => match record.get(*number) {
                    Some(value) => encoder.field(value, out),
                    None => {
                        out.extend_from_slice(&NULL);
                        true
                    }
                },
                Source::Constant(bytes) => {
                    out.extend_from_slice(bytes);
                    true
                }
                Source::Unsure => false,
            };
            if !sure {
                out.truncate(start);
                return Err(Unsure { column });
            }
        }
        Ok(())
    }
}

/// Writes fields that already are in binary form (inputs of format binary) as they are: the server's
/// receive functions judge them. Constants are text and are encoded once.
#[derive(Debug, Clone)]
pub struct CopyBinaryRaw {
    count: [u8; 2],
    columns: Vec<RawSource>,
}

#[derive(Debug, Clone)]
enum RawSource {
    Field(usize),
    Constant(Vec<u8>),
}

impl CopyBinaryRaw {
    /// A writer for these columns. [`Unsure`] names a constant that cannot be turned into binary form; such
    /// a load is not possible without the server's help, since text and binary fields cannot be mixed.
    pub fn new(columns: &[EncodeColumn], session: &Session) -> Result<CopyBinaryRaw, Unsure> {
        let mut sources = Vec::with_capacity(columns.len());
        for (number, column) in columns.iter().enumerate() {
            sources.push(match &column.source {
                FieldSource::Field(i) => RawSource::Field(*i),
                FieldSource::Constant(value) => {
                    let encoder = Encoder::of(&column.ty, column.typmod, session);
                    match constant(value.as_deref(), encoder) {
                        Source::Constant(bytes) => RawSource::Constant(bytes),
                        _ => return Err(Unsure { column: number }),
                    }
                }
            });
        }
        Ok(CopyBinaryRaw { count: count(columns), columns: sources })
    }
}

impl RowEncoder for CopyBinaryRaw {
    fn row(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Unsure> {
        out.extend_from_slice(&self.count);
        for source in &self.columns {
            match source {
                RawSource::Field(number) => match record.get(*number) {
                    Some(value) => crate::types::put_sized(value, out),
                    None => out.extend_from_slice(&NULL),
                },
                RawSource::Constant(bytes) => out.extend_from_slice(bytes),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_core::{BaseType, Fields, TypeKind};

    fn column(source: FieldSource, base: BaseType) -> EncodeColumn {
        EncodeColumn { source, ty: PgType::base(base), typmod: -1 }
    }

    #[test]
    fn rows_have_count_lengths_and_values() {
        let mut encoder = CopyBinary::new(
            &[
                column(FieldSource::Field(1), BaseType::Int4),
                column(FieldSource::Constant(None), BaseType::Text),
                column(FieldSource::Constant(Some(b"7".to_vec())), BaseType::Int2),
                column(FieldSource::Field(0), BaseType::Text),
            ],
            &Session::default(),
        );
        let mut fields = Fields::new();
        fields.push_input(0..2);
        fields.push_input(2..4);
        let mut out = b"before".to_vec();
        encoder.row(&Record { input: b"ab-5", fields: &fields }, &mut out).expect("sure");
        assert_eq!(
            out,
            b"before\0\x04\0\0\0\x04\xff\xff\xff\xfb\xff\xff\xff\xff\0\0\0\x02\0\x07\0\0\0\x02ab"
        );
        let before = out.clone();
        let unsure = encoder.row(&Record { input: b"abx5", fields: &fields }, &mut out);
        assert_eq!(unsure, Err(Unsure { column: 0 }));
        assert_eq!(out, before, "an unsure row leaves nothing behind");
    }

    #[test]
    fn unsupported_types_are_never_sure() {
        let point = PgType { oid: 600, name: "point".into(), kind: TypeKind::Other };
        assert!(!CopyBinary::supports(&point));
        let columns = [EncodeColumn { source: FieldSource::Field(0), ty: point, typmod: -1 }];
        let mut fields = Fields::new();
        fields.push_null();
        let mut out = Vec::new();
        let record = Record { input: b"", fields: &fields };
        assert!(CopyBinary::new(&columns, &Session::default()).row(&record, &mut out).is_err());
        for base in BaseType::ALL {
            assert!(CopyBinary::supports(&PgType::base(*base)), "{base:?}");
        }
    }

    #[test]
    fn raw_fields_pass_through() {
        let columns = [
            column(FieldSource::Field(0), BaseType::Int4),
            column(FieldSource::Field(1), BaseType::Int4),
            column(FieldSource::Constant(Some(b"1".to_vec())), BaseType::Int2),
        ];
        let mut raw = CopyBinaryRaw::new(&columns, &Session::default()).expect("the constant is plain");
        let mut fields = Fields::new();
        fields.push_input(0..3);
        fields.push_null();
        let mut out = Vec::new();
        raw.row(&Record { input: b"\0\x01\xff", fields: &fields }, &mut out).expect("raw is always sure");
        assert_eq!(out, b"\0\x03\0\0\0\x03\0\x01\xff\xff\xff\xff\xff\0\0\0\x02\0\x01");

        let odd = [column(FieldSource::Constant(Some(b"today".to_vec())), BaseType::Date)];
        assert_eq!(CopyBinaryRaw::new(&odd, &Session::default()).err(), Some(Unsure { column: 0 }));
    }
}
