//! How settings of a server are changed and put back, whoever wants it.

use crate::advise::facts;
use inrush_core::{Code, Error, Result, quote_literal};
use inrush_sink::failure::server_error;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// How long the server may take to read its configuration again.
const RELOAD: Duration = Duration::from_secs(5);

/// Keeps two of us in one database from changing settings at the same time, until the session ends. Those of other
/// databases are told apart by what postgresql.auto.conf has.
pub(crate) async fn alone(client: &Client) -> Result<()> {
    let row = client
        .query_one("SELECT pg_catalog.pg_try_advisory_lock(7117, 3)", &[])
        .await
        .map_err(server_error)?;
    if row.get(0) {
        return Ok(());
    }
    Err(Error::new(
        Code::Server,
        "another `inrush advise` or `inrush tune` is changing settings of this server",
    )
    .hint("Wait for it to end and give the command again."))
}

/// Has the server read its configuration, and waits until this session has.
pub(crate) async fn reload(client: &Client) -> Result<()> {
    let loaded = async || -> Result<f64> {
        let row = client
            .query_one("SELECT extract(epoch FROM pg_catalog.pg_conf_load_time())::pg_catalog.float8", &[])
            .await
            .map_err(server_error)?;
        Ok(row.get(0))
    };
    let before = loaded().await?;
    client.query_one("SELECT pg_catalog.pg_reload_conf()", &[]).await.map_err(server_error)?;
    let began = std::time::Instant::now();
    // A session reads it between two statements.
    while loaded().await? <= before && began.elapsed() < RELOAD {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The value of a setting as this session sees it, and where that comes from.
pub(crate) async fn seen(client: &Client, setting: &str) -> Result<(String, String)> {
    let rows = client
        .query_typed(
            "SELECT pg_catalog.current_setting(s.name), s.source FROM pg_catalog.pg_settings s \
              WHERE s.name OPERATOR(pg_catalog.=) $1",
            &[(&setting, Type::TEXT)],
        )
        .await
        .map_err(server_error)?;
    Ok(rows.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default())
}

/// Why a value that was set is not the one in effect.
pub(crate) async fn why_not(client: &Client, source: &str) -> Result<String> {
    if source != "configuration file" {
        return Ok(format!("the value of this session comes from elsewhere: {source}"));
    }
    Ok(match facts::files(client).await?.error {
        Some(error) => format!("the server does not take its configuration: {error}"),
        None => "the server has not read its configuration again yet".to_owned(),
    })
}

/// What postgresql.auto.conf has.
pub(crate) async fn auto_conf(client: &Client) -> Result<BTreeMap<String, String>> {
    let files = facts::files(client).await?;
    files.error.map_or(Ok(files.auto_conf), |error| Err(refused(&error)))
}

/// The error where nothing would take effect, and where postgresql.auto.conf may not have been looked at.
pub(crate) fn refused(error: &str) -> Error {
    Error::new(Code::Server, format!("the server does not take its configuration: {error}"))
        .hint("Mend that file and give the command again.")
}

/// `ALTER SYSTEM SET name = 'value';`
pub(crate) fn set_sql(setting: &str, value: &str) -> String {
    format!("ALTER SYSTEM SET {setting} = {};", quote_literal(value))
}
