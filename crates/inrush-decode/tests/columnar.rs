//! Damaged Parquet and Arrow inputs, byte by byte: whatever a file holds, reading it ends, with its rows or
//! with an error of the file, and never with a panic of ours.
#![cfg(feature = "columnar")]

use arrow_array::{Array, Int64Array, ListArray, RecordBatch, StringArray, types::Int32Type};
use inrush_core::{Code, Result};
use inrush_decode::columnar::{ArrowStream, Kind, ReadAt, RowFile, RowReader};
use std::sync::Arc;

struct Memory(Vec<u8>);

impl ReadAt for Memory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let from = usize::try_from(offset).map_or(self.0.len(), |at| at.min(self.0.len()));
        let n = buf.len().min(self.0.len() - from);
        buf[..n].copy_from_slice(&self.0[from..from + n]);
        Ok(n)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// All rows of an input, read in spans of 30.
fn read(bytes: &[u8]) -> Result<u64> {
    let mut rows = 0;
    if Kind::detect(bytes) == Some(Kind::ArrowStream) {
        let mut stream = ArrowStream::new("x", bytes)?;
        while let Some(batch) = stream.next()? {
            rows += batch.num_rows() as u64;
        }
        return Ok(rows);
    }
    let file = Arc::new(RowFile::open("x", Arc::new(Memory(bytes.to_vec())))?);
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut reader = RowReader::new(&file, &columns)?;
    for group in file.groups() {
        let end = group.start + group.rows;
        for start in (group.start..end).step_by(30).take(100) {
            reader.seek(start, end.min(start + 30))?;
            while let Some(batch) = reader.next()? {
                assert!(batch.num_rows() > 0);
                rows += batch.num_rows() as u64;
            }
        }
    }
    Ok(rows)
}

fn batch() -> RecordBatch {
    let ids = Int64Array::from_iter((0..100).map(|i| (i % 7 != 0).then_some(i)));
    let texts = StringArray::from_iter_values((0..100).map(|i| format!("row {}", i % 5)));
    let lists =
        ListArray::from_iter_primitive::<Int32Type, _, _>((0..100).map(|i| Some(vec![Some(i), None])));
    RecordBatch::try_from_iter([
        ("id", Arc::new(ids) as Arc<dyn Array>),
        ("s", Arc::new(texts) as _),
        ("l", Arc::new(lists) as _),
    ])
    .expect("columns of equal length")
}

fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    let batch = batch();
    let mut parquet = Vec::new();
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(60))
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(&mut parquet, batch.schema(), Some(properties)).expect("writer");
    writer.write(&batch).expect("write");
    writer.close().expect("close");
    let zstd = arrow_ipc::writer::IpcWriteOptions::default()
        .try_with_compression(Some(arrow_ipc::CompressionType::ZSTD))
        .expect("codec");
    let mut file = Vec::new();
    let mut writer = arrow_ipc::writer::FileWriter::try_new_with_options(&mut file, &batch.schema(), zstd)
        .expect("writer");
    writer.write(&batch).expect("write");
    writer.finish().expect("finish");
    drop(writer);
    let mut stream = Vec::new();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(&mut stream, &batch.schema()).expect("writer");
    writer.write(&batch).expect("write");
    writer.write(&batch.slice(0, 0)).expect("write");
    writer.write(&batch).expect("write");
    writer.finish().expect("finish");
    drop(writer);
    vec![("parquet", parquet), ("arrow", file), ("stream", stream)]
}

#[test]
fn whole_inputs_are_read_whole() {
    for (name, bytes) in inputs() {
        assert_eq!(read(&bytes).expect(name), if name == "stream" { 200 } else { 100 });
    }
}

#[test]
fn any_byte_changed_is_no_panic() {
    // The crates may panic; that is caught, and its noise is kept out of the test's output.
    std::panic::set_hook(Box::new(|_| ()));
    let mut caught = Vec::new();
    for (name, bytes) in inputs() {
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1] {
                let mut changed = bytes.clone();
                changed[at] = value;
                match std::panic::catch_unwind(|| read(&changed)) {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => {
                        if error.code() != Code::Format && error.code() != Code::Columns {
                            caught.push(format!("{name} byte {at} = {value}: {error}"));
                        }
                    }
                    Err(_) => caught.push(format!("{name} byte {at} = {value}: panic")),
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(caught.is_empty(), "{caught:#?}");
}

#[test]
fn cut_off_anywhere_is_an_error() {
    for (name, bytes) in inputs() {
        for keep in 0..bytes.len() {
            match read(&bytes[..keep]) {
                Err(error) => {
                    assert_eq!(error.code(), Code::Format, "{name} {keep}: {error}");
                    assert!(error.hint_text().is_some(), "{name} {keep}: {error}");
                }
                // A stream may end behind any of its messages.
                Ok(rows) => assert!(name == "stream" && rows % 100 == 0, "{name} {keep}"),
            }
        }
    }
}
