//! Standard input: at least once. It cannot be read again: what is read is kept until it is stored, and sent again if a
//! commit was lost. When the process stops nothing more is read, and the whole records of what was read are stored.

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
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{JoinError, JoinSet};

/// How long a part waits for more. Who writes all the time is back sooner.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// How long what could not be stored waits before it is sent again.
const AGAIN: Duration = Duration::from_millis(200);

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
    // Reading blocks: it has a thread of its own, which a pipe that is closed tells to stop.
    let (stopping, stop_reading) =
        std::io::pipe().map_err(|e| Error::new(Code::Internal, format!("no pipe: {e}")))?;
    let mut stop_reading = Some(stop_reading);
    let (sender, mut whole) = mpsc::channel(1);
    let cutter = Cutter {
        how,
        part: feeder.part_bytes(),
        longest: feeder.memory.largest_part(),
        buffer: feeder.buffers.take(),
        buffers: feeder.buffers.clone(),
        stopping,
        sender,
        line: 1,
        at: 0,
    };
    std::thread::spawn(move || cutter.run(std::io::stdin()));
    let input = Arc::new(Input { source, origin, feeder });
    let mut under_way: JoinSet<Result<()>> = JoinSet::new();
    let mut stop = input.feeder.stop.clone();
    loop {
        let stopped = async { stop.wait_for(|stop| *stop).await.map(|_| ()) };
        let records = tokio::select! {
            _ = stopped, if stop_reading.is_some() => {
                stop_reading = None;
                continue;
            }
            Some(ended) = under_way.join_next() => {
                stored(ended)?;
                continue;
            }
            records = whole.recv() => match records {
                Some(records) => records?,
                None => break,
            },
        };
        input.feeder.wait_for_rejects(&input.source).await;
        let memory = input.feeder.memory.take(records.bytes.len()).await;
        under_way.spawn(Arc::clone(&input).store(records, memory));
    }
    while let Some(ended) = under_way.join_next().await {
        stored(ended)?;
    }
    Ok(())
}

/// What became of records, from the task that had them stored.
fn stored(ended: std::result::Result<Result<()>, JoinError>) -> Result<()> {
    ended.unwrap_or_else(|e| Err(Error::new(Code::Internal, format!("standard input broke: {e}"))))
}

/// Where the rows come from, and who takes them.
struct Input {
    source: Arc<Source>,
    origin: Arc<Origin>,
    feeder: Feeder,
}

impl Input {
    /// Has records stored, again and again if the server loses them. `memory` is for them, however often.
    async fn store(self: Arc<Input>, records: Records, mut memory: OwnedSemaphorePermit) -> Result<()> {
        let Records { reading, bytes, line, at } = records;
        loop {
            let none = memory.split(0);
            let piece = Piece {
                table: self.source.into.table.clone().filter(|table| !table.contains('{')),
                reading: reading.clone(),
                first_line: line,
                positions: Positions::Bytes(at),
                next: at + i64::try_from(bytes.len()).unwrap_or(i64::MAX),
                // What is counted for it here is counted longer than it has it.
                memory: none.ok_or_else(|| Error::new(Code::Internal, "no memory is more than there is"))?,
                bytes: bytes.clone(),
            };
            let (share, told) = Share::new();
            self.feeder.feed(&self.source, &self.origin, piece, share);
            match outcome(told).await.failed {
                None => return Ok(()),
                Some(error) if error.code() == Code::ConnectionLost => {
                    self.feeder.metrics.note_error(&error);
                    tracing::warn!(input = self.source.name, line, error = error.fact(), "is sent again");
                    tokio::time::sleep(AGAIN).await;
                }
                Some(error) => return Err(error),
            }
        }
    }
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
    /// Closed at its other end when no more is to be read.
    stopping: PipeReader,
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
        let mut more = More::Later;
        loop {
            while more == More::Later {
                more = self.more(&input, None);
            }
            if more == More::Never {
                return self.leave();
            }
            if self.buffer.len() == self.buffer.capacity() {
                // A record that is longer than a part.
                self.buffer.reserve(self.part);
            }
            let read = match rustix::io::read(&input, rustix::buffer::spare_capacity(&mut self.buffer)) {
                Ok(read) => read,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {
                    more = More::Later;
                    continue;
                }
                Err(e) => return Err(Error::new(Code::SourceRead, format!("standard input: {e}"))),
            };
            let ended = read == 0;
            more = More::Later;
            if self.how.is_none() && !self.header(ended)? {
                continue;
            }
            if !ended && self.buffer.len() < self.part {
                more = self.more(&input, Some(&MOMENT));
            }
            if more != More::Now && !self.hand_on(ended)? || ended {
                return Ok(());
            }
        }
    }

    /// Waits until there is more to read, or until it is to stop.
    fn more(&self, input: impl AsFd, at_most: Option<&Timespec>) -> More {
        let mut fds = [PollFd::new(&input, PollFlags::IN), PollFd::new(&self.stopping, PollFlags::IN)];
        // What cannot be waited for can be read.
        match poll(&mut fds, at_most) {
            Err(rustix::io::Errno::INTR) => More::Later,
            _ if !fds[1].revents().is_empty() => More::Never,
            Ok(0) => More::Later,
            _ => More::Now,
        }
    }

    /// Hands on what is whole of what has been read; the rest is no record.
    fn leave(&mut self) -> Result<()> {
        if self.hand_on(false)? && !self.buffer.is_empty() {
            tracing::warn!(
                bytes = self.buffer.len(),
                "the last line of standard input had no end yet: it is left out"
            );
        }
        Ok(())
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

/// Whether more can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Now,
    /// Nobody knows when.
    Later,
    /// The process stops.
    Never,
}

fn too_long() -> Error {
    Error::new(Code::RecordTooLong, "a line is longer than limits.memory allows")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn cutter(
        how: Option<Reading>,
        room: usize,
    ) -> (Cutter, mpsc::Receiver<Result<Records>>, std::io::PipeWriter) {
        let (sender, receiver) = mpsc::channel(room);
        let (stopping, stop_reading) = std::io::pipe().unwrap();
        let buffers = Buffers::new(68);
        let buffer = buffers.take();
        let cutter =
            Cutter { how, part: 64, longest: 200, buffer, buffers, stopping, sender, line: 1, at: 0 };
        (cutter, receiver, stop_reading)
    }

    /// What is handed on of these bytes, written piece by piece.
    fn handed_on(how: Option<Reading>, pieces: Vec<Vec<u8>>) -> Vec<Result<Records>> {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (cutter, mut receiver, _stop) = cutter(how, 1000);
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
    fn what_has_been_read_is_handed_on_when_it_is_to_stop() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (cutter, mut receiver, stop_reading) = cutter(Some(Reading::Ndjson), 1);
        writer.write_all("{\"id\":1}\n".repeat(20).as_bytes()).unwrap();
        writer.write_all(b"{\"id\"").unwrap();
        let cutting = std::thread::spawn(move || cutter.run(reader));
        // Until it waits for somebody to take what it has; there is more in its buffer than a part.
        while receiver.is_empty() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        drop(stop_reading);
        let mut all = Vec::new();
        while let Some(records) = receiver.blocking_recv() {
            all.extend_from_slice(&records.unwrap().bytes);
        }
        cutting.join().unwrap();
        // The writer has not gone, so that the last line has no end; what was not read may be left, but no record is cut.
        assert!(all.len() >= 126 && all.len() % 9 == 0 && all.ends_with(b"\n"), "{}", all.len());
    }

    #[test]
    fn waiting_for_more_ends_when_it_is_to_stop() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let (cutter, mut receiver, stop_reading) = cutter(None, 1);
        let cutting = std::thread::spawn(move || cutter.run(reader));
        std::thread::sleep(Duration::from_millis(20));
        drop(stop_reading);
        cutting.join().unwrap();
        assert!(receiver.blocking_recv().is_none());
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let got = handed_on(Some(Reading::Ndjson), vec![b"1\n".to_vec(), vec![b'x'; 1000]]);
        assert!(got.last().is_some_and(|last| last.as_ref().is_err_and(|e| e.code() == Code::RecordTooLong)));
    }
}
