//! Arrow IPC, file and stream, by way of the `arrow-ipc` crate: it decodes the messages, which are found and
//! checked here, since it believes the sizes that compressed buffers declare.

use super::{Group, MAX_BLOCK_BYTES, ReadAt, broken, check_columns, guarded, refused};
use ::arrow_array::{ArrayRef, RecordBatch};
use ::arrow_buffer::Buffer;
use ::arrow_ipc::reader::{FileDecoder, read_dictionary, read_footer_length, read_record_batch};
use ::arrow_ipc::{Block, Message, MessageHeader, root_as_footer, root_as_message};
use ::arrow_schema::{ArrowError, SchemaRef};
use inrush_core::{Code, Error, Position, Result};
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

/// Bytes of the description of a message, and of a file's footer, at most.
const MAX_METADATA_BYTES: u64 = 64 << 20;

/// Rows of a record batch at most: arrays of more are not portable (Arrow columnar format, "Array lengths").
const MAX_BATCH_ROWS: u64 = 1 << 31;

/// Bytes read at a time from a stream: a message may declare more than ever comes.
const STEP: usize = 1 << 20;

/// An open Arrow file.
pub(super) struct File {
    source: Arc<dyn ReadAt>,
    name: Arc<str>,
    footer: Arc<Footer>,
}

/// What the footer says that is needed later.
struct Footer {
    schema: SchemaRef,
    version: ::arrow_ipc::MetadataVersion,
    dictionaries: Vec<Block>,
    /// Record batches that have rows.
    batches: Vec<Block>,
}

impl File {
    pub fn open(name: &str, source: Arc<dyn ReadAt>) -> Result<(File, SchemaRef, Vec<Group>)> {
        let name: Arc<str> = name.into();
        let mut footer = read_footer(&name, source.as_ref())?;
        let mut groups = Vec::new();
        let mut with_rows = Vec::new();
        let mut start = 0u64;
        for block in &footer.batches {
            let (rows, bytes) = batch_size(&name, source.as_ref(), block)?;
            if rows > 0 {
                groups.push(Group { start, rows, bytes });
                with_rows.push(*block);
            }
            start += rows;
        }
        footer.batches = with_rows;
        let schema = Arc::clone(&footer.schema);
        Ok((File { source, name, footer: Arc::new(footer) }, schema, groups))
    }

    /// A reader of these columns. It has read the dictionaries.
    pub fn reader(&self, columns: &[usize]) -> Result<Reader> {
        let mut decoder = FileDecoder::new(Arc::clone(&self.footer.schema), self.footer.version)
            .with_projection(columns.to_vec());
        for block in &self.footer.dictionaries {
            let bytes = read_block(&self.name, self.source.as_ref(), block)?;
            decoder.read_dictionary(block, &bytes).map_err(|e| refused(&self.name, "arrow", &e))?;
        }
        Ok(Reader {
            source: Arc::clone(&self.source),
            name: Arc::clone(&self.name),
            footer: Arc::clone(&self.footer),
            decoder,
            batch: None,
            next: 0,
        })
    }
}

fn damaged(name: &str, fact: impl Into<String>) -> Error {
    broken(name, fact).hint("The file is damaged or was not written to its end; have it written again.")
}

fn read_footer(name: &str, source: &dyn ReadAt) -> Result<Footer> {
    let len = source.len();
    let cut_off = || damaged(name, "the Arrow file is cut off: its footer is missing");
    let at = len.checked_sub(10).ok_or_else(cut_off)?;
    let trailer = read_exactly(name, source, at, 10)?.try_into().map_err(|_| cut_off())?;
    let footer_len = read_footer_length(trailer).map_err(|_| cut_off())? as u64;
    if footer_len > MAX_METADATA_BYTES || footer_len > at {
        return Err(damaged(name, format!("its footer declares {footer_len} bytes, more than there can be")));
    }
    let bytes = read_exactly(name, source, at - footer_len, footer_len)?;
    let footer = root_as_footer(&bytes).map_err(|e| refused(name, "arrow", &e))?;
    let schema = footer.schema().ok_or_else(|| damaged(name, "its footer has no schema"))?;
    check_byte_order(name, &schema)?;
    let schema = ::arrow_ipc::convert::try_fb_to_schema(schema).map_err(|e| refused(name, "arrow", &e))?;
    Ok(Footer {
        schema: Arc::new(schema),
        version: footer.version(),
        dictionaries: footer.dictionaries().map(|b| b.iter().copied().collect()).unwrap_or_default(),
        batches: footer.recordBatches().map(|b| b.iter().copied().collect()).unwrap_or_default(),
    })
}

/// Rows of the record batch of a block, and its bytes.
fn batch_size(name: &str, source: &dyn ReadAt, block: &Block) -> Result<(u64, u64)> {
    let (offset, metadata, body) = extent(name, source, block)?;
    let bytes = read_exactly(name, source, offset, metadata)?;
    let message = message(name, &bytes)?;
    let batch = message
        .header_as_record_batch()
        .ok_or_else(|| damaged(name, format!("there is no record batch at byte {offset}")))?;
    Ok((batch_rows(name, &batch)?, body))
}

/// Offset of a block, and the bytes of its two parts, which lie in the file and within the limit.
fn extent(name: &str, source: &dyn ReadAt, block: &Block) -> Result<(u64, u64, u64)> {
    let parts = (
        u64::try_from(block.offset()),
        u64::try_from(block.metaDataLength()),
        u64::try_from(block.bodyLength()),
    );
    let (Ok(offset), Ok(metadata), Ok(body)) = parts else {
        return Err(damaged(name, "its footer has a negative length"));
    };
    let end = offset.checked_add(metadata).and_then(|n| n.checked_add(body));
    if metadata > MAX_METADATA_BYTES || end.is_none_or(|end| end > source.len()) {
        return Err(damaged(name, format!("the block at byte {offset} reaches beyond the end of the file")));
    }
    if body > MAX_BLOCK_BYTES {
        return Err(too_large(name, body));
    }
    Ok((offset, metadata, body))
}

fn too_large(name: &str, bytes: u64) -> Error {
    broken(
        name,
        format!("a record batch has {bytes} bytes, more than the limit of {MAX_BLOCK_BYTES}, and has to be in memory as a whole"),
    )
    .hint("Write the file with smaller record batches (with pyarrow: write_table(..., max_chunksize=65536)).")
}

fn read_block(name: &str, source: &dyn ReadAt, block: &Block) -> Result<Buffer> {
    let (offset, metadata, body) = extent(name, source, block)?;
    let bytes = Buffer::from_vec(read_exactly(name, source, offset, metadata + body)?);
    // `extent` has compared both with limits that fit into memory.
    let (head, body) = bytes.split_at(usize::try_from(metadata).unwrap_or(bytes.len()));
    check_declared(name, &message(name, head)?, body)?;
    Ok(bytes)
}

/// The message that metadata hold, after a continuation mark and a length, or a length alone in old files.
fn message<'a>(name: &str, metadata: &'a [u8]) -> Result<Message<'a>> {
    let skip = if metadata.starts_with(super::ARROW_CONTINUATION) { 8 } else { 4 };
    let bytes = metadata.get(skip..).ok_or_else(|| damaged(name, "a message has no description"))?;
    root_as_message(bytes).map_err(|e| refused(name, "arrow", &e))
}

/// Compares the sizes that compressed buffers declare with the limit: memory is taken for them before they
/// are decompressed.
fn check_declared(name: &str, message: &Message<'_>, body: &[u8]) -> Result<()> {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|d| d.data()),
        _ => None,
    };
    let Some(batch) = batch.filter(|b| b.compression().is_some()) else { return Ok(()) };
    let mut sum = 0u64;
    for buffer in batch.buffers().iter().flatten() {
        let prefix = usize::try_from(buffer.offset()).ok().and_then(|at| body.get(at..)?.first_chunk::<8>());
        let Some(prefix) = prefix.filter(|_| buffer.length() > 0) else { continue };
        // -1 stands for a buffer that is not compressed; other negative ones are refused by the crate.
        sum = sum.saturating_add(u64::try_from(i64::from_le_bytes(*prefix)).unwrap_or_default());
    }
    if sum > MAX_BLOCK_BYTES { Err(too_large(name, sum)) } else { Ok(()) }
}

/// `len` bytes at `offset`, which the caller has compared with a limit and with the length of the file.
fn read_exactly(name: &str, source: &dyn ReadAt, offset: u64, len: u64) -> Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| damaged(name, "a part of it does not fit into memory"))?;
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match source.read_at(&mut bytes[filled..], offset + filled as u64)? {
            0 => return Err(damaged(name, format!("the file ends at byte {}", offset + filled as u64))),
            n => filled += n,
        }
    }
    Ok(bytes)
}

/// Reads one record batch after another; holds the one it is in.
pub(super) struct Reader {
    source: Arc<dyn ReadAt>,
    name: Arc<str>,
    footer: Arc<Footer>,
    decoder: FileDecoder,
    /// Number of the record batch that is held, and the batch.
    batch: Option<(usize, RecordBatch)>,
    /// The next row in it.
    next: usize,
}

impl Reader {
    /// Goes to a row of the `at`-th record batch that has rows. Other rows of the same batch cost nothing.
    pub fn seek(&mut self, at: usize, row: u64) -> Result<()> {
        if self.batch.as_ref().is_none_or(|(number, _)| *number != at) {
            // The old one is let go first: two would be in memory.
            self.batch = None;
            let block = self
                .footer
                .batches
                .get(at)
                .ok_or_else(|| damaged(&self.name, "a record batch is missing"))?;
            let bytes = read_block(&self.name, self.source.as_ref(), block)?;
            let batch = self.decoder.read_record_batch(block, &bytes);
            let batch = batch.map_err(|e| refused(&self.name, "arrow", &e))?;
            self.batch = batch.map(|batch| (at, batch));
        }
        self.next = usize::try_from(row).unwrap_or(usize::MAX);
        Ok(())
    }

    /// The rest of the batch, `None` at its end.
    // Fallible, and not to be asked again after an error: no iterator.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some((_, batch)) = &self.batch else { return Ok(None) };
        let left = batch.num_rows().saturating_sub(self.next);
        if left == 0 {
            return Ok(None);
        }
        let rest = batch.slice(self.next, left);
        self.next = batch.num_rows();
        Ok(Some(rest))
    }
}

/// An Arrow stream: record batches from front to end.
pub struct ArrowStream<R> {
    name: String,
    reader: R,
    schema: Option<SchemaRef>,
    /// By id; a later one replaces or extends an earlier one.
    dictionaries: HashMap<i64, ArrayRef>,
    /// Bytes taken so far.
    position: u64,
    ended: bool,
}

impl<R: Read> ArrowStream<R> {
    /// Reads the schema, which comes first. `name` is how messages call the input.
    pub fn new(name: &str, reader: R) -> Result<ArrowStream<R>> {
        let mut stream = ArrowStream {
            name: name.to_owned(),
            reader,
            schema: None,
            dictionaries: HashMap::new(),
            position: 0,
            ended: false,
        };
        stream.message()?;
        match &stream.schema {
            Some(schema) => check_columns(name, schema)?,
            None => return Err(damaged(name, "an Arrow stream begins with its schema, this one does not")),
        }
        Ok(stream)
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone().unwrap_or_else(|| Arc::new(::arrow_schema::Schema::empty()))
    }

    /// Bytes of the stream taken so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next record batch as it was written, perhaps without rows; `None` at the end of the stream.
    // Fallible, and not to be asked again after an error: no iterator.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        while !self.ended {
            if let Some(batch) = self.message()? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Takes one message; the batch if it is one.
    fn message(&mut self) -> Result<Option<RecordBatch>> {
        let Some(head) = self.head()? else {
            self.ended = true;
            return Ok(None);
        };
        let message = root_as_message(&head).map_err(|e| refused(&self.name, "arrow", &e))?;
        let len = u64::try_from(message.bodyLength())
            .map_err(|_| damaged(&self.name, "a message declares a body of negative length"))?;
        if len > MAX_BLOCK_BYTES {
            return Err(too_large(&self.name, len));
        }
        let mut body = Vec::new();
        if self.take(len, &mut body)? < len {
            return Err(self.cut_off());
        }
        check_declared(&self.name, &message, &body)?;
        let body = Buffer::from_vec(body);
        let (name, dictionaries, schema) = (&self.name, &mut self.dictionaries, &mut self.schema);
        guarded(name, "arrow", || decode(name, &message, &body, schema, dictionaries))
    }

    /// The description of the next message; `None` at the end of the stream.
    fn head(&mut self) -> Result<Option<Vec<u8>>> {
        let mut word = Vec::new();
        // A writer may also end the stream by closing it.
        if self.take(4, &mut word)? == 0 {
            return Ok(None);
        }
        if word == super::ARROW_CONTINUATION {
            word.clear();
            self.take(4, &mut word)?;
        }
        let len = u64::from(u32::from_le_bytes(word.try_into().map_err(|_| self.cut_off())?));
        if len > MAX_METADATA_BYTES {
            return Err(damaged(&self.name, format!("a message declares a description of {len} bytes")));
        }
        let mut head = Vec::new();
        if self.take(len, &mut head)? < len {
            return Err(self.cut_off());
        }
        Ok((len > 0).then_some(head))
    }

    /// Appends up to `len` bytes and says how many came. Memory grows with what comes.
    fn take(&mut self, len: u64, bytes: &mut Vec<u8>) -> Result<u64> {
        let mut got = 0;
        while got < len {
            let want = usize::try_from(len - got).unwrap_or(STEP).min(STEP);
            let from = bytes.len();
            bytes.resize(from + want, 0);
            let n = match self.reader.read(&mut bytes[from..]) {
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {
                    bytes.truncate(from);
                    continue;
                }
                Err(e) => {
                    return Err(Error::new(Code::SourceRead, format!("could not read: {e}"))
                        .at(Position::source(&self.name)));
                }
            };
            bytes.truncate(from + n);
            if n == 0 {
                break;
            }
            got += n as u64;
            self.position += n as u64;
        }
        Ok(got)
    }

    fn cut_off(&self) -> Error {
        let mut position = Position::source(&self.name);
        position.byte = Some(self.position);
        Error::new(Code::Format, "the Arrow stream ends inside a message")
            .at(position)
            .hint("The input is damaged or was not written to its end; have it written again.")
    }
}

/// Takes in a schema or a dictionary, or gives a record batch.
fn decode(
    name: &str,
    message: &Message<'_>,
    body: &Buffer,
    schema: &mut Option<SchemaRef>,
    dictionaries: &mut HashMap<i64, ArrayRef>,
) -> Result<Option<RecordBatch>> {
    let arrow = |e: ArrowError| refused(name, "arrow", &e);
    match (message.header_type(), schema) {
        (MessageHeader::Schema, schema @ None) => {
            let header = message.header_as_schema();
            let header = header.ok_or_else(|| damaged(name, "the message with the schema is empty"))?;
            check_byte_order(name, &header)?;
            *schema = Some(Arc::new(::arrow_ipc::convert::try_fb_to_schema(header).map_err(arrow)?));
            Ok(None)
        }
        (_, None) => Err(damaged(name, "an Arrow stream begins with its schema, this one does not")),
        (MessageHeader::DictionaryBatch, Some(schema)) => {
            let header = message.header_as_dictionary_batch();
            let header = header.ok_or_else(|| damaged(name, "a message with a dictionary is empty"))?;
            read_dictionary(body, header, schema, dictionaries, &message.version()).map_err(arrow)?;
            Ok(None)
        }
        (MessageHeader::RecordBatch, Some(schema)) => {
            let header = message.header_as_record_batch();
            let header = header.ok_or_else(|| damaged(name, "a message with a record batch is empty"))?;
            batch_rows(name, &header)?;
            let schema = Arc::clone(schema);
            let batch = read_record_batch(body, header, schema, dictionaries, None, &message.version());
            batch.map(Some).map_err(arrow)
        }
        (MessageHeader::NONE, _) => Ok(None),
        (other, _) => Err(damaged(name, format!("it has a message of type {other:?} among record batches"))),
    }
}

/// Rows of a record batch, compared with the limit.
fn batch_rows(name: &str, batch: &::arrow_ipc::RecordBatch<'_>) -> Result<u64> {
    let rows = u64::try_from(batch.length()).ok().filter(|rows| *rows < MAX_BATCH_ROWS);
    rows.ok_or_else(|| damaged(name, format!("a record batch declares {} rows", batch.length())))
}

fn check_byte_order(name: &str, schema: &::arrow_ipc::Schema<'_>) -> Result<()> {
    if schema.endianness().equals_to_target_endianness() {
        return Ok(());
    }
    Err(broken(name, "its numbers have another byte order than this machine's")
        .hint("Write the file again on a machine like this one."))
}
