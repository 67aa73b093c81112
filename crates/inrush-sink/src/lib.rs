//! Wire bytes to server: connections, the catalog, COPY streams and the ledger.
//!
//! Everything here is asynchronous and works inside a current-thread runtime: each lane of a load owns one.
//! This crate knows nothing of formats; it is handed wire bytes and byte ranges.

pub mod catalog;
pub mod connect;
pub mod conninfo;
pub mod copy;
pub mod failure;
pub mod ledger;
pub mod nudge;
mod tls;
