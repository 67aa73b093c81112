//! The decoders from outside: what each format gives for an input, the fast path and the plain state machine
//! alike, however the input is cut into chunks.

mod binary;
#[path = "../../../../fuzz/src/choices.rs"]
mod choices;
#[cfg(feature = "columnar")]
#[path = "../../../../fuzz/src/columnar.rs"]
mod columnar;
mod corpus;
mod csv;
#[path = "../../../../fuzz/src/decode.rs"]
mod decode;
#[path = "../../../../fuzz/src/dialects.rs"]
mod dialects;
mod line;
#[path = "../../../../fuzz/src/line.rs"]
mod line_check;
mod ndjson;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;
mod runner;
mod sniff;
mod text;
