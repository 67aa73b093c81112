//! Tables that Citus distributes. They need a cluster: `INRUSH_TEST_CITUS` is the connection string of a superuser to its
//! coordinator. Each test makes a database of its own on all its servers, and drops it. Some have servers of the cluster
//! crash: give it one that nobody else needs.

mod kinds;
mod movers;
mod server;
mod streams;
