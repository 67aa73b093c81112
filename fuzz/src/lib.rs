//! What the fuzz targets check. Each takes the bytes of a fuzzed input, the first of them as choices (see
//! [`choices::Choices`]), and demands more than that nothing panics: the fast path must agree with the plain
//! one, or with a reading of the whole input at once.
//!
//! The crates' own tests include the same modules and run them over the kept inputs (see [`replay`]), so
//! that nothing found comes back unnoticed where nobody fuzzes.

pub mod choices;
pub mod cut;
pub mod decompress;
#[path = "../../crates/inrush-source/tests/reference/mod.rs"]
pub mod reference;
