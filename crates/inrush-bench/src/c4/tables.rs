//! The tables of a rung: made, emptied, and looked at afterwards.

use crate::c4::cluster::{Cluster, SCHEMA, Server};
use crate::c4::rows::{Files, WIDE};
use crate::c4::{Case, Job, On, Rung, batch};
use inrush_core::{Code, Error, Result, quote_ident};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const COLUMNS: &str = "id int, k int, c char(120), pad char(60)";

/// The tables of a rung.
#[derive(Debug)]
pub struct Tables<'c> {
    cluster: &'c Cluster,
    on: On,
    job: Job,
    /// Leaves on other servers: by name of the server, names of tables there.
    leaves: Vec<(String, Vec<String>)>,
}

impl<'c> Tables<'c> {
    /// Makes them. Joins the servers of partitions to the cluster.
    pub fn make(
        cluster: &'c mut Cluster,
        rung: &Rung,
        case: &Case,
        files: Option<&Files>,
    ) -> Result<Tables<'c>> {
        cluster.clear()?;
        cluster.run(&format!("CREATE SCHEMA {SCHEMA}"))?;
        let mut leaves = Vec::new();
        match (rung.on, rung.job) {
            (On::Citus, Job::Insert | Job::Load) => sbtest(cluster, case.shards)?,
            (On::Citus, Job::Update) => wide(cluster, case)?,
            (On::Foreign, _) => leaves = partitions(cluster, case.shards)?,
        }
        let tables = Tables { cluster, on: rung.on, job: rung.job, leaves };
        if rung.on == On::Foreign
            && let Some(files) = files
        {
            tables.stage(files)?;
        }
        Ok(tables)
    }

    /// The servers.
    pub fn cluster(&self) -> &'c Cluster {
        self.cluster
    }

    /// The one that is spread.
    pub fn table(&self) -> String {
        let name = match (self.on, self.job) {
            (_, Job::Update) => "wide",
            (On::Citus, _) => "sbtest1",
            (On::Foreign, _) => "parted",
        };
        format!("{SCHEMA}.{name}")
    }

    /// One of a worker's own.
    pub fn plain() -> String {
        format!("{SCHEMA}.plain")
    }

    /// On the coordinator, with the rows of the file.
    pub fn staged() -> String {
        format!("{SCHEMA}.staged")
    }

    /// Makes them as they were, with nothing left to write.
    pub fn renew(&self) -> Result<()> {
        let cluster = self.cluster;
        match (self.on, self.job) {
            (On::Citus, Job::Update) => cluster.run(&format!("VACUUM {}", self.table()))?,
            (On::Citus, job) => {
                cluster.run(&format!("TRUNCATE {}", self.table()))?;
                if job == Job::Insert {
                    cluster.run(&format!("TRUNCATE {}", batch::records()))?;
                    cluster.run_on(self.first_worker()?, &format!("TRUNCATE {}", Tables::plain()))?;
                }
            }
            (On::Foreign, _) => self.each_leaf(|server, names| {
                cluster.run_on(server, &format!("TRUNCATE {}", names.join(", ")))
            })?,
        }
        cluster.checkpoint()
    }

    /// Rows that are there.
    pub fn count(&self, plain: bool) -> Result<u64> {
        let cluster = self.cluster;
        let number = |text: String| text.parse::<u64>().unwrap_or(0);
        if plain {
            let sql = format!("SELECT count(*) FROM {}", Tables::plain());
            return cluster.ask_on(self.first_worker()?, &sql).map(number);
        }
        if self.on == On::Citus {
            return cluster.ask(&format!("SELECT count(*) FROM {}", self.table())).map(number);
        }
        // Through the parent every row would be fetched.
        let mut rows = 0;
        self.each_leaf(|server, names| {
            let counts: Vec<_> = names.iter().map(|name| format!("(SELECT count(*) FROM {name})")).collect();
            rows += number(cluster.ask_on(server, &format!("SELECT {}", counts.join(" + ")))?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// The node with the plain table.
    pub fn first_worker(&self) -> Result<&'c Server> {
        self.cluster.workers().first().ok_or_else(|| Error::new(Code::Internal, "the cluster has no worker"))
    }

    fn each_leaf(&self, mut what: impl FnMut(&'c Server, &[String]) -> Result<()>) -> Result<()> {
        for (node, names) in &self.leaves {
            let server = self.cluster.servers.iter().find(|server| server.name == *node);
            let server =
                server.ok_or_else(|| Error::new(Code::Internal, format!("there is no server {node}")))?;
            what(server, names)?;
        }
        Ok(())
    }

    /// The rows of the file in a table of the coordinator, for INSERT ... SELECT.
    fn stage(&self, files: &Files) -> Result<()> {
        let staged = Tables::staged();
        self.cluster.run(&format!("CREATE UNLOGGED TABLE {staged} ({COLUMNS})"))?;
        copy(self.cluster, &staged, &files.text(1))?;
        // Its pages are written once, not by the first who reads them.
        self.cluster.run(&format!("VACUUM ANALYZE {staged}"))
    }
}

/// sysbench's table, spread by Citus, and one like it on a worker alone.
fn sbtest(cluster: &Cluster, shards: u32) -> Result<()> {
    distributed(cluster, "sbtest1", "id int PRIMARY KEY, k int, c char(120), pad char(60)", shards)?;
    cluster.run(&format!("CREATE INDEX ON {SCHEMA}.sbtest1 (k)"))?;
    cluster.run(&format!("CREATE TABLE {} (gid text PRIMARY KEY)", batch::records()))?;
    let plain = Tables::plain();
    let Some(worker) = cluster.workers().first() else { return Ok(()) };
    cluster.run_on(
        worker,
        &format!(
            "{}CREATE TABLE {plain} (id int PRIMARY KEY, k int, c char(120), pad char(60)); CREATE INDEX ON {plain} (k)",
            cluster.alone()
        ),
    )
}

/// A key and 383 columns.
fn wide(cluster: &Cluster, case: &Case) -> Result<()> {
    let mut columns = "id int PRIMARY KEY".to_owned();
    let mut values = String::new();
    for n in 1..=WIDE {
        let _ = write!(columns, ", c{n} int");
        let _ = write!(values, ", {n}");
    }
    distributed(cluster, "wide", &columns, case.shards)?;
    cluster.run(&format!(
        "INSERT INTO {SCHEMA}.wide SELECT id{values} FROM generate_series(1, {}) id",
        case.update_rows
    ))
}

fn distributed(cluster: &Cluster, name: &str, columns: &str, shards: u32) -> Result<()> {
    let table = format!("{SCHEMA}.{name}");
    cluster.run(&format!("CREATE TABLE {table} ({columns})"))?;
    cluster.run(&format!(
        "SET LOCAL citus.shard_replication_factor = 1; \
         SELECT create_distributed_table('{table}', 'id', colocate_with => 'none', shard_count => {shards})"
    ))
}

/// A table of partitions by hash on the foreign servers, in turns, each with sysbench's key and index; where they are.
fn partitions(cluster: &mut Cluster, shards: u32) -> Result<Vec<(String, Vec<String>)>> {
    let parent = format!("{SCHEMA}.parted");
    let mut sql = format!("CREATE TABLE {parent} ({COLUMNS}) PARTITION BY HASH (id);");
    for (n, server) in (0..shards).zip(cluster.foreign.iter().cycle()) {
        let _ = write!(
            sql,
            "CREATE FOREIGN TABLE {SCHEMA}.part_{n} PARTITION OF {parent} FOR VALUES WITH (MODULUS {shards}, REMAINDER {n}) \
             SERVER {} OPTIONS (schema_name '{SCHEMA}', table_name 'leaf_{n}', batch_size '1000');",
            quote_ident(server)
        );
    }
    cluster.run(&sql)?;
    let (_, topology) = cluster.topology(&parent)?;
    cluster.join(&topology.nodes)?;
    // Of servers that were not known when the schema was dropped.
    for server in cluster.workers() {
        cluster.run_on(server, &format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))?;
    }
    let mut leaves = Vec::new();
    for (number, node) in topology.nodes.iter().enumerate() {
        let places = topology.places.iter().filter(|place| place.node == number);
        let names: Vec<String> = places.map(inrush_cluster::Place::qualified).collect();
        let mut sql = format!("CREATE SCHEMA IF NOT EXISTS {SCHEMA};");
        for name in &names {
            let _ = write!(
                sql,
                "CREATE TABLE {name} (id int PRIMARY KEY, k int, c char(120), pad char(60)); CREATE INDEX ON {name} (k);"
            );
        }
        let server = cluster.servers.iter().find(|server| server.name == node.name);
        let server = server.ok_or_else(|| Error::new(Code::Internal, format!("{node} is not reached")))?;
        cluster.run_on(server, &sql)?;
        leaves.push((node.name.clone(), names));
    }
    Ok(leaves)
}

fn copy(cluster: &Cluster, table: &str, text: &Path) -> Result<()> {
    let output = Command::new("psql")
        .args(["-Xq", "-v", "ON_ERROR_STOP=1", "-d", &cluster.dsn])
        .arg("-c")
        .arg(format!("\\copy {table} from '{}'", text.display()))
        .output()
        .map_err(|e| Error::new(Code::Local, format!("psql cannot be run: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(Error::new(Code::Server, format!("the server refused rows of the bench: {said}")))
}
