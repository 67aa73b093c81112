//! Measures the decoders on one core, from memory: `cargo run --release -p inrush-decode --example decode_speed`.
//!
//! The wide rows are like those of case C1 (14 fields, 455 bytes), the narrow ones like C2 (an integer and
//! 15 bytes of text). A round decodes the input chunk by chunk and touches every field, as an encoder would.

use inrush_core::{CsvDialect, Fields, Record, TextDialect};
use inrush_decode::csv::{CsvDecoder, plain::PlainCsv};
use inrush_decode::encoding::check_utf8;
use inrush_decode::ndjson::{Key, NdjsonDecoder};
use inrush_decode::text::TextDecoder;
use inrush_decode::{Decoder, Step};
use std::hint::black_box;
use std::time::Instant;

const BYTES: usize = 64 << 20;
const CHUNK: usize = 4 << 20;
const ROUNDS: usize = 7;

fn main() {
    let wide = rows(|i| wide_row(i, ','));
    let narrow = rows(|i| format!("{i},{:015x}\n", mix(i) >> 4));
    let quoted = rows(|i| {
        wide_row(i, ',').trim_end().split(',').map(|f| format!("\"{f}\"")).collect::<Vec<_>>().join(",")
            + "\n"
    });
    let escaped = rows(|i| format!("{i},\"say \"\"{:x}\"\", then go\",x\n", mix(i)));
    let tabs = rows(|i| wide_row(i, '\t'));
    let backslashes = rows(|i| format!("{i}\tC:\\\\dir\\\\{:x}\t\\N\n", mix(i)));
    let objects = rows(|i| {
        format!(
            "{{\"id\":{i},\"name\":\"{:x}\",\"ok\":true,\"note\":\"line\\nbreak\",\"at\":\"2026-11-21T01:02:03Z\"}}\n",
            mix(i)
        )
    });
    let csv = |n| CsvDecoder::new(&CsvDialect::default(), Some(n));
    let keys = ["id", "name", "ok", "note", "at"].map(Key::new).to_vec();

    println!("{:28} {:>8} {:>12} {:>9}", "", "GB/s", "rows/s", "ns/row");
    measure("csv wide", &wide, &mut csv(14));
    measure("csv narrow", &narrow, &mut csv(2));
    measure("csv wide, all quoted", &quoted, &mut csv(14));
    measure("csv with escapes", &escaped, &mut csv(3));
    measure("csv wide, plain", &wide, &mut PlainCsv::new(&CsvDialect::default(), Some(14)));
    measure("text wide", &tabs, &mut TextDecoder::new(&TextDialect::default(), Some(14)));
    measure("text with escapes", &backslashes, &mut TextDecoder::new(&TextDialect::default(), Some(3)));
    measure("ndjson", &objects, &mut NdjsonDecoder::new(keys));
    let seconds = best(|| {
        for chunk in &wide {
            assert!(black_box(check_utf8(black_box(chunk))).is_ok());
        }
    });
    println!("{:28} {:8.2}", "UTF-8 check", size(&wide) as f64 / seconds / 1e9);
}

/// A fixed mixing of bits, so that every run measures the same bytes.
fn mix(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn wide_row(i: u64, delimiter: char) -> String {
    let fields: Vec<String> =
        (0..14).map(|f| format!("{:016x}{:016x}", mix(i * 14 + f), mix(i * 7 + f))).collect();
    fields.join(&delimiter.to_string())[..454].to_owned() + "\n"
}

/// Chunks of whole rows.
fn rows(row: impl Fn(u64) -> String) -> Vec<Vec<u8>> {
    let mut next = 0;
    let mut chunk = || {
        let mut bytes = Vec::with_capacity(CHUNK + 1024);
        while bytes.len() < CHUNK {
            bytes.extend(row(next).into_bytes());
            next += 1;
        }
        bytes
    };
    (0..BYTES / CHUNK).map(|_| chunk()).collect()
}

fn size(chunks: &[Vec<u8>]) -> usize {
    chunks.iter().map(Vec::len).sum()
}

fn best(mut round: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn measure(name: &str, chunks: &[Vec<u8>], decoder: &mut dyn Decoder) {
    let mut fields = Fields::new();
    let mut count = 0;
    let seconds = best(|| {
        count = 0;
        let mut sum = 0;
        for chunk in chunks {
            decoder.begin(chunk);
            while let Some(Step { result, .. }) = decoder.next(chunk, &mut fields) {
                assert!(result.is_ok(), "{name}: {result:?}");
                let record = Record { input: chunk, fields: &fields };
                for i in 0..fields.len() {
                    sum += record.get(i).map_or(0, <[u8]>::len);
                }
                count += 1;
            }
        }
        black_box(sum);
    });
    let rows = f64::from(count);
    println!(
        "{name:28} {:8.2} {:12.0} {:9.1}",
        size(chunks) as f64 / seconds / 1e9,
        rows / seconds,
        seconds / rows * 1e9
    );
}
