//! What the tests of all crates lean on: throw-away PostgreSQL servers of several versions, a proxy that
//! breaks connections at chosen moments, storage that is slow on purpose, and writers of the case files.
//!
//! Everything is synchronous and made for tests: what cannot be had ends the test with a panic that says
//! why. Nothing outlives the test process, not even when it is killed, and nothing is ever signalled that
//! was not started here.

pub mod citus_vectors;
mod cluster;
pub mod fixtures;
mod installation;
mod kafka;
mod postgres;
pub mod proxy;
mod server_user;
pub mod slow_disk;

pub use cluster::{At, Cluster, ClusterDatabase, ClusterOptions, Reach};
pub use installation::{Installation, USUAL_BLOCK_SIZE, Version};
pub use kafka::Kafka;
pub use postgres::{Database, Postgres, ServerOptions, StopMode};
pub(crate) use postgres::{free_port, wait_for_exit};
pub use server_user::ServerUser;

/// Ends the test early, loudly, when a PostgreSQL version is not installed: prints
/// `SKIPPED: needs PostgreSQL 18 (run tests/servers.sh)` to standard error past the capture of the test
/// runner and returns from the calling function. With `INRUSH_TEST_REQUIRE_SERVERS=1` it panics instead.
#[macro_export]
macro_rules! require_server {
    ($version:expr) => {
        if !$crate::Installation::have_or_say_skipped($version) {
            return;
        }
    };
}

/// Ends the test early, loudly, when there is no Kafka broker: prints `SKIPPED: needs a Kafka broker ...` to standard
/// error past the capture of the test runner and returns from the calling function. With
/// `INRUSH_TEST_REQUIRE_KAFKA=1` it panics instead.
#[macro_export]
macro_rules! require_kafka {
    () => {
        if !$crate::Kafka::have_or_say_skipped() {
            return;
        }
    };
}
