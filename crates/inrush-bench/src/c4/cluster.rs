//! The servers of a cluster: how to reach them, what they are, and what they have spent.

use crate::c4::{NodeFacts, On};
use crate::machine;
use inrush_cluster::{Found, Node, NodeMap, Topology, find, known_nodes};
use inrush_core::{Code, Error, Result, Table};
use inrush_sink::catalog::{self, TableName};
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::{self, ConnInfo};
use inrush_sink::failure::server_error;
use std::collections::{BTreeMap, BTreeSet};
use tokio::runtime::Runtime;
use tokio_postgres::SimpleQueryMessage;

/// What sessions of the bench are called.
pub const APPLICATION: &str = "inrush bench";
/// Where everything is made and removed again, on every node.
pub const SCHEMA: &str = "inrush_bench_c4";
/// The ledger of the loads of a bench.
pub const LEDGER: &str = "inrush_bench_ledger";
/// What the names of our prepared transactions begin with.
pub const PREPARED: &str = "inrush_benchc4_";

/// Settings that a record tells.
const SETTINGS: [&str; 9] = [
    "shared_buffers",
    "max_wal_size",
    "fsync",
    "full_page_writes",
    "wal_level",
    "autovacuum",
    "max_connections",
    "max_prepared_transactions",
    "ssl",
];

/// A server, and a session of it that nothing is measured with.
#[derive(Debug)]
pub struct Server {
    pub name: String,
    pub info: ConnInfo,
    session: Connected,
    /// If it is on this machine.
    postmaster: Option<u32>,
    /// What our role had for `synchronous_commit` in this database.
    before: Option<String>,
}

/// The servers.
#[derive(Debug)]
pub struct Cluster {
    /// As it was named.
    pub dsn: String,
    pub info: ConnInfo,
    pub map: NodeMap,
    /// The coordinator first.
    pub servers: Vec<Server>,
    pub citus: bool,
    /// Foreign servers that our role has a mapping for.
    pub foreign: Vec<String>,
    pub runtime: Runtime,
}

/// CPU seconds so far.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub coordinator: Option<f64>,
    pub workers: Option<f64>,
}

impl Cluster {
    /// Connects to the coordinator, and to every node of Citus.
    pub fn open(dsn: &str, map: &NodeMap) -> Result<Cluster> {
        let info = conninfo::resolve(Some(dsn), &|name| std::env::var(name).ok())?
            .ok_or_else(|| Error::new(Code::Usage, "no server is named"))?;
        let runtime = runtime()?;
        let coordinator = runtime.block_on(Server::open("coordinator".to_owned(), info.clone()))?;
        let mut cluster = Cluster {
            dsn: dsn.to_owned(),
            info,
            map: map.clone(),
            servers: vec![coordinator],
            citus: false,
            foreign: Vec::new(),
            runtime,
        };
        cluster.citus =
            cluster.ask("SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL")? == "t";
        let servers = "SELECT pg_catalog.string_agg(s.srvname, E'\\n' ORDER BY s.srvname) FROM pg_catalog.pg_foreign_server s \
            JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw AND w.fdwname = 'postgres_fdw' \
            WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_user_mappings u WHERE u.srvid = s.oid AND (u.usename = current_user OR u.umuser = 0))";
        cluster.foreign = cluster.ask(servers)?.lines().map(str::to_owned).collect();
        if cluster.citus {
            let nodes = cluster.runtime.block_on(known_nodes(&cluster.servers[0].session.client))?;
            // Of partitions, only what the bench makes itself is of interest.
            let nodes: Vec<Node> = nodes.into_iter().filter(|node| node.name.contains(':')).collect();
            cluster.join(&nodes)?;
        }
        Ok(cluster)
    }

    /// Connects to nodes that are not known yet.
    pub fn join(&mut self, nodes: &[Node]) -> Result<()> {
        for node in nodes.iter().filter(|node| node.address.is_some()) {
            if self.servers.iter().any(|known| known.name == node.name) {
                continue;
            }
            let info = node.conninfo(&self.info, &self.map)?;
            let server = self.runtime.block_on(Server::open(node.name.clone(), info)).map_err(|error| {
                error.hint("If the node is reached otherwise from here: --node HOST:PORT=HOST:PORT.")
            })?;
            self.servers.push(server);
        }
        Ok(())
    }

    /// Why a rung cannot be run here.
    pub fn lacks(&self, on: On) -> Option<String> {
        match on {
            On::Citus if !self.citus => Some("the database has no Citus".to_owned()),
            On::Citus if self.servers.len() < 2 => Some("Citus has no other node".to_owned()),
            On::Foreign if self.foreign.is_empty() => Some(
                "the database has no foreign server of postgres_fdw that this role has a mapping for"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// The nodes beside the coordinator.
    pub fn workers(&self) -> &[Server] {
        &self.servers[1..]
    }

    /// Runs statements on the coordinator.
    pub fn run(&self, sql: &str) -> Result<()> {
        self.runtime.block_on(self.servers[0].run(sql))
    }

    /// The first value that a statement gives on the coordinator; empty for NULL and nothing.
    pub fn ask(&self, sql: &str) -> Result<String> {
        self.runtime.block_on(self.servers[0].ask(sql))
    }

    /// Runs statements on a server.
    pub fn run_on(&self, server: &Server, sql: &str) -> Result<()> {
        self.runtime.block_on(server.run(sql))
    }

    /// The first value that a statement gives on a server.
    pub fn ask_on(&self, server: &Server, sql: &str) -> Result<String> {
        self.runtime.block_on(server.ask(sql))
    }

    /// A table, and where its rows belong now.
    pub fn topology(&self, table: &str) -> Result<(Table, Topology)> {
        let client = &self.servers[0].session.client;
        self.runtime.block_on(async {
            let table = catalog::table(client, &TableName::parse(table)?).await?;
            match find(client, &table).await? {
                Found::Direct(topology) => Ok((table, *topology)),
                Found::Coordinator(why) => Err(Error::new(
                    Code::Internal,
                    format!("{} is not spread as the bench has made it: {why}", table.qualified()),
                )),
                Found::Here => {
                    Err(Error::new(Code::Internal, format!("{} is not spread", table.qualified())))
                }
            }
        })
    }

    /// Rows of a table that are not where their keys lead.
    pub fn misplaced(&self, table: &str) -> Result<u64> {
        let (_, topology) = self.topology(table)?;
        let audit = inrush_cluster::audit(&topology, &self.info, &self.map, APPLICATION);
        Ok(self.runtime.block_on(audit)?.misplaced)
    }

    /// What the servers have spent so far.
    pub fn spent(&self) -> Spent {
        let coordinator = self.servers[0].postmaster;
        let workers: Option<BTreeSet<u32>> = self.workers().iter().map(|server| server.postmaster).collect();
        Spent {
            coordinator: coordinator.and_then(machine::server_cpu),
            // Nodes may be databases of one server, even of the coordinator's.
            workers: workers.and_then(|all| {
                all.into_iter().filter(|one| Some(*one) != coordinator).map(machine::server_cpu).sum()
            }),
        }
    }

    /// A value of `synchronous_commit` for every session of our role on every node: also for those that the coordinator opens.
    pub fn set_synchronous_commit(&self, value: &str) -> Result<()> {
        self.servers.iter().try_for_each(|server| self.run_on(server, &self.role(Some(value))))
    }

    /// What it was before.
    pub fn reset_synchronous_commit(&self) -> Result<()> {
        self.servers.iter().try_for_each(|server| self.run_on(server, &self.role(server.before.as_deref())))
    }

    fn role(&self, value: Option<&str>) -> String {
        let what = match value {
            // Known values only: it comes from a case file.
            Some(value) => format!("SET synchronous_commit = {}", inrush_core::quote_ident(value)),
            None => "RESET synchronous_commit".to_owned(),
        };
        format!(
            "{}DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I {what}', current_database()); END $$",
            self.alone()
        )
    }

    /// What makes statements concern one node only.
    pub fn alone(&self) -> &'static str {
        if self.citus {
            "SET LOCAL citus.enable_ddl_propagation = off; SET LOCAL citus.enable_alter_role_set_propagation = off; "
        } else {
            ""
        }
    }

    /// Writes everything to the disk, where our role may ask for that.
    pub fn checkpoint(&self) -> Result<()> {
        for server in &self.servers {
            match self.run_on(server, "CHECKPOINT") {
                Err(error) if error.sqlstate_text() != Some("42501") => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends what batches have left prepared: the guards last.
    pub fn settle(&self) -> Result<()> {
        self.servers.iter().rev().try_for_each(|server| self.roll_back(server))
    }

    /// Removes what this or another run has left.
    pub fn clear(&self) -> Result<()> {
        self.settle()?;
        self.run(&format!("DROP SCHEMA IF EXISTS {SCHEMA}, {LEDGER} CASCADE"))?;
        for server in self.workers() {
            let alone = self.alone();
            self.run_on(server, &format!("{alone}DROP SCHEMA IF EXISTS {SCHEMA}, {LEDGER} CASCADE"))?;
        }
        Ok(())
    }

    fn roll_back(&self, server: &Server) -> Result<()> {
        let left = self.ask_on(
            server,
            &format!(
                "SELECT pg_catalog.string_agg(gid, E'\\n') FROM pg_catalog.pg_prepared_xacts \
                 WHERE database = current_database() AND gid LIKE '{}%'",
                PREPARED.replace('_', "\\_")
            ),
        )?;
        left.lines().try_for_each(|gid| {
            self.run_on(server, &format!("ROLLBACK PREPARED {}", inrush_core::quote_literal(gid)))
        })
    }

    /// What the servers are.
    pub fn facts(&self) -> Result<Vec<NodeFacts>> {
        self.servers.iter().map(|server| self.facts_of(server)).collect()
    }

    fn facts_of(&self, server: &Server) -> Result<NodeFacts> {
        let mut settings = BTreeMap::new();
        for name in SETTINGS {
            settings.insert(name.to_owned(), self.ask_on(server, &format!("SHOW {name}"))?);
        }
        let extensions = self.ask_on(
            server,
            "SELECT pg_catalog.string_agg(extname || ' ' || extversion, E'\\n' ORDER BY extname) \
             FROM pg_catalog.pg_extension WHERE extname IN ('citus', 'inrush', 'postgres_fdw')",
        )?;
        Ok(NodeFacts {
            name: server.name.clone(),
            version: self.ask_on(server, "SHOW server_version")?,
            extensions: extensions
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .collect(),
            settings,
            here: server.postmaster.is_some(),
        })
    }
}

impl Server {
    async fn open(name: String, info: ConnInfo) -> Result<Server> {
        let session = connect(&info, APPLICATION).await?;
        let mut server = Server { name, info, session, postmaster: None, before: None };
        // Who holds a lock of ours for longer has no business in our schema.
        server.run("SET lock_timeout = '60s'").await?;
        let here = server
            .ask("SELECT inet_server_addr() IS NULL OR inet_server_addr() = inet_client_addr()")
            .await?;
        if here == "t" {
            let backend = server.ask("SELECT pg_backend_pid()").await?;
            server.postmaster = backend.parse().ok().and_then(machine::postmaster_of);
        }
        let before = server
            .ask(
                "SELECT pg_catalog.split_part(x, '=', 2) FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) x \
                 WHERE s.setdatabase = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) \
                   AND s.setrole = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user) \
                   AND x LIKE 'synchronous\\_commit=%'",
            )
            .await?;
        server.before = Some(before).filter(|value| !value.is_empty());
        Ok(server)
    }

    async fn run(&self, sql: &str) -> Result<()> {
        self.session.client.batch_execute(sql).await.map_err(server_error)
    }

    async fn ask(&self, sql: &str) -> Result<String> {
        let messages = self.session.client.simple_query(sql).await.map_err(server_error)?;
        let value = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(value.unwrap_or_default())
    }
}

/// What drives the sessions of a thread.
pub fn runtime() -> Result<Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|e| Error::new(Code::Internal, format!("cannot start a runtime: {e}")))
}
