//! The frames that the extension is tested with are those that are encoded here.

mod golden;

use inrush_core::{BaseType, FieldSource, Fields, PgType, Record, TypeKind};
use inrush_encode::frames::{BlockWriter, FrameEncoder, HEADER, LayoutColumn};
use inrush_encode::{EncodeColumn, RowEncoder, Session};

/// The types of the file that are no base types.
fn pg_type(column: &LayoutColumn) -> PgType {
    let array = |element| TypeKind::Array { element: Box::new(PgType::base(element)) };
    match (BaseType::from_oid(column.base_type), column.base_type) {
        (Some(base), _) => PgType::base(base),
        (None, 1007) => PgType { oid: 1007, name: "integer[]".into(), kind: array(BaseType::Int4) },
        (None, oid) => panic!("{}: type {oid}", column.name),
    }
}

/// Fields of a line of COPY text; of its escapes the file has `\N` and `\\`.
fn fields(row: &str) -> Fields {
    let mut fields = Fields::new();
    for field in row.split('\t') {
        if field == "\\N" {
            fields.push_null();
            continue;
        }
        let start = fields.scratch().len();
        fields.scratch().extend_from_slice(field.replace("\\\\", "\\").as_bytes());
        fields.push_scratch(start);
    }
    fields
}

#[test]
fn golden_frames() {
    let mut complaints = String::new();
    let session = Session::from_settings("UTC", "postgres", "on");
    for case in golden::cases() {
        let columns: Vec<EncodeColumn> = case
            .columns
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let column =
                    case.layout.columns.iter().find(|column| column.name == *name).expect("in the plan");
                EncodeColumn { source: FieldSource::Field(i), ty: pg_type(column), typmod: column.typmod }
            })
            .collect();
        let mut encoder = FrameEncoder::new(&case.layout, &case.columns, &columns, &session)
            .unwrap_or_else(|unsupported| panic!("{}: {unsupported}\n{}", case.name, case.table));
        let mut out = Vec::new();
        for row in &case.rows {
            encoder
                .row(&Record { input: b"", fields: &fields(row) }, &mut out)
                .unwrap_or_else(|unsure| panic!("{}: {row}: {unsure:?}", case.name));
        }
        let blocks = BlockWriter::new(&case.layout).seal(out);
        assert_eq!(blocks.len(), 1, "{}", case.name);
        if blocks[0][HEADER..] != case.payload {
            let hex: String = blocks[0][HEADER..].iter().map(|byte| format!("{byte:02x}")).collect();
            complaints += &format!("case {}\npayload {hex}\n", case.name);
            continue;
        }
        assert_eq!(case.frames().len(), case.rows.len(), "{}", case.name);
    }
    assert!(complaints.is_empty(), "not as in the file:\n{complaints}");
}
