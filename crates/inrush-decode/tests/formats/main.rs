//! The decoders from outside: what each format gives for an input, the fast path and the plain state machine
//! alike, however the input is cut into chunks.

mod binary;
mod csv;
mod ndjson;
mod runner;
mod sniff;
mod text;
