//! Measures the line protocol decoder on one core, from memory:
//! `cargo run --release -p inrush-decode --example line_speed`, with a name behind it to measure only that.
//!
//! The narrow points are like those of a meter, the wide ones like Telegraf's `cpu` (2 tags, 10 floats). A round
//! decodes the input chunk by chunk and touches every field, as an encoder would.

use inrush_core::{Fields, Record};
use inrush_decode::Decoder;
use inrush_decode::line::{Key, LineDecoder, Precision, TimeForm, lines};
use std::hint::black_box;
use std::time::Instant;

const BYTES: usize = 32 << 20;
const ROUNDS: usize = 9;

fn main() {
    let states = ["guest", "idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user", "active"];
    let time = |i: u64| 1_556_813_561_098_000_000 + i * 1_000_000;
    let wide = points(|i| {
        let fields: Vec<String> =
            states.iter().map(|s| format!("usage_{s}={}.{:08}", i % 100, i * 7 % 99_999_999)).collect();
        format!("cpu,cpu=cpu{},host=server-{:04} {} {}\n", i % 16, i % 1000, fields.join(","), time(i))
    });
    let narrow = points(|i| format!("meter,id={} v={}i {}\n", i % 5000, i, time(i)));
    let strings = points(|i| {
        format!(
            "log,app=api,host=h{} level=\"info\",msg=\"GET /a/{i} \\\"ok\\\" in 3 ms\" {}\n",
            i % 9,
            time(i)
        )
    });
    let field = |name: String| Key::Field(name.into());
    let mut keys = vec![Key::Time, Key::Tag(b"cpu".into()), Key::Tag(b"host".into())];
    keys.extend(states.iter().map(|s| field(format!("usage_{s}"))));
    let few = [Key::Time, Key::Tag(b"id".into()), field("v".into())];
    let texts = [Key::Time, Key::Tag(b"host".into()), field("level".into()), field("msg".into())];
    let json = [Key::Time, Key::TagsJson { rest: false }, Key::FieldsJson { rest: false }];

    println!("{:22} {:>8} {:>12} {:>9}", "", "MB/s", "rows/s", "ns/row");
    measure("wide", &wide, &keys);
    measure("wide, as json", &wide, &json);
    measure("narrow", &narrow, &few);
    measure("strings", &strings, &texts);
    report("wide, only split", &wide, |bytes| {
        lines(bytes).map(|line| black_box(line.content.len().min(1))).sum()
    });
}

fn points(point: impl Fn(u64) -> String) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0.. {
        bytes.extend(point(i).into_bytes());
        if bytes.len() >= BYTES {
            break;
        }
    }
    bytes
}

fn measure(name: &str, bytes: &[u8], keys: &[Key]) {
    let mut decoder = LineDecoder::new(keys, Precision::Ns, TimeForm::Timestamp);
    let mut fields = Fields::new();
    report(name, bytes, |bytes| {
        let (mut count, mut sum) = (0, 0);
        decoder.begin(bytes);
        while let Some(step) = decoder.next(bytes, &mut fields) {
            assert!(step.result.is_ok(), "{name}: {step:?}");
            let record = Record { input: bytes, fields: &fields };
            sum += (0..fields.len()).map(|i| record.get(i).map_or(0, <[u8]>::len)).sum::<usize>();
            count += 1;
        }
        black_box(sum);
        count
    });
}

/// The best of some rounds: another process then spoils a round and not the figure.
fn report(name: &str, bytes: &[u8], mut decode: impl FnMut(&[u8]) -> usize) {
    if std::env::args().nth(1).is_some_and(|only| name != only) {
        return;
    }
    let (mut best, mut rows) = (f64::INFINITY, 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        rows = decode(bytes);
        best = best.min(start.elapsed().as_secs_f64());
    }
    let (size, rows) = (bytes.len() as f64, rows as f64);
    println!("{name:22} {:8.0} {:12.0} {:9.1}", size / best / 1e6, rows / best, best / rows * 1e9);
}
