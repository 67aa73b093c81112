//! Speed of the encoders on one core, in bytes of fields per second:
//! `cargo run --release -p inrush-encode --example encode_speed`.

use inrush_core::{BaseType, FieldSource, Fields, PgType, Record};
use inrush_encode::copy_binary::CopyBinary;
use inrush_encode::copy_text::CopyText;
use inrush_encode::frames::{FrameEncoder, FrameLayout};
use inrush_encode::{EncodeColumn, RowEncoder, Session};
use std::time::Instant;

/// Records of one chunk and their fields, decoded beforehand.
struct Chunk {
    input: Vec<u8>,
    records: Vec<Fields>,
}

const ROWS: usize = 8_000;
const ROUNDS: usize = 60;

fn chunk(row: impl Fn(usize) -> Vec<String>) -> Chunk {
    let mut chunk = Chunk { input: Vec::new(), records: Vec::new() };
    for number in 0..ROWS {
        let mut fields = Fields::new();
        for value in row(number) {
            let start = chunk.input.len();
            chunk.input.extend_from_slice(value.as_bytes());
            fields.push_input(start..chunk.input.len());
            chunk.input.push(b',');
        }
        chunk.records.push(fields);
    }
    chunk
}

fn columns(types: &[BaseType]) -> Vec<EncodeColumn> {
    let column = |(i, base): (usize, &BaseType)| EncodeColumn {
        source: FieldSource::Field(i),
        ty: PgType::base(*base),
        typmod: -1,
    };
    types.iter().enumerate().map(column).collect()
}

/// Frames of a table with these columns.
fn frames(types: &[BaseType]) -> FrameEncoder {
    let names: Vec<String> = (0..types.len()).map(|i| format!("c{i}")).collect();
    let plans: Vec<String> = types.iter().zip(&names).map(|(base, name)| plan(*base, name)).collect();
    let plan = format!(
        r#"{{"version": 1, "refusal": null, "fingerprint": "0000000000000000", "encoding": "UTF8",
        "block_size": 8192, "max_align": 8, "toast_threshold": 2032, "columns": [{}]}}"#,
        plans.join(", ")
    );
    let layout = FrameLayout::parse(&plan).expect("a plan");
    FrameEncoder::new(&layout, &names, &columns(types), &Session::default()).expect("all are encoded")
}

/// A column of inrush.plan().
fn plan(base: BaseType, name: &str) -> String {
    let (class, length, align) = match base {
        BaseType::Bool => ("native", 1, 1),
        BaseType::Uuid => ("native", 16, 1),
        BaseType::Int4 | BaseType::Date => ("native", 4, 4),
        BaseType::Int8 | BaseType::Timestamp | BaseType::Timestamptz | BaseType::Float8 => ("native", 8, 8),
        BaseType::Text | BaseType::Numeric | BaseType::Bytea => ("native", -1, 4),
        _ => ("receive", -1, 4),
    };
    format!(
        r#"{{"name": "{name}", "class": "{class}", "sent": true, "type": {oid}, "base_type": {oid}, "typmod": -1,
        "length": {length}, "align": {align}, "storage": "x", "not_null": false, "kind": "b"}}"#,
        oid = base.oid()
    )
}

fn measure(name: &str, chunk: &Chunk, encoder: &mut dyn RowEncoder) {
    let mut out = Vec::new();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        out.clear();
        let start = Instant::now();
        for fields in &chunk.records {
            let record = Record { input: &chunk.input, fields };
            if encoder.row(&record, &mut out).is_err() {
                println!("{name}: a row is unsure");
                return;
            }
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{name:28} {:7.2} GB/s of fields, {:6.1} ns/row, {} bytes out per row",
        chunk.input.len() as f64 / best / 1e9,
        best * 1e9 / ROWS as f64,
        out.len() / ROWS,
    );
}

fn main() {
    // A cheap scramble of the row number gives varied digits.
    let mix = |n: usize| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let moment = |n: usize| {
        let r = mix(n) >> 20;
        let (day, hour, minute, second) = (1 + r % 28, r / 28 % 24, r / 700 % 60, r / 42_000 % 60);
        format!("2024-{:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:06}", 1 + r % 12, r % 1_000_000)
    };
    let text32 = |n: usize| format!("{:016x}{:016x}", mix(n), mix(n + 7));

    let mut types = vec![BaseType::Int4];
    types.extend([BaseType::Text; 12]);
    types.push(BaseType::Timestamp);
    let c1 = chunk(|n| {
        let mut row = vec![n.to_string()];
        row.extend((0..12).map(|i| text32(n * 12 + i)));
        row.push(moment(n));
        row
    });
    measure("C1 binary", &c1, &mut CopyBinary::new(&columns(&types), &Session::default()));
    measure("C1 frames", &c1, &mut frames(&types));
    measure("C1 text", &c1, &mut CopyText::new(&columns(&types)));

    let types = [BaseType::Int8, BaseType::Timestamp, BaseType::Float8, BaseType::Int4];
    let narrow = chunk(|n| {
        vec![(mix(n) >> 14).to_string(), moment(n), format!("{:.3}", mix(n) as f64 / 1e15), n.to_string()]
    });
    measure(
        "int8, timestamp, float8, int4",
        &narrow,
        &mut CopyBinary::new(&columns(&types), &Session::default()),
    );
    measure("the same as frames", &narrow, &mut frames(&types));

    let one = |name: &str, base: BaseType, value: &dyn Fn(usize) -> String| {
        let chunk = chunk(|n| (0..10).map(|i| value(n * 10 + i)).collect());
        let binary = &mut CopyBinary::new(&columns(&[base; 10]), &Session::default());
        measure(&format!("10 x {name}"), &chunk, binary);
        measure(&format!("10 x {name}, frames"), &chunk, &mut frames(&[base; 10]));
    };
    one("int4", BaseType::Int4, &|n| (mix(n) >> 40).to_string());
    one("int8", BaseType::Int8, &|n| (mix(n) >> 4).to_string());
    one("timestamp", BaseType::Timestamp, &moment);
    one("timestamptz", BaseType::Timestamptz, &|n| moment(n) + "+02");
    one("date", BaseType::Date, &|n| moment(n)[..10].to_owned());
    one("numeric", BaseType::Numeric, &|n| format!("{}.{:02}", mix(n) >> 44, n % 100));
    one("float8", BaseType::Float8, &|n| format!("{:.4}", mix(n) as f64 / 1e14));
    one("text of 8", BaseType::Text, &|n| text32(n)[..8].to_owned());
    one("uuid", BaseType::Uuid, &|n| {
        let t = text32(n);
        format!("{}-{}-{}-{}-{}", &t[..8], &t[8..12], &t[12..16], &t[16..20], &t[20..])
    });
    one("bytea", BaseType::Bytea, &|n| format!("\\x{}", text32(n)));
    one("inet", BaseType::Inet, &|n| format!("10.{}.{}.{}", n % 256, n % 199, n % 101));
    one("bool", BaseType::Bool, &|n| if n % 3 == 0 { "true" } else { "f" }.to_owned());
}
