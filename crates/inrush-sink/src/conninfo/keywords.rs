//! The connection options of libpq and the environment variables that stand in for them
//! (fe-connect.c, PQconninfoOptions, versions 15 to 18).

use super::usage;
use inrush_core::Result;
use std::collections::HashMap;

/// One option: its keyword and the environment variable libpq reads for it.
pub(super) struct Keyword {
    pub name: &'static str,
    pub env: Option<&'static str>,
}

const fn with_env(name: &'static str, env: &'static str) -> Keyword {
    Keyword { name, env: Some(env) }
}

const fn plain(name: &'static str) -> Keyword {
    Keyword { name, env: None }
}

/// Every option libpq 15 to 18 knows. Those Inrush cannot honour are refused by value, not by name, so that a
/// connection string that works in psql is never rejected for an option that asks for nothing.
pub(super) const KEYWORDS: &[Keyword] = &[
    with_env("service", "PGSERVICE"),
    with_env("user", "PGUSER"),
    with_env("password", "PGPASSWORD"),
    with_env("passfile", "PGPASSFILE"),
    with_env("channel_binding", "PGCHANNELBINDING"),
    with_env("connect_timeout", "PGCONNECT_TIMEOUT"),
    with_env("dbname", "PGDATABASE"),
    with_env("host", "PGHOST"),
    with_env("hostaddr", "PGHOSTADDR"),
    with_env("port", "PGPORT"),
    with_env("client_encoding", "PGCLIENTENCODING"),
    with_env("options", "PGOPTIONS"),
    with_env("application_name", "PGAPPNAME"),
    plain("fallback_application_name"),
    plain("keepalives"),
    plain("keepalives_idle"),
    plain("keepalives_interval"),
    plain("keepalives_count"),
    plain("tcp_user_timeout"),
    with_env("sslmode", "PGSSLMODE"),
    with_env("sslnegotiation", "PGSSLNEGOTIATION"),
    with_env("sslcompression", "PGSSLCOMPRESSION"),
    with_env("sslcert", "PGSSLCERT"),
    with_env("sslkey", "PGSSLKEY"),
    with_env("sslcertmode", "PGSSLCERTMODE"),
    plain("sslpassword"),
    with_env("sslrootcert", "PGSSLROOTCERT"),
    with_env("sslcrl", "PGSSLCRL"),
    with_env("sslcrldir", "PGSSLCRLDIR"),
    with_env("sslsni", "PGSSLSNI"),
    with_env("requirepeer", "PGREQUIREPEER"),
    with_env("require_auth", "PGREQUIREAUTH"),
    with_env("min_protocol_version", "PGMINPROTOCOLVERSION"),
    with_env("max_protocol_version", "PGMAXPROTOCOLVERSION"),
    with_env("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    with_env("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    with_env("gssencmode", "PGGSSENCMODE"),
    with_env("krbsrvname", "PGKRBSRVNAME"),
    with_env("gsslib", "PGGSSLIB"),
    with_env("gssdelegation", "PGGSSDELEGATION"),
    plain("replication"),
    with_env("target_session_attrs", "PGTARGETSESSIONATTRS"),
    with_env("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    plain("scram_client_key"),
    plain("scram_server_key"),
    plain("oauth_issuer"),
    plain("oauth_client_id"),
    plain("oauth_client_secret"),
    plain("oauth_scope"),
    plain("sslkeylogfile"),
];

/// Options as text, by keyword. An option given as the empty string is there and empty.
#[derive(Clone, Default)]
pub(super) struct Options(HashMap<&'static str, String>);

impl Options {
    /// Sets an option; a later value replaces an earlier one, as in one connection string.
    pub fn set(&mut self, name: &str, value: impl Into<String>) -> Result<()> {
        self.0.insert(known(name)?, value.into());
        Ok(())
    }

    /// Sets an option unless it is there already.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>) -> Result<()> {
        self.0.entry(known(name)?).or_insert_with(|| value.into());
        Ok(())
    }

    /// The value, even an empty one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value unless it is empty: most options read the empty string as not given.
    pub fn get_nonempty(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }
}

fn known(name: &str) -> Result<&'static str> {
    KEYWORDS.iter().find(|k| k.name == name).map(|k| k.name).ok_or_else(|| {
        usage(format!("unknown connection option {name:?}")).hint(
            "The option names are those of libpq: see \"Parameter Key Words\" in the PostgreSQL manual.",
        )
    })
}
