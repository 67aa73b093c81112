/// A byte range of one input, cut at record borders, together with its bytes.
///
/// Offsets count uncompressed bytes of the input as the user gave it; for columnar inputs they count rows
/// (a row group has no byte range that survives a change of batch size).
#[derive(Debug)]
pub struct Chunk {
    /// Which input of the load, counted from 0 in the order of the load's inputs.
    pub input: u32,
    /// Offset of the first byte of `bytes` in the input.
    pub start: u64,
    /// Line number (from 1, physical lines) of the first record.
    pub first_line: u64,
    /// Record number (from 1, the header not counted) of the first record.
    pub first_record: u64,
    /// Records in the chunk as the cutter counted them. A decoder that finds another number disagrees with
    /// the cutter on a border, which is a bug and ends the load (but for NDJSON, where blank lines count here).
    pub records: u64,
    /// Physical lines in the chunk: line ends, quoted ones included.
    pub lines: u64,
    /// The records, each with its line end, except perhaps the last of the input.
    pub bytes: Vec<u8>,
}

impl Chunk {
    /// Offset one past the last byte in the input.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}
