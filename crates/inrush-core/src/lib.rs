//! The words that all stages of Inrush share: schema, chunk, position, record, reject, error, limits.
//!
//! Data flows one way: source -> decode -> route -> encode -> sink. A stage crate depends on this crate
//! and on no other stage; only `inrush-load` (and later `inrush-serve`) wires stages together.
//!
//! This crate does no I/O, knows no connection and allocates nothing per row.

mod chunk;
mod dialect;
mod error;
mod key_words;
mod limits;
mod position;
mod printable;
mod record;
mod reject;
mod table;
mod types;

pub use chunk::Chunk;
pub use dialect::{CsvDialect, Eol, Format, TextDialect};
pub use error::{Code, Error, Excerpt, Result};
pub use limits::Limits;
pub use position::Position;
pub use printable::printable;
pub use record::{BadRecord, FieldSource, Fields, Record};
pub use reject::{Reject, RejectOrigin};
pub use table::{Column, Default, Generated, Identity, RelKind, Table, quote_ident, quote_literal};
pub use types::{BaseType, PgType, TypeKind};
