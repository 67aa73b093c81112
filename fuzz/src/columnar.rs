//! Parquet and Arrow files nobody vouches for.

use inrush_core::{Code, Error, Result};
use inrush_decode::columnar::{ArrowStream, BATCH_ROWS, Kind, ReadAt, RowFile, RowReader};
use std::fmt::Debug;
use std::io::Cursor;
use std::sync::Arc;

/// Batches looked at: a small file may declare any number of rows.
const MOST: usize = 16;

struct Memory(Vec<u8>);

impl ReadAt for Memory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// The input is the file.
pub fn columnar(input: &[u8]) {
    match Kind::detect(input) {
        Some(Kind::ArrowStream) => stream(input),
        Some(Kind::Parquet | Kind::ArrowFile) => {
            match RowFile::open("fuzzed", Arc::new(Memory(input.to_vec()))) {
                Ok(file) => rows(&Arc::new(file)),
                Err(error) => explained(&error),
            }
        }
        None => {}
    }
}

fn explained(error: &Error) {
    assert!(matches!(error.code(), Code::Format | Code::Columns), "{error}");
}

fn stream(input: &[u8]) {
    let mut stream = match ArrowStream::new("fuzzed", Cursor::new(input.to_vec())) {
        Ok(stream) => stream,
        Err(error) => return explained(&error),
    };
    for _ in 0..MOST {
        match stream.next() {
            Ok(Some(batch)) => {
                assert_eq!(batch.schema(), stream.schema());
                for column in batch.columns() {
                    column.to_data().validate_full().expect("a column that holds together");
                }
            }
            Ok(None) => break,
            Err(error) => return explained(&error),
        }
        assert!(stream.position() <= input.len() as u64);
    }
}

fn rows(file: &Arc<RowFile>) {
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut start = 0;
    for group in file.groups() {
        assert_eq!(group.start, start, "a gap between groups");
        assert!(group.rows > 0);
        start += group.rows;
    }
    assert_eq!(file.rows(), start);
    let mut reader = match RowReader::new(file, &columns) {
        Ok(reader) => reader,
        Err(error) => return explained(&error),
    };
    for group in file.groups().iter().take(4) {
        let end = group.start + group.rows;
        let whole = match read(&mut reader, group.start, end) {
            Ok(whole) => whole,
            Err(error) => return explained(&error),
        };
        // The second half again, as a resumed load asks for it.
        let middle = group.start + group.rows / 2;
        if group.rows > 1 && group.rows < 200 {
            let half = read(&mut reader, middle, end).expect("what could be read before");
            assert_eq!(half, whole[(middle - group.start) as usize..]);
        }
    }
}

/// The rows `start..end`, one batch each, of a group small enough for it.
fn read(reader: &mut RowReader, start: u64, end: u64) -> Result<Vec<impl PartialEq + Debug + use<>>> {
    reader.seek(start, end)?;
    let mut rows = Vec::new();
    let mut count = 0;
    for _ in 0..MOST {
        let Some(batch) = reader.next()? else {
            assert_eq!(count, end - start);
            break;
        };
        assert!((1..=BATCH_ROWS).contains(&batch.num_rows()));
        count += batch.num_rows() as u64;
        for column in batch.columns() {
            column.to_data().validate_full().expect("a column that holds together");
        }
        if end - start < 200 {
            // Lists are left out: where the levels of a damaged page lie, what a skip passes over is not what
            // would have been read.
            let fields = batch.schema();
            let is_flat = |i: &usize| !fields.field(*i).data_type().is_nested();
            let flat: Vec<usize> = (0..batch.num_columns()).filter(is_flat).collect();
            let batch = batch.project(&flat).expect("columns that it has");
            rows.extend((0..batch.num_rows()).map(|row| batch.slice(row, 1)));
        }
    }
    Ok(rows)
}
