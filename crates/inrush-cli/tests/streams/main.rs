//! `inrush serve`, from outside: real senders, a real server, and what is in the tables afterwards.

#[path = "../harness/mod.rs"]
mod harness;

mod check;
mod client;
mod columns;
mod failover;
mod files;
mod hostile;
mod http;
mod keys;
mod killed;
mod process;
mod spilled;
