//! Several throw-away servers: a coordinator, and nodes that have partitions of its tables (`postgres_fdw`).

use crate::{Database, Postgres, ServerOptions, Version};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// How the coordinator reaches its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// At 127.0.0.1.
    #[default]
    Tcp,
    /// Through the directory of the Unix socket.
    Socket,
}

/// What a throw-away cluster is like.
#[derive(Debug, Clone)]
pub struct ClusterOptions<'a> {
    /// The version of all servers.
    pub version: Version,
    /// How many nodes there are besides the coordinator.
    pub nodes: usize,
    /// How the coordinator reaches them.
    pub reach: Reach,
    /// max_prepared_transactions of all servers; 0 is what PostgreSQL has unless told otherwise.
    pub prepared: u32,
    /// Lines for postgresql.conf.
    pub conf: &'a [(&'a str, &'a str)],
    /// pg_hba.conf of the nodes; empty: everybody may connect.
    pub node_hba: &'a str,
}

impl Default for ClusterOptions<'_> {
    fn default() -> Self {
        ClusterOptions {
            version: Version::Any,
            nodes: 2,
            reach: Reach::default(),
            prepared: 100,
            conf: &[],
            node_hba: "",
        }
    }
}

/// A coordinator and its nodes.
#[derive(Debug)]
pub struct Cluster {
    coordinator: Postgres,
    nodes: Vec<Postgres>,
    reach: Reach,
}

/// A database on every server. On the coordinator, the nodes are the foreign servers `node0`, `node1` ...
#[derive(Debug)]
pub struct ClusterDatabase<'c> {
    cluster: &'c Cluster,
    coordinator: Database<'c>,
    nodes: Vec<Database<'c>>,
}

/// Where a leaf is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// On the coordinator.
    Here,
    /// On this node.
    Node(usize),
}

impl Cluster {
    /// Starts the servers.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    pub fn start(options: &ClusterOptions<'_>) -> Cluster {
        let prepared = options.prepared.to_string();
        let mut conf = vec![("max_prepared_transactions", prepared.as_str()), ("max_connections", "200")];
        conf.extend_from_slice(options.conf);
        let start = |hba| {
            Postgres::start(&ServerOptions {
                version: options.version,
                conf: &conf,
                hba,
                ..ServerOptions::default()
            })
        };
        std::thread::scope(|scope| {
            let nodes: Vec<_> = (0..options.nodes).map(|_| scope.spawn(|| start(options.node_hba))).collect();
            Cluster {
                coordinator: start(""),
                nodes: nodes.into_iter().map(|node| node.join().expect("a node that starts")).collect(),
                reach: options.reach,
            }
        })
    }

    /// The cluster of this version that all tests of the process share: two nodes that are reached by TCP. Use it with
    /// [`Cluster::fresh_database`], and do not stop its servers.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn shared(version: impl Into<Version>) -> &'static Cluster {
        static SHARED: OnceLock<Mutex<HashMap<Version, &'static Cluster>>> = OnceLock::new();
        let version = version.into();
        let mut shared = SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        // Never dropped: the guard processes stop the servers when this process ends.
        shared.entry(version).or_insert_with(|| {
            Box::leak(Box::new(Cluster::start(&ClusterOptions { version, ..ClusterOptions::default() })))
        })
    }

    /// The server that has the tables.
    pub fn coordinator(&self) -> &Postgres {
        &self.coordinator
    }

    /// The servers that have leaves of them.
    pub fn nodes(&self) -> &[Postgres] {
        &self.nodes
    }

    /// All servers, the coordinator first.
    pub fn servers(&self) -> impl Iterator<Item = &Postgres> {
        std::iter::once(&self.coordinator).chain(&self.nodes)
    }

    /// Host and port by which the coordinator knows a node.
    pub fn address(&self, node: usize) -> (String, u16) {
        let server = &self.nodes[node];
        let host = match self.reach {
            Reach::Tcp => PathBuf::from("127.0.0.1"),
            Reach::Socket => server.socket_dir(),
        };
        (host.display().to_string(), server.port())
    }

    /// An empty database on every server, each with a name of its own; the coordinator's knows the others.
    ///
    /// # Panics
    /// If one cannot be made.
    pub fn fresh_database(&self) -> ClusterDatabase<'_> {
        let coordinator = self.coordinator.fresh_database();
        let nodes: Vec<_> = self.nodes.iter().map(Postgres::fresh_database).collect();
        let mut sql = "CREATE EXTENSION postgres_fdw;".to_owned();
        for (number, node) in nodes.iter().enumerate() {
            let (host, port) = self.address(number);
            sql += &format!(
                "CREATE SERVER node{number} FOREIGN DATA WRAPPER postgres_fdw
                     OPTIONS (host '{host}', port '{port}', dbname '{}');
                 CREATE USER MAPPING FOR PUBLIC SERVER node{number} OPTIONS (user 'postgres');",
                node.name()
            );
        }
        coordinator.psql(&sql);
        ClusterDatabase { cluster: self, coordinator, nodes }
    }
}

impl<'c> ClusterDatabase<'c> {
    /// Its servers.
    pub fn cluster(&self) -> &'c Cluster {
        self.cluster
    }

    /// The database that has the tables.
    pub fn coordinator(&self) -> &Database<'c> {
        &self.coordinator
    }

    /// The database on a node.
    pub fn node(&self, node: usize) -> &Database<'c> {
        &self.nodes[node]
    }

    /// Connection URL of the coordinator, through the Unix socket.
    pub fn url(&self) -> String {
        self.coordinator.url()
    }

    /// [`Database::psql`] on the coordinator.
    pub fn psql(&self, sql: &str) -> String {
        self.coordinator.psql(sql)
    }

    /// Runs SQL on every server, and gives the answers, the coordinator's first.
    pub fn everywhere(&self, sql: &str) -> Vec<String> {
        std::iter::once(&self.coordinator).chain(&self.nodes).map(|database| database.psql(sql)).collect()
    }

    /// Makes a leaf of a partitioned table. `columns` are those of the table on the node, with whatever is said of them
    /// there; a leaf here has those of its parent.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn leaf(&self, table: &str, leaf: &str, bound: &str, at: At, columns: &str) {
        match at {
            At::Here => drop(self.psql(&format!("CREATE TABLE {leaf} PARTITION OF {table} {bound}"))),
            At::Node(node) => {
                self.nodes[node].psql(&format!("CREATE TABLE {leaf} ({columns})"));
                self.psql(&format!(
                    "CREATE FOREIGN TABLE {leaf} PARTITION OF {table} {bound} SERVER node{node}"
                ));
            }
        }
    }

    /// Makes a table with leaves `TABLE_0`, `TABLE_1` ... `by` is such as `HASH (id)`.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn partitioned(&self, table: &str, columns: &str, by: &str, leaves: &[(&str, At)], there: &str) {
        self.psql(&format!("CREATE TABLE {table} ({columns}) PARTITION BY {by}"));
        for (number, (bound, at)) in leaves.iter().enumerate() {
            self.leaf(table, &format!("{table}_{number}"), bound, *at, there);
        }
    }

    /// Makes a table whose rows are spread by hash over `leaves` leaves, by turns on the nodes. On the nodes its columns are
    /// the same, and `there` besides, such as a primary key, which a table with foreign leaves cannot have.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn by_hash(&self, table: &str, columns: &str, keys: &str, leaves: usize, there: &str) {
        self.psql(&format!("CREATE TABLE {table} ({columns}) PARTITION BY HASH ({keys})"));
        let mut inside = columns.to_owned();
        if !there.is_empty() {
            inside = format!("{columns}, {there}");
        }
        for number in 0..leaves {
            self.leaf(
                table,
                &format!("{table}_{number}"),
                &format!("FOR VALUES WITH (MODULUS {leaves}, REMAINDER {number})"),
                At::Node(number % self.nodes.len()),
                &inside,
            );
        }
    }

    /// What is prepared in these databases: `server: gid`.
    pub fn prepared(&self) -> Vec<String> {
        let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid";
        let of = |(number, gids): (usize, String)| {
            let gids: Vec<String> = gids.lines().map(|gid| format!("{number}: {gid}")).collect();
            gids
        };
        self.everywhere(sql).into_iter().enumerate().flat_map(of).collect()
    }

    /// Sessions in these databases whose application name begins with `inrush`.
    pub fn sessions(&self) -> usize {
        let sql = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name LIKE 'inrush%'";
        self.everywhere(sql).iter().map(|count| count.parse::<usize>().unwrap_or_default()).sum()
    }
}
