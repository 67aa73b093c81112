use crate::Position;

/// Who refused a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectOrigin {
    /// The record is not well formed; it was never sent.
    Client,
    /// The server refused it: a type, a constraint, an encoding, a trigger.
    Server,
}

/// A row that was not loaded, with everything needed to repair it.
#[derive(Debug, Clone)]
pub struct Reject {
    /// Number of the input in the load, from 0.
    pub input: u32,
    /// Source, record, line, byte and column.
    pub position: Position,
    /// SQLSTATE, the server's own or the one COPY gives for the same thing.
    pub sqlstate: String,
    /// One fact: why.
    pub reason: String,
    /// Who refused it.
    pub origin: RejectOrigin,
    /// The record's bytes as they stand in the input, line end included.
    pub raw: Vec<u8>,
    /// Set when `raw` holds only the head of a record longer than `--max-record`: its full length.
    pub full_len: Option<u64>,
}
