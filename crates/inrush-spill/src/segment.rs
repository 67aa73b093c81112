//! Bytes of a segment file: docs/spill.md is the description, this the code.

use crc32fast::Hasher;

/// Bytes in front of the records of a segment.
pub(crate) const HEADER: u64 = 64;
/// Bytes in front of meta and bytes of a record.
pub(crate) const RECORD: usize = 32;
/// The longest meta, and the most bytes, that a record may have: as the limit on records everywhere
/// (Limits::MAX_RECORD_CEILING), so that lengths fit 32 bits.
pub(crate) const MAX_PART: usize = 1 << 30;

const MAGIC: &[u8; 8] = b"INRSPILL";
const VERSION: u32 = 1;

/// What a segment's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Position of its first byte, which is the header's.
    pub(crate) first: u64,
    /// Random, and part of every checksum: bytes that were not written as a record of this segment, but are
    /// those of a record (a user may send us a segment), do not pass for one.
    pub(crate) salt: u64,
    /// The log it belongs to.
    pub(crate) id: [u8; 16],
}

impl Segment {
    pub(crate) fn encode(&self) -> [u8; HEADER as usize] {
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.first.to_le_bytes());
        header[24..32].copy_from_slice(&self.salt.to_le_bytes());
        header[32..48].copy_from_slice(&self.id);
        let crc = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    pub(crate) fn decode(header: &[u8; HEADER as usize]) -> Result<Segment, &'static str> {
        if &header[..8] != MAGIC {
            return Err("it is no segment of a spill log");
        }
        if word(&header[60..]) != crc32fast::hash(&header[..60]) {
            return Err("its header is damaged");
        }
        if word(&header[8..]) != VERSION {
            return Err("it is of a version that this Inrush does not know");
        }
        let mut id = [0; 16];
        id.copy_from_slice(&header[32..48]);
        Ok(Segment { first: long(&header[16..]), salt: long(&header[24..]), id })
    }
}

/// What stands in front of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) meta: u32,
    pub(crate) bytes: u32,
    /// Microseconds since 1970.
    pub(crate) time: i64,
    /// Everything below this position was on disk when the record was appended.
    pub(crate) synced: u64,
    /// Checksum of meta and bytes.
    pub(crate) body: u32,
}

impl Record {
    /// Its bytes in the file.
    pub(crate) fn len(&self) -> u64 {
        RECORD as u64 + u64::from(self.meta) + u64::from(self.bytes)
    }

    pub(crate) fn encode(&self, salt: u64, position: u64) -> [u8; RECORD] {
        let mut header = [0; RECORD];
        header[..4].copy_from_slice(&self.meta.to_le_bytes());
        header[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        header[8..16].copy_from_slice(&self.time.to_le_bytes());
        header[16..24].copy_from_slice(&self.synced.to_le_bytes());
        header[24..28].copy_from_slice(&self.body.to_le_bytes());
        let crc = header_crc(&header, salt, position);
        header[28..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// `None` if these bytes are no record's header at this position.
    pub(crate) fn decode(header: &[u8; RECORD], salt: u64, position: u64) -> Option<Record> {
        let synced = long(&header[16..]);
        // Cheaper than the checksum, and the search behind a damage asks at every byte.
        if synced > position || word(&header[28..]) != header_crc(header, salt, position) {
            return None;
        }
        let time = long(&header[8..]).cast_signed();
        Some(Record {
            meta: word(header),
            bytes: word(&header[4..]),
            time,
            synced,
            body: word(&header[24..]),
        })
    }
}

fn header_crc(header: &[u8; RECORD], salt: u64, position: u64) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&position.to_le_bytes());
    hasher.update(&header[..28]);
    hasher.finalize()
}

/// The checksum of a record's content.
pub(crate) fn body_crc(meta: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(meta);
    hasher.update(bytes);
    hasher.finalize()
}

/// The first four bytes as a number. Callers have them.
fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
