//! Options with values to check: TLS, authentication, timeouts, the kind of server wanted
//! (fe-connect.c, connectOptions2).

use super::keywords::Options;
use super::{Surroundings, usage};
use inrush_core::{Excerpt, Result};
use std::path::PathBuf;
use std::time::Duration;

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident $keyword:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// The value as a connection string has it.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            fn parse(text: &str) -> Result<$name> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => Err(invalid($keyword, text, concat!($("`", $text, "` ",)*))),
                }
            }
        }
    };
}

choices! {
    /// How much TLS is asked for.
    SslMode "sslmode" {
        /// Never.
        Disable = "disable",
        /// Only when the server refuses the connection without.
        Allow = "allow",
        /// First with, then without.
        Prefer = "prefer",
        /// Always; the certificate is checked only if there is a root certificate.
        Require = "require",
        /// Always; the certificate must come from a trusted authority.
        VerifyCa = "verify-ca",
        /// Always; and it must be the certificate of this host.
        VerifyFull = "verify-full",
    }
}

choices! {
    /// Whether SCRAM is tied to the TLS connection (tls-server-end-point).
    ChannelBinding "channel_binding" {
        /// Never.
        Disable = "disable",
        /// Where the server offers it.
        Prefer = "prefer",
        /// Always; a server that cannot is refused.
        Require = "require",
    }
}

choices! {
    /// What kind of server is wanted.
    TargetSessionAttrs "target_session_attrs" {
        /// Any that lets one in.
        Any = "any",
        /// One whose sessions can write.
        ReadWrite = "read-write",
        /// One whose sessions are read-only.
        ReadOnly = "read-only",
        /// One that is not in recovery.
        Primary = "primary",
        /// One that is in recovery.
        Standby = "standby",
        /// A standby if there is one among the hosts, else any.
        PreferStandby = "prefer-standby",
    }
}

/// TLS and authentication of the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transport {
    /// How much TLS is asked for. Never used on a Unix socket.
    pub sslmode: SslMode,
    /// TLS from the first byte (`sslnegotiation=direct`), without the request of the PostgreSQL protocol.
    pub direct: bool,
    /// Certificates and keys.
    pub files: SslFiles,
    /// Whether the host name is sent in clear at the start of TLS.
    pub sni: bool,
    /// Lowest and highest TLS version, as (major, minor) of TLS; only 1.2 and 1.3 exist here.
    pub versions: (u8, u8),
    /// SCRAM channel binding.
    pub channel_binding: ChannelBinding,
}

/// Where certificates are trusted from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RootCertificates {
    /// Nowhere: the server's certificate is not checked.
    #[default]
    None,
    /// A PEM file.
    File(PathBuf),
    /// The operating system's store (`sslrootcert=system`).
    System,
}

/// The files TLS is set up with. A path is there only if the file is to be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SslFiles {
    /// Trusted authorities.
    pub roots: RootCertificates,
    /// Certificate chain of the client and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Certificate revocation lists: a PEM file.
    pub crl: Option<PathBuf>,
}

impl Default for Transport {
    fn default() -> Self {
        Transport {
            sslmode: SslMode::Prefer,
            direct: false,
            files: SslFiles::default(),
            sni: true,
            versions: (2, 3),
            channel_binding: ChannelBinding::Prefer,
        }
    }
}

impl Transport {
    /// The parameters of a connection URI that differ from the default.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        let path = |path: &PathBuf| path.display().to_string();
        if self.sslmode != SslMode::Prefer {
            list.push(("sslmode", self.sslmode.as_str().to_owned()));
        }
        if self.direct {
            list.push(("sslnegotiation", "direct".to_owned()));
        }
        match &self.files.roots {
            RootCertificates::None => {}
            RootCertificates::File(file) => list.push(("sslrootcert", path(file))),
            RootCertificates::System => list.push(("sslrootcert", "system".to_owned())),
        }
        if let Some((certificate, key)) = &self.files.client {
            list.push(("sslcert", path(certificate)));
            list.push(("sslkey", path(key)));
        }
        if let Some(crl) = &self.files.crl {
            list.push(("sslcrl", path(crl)));
        }
        if self.channel_binding != ChannelBinding::Prefer {
            list.push(("channel_binding", self.channel_binding.as_str().to_owned()));
        }
        list
    }
}

/// TCP keepalive; `None` is the system's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Probes without answer after which the connection is given up.
    pub count: Option<u32>,
}

pub(super) fn transport(options: &Options, around: &Surroundings) -> Result<Transport> {
    refuse_unsupported(options)?;
    let system_roots = options.get("sslrootcert") == Some("system");
    let sslmode = match options.get("sslmode") {
        Some(text) => SslMode::parse(text)?,
        None if system_roots => SslMode::VerifyFull,
        None => SslMode::Prefer,
    };
    if system_roots && sslmode != SslMode::VerifyFull {
        return Err(usage(format!("sslmode \"{}\" is too weak for sslrootcert=system", sslmode.as_str()))
            .hint("Use sslmode=verify-full: anybody can get a certificate from a public authority."));
    }
    let direct = match options.get("sslnegotiation").unwrap_or("postgres") {
        "postgres" => false,
        "direct" => true,
        other => return Err(invalid("sslnegotiation", other, "`postgres` `direct`")),
    };
    if direct && sslmode < SslMode::Require {
        return Err(usage(format!("sslmode \"{}\" is too weak for sslnegotiation=direct", sslmode.as_str()))
            .hint("Use sslmode=require or stronger."));
    }
    let sni = match options.get("sslsni").unwrap_or("1") {
        "0" => false,
        "" | "1" => true,
        other => return Err(invalid("sslsni", other, "`0` `1`")),
    };
    let lowest = tls_version(options, "ssl_min_protocol_version")?.unwrap_or(2);
    let highest = tls_version(options, "ssl_max_protocol_version")?.unwrap_or(3);
    if lowest > highest {
        return Err(usage("ssl_min_protocol_version is above ssl_max_protocol_version"));
    }
    if highest < 2 {
        return Err(usage("TLS versions below 1.2 are not supported")
            .hint("Raise ssl_max_protocol_version to TLSv1.2 or leave it out."));
    }
    Ok(Transport {
        sslmode,
        direct,
        files: ssl_files(options, around, sslmode)?,
        sni,
        versions: (lowest.max(2), highest),
        channel_binding: ChannelBinding::parse(options.get("channel_binding").unwrap_or("prefer"))?,
    })
}

/// Refuses values that ask for what is not there; values that ask for nothing pass.
fn refuse_unsupported(options: &Options) -> Result<()> {
    let harmless: [(&str, &[&str]); 10] = [
        ("gssencmode", &["", "disable", "prefer"]),
        ("replication", &["", "0", "off", "false", "no"]),
        ("require_auth", &[""]),
        ("requirepeer", &[""]),
        ("sslcrldir", &[""]),
        ("sslpassword", &[""]),
        ("scram_client_key", &[""]),
        ("scram_server_key", &[""]),
        ("sslkeylogfile", &[""]),
        // 3.2 only lengthens the cancellation key; whoever insists on it cannot be served.
        ("min_protocol_version", &["", "3.0"]),
    ];
    for (name, values) in harmless {
        if let Some(value) = options.get(name).filter(|value| !values.contains(value)) {
            let shown = if name.starts_with("scram") || name == "sslpassword" {
                String::new()
            } else {
                format!("={}", Excerpt(value.as_bytes()))
            };
            return Err(usage(format!("connection option {name}{shown} is not supported"))
                .hint("Leave it out, or connect through a proxy that handles it."));
        }
    }
    match options.get("max_protocol_version").unwrap_or("") {
        "" | "3.0" | "3.2" | "latest" => {}
        other => return Err(invalid("max_protocol_version", other, "`3.0` `3.2` `latest`")),
    }
    Ok(())
}

/// TLS minor version: 1.2 is 2.
fn tls_version(options: &Options, name: &str) -> Result<Option<u8>> {
    let Some(value) = options.get_nonempty(name) else { return Ok(None) };
    match value.to_ascii_lowercase().as_str() {
        "tlsv1" => Ok(Some(0)),
        "tlsv1.1" => Ok(Some(1)),
        "tlsv1.2" => Ok(Some(2)),
        "tlsv1.3" => Ok(Some(3)),
        _ => Err(invalid(name, value, "`TLSv1` `TLSv1.1` `TLSv1.2` `TLSv1.3`")),
    }
}

/// Finds the files as initialize_SSL does (fe-secure-openssl.c): those given, else those in ~/.postgresql. A root
/// certificate that is there is used whatever the mode; one that is missing is an error only where the mode
/// needs it. A client certificate that is missing is not sent.
fn ssl_files(options: &Options, around: &Surroundings, sslmode: SslMode) -> Result<SslFiles> {
    if sslmode == SslMode::Disable {
        return Ok(SslFiles::default());
    }
    let directory = around.home().map(|home| home.join(".postgresql"));
    let find = |name: &str, default: &str| {
        let given = options.get_nonempty(name).map(PathBuf::from);
        given.or_else(|| Some(directory.as_ref()?.join(default)))
    };

    let roots = match options.get("sslrootcert") {
        Some("system") => RootCertificates::System,
        _ => match find("sslrootcert", "root.crt") {
            Some(path) if path.exists() => RootCertificates::File(path),
            path if sslmode >= SslMode::VerifyCa => {
                let shown =
                    path.map_or_else(|| "(no home directory)".to_owned(), |p| p.display().to_string());
                return Err(usage(format!("root certificate file {shown} does not exist")).hint(
                    "Provide the file, use sslrootcert=system for the operating system's authorities, or change sslmode to give up checking the server's certificate.",
                ));
            }
            _ => RootCertificates::None,
        },
    };

    let mode = options.get_nonempty("sslcertmode").unwrap_or("allow");
    if !["disable", "allow", "require"].contains(&mode) {
        return Err(invalid("sslcertmode", mode, "`disable` `allow` `require`"));
    }
    let certificate = find("sslcert", "postgresql.crt").filter(|path| mode != "disable" && path.exists());
    if mode == "require" && certificate.is_none() {
        return Err(usage("sslcertmode=require, but there is no client certificate"));
    }
    let client = match certificate {
        None => None,
        Some(certificate) => match find("sslkey", "postgresql.key") {
            Some(key) if key.exists() => {
                check_key_permissions(&key)?;
                Some((certificate, key))
            }
            _ => {
                return Err(usage(format!(
                    "client certificate {} is there but its private key is not",
                    certificate.display()
                ))
                .hint("Name the key with sslkey."));
            }
        },
    };
    let crl = find("sslcrl", "root.crl").filter(|path| path.exists() && roots != RootCertificates::None);
    Ok(SslFiles { roots, client, crl })
}

/// A key that others may read is refused (fe-secure-openssl.c): 0600, or 0640 if root owns it.
#[cfg(unix)]
fn check_key_permissions(path: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path)
        .map_err(|e| usage(format!("private key file {} cannot be read: {e}", path.display())))?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if !metadata.is_file() || metadata.mode() & forbidden != 0 {
        return Err(usage(format!("private key file {} has group or world access", path.display())).hint(
            "The file must have permissions u=rw (0600) or less, or u=rw,g=r (0640) or less if root owns it.",
        ));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_key_permissions(_: &std::path::Path) -> Result<()> {
    Ok(())
}

pub(super) fn keepalive(options: &Options) -> Result<Option<Keepalive>> {
    if integer(options, "keepalives")? == Some(0) {
        return Ok(None);
    }
    Ok(Some(Keepalive {
        idle: seconds(options, "keepalives_idle")?,
        interval: seconds(options, "keepalives_interval")?,
        count: integer(options, "keepalives_count")?.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0),
    }))
}

pub(super) fn target_session_attrs(options: &Options) -> Result<TargetSessionAttrs> {
    TargetSessionAttrs::parse(options.get("target_session_attrs").unwrap_or("any"))
}

pub(super) fn load_balance_hosts(options: &Options) -> Result<bool> {
    match options.get("load_balance_hosts").unwrap_or("disable") {
        "disable" => Ok(false),
        "random" => Ok(true),
        other => Err(invalid("load_balance_hosts", other, "`disable` `random`")),
    }
}

/// Seconds; zero, negative and not given are `None` ("as the system has it" or "for ever").
pub(super) fn seconds(options: &Options, name: &str) -> Result<Option<Duration>> {
    Ok(positive(options, name)?.map(Duration::from_secs))
}

/// Milliseconds; zero, negative and not given are `None`.
pub(super) fn millis(options: &Options, name: &str) -> Result<Option<Duration>> {
    Ok(positive(options, name)?.map(Duration::from_millis))
}

fn positive(options: &Options, name: &str) -> Result<Option<u64>> {
    Ok(integer(options, name)?.and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0))
}

/// A C int with blanks around it (fe-connect.c, parse_int_param).
fn integer(options: &Options, name: &str) -> Result<Option<i32>> {
    let Some(text) = options.get_nonempty(name) else { return Ok(None) };
    match text.trim().parse::<i32>() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(invalid(name, text, "a whole number")),
    }
}

/// `options`, then what the environment asks of the session (fe-protocol3.c, EnvironmentOptions). libpq sends the
/// latter as settings of their own, which the server applies after `options`; at the end they win just so.
pub(super) fn session_options(options: &Options, around: &Surroundings) -> Option<String> {
    let mut text = options.get_nonempty("options").map(str::to_owned).unwrap_or_default();
    for (variable, setting) in [("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")] {
        // "default" leaves the server's setting (build_startup_packet).
        if let Some(value) = around.env(variable).filter(|v| !v.eq_ignore_ascii_case("default")) {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str("-c ");
            text.push_str(setting);
            text.push('=');
            for c in value.chars() {
                // postinit.c, pg_split_opts: a backslash takes the next character as it is.
                if c == '\\' || c.is_ascii_whitespace() {
                    text.push('\\');
                }
                text.push(c);
            }
        }
    }
    (!text.is_empty()).then_some(text)
}

fn invalid(name: &str, value: &str, allowed: &str) -> inrush_core::Error {
    let allowed = allowed.trim().replace("` `", "`, `").replace('`', "\"");
    usage(format!("invalid {name} value \"{}\"", Excerpt(value.as_bytes())))
        .hint(format!("Possible values: {allowed}."))
}
