//! Standard input: at least once, for it cannot be read again.

use super::borders::{first_csv_border, last_border};
use super::{Feeder, Piece, outcome, reading};
use crate::ack::Share;
use crate::buffers::Buffers;
use crate::config::{FormatName, Stdin};
use crate::origin::Origin;
use crate::part::{Positions, Reading, Source};
use bytes::Bytes;
use inrush_core::{Code, Error, Result};
use inrush_sink::ledger::stream::PartitionName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long a part waits for more. Who writes all the time is back sooner.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Bytes that a pipe is to hold: at the usual 64 KiB writer and reader wake each other all the time.
const PIPE: usize = 1 << 20;

/// Reads until the end, or until the process stops.
///
/// # Errors
/// Of rows that cannot be stored at all: there is nobody to send them again.
pub(crate) async fn run(config: Stdin, source: Arc<Source>, feeder: Feeder) -> Result<()> {
    let name = PartitionName { source: source.name.clone(), partition: String::new() };
    let origin = Arc::new(Origin::untraced(name, feeder.lanes, source.into.unlogged));
    let how = match (config.format, config.csv_columns.is_empty()) {
        (FormatName::Csv, true) => None,
        (format, _) => Some(reading(format, &config.csv_columns, &config.name)?),
    };
    // Reading blocks, and nothing wakes it up: it has a thread of its own, which is left behind when the process ends.
    let (sender, mut whole) = mpsc::channel(1);
    let cutter = Cutter {
        how,
        part: feeder.part_bytes(),
        longest: feeder.memory.largest_part(),
        buffer: feeder.buffers.take(),
        buffers: feeder.buffers.clone(),
        sender,
        line: 1,
        at: 0,
    };
    std::thread::spawn(move || cutter.run(std::io::stdin()));
    let mut watchers: JoinSet<Option<Error>> = JoinSet::new();
    let mut stop = feeder.stop.clone();
    loop {
        let stopped = async { stop.wait_for(|stop| *stop).await.map(|_| ()) };
        let records = tokio::select! {
            _ = stopped => break,
            records = whole.recv() => match records {
                Some(records) => records?,
                None => break,
            },
        };
        feeder.wait_for_rejects(&source).await;
        let memory = feeder.memory.take(records.bytes.len()).await;
        let piece = Piece {
            table: source.into.table.clone().filter(|table| !table.contains('{')),
            reading: records.reading,
            first_line: records.line,
            positions: Positions::Bytes(records.at),
            next: records.at + i64::try_from(records.bytes.len()).unwrap_or(i64::MAX),
            memory,
            bytes: records.bytes,
        };
        let (share, told) = Share::new();
        feeder.feed(&source, &origin, piece, share);
        watchers.spawn(async move { outcome(told).await.failed });
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

/// Whole records.
struct Records {
    reading: Reading,
    bytes: Bytes,
    /// Number of the first line.
    line: u64,
    /// Position of the first byte.
    at: i64,
}

/// Reads, and cuts what it has read behind records: in parts, or where no more comes.
struct Cutter {
    /// None until the header has come.
    how: Option<Reading>,
    part: usize,
    longest: usize,
    buffer: Vec<u8>,
    buffers: Buffers,
    sender: mpsc::Sender<Result<Records>>,
    line: u64,
    at: i64,
}

impl Cutter {
    fn run(mut self, input: impl AsFd) {
        if let Err(error) = self.read(input) {
            // Who does not wait any more does not want to know.
            let _ = self.sender.blocking_send(Err(error));
        }
    }

    fn read(&mut self, input: impl AsFd) -> Result<()> {
        // It may be no pipe, or there may be too many large ones.
        let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE);
        loop {
            if self.buffer.len() == self.buffer.capacity() {
                // A record that is longer than a part.
                self.buffer.reserve(self.part);
            }
            let read = match rustix::io::read(&input, rustix::buffer::spare_capacity(&mut self.buffer)) {
                Ok(read) => read,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(Error::new(Code::SourceRead, format!("standard input: {e}"))),
            };
            let ended = read == 0;
            if self.how.is_none() && !self.header(ended)? {
                continue;
            }
            let enough = ended || self.buffer.len() >= self.part || !more_comes(&input);
            if enough && !self.hand_on(ended)? || ended {
                return Ok(());
            }
        }
    }

    /// Takes the header off. `false` if it is not there yet.
    fn header(&mut self, ended: bool) -> Result<bool> {
        let end = match first_csv_border(&self.buffer, b'"') {
            Some(end) => end,
            None if ended && self.buffer.is_empty() => return Ok(true),
            None if ended => self.buffer.len(),
            None if self.buffer.len() > self.longest => return Err(too_long()),
            None => return Ok(false),
        };
        self.how = Some(super::csv_header(&self.buffer[..end], "standard input")?);
        self.passed(end);
        self.buffer.drain(..end);
        Ok(true)
    }

    /// Hands on the whole records there are. `false` if nobody wants them.
    fn hand_on(&mut self, ended: bool) -> Result<bool> {
        let Some(reading) = self.how.clone() else { return Ok(true) };
        let border = if ended { Some(self.buffer.len()) } else { last_border(&reading, &self.buffer) };
        let Some(border) = border.filter(|border| *border > 0) else {
            return if self.buffer.len() > self.longest { Err(too_long()) } else { Ok(true) };
        };
        let mut rest = self.buffers.take();
        rest.extend_from_slice(&self.buffer[border..]);
        self.buffer.truncate(border);
        let full = std::mem::replace(&mut self.buffer, rest);
        let (line, at) = (self.line, self.at);
        let bytes = self.buffers.lend(full);
        self.line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        self.at += i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        Ok(self.sender.blocking_send(Ok(Records { reading, bytes, line, at })).is_ok())
    }

    /// Bytes of the buffer are not for anybody.
    fn passed(&mut self, bytes: usize) {
        self.line += memchr::memchr_iter(b'\n', &self.buffer[..bytes]).count() as u64;
        self.at += i64::try_from(bytes).unwrap_or(i64::MAX);
    }
}

/// Waits a moment for more to read.
fn more_comes(input: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&input, PollFlags::IN)];
    poll(&mut fds, Some(&MOMENT)).is_ok_and(|ready| ready > 0)
}

fn too_long() -> Error {
    Error::new(Code::RecordTooLong, "a line is longer than limits.memory allows")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn cutter(how: Option<Reading>) -> (Cutter, mpsc::Receiver<Result<Records>>) {
        let (sender, receiver) = mpsc::channel(1000);
        let buffers = Buffers::new(68);
        let buffer = buffers.take();
        (Cutter { how, part: 64, longest: 200, buffer, buffers, sender, line: 1, at: 0 }, receiver)
    }

    /// What is handed on of these bytes, written piece by piece.
    fn handed_on(how: Option<Reading>, pieces: Vec<Vec<u8>>) -> Vec<Result<Records>> {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (cutter, mut receiver) = cutter(how);
        let writing = std::thread::spawn(move || {
            for piece in &pieces {
                // Who has refused a line does not read on.
                let _ = writer.write_all(piece);
            }
        });
        cutter.run(reader);
        writing.join().unwrap();
        std::iter::from_fn(|| receiver.blocking_recv()).collect()
    }

    #[test]
    fn all_bytes_come_once_and_in_order_however_they_are_written() {
        let lines: Vec<u8> =
            (0..500).flat_map(|n| format!("{{\"n\":{}}}\n", "9".repeat(n % 90)).into_bytes()).collect();
        for size in [1, 7, 64, 68, 100, 5000] {
            let got = handed_on(Some(Reading::Ndjson), lines.chunks(size).map(<[u8]>::to_vec).collect());
            let (mut all, mut line) = (Vec::new(), 1);
            for records in got {
                let records = records.unwrap();
                assert_eq!((records.at, records.line), (all.len() as i64, line), "in pieces of {size}");
                assert!(records.bytes.ends_with(b"\n"));
                line += records.bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
                all.extend_from_slice(&records.bytes);
            }
            assert!(all == lines, "in pieces of {size}");
        }
    }

    #[test]
    fn the_header_and_a_last_line_without_an_end() {
        let got = handed_on(None, vec![b"a,b".to_vec(), b"\n1,2\n3".to_vec(), b",4".to_vec()]);
        let got: Vec<Records> = got.into_iter().collect::<Result<_>>().unwrap();
        let bytes: Vec<u8> = got.iter().flat_map(|records| records.bytes.to_vec()).collect();
        assert_eq!((bytes.as_slice(), got[0].at, got[0].line), (&b"1,2\n3,4"[..], 4, 2));
        assert!(matches!(&got[0].reading, Reading::Csv { header, .. } if **header == ["a", "b"]));
        assert!(handed_on(None, vec![]).is_empty());
        assert!(handed_on(None, vec![b"a,b".to_vec()]).is_empty(), "a header is no row");
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let got = handed_on(Some(Reading::Ndjson), vec![b"1\n".to_vec(), vec![b'x'; 1000]]);
        assert!(got.last().is_some_and(|last| last.as_ref().is_err_and(|e| e.code() == Code::RecordTooLong)));
    }
}
