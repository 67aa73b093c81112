//! The servers that have rows, and how to reach them.

use inrush_core::{Code, Error, Result};
use inrush_sink::connect::{Backend, Connected, connect};
use inrush_sink::conninfo::{ConnInfo, NodeAddress};
use inrush_sink::failure::server_error;
use std::fmt;
use std::time::Duration;
use tokio_postgres::Client;

/// How long a node may take to answer a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a session waits for a lock while rows go to nodes. Units of two lanes may wait for each other on different
/// nodes, or behind somebody who waits for a guard: no server can see it.
pub const LOCK_TIMEOUT: &str = "10s";

/// A server that has rows.
#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    /// `host:port` for Citus, as its metadata has them; the name of the foreign server for `postgres_fdw`.
    pub name: String,
    /// Where it listens; `None`: it is the coordinator itself.
    pub address: Option<Address>,
}

/// Where a node listens, as the catalog of the coordinator has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Host name, address, or directory of a Unix socket.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Database; `None`: of the same name.
    pub dbname: Option<String>,
    /// Role; `None`: the same.
    pub user: Option<String>,
    /// Password; `None`: the same.
    pub password: Option<String>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may have a password.
        f.debug_tuple("Node").field(&self.name).finish()
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) if !self.name.contains(':') => {
                write!(f, "{} ({}:{})", self.name, address.host, address.port)
            }
            _ => f.write_str(&self.name),
        }
    }
}

/// Other ways to nodes than those the coordinator knows: it may call them by names that mean nothing here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMap(Vec<(Endpoint, Endpoint)>);

/// `host` or `host:port`
#[derive(Debug, Clone, PartialEq, Eq)]
struct Endpoint {
    host: String,
    port: Option<u16>,
}

impl Endpoint {
    fn parse(text: &str) -> Option<Endpoint> {
        let (host, port) = match text.rsplit_once(':') {
            // An IPv6 address without a port has more than one colon.
            Some((host, port)) if !host.contains(':') || host.starts_with('[') => {
                (host, Some(port.parse().ok()?))
            }
            _ => (text, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (!host.is_empty()).then(|| Endpoint { host: host.to_owned(), port })
    }
}

impl NodeMap {
    /// Reads entries `HOST[:PORT]=HOST[:PORT]`.
    pub fn parse(entries: &[String]) -> Result<NodeMap> {
        let entries = entries.iter().map(|entry| {
            let parsed = entry
                .split_once('=')
                .and_then(|(from, to)| Some((Endpoint::parse(from)?, Endpoint::parse(to)?)));
            parsed.ok_or_else(|| {
                Error::new(Code::Usage, format!("--node {entry:?} is not HOST[:PORT]=HOST[:PORT]"))
                    .hint("For example --node worker-1:5432=10.0.0.7:6432, as the coordinator calls the node and as it is reached from here.")
            })
        });
        Ok(NodeMap(entries.collect::<Result<_>>()?))
    }

    fn apply<'a>(&'a self, host: &'a str, port: u16) -> (&'a str, u16) {
        let known = self.0.iter().find(|(from, _)| from.host == host && from.port.is_none_or(|p| p == port));
        known.map_or((host, port), |(_, to)| (&to.host, to.port.unwrap_or(port)))
    }
}

impl Node {
    /// The server that has the table.
    pub fn coordinator() -> Node {
        Node { name: "coordinator".into(), address: None }
    }

    /// How to connect, with what was said of the coordinator where nothing else is known.
    pub fn conninfo(&self, coordinator: &ConnInfo, map: &NodeMap) -> Result<ConnInfo> {
        let Some(address) = &self.address else { return Ok(coordinator.clone()) };
        let (host, port) = map.apply(&address.host, address.port);
        coordinator.at(&NodeAddress {
            host,
            port,
            dbname: address.dbname.as_deref(),
            user: address.user.as_deref(),
            password: address.password.as_deref(),
        })
    }

    /// Connects. `settings` are made the session's: those of a session of the coordinator that decide what a text
    /// means ([`NodeSession::settings`]).
    pub async fn connect(
        &self,
        coordinator: &ConnInfo,
        map: &NodeMap,
        application: &str,
        settings: &[(String, String)],
    ) -> Result<NodeSession> {
        let said = |error: Error| {
            error.hint(format!("This is node {self}. If it is reached otherwise from here: --node HOST:PORT=HOST:PORT; to go through the coordinator: --no-bypass. In a configuration: server.nodes, server.bypass."))
        };
        let conninfo = self.conninfo(coordinator, map)?;
        let connecting = tokio::time::timeout(CONNECT, connect(&conninfo, application)).await;
        let connected = connecting.unwrap_or_else(|_| {
            let fact = format!("node {self} does not answer within {} s", CONNECT.as_secs());
            Err(Error::new(Code::Connect, fact))
        });
        let connected = connected.map_err(said)?;
        let client = &connected.client;
        set(client, application, settings).await?;
        Ok(NodeSession { backend: Backend::own(client).await?, connected })
    }
}

/// Makes settings a session's. Whoever cleans up knows it by the name, even if the user has given others another; and it
/// ends within two minutes of a client that is gone without a word.
pub(crate) async fn set(client: &Client, application: &str, settings: &[(String, String)]) -> Result<()> {
    let own = [
        ("application_name", application),
        ("tcp_keepalives_idle", "60"),
        ("tcp_keepalives_interval", "10"),
        ("tcp_keepalives_count", "5"),
    ];
    let settings = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let (names, values): (Vec<&str>, Vec<&str>) = own.into_iter().chain(settings).unzip();
    let sql = "SELECT pg_catalog.set_config(n, v, false)
                 FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) x (n, v)";
    client.query(sql, &[&names, &values]).await.map(drop).map_err(server_error)
}

/// A connection to a node.
#[derive(Debug)]
pub struct NodeSession {
    /// The connection.
    pub connected: Connected,
    /// Its server process.
    pub backend: Backend,
}

impl NodeSession {
    /// What of a session's settings decides how text becomes values, and what a row may wait for.
    pub async fn settings(client: &Client) -> Result<Vec<(String, String)>> {
        const NAMES: [&str; 7] = [
            "TimeZone",
            "DateStyle",
            "IntervalStyle",
            "array_nulls",
            "xmloption",
            "lc_monetary",
            "search_path",
        ];
        let names: Vec<&str> = NAMES.to_vec();
        let sql = "SELECT n, pg_catalog.current_setting(n) FROM pg_catalog.unnest($1::text[]) n";
        let rows = client.query(sql, &[&names]).await.map_err(server_error)?;
        let mut settings: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        settings.push(("lock_timeout".into(), LOCK_TIMEOUT.into()));
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_called_otherwise() {
        let map =
            NodeMap::parse(&["w1:5432=10.0.0.7:6432".into(), "w2=localhost".into(), "[::1]:1=h:2".into()])
                .unwrap();
        assert_eq!(map.apply("w1", 5432), ("10.0.0.7", 6432));
        assert_eq!(map.apply("w1", 5433), ("w1", 5433));
        assert_eq!(map.apply("w2", 9), ("localhost", 9));
        assert_eq!(map.apply("::1", 1), ("h", 2));
        for odd in ["", "w1", "w1:x=h", "=h", "w1="] {
            assert!(NodeMap::parse(&[odd.into()]).is_err(), "{odd}");
        }
    }
}
