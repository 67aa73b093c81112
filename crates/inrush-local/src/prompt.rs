//! A small prompt for machines without psql: statements, tables, errors with their position.

use crate::runtime::block_on;
use crate::statements::Statements;
use crate::table::Table;
use futures_util::StreamExt;
use inrush_core::{Code, Error, Result, printable, quote_ident, quote_literal};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use tokio_postgres::error::ErrorPosition;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage};

const HELP: &str = "\
  statement;      run it (it may take several lines)
  \\dt             the tables
  \\d              tables, views, sequences
  \\d NAME         the columns of a table
  \\q              leave (as does Ctrl-D)
The rest of psql comes with it: apt-get install postgresql-client.";

/// Rows that are laid out together; also the most that are kept in memory.
const ROWS_AT_ONCE: usize = 1000;

/// Runs `-c SQL` arguments if there are any, else what comes on standard input; the exit code: 1 after an
/// error of the server in input that is no terminal.
pub(crate) fn run(
    socket_dir: &Path,
    port: u16,
    role: &str,
    database: &str,
    arguments: &[OsString],
) -> Result<u8> {
    let mut commands = Vec::new();
    let mut given = arguments.iter();
    while let Some(argument) = given.next() {
        let sql = if argument == "-c" { given.next().and_then(|sql| sql.to_str()) } else { None };
        commands.push(sql.ok_or_else(|| {
            Error::new(
                Code::Usage,
                format!(
                    "psql is not installed, and the built-in prompt knows only -c SQL, not {}",
                    argument.display()
                ),
            )
            .hint("Install psql (Debian: apt-get install postgresql-client).")
        })?);
    }
    block_on(|| async {
        let mut config = Config::new();
        config
            .host_path(socket_dir)
            .port(port)
            .user(role)
            .dbname(database)
            .application_name("inrush local psql");
        let (client, mut connection) = config.connect(NoTls).await.map_err(|error| {
            Error::new(Code::Connect, format!("the embedded server does not answer: {}", described(&error)))
                .hint("Start it with `inrush local start`.")
        })?;
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message {
                    eprintln!("{}:  {}", notice.severity(), notice.message());
                }
            }
        });
        if !commands.is_empty() {
            for sql in commands {
                if !execute(&client, sql).await? {
                    return Ok(1);
                }
            }
            return Ok(0);
        }
        converse(&client, database).await
    })?
}

async fn converse(client: &Client, database: &str) -> Result<u8> {
    let stdin = io::stdin();
    let interactive = stdin.is_terminal() && io::stdout().is_terminal();
    if interactive {
        print(&format!("{HELP}\n"))?;
    }
    let mut statements = Statements::default();
    let mut line = String::new();
    loop {
        if interactive {
            let sign = if statements.is_empty() { '=' } else { '-' };
            print(&format!("{database}{sign}# "))?;
        }
        line.clear();
        let read = stdin.lock().read_line(&mut line);
        if read.map_err(|error| Error::new(Code::SourceRead, format!("standard input: {error}")))? == 0 {
            break;
        }
        if statements.is_empty() && line.trim_start().starts_with('\\') {
            match backslash(client, line.trim()).await? {
                Some(true) => {}
                Some(false) if interactive => {}
                Some(false) => return Ok(1),
                None => return Ok(0),
            }
            continue;
        }
        statements.push(&line);
        while let Some(sql) = statements.next() {
            if !execute(client, &sql).await? && !interactive {
                return Ok(1);
            }
        }
    }
    match statements.rest() {
        Some(sql) if !interactive => Ok(u8::from(!execute(client, &sql).await?)),
        _ => Ok(0),
    }
}

/// Runs a backslash command; `None`: leave. Else whether it went well.
async fn backslash(client: &Client, line: &str) -> Result<Option<bool>> {
    let (command, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let relations = |kinds: &str| {
        format!(
            "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", CASE c.relkind WHEN 'r' THEN 'table' \
             WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' \
             WHEN 'S' THEN 'sequence' WHEN 'f' THEN 'foreign table' END AS \"Type\", \
             pg_get_userbyid(c.relowner) AS \"Owner\", pg_size_pretty(pg_table_size(c.oid)) AS \"Size\" \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ({kinds}) \
             AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1, 2"
        )
    };
    let sql = match (command, name.trim()) {
        ("\\q", _) => return Ok(None),
        ("\\dt", "") => relations("'r', 'p'"),
        ("\\d", "") => relations("'r', 'p', 'v', 'm', 'S', 'f'"),
        ("\\d", name) => format!(
            "SELECT a.attname AS \"Column\", format_type(a.atttypid, a.atttypmod) AS \"Type\", \
             CASE WHEN a.attnotnull THEN 'not null' ELSE '' END AS \"Nullable\", \
             coalesce(pg_get_expr(d.adbin, d.adrelid), '') AS \"Default\" FROM pg_attribute a \
             LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
             WHERE a.attrelid = {}::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            quote_literal(&as_written(name))
        ),
        _ => {
            print(&format!("{HELP}\n"))?;
            return Ok(Some(matches!(command, "\\?" | "\\h")));
        }
    };
    execute(client, &sql).await.map(Some)
}

/// A name as regclass takes it: what the user wrote if the server can parse it, quoted where it could not.
fn as_written(name: &str) -> String {
    let parses =
        name.contains('"') || name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
    if parses { name.to_owned() } else { quote_ident(name) }
}

/// Runs one statement and prints what it gives; whether the server took it.
async fn execute(client: &Client, sql: &str) -> Result<bool> {
    match show(client, sql).await {
        Ok(()) => Ok(true),
        Err(Trouble::Output(error)) => Err(error),
        Err(Trouble::Server(error)) if client.is_closed() => Err(Error::new(
            Code::ConnectionLost,
            format!("the server ended the session: {}", described(&error)),
        )),
        Err(Trouble::Server(error)) => {
            eprintln!("{}", explained(&error, sql));
            Ok(false)
        }
    }
}

enum Trouble {
    Server(tokio_postgres::Error),
    Output(Error),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Trouble {
        Trouble::Server(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Output(error)
    }
}

async fn show(client: &Client, sql: &str) -> Result<(), Trouble> {
    let stream = client.simple_query_raw(sql).await?;
    let mut stream = std::pin::pin!(stream);
    let mut table: Option<Table> = None;
    loop {
        match stream.next().await.transpose()? {
            None => return Ok(()),
            Some(SimpleQueryMessage::RowDescription(columns)) => {
                table = Some(Table::new(columns.iter().map(|column| column.name())));
            }
            Some(SimpleQueryMessage::Row(row)) => {
                if let Some(table) = &mut table {
                    let row = (0..row.len()).map(|i| printable(row.get(i).unwrap_or(""))).collect();
                    if table.push(row) == ROWS_AT_ONCE {
                        print(&table.flush())?;
                    }
                }
            }
            Some(SimpleQueryMessage::CommandComplete(count)) => match table.take() {
                Some(mut table) => {
                    let rows = if count == 1 { "row" } else { "rows" };
                    print(&format!("{}({count} {rows})\n\n", table.flush()))?;
                }
                None => print(&format!("ok, {count} rows affected\n"))?,
            },
            Some(_) => {}
        }
    }
}

/// An error with its place in the statement, as psql shows it.
fn explained(error: &tokio_postgres::Error, sql: &str) -> String {
    let Some(server) = error.as_db_error() else { return format!("ERROR:  {}", described(error)) };
    let mut text = format!("{}:  {}", server.severity(), server.message());
    if let Some(ErrorPosition::Original(position)) = server.position() {
        // Characters from 1.
        let before: String = sql.chars().take((*position as usize).saturating_sub(1)).collect();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let number = before.matches('\n').count() + 1;
        let line = printable(sql[start..].lines().next().unwrap_or(""));
        let column = printable(&before[start..]).chars().count();
        let label = format!("LINE {number}: ");
        let _ = write!(text, "\n{label}{line}\n{:indent$}^", "", indent = label.len() + column);
    }
    for (name, part) in [("DETAIL", server.detail()), ("HINT", server.hint())] {
        if let Some(part) = part {
            let _ = write!(text, "\n{name}:  {part}");
        }
    }
    text
}

fn described(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => server.message().to_owned(),
        None => std::error::Error::source(error)
            .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Error::new(Code::Output, format!("standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_reach_the_server_as_they_were_written() {
        assert_eq!(as_written("public.t1"), "public.t1");
        assert_eq!(as_written("a b"), "\"a b\"");
        assert_eq!(as_written("\"A\".t"), "\"A\".t");
        assert_eq!(quote_literal("it's"), "'it''s'");
    }
}
