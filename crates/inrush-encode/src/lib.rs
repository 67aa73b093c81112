//! Fields to wire bytes: COPY text, COPY binary and frames. Pure: no I/O, no clock, no allocation per row.
//!
//! An encoder is never the judge of a value. What it knows to be stored exactly as the server's own input
//! function would store it, it encodes; everything else is [`Unsure`], and the row goes to the server as
//! COPY text, where the server decides.

use inrush_core::{FieldSource, PgType, Record};

#[cfg(feature = "columnar")]
pub mod columnar;
pub mod copy_binary;
pub mod copy_text;
pub mod frames;
mod session;
mod types;
mod value;

pub use session::{IntervalStyle, Session};
pub use value::ValueEncoder;

/// The encoder does not know what the server would make of the value in this column (index into the
/// encoder's columns). Not an error: the row goes as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsure {
    /// Index of the column in the order they are sent.
    pub column: usize,
}

/// Appends rows to a buffer of wire bytes.
pub trait RowEncoder: Send {
    /// Appends one row. On `Err` the buffer is as it was.
    fn row(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Unsure>;
}

/// One column of the COPY column list, in the order sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodeColumn {
    /// Where its value comes from. Constants are text, as the type's input function reads it.
    pub source: FieldSource,
    /// Its type.
    pub ty: PgType,
    /// pg_attribute.atttypmod, -1 where none.
    pub typmod: i32,
}
