//! LZ4 frames. Written out here because `lz4_flex`'s own frame decoder takes a file cut off between two
//! blocks for a complete one, which would lose rows without a word.
//!
//! Format: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md>.

use lz4_flex::block::{decompress_into, decompress_into_with_dict};
use std::io::{self, BufRead, Read};
use xxhash_rust::xxh32::{Xxh32, xxh32};

/// How far back a block may refer to the blocks before it.
const WINDOW: usize = 64 << 10;

/// The uncompressed bytes of any number of LZ4 frames, one after the other.
pub(crate) struct FrameReader<R> {
    raw: R,
    frame: Option<Frame>,
    /// The window of earlier blocks, then the current block.
    out: Vec<u8>,
    /// Bytes of the current block that were not given out yet.
    ready: std::ops::Range<usize>,
    packed: Vec<u8>,
}

struct Frame {
    block_max: usize,
    linked: bool,
    block_checksums: bool,
    content_checksum: Option<Xxh32>,
    content_left: Option<u64>,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<R: BufRead> FrameReader<R> {
    pub fn new(raw: R) -> FrameReader<R> {
        FrameReader { raw, frame: None, out: Vec::new(), ready: 0..0, packed: Vec::new() }
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.raw.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads the header of the next frame; `None` at the end of the input.
    fn begin(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if self.raw.fill_buf()?.is_empty() {
                return Ok(None);
            }
            match self.u32()? {
                0x184d_2204 => return self.header().map(Some),
                0x184d_2a50..=0x184d_2a5f => {
                    let len = u64::from(self.u32()?);
                    if io::copy(&mut (&mut self.raw).take(len), &mut io::sink())? < len {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                _ => return Err(damaged("no frame begins here")),
            }
        }
    }

    fn header(&mut self) -> io::Result<Frame> {
        let [flags, sizes] = self.array()?;
        let mut descriptor = vec![flags, sizes];
        if flags >> 6 != 1 || flags & 0b10 != 0 || sizes & 0b1000_1111 != 0 {
            return Err(damaged("unknown version or flags of a frame"));
        }
        let content_left = if flags & 0b1000 != 0 {
            let bytes: [u8; 8] = self.array()?;
            descriptor.extend(bytes);
            Some(u64::from_le_bytes(bytes))
        } else {
            None
        };
        let dictionary = flags & 0b1 != 0;
        if dictionary {
            descriptor.extend(self.array::<4>()?);
        }
        let [checksum] = self.array()?;
        if (xxh32(&descriptor, 0) >> 8) & 0xff != u32::from(checksum) {
            return Err(damaged("wrong checksum of a frame header"));
        }
        if dictionary {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the frame needs a dictionary"));
        }
        let block_max = match sizes >> 4 {
            4 => 64 << 10,
            5 => 256 << 10,
            6 => 1 << 20,
            7 => 4 << 20,
            _ => return Err(damaged("unknown block size of a frame")),
        };
        self.out.clear();
        Ok(Frame {
            block_max,
            linked: flags & 0b10_0000 == 0,
            block_checksums: flags & 0b1_0000 != 0,
            content_checksum: (flags & 0b100 != 0).then(|| Xxh32::new(0)),
            content_left,
        })
    }

    /// Reads the next block of `frame` into `out`; false after the last.
    fn block(&mut self, frame: &mut Frame) -> io::Result<bool> {
        let word = self.u32()?;
        if word == 0 {
            if frame.content_left.is_some_and(|left| left != 0) {
                return Err(damaged("a frame is shorter than its header says"));
            }
            if let Some(hash) = &frame.content_checksum
                && self.u32()? != hash.digest()
            {
                return Err(damaged("wrong checksum of a frame"));
            }
            return Ok(false);
        }
        let (stored, len) = (word >> 31 != 0, (word & 0x7fff_ffff) as usize);
        if len > frame.block_max {
            return Err(damaged("a block is larger than its frame allows"));
        }
        self.packed.resize(len, 0);
        self.raw.read_exact(&mut self.packed)?;
        if frame.block_checksums && self.u32()? != xxh32(&self.packed, 0) {
            return Err(damaged("wrong checksum of a block"));
        }
        // Keep what later blocks may refer to, at the front.
        let window = if frame.linked { self.out.len().min(WINDOW) } else { 0 };
        self.out.drain(..self.out.len() - window);
        self.out.resize(window + frame.block_max, 0);
        let (dictionary, block) = self.out.split_at_mut(window);
        let len = if stored {
            block[..len].copy_from_slice(&self.packed);
            len
        } else if window > 0 {
            decompress_into_with_dict(&self.packed, block, dictionary).map_err(|e| damaged(&e.to_string()))?
        } else {
            decompress_into(&self.packed, block).map_err(|e| damaged(&e.to_string()))?
        };
        self.out.truncate(window + len);
        self.ready = window..window + len;
        let block = &self.out[self.ready.clone()];
        if let Some(hash) = &mut frame.content_checksum {
            hash.update(block);
        }
        if let Some(left) = &mut frame.content_left {
            *left = left
                .checked_sub(len as u64)
                .ok_or_else(|| damaged("a frame is longer than its header says"))?;
        }
        Ok(true)
    }
}

impl<R: BufRead> Read for FrameReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.begin()? {
                    Some(frame) => frame,
                    None => return Ok(0),
                },
            };
            if self.block(&mut frame)? {
                self.frame = Some(frame);
            }
        }
        let n = self.ready.len().min(buf.len());
        buf[..n].copy_from_slice(&self.out[self.ready.start..self.ready.start + n]);
        self.ready.start += n;
        Ok(n)
    }
}
