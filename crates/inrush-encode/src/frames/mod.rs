//! Frames of `FORMAT inrush`: rows as PostgreSQL's heap stores them, in blocks. The exact bytes are in
//! docs/format-inrush.md.
//!
//! A buffer of frames begins with room for the header of a block, so that a block is sent from where it was
//! encoded:
//!
//! 1. [`FrameLayout::parse`] reads the server's plan, [`FrameLayout::set_labels`] adds the labels of enums.
//! 2. [`FrameEncoder::new`] takes the columns of the load; [`Unsupported`] names one that has to go another way.
//! 3. [`crate::RowEncoder::row`] appends rows to a buffer that was empty at first.
//! 4. With [`BLOCK`] bytes or so, and at the end, [`BlockWriter::seal`] makes blocks of the buffer, and the next
//!    row goes to an empty one. [`BlockWriter::cut`] makes blocks of some of the rows only.

mod block;
mod crc;
pub(crate) mod encoder;
mod layout;
pub(crate) mod place;
pub(crate) mod row;
#[cfg(test)]
mod tests;

pub use block::{BLOCK, BlockWriter, HEADER, append_frame, frames};
pub use encoder::{FrameEncoder, Unsupported};
pub use layout::{Class, FrameLayout, LayoutColumn, Refusal, VERSION};
