//! `explain` against real servers of every version.

mod cold;
mod facts;
mod methods;
mod plans;
mod refused;

use inrush_core::{Error, Result};
use inrush_sink::conninfo::{self, ConnInfo};
use inrush_testkit::{Postgres, ServerOptions, Version};
use inrush_tune::explain::{Absent, Hooks, Method, Options, Report, Variant, run};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn conninfo(url: &str) -> ConnInfo {
    conninfo::resolve(Some(url), &|_| None).expect("settings").expect("a server")
}

fn server(version: impl Into<Version>) -> Postgres {
    Postgres::start(&ServerOptions {
        version: version.into(),
        conf: &[("shared_buffers", "16MB"), ("autovacuum", "off"), ("fsync", "on")],
        ..ServerOptions::default()
    })
}

/// A table in which the rows of each key lie all over, and which is ordered by time: btrees on both, BRIN on
/// time.
const TABLE: &str = "CREATE TABLE t (id int, c1 int, ts int, pad text);
    INSERT INTO t SELECT i, i * 7919 % 200, i, repeat('x', 60) FROM generate_series(1, 200000) i;
    CREATE INDEX t_c1 ON t (c1); CREATE INDEX t_ts ON t (ts);
    CREATE INDEX t_brin ON t USING brin (ts) WITH (pages_per_range = 16);
    VACUUM ANALYZE t; CHECKPOINT;";

fn options(query: &str) -> Options {
    Options { query: query.to_owned(), ..Options::default() }
}

async fn explain_with(url: &str, options: &Options, agree: bool) -> Result<Report> {
    let hooks = Hooks { note: &|_| {}, agree: &|_| agree, stop: Arc::new(AtomicBool::new(false)) };
    run(&conninfo(url), options, &hooks).await
}

async fn explain(url: &str, query: &str) -> Report {
    explain_with(url, &options(query), false).await.expect("a report")
}

async fn refused(url: &str, options: &Options) -> Error {
    explain_with(url, options, false).await.expect_err("to be refused")
}

fn of(report: &Report, method: Method) -> Vec<&Variant> {
    report.scans.iter().filter(|scan| scan.method == method).collect()
}

fn why(report: &Report, method: Method) -> Option<&str> {
    report.absent.iter().find(|absent| absent.method == method).map(|Absent { why, .. }| why.as_str())
}
