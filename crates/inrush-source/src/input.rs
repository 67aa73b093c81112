use crate::compression::Decompressor;
use crate::identity::open_error;
use crate::{Compression, Identity, InputKind, InputSpec, platform};
use inrush_core::{Code, Error, Limits, Position, Result};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of an input as it stands on disk that were read so far, for a progress bar on another thread.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Bytes so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}

/// An open input: its uncompressed bytes in order, and how far they were read.
///
/// A plain regular file is read by position, up to the length it had when it was opened. Anything else is a
/// stream.
pub struct Input {
    name: String,
    identity: Identity,
    compression: Compression,
    len: Option<u64>,
    consumed: Progress,
    /// Uncompressed offset of the next byte.
    position: u64,
    source: Source,
}

enum Source {
    Plain(File),
    Stream(Stream),
}

/// A stream with the bytes of it that were looked at before their time.
struct Stream {
    decoder: Decompressor,
    peeked: Vec<u8>,
    /// How many of `peeked` were read.
    read: usize,
    /// How the stream ended while it was peeked into, if it did.
    end: Option<Result<()>>,
}

/// Bytes peeked or skipped at a time.
const STEP: usize = 64 << 10;

impl Input {
    /// Opens an input and looks at its first bytes. For standard input and pipes this waits until 64 KiB
    /// have come or the writer is done.
    pub fn open(spec: &InputSpec, limits: &Limits) -> Result<Input> {
        let path = match &spec.kind {
            InputKind::Stdin => return Input::from_reader(&spec.name, Box::new(io::stdin()), limits),
            InputKind::Stream(path) => {
                let file = File::open(path).map_err(|e| open_error(&spec.name, &e))?;
                return Input::from_reader(&spec.name, Box::new(file), limits);
            }
            InputKind::File(path) => path,
        };
        let file = File::open(path).map_err(|e| open_error(&spec.name, &e))?;
        let metadata = file.metadata().map_err(|e| open_error(&spec.name, &e))?;
        if metadata.is_dir() {
            return Err(Error::new(Code::SourceOpen, "it is a directory").at(Position::source(&spec.name)));
        }
        let identity = Identity::of_file(&file, &metadata, path)?;
        let head = read_head(&spec.name, &mut (&file).take(Identity::HEAD as u64))?;
        let compression = Compression::detect(&head);
        let consumed = Progress::default();
        let source = if compression == Compression::None {
            platform::will_read_in_order(&file);
            Source::Plain(file)
        } else {
            let raw = Box::new(io::Cursor::new(head).chain(file));
            Source::Stream(Stream::new(Decompressor::new(
                &spec.name,
                compression,
                raw,
                consumed.clone(),
                limits,
            )?))
        };
        Ok(Input {
            name: spec.name.clone(),
            identity,
            compression,
            len: Some(metadata.len()),
            consumed,
            position: 0,
            source,
        })
    }

    /// An input that cannot be read again: standard input, a pipe, anything that gives bytes. `name` is how
    /// messages call it.
    pub fn from_reader(name: &str, mut reader: Box<dyn Read + Send>, limits: &Limits) -> Result<Input> {
        let head = read_head(name, &mut (&mut reader).take(Identity::HEAD as u64))?;
        let compression = Compression::detect(&head);
        let identity = Identity::of_stream(name, &head);
        let consumed = Progress::default();
        // A head that came short is the whole input; asking a terminal again would wait for a second Ctrl-D.
        let rest = if head.len() < Identity::HEAD { Box::new(io::empty()) } else { reader };
        let raw = Box::new(io::Cursor::new(head).chain(rest));
        let decoder = Decompressor::new(name, compression, raw, consumed.clone(), limits)?;
        Ok(Input {
            name: name.to_owned(),
            identity,
            compression,
            len: None,
            consumed,
            position: 0,
            source: Source::Stream(Stream::new(decoder)),
        })
    }

    /// How messages call the input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was when it was opened.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How it is compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Whether it is a plain regular file: ranges of it can be skipped without reading and read again.
    pub fn is_seekable(&self) -> bool {
        matches!(self.source, Source::Plain(_))
    }

    /// Its length in bytes as it stands on disk, compressed if it is; `None` for a stream.
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// Whether it is a file without a byte in it.
    pub fn is_empty(&self) -> bool {
        self.len == Some(0)
    }

    /// Bytes as they stand on disk that were read so far; compare with [`Input::len`].
    pub fn consumed(&self) -> Progress {
        self.consumed.clone()
    }

    /// Uncompressed offset of the next byte that [`Input::read`] gives.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next `n` bytes, fewer if the input ends (or fails: [`Input::read`] says how) before that. Does not
    /// move on.
    pub fn peek(&mut self, n: usize) -> Result<Vec<u8>> {
        match &mut self.source {
            Source::Plain(file) => {
                let left = self.len.unwrap_or(0).saturating_sub(self.position);
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(n);
                let mut bytes = vec![0; n];
                let mut filled = 0;
                while filled < n {
                    match read_at(&self.name, file, &mut bytes[filled..], self.position + filled as u64)? {
                        0 => break,
                        got => filled += got,
                    }
                }
                bytes.truncate(filled);
                Ok(bytes)
            }
            Source::Stream(stream) => {
                stream.fill(n);
                let ahead = &stream.peeked[stream.read..];
                Ok(ahead[..ahead.len().min(n)].to_vec())
            }
        }
    }

    /// Reads some bytes, at least one unless the input is at its end or `buf` is empty.
    ///
    /// Fails with [`Code::SourceChanged`] if a plain file ends before the length it had when opened.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let n = match &mut self.source {
            Source::Plain(file) => {
                let len = self.len.unwrap_or(0);
                let left = usize::try_from(len.saturating_sub(self.position)).unwrap_or(usize::MAX);
                let want = left.min(buf.len());
                if want == 0 {
                    return Ok(0);
                }
                let n = read_at(&self.name, file, &mut buf[..want], self.position)?;
                if n == 0 {
                    return Err(Error::new(
                        Code::SourceChanged,
                        format!("the file became shorter while it was read: it had {len} bytes"),
                    )
                    .at(at(&self.name, self.position))
                    .hint("Load files that are not written to any more."));
                }
                self.consumed.set(self.position + n as u64);
                n
            }
            Source::Stream(stream) => stream.read(buf)?,
        };
        self.position += n as u64;
        Ok(n)
    }

    /// Moves forward to uncompressed offset `to`: at no cost in a plain file, by reading in a stream.
    /// Fails with [`Code::SourceChanged`] if the input ends before that.
    pub(crate) fn skip_to(&mut self, to: u64) -> Result<()> {
        debug_assert!(to >= self.position);
        let too_short = |position| {
            Error::new(
                Code::SourceChanged,
                format!("the input ends before byte {to}, up to which it was loaded before"),
            )
            .at(position)
            .hint("Resume with the same input, or load this one as a new load with --again.")
        };
        if self.is_seekable() {
            if self.len.is_none_or(|len| to > len) {
                return Err(too_short(at(&self.name, self.len.unwrap_or(0))));
            }
            self.position = to;
            self.consumed.set(to);
            return Ok(());
        }
        let mut scratch = vec![0; STEP];
        while self.position < to {
            let want = usize::try_from(to - self.position).unwrap_or(usize::MAX).min(STEP);
            if self.read(&mut scratch[..want])? == 0 {
                return Err(too_short(at(&self.name, self.position)));
            }
        }
        Ok(())
    }

    /// Fails if peeking came upon an error, which [`Input::read`] would only tell after the bytes before it.
    pub(crate) fn failure(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Stream(stream) if matches!(stream.end, Some(Err(_))) => {
                stream.end.take().unwrap_or(Ok(()))
            }
            _ => Ok(()),
        }
    }

    /// Reads to the end and says how many bytes that were.
    pub(crate) fn drain(&mut self) -> Result<u64> {
        let from = self.position;
        match (&self.source, self.len) {
            (Source::Plain(_), Some(len)) => self.position = self.position.max(len),
            _ => {
                let mut scratch = vec![0; STEP];
                while self.read(&mut scratch)? > 0 {}
            }
        }
        Ok(self.position - from)
    }

    /// A position in this input.
    pub(crate) fn at(&self, byte: u64) -> Position {
        at(&self.name, byte)
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("name", &self.name)
            .field("compression", &self.compression)
            .field("len", &self.len)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Stream {
    fn new(decoder: Decompressor) -> Stream {
        Stream { decoder, peeked: Vec::new(), read: 0, end: None }
    }

    /// Peeks until `n` unread bytes are there, or the stream has ended.
    fn fill(&mut self, n: usize) {
        if self.read == self.peeked.len() {
            self.peeked.clear();
            self.read = 0;
        }
        while self.peeked.len() - self.read < n && self.end.is_none() {
            let from = self.peeked.len();
            self.peeked.resize(from + STEP, 0);
            let outcome = self.decoder.read(&mut self.peeked[from..]);
            self.peeked.truncate(from + outcome.as_ref().copied().unwrap_or(0));
            match outcome {
                Ok(0) => self.end = Some(Ok(())),
                Ok(_) => {}
                Err(error) => self.end = Some(Err(error)),
            }
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if self.read < self.peeked.len() {
            let n = buf.len().min(self.peeked.len() - self.read);
            buf[..n].copy_from_slice(&self.peeked[self.read..self.read + n]);
            self.read += n;
            if self.read == self.peeked.len() {
                self.peeked = Vec::new();
                self.read = 0;
            }
            return Ok(n);
        }
        match self.end.take() {
            None => self.decoder.read(buf),
            Some(Ok(())) => {
                self.end = Some(Ok(()));
                Ok(0)
            }
            // Told in full once; whoever reads on asks the decoder, which fails again.
            Some(Err(error)) => Err(error),
        }
    }
}

fn at(name: &str, byte: u64) -> Position {
    let mut position = Position::source(name);
    position.byte = Some(byte);
    position
}

fn read_head(name: &str, reader: &mut dyn Read) -> Result<Vec<u8>> {
    let mut head = Vec::with_capacity(Identity::HEAD);
    reader.read_to_end(&mut head).map_err(|e| read_error(name, 0, &e))?;
    Ok(head)
}

fn read_error(name: &str, byte: u64, error: &io::Error) -> Error {
    Error::new(Code::SourceRead, format!("could not read: {}", crate::identity::lowercase_io(error)))
        .at(at(name, byte))
}

/// One positioned read of some bytes, asked again where a signal interrupted it.
pub(crate) fn read_at(name: &str, file: &File, buf: &mut [u8], offset: u64) -> Result<usize> {
    loop {
        match platform::read_at(file, buf, offset) {
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(read_error(name, offset, &e)),
        }
    }
}
