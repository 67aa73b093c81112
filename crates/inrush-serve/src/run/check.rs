//! `--check`: looks at everything a configuration names, takes nothing in, and changes nothing on the server.

use super::{server, settings};
use crate::config::{Config, CreateTable, Into};
use crate::inputs::http;
use crate::session::connect_control;
use crate::target::{AHEAD, Settings, Shape, Target, peek};
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::catalog::{self, TableName};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use tokio_postgres::Client;

/// Looks at everything a configuration names without taking anything in: what it finds, line by line.
///
/// # Errors
/// Of the first thing that would not work.
pub fn check(config: &Config) -> Result<Vec<String>> {
    let conninfo = server(config)?;
    for http in &config.http {
        http::acceptor(http)?;
    }
    let mut lines = vec!["configuration: ok".to_owned()];
    if let Some(spill) = &config.spill {
        can_spill(&spill.dir)?;
        lines.push(format!("spill: ok, {}", spill.dir.display()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(Code::Internal, format!("no runtime: {e}")))?;
    runtime.block_on(async {
        for http in &config.http {
            has_address(&format!("input {:?}", http.name), &http.listen).await?;
        }
        if let Some(admin) = &config.admin {
            has_address("admin", &admin.listen).await?;
        }
        let mut connected = connect_control(&conninfo).await?;
        let num = connected.server_version_num;
        lines.push(format!("server: ok, PostgreSQL {}.{}, {}", num / 10000, num % 10000, connected.host));
        let settings = settings(config, &conninfo)?;
        on_server(config, &settings, &mut connected.client, &mut lines).await?;
        Ok(lines)
    })
}

/// What is there of ledger and tables.
async fn on_server(
    config: &Config,
    settings: &Settings,
    client: &mut Client,
    lines: &mut Vec<String>,
) -> Result<()> {
    takes_rows(client).await?;
    // The server itself sees to it that nothing is changed. Not a setting of the session: behind a pooler that might
    // outlive it.
    client.batch_execute("BEGIN READ ONLY").await.map_err(server_error)?;
    let schema = &config.server.ledger;
    let ledger = match Ledger::open(client, schema, false).await {
        Ok(Some(ledger)) => {
            lines.push(format!("ledger: ok, {schema}"));
            Some(ledger)
        }
        Ok(None) => {
            may_make_ledger(client, schema).await?;
            lines.push(format!("ledger: ok, the ledger schema {schema} will be made"));
            None
        }
        // It is of an older version, and was about to be changed: the transaction has ended.
        Err(error) if error.sqlstate_text() == Some("25006") => {
            may_make_ledger(client, schema).await?;
            lines.push(format!("ledger: ok, the ledger schema {schema} will be brought up to date"));
            let inputs = config.inputs().into_iter();
            lines.extend(inputs.map(|(name, _)| format!("{name}: tables are looked at when that is done")));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for (name, into) in config.inputs() {
        lines.push(match &into.table {
            Some(table) if !table.contains('{') => {
                format!("{name}: ok, {}", table_of(client, settings, ledger.as_ref(), table, into).await?)
            }
            _ => format!("{name}: ok, tables are named by the input"),
        });
    }
    Ok(())
}

/// Refuses a server that takes no rows from anybody.
async fn takes_rows(client: &Client) -> Result<()> {
    let facts = catalog::facts(client).await?;
    if facts.in_recovery {
        return Err(Error::new(Code::Connect, "the server is a standby and takes no rows").hint(
            "Connect to the primary, for example with several hosts and target_session_attrs=read-write in server.to.",
        ));
    }
    if facts.read_only {
        return Err(Error::new(Code::Connect, "transactions of this role are read-only").hint(
            "Switch default_transaction_read_only off for this role or database, or connect with another.",
        ));
    }
    Ok(())
}

/// What will become of the rows of an input that names its table.
async fn table_of(
    client: &Client,
    settings: &Settings,
    ledger: Option<&Ledger>,
    table: &str,
    into: &Into,
) -> Result<String> {
    let (name, target) = peek(client, settings, ledger, table, into).await?;
    match (target, &into.create) {
        (Some(target), _) => {
            Shape::names_fit(&target, into)?;
            let way = target.way.describe().map_or(String::new(), |how| format!(", {how}"));
            Ok(format!("into {} ({}){way}", target.table.qualified(), kind(&target)))
        }
        (None, Some(create)) => {
            may_make_table(client, &name, create, into).await?;
            Ok(format!("table {name} will be made"))
        }
        // For the error, which knows of tables with similar names.
        (None, None) => catalog::describe(client, &name).await.map(|found| found.table.qualified()),
    }
}

fn kind(target: &Target) -> &'static str {
    match (&target.windows, target.unlogged()) {
        (Some(_), true) => "windows, unlogged",
        (Some(_), false) => "windows",
        (None, true) => "unlogged",
        (None, false) => "plain",
    }
}

/// Whether this role can make the ledger, or the tables that an old one is to have.
async fn may_make_ledger(client: &Client, schema: &str) -> Result<()> {
    let row = client
        .query_one(
            "SELECT coalesce((SELECT pg_catalog.has_schema_privilege(n.oid, 'CREATE')
                                FROM pg_catalog.pg_namespace n WHERE n.nspname = $1),
                             pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'))",
            &[&schema],
        )
        .await
        .map_err(server_error)?;
    if row.try_get(0).map_err(server_error)? {
        return Ok(());
    }
    let fact = format!("this role may not create the ledger schema {}", quote_ident(schema));
    Err(Error::new(Code::Ledger, fact)
        .hint("Name a schema you own with server.ledger, or ask for CREATE on the database."))
}

/// Whether a missing table can be made as the input would make it, and takes its rows then.
async fn may_make_table(client: &Client, name: &TableName, create: &CreateTable, into: &Into) -> Result<()> {
    let cannot = |why: String| Error::new(Code::Table, format!("table {name} cannot be made: {why}"));
    // Other columns come with the rows, but not those that the configuration counts on.
    let mut counted_on = into.columns.keys().chain(into.constants.keys());
    if let Some(column) = counted_on.find(|column| **column != create.time) {
        return Err(Error::new(
            Code::Columns,
            format!("table {name} will be made with column {:?} alone, without {column:?}", create.time),
        )
        .hint("Make the table with `inrush table create`, or correct into.columns and into.constants."));
    }
    let schemas = client
        .query_opt(
            "SELECT n.nspname::pg_catalog.text, pg_catalog.has_schema_privilege(n.oid, 'CREATE')
               FROM pg_catalog.pg_namespace n
              WHERE n.nspname = coalesce($1::pg_catalog.text, pg_catalog.current_schema()::pg_catalog.text)",
            &[&name.schema],
        )
        .await
        .map_err(server_error)?;
    let Some(row) = schemas else {
        return Err(cannot("there is no such schema".to_owned())
            .hint("Make the schema first, with CREATE SCHEMA, or name another one with into.schema."));
    };
    if !row.try_get::<_, bool>(1).map_err(server_error)? {
        let schema = quote_ident(row.try_get(0).map_err(server_error)?);
        return Err(cannot(format!("this role may not create tables in schema {schema}"))
            .hint("Ask for GRANT CREATE ON SCHEMA, and on the tablespaces."));
    }
    // Of a table without indexes, for there is none yet: one more, the BRIN index on the time.
    let mut locks = inrush_windows::locks(client, 0, 1, false).await?;
    locks.per_window += 1;
    let windows = match create.keep {
        Some(keep) => keep.0.as_micros().div_ceil(create.window.0.as_micros().max(1)) + u128::from(AHEAD) + 2,
        None => u128::from(AHEAD) + 1,
    };
    let windows = u64::try_from(windows).unwrap_or(u64::MAX);
    if locks.of(windows) > locks.limit() {
        return Err(cannot(format!(
            "a query over all {windows} windows would lock {} tables and indexes; one query may take {}",
            locks.of(windows),
            locks.limit()
        ))
        .hint("Choose a longer window or a shorter keep; or raise max_locks_per_transaction."));
    }
    Ok(())
}

/// Whether the name in an address is known here. Whether the port is free is not asked: the process may be running.
async fn has_address(what: &str, listen: &str) -> Result<()> {
    if listen.starts_with("unix:") || listen.starts_with(':') {
        return Ok(());
    }
    let unknown = |why: String| {
        Error::new(Code::Usage, format!("{what} cannot listen on {listen:?}: {why}"))
            .hint("Name an address of this machine, or write :PORT for all of them.")
    };
    let mut found = tokio::net::lookup_host(listen).await.map_err(|e| unknown(e.to_string()))?;
    found.next().map(|_| ()).ok_or_else(|| unknown("the name has no address".to_owned()))
}

/// Tries what opening the spill would do: makes the directory and a file in it, and takes away what was made.
fn can_spill(dir: &Path) -> Result<()> {
    let failed = |what: &str, path: &Path, e: &std::io::Error| {
        Error::new(Code::Spill, format!("cannot {what} {}: {e}", path.display()))
            .hint("spill.dir is a directory that this user may write into, or make in one that is there.")
    };
    let made = match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => true,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
        Err(e) => return Err(failed("create", dir, &e)),
    };
    // The log passes over names that are not its own.
    let path = dir.join(format!("check-{}", std::process::id()));
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let tried = open().and_then(|mut file: File| {
        let written = file.write_all(b"inrush serve --check\n");
        std::fs::remove_file(&path)?;
        written
    });
    if made {
        // Another process may have begun to use it.
        let _ = std::fs::remove_dir(dir);
    }
    tried.map_err(|e| failed("write to", dir, &e))
}
