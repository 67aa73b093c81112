//! Inputs: what takes bytes from the world. Each is one module, and hands parts to a [`Feeder`].

pub(crate) mod borders;
pub(crate) mod http;
pub(crate) mod kafka;
pub(crate) mod replay;
pub(crate) mod stdin;
pub(crate) mod tail;

use crate::ack::{Outcome, Share};
use crate::buffers::Buffers;
use crate::config::{FormatName, Into};
use crate::metrics::Metrics;
use crate::origin::Origin;
use crate::part::{Body, Part, Positions, Reading, Source};
use crate::pressure::Memory;
use crate::spill::SpillLog;
use crate::target::Registry;
use bytes::Bytes;
use inrush_core::{Code, CsvDialect, Error, Fields, Record, Result};
use inrush_decode::line::Precision;
use inrush_decode::{Decoder, csv};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::SystemTime;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a part, as inputs cut them. Smaller ones cost a hand-over each, larger ones time until they are complete.
pub(crate) const PART: usize = 1 << 20;

/// What all inputs share.
pub(crate) struct Common {
    pub memory: Memory,
    pub registry: Arc<Registry>,
    pub metrics: Arc<Metrics>,
    pub lanes: u32,
    pub limits: crate::config::LimitsConfig,
    pub spill: Option<SpillLog>,
    pub stop: watch::Receiver<bool>,
}

/// What inputs need of the process.
#[derive(Clone)]
pub(crate) struct Feeder {
    splitters: Arc<Vec<mpsc::UnboundedSender<Part>>>,
    next: Arc<AtomicUsize>,
    pub memory: Memory,
    /// For parts.
    pub buffers: Buffers,
    pub registry: Arc<Registry>,
    pub metrics: Arc<Metrics>,
    pub lanes: u32,
    pub limits: crate::config::LimitsConfig,
    pub spill: Option<SpillLog>,
    /// For bodies on their way to the spill, which must not wait for what the server does not take.
    pub spill_memory: Memory,
    /// Becomes true when the process is to stop.
    pub stop: watch::Receiver<bool>,
}

/// Bytes that are ready to go.
pub(crate) struct Piece {
    pub table: Option<String>,
    pub reading: Reading,
    pub bytes: Bytes,
    pub first_line: u64,
    pub positions: Positions,
    /// Position behind it.
    pub next: i64,
    pub memory: OwnedSemaphorePermit,
}

impl Feeder {
    pub fn new(splitters: Vec<mpsc::UnboundedSender<Part>>, common: Common) -> Feeder {
        let Common { memory, registry, metrics, lanes, limits, spill, stop } = common;
        let spill_memory = Memory::new(memory.all() / 4);
        let part = part_bytes(&memory, &spill_memory);
        Feeder {
            splitters: Arc::new(splitters),
            next: Arc::default(),
            memory,
            // A part ends with the last whole record: what is behind it is in the buffer, too.
            buffers: Buffers::new(part + part / 16),
            registry,
            metrics,
            lanes,
            limits,
            spill,
            spill_memory,
            stop,
        }
    }

    /// Bytes of a part.
    pub fn part_bytes(&self) -> usize {
        part_bytes(&self.memory, &self.spill_memory)
    }

    /// Hands a piece on. Pieces of one origin keep their order.
    pub fn feed(&self, source: &Arc<Source>, origin: &Arc<Origin>, piece: Piece, share: Share) {
        let number = match origin.kind {
            crate::origin::Kind::Untraced => self.next.fetch_add(1, Relaxed),
            _ => {
                let name = format!("{}\0{}", origin.name.source, origin.name.partition);
                usize::try_from(xxh3_64(name.as_bytes()) % self.splitters.len() as u64).unwrap_or_default()
            }
        };
        let body = Body {
            source: Arc::clone(source),
            origin: Arc::clone(origin),
            table: piece.table,
            reading: piece.reading,
            bytes: piece.bytes,
            first_line: piece.first_line,
            positions: piece.positions,
            received: SystemTime::now(),
            _memory: piece.memory,
        };
        // A splitter that has gone fails the share as it drops it.
        let _ = self.splitters[number % self.splitters.len()].send(Part { body, next: piece.next, share });
    }

    /// Waits while an input is stopped for its refused rows, or until the process stops.
    pub async fn wait_for_rejects(&self, source: &Source) {
        let mut stop = self.stop.clone();
        while let Some(left) = source.counters.poisoned(self.limits.rejects_per_minute) {
            let stopped = async { stop.wait_for(|stop| *stop).await.map(|_| ()) };
            if tokio::time::timeout(left, stopped).await.is_ok() {
                return;
            }
        }
    }

    /// Whether the process is to stop.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

fn part_bytes(memory: &Memory, spill_memory: &Memory) -> usize {
    PART.min(memory.largest_part()).min(spill_memory.largest_part()).max(64 << 10)
}

/// What became of something, or that nobody knows.
pub(crate) async fn outcome(told: oneshot::Receiver<Outcome>) -> Outcome {
    told.await.unwrap_or_else(|_| Outcome {
        failed: Some(Error::new(Code::Interrupted, "the process stops")),
        ..Outcome::default()
    })
}

/// Whether an input may write into a table of this name, which came from outside.
pub(crate) fn allowed(into: &Into, name: &str) -> bool {
    match &into.tables {
        None => true,
        Some(patterns) => patterns.iter().any(|pattern| matches(pattern, name)),
    }
}

/// `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// CSV as inputs send it: commas, double quotes, LF or CRLF as the first line has it.
fn csv_dialect(first_line: &[u8]) -> CsvDialect {
    let eol = if first_line.ends_with(b"\r\n") { inrush_core::Eol::CrLf } else { inrush_core::Eol::Lf };
    CsvDialect { eol, ..CsvDialect::default() }
}

/// How CSV is read whose first line says what its columns are.
pub(crate) fn csv_header(line: &[u8], name: &str) -> Result<Reading> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let dialect = csv_dialect(line);
    let mut decoder = csv::CsvDecoder::new(&dialect, None);
    let mut fields = Fields::new();
    decoder.begin(line);
    let decoded = decoder.next(line, &mut fields).is_some_and(|step| step.result.is_ok());
    let record = Record { input: line, fields: &fields };
    let names = (0..fields.len()).map(|i| String::from_utf8(record.get(i).unwrap_or_default().to_vec()));
    match names.collect::<std::result::Result<Vec<_>, _>>() {
        Ok(names) if decoded => Ok(Reading::Csv { dialect, header: Arc::new(names) }),
        _ => Err(Error::new(Code::Record, format!("the first line of {name} is no header of CSV in UTF-8"))),
    }
}

/// How an input without a header of its own is read.
pub(crate) fn reading(format: FormatName, csv_columns: &[String], name: &str) -> Result<Reading> {
    Ok(match format {
        FormatName::Ndjson => Reading::Ndjson,
        FormatName::Line => Reading::Line { precision: Precision::Ns },
        FormatName::Csv if csv_columns.is_empty() => {
            return Err(Error::new(
                Code::Usage,
                format!("input {name:?} does not say what its CSV columns are"),
            )
            .hint("Add csv_columns = [\"a\", \"b\"]."));
        }
        FormatName::Csv => {
            Reading::Csv { dialect: CsvDialect::default(), header: Arc::new(csv_columns.to_vec()) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn names_match_patterns() {
        assert!(matches("calls", "calls") && !matches("calls", "calls2"));
        assert!(matches("metrics_*", "metrics_cpu") && !matches("metrics_*", "metric"));
        assert!(matches("*", "") && matches("a*b*c", "aXbYc") && !matches("a*b*c", "aXc"));
        assert!(matches("*_*", "a_b") && !matches("*_*", "ab"));
    }
}
