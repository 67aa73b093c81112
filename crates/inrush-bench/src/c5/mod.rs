//! Case C5: reading back. Scans of tables that are on the disk only, by `effective_io_concurrency`, on this
//! machine's disk and on storage that is made slow; and what `inrush tune io` says of each.
//!
//! A *turn* is one scan in a session of its own, after a restart of the server and with nothing of the tables
//! in the page cache (`posix_fadvise(DONTNEED)`, looked at with `mincore()`): nobody else's pages are
//! dropped, and no root is needed. Its seconds are the server's execution time, of `EXPLAIN (ANALYZE, TIMING
//! OFF)`; device reads are those of the storage meanwhile, by whomever. JIT is off, nothing is parallel, I/O
//! is not timed, and the tables were vacuumed. In each round every scan of every server of a version has one
//! turn, in random order.

mod advice;
mod case;
mod cold;
mod data;
mod fio;
mod goals;
mod keep;
mod predict;
mod record;
mod run;
mod server;
mod show;
mod storage;
mod turn;

pub use advice::Asked;
pub use case::{Case, Goal, Kind, Method, Published, Query, Rung, Scan, Setup, Tables};
pub use fio::Curve;
pub use keep::keep;
pub use predict::Predicted;
pub use record::{KIND, Record, Stored, Turn, VERSION};
pub use run::{Options, run};
pub(crate) use show::section;
pub use show::text;
