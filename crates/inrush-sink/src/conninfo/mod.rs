//! Where to connect and how, read as libpq reads it: connection strings, service files, the PG* environment,
//! password files, and the defaults between them (fe-connect.c, conninfo_add_defaults and connectOptions2).

mod keywords;
mod parse;
mod passfile;
mod service;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::{
    ChannelBinding, Keepalive, RootCertificates, SslFiles, SslMode, TargetSessionAttrs, Transport,
};

use inrush_core::{Code, Error, Excerpt, Result};
use keywords::{KEYWORDS, Options};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const DEFAULT_PORT: u16 = 5432;

/// Directories in which a server puts its Unix socket unless told otherwise: Debian's and PostgreSQL's own.
/// libpq has one of them compiled in.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Any of these set (and not empty) means that the user has a server in mind.
const ENVIRONMENT_THAT_NAMES_A_SERVER: [&str; 7] =
    ["PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE", "PGSERVICEFILE"];

/// Everything needed to connect. Holds passwords: `Debug` and [`ConnInfo::display`] leave them out.
#[derive(Debug, Clone)]
pub struct ConnInfo {
    /// The servers to try, in this order; never empty.
    pub hosts: Vec<Host>,
    /// Role to log in as.
    pub user: String,
    /// Database.
    pub dbname: String,
    /// TLS and authentication.
    pub transport: Transport,
    /// TCP keepalive; `None` when switched off.
    pub keepalive: Option<Keepalive>,
    /// TCP_USER_TIMEOUT, where the system has it; `None` is the system's default.
    pub tcp_user_timeout: Option<Duration>,
    /// Longest time for one attempt to connect to one address; `None` waits for ever.
    pub connect_timeout: Option<Duration>,
    /// What kind of server is wanted.
    pub target_session_attrs: TargetSessionAttrs,
    /// Try the hosts, and the addresses of each, in random order.
    pub load_balance_hosts: bool,
    /// The name to show in pg_stat_activity if the user gave one; it wins over the caller's.
    pub application_name: Option<String>,
    /// Command-line options for the session, as in PGOPTIONS; the settings that PGTZ, PGDATESTYLE and PGGEQO ask
    /// for stand at the end, where they win as they do in libpq.
    pub options: Option<String>,
    /// What `client_encoding` or PGCLIENTENCODING says. The session itself always speaks UTF-8: the caller
    /// decides whether this names the encoding of its files.
    pub client_encoding: Option<String>,
    /// The password file, whether or not it is there.
    pub(crate) passfile: Option<PathBuf>,
    /// What was ignored while reading the settings and why, one fact each: to be shown to the user.
    pub warnings: Vec<String>,
}

/// One server to try.
#[derive(Clone, PartialEq, Eq)]
pub struct Host {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// TCP port, or the number in the name of the socket.
    pub port: u16,
    /// Password for this server.
    pub(crate) password: Option<String>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The directory of a Unix socket.
    Unix(PathBuf),
    /// A host name, an address to use in place of looking the name up, or both.
    Tcp {
        /// Host name or address as the user wrote it; what a certificate is checked against.
        name: Option<String>,
        /// Address to connect to; without it the name is looked up at each attempt.
        address: Option<IpAddr>,
    },
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("endpoint", &self.endpoint)
            .field("port", &self.port)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .finish()
    }
}

/// `host:port`, or the path of the socket.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Unix(directory) => write!(f, "{}/.s.PGSQL.{}", directory.display(), self.port),
            Endpoint::Tcp { name: Some(name), .. } if name.contains(':') => {
                write!(f, "[{name}]:{}", self.port)
            }
            Endpoint::Tcp { name: Some(name), .. } => write!(f, "{name}:{}", self.port),
            Endpoint::Tcp { address: Some(IpAddr::V6(address)), .. } => {
                write!(f, "[{address}]:{}", self.port)
            }
            Endpoint::Tcp { address, .. } => {
                write!(f, "{}:{}", address.map(|a| a.to_string()).unwrap_or_default(), self.port)
            }
        }
    }
}

/// What the settings are read from besides the connection string; one place, so that tests can stand in.
pub(crate) struct Surroundings<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    os_user: Box<dyn Fn() -> Option<String> + 'a>,
}

impl Surroundings<'_> {
    fn env(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// The home directory as libpq finds it: HOME, else the password database (fe-connect.c,
    /// pqGetHomeDirectory).
    fn home(&self) -> Option<PathBuf> {
        match self.env("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Some(PathBuf::from(home)),
            None => std::env::home_dir(),
        }
    }
}

/// Reads where to connect: `to` as psql takes it (a URI, keyword/value pairs, or the name of a database), else
/// DATABASE_URL, else the libpq environment when any variable of it names a server, host, port, database, role
/// or service. `None` when nothing says where: the caller then has a server of its own.
///
/// `env` gives the value of an environment variable. Errors have code `usage`.
pub fn resolve(to: Option<&str>, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<ConnInfo>> {
    let around = Surroundings { env, os_user: Box::new(|| whoami::username().ok()) };
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let options = match to.map(str::to_owned).or_else(|| set("DATABASE_URL")) {
        Some(text) => parse::parse(&text)?,
        None if ENVIRONMENT_THAT_NAMES_A_SERVER.iter().any(|name| set(name).is_some()) => Options::default(),
        None => return Ok(None),
    };
    complete(options, &around).map(Some)
}

/// Fills in service file, environment and defaults, in libpq's order, and checks every value.
fn complete(mut options: Options, around: &Surroundings) -> Result<ConnInfo> {
    service::apply(&mut options, around)?;
    for keyword in KEYWORDS {
        if let Some(value) = keyword.env.and_then(|name| around.env(name)) {
            options.set_default(keyword.name, value)?;
        }
    }
    // The old way to ask for TLS (conninfo_add_defaults).
    if around.env("PGREQUIRESSL").is_some_and(|value| value.starts_with('1')) {
        options.set_default("sslmode", "require")?;
    }

    let mut warnings = Vec::new();
    let user = match options.get_nonempty("user") {
        Some(user) => user.to_owned(),
        None => (around.os_user)().ok_or_else(|| {
            usage("the name of the operating system's user is not known")
                .hint("Name the role with user= in the connection string or with PGUSER.")
        })?,
    };
    let dbname = options.get_nonempty("dbname").unwrap_or(&user).to_owned();
    let transport = settings::transport(&options, around)?;
    let mut info = ConnInfo {
        hosts: hosts(&options)?,
        user,
        dbname,
        transport,
        keepalive: settings::keepalive(&options)?,
        tcp_user_timeout: settings::millis(&options, "tcp_user_timeout")?,
        connect_timeout: settings::seconds(&options, "connect_timeout")?,
        target_session_attrs: settings::target_session_attrs(&options)?,
        load_balance_hosts: settings::load_balance_hosts(&options)?,
        application_name: options
            .get_nonempty("application_name")
            .or_else(|| options.get_nonempty("fallback_application_name"))
            .map(str::to_owned),
        options: settings::session_options(&options, around),
        client_encoding: options.get_nonempty("client_encoding").map(str::to_owned),
        passfile: match options.get_nonempty("passfile") {
            Some(path) => Some(PathBuf::from(path)),
            None => around.home().map(|home| home.join(".pgpass")),
        },
        warnings: Vec::new(),
    };
    add_passwords(&mut info, &options, &mut warnings);
    info.warnings = warnings;
    Ok(info)
}

/// The list of servers: `host`, `hostaddr` and `port` are lists of the same length, except that one port serves
/// all hosts (connectOptions2).
fn hosts(options: &Options) -> Result<Vec<Host>> {
    let split = |name| options.get_nonempty(name).map(|list| list.split(',').collect::<Vec<_>>());
    let names = split("host");
    let addresses = split("hostaddr");
    let count = addresses.as_ref().or(names.as_ref()).map_or(1, Vec::len);
    if let Some(names) = names.as_ref().filter(|names| names.len() != count) {
        return Err(usage(format!("{} host names do not match {count} hostaddr values", names.len()))
            .hint("Give host and hostaddr the same number of entries."));
    }
    let ports = split("port").unwrap_or_else(|| vec![""]);
    if ports.len() != 1 && ports.len() != count {
        return Err(usage(format!("{} port numbers do not match {count} hosts", ports.len()))
            .hint("Give one port for all hosts, or one for each."));
    }
    (0..count)
        .map(|i| {
            let port = port(ports[if ports.len() == 1 { 0 } else { i }])?;
            let given = |list: &Option<Vec<&str>>| list.as_ref().map_or("", |list| list[i]).to_owned();
            Ok(Host { endpoint: endpoint(&given(&names), &given(&addresses), port)?, port, password: None })
        })
        .collect()
}

fn port(text: &str) -> Result<u16> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(DEFAULT_PORT);
    }
    match trimmed.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(usage(format!("invalid port number \"{}\"", Excerpt(text.as_bytes())))
            .hint("A port is a number from 1 to 65535.")),
    }
}

fn endpoint(name: &str, address: &str, port: u16) -> Result<Endpoint> {
    if !address.is_empty() {
        let address = address.parse::<IpAddr>().map_err(|_| {
            usage(format!("hostaddr \"{}\" is not a numeric address", Excerpt(address.as_bytes())))
                .hint("Use host= for a name.")
        })?;
        let name = (!name.is_empty()).then(|| name.to_owned());
        return Ok(Endpoint::Tcp { name, address: Some(address) });
    }
    if name.starts_with('/') {
        return Ok(Endpoint::Unix(PathBuf::from(name)));
    }
    if name.starts_with('@') {
        return Err(usage("Unix sockets in the abstract namespace are not supported")
            .hint("Give the directory of a socket in the file system, or a host name."));
    }
    if name.is_empty() {
        let socket = SOCKET_DIRECTORIES
            .iter()
            .map(PathBuf::from)
            .find(|directory| directory.join(format!(".s.PGSQL.{port}")).exists());
        return Ok(match socket {
            Some(directory) => Endpoint::Unix(directory),
            None => Endpoint::Tcp { name: Some("localhost".to_owned()), address: None },
        });
    }
    Ok(Endpoint::Tcp { name: Some(name.to_owned()), address: name.parse().ok() })
}

/// The password given, else for each host the one its line of the password file has.
fn add_passwords(info: &mut ConnInfo, options: &Options, warnings: &mut Vec<String>) {
    if let Some(password) = options.get_nonempty("password") {
        for host in &mut info.hosts {
            host.password = Some(password.to_owned());
        }
        return;
    }
    let Some(path) = info.passfile.as_deref() else { return };
    let file = match passfile::read(path) {
        Ok(Some(file)) => file,
        Ok(None) => return,
        Err(warning) => return warnings.push(warning),
    };
    for host in &mut info.hosts {
        let name = match &host.endpoint {
            // A socket in the default place goes by "localhost", as in libpq.
            Endpoint::Unix(path) if SOCKET_DIRECTORIES.iter().any(|d| path.as_os_str() == *d) => {
                "localhost".to_owned()
            }
            Endpoint::Unix(path) => path.display().to_string(),
            Endpoint::Tcp { name: Some(name), .. } => name.clone(),
            Endpoint::Tcp { address, .. } => address.map(|a| a.to_string()).unwrap_or_default(),
        };
        let wanted =
            passfile::Wanted { host: &name, port: host.port, dbname: &info.dbname, user: &info.user };
        host.password = passfile::lookup(&file, &wanted);
    }
}

/// A server that another one named: what is `None` is as it was for the other.
#[derive(Clone, Copy)]
pub struct NodeAddress<'a> {
    /// Host name, address, or directory of a Unix socket.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Database.
    pub dbname: Option<&'a str>,
    /// Role.
    pub user: Option<&'a str>,
    /// Password; else that of the password file for this server, else the one given for the other.
    pub password: Option<&'a str>,
}

impl ConnInfo {
    /// Settings for a server that this one has named.
    pub fn at(&self, address: &NodeAddress<'_>) -> Result<ConnInfo> {
        let mut info = self.clone();
        info.dbname = address.dbname.unwrap_or(&self.dbname).to_owned();
        info.user = address.user.unwrap_or(&self.user).to_owned();
        info.target_session_attrs = TargetSessionAttrs::Any;
        info.load_balance_hosts = false;
        info.warnings = Vec::new();
        let given = match address.password {
            Some(password) => Some(password.to_owned()),
            None => self.password_of(address, &info).or_else(|| {
                let same = info.user == self.user;
                self.hosts.iter().find_map(|host| host.password.clone()).filter(|_| same)
            }),
        };
        info.hosts = vec![Host {
            endpoint: endpoint(address.host, "", address.port)?,
            port: address.port,
            password: given,
        }];
        Ok(info)
    }

    /// What the password file has for a server.
    fn password_of(&self, address: &NodeAddress<'_>, info: &ConnInfo) -> Option<String> {
        let file = passfile::read(self.passfile.as_deref()?).ok()??;
        let wanted = passfile::Wanted {
            host: address.host,
            port: address.port,
            dbname: &info.dbname,
            user: &info.user,
        };
        passfile::lookup(&file, &wanted)
    }

    /// Settings for a server on a Unix socket that needs no password: the embedded one.
    pub fn unix(directory: impl Into<PathBuf>, port: u16, user: &str, dbname: &str) -> ConnInfo {
        ConnInfo {
            hosts: vec![Host { endpoint: Endpoint::Unix(directory.into()), port, password: None }],
            user: user.to_owned(),
            dbname: dbname.to_owned(),
            transport: Transport::default(),
            keepalive: None,
            tcp_user_timeout: None,
            connect_timeout: None,
            target_session_attrs: TargetSessionAttrs::Any,
            load_balance_hosts: false,
            application_name: None,
            options: None,
            client_encoding: None,
            passfile: None,
            warnings: Vec::new(),
        }
    }

    /// The settings as a URI without password, to be pasted after `psql`: what leads to the same database, and
    /// the settings that decide whether the server lets one in.
    pub fn display(&self) -> String {
        let mut uri = format!("postgresql://{}@", encode(&self.user));
        let mut addresses = Vec::new();
        for (i, host) in self.hosts.iter().enumerate() {
            if i > 0 {
                uri.push(',');
            }
            match &host.endpoint {
                Endpoint::Unix(directory) => uri.push_str(&encode(&directory.display().to_string())),
                Endpoint::Tcp { name, address } => {
                    let shown = name.clone().or_else(|| address.map(|a| a.to_string())).unwrap_or_default();
                    let v6 = shown.contains(':');
                    uri.push_str(&if v6 { format!("[{shown}]") } else { encode(&shown) });
                    addresses.push(address.filter(|a| a.to_string() != shown));
                }
            }
            uri.push_str(&format!(":{}", host.port));
        }
        uri.push_str(&format!("/{}", encode(&self.dbname)));
        let mut parameters = Vec::new();
        if addresses.iter().any(Option::is_some) && addresses.len() == self.hosts.len() {
            let list: Vec<_> =
                addresses.iter().map(|a| a.map(|a| a.to_string()).unwrap_or_default()).collect();
            parameters.push(("hostaddr", list.join(",")));
        }
        parameters.extend(self.transport.parameters());
        if self.target_session_attrs != TargetSessionAttrs::Any {
            parameters.push(("target_session_attrs", self.target_session_attrs.as_str().to_owned()));
        }
        if let Some(options) = &self.options {
            parameters.push(("options", options.clone()));
        }
        for (i, (name, value)) in parameters.iter().enumerate() {
            uri.push_str(&format!("{}{name}={}", if i == 0 { '?' } else { '&' }, encode(value)));
        }
        uri
    }
}

/// Percent-encodes everything but the characters that no URI reader and no shell takes for its own.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn usage(fact: impl Into<String>) -> Error {
    Error::new(Code::Usage, fact)
}
