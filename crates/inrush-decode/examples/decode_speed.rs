//! Measures the decoders on one core, from memory: `cargo run --release -p inrush-decode --example decode_speed`,
//! with part of a name behind it to measure only what has it in its name.
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
    let seconds = best(&wide, |chunk| assert!(check_utf8(black_box(chunk)).is_ok()));
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

/// Seconds for all chunks, each at the best of its rounds: another process then spoils a chunk and not the
/// figure.
fn best(chunks: &[Vec<u8>], mut decode: impl FnMut(&[u8])) -> f64 {
    let mut best = vec![f64::INFINITY; chunks.len()];
    for _ in 0..ROUNDS {
        for (chunk, best) in chunks.iter().zip(&mut best) {
            let start = Instant::now();
            decode(chunk);
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best.iter().sum()
}

fn measure(name: &str, chunks: &[Vec<u8>], decoder: &mut dyn Decoder) {
    if std::env::args().nth(1).is_some_and(|only| !name.contains(&only)) {
        return;
    }
    let mut fields = Fields::new();
    let mut count = 0;
    let seconds = best(chunks, |chunk| {
        let mut sum = 0;
        decoder.begin(chunk);
        while let Some(Step { result, .. }) = decoder.next(chunk, &mut fields) {
            assert!(result.is_ok(), "{name}: {result:?}");
            let record = Record { input: chunk, fields: &fields };
            for i in 0..fields.len() {
                sum += record.get(i).map_or(0, <[u8]>::len);
            }
            count += 1;
        }
        black_box(sum);
    });
    let rows = f64::from(count) / ROUNDS as f64;
    let speed = size(chunks) as f64 / seconds / 1e9;
    println!("{name:28} {speed:8.2} {:12.0} {:9.1}", rows / seconds, seconds / rows * 1e9);
}
