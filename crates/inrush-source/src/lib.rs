//! Bytes in: files, globs, directories and standard input, plain or compressed, cut into chunks at record
//! borders.
//!
//! Everything here is synchronous and meant for one reader thread per load:
//!
//! 1. [`expand`] turns what the user named into a list of [`InputSpec`]s.
//! 2. [`Input::open`] opens one of them, sees by its content whether it is compressed, and gives its
//!    uncompressed bytes; [`Input::peek`] shows the first of them to the sniffer.
//! 3. [`Cutter`] cuts these bytes into [`inrush_core::Chunk`]s at record borders, in buffers from a
//!    [`BufferPool`] that the consumers hand back.
//! 4. [`Reread`] reads a range of a plain file again, to send a unit another time.
//!
//! Offsets always count uncompressed bytes from the first byte of the input, a byte order mark included.

mod borders;
mod buffer;
mod cache;
mod compression;
mod cutter;
mod identity;
mod input;
mod inputs;
mod lz4;
mod platform;
mod reread;
mod scan;

pub use borders::{Borders, detect_eol};
pub use buffer::BufferPool;
pub use cache::DropBehind;
pub use compression::Compression;
pub use cutter::{Cut, Cutter, DoneRange, Ignored, TooLong};
pub use identity::Identity;
pub use input::{Input, Progress};
pub use inputs::{InputKind, InputSpec, expand};
pub use reread::Reread;
