use serde::Serialize;
use std::fmt;

/// Where in which input something was found. Every part but the source may be unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Position {
    /// The input as the user named it: a path, or `<stdin>`.
    pub source: String,
    /// Byte offset in the uncompressed input, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte: Option<u64>,
    /// Physical line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Record (row) of the input, from 1; a header does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// The column of the table, or the field of the file where no column is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

impl Position {
    /// A position that only names the input.
    pub fn source(source: impl Into<String>) -> Position {
        Position { source: source.into(), ..Position::default() }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        let mut parts = Vec::new();
        if let Some(record) = self.record {
            parts.push(format!("record {record}"));
        }
        if let Some(byte) = self.byte {
            parts.push(format!("byte {byte}"));
        }
        if let Some(column) = &self.column {
            parts.push(format!("column {column}"));
        }
        if !parts.is_empty() {
            write!(f, " ({})", parts.join(", "))?;
        }
        Ok(())
    }
}
