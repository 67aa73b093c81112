//! The text of a value is the judge of its binary and its stored form, where the encoders of text are sure.

use super::{ColumnarEncoder, ColumnarFrames};
use crate::copy_binary::CopyBinary;
use crate::frames::{FrameEncoder, FrameLayout};
use crate::{EncodeColumn, RowEncoder, Session};
use arrow_array::types::{Int32Type, IntervalMonthDayNano};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray, RecordBatch,
    StringArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray, UInt64Array,
};
use inrush_core::{BaseType, FieldSource, Fields, PgType, Record, TypeKind};
use std::sync::Arc;

fn decimals(values: Vec<Option<i128>>, precision: u8, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(values).with_precision_and_scale(precision, scale);
    Arc::new(array.expect("a decimal"))
}

fn arrays() -> Vec<ArrayRef> {
    let days = vec![Some(0), Some(-1), None, Some(19_782), Some(10_957), Some(i32::MAX)];
    let micros = vec![Some(0), Some(-1), None, Some(1_709_171_999_999_500), Some(946_684_799_999_501)];
    let nanos: Vec<_> = micros.iter().map(|m| m.map(|m: i64| m * 1000 + (m & 1) * 500)).collect();
    let all = 10i128.pow(37);
    let span = |months, days, nanoseconds| IntervalMonthDayNano { months, days, nanoseconds };
    vec![
        Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
        Arc::new(Int16Array::from(vec![Some(1), Some(-1), None, Some(i16::MIN)])),
        Arc::new(Int32Array::from(vec![Some(0), Some(12_345), None, Some(i32::MIN), Some(10_000)])),
        Arc::new(Int64Array::from(vec![Some(0), Some(1 << 53), None, Some(i64::MIN), Some(100_000_000)])),
        Arc::new(UInt64Array::from(vec![Some(0), Some(u64::MAX), None])),
        Arc::new(Float32Array::from(vec![Some(1.5), Some(0.1), None, Some(f32::NAN), Some(f32::INFINITY)])),
        Arc::new(Float64Array::from(vec![Some(-1.5), Some(0.1), None, Some(f64::NAN), Some(1e300)])),
        decimals(vec![Some(0), Some(12_345), None, Some(-5), Some(-100_000)], 10, 3),
        decimals(vec![Some(all - 1), Some(1 - all), None, Some(all / 1000), Some(7)], 38, 5),
        decimals(vec![Some(15), None], 10, -2),
        Arc::new(Date32Array::from(days)),
        Arc::new(TimestampMicrosecondArray::from(micros.clone())),
        Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("UTC")),
        Arc::new(TimestampNanosecondArray::from(nanos).with_timezone("UTC")),
        Arc::new(Time64MicrosecondArray::from(vec![
            Some(0),
            Some(86_399_999_999),
            None,
            Some(86_400_000_000),
        ])),
        Arc::new(IntervalMonthDayNanoArray::from(vec![Some(span(14, 3, 4_000)), None, Some(span(0, 0, 1))])),
        Arc::new(StringArray::from(vec![
            Some(""),
            Some("ab   "),
            None,
            Some("äöüßä  "),
            Some("true"),
            Some("7"),
        ])),
        Arc::new(StringArray::from(vec!["x".repeat(126), "y".repeat(127), "z".repeat(70_000)])),
        Arc::new(BinaryArray::from(vec![Some(&b""[..]), Some(b"\x00\xff"), None, Some(&[7; 127])])),
        Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some([1u8; 16]), None].into_iter(), 16)
                .expect("sixteen bytes"),
        ),
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ])),
    ]
}

fn plan_of(ty: &PgType, typmod: i32) -> Option<FrameLayout> {
    let (class, length, align) = match &ty.kind {
        TypeKind::Base(base) => match base {
            BaseType::Bool => ("native", 1, 1),
            BaseType::Int2 => ("native", 2, 2),
            BaseType::Int4 | BaseType::Oid | BaseType::Float4 | BaseType::Date => ("native", 4, 4),
            BaseType::Int8 | BaseType::Float8 | BaseType::Time => ("native", 8, 8),
            BaseType::Timestamp | BaseType::Timestamptz | BaseType::Macaddr8 => ("native", 8, 8),
            BaseType::Timetz => ("native", 12, 8),
            BaseType::Interval => ("native", 16, 8),
            BaseType::Uuid => ("native", 16, 1),
            BaseType::Macaddr => ("native", 6, 4),
            BaseType::Name => ("native", 64, 1),
            BaseType::Json | BaseType::Jsonb | BaseType::Inet | BaseType::Cidr => ("receive", -1, 4),
            _ => ("native", -1, 4),
        },
        _ => ("receive", -1, 4),
    };
    let plan = format!(
        r#"{{"version": 1, "refusal": null, "fingerprint": "0000000000000000", "encoding": "UTF8",
        "block_size": 8192, "max_align": 8, "toast_threshold": 2032, "columns": [
        {{"name": "b", "class": "native", "sent": true, "type": 16, "base_type": 16, "typmod": -1, "length": 1,
          "align": 1, "storage": "p", "not_null": false, "kind": "b"}},
        {{"name": "v", "class": "{class}", "sent": true, "type": {oid}, "base_type": {oid}, "typmod": {typmod},
          "length": {length}, "align": {align}, "storage": "x", "not_null": false, "kind": "b"}}]}}"#,
        oid = ty.oid
    );
    FrameLayout::parse(&plan).ok()
}

/// Types with their modifiers.
fn types() -> Vec<(PgType, i32)> {
    let numeric = |precision: i32, scale: i32| (precision << 16 | scale & 0x7ff) + 4;
    let base = |base| move |typmod| (PgType::base(base), typmod);
    let mut types: Vec<_> = BaseType::ALL.iter().map(|base| (PgType::base(*base), -1)).collect();
    types.extend([numeric(6, 2), numeric(38, 5), numeric(4, -2), numeric(3, 5)].map(base(BaseType::Numeric)));
    types.extend([base(BaseType::Varchar)(8), base(BaseType::Bpchar)(8), base(BaseType::Time)(2)]);
    types.extend([base(BaseType::Timestamp)(3), base(BaseType::Timestamptz)(0)]);
    let element = Box::new(PgType::base(BaseType::Int4));
    types.push((PgType { oid: 1007, name: "integer[]".into(), kind: TypeKind::Array { element } }, -1));
    types
}

/// A field of COPY text without its escapes. The values here have none but that of the backslash.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in field {
        if !(*byte == b'\\' && out.last() == Some(&b'\\')) {
            out.push(*byte);
        }
    }
    out
}

#[test]
fn values_are_as_their_text() {
    let session = Session::from_settings("UTC", "postgres", "on");
    let mut compared = 0;
    for array in arrays() {
        let what = format!("{}", array.data_type());
        let batch = RecordBatch::try_from_iter([("v", array)]).expect("a batch");
        for (ty, typmod) in types() {
            let column = |source| EncodeColumn { source, ty: ty.clone(), typmod };
            let truth = EncodeColumn {
                source: FieldSource::Constant(Some(b"t".to_vec())),
                ty: PgType::base(BaseType::Bool),
                typmod: -1,
            };
            let columns = [truth, column(FieldSource::Field(0))];
            let layout = plan_of(&ty, typmod).expect("a plan");
            let mut rows = ColumnarEncoder::new(&columns, &batch.schema(), &session).expect("supported");
            rows.begin(&batch).expect("the batch fits");
            let mut frames = ColumnarFrames::new(&layout, &["b", "v"], &columns, &session).expect("encoded");
            let mut of_text = FrameEncoder::new(&layout, &["b", "v"], &columns, &session).expect("encoded");
            let mut binary_of_text = CopyBinary::new(&columns, &session);
            for i in 0..batch.num_rows() {
                let mut line = Vec::new();
                rows.row_text(i, &mut line);
                let mut fields = Fields::new();
                match line.strip_prefix(b"t\t").and_then(|line| line.strip_suffix(b"\n")).expect("two fields")
                {
                    b"\\N" => fields.push_null(),
                    field => {
                        fields.scratch().extend(unescaped(field));
                        fields.push_scratch(0);
                    }
                }
                let record = Record { input: b"", fields: &fields };
                let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                let context = || format!("{what} to {} {typmod}: {shown}", ty.name);
                let (mut expected, mut out) = (vec![9], vec![9]);
                if of_text.row(&record, &mut expected).is_ok() && frames.row(&rows, i, &mut out).is_ok() {
                    assert_eq!(out, expected, "{}", context());
                    compared += 1;
                }
                let (mut expected, mut out) = (Vec::new(), Vec::new());
                if binary_of_text.row(&record, &mut expected).is_ok() && rows.row(i, &mut out).is_ok() {
                    assert_eq!(out, expected, "{}", context());
                }
            }
        }
    }
    assert!(compared > 500, "{compared} values");
}
