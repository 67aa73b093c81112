//! How fast the cutter is, in GB/s of input: `cargo run --release -p inrush-source --example cut_speed`.
//!
//! The file is in the page cache, so the figures are those of one core copying from it and cutting;
//! "read only" is the same reading without cutting, the best there can be.

use inrush_core::{Eol, Limits, Result};
use inrush_source::{Borders, BufferPool, Cut, Cutter, Input, InputKind, InputSpec};
use std::path::Path;
use std::time::{Duration, Instant};

const BYTES: usize = 512 << 20;
const RUNS: usize = 5;

fn main() -> Result<()> {
    let csv = Borders::Csv { quote: b'"', escape: b'"', eol: Eol::Lf };
    let backslash = Borders::Csv { quote: b'"', escape: b'\\', eol: Eol::Lf };
    let text = Borders::Text { eol: Eol::Lf };
    let bare = "2019-03-14 12:00:01,4711,3.25,sensor-17,north,0.000125,ok,17,some words of text\n";
    let quoted =
        "\"2019-03-14 12:00:01\",\"4711\",\"3.25\",\"sensor-17\",\"nor\"\"th\",\"0.000125\",\"ok\"\n";
    let tabs = "2019-03-14 12:00:01\t4711\t3.25\tsensor-17\tnorth\t0.000125\tok\t17\tsome words of text\n";
    let nulls = "2019-03-14 12:00:01\t4711\t\\N\tsensor-17\tnorth\\\\south\t0.000125\tok\t17\t\\N\n";
    let escapes =
        "\"2019-03-14 12:00:01\",\"4711\",\"3.25\",\"sens\\\"or-17\",\"north\",\"0.000125\",\"ok\"\n";
    let narrow = "4711,17\n";
    let cases = [
        ("csv, no quotes", bare, csv),
        ("csv, every field quoted", quoted, csv),
        ("csv, narrow rows", narrow, csv),
        ("csv, escape \\, no escapes", quoted, backslash),
        ("csv, escape \\, one in every row", escapes, backslash),
        ("text, no backslashes", tabs, text),
        ("text, three backslashes a row", nulls, text),
        ("lines", bare, Borders::Lines),
    ];
    let path = std::env::temp_dir().join(format!("inrush-cut-speed-{}", std::process::id()));
    let outcome = cases.iter().try_for_each(|(name, line, borders)| measure(name, line, *borders, &path));
    // Best effort: the directory is for temporary files.
    let _ = std::fs::remove_file(&path);
    outcome
}

fn measure(name: &str, line: &str, borders: Borders, path: &Path) -> Result<()> {
    let bytes = line.repeat(BYTES / line.len());
    std::fs::write(path, &bytes)
        .map_err(|e| inrush_core::Error::new(inrush_core::Code::Output, e.to_string()))?;
    let limits = Limits::default();
    let spec = InputSpec { name: path.display().to_string(), kind: InputKind::File(path.to_owned()) };
    let pool = BufferPool::new(limits.chunk, 4);
    let (mut read, mut cut) = (Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        let mut input = Input::open(&spec, &limits)?;
        let mut buffer = vec![0; limits.chunk];
        let began = Instant::now();
        let mut at = 0;
        loop {
            // As the cutter does: 256 KiB at a time through a buffer of one chunk.
            let step = (256 << 10).min(buffer.len() - at);
            match input.read(&mut buffer[at..at + step])? {
                0 => break,
                n => at = (at + n) % buffer.len(),
            }
        }
        read = read.min(began.elapsed());

        let input = Input::open(&spec, &limits)?;
        let mut cutter = Cutter::new(input, 0, borders, false, &limits)?.with_pool(pool.clone());
        let began = Instant::now();
        let mut records = 0;
        while let Some(piece) = cutter.next()? {
            if let Cut::Chunk(chunk) = piece {
                records += chunk.records;
                pool.give(chunk.bytes);
            }
        }
        cut = cut.min(began.elapsed());
        assert_eq!(records as usize, bytes.len() / line.len());
    }
    let rate = |time: Duration| bytes.len() as f64 / time.as_secs_f64() / 1e9;
    let alone = rate(cut.saturating_sub(read));
    println!(
        "{name:34} read only {:5.1}  read and cut {:5.1}  cutting alone {alone:6.1} GB/s",
        rate(read),
        rate(cut)
    );
    Ok(())
}
