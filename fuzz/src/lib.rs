//! What the fuzz targets check. Each takes the bytes of a fuzzed input, the first of them as choices (see
//! [`choices::Choices`]), and demands more than that nothing panics: the fast path must agree with the plain
//! one, or with a reading of the whole input at once.
//!
//! The crates' own tests include the same modules and run them over the kept inputs (`replay.rs`), so that
//! nothing found comes back unnoticed where nobody fuzzes.

pub mod chain;
pub mod choices;
#[cfg(feature = "columnar")]
pub mod columnar;
pub mod cut;
pub mod decode;
pub mod decompress;
pub mod dialects;
pub mod encode;
pub mod line;
#[path = "../../crates/inrush-source/tests/reference/mod.rs"]
pub mod reference;
#[path = "../../crates/inrush-decode/tests/formats/runner.rs"]
pub mod runner;
pub mod spill;
