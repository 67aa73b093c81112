//! Tables on several servers, from outside: what `inrush load` puts where, and what is there whatever dies.
//!
//! Tables of stock PostgreSQL (partitions with `postgres_fdw`) on throw-away servers; Citus with
//! `INRUSH_TEST_CITUS=DSN`, the connection string of a superuser to the coordinator of a cluster for tests.

#[path = "../harness/mod.rs"]
mod harness;

mod bounds;
mod citus;
#[allow(dead_code)] // shared with tests/streams, which uses all of it
#[path = "../streams/client.rs"]
mod client;
mod direct;
mod durable;
mod killed;
mod loads;
mod marks;
#[allow(dead_code)] // as above
#[path = "../streams/process.rs"]
mod process;
mod rejected;
mod serve;
mod stock;
mod story;
mod streams;
