//! Blocks: a header of 64 bytes, then frames.

use super::crc::crc32c;
use super::layout::{FrameLayout, VERSION};
use std::ops::Range;

/// Bytes of a block's header: what a buffer of frames begins with.
pub const HEADER: usize = 64;

/// Bytes of frames that make a good block (docs/format-inrush.md, "A block").
pub const BLOCK: usize = 256 * 1024;

/// Bytes a payload has at most if it has more than one frame.
const MAX_PAYLOAD: usize = 1024 * 1024;

/// Bytes of the one frame of a payload at most.
pub(super) const MAX_SINGLE: usize = (1 << 30) - (64 << 10);

/// The flag of a block that has a CRC.
const FLAG_CRC: u8 = 1;

/// Makes blocks of frames.
#[derive(Debug, Clone)]
pub struct BlockWriter {
    /// What is the same in all headers.
    header: [u8; HEADER],
}

impl BlockWriter {
    /// For the frames of this layout, without CRC.
    #[allow(clippy::cast_possible_truncation)]
    pub fn new(layout: &FrameLayout) -> BlockWriter {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(b"INRU");
        header[4..6].copy_from_slice(&VERSION.to_le_bytes());
        header[8..16].copy_from_slice(&layout.fingerprint.to_le_bytes());
        // FrameLayout::parse has seen that there are not too many.
        header[24..26].copy_from_slice(&(layout.columns.len() as u16).to_le_bytes());
        header[26..28].copy_from_slice(&layout.block_size.to_le_bytes());
        header[28] = layout.max_align;
        BlockWriter { header }
    }

    /// Of its layout, as the server gave it.
    pub fn fingerprint(&self) -> u64 {
        self.header.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    /// With a CRC in every block. It finds flaws of ours and costs about as much time as encoding.
    #[must_use]
    pub fn with_crc(mut self) -> BlockWriter {
        self.header[6] = FLAG_CRC;
        self
    }

    /// The blocks of a buffer that [`super::FrameEncoder`] filled, none if it has no frame. Each is best sent
    /// as one CopyData message.
    ///
    /// Nothing is copied as long as the buffer is one block: at most 1 MiB, or a single frame.
    pub fn seal(&self, mut buffer: Vec<u8>) -> Vec<Vec<u8>> {
        let count = counted(&buffer);
        debug_assert_eq!(count, frames(&buffer).count());
        if count == 0 {
            return Vec::new();
        }
        if count > 1 && buffer.len() - HEADER > MAX_PAYLOAD {
            return self.cut(&buffer, 0..count);
        }
        self.fill_in(&mut buffer, count);
        vec![buffer]
    }

    /// Blocks of some of the frames of a buffer or of a block, counted from 0; what is beyond its end is left
    /// out. Copies them: for finding the row that a server refuses.
    pub fn cut(&self, buffer: &[u8], rows: Range<usize>) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        let (mut block, mut count) = (vec![0; HEADER], 0);
        for frame in frames(buffer).skip(rows.start).take(rows.len()) {
            if count > 0 && block.len() - HEADER + frame.len() >= BLOCK {
                self.fill_in(&mut block, count);
                blocks.push(std::mem::replace(&mut block, vec![0; HEADER]));
                count = 0;
            }
            block.resize(block.len().next_multiple_of(2), 0);
            block.extend_from_slice(&buffer[frame]);
            count += 1;
        }
        if count > 0 {
            self.fill_in(&mut block, count);
            blocks.push(block);
        }
        blocks
    }

    /// Writes the header of a block of so many frames.
    #[allow(clippy::cast_possible_truncation)]
    fn fill_in(&self, block: &mut [u8], count: usize) {
        let (header, payload) = block.split_at_mut(HEADER);
        header.copy_from_slice(&self.header);
        // Both fit: a frame is less than 1 GiB, and more frames than one are less than 1 MiB.
        header[COUNT].copy_from_slice(&(count as u32).to_le_bytes());
        header[20..24].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        if self.header[6] == FLAG_CRC {
            header[32..36].copy_from_slice(&crc32c(payload).to_le_bytes());
        }
    }
}

/// Where a header has the number of frames.
const COUNT: Range<usize> = 16..20;

/// The number of frames in a buffer or a block, by its header.
fn counted(buffer: &[u8]) -> usize {
    let count = buffer.get(COUNT).and_then(|bytes| bytes.first_chunk());
    count.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
}

/// Counts a frame that was appended to a buffer: in the room for the header, or all would have to be walked again.
#[inline]
pub(super) fn count_one(buffer: &mut [u8]) {
    if let Some(bytes) = buffer.get_mut(COUNT).and_then(|bytes| bytes.first_chunk_mut()) {
        *bytes = (u32::from_le_bytes(*bytes) + 1).to_le_bytes();
    }
}

/// Appends a frame that another buffer has to this one.
pub fn append_frame(buffer: &mut Vec<u8>, frame: &[u8]) {
    let start = buffer.len().max(HEADER).next_multiple_of(2);
    buffer.resize(start, 0);
    buffer.extend_from_slice(frame);
    count_one(buffer);
}

/// Where the frames of a buffer or of a block are in it, in order.
pub fn frames(buffer: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = HEADER;
    std::iter::from_fn(move || {
        let start = at.next_multiple_of(2);
        let word = |at: usize| buffer.get(at..)?.first_chunk::<2>().map(|two| u16::from_le_bytes(*two));
        at = match word(start)? {
            0 => start + 12 + u32::from_le_bytes(*buffer.get(start + 8..)?.first_chunk::<4>()?) as usize,
            datalen => start + 7 + usize::from(datalen),
        };
        Some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> FrameLayout {
        FrameLayout::parse(
            r#"{"version": 1, "refusal": null, "fingerprint": "0102030405060708", "encoding": "UTF8",
            "block_size": 8192, "max_align": 8, "toast_threshold": 2032, "columns": []}"#,
        )
        .expect("a plan")
    }

    /// A buffer with frames of these lengths, from 7 on.
    fn buffer(lengths: &[usize]) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        for (i, length) in lengths.iter().enumerate() {
            out.resize(out.len().next_multiple_of(2), 0);
            match u16::try_from(*length) {
                Ok(short) => out.extend_from_slice(&[&short.to_le_bytes()[..], &[9; 5]].concat()),
                Err(_) => {
                    out.extend_from_slice(&[0, 0, 9, 9, 9, 9, 9, 0]);
                    out.extend_from_slice(&u32::try_from(*length).expect("small").to_le_bytes());
                }
            }
            out.resize(out.len() + length, 1 + u8::try_from(i % 200).expect("small"));
            count_one(&mut out);
        }
        out
    }

    fn number(block: &[u8], at: usize) -> usize {
        u32::from_le_bytes(*block[at..].first_chunk().expect("within the header")) as usize
    }

    #[test]
    fn a_block_has_its_header() {
        let sealed = BlockWriter::new(&layout()).with_crc().seal(buffer(&[4, 1, 2]));
        let [block] = &sealed[..] else { panic!("{} blocks", sealed.len()) };
        let crc = crc32c(&block[HEADER..]).to_le_bytes();
        let mut expected = b"INRU\x01\0\x01\0\x08\x07\x06\x05\x04\x03\x02\x01".to_vec();
        expected.extend_from_slice(&[3, 0, 0, 0, 29, 0, 0, 0, 0, 0, 0, 32, 8, 0, 0, 0]);
        expected.extend_from_slice(&crc);
        expected.resize(HEADER, 0);
        assert_eq!(block[..HEADER], expected);
        assert_eq!(block.len(), HEADER + 29, "11, a zero, 8, 9");
        assert_eq!(frames(block).collect::<Vec<_>>(), [64..75, 76..84, 84..93]);
        assert!(BlockWriter::new(&layout()).seal(Vec::new()).is_empty());
        assert!(BlockWriter::new(&layout()).seal(buffer(&[])).is_empty());
    }

    #[test]
    fn rows_are_cut_out() {
        let writer = BlockWriter::new(&layout());
        let all = buffer(&[3, 5, 70_001, 6]);
        let frame = |i: usize| all[frames(&all).nth(i).expect("four")].to_vec();
        for (start, end) in (0..5).flat_map(|start| (start..5).map(move |end| (start, end))) {
            let blocks = writer.cut(&all, start..end);
            assert_eq!(blocks.len(), usize::from(start < end));
            for block in &blocks {
                assert_eq!((number(block, 16), number(block, 20)), (end - start, block.len() - HEADER));
                let rows: Vec<_> = frames(block).map(|range| block[range].to_vec()).collect();
                assert_eq!(rows, (start..end).map(frame).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn large_frames_have_blocks_of_their_own() {
        let writer = BlockWriter::new(&layout());
        let lengths = [100, 200_000, 1_500_000, 7, 200_000, 200_000, 9];
        let blocks = writer.seal(buffer(&lengths));
        let counts: Vec<_> = blocks.iter().map(|block| number(block, 16)).collect();
        assert_eq!(counts, [2, 1, 2, 2]);
        let bytes: usize = blocks.iter().flat_map(|block| frames(block)).map(|frame| frame.len()).sum();
        let expected: usize = frames(&buffer(&lengths)).map(|frame| frame.len()).sum();
        assert_eq!(bytes, expected);
        assert_eq!(writer.seal(buffer(&[1_500_000])).len(), 1);
        let few = writer.seal(buffer(&[200_000; 5]));
        assert_eq!(few.len(), 1, "not copied below 1 MiB");
    }
}
