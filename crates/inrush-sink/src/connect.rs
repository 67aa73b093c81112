//! Connections: which server of the list, with or without TLS, and a task that drives the protocol.
//!
//! The order of attempts is libpq's (fe-connect.c, PQconnectPoll): hosts in order, the addresses of each in
//! order, with and without TLS as sslmode says; a server that answers and refuses the login ends the search.
//!
//! A session differs from a fresh psql's in nothing but this:
//! - `client_encoding` is UTF8 (the driver speaks nothing else; inputs are recoded before they are sent);
//! - `application_name` says who is at work, unless the user named it.
//!
//! No other setting is touched: timeouts, memory, `synchronous_commit` and the rest stay as the role, the database
//! and PGOPTIONS have them.

mod backend;
mod socket;
mod stream;

use crate::conninfo::{ConnInfo, Endpoint, Host, SslMode, TargetSessionAttrs};
use crate::failure::{self, Failure};
use crate::tls;
pub use backend::{Backend, Patience};
use inrush_core::{Code, Error, Result};
pub(crate) use socket::Socket;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stream::{Ready, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_postgres::config::SslNegotiation;
use tokio_postgres::error::DbError;
use tokio_postgres::{AsyncMessage, CancelToken, Client, Connection};

/// Notices kept for the caller per connection; more are counted and dropped until it has read some.
const MAX_NOTICES: usize = 256;

/// An open connection. Its protocol is driven by a task on the runtime it was opened on (a current_thread one
/// will do); the connection ends when the client is dropped.
pub struct Connected {
    /// The session.
    pub client: Client,
    /// Process ID of the server's backend (pg_stat_activity.pid).
    pub backend_pid: i32,
    /// server_version_num: 150004 for 15.4.
    pub server_version_num: u32,
    /// The server of the list that it is.
    pub host: Host,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Cancels what the session is doing; may be cloned and sent to other threads.
    pub cancel: Cancel,
    /// Warnings and notices of the server, at most 256 at a time.
    pub notices: mpsc::Receiver<DbError>,
    ended: Arc<OnceLock<tokio_postgres::Error>>,
    /// For a COPY; none where it goes through the driver.
    pub(crate) socket: Option<Arc<Socket>>,
}

impl Connected {
    /// Why the server ended the connection, once it has: a statement on a dead connection only learns that it is
    /// closed, the reason ("terminating connection due to administrator command") arrives here.
    pub fn ended(&self) -> Option<&tokio_postgres::Error> {
        self.ended.get()
    }

    /// Has the session's commits outlast a crash of its server. What is decided here others are told of: rows and ledger of
    /// one server may be lost together, but not those of one when another has the rest.
    pub async fn commit_for_good(&self) -> Result<()> {
        let set = "SELECT pg_catalog.set_config('synchronous_commit', 'local', false)
                    WHERE pg_catalog.current_setting('synchronous_commit') = 'off'";
        self.client.query(set, &[]).await.map(drop).map_err(failure::server_error)
    }

    /// The failure of a statement that was not COPY, with the reason for a connection that died.
    pub fn failure(&self, error: &tokio_postgres::Error) -> Failure {
        match self.ended() {
            Some(ended) if error.is_closed() => failure::of_statement(ended),
            _ => failure::of_statement(error),
        }
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected")
            .field("backend_pid", &self.backend_pid)
            .field("server_version_num", &self.server_version_num)
            .field("host", &self.host)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Opens a connection to the first server of the list that takes it.
///
/// `application_name` is what pg_stat_activity shows unless the user named it otherwise. Errors have code
/// `connect`; they never hold a password.
pub async fn connect(info: &ConnInfo, application_name: &str) -> Result<Connected> {
    // Loaded once per call: certificates may be renewed between connections.
    let connector = match info.hosts.iter().all(|host| matches!(host.endpoint, Endpoint::Unix(_))) {
        true => None,
        false => tls::Connector::new(&info.transport)?,
    };
    let search = Search { info, application_name, connector: connector.as_ref() };
    let mut hosts: Vec<&Host> = info.hosts.iter().collect();
    if info.load_balance_hosts {
        shuffle(&mut hosts);
    }
    if info.target_session_attrs != TargetSessionAttrs::PreferStandby {
        return search.run(&hosts, info.target_session_attrs).await;
    }
    match search.run(&hosts, TargetSessionAttrs::Standby).await {
        Ok(connected) => Ok(connected),
        Err(_) => search.run(&hosts, TargetSessionAttrs::Any).await,
    }
}

/// Why one attempt failed, and whether another server may do better.
struct Refused {
    error: Error,
    final_: bool,
    /// Set when the server answered, so that the same address may be tried with the other TLS choice.
    answered: bool,
}

impl Refused {
    /// The server cannot be reached or is not fit: try the next.
    fn next(error: Error) -> Refused {
        Refused { error, final_: false, answered: false }
    }
}

struct Search<'a> {
    info: &'a ConnInfo,
    application_name: &'a str,
    connector: Option<&'a tls::Connector>,
}

/// One address of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// How an attempt uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    None,
    /// If the server says it has it.
    Offered,
    Always,
}

impl Search<'_> {
    async fn run(&self, hosts: &[&Host], wanted: TargetSessionAttrs) -> Result<Connected> {
        let mut failures: Vec<Error> = Vec::new();
        for host in hosts {
            let mut addresses = match addresses(host).await {
                Ok(addresses) => addresses,
                Err(e) => {
                    failures.push(unreachable(host, &e));
                    continue;
                }
            };
            if self.info.load_balance_hosts {
                shuffle(&mut addresses);
            }
            for address in addresses {
                match self.try_address(host, &address, wanted).await {
                    Ok(connected) => return Ok(connected),
                    Err(refused) if refused.final_ => return Err(refused.error),
                    Err(refused) => failures.push(refused.error),
                }
            }
        }
        Err(joined(failures))
    }

    /// Tries with and without TLS as sslmode says.
    async fn try_address(
        &self,
        host: &Host,
        address: &Address,
        wanted: TargetSessionAttrs,
    ) -> Result<Connected, Refused> {
        let (first, second) = match (address, self.info.transport.sslmode) {
            (Address::Unix(_), _) | (_, SslMode::Disable) => (Encryption::None, None),
            (_, SslMode::Allow) => (Encryption::None, Some(Encryption::Always)),
            (_, SslMode::Prefer) => (Encryption::Offered, Some(Encryption::None)),
            _ => (Encryption::Always, None),
        };
        let refused = match self.attempt(host, address, first, wanted).await {
            Ok(connected) => return Ok(connected),
            Err(refused) => refused,
        };
        match second {
            Some(second) if refused.answered => match self.attempt(host, address, second, wanted).await {
                Ok(connected) => Ok(connected),
                // What the first attempt met is what the user has to know: the second is a fall-back.
                Err(again) => Err(Refused { final_: refused.final_ || again.final_, ..refused }),
            },
            _ => Err(refused),
        }
    }

    async fn attempt(
        &self,
        host: &Host,
        address: &Address,
        encryption: Encryption,
        wanted: TargetSessionAttrs,
    ) -> Result<Connected, Refused> {
        let open = self.open(host, address, encryption, wanted);
        match self.info.connect_timeout {
            None => open.await,
            Some(limit) => tokio::time::timeout(limit, open).await.unwrap_or_else(|_| {
                let late = io::Error::new(io::ErrorKind::TimedOut, timeout_fact(limit));
                Err(Refused::next(unreachable(host, &late)))
            }),
        }
    }

    async fn open(
        &self,
        host: &Host,
        address: &Address,
        encryption: Encryption,
        wanted: TargetSessionAttrs,
    ) -> Result<Connected, Refused> {
        let dial = Dial {
            address: address.clone(),
            keepalive: self.info.keepalive,
            tcp_user_timeout: self.info.tcp_user_timeout,
            direct: self.info.transport.direct,
            connector: self.connector.cloned(),
            server_name: tls_name(host, address),
        };
        let mut answered = false;
        let stream = dial.stream(encryption, &mut answered).await.map_err(|e| Refused {
            error: unreachable(host, &e),
            final_: false,
            answered,
        })?;
        let tls = matches!(stream, Stream::Tls(_));
        let socket = Socket::of(&stream).map(Arc::new);

        let config = self.driver_config(host, tls);
        let (client, connection) = config.connect_raw(stream, Ready).await.map_err(|e| Refused {
            // With "prefer" the other choice is no TLS, and only a login refused with TLS makes it another.
            answered: tls || self.info.transport.sslmode == SslMode::Allow,
            ..refused_login(host, self.info, &e)
        })?;
        let standby = connection.parameter("in_hot_standby").map(|value| value == "on");
        let read_only = connection.parameter("default_transaction_read_only").map(|value| value == "on");

        let encryption = if tls { Encryption::Always } else { Encryption::None };
        let cancel =
            Cancel { token: client.cancel_token(), dial, encryption, limit: self.info.connect_timeout };
        let (notices, ended) = drive(connection);
        let lost = |e: &tokio_postgres::Error| {
            let error =
                failure::of_statement(ended.get().filter(|_| e.is_closed()).unwrap_or(e)).into_error();
            Refused::next(Error::new(Code::Connect, format!("{host}: {}", error.fact())))
        };
        // Also what the server did not report at start (a pooler in between may keep it to itself).
        let row = client
            .query_typed_one(
                "SELECT pg_catalog.pg_backend_pid(), \
                        pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
                        pg_catalog.pg_is_in_recovery(), \
                        pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool",
                &[],
            )
            .await
            .map_err(|e| lost(&e))?;
        let column = |e: tokio_postgres::Error| lost(&e);
        let standby = standby.unwrap_or(row.try_get(2).map_err(column)?);
        let read_only = read_only.unwrap_or(row.try_get(3).map_err(column)?);
        if let Some(fact) = unfit(wanted, standby, read_only) {
            return Err(Refused::next(Error::new(Code::Connect, format!("{host}: {fact}"))));
        }
        let version: i32 = row.try_get(1).map_err(column)?;
        Ok(Connected {
            backend_pid: row.try_get(0).map_err(column)?,
            server_version_num: version.unsigned_abs(),
            client,
            host: host.clone(),
            tls,
            cancel,
            notices,
            ended,
            socket,
        })
    }

    fn driver_config(&self, host: &Host, tls: bool) -> tokio_postgres::Config {
        let info = self.info;
        let mut config = tokio_postgres::Config::new();
        config
            .user(&info.user)
            .dbname(&info.dbname)
            .application_name(info.application_name.as_deref().unwrap_or(self.application_name));
        if let Some(options) = &info.options {
            config.options(options);
        }
        if let Some(password) = &host.password {
            config.password(password);
        }
        config.channel_binding(match info.transport.channel_binding {
            crate::conninfo::ChannelBinding::Disable => tokio_postgres::config::ChannelBinding::Disable,
            crate::conninfo::ChannelBinding::Prefer => tokio_postgres::config::ChannelBinding::Prefer,
            crate::conninfo::ChannelBinding::Require => tokio_postgres::config::ChannelBinding::Require,
        });
        // The stream arrives with TLS done or decided against. "Direct" keeps the driver from asking again.
        if tls {
            config.ssl_mode(tokio_postgres::config::SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        } else {
            config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        }
        config
    }
}

/// Why a server is not of the wanted kind (fe-connect.c, CONNECTION_CHECK_TARGET).
fn unfit(wanted: TargetSessionAttrs, standby: bool, read_only: bool) -> Option<&'static str> {
    match wanted {
        TargetSessionAttrs::ReadWrite if standby || read_only => Some("session is read-only"),
        TargetSessionAttrs::ReadOnly if !standby && !read_only => Some("session is not read-only"),
        TargetSessionAttrs::Primary if standby => Some("server is in hot standby mode"),
        TargetSessionAttrs::Standby if !standby => Some("server is not in hot standby mode"),
        _ => None,
    }
}

/// Runs the protocol of a connection until it ends. Owns the socket.
fn drive(
    mut connection: Connection<Stream, Stream>,
) -> (mpsc::Receiver<DbError>, Arc<OnceLock<tokio_postgres::Error>>) {
    let (sender, notices) = mpsc::channel(MAX_NOTICES);
    let ended = Arc::new(OnceLock::new());
    let reason = Arc::clone(&ended);
    tokio::spawn(async move {
        let mut dropped = 0u64;
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notice(notice)) => {
                    tracing::debug!(severity = notice.severity(), message = notice.message(), "notice");
                    dropped += u64::from(sender.try_send(notice).is_err());
                }
                Ok(_) => {}
                Err(e) => {
                    // Set before the connection is dropped: whoever waits for an answer wakes up after this.
                    let _ = reason.set(e);
                    break;
                }
            }
        }
        if dropped > 0 {
            tracing::warn!(dropped, limit = MAX_NOTICES, "notices of the server were not read in time");
        }
    });
    (notices, ended)
}

async fn addresses(host: &Host) -> io::Result<Vec<Address>> {
    match &host.endpoint {
        Endpoint::Unix(directory) => {
            Ok(vec![Address::Unix(directory.join(format!(".s.PGSQL.{}", host.port)))])
        }
        Endpoint::Tcp { address: Some(address), .. } => {
            Ok(vec![Address::Tcp(SocketAddr::new(*address, host.port))])
        }
        Endpoint::Tcp { name, .. } => {
            let name = name.as_deref().unwrap_or("localhost");
            Ok(tokio::net::lookup_host((name, host.port)).await?.map(Address::Tcp).collect())
        }
    }
}

/// The name a certificate is checked against; the address stands in where there is no name.
fn tls_name(host: &Host, address: &Address) -> tls::PeerName {
    match (&host.endpoint, address) {
        (Endpoint::Tcp { name: Some(name), .. }, _) => tls::PeerName::Given(name.clone()),
        (_, Address::Tcp(address)) => tls::PeerName::OnlyAddress(address.ip()),
        // Never used: there is no TLS on a Unix socket.
        (_, Address::Unix(_)) => tls::PeerName::Given(String::new()),
    }
}

/// How to open a socket to a server again, as cancelling must.
#[derive(Clone)]
struct Dial {
    address: Address,
    keepalive: Option<crate::conninfo::Keepalive>,
    tcp_user_timeout: Option<Duration>,
    direct: bool,
    connector: Option<tls::Connector>,
    server_name: tls::PeerName,
}

impl Dial {
    /// Opens the socket and settles TLS. Sets `answered` once the server has spoken or TLS was under way.
    async fn stream(&self, encryption: Encryption, answered: &mut bool) -> io::Result<Stream> {
        let mut socket = match &self.address {
            Address::Unix(path) => return Ok(Stream::Unix(UnixStream::connect(path).await?)),
            Address::Tcp(address) => TcpStream::connect(address).await?,
        };
        socket.set_nodelay(true)?;
        self.set_keepalive(&socket)?;
        let connector = match (&self.connector, encryption) {
            (_, Encryption::None) | (None, Encryption::Offered) => return Ok(Stream::Tcp(socket)),
            (None, Encryption::Always) => return Err(io::Error::other("TLS is not set up")),
            (Some(connector), _) => connector,
        };
        if !self.direct {
            // SSLRequest (protocol.sgml): length 8, code 1234.5679; the answer is one byte, "S" or "N".
            socket.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await?;
            let answer = socket.read_u8().await?;
            *answered = true;
            match answer {
                b'S' => {}
                b'N' if encryption == Encryption::Offered => return Ok(Stream::Tcp(socket)),
                b'N' => return Err(io::Error::other("server does not support SSL, but SSL was required")),
                // "E": an error message in the clear, before anybody proved who they are, is not to be shown.
                _ => return Err(io::Error::other("server answered the request for SSL with something else")),
            }
        }
        Ok(Stream::Tls(Box::new(connector.handshake(socket, &self.server_name).await?)))
    }

    fn set_keepalive(&self, socket: &TcpStream) -> io::Result<()> {
        let socket = socket2::SockRef::from(socket);
        match &self.keepalive {
            None => socket.set_keepalive(false)?,
            Some(wanted) => {
                socket.set_keepalive(true)?;
                let mut keepalive = socket2::TcpKeepalive::new();
                if let Some(idle) = wanted.idle {
                    keepalive = keepalive.with_time(idle);
                }
                if let Some(interval) = wanted.interval {
                    keepalive = keepalive.with_interval(interval);
                }
                if let Some(count) = wanted.count {
                    keepalive = keepalive.with_retries(count);
                }
                socket.set_tcp_keepalive(&keepalive)?;
            }
        }
        #[cfg(target_os = "linux")]
        if let Some(limit) = self.tcp_user_timeout {
            socket.set_tcp_user_timeout(Some(limit))?;
        }
        Ok(())
    }
}

/// Cancels the running statement of one connection, over a connection of its own.
#[derive(Clone)]
pub struct Cancel {
    token: CancelToken,
    dial: Dial,
    encryption: Encryption,
    limit: Option<Duration>,
}

impl Cancel {
    /// Asks the server to cancel what the connection is doing. That the request arrived says nothing about
    /// whether there still was a statement to cancel. Waits at most 10 seconds, or `connect_timeout`.
    pub async fn cancel(&self) -> Result<()> {
        let request = async {
            let stream = self.dial.stream(self.encryption, &mut false).await.map_err(|e| e.to_string())?;
            self.token.cancel_query_raw(stream, Ready).await.map_err(|e| failure::text(&e))
        };
        let limit = self.limit.unwrap_or(Duration::from_secs(10));
        tokio::time::timeout(limit, request)
            .await
            .unwrap_or_else(|_| Err(timeout_fact(limit)))
            .map_err(|e| Error::new(Code::Connect, format!("the cancel request could not be sent: {e}")))
    }

    /// [`Cancel::cancel`] for a thread without a runtime.
    pub fn cancel_blocking(&self) -> Result<()> {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::new(Code::Internal, format!("no runtime for a cancel request: {e}")))?
            .block_on(self.cancel())
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("address", &self.dial.address).finish_non_exhaustive()
    }
}

fn timeout_fact(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs_f64())
}

fn unreachable(host: &Host, e: &io::Error) -> Error {
    let error = Error::new(Code::Connect, format!("cannot connect to {host}: {e}"));
    match e.kind() {
        io::ErrorKind::NotFound if matches!(host.endpoint, Endpoint::Unix(_)) => error.hint(
            "Check that a server is running on this machine and puts its Unix socket there (unix_socket_directories).",
        ),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => error
            .hint("Check that the server is running there and accepts connections (listen_addresses, port)."),
        _ => error,
    }
}

/// A failed start of the session.
fn refused_login(host: &Host, info: &ConnInfo, e: &tokio_postgres::Error) -> Refused {
    let failure = failure::of_statement(e);
    let sqlstate = e.code().map(|state| state.code().to_owned());
    let mut fact = failure::text(e);
    // The driver has no other sign for this than its text.
    let no_password = e.as_db_error().is_none() && fact.contains("password missing");
    if no_password {
        fact = "the server asks for a password and none is known".to_owned();
    }
    let mut error = Error::new(Code::Connect, format!("{host}: {fact}"));
    if let Some(sqlstate) = &sqlstate {
        error = error.sqlstate(sqlstate);
    }
    let hint = match sqlstate.as_deref() {
        None if no_password => {
            Some("Put it into ~/.pgpass or PGPASSWORD, or into the connection string.".to_owned())
        }
        Some("28P01") if host.password.is_some() => Some(format!(
            "Check the password of role \"{}\": it may come from the connection string, PGPASSWORD, a service file or ~/.pgpass.",
            info.user
        )),
        Some("3D000") => Some(format!("Create it with: createdb {}", info.dbname)),
        _ => failure.error().hint_text().map(str::to_owned),
    };
    if let Some(hint) = hint {
        error = error.hint(hint);
    }
    // The server is there but starting, stopping or full of recovery: another host may do. A connection cut before
    // any answer is as good as none.
    let unavailable = sqlstate.as_deref() == Some("57P03") || matches!(failure, Failure::Lost(_));
    Refused { error, final_: !unavailable, answered: false }
}

/// One error for a search that found nothing: the only one, or all facts in one.
fn joined(mut failures: Vec<Error>) -> Error {
    failures.dedup_by(|a, b| a.fact() == b.fact());
    if failures.len() == 1 {
        return failures.remove(0);
    }
    if failures.is_empty() {
        return Error::new(Code::Connect, "no server to connect to: the host name has no address");
    }
    let facts: Vec<_> = failures.iter().map(Error::fact).collect();
    let error = Error::new(Code::Connect, facts.join("; "));
    match failures.iter().find_map(Error::hint_text) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Fisher-Yates on the system's random source; no shuffle at all if there is none.
fn shuffle<T>(list: &mut [T]) {
    use ring::rand::SecureRandom;
    let random = ring::rand::SystemRandom::new();
    for i in (1..list.len()).rev() {
        let mut bytes = [0; 8];
        if random.fill(&mut bytes).is_err() {
            return;
        }
        // The remainder is below the length of the list.
        #[allow(clippy::cast_possible_truncation)]
        let j = (u64::from_ne_bytes(bytes) % (i as u64 + 1)) as usize;
        list.swap(i, j);
    }
}
