//! What the storage of a server can do, and which settings of scans fit it.
//!
//! A probe measures a directory ([`Measured`]); the curve has a class ([`Verdict`]); the [`model`] says what a scan takes
//! on such storage, and so what another setting would give ([`advice`]).

pub mod advice;
pub mod apply;
mod html;
pub mod in_database;
pub mod keep;
#[cfg(test)]
mod made_up;
pub mod measured;
pub mod model;
pub mod probe;
pub mod report;
pub mod run;
pub mod server;
pub mod storage;
pub mod verdict;

pub use advice::Advice;
pub use measured::Measured;
pub use model::Model;
pub use report::Report;
pub use verdict::{Class, Verdict};
