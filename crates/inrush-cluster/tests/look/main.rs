//! Where keys live and what nodes have: against throw-away servers with `postgres_fdw`, and against Citus with
//! `INRUSH_TEST_CITUS=DSN`, the connection string of a superuser to the coordinator of a cluster for tests.

mod citus;
mod route;
mod status;

use inrush_cluster::{Look, NodeMap, Route, Status, route, status};
use inrush_core::{Result, Table};
use inrush_sink::catalog::{TableName, table};
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::{self, ConnInfo};
use inrush_sink::ledger::Ledger;
use tokio::runtime::Runtime;

/// A session of the coordinator.
struct Session {
    runtime: Runtime,
    connected: Connected,
    conninfo: ConnInfo,
}

impl Session {
    fn open(dsn: &str) -> Session {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let conninfo =
            conninfo::resolve(Some(dsn), &|_| None).expect("a connection string").expect("a server");
        let connected = runtime.block_on(connect(&conninfo, "inrush tests")).expect("a connection");
        Session { runtime, connected, conninfo }
    }

    fn table(&self, name: &str) -> Table {
        let name = TableName::parse(name).expect("a name");
        self.runtime.block_on(table(&self.connected.client, &name)).expect("a table")
    }

    fn try_route(&self, name: &str, key: &[Option<&str>]) -> Result<Route> {
        let key: Vec<Option<String>> = key.iter().map(|value| value.map(str::to_owned)).collect();
        let table = self.table(name);
        self.runtime.block_on(route(&self.connected.client, &table, &key))
    }

    fn route(&self, name: &str, key: &[Option<&str>]) -> Route {
        self.try_route(name, key).unwrap_or_else(|error| panic!("{name} {key:?}: {error}"))
    }

    fn try_status(&self, look: Look<'_>) -> Result<Status> {
        let map = NodeMap::default();
        let work = status(&self.connected.client, &self.conninfo, &map, look);
        self.runtime.block_on(work)
    }

    fn status(&self, look: Look<'_>) -> Status {
        self.try_status(look).expect("a status")
    }

    /// The ledger, made if it is missing.
    fn ledger(&mut self) -> Ledger {
        let work = Ledger::open(&mut self.connected.client, Ledger::DEFAULT_SCHEMA, true);
        self.runtime.block_on(work).expect("a ledger").expect("made")
    }

    /// Rows as text.
    fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        use tokio_postgres::SimpleQueryMessage::Row;
        let said = self.runtime.block_on(self.connected.client.simple_query(sql));
        let said = said.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let rows = said.iter().filter_map(|message| match message {
            Row(row) => Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
            _ => None,
        });
        rows.collect()
    }

    /// The only value.
    fn one(&self, sql: &str) -> String {
        self.rows(sql).remove(0).remove(0).unwrap_or_default()
    }
}
