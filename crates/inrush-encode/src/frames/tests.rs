//! What an encoder of frames refuses, and what it leaves behind; the bytes are in the golden frames.

use super::{BlockWriter, FrameEncoder, FrameLayout, HEADER, frames};
use crate::{EncodeColumn, RowEncoder, Session, Unsure};
use inrush_core::{BaseType, FieldSource, Fields, PgType, Record, TypeKind};
use proptest::prelude::*;

const MOOD: u32 = 70_000;

fn described(name: &str, class: &str, ty: u32, typmod: i32, length: i32, align: u32) -> String {
    let (sent, kind) = (class != "dropped", if ty == MOOD { "e" } else { "b" });
    format!(
        r#"{{"name": "{name}", "class": "{class}", "sent": {sent}, "type": {ty}, "base_type": {ty}, "typmod": {typmod},
        "length": {length}, "align": {align}, "storage": "x", "not_null": false, "kind": "{kind}"}}"#
    )
}

fn layout(columns: &[String]) -> FrameLayout {
    let plan = format!(
        r#"{{"version": 1, "refusal": null, "fingerprint": "00000000000000ff", "encoding": "UTF8",
        "block_size": 8192, "max_align": 8, "toast_threshold": 2032, "columns": [{}]}}"#,
        columns.join(", ")
    );
    FrameLayout::parse(&plan).expect("a plan")
}

fn column(i: usize, ty: PgType, typmod: i32) -> EncodeColumn {
    EncodeColumn { source: FieldSource::Field(i), ty, typmod }
}

fn text(i: usize) -> EncodeColumn {
    column(i, PgType::base(BaseType::Text), -1)
}

fn mood(i: usize) -> EncodeColumn {
    column(i, PgType { oid: MOOD, name: "mood".into(), kind: TypeKind::Enum }, -1)
}

fn row(encoder: &mut FrameEncoder, values: &[&str], out: &mut Vec<u8>) -> Result<(), Unsure> {
    let mut fields = Fields::new();
    for value in values {
        let start = fields.scratch().len();
        fields.scratch().extend_from_slice(value.as_bytes());
        fields.push_scratch(start);
    }
    encoder.row(&Record { input: b"", fields: &fields }, out)
}

#[test]
fn an_unsure_row_leaves_nothing() {
    let layout = layout(&[described("t", "native", 25, -1, -1, 4), described("i", "native", 23, -1, 4, 4)]);
    // The list of columns is in another order than the table.
    let columns = [column(0, PgType::base(BaseType::Int4), -1), text(1)];
    let mut encoder =
        FrameEncoder::new(&layout, &["i", "t"], &columns, &Session::default()).expect("encoded");
    let mut out = Vec::new();
    assert_eq!(row(&mut encoder, &["one", "a"], &mut out), Err(Unsure { column: 0 }));
    assert!(out.is_empty(), "not even room for a header");
    for number in ["1", "2"] {
        row(&mut encoder, &[number, "abcde"], &mut out).expect("sure");
        let before = out.clone();
        assert_eq!(row(&mut encoder, &["x", "abc"], &mut out), Err(Unsure { column: 0 }));
        assert_eq!(out, before);
    }
    row(&mut encoder, &["3", "ab"], &mut out).expect("sure");
    assert_eq!(frames(&out).collect::<Vec<_>>(), [64..84, 84..104, 104..120]);
    let sealed = BlockWriter::new(&layout).seal(out);
    assert_eq!(sealed[0][8], 0xff, "the fingerprint");
    assert_eq!(sealed[0][HEADER..][..16], *b"\x0d\0\x02\0\x02\x08\x18\0\x0dabcde\0\0");
}

#[test]
fn labels_are_numbers() {
    let mut layout = layout(&[described("m", "native", MOOD, -1, 4, 4)]);
    assert_eq!(layout.enums(), [MOOD]);
    let unsure = Err(Unsure { column: 0 });
    let new = |layout: &FrameLayout| FrameEncoder::new(layout, &["m"], &[mood(0)], &Session::default());
    assert_eq!(row(&mut new(&layout).expect("encoded"), &["ok"], &mut Vec::new()), unsure);
    layout.set_labels(MOOD, [("sad", 16_400), ("ok", 16_402)]);
    let mut encoder = new(&layout).expect("encoded");
    let mut out = Vec::new();
    row(&mut encoder, &["ok"], &mut out).expect("a label");
    assert_eq!(out[HEADER + 8..], 16_402u32.to_le_bytes());
    assert_eq!(row(&mut encoder, &["new"], &mut out), unsure);
}

#[test]
fn constants_are_sure_or_not() {
    let layout = layout(&[described("t", "native", 25, -1, -1, 4), described("d", "native", 1082, -1, 4, 4)]);
    let constant = |value: Option<&str>| EncodeColumn {
        source: FieldSource::Constant(value.map(|value| value.as_bytes().to_vec())),
        ty: PgType::base(BaseType::Date),
        typmod: -1,
    };
    for (value, expected) in [
        (Some("2000-01-02"), Ok(&b"\x11\0\x02\0\x02\x08\x18\0\x05x\0\0\x01\0\0\0"[..])),
        (None, Ok(b"\x03\0\x02\0\x03\x08\x18\x01\x05x")),
        (Some("today"), Err(Unsure { column: 1 })),
    ] {
        let columns = [text(0), constant(value)];
        let mut encoder =
            FrameEncoder::new(&layout, &["t", "d"], &columns, &Session::default()).expect("encoded");
        let mut out = Vec::new();
        let outcome = row(&mut encoder, &["x"], &mut out);
        match expected {
            Ok(frame) => {
                let length = u16::try_from(frame.len() - 7).expect("short").to_le_bytes();
                assert_eq!(outcome, Ok(()));
                assert_eq!(out[HEADER..], [&length[..], &frame[2..]].concat());
            }
            Err(unsure) => assert_eq!(outcome, Err(unsure)),
        }
    }
}

#[test]
fn columns_that_cannot_go_are_named() {
    let point = || PgType { oid: 600, name: "point".into(), kind: TypeKind::Other };
    let t = || described("t", "native", 25, -1, -1, 4);
    let refused = |columns: &[String], names: &[&str], encode: &[EncodeColumn]| {
        FrameEncoder::new(&layout(columns), names, encode, &Session::default())
            .err()
            .map(|unsupported| unsupported.to_string())
            .unwrap_or_default()
    };
    let p = described("p", "native", 600, -1, 16, 8);
    assert_eq!(
        refused(&[t(), p], &["p", "t"], &[column(0, point(), -1), text(1)]),
        "column \"p\": its type point is not encoded here"
    );
    let r = described("p", "receive", 600, -1, -1, 4);
    assert_eq!(
        refused(&[r], &["p"], &[column(0, point(), -1)]),
        "column \"p\": its type point is not encoded here"
    );
    let x = described("t", "refuse", 25, -1, -1, 4);
    assert_eq!(refused(&[x], &["t"], &[text(0)]), "column \"t\": the server does not take its type text");
    assert_eq!(refused(&[t()], &["u"], &[text(0)]), "column \"t\": it is not among those of the load");
    assert_eq!(
        refused(&[t()], &["t", "u"], &[text(0), text(1)]),
        "column \"u\": the server's plan does not have it"
    );
    assert_eq!(
        refused(&[t()], &["t"], &[column(0, PgType::base(BaseType::Int4), -1)]),
        "column \"t\": its type is integer no longer"
    );
    let odd = described("t", "native", 25, -1, 8, 8);
    assert_eq!(
        refused(&[odd], &["t"], &[text(0)]),
        "column \"t\": its type text has another stored form than is known here"
    );
    assert_eq!(refused(&[t()], &["t"], &[text(0)]), "");
}

proptest! {
    #[test]
    fn any_value_gives_a_frame_or_nothing(
        base in prop::sample::select(BaseType::ALL),
        typmod in prop::sample::select(&[-1, 0, 3, 4, 7, 6 << 16 | 6, (4 << 16 | 0x7fe) + 4, 3 << 16 | 9]),
        value in "[-+0-9.e]{0,12}|[0-9]{4}-0[1-9]-1[0-9]( 1[0-9]:00:59(\\.[0-9]{1,7})?)?|\\PC{0,9} {0,5}|[a-f0-9]{6,200}",
        before in 0usize..3,
    ) {
        let length = match base {
            BaseType::Name => 64,
            BaseType::Bool => 1,
            BaseType::Int2 => 2,
            BaseType::Int4 | BaseType::Oid | BaseType::Float4 | BaseType::Date => 4,
            BaseType::Interval | BaseType::Uuid => 16,
            BaseType::Timetz => 12,
            BaseType::Macaddr => 6,
            BaseType::Text | BaseType::Varchar | BaseType::Bpchar | BaseType::Bytea | BaseType::Numeric => -1,
            _ => 8,
        };
        let received = matches!(base, BaseType::Json | BaseType::Jsonb | BaseType::Inet | BaseType::Cidr)
            || base == BaseType::Interval && typmod != -1;
        let (class, length) = if received { ("receive", -1) } else { ("native", length) };
        let layout = layout(&[
            described("t", "native", 25, -1, -1, 4),
            described("v", class, base.oid(), typmod, length, 4),
        ]);
        let columns = [text(0), column(1, PgType::base(base), typmod)];
        let session = Session::from_settings("UTC", "postgres", "on");
        let Ok(mut encoder) = FrameEncoder::new(&layout, &["t", "v"], &columns, &session) else {
            // Restricted intervals have no encoder.
            prop_assert_eq!(base, BaseType::Interval);
            return Ok(());
        };
        let mut out = Vec::new();
        for _ in 0..before {
            let mut fields = Fields::new();
            fields.push_input(0..1);
            fields.push_null();
            encoder.row(&Record { input: b"x", fields: &fields }, &mut out).expect("sure");
        }
        let kept = out.clone();
        if row(&mut encoder, &["x", &value], &mut out).is_ok() {
            prop_assert_eq!(frames(&out).count(), before + 1);
            prop_assert_eq!(frames(&out).last().map(|frame| frame.end), Some(out.len()));
        } else {
            prop_assert_eq!(out, kept);
        }
    }
}
