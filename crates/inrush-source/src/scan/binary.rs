//! Tuples of COPY binary, found by their lengths (copyfromparse.c, ReceiveCopyBinaryHeader,
//! CopyReadBinaryAttribute and the binary branch of NextCopyFrom).

use super::Found;
use inrush_core::{Code, Error, Position, Result};

/// The eleven bytes that every COPY binary file begins with (BinarySignature in copyfromparse.c).
pub(crate) const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Bytes of the header without its extension: signature, flags, length of the extension.
pub(crate) const FIXED_HEADER: usize = 19;

/// How many bytes the header takes, extension included. `bytes` are the first [`FIXED_HEADER`] bytes of the
/// input, or fewer if there are no more.
pub(crate) fn header_len(bytes: &[u8]) -> Result<usize> {
    if bytes.len() < SIGNATURE.len() || &bytes[..SIGNATURE.len()] != SIGNATURE {
        return Err(Error::new(Code::Format, "COPY file signature not recognized").hint(
            "Check that the file was written by COPY ... (FORMAT binary), or state another --format.",
        ));
    }
    let (Some(flags), Some(extension)) = (int32(bytes, 11), int32(bytes, 15)) else {
        return Err(Error::new(Code::Format, "invalid COPY file header (missing length)"));
    };
    if flags & (1 << 16) != 0 {
        return Err(Error::new(Code::Format, "invalid COPY file header (WITH OIDS)").hint(
            "The file was written by PostgreSQL 11 or older with OIDs; export it again without them.",
        ));
    }
    if flags >> 16 != 0 {
        return Err(Error::new(Code::Format, "unrecognized critical flags in COPY file header"));
    }
    match usize::try_from(extension) {
        Ok(extension) => Ok(FIXED_HEADER + extension),
        Err(_) => Err(Error::new(Code::Format, "invalid COPY file header (wrong length)")),
    }
}

/// Where the framing is in the tuple that is not finished yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Framing {
    /// Next length to read, counted from the first byte of the buffer; may lie beyond what was read.
    next: u64,
    /// Fields of the tuple whose length was not read yet; `None` before the number of fields was read.
    fields_left: Option<u16>,
}

enum Step {
    /// More bytes are needed.
    Wait,
    /// A tuple ends before `next`.
    Tuple,
    /// The trailer was read.
    Trailer,
}

impl Framing {
    /// Reads on in `buffer` to the end of a tuple.
    fn step(&mut self, buffer: &[u8]) -> Result<Step> {
        loop {
            // The cast only loses anything beyond the buffer's end on 32-bit machines, and there `get` fails
            // on the saturated value just as well.
            let at = usize::try_from(self.next).unwrap_or(usize::MAX);
            match self.fields_left {
                None => {
                    let Some(count) = int16(buffer, at) else { return Ok(Step::Wait) };
                    self.next += 2;
                    match count {
                        -1 => return Ok(Step::Trailer),
                        count => match u16::try_from(count) {
                            Ok(count) => self.fields_left = Some(count),
                            Err(_) => return Err(bad_frame(at, format!("row field count is {count}"))),
                        },
                    }
                }
                Some(0) => {
                    if self.next > buffer.len() as u64 {
                        return Ok(Step::Wait);
                    }
                    self.fields_left = None;
                    return Ok(Step::Tuple);
                }
                Some(left) => {
                    let Some(len) = int32(buffer, at) else { return Ok(Step::Wait) };
                    self.next += 4;
                    match len {
                        -1 => {}
                        len => match u64::try_from(len) {
                            Ok(len) => self.next += len,
                            Err(_) => return Err(bad_frame(at, format!("invalid field size {len}"))),
                        },
                    }
                    self.fields_left = Some(left - 1);
                }
            }
        }
    }

    /// Reads all tuples that are complete in `buffer`.
    pub fn scan(&mut self, buffer: &[u8], found: &mut Found) -> Result<()> {
        loop {
            match self.step(buffer)? {
                Step::Wait => return Ok(()),
                // `next` is at most the buffer's length here.
                #[allow(clippy::cast_possible_truncation)]
                Step::Tuple => found.border(self.next as usize),
                Step::Trailer => {
                    found.stop = Some(found.last + 2);
                    return Ok(());
                }
            }
        }
    }

    /// One past the end of the first tuple that ends in `buffer`.
    pub fn first_border(mut self, buffer: &[u8]) -> Option<usize> {
        match self.step(buffer) {
            Ok(Step::Tuple) => usize::try_from(self.next).ok(),
            _ => None,
        }
    }

    /// How many of the `scanned` first bytes were read or belong to a field that was.
    pub fn parsed(&self, scanned: usize) -> usize {
        usize::try_from(self.next).unwrap_or(usize::MAX).min(scanned)
    }

    /// The buffer lost its first `by` bytes.
    pub fn shift(&mut self, by: usize) {
        self.next = self.next.saturating_sub(by as u64);
    }
}

fn bad_frame(at: usize, fact: String) -> Error {
    let position = Position { byte: Some(at as u64), ..Position::default() };
    Error::new(Code::Format, fact)
        .at(position)
        .hint("The file is damaged from here on: in COPY binary nothing tells where the next row begins.")
}

fn int16(bytes: &[u8], at: usize) -> Option<i16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(i16::from_be_bytes(*bytes))
}

fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(i32::from_be_bytes(*bytes))
}
