//! Parquet by way of the `parquet` crate.

use super::{BATCH_BYTES, BATCH_ROWS, Group, MAX_BLOCK_BYTES, ReadAt, broken, refused};
use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{ChunkReader, Length};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use inrush_core::{Error, Result};
use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// An open Parquet file.
pub(super) struct File {
    source: Source,
    metadata: ArrowReaderMetadata,
}

impl File {
    pub fn open(name: &str, source: Arc<dyn ReadAt>) -> Result<(File, SchemaRef, Vec<Group>)> {
        let source = Source { name: name.into(), bytes: source, failure: Arc::default() };
        let metadata = ArrowReaderMetadata::load(&source, ArrowReaderOptions::new());
        let metadata = metadata.map_err(|e| source.error(&e))?;
        // Views keep text where the page was decompressed instead of copying it; where the crate does not take
        // them, the columns stay as they are.
        let views = ArrowReaderOptions::new().with_schema(Arc::new(with_views(metadata.schema())));
        let metadata =
            ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), views).unwrap_or(metadata);
        let groups = groups(name, &metadata)?;
        let schema = Arc::clone(metadata.schema());
        Ok((File { source, metadata }, schema, groups))
    }

    pub fn reader(&self, columns: &[usize]) -> Reader {
        let schema = self.metadata.parquet_schema();
        Reader {
            source: self.source.clone(),
            metadata: self.metadata.clone(),
            columns: ProjectionMask::roots(schema, columns.iter().copied()),
            batches: None,
        }
    }
}

fn with_views(schema: &Schema) -> Schema {
    let fields: Vec<Arc<Field>> = schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View))
            }
            DataType::Binary | DataType::LargeBinary => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::BinaryView))
            }
            _ => Arc::clone(field),
        })
        .collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// The row groups that have rows. Their numbers in the file are found again by [`group_number`].
fn groups(name: &str, metadata: &ArrowReaderMetadata) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    let mut start = 0u64;
    for group in metadata.metadata().row_groups() {
        let (Ok(rows), Ok(bytes)) = (u64::try_from(group.num_rows()), u64::try_from(group.total_byte_size()))
        else {
            return Err(broken(name, "a row group has a negative size"));
        };
        // The ledger counts rows in 64 bits with a sign.
        let end = start.checked_add(rows).filter(|end| i64::try_from(*end).is_ok());
        let Some(end) = end else {
            return Err(broken(name, "its row groups have more rows than a file can hold"));
        };
        if rows > 0 {
            groups.push(Group { start, rows, bytes });
        }
        start = end;
    }
    Ok(groups)
}

/// The number in the file of the `at`-th row group that has rows.
fn group_number(metadata: &ArrowReaderMetadata, at: usize) -> Option<usize> {
    let groups = metadata.metadata().row_groups().iter().enumerate();
    groups.filter(|(_, group)| group.num_rows() > 0).nth(at).map(|(number, _)| number)
}

/// Reads the rows of one row group after another.
pub(super) struct Reader {
    source: Source,
    metadata: ArrowReaderMetadata,
    columns: ProjectionMask,
    batches: Option<ParquetRecordBatchReader>,
}

impl Reader {
    /// Goes to a row of the `at`-th group.
    pub fn seek(&mut self, at: usize, group: &Group, row: u64) -> Result<()> {
        self.batches = None;
        let number = group_number(&self.metadata, at)
            .ok_or_else(|| broken(&self.source.name, "a row group is missing"))?;
        let offset = usize::try_from(row - group.start)
            .map_err(|_| broken(&self.source.name, "a row group is larger than the address space"))?;
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.source.clone(), self.metadata.clone())
                .with_row_groups(vec![number])
                .with_projection(self.columns.clone())
                .with_batch_size(batch_rows(group))
                .with_offset(offset);
        self.batches = Some(builder.build().map_err(|e| self.source.error(&e))?);
        Ok(())
    }

    /// The next rows of the group, `None` at its end.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batches) = &mut self.batches else { return Ok(None) };
        batches.next().transpose().map_err(|e| self.source.error(&e))
    }
}

/// Rows of a batch, so that it has no more than about [`BATCH_BYTES`].
fn batch_rows(group: &Group) -> usize {
    let per_row = (group.bytes / group.rows.max(1)).max(1);
    usize::try_from(BATCH_BYTES / per_row).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS)
}

/// The file as the crate reads it. Its own reader of files moves a cursor that all lanes would share.
#[derive(Clone)]
struct Source {
    name: Arc<str>,
    bytes: Arc<dyn ReadAt>,
    /// Why the last read failed: the crate would only keep its words.
    failure: Arc<Mutex<Option<Error>>>,
}

/// Bytes of a buffer for page headers, which are read one after another with pages between them.
const HEADER_BUFFER: usize = 4 << 10;

impl Source {
    /// What an error of the crate means: our own if reading failed.
    fn error(&self, error: &dyn std::fmt::Display) -> Error {
        let own = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        own.unwrap_or_else(|| refused(&self.name, "parquet", error))
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes.read_at(buf, offset).map_err(|error| {
            let said = error.fact().to_owned();
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            io::Error::other(said)
        })
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.bytes.len()
    }
}

impl ChunkReader for Source {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::with_capacity(HEADER_BUFFER, From { source: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let there = start.checked_add(length as u64).is_some_and(|end| end <= self.bytes.len());
        if !there {
            return Err(ParquetError::EOF(format!("{length} bytes at byte {start} are beyond its end")));
        }
        if length as u64 > MAX_BLOCK_BYTES {
            return Err(ParquetError::General(format!(
                "a page of {length} bytes is larger than the limit of {MAX_BLOCK_BYTES}"
            )));
        }
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.read(&mut bytes[filled..], start + filled as u64)? {
                0 => return Err(ParquetError::EOF("it has become shorter".to_owned())),
                n => filled += n,
            }
        }
        Ok(Bytes::from(bytes))
    }
}

/// The bytes from a position on.
struct From {
    source: Source,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
