//! `inrush serve` and Kafka, from outside: a real broker, a real server, and what is in the tables afterwards.

#[path = "../harness/mod.rs"]
mod harness;

mod broken;
#[allow(dead_code)] // as above
#[path = "../streams/client.rs"]
mod client;
mod fenced;
mod formats;
mod group;
mod killed;
#[allow(dead_code)] // shared with tests/streams, which uses all of it
#[path = "../streams/process.rs"]
mod process;
mod stream;
mod told;
mod unlogged;
