//! Columnar inputs: Parquet and Arrow IPC, as record batches of Arrow arrays.
//!
//! A Parquet file or an Arrow file tells where its rows are, so any range of rows can be read at any time
//! and from any lane: [`RowFile`] knows the layout, a [`RowReader`] (one per lane) reads. An Arrow stream is
//! read from front to end: [`ArrowStream`]. This module does no I/O of its own: bytes come through [`ReadAt`]
//! or [`std::io::Read`].
//!
//! # Memory
//! What a lane holds of a Parquet file: for each column that is loaded the dictionary and one page, each
//! compressed and not, and one batch of at most [`BATCH_ROWS`] rows and about [`BATCH_BYTES`]. Row groups
//! are never held whole, so their size does not matter; a page or dictionary of more than
//! [`MAX_BLOCK_BYTES`] as stored is refused (decompressed, the format itself ends at 2 GiB). What a lane holds of an Arrow file or stream: one record batch as it was
//! written, compressed and not, and the dictionaries. A record batch of more than [`MAX_BLOCK_BYTES`] is refused.
//!
//! # Damaged files
//! The crates that read these formats check what they read. Sizes that a file merely declares are compared
//! with the file and with the limit before anything is allocated for them, and a panic in the crates is
//! caught and told as an error of the file.

mod arrow;
mod parquet;
mod types;

use ::arrow_array::RecordBatch;
use ::arrow_schema::{DataType, Schema, SchemaRef};
use inrush_core::{Code, Error, Excerpt, Position, Result};
use std::sync::Arc;

pub use arrow::ArrowStream;
pub use types::{base_type, sql_type};

/// Rows of one batch at most.
pub const BATCH_ROWS: usize = 8192;

/// Bytes that the rows of one batch of a Parquet file should not exceed; wide rows come in smaller batches.
pub const BATCH_BYTES: u64 = 8 << 20;

/// Bytes of one page or dictionary of a Parquet file, and of one record batch of Arrow, at most.
pub const MAX_BLOCK_BYTES: u64 = 1 << 30;

/// What a Parquet file starts with, and ends with.
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// What a Parquet file with an encrypted footer starts with.
const PARQUET_ENCRYPTED: &[u8] = b"PARE";

/// What an Arrow file starts with, and ends with.
const ARROW_MAGIC: &[u8] = b"ARROW1";

/// What a message of an Arrow stream starts with.
const ARROW_CONTINUATION: &[u8] = &[0xff; 4];

/// Bytes by position; shared by the lanes of a load.
pub trait ReadAt: Send + Sync {
    /// Fills `buf` from `offset` on, as far as there are bytes, and says how many came.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there is not a byte in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What an input with columns is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Parquet; needs a file.
    Parquet,
    /// Arrow IPC with a footer (also called Feather 2); needs a file.
    ArrowFile,
    /// Arrow IPC as it is sent; read from front to end.
    ArrowStream,
}

impl Kind {
    /// What begins with these bytes, of which eight suffice. `None`: none of them.
    pub fn detect(head: &[u8]) -> Option<Kind> {
        if head.starts_with(PARQUET_MAGIC) || head.starts_with(PARQUET_ENCRYPTED) {
            Some(Kind::Parquet)
        } else if head.starts_with(ARROW_MAGIC) {
            Some(Kind::ArrowFile)
        } else if head.starts_with(ARROW_CONTINUATION) {
            Some(Kind::ArrowStream)
        } else {
            None
        }
    }
}

/// Rows that are stored together: a row group of Parquet, a record batch of Arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Number of its first row in the file, from 0.
    pub start: u64,
    /// Rows in it.
    pub rows: u64,
    /// Bytes of it without compression, as the file says.
    pub bytes: u64,
}

/// A file whose rows can be read in any order.
pub struct RowFile {
    name: String,
    schema: SchemaRef,
    groups: Vec<Group>,
    rows: u64,
    format: FileFormat,
}

enum FileFormat {
    Parquet(parquet::File),
    Arrow(arrow::File),
}

impl RowFile {
    /// Reads what the file says about itself. `name` is how messages call it.
    ///
    /// Errors have the code [`Code::Format`] where the file is not what it should be.
    pub fn open(name: &str, source: Arc<dyn ReadAt>) -> Result<RowFile> {
        let mut head = [0; 8];
        let n = source.read_at(&mut head, 0)?;
        let (format, schema, groups) = match Kind::detect(&head[..n]) {
            Some(Kind::Parquet) if head.starts_with(PARQUET_ENCRYPTED) => {
                return Err(broken(name, "the footer is encrypted").hint("Decrypt the file first."));
            }
            Some(Kind::Parquet) => {
                let (file, schema, groups) = guarded(name, "parquet", || parquet::File::open(name, source))?;
                (FileFormat::Parquet(file), schema, groups)
            }
            Some(Kind::ArrowFile) => {
                let (file, schema, groups) = guarded(name, "arrow", || arrow::File::open(name, source))?;
                (FileFormat::Arrow(file), schema, groups)
            }
            Some(Kind::ArrowStream) => {
                return Err(Error::new(Code::Internal, "an Arrow stream cannot be read by position"));
            }
            None if source.is_empty() => {
                return Err(broken(name, "the file is empty")
                    .hint("A Parquet or Arrow file has a schema even where it has no rows."));
            }
            None => {
                return Err(broken(name, "it is neither a Parquet nor an Arrow file")
                    .hint("Leave --format out to have the format told by the content."));
            }
        };
        check_columns(name, &schema)?;
        let rows = groups.last().map_or(0, |g| g.start + g.rows);
        Ok(RowFile { name: name.to_owned(), schema, groups, rows, format })
    }

    /// The columns. Text and binary columns of Parquet are views ([`DataType::Utf8View`]).
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The groups in order, without gaps; none of them is empty.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Rows in all.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes in all without compression.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().fold(0, |sum, g| sum.saturating_add(g.bytes))
    }
}

impl std::fmt::Debug for RowFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowFile")
            .field("name", &self.name)
            .field("rows", &self.rows)
            .field("groups", &self.groups.len())
            .finish_non_exhaustive()
    }
}

/// Reads ranges of rows of a [`RowFile`]; each lane has its own. A range that begins where the last one
/// ended goes on with the decoders as they are.
pub struct RowReader {
    file: Arc<RowFile>,
    reader: FormatReader,
    /// Where the reader stands: next row, and the end of the range asked for.
    next: u64,
    end: u64,
    /// Rows behind the end of the last range that came in the same batch.
    left: Option<RecordBatch>,
}

enum FormatReader {
    Parquet(parquet::Reader),
    Arrow(arrow::Reader),
}

impl RowReader {
    /// A reader of the columns with these numbers, in ascending order; batches have no others.
    pub fn new(file: &Arc<RowFile>, columns: &[usize]) -> Result<RowReader> {
        debug_assert!(columns.is_sorted());
        let reader = guarded(&file.name, "columnar", || {
            Ok(match &file.format {
                FileFormat::Parquet(parquet) => FormatReader::Parquet(parquet.reader(columns)),
                FileFormat::Arrow(arrow) => FormatReader::Arrow(arrow.reader(columns)?),
            })
        })?;
        Ok(RowReader { file: Arc::clone(file), reader, next: 0, end: 0, left: None })
    }

    /// Goes to the rows `start..end`, which must lie in one group.
    pub fn seek(&mut self, start: u64, end: u64) -> Result<()> {
        let groups = &self.file.groups;
        let at = groups.partition_point(|g| g.start + g.rows <= start);
        let Some(group) =
            groups.get(at).filter(|g| g.start <= start && start < end && end <= g.start + g.rows)
        else {
            return Err(broken(&self.file.name, format!("rows {start} to {end} are not in one group of it"))
                .hint("The file has changed since the load of it began."));
        };
        let adjacent = self.end == start && self.next == start && start > group.start;
        self.end = end;
        if adjacent {
            return Ok(());
        }
        self.left = None;
        self.next = start;
        let (reader, file, group) = (&mut self.reader, &self.file, *group);
        guarded(&file.name, "columnar", || match reader {
            FormatReader::Parquet(reader) => reader.seek(at, &group, start),
            FormatReader::Arrow(reader) => reader.seek(at, start - group.start),
        })
    }

    /// The next rows of the range, at most [`BATCH_ROWS`]; `None` at its end.
    // Fallible, and not to be asked again after an error: no iterator.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let batch = match self.left.take() {
            Some(batch) => Some(batch),
            None => {
                let (reader, name) = (&mut self.reader, &self.file.name);
                guarded(name, "columnar", || match reader {
                    FormatReader::Parquet(reader) => reader.next(),
                    FormatReader::Arrow(reader) => reader.next(),
                })?
            }
        };
        let Some(batch) = batch.filter(|b| b.num_rows() > 0) else {
            return Err(broken(
                &self.file.name,
                format!("it has no row {}, of {} that its metadata tell", self.next + 1, self.file.rows),
            ));
        };
        let wanted = usize::try_from(self.end - self.next).unwrap_or(usize::MAX).min(BATCH_ROWS);
        let batch = if batch.num_rows() > wanted {
            self.left = Some(batch.slice(wanted, batch.num_rows() - wanted));
            batch.slice(0, wanted)
        } else {
            batch
        };
        self.next += batch.num_rows() as u64;
        Ok(Some(batch))
    }
}

/// An error of the file as a whole.
fn broken(name: &str, fact: impl Into<String>) -> Error {
    Error::new(Code::Format, fact).at(Position::source(name))
}

/// An error of the crates that read the format: their words, cut as all that may hold user data.
fn refused(name: &str, format: &str, error: &dyn std::fmt::Display) -> Error {
    broken(name, format!("not a valid {format} file: {}", Excerpt(error.to_string().as_bytes())))
        .hint("The file is damaged or was not written to its end; have it written again.")
}

/// Runs code of the crates that read the formats. None of what a file holds should make them panic, but some
/// of it has; a load must end with a message about the file then. What they leave behind is not used again:
/// the error ends the load.
fn guarded<T>(name: &str, format: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("the reader panicked");
        Err(refused(name, format, &said))
    })
}

/// Refuses column types that no route to the server exists for, and files without columns.
fn check_columns(name: &str, schema: &Schema) -> Result<()> {
    if schema.fields().is_empty() {
        return Err(broken(name, "it has no columns"));
    }
    for field in schema.fields() {
        if let Some(odd) = unsupported(field.data_type()) {
            return Err(Error::new(
                Code::Columns,
                format!(
                    "field {:?} has the type {odd}, which has no counterpart in PostgreSQL",
                    field.name()
                ),
            )
            .at(Position::source(name))
            .hint("Write the file without this field, or with another type for it."));
        }
    }
    Ok(())
}

/// The first part of a type that cannot be loaded, in words.
fn unsupported(ty: &DataType) -> Option<&'static str> {
    match ty {
        DataType::Union(..) => Some("union"),
        DataType::RunEndEncoded(..) => Some("run-end encoded"),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => unsupported(field.data_type()),
        DataType::Struct(fields) => fields.iter().find_map(|field| unsupported(field.data_type())),
        DataType::Dictionary(_, values) => unsupported(values),
        _ => None,
    }
}
