//! The cluster that the tests are given.

use crate::loads::Place;
use inrush_testkit::proxy::Proxy;
use inrush_testkit::{Installation, Version};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server of the cluster.
#[derive(Debug, Clone)]
struct Server {
    host: String,
    port: u16,
}

/// A database on every server of the cluster, which makes them a cluster of their own. One at a time: names of replication
/// slots are the same in all.
pub struct Citus {
    coordinator: Server,
    workers: Vec<Server>,
    user: String,
    name: String,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// The connection string of the cluster; if there is none, says past the capture that the test is skipped.
pub fn dsn() -> Option<String> {
    let dsn = std::env::var("INRUSH_TEST_CITUS").ok().filter(|dsn| !dsn.is_empty());
    if dsn.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs a Citus cluster (INRUSH_TEST_CITUS=DSN)");
    }
    dsn
}

/// Ends the test early, loudly, when there is no cluster.
macro_rules! require_citus {
    () => {
        match crate::citus::server::dsn() {
            Some(dsn) => crate::citus::server::Citus::fresh(&dsn),
            None => return,
        }
    };
}
pub(crate) use require_citus;

fn psql(dsn: &str, sql: &str) -> Result<String, String> {
    let any = Installation::find(Version::Any).expect("psql");
    let mut child = any
        .command("psql")
        .args(["-X", "-d", dsn, "-qAt", "-v", "ON_ERROR_STOP=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut stdin = child.stdin.take().expect("piped above");
    let sql = sql.to_owned();
    let writer = std::thread::spawn(move || drop(stdin.write_all(sql.as_bytes())));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    drop(writer.join());
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

impl Server {
    fn dsn(&self, user: &str, database: &str) -> String {
        format!("host='{}' port={} user='{user}' dbname='{database}'", self.host, self.port)
    }

    fn proxy(&self) -> Proxy {
        if self.host.starts_with('/') {
            Proxy::to_socket(Path::new(&self.host).join(format!(".s.PGSQL.{}", self.port)))
        } else {
            Proxy::to_address(&self.host, self.port)
        }
    }
}

impl Citus {
    pub fn fresh(dsn: &str) -> Citus {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |sql: &str| psql(dsn, sql).unwrap_or_else(|error| panic!("{error}\nin: {sql}"));
        let here = ask(
            "\\echo :HOST\n\\echo :PORT\n\\echo :USER\nSELECT nodename FROM pg_dist_node WHERE groupid = 0",
        );
        let here: Vec<&str> = here.lines().collect();
        let known = |line: &str| {
            let (host, port) = line.split_once('|').expect("two columns");
            Server { host: host.to_owned(), port: port.parse().expect("a port") }
        };
        let workers: Vec<Server> = ask("SELECT nodename, nodeport FROM pg_dist_node
              WHERE groupid > 0 AND noderole = 'primary' AND isactive ORDER BY groupid")
        .lines()
        .map(known)
        .collect();
        let citus = Citus {
            coordinator: Server { host: here[0].into(), port: here[1].parse().expect("a port") },
            workers,
            user: here[2].into(),
            name: format!("inrush_test_{}_{}", std::process::id(), Random::number()),
            _turn: turn,
        };
        for server in citus.servers() {
            let dsn = server.dsn(&citus.user, "postgres");
            let create = format!(
                "SET citus.enable_create_database_propagation = off; CREATE DATABASE {} TEMPLATE template0",
                citus.name
            );
            psql(&dsn, &create).unwrap_or_else(|error| panic!("{error}"));
            psql(&server.dsn(&citus.user, &citus.name), "CREATE EXTENSION citus")
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let mut join = format!(
            "SELECT citus_set_coordinator_host('{}', {});",
            here.get(3).unwrap_or(&"localhost"),
            here[1]
        );
        for worker in &citus.workers {
            join += &format!("SELECT citus_add_node('{}', {});", worker.host, worker.port);
        }
        citus.sql(&join);
        citus
    }

    fn servers(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.coordinator).chain(&self.workers)
    }

    pub fn url(&self) -> String {
        self.url_of(&self.user)
    }

    pub fn url_of(&self, user: &str) -> String {
        self.coordinator.dsn(user, &self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// SQL on every server; the answers, the coordinator's first.
    pub fn everywhere(&self, sql: &str) -> Vec<String> {
        self.servers()
            .map(|server| {
                psql(&server.dsn(&self.user, &self.name), sql).unwrap_or_else(|error| panic!("{error}"))
            })
            .collect()
    }
}

struct Random;

impl Random {
    fn number() -> u32 {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

impl Place for Citus {
    fn try_psql(&self, sql: &str) -> Result<String, String> {
        psql(&self.url(), sql)
    }

    fn prepared(&self) -> Vec<String> {
        let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE 'inrush%' ORDER BY gid";
        let all = self.everywhere(sql);
        all.iter()
            .enumerate()
            .flat_map(|(number, gids)| gids.lines().map(move |gid| format!("{number}: {gid}")))
            .collect()
    }

    fn sessions(&self) -> usize {
        let sql = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name LIKE 'inrush%'";
        self.everywhere(sql).iter().map(|count| count.parse::<usize>().unwrap_or_default()).sum()
    }

    fn url_via(&self, port: u16) -> String {
        format!("host=127.0.0.1 port={port} user='{}' dbname='{}' sslmode=disable", self.user, self.name)
    }

    fn coordinator_proxy(&self) -> Proxy {
        self.coordinator.proxy()
    }

    fn node_proxies(&self) -> Vec<(String, Proxy)> {
        self.workers
            .iter()
            .map(|worker| (format!("{}:{}", worker.host, worker.port), worker.proxy()))
            .collect()
    }

    /// A server process that is killed makes its server restart itself.
    fn crash(&self, coordinator: bool, node: bool) {
        let servers = [(coordinator, &self.coordinator), (node, &self.workers[self.workers.len() - 1])];
        for (_, server) in servers.iter().filter(|(wanted, _)| *wanted) {
            let dsn = server.dsn(&self.user, &self.name);
            let started = |dsn: &str| {
                psql(
                    dsn,
                    "SELECT max(backend_start) FROM pg_stat_activity WHERE backend_type = 'checkpointer'",
                )
            };
            let before = started(&dsn).expect("it runs");
            let _ = psql(
                &dsn,
                "DO $$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -9 ' || pg_backend_pid()); END $$",
            );
            let began = Instant::now();
            while started(&dsn).is_ok_and(|now| now == before) || started(&dsn).is_err() {
                assert!(began.elapsed() < Duration::from_secs(60), "it does not come back");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn misplaced(&self, table: &str) -> u64 {
        let key = self.sql(&format!(
            "SELECT column_to_column_name(logicalrelid, partkey) FROM pg_dist_partition
              WHERE logicalrelid = '{table}'::regclass AND partmethod = 'h'"
        ));
        if key.is_empty() {
            return 0;
        }
        let wrong = self.sql(&format!(
            "SELECT sum(result::bigint), bool_and(success) FROM run_command_on_shards('{table}', $$
                 SELECT count(*) FROM %1$s t, pg_dist_shard s WHERE s.shardid = substring('%1$s' from '([0-9]+)\"?$')::bigint
                    AND worker_hash(t.\"{key}\") NOT BETWEEN s.shardminvalue::int AND s.shardmaxvalue::int $$)"
        ));
        let (wrong, all) = wrong.split_once('|').expect("two columns");
        assert_eq!(all, "t", "not every shard could be asked");
        wrong.parse().expect("a number")
    }
}

impl Drop for Citus {
    fn drop(&mut self) {
        let off =
            "SET citus.enable_create_database_propagation = off; SET citus.enable_ddl_propagation = off;";
        // The coordinator first: its maintenance would go on.
        for server in self.servers() {
            let dsn = server.dsn(&self.user, "postgres");
            for _ in 0..20 {
                if psql(&dsn, &format!("{off} DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(250));
            }
            let _ = psql(&dsn, &format!("{off} DROP ROLE IF EXISTS {}_writer", self.name));
        }
    }
}
