use crate::input::Progress;
use inrush_core::{Code, Error, Limits, Position, Result};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How an input is compressed. Told by its first bytes; the name of the file is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip: RFC 1952, any number of members; bgzip is this.
    Gzip,
    /// Zstandard: RFC 8878, any number of frames.
    Zstd,
    /// LZ4 frames, any number of them.
    Lz4,
    /// bzip2, any number of streams.
    Bzip2,
    /// xz, any number of streams.
    Xz,
}

impl Compression {
    /// The name used in messages and reports.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }

    /// The compression of an input that begins with `head`, of which some tens of bytes suffice.
    pub fn detect(head: &[u8]) -> Compression {
        // zstd and lz4 share the magic numbers of frames to be skipped; both write them in front (pzstd does),
        // so what comes after them decides.
        let mut rest = head;
        while let Some(&[magic @ 0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d]) = rest.first_chunk() {
            let _ = magic;
            let len = u32::from_le_bytes([a, b, c, d]) as usize;
            match rest.get(8..).and_then(|r| r.get(len..)) {
                Some(after) => rest = after,
                None => return Compression::Zstd,
            }
        }
        let skipped = rest.len() < head.len();
        match rest {
            [0x04, 0x22, 0x4d, 0x18, ..] => Compression::Lz4,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            _ if skipped => Compression::Zstd,
            [0x1f, 0x8b, 0x08, ..] => Compression::Gzip,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..] => Compression::Bzip2,
            // The end of an empty stream.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Compression::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0x00, ..] => Compression::Xz,
            _ => Compression::None,
        }
    }
}

/// The compressed side of a decoder: counts what the decoder took, and remembers whether an error came from
/// here rather than from the decoder.
struct Counted {
    inner: BufReader<Box<dyn Read + Send>>,
    consumed: Progress,
    failed: Arc<AtomicBool>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut available = self.fill_buf()?;
        let n = available.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let failed = &self.failed;
        self.inner.fill_buf().inspect_err(|e| {
            if e.kind() != io::ErrorKind::Interrupted {
                failed.store(true, Ordering::Relaxed);
            }
        })
    }

    fn consume(&mut self, n: usize) {
        self.inner.consume(n);
        self.consumed.add(n as u64);
    }
}

/// Uncompressed bytes of a compressed stream.
pub(crate) struct Decompressor {
    decoder: Box<dyn Read + Send>,
    compression: Compression,
    name: String,
    consumed: Progress,
    raw_failed: Arc<AtomicBool>,
    out: u64,
    max_ratio: u64,
    /// Decoders do not promise to fail again when asked again, and an end would look like a whole input.
    failed: bool,
}

/// Bytes an input may expand to before the ratio is looked at.
const RATIO_FREE: u64 = 1 << 30;

/// Read from the compressed file at a time.
const RAW_BUFFER: usize = 128 << 10;

/// The window a zstd frame may have, as a power of two: 128 MiB, what the zstd tool takes unless told
/// otherwise. The file says how much it is, so without a limit the file would decide about our memory.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Bytes of memory decoding xz may take, nearly all of it the dictionary, whose size the file says. `xz -9`
/// makes files that need 65 MiB.
const XZ_MEMORY: u64 = 256 << 20;

fn not_started(compression: Compression, error: &io::Error) -> Error {
    Error::new(Code::Internal, format!("could not start the {} decoder: {error}", compression.name()))
}

impl Decompressor {
    /// Reads `raw`, which is compressed with `compression`, counting what is taken from it in `consumed`.
    pub fn new(
        name: &str,
        compression: Compression,
        raw: Box<dyn Read + Send>,
        consumed: Progress,
        limits: &Limits,
    ) -> Result<Decompressor> {
        let raw_failed = Arc::new(AtomicBool::new(false));
        let raw = Counted {
            inner: BufReader::with_capacity(RAW_BUFFER, raw),
            consumed: consumed.clone(),
            failed: Arc::clone(&raw_failed),
        };
        let decoder: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(raw),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(raw)
                    .map_err(|e| not_started(compression, &e))?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(|e| not_started(compression, &e))?;
                Box::new(decoder)
            }
            Compression::Lz4 => Box::new(crate::lz4::FrameReader::new(raw)),
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(raw)),
            Compression::Xz => {
                let stream =
                    liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)
                        .map_err(|e| not_started(compression, &e.into()))?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(raw, stream))
            }
        };
        Ok(Decompressor {
            decoder,
            compression,
            name: name.to_owned(),
            consumed,
            raw_failed,
            out: 0,
            max_ratio: limits.max_ratio,
            failed: false,
        })
    }

    /// Reads some uncompressed bytes; 0 at the end. Once it has failed it always fails.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if self.failed {
            return Err(Error::new(Code::SourceRead, "reading went on after an error").at(self.position()));
        }
        let outcome = self.read_once(buf);
        self.failed = outcome.is_err();
        outcome
    }

    fn read_once(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = loop {
            match self.decoder.read(buf) {
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error(&e)),
            }
        };
        self.out += n as u64;
        if self.compression != Compression::None
            && self.out > RATIO_FREE
            && self.out / self.max_ratio.max(1) > self.consumed.get()
        {
            return Err(Error::new(
                Code::SourceCompression,
                format!(
                    "{} compressed bytes expanded to {}, more than max-ratio {} allows",
                    self.consumed.get(),
                    self.out,
                    self.max_ratio
                ),
            )
            .at(self.position())
            .hint("Raise --max-ratio if this input is meant to be that large."));
        }
        Ok(n)
    }

    fn position(&self) -> Position {
        let mut position = Position::source(&self.name);
        position.byte = Some(self.out);
        position
    }

    fn error(&self, error: &io::Error) -> Error {
        let what = crate::identity::lowercase_io(error);
        if self.compression == Compression::None || self.raw_failed.load(Ordering::Relaxed) {
            return Error::new(Code::SourceRead, format!("could not read: {what}")).at(self.position());
        }
        let name = self.compression.name();
        let at = self.consumed.get();
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Error::new(
                Code::SourceCompression,
                format!("the {name} data is cut off after {at} compressed bytes"),
            )
            .at(self.position())
            .hint("The file is incomplete: copy or compress it again, then run the same command.");
        }
        if let Some((limit, tool)) = self.memory_limit_hit(error) {
            return Error::new(
                Code::SourceCompression,
                format!("the {name} data asks for more than {limit} MiB of memory to be decompressed"),
            )
            .at(self.position())
            .hint(format!("Decompress it on the way: {tool} FILE | inrush load - ..."));
        }
        Error::new(
            Code::SourceCompression,
            format!("the {name} data is damaged near compressed byte {at}: {what}"),
        )
        .at(self.position())
        .hint(format!("Test the file with the {name} tool; copy or compress it again."))
    }

    /// If this is the error of a file that needs more memory than it may have: the limit in MiB, and the
    /// command that has none.
    fn memory_limit_hit(&self, error: &io::Error) -> Option<(u64, &'static str)> {
        match self.compression {
            Compression::Xz => {
                let cause = error.get_ref()?.downcast_ref::<liblzma::stream::Error>()?;
                (*cause == liblzma::stream::Error::MemLimit).then_some((XZ_MEMORY >> 20, "xz -dc"))
            }
            // The crate passes on the library's words (error_private.c) and nothing else.
            Compression::Zstd => error
                .to_string()
                .contains("requires too much memory")
                .then_some((1 << (ZSTD_WINDOW_LOG - 20), "zstd -dc --long=31")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_behind_skippable_frames() {
        let skip = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
        let then = |magic: &[u8]| Compression::detect(&[&skip[..], magic].concat());
        assert_eq!(then(&[0x04, 0x22, 0x4d, 0x18]), Compression::Lz4);
        assert_eq!(then(&[0x28, 0xb5, 0x2f, 0xfd]), Compression::Zstd);
        assert_eq!(Compression::detect(b"BZh9 is a name"), Compression::None);
        assert_eq!(Compression::detect(b""), Compression::None);
    }
}
