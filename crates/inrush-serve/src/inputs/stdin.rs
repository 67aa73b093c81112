//! Standard input: at least once, for it cannot be read again.

use super::borders::{first_csv_border, last_border};
use super::{Feeder, Piece, outcome, reading};
use crate::ack::Share;
use crate::config::{FormatName, Stdin};
use crate::origin::Origin;
use crate::part::{Positions, Reading, Source};
use inrush_core::{Code, Error, Result};
use inrush_sink::ledger::stream::PartitionName;
use std::io::Read;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Bytes read at once.
const READ: usize = 256 << 10;

/// Reads until the end, or until the process stops.
///
/// # Errors
/// Of rows that cannot be stored at all: there is nobody to send them again.
pub(crate) async fn run(config: Stdin, source: Arc<Source>, feeder: Feeder) -> Result<()> {
    let mut pieces = read_on_a_thread(feeder.part_bytes());
    let name = PartitionName { source: source.name.clone(), partition: String::new() };
    let origin = Arc::new(Origin::untraced(name, feeder.lanes, source.into.unlogged));
    let mut how = match (config.format, config.csv_columns.is_empty()) {
        (FormatName::Csv, true) => None,
        (format, _) => Some(reading(format, &config.csv_columns, &config.name)?),
    };
    let (mut rest, mut line, mut at): (Vec<u8>, u64, i64) = (Vec::new(), 1, 0);
    let mut watchers: JoinSet<Option<Error>> = JoinSet::new();
    let mut stop = feeder.stop.clone();
    let mut ended = false;
    while !ended {
        let stopped = async { stop.wait_for(|stop| *stop).await.map(|_| ()) };
        tokio::select! {
            _ = stopped => break,
            bytes = pieces.recv() => match bytes {
                Some(Ok(bytes)) => rest.extend_from_slice(&bytes),
                Some(Err(e)) => return Err(Error::new(Code::SourceRead, format!("standard input: {e}"))),
                None => ended = true,
            },
        }
        if how.is_none() {
            let end = match first_csv_border(&rest, b'"') {
                Some(end) => end,
                None if ended => rest.len(),
                None => continue,
            };
            if end > 0 {
                how = Some(super::csv_header(&rest[..end], "standard input")?);
                line += memchr::memchr_iter(b'\n', &rest[..end]).count() as u64;
                at += i64::try_from(end).unwrap_or(i64::MAX);
                rest.drain(..end);
            }
        }
        let Some(how) = &how else { continue };
        let border = if ended { Some(rest.len()) } else { last_border(how, &rest) };
        let Some(border) = border.filter(|border| *border > 0) else {
            if rest.len() > feeder.memory.largest_part() {
                return Err(Error::new(Code::RecordTooLong, "a line is longer than limits.memory allows"));
            }
            continue;
        };
        let left = rest.split_off(border);
        let bytes = std::mem::replace(&mut rest, left);
        feeder.wait_for_rejects(&source).await;
        let memory = feeder.memory.take(bytes.len()).await;
        let lines = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        let next = at + i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let piece = Piece {
            table: source.into.table.clone().filter(|table| !table.contains('{')),
            reading: Reading::clone(how),
            first_line: line,
            positions: Positions::Bytes(at),
            next,
            memory,
            bytes: bytes.into(),
        };
        let (share, told) = Share::new();
        feeder.feed(&source, &origin, piece, share);
        watchers.spawn(async move { outcome(told).await.failed });
        line += lines;
        at = next;
        while let Some(settled) = watchers.try_join_next() {
            if let Ok(Some(error)) = settled {
                return Err(error);
            }
        }
    }
    while let Some(settled) = watchers.join_next().await {
        if let Ok(Some(error)) = settled {
            return Err(error);
        }
    }
    Ok(())
}

/// Reading blocks, and nothing wakes it up: it has a thread of its own, which is left behind when the process ends.
fn read_on_a_thread(part: usize) -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel((part / READ).max(1));
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut bytes = vec![0; READ];
            let read = match stdin.read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => {
                    bytes.truncate(read);
                    Ok(bytes)
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => Err(e),
            };
            let failed = read.is_err();
            if sender.blocking_send(read).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
