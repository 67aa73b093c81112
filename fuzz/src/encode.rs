//! Fields of any bytes, encoded as every type.

use crate::choices::Choices;
use inrush_core::{BaseType, FieldSource, Fields, PgType, Record, TypeKind};
use inrush_encode::copy_binary::CopyBinary;
use inrush_encode::copy_text::CopyText;
use inrush_encode::{EncodeColumn, IntervalStyle, RowEncoder, Session};

/// First bytes: type, its modifier, what it is made of (an array, a domain, an enum), settings of the
/// session. The rest is the value.
pub fn types(input: &[u8]) {
    let mut choices = Choices::of(input);
    let base = choices.pick(BaseType::ALL);
    let typmod = choices.pick(&[-1, 0, 3, 6, 20, 0x7fff_0003, 0x0004_ffff, (10 << 16 | 2) + 4]);
    let shape = choices.byte();
    let bits = choices.byte();
    let value = choices.rest();
    let ty = match shape % 5 {
        0 => PgType::base(base),
        1 => array_of(PgType::base(base)),
        2 => domain_of(PgType::base(base), typmod),
        3 => array_of(domain_of(PgType::base(base), typmod)),
        _ => PgType { oid: 70_000, name: "mood".into(), kind: TypeKind::Enum },
    };
    let session = Session {
        timezone_is_utc: bits & 1 != 0,
        interval_style: if bits & 2 != 0 { IntervalStyle::SignPerField } else { IntervalStyle::SqlStandard },
        array_nulls: bits & 4 != 0,
    };
    let column = |source| EncodeColumn { source, ty: ty.clone(), typmod };
    let columns = [
        column(FieldSource::Field(1)),
        column(FieldSource::Field(0)),
        column(FieldSource::Constant(Some(value.to_vec()))),
    ];
    let mut fields = Fields::new();
    fields.push_input(0..value.len());
    fields.push_null();
    let record = Record { input: value, fields: &fields };
    binary(&columns, &session, &record, value);
    text(&columns, &record, value);
}

fn array_of(element: PgType) -> PgType {
    PgType { oid: 70_001, name: "array".into(), kind: TypeKind::Array { element: Box::new(element) } }
}

fn domain_of(base: PgType, typmod: i32) -> PgType {
    PgType { oid: 70_002, name: "domain".into(), kind: TypeKind::Domain { base: Box::new(base), typmod } }
}

fn binary(columns: &[EncodeColumn; 3], session: &Session, record: &Record<'_>, value: &[u8]) {
    let mut out = b"before".to_vec();
    let outcome = CopyBinary::new(columns, session).row(record, &mut out);
    let ty = &columns[0].ty;
    let Some(tuple) = out.strip_prefix(b"before") else { panic!("what was there is gone") };
    match outcome {
        Err(unsure) => {
            assert!(tuple.is_empty(), "an unsure row leaves {} bytes", tuple.len());
            let supported = CopyBinary::supports_column(ty, columns[0].typmod);
            assert!(unsure.column == 1 || unsure.column == 0 && !supported);
        }
        Ok(()) => {
            let mut tuple = Bytes(tuple);
            assert_eq!((tuple.word16(), tuple.field()), (3, None));
            let first = tuple.field().expect("not NULL");
            // The constant goes the same way, once.
            assert_eq!(tuple.field(), Some(first));
            assert!(tuple.0.is_empty());
            well_formed(ty, first, value);
        }
    }
}

/// Bytes in network order.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        taken
    }

    fn word16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }

    fn word32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn word64(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn field(&mut self) -> Option<&'a [u8]> {
        let len = self.word32();
        if len == -1 { None } else { Some(self.take(usize::try_from(len).expect("a length"))) }
    }
}

/// Demands what the type's receive function does, and that the value is the one that was meant where a plain
/// reading of it is at hand.
fn well_formed(ty: &PgType, sent: &[u8], value: &[u8]) {
    let (ty, _) = ty.under_domains(-1);
    let mut bytes = Bytes(sent);
    let number = || std::str::from_utf8(value).expect("digits").trim_matches(is_space);
    match &ty.kind {
        TypeKind::Array { element } => array(element, bytes, value),
        TypeKind::Enum => assert_eq!(sent, value),
        TypeKind::Base(base) => match base {
            BaseType::Text | BaseType::Varchar | BaseType::Bpchar | BaseType::Json => assert_eq!(sent, value),
            BaseType::Name => assert!(sent == value && sent.len() < 64),
            BaseType::Jsonb => assert!(sent[0] == 1 && sent[1..] == *value),
            BaseType::Int2 => assert_eq!(Ok(i16::from_be_bytes(fixed(sent))), number().parse()),
            BaseType::Int4 => assert_eq!(Ok(i32::from_be_bytes(fixed(sent))), number().parse()),
            BaseType::Int8 => assert_eq!(Ok(i64::from_be_bytes(fixed(sent))), number().parse()),
            BaseType::Oid => assert_eq!(Ok(u32::from_be_bytes(fixed(sent))), number().parse()),
            BaseType::Bool => assert!(matches!(sent, [0] | [1])),
            BaseType::Float4 => {
                let sent = f32::from_be_bytes(fixed(sent));
                let meant: f32 = number().parse().expect("a number");
                assert!(sent.to_bits() == meant.to_bits() || sent.is_nan() && meant.is_nan());
            }
            BaseType::Float8 => {
                let sent = f64::from_be_bytes(fixed(sent));
                let meant: f64 = number().parse().expect("a number");
                assert!(sent.to_bits() == meant.to_bits() || sent.is_nan() && meant.is_nan());
            }
            BaseType::Numeric => numeric(bytes, number()),
            BaseType::Uuid => {
                let digits: String = sent.iter().map(|b| format!("{b:02x}")).collect();
                assert_eq!(digits, hex_digits(value));
                assert_eq!(sent.len(), 16);
            }
            BaseType::Macaddr => assert_eq!(sent.len(), 6),
            BaseType::Macaddr8 => assert_eq!(sent.len(), 8),
            BaseType::Bytea => assert!(sent.len() <= value.len()),
            BaseType::Inet | BaseType::Cidr => {
                let (family, bits) = (sent[0], usize::from(sent[1]));
                let len = if family == 2 { 4 } else { 16 };
                assert!(matches!(family, 2 | 3) && usize::from(sent[3]) == len && sent.len() == 4 + len);
                assert!(bits <= len * 8);
                assert_eq!(sent[2], u8::from(*base == BaseType::Cidr));
                let set = |i: usize| sent[4 + i / 8] >> (7 - i % 8) & 1 == 1;
                // cidr_in refuses bits to the right of the mask.
                assert!(*base == BaseType::Inet || !(bits..len * 8).any(set));
            }
            // The days and microseconds between the first and the last that the server stores (timestamp.h);
            // the outermost values are the infinities.
            BaseType::Date => {
                let days = i32::from_be_bytes(fixed(sent));
                assert!((-2_451_545..2_145_031_949).contains(&days) || matches!(days, i32::MIN | i32::MAX));
            }
            BaseType::Timestamp | BaseType::Timestamptz => {
                let t = i64::from_be_bytes(fixed(sent));
                let finite = -211_813_488_000_000_000..9_223_371_331_200_000_000;
                assert!(finite.contains(&t) || matches!(t, i64::MIN | i64::MAX));
            }
            BaseType::Time => assert!((0..=86_400_000_000).contains(&i64::from_be_bytes(fixed(sent)))),
            BaseType::Timetz => {
                assert!((0..=86_400_000_000).contains(&bytes.word64()));
                // timetz_recv: no more than 15:59:59 from UTC.
                assert!(bytes.word32().abs() < 16 * 3600 && bytes.0.is_empty());
            }
            BaseType::Interval => assert_eq!(sent.len(), 16),
        },
        TypeKind::Domain { .. } | TypeKind::Other => panic!("a type without an encoder was encoded"),
    }
}

fn fixed<const N: usize>(sent: &[u8]) -> [u8; N] {
    sent.try_into().expect("a value of the type's size")
}

/// As isspace() in the C locale.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

fn hex_digits(value: &[u8]) -> String {
    value.iter().filter(|b| b.is_ascii_hexdigit()).map(|b| char::from(b.to_ascii_lowercase())).collect()
}

/// numeric_recv: number of digits to the base 10000, weight, sign, digits after the point, digits.
fn numeric(mut bytes: Bytes<'_>, text: &str) {
    let (count, weight, sign, scale) =
        (bytes.word16(), bytes.word16(), bytes.word16() as u16, bytes.word16());
    assert!(matches!(sign, 0 | 0x4000 | 0xc000 | 0xd000 | 0xf000));
    assert!((0..=0x3fff).contains(&scale));
    let digits: Vec<i16> = (0..count).map(|_| bytes.word16()).collect();
    assert!(bytes.0.is_empty() && digits.iter().all(|d| (0..10_000).contains(d)));
    if sign >= 0xc000 || text.len() > 300 || text.contains(['e', 'E']) {
        return;
    }
    // Written out again, with all zeros but those that count taken off on both sides.
    let digit_at = |i: i32| digits.get(usize::try_from(i).unwrap_or(usize::MAX)).copied().unwrap_or(0);
    let whole: String = (0..=i32::from(weight).max(0))
        .map(|i| format!("{:04}", digit_at(i + i32::from(weight) - i32::from(weight).max(0))))
        .collect();
    let after: String = (1..=i32::from(scale).div_euclid(4) + 1)
        .map(|i| format!("{:04}", digit_at(i + i32::from(weight))))
        .collect();
    let written = format!("{}.{}", whole.trim_start_matches('0'), &after[..usize::from(scale as u16)]);
    let (meant_sign, meant) = match text.as_bytes()[0] {
        b'-' => (0x4000, &text[1..]),
        b'+' => (0, &text[1..]),
        _ => (0, text),
    };
    let (meant_whole, meant_after) = meant.split_once('.').unwrap_or((meant, ""));
    assert_eq!(written, format!("{}.{meant_after}", meant_whole.trim_start_matches('0')), "{text}");
    // There is no negative zero.
    assert!(sign == meant_sign || digits.is_empty() || digits.iter().all(|d| *d == 0));
}

/// array_recv: dimensions, whether there are NULLs, the elements' type, lengths and lower bounds, elements.
fn array(element: &PgType, mut bytes: Bytes<'_>, value: &[u8]) {
    let (dimensions, flags, oid) = (bytes.word32(), bytes.word32(), bytes.word32());
    assert!((0..=6).contains(&dimensions) && matches!(flags, 0 | 1));
    assert_eq!(oid as u32, element.oid);
    let mut count = i32::from(dimensions > 0);
    for _ in 0..dimensions {
        let (length, lower) = (bytes.word32(), bytes.word32());
        assert!(length > 0 && lower == 1);
        count = count.checked_mul(length).expect("no more elements than bytes");
    }
    assert!(usize::try_from(count).is_ok_and(|count| count <= value.len()));
    let mut nulls = false;
    for _ in 0..count {
        match bytes.field() {
            None => nulls = true,
            Some(field) => element_fits(element, field),
        }
    }
    assert!(bytes.0.is_empty());
    assert_eq!(flags == 1, nulls);
}

/// The sizes of elements; which bytes of the literal one was read from is not known here.
fn element_fits(element: &PgType, field: &[u8]) {
    let (ty, _) = element.under_domains(-1);
    let TypeKind::Base(base) = &ty.kind else { return };
    let size = match base {
        BaseType::Bool => 1,
        BaseType::Int2 => 2,
        BaseType::Int4 | BaseType::Oid | BaseType::Float4 | BaseType::Date => 4,
        BaseType::Macaddr => 6,
        BaseType::Int8
        | BaseType::Float8
        | BaseType::Time
        | BaseType::Timestamp
        | BaseType::Timestamptz
        | BaseType::Macaddr8 => 8,
        BaseType::Timetz => 12,
        BaseType::Interval | BaseType::Uuid => 16,
        _ => return,
    };
    assert_eq!(field.len(), size);
}

/// COPY text: what comes out is one line, and read back it is what went in.
fn text(columns: &[EncodeColumn; 3], record: &Record<'_>, value: &[u8]) {
    let mut out = b"before".to_vec();
    CopyText::new(columns).row(record, &mut out).expect("text is always sure");
    let line = out.strip_prefix(b"before").and_then(|line| line.strip_suffix(b"\n")).expect("a line");
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    let fields: Vec<&[u8]> = line.split(|b| *b == b'\t').collect();
    assert_eq!((fields.len(), fields[0]), (3, &b"\\N"[..]));
    assert!(fields[1] == fields[2] && fields[1] != b"\\N");
    let mut read = Vec::new();
    let mut rest = fields[1].iter();
    while let Some(&byte) = rest.next() {
        read.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            (_, true) => match rest.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'\\') => b'\\',
                other => panic!("an escape that means something else: {other:?}"),
            },
        });
    }
    assert_eq!(read, value);
}
