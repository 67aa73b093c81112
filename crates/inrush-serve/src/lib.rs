//! Live streams into PostgreSQL: inputs, parts, batches, lanes, offsets.
//!
//! ```text
//! inputs  ->  parts  ->  splitters  ->  batches  ->  lanes  ->  COPY, offsets, dead letters: one transaction
//!  async      bytes       threads       by leaf      async                                  -> acks
//! ```
//!
//! An input takes bytes from the world, cuts them at record borders into parts and waits for what becomes of each. A
//! splitter decodes a part, finds the leaf of each row and encodes it. A lane has one connection; it gathers batches into
//! units, and commits each with the offsets of the rows in it.

mod ack;
mod admin;
mod buffers;
pub mod config;
mod gate;
mod inputs;
mod lane;
mod maintain;
mod metrics;
mod origin;
mod part;
mod pressure;
mod run;
mod session;
mod settle;
mod spill;
mod split;
mod systemd;
mod target;
mod waits;

pub use run::{Stopped, Switch, check, drain, run, server};
