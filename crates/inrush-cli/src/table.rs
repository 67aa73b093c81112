//! `inrush table`

mod text;

use crate::args::{CreateArgs, LedgerArgs, MaintainArgs, TableCommand};
use crate::say;
use crate::server::{IfAbsent, Server};
use inrush_core::{Code, Error, Result};
use inrush_sink::catalog::TableName;
use inrush_sink::connect::{Connected, connect};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use inrush_windows::{Body, Create, Maintained, Options, Windowed, create, find, maintain, read_all, sizes};
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The windowed tables of a database, and the way to it.
struct Tables {
    runtime: Runtime,
    connection: Connected,
    ledger: Ledger,
}

impl Tables {
    /// `None`: there is no ledger, so there are no such tables.
    fn open(args: &LedgerArgs, make_ledger: bool) -> Result<Option<Tables>> {
        let absent = if make_ledger { IfAbsent::Create } else { IfAbsent::Refuse };
        let Server { conninfo, .. } = Server::find(&args.server, absent, &say::note)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
            Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
        })?;
        let mut connection = runtime.block_on(connect(&conninfo, "inrush table"))?;
        let ledger = runtime.block_on(Ledger::open(&mut connection.client, &args.ledger, make_ledger))?;
        Ok(ledger.map(|ledger| Tables { runtime, connection, ledger }))
    }

    fn all(&self) -> Result<Vec<Windowed>> {
        self.runtime.block_on(read_all(&self.connection.client, &self.ledger))
    }

    fn one(&self, name: &str) -> Result<Windowed> {
        let name = TableName::parse(name)?;
        let found = self.runtime.block_on(find(&self.connection.client, &self.ledger, &name))?;
        found.ok_or_else(|| no_such_table(&name.to_string()))
    }
}

fn no_such_table(name: &str) -> Error {
    Error::new(Code::Table, format!("{name} is no windowed table"))
        .hint("`inrush table list` lists those there are; `inrush table create` makes one.")
}

pub fn run(command: TableCommand) -> Result<ExitCode> {
    match command {
        TableCommand::Create(args) => make(&args)?,
        TableCommand::List { json, ledger } => list(&ledger, json)?,
        TableCommand::Show { name, json, ledger } => show(&ledger, &name, json)?,
        TableCommand::Maintain(args) => return keep_up(&args),
    }
    Ok(ExitCode::SUCCESS)
}

fn make(args: &CreateArgs) -> Result<()> {
    let body = match &args.like {
        Some(file) => Body::Statement(std::fs::read_to_string(file).map_err(|e| {
            Error::new(Code::SourceOpen, format!("cannot read {}: {e}", file.display()))
                .hint("--like takes a file with one CREATE TABLE statement.")
        })?),
        None => Body::Columns(args.columns.join(", ")),
    };
    let spec = Create {
        name: TableName::parse(&args.name)?,
        body,
        time_column: args.time.clone(),
        unit: args.unit.map(Into::into),
        window: args.window,
        keep: args.keep,
        max_size: args.max_size,
        min_free: args.min_free,
        ahead: args.ahead,
        lanes: args.lanes,
        key_column: args.key.clone(),
        tablespaces: args.tablespaces.clone(),
        unlogged: args.unlogged,
        index: args.index(),
        pages_per_range: args.pages_per_range,
        storage: args.storage.clone(),
        late: args.late.into(),
        idle: args.idle,
    };
    let Some(mut tables) = Tables::open(&args.ledger, true)? else {
        return Err(Error::new(Code::Ledger, "the ledger that was just made is gone"));
    };
    let made = tables.runtime.block_on(create(&mut tables.connection.client, &tables.ledger, &spec))?;
    if args.json {
        say::json(&text::created_json(&made))?;
    } else {
        say::out(&text::created(&made))?;
    }
    for warning in text::warnings(&made) {
        say::warning(&warning);
    }
    Ok(())
}

fn list(args: &LedgerArgs, json: bool) -> Result<()> {
    let mut found = Vec::new();
    if let Some(tables) = Tables::open(args, false)? {
        for table in tables.all()? {
            let sizes = tables.runtime.block_on(sizes(&tables.connection.client, &table))?;
            found.push((table, sizes));
        }
    }
    if json {
        let all: Vec<_> = found.iter().map(|(table, sizes)| text::table_json(table, sizes)).collect();
        return say::json(&all);
    }
    if found.is_empty() {
        return say::out("there are no windowed tables here\n");
    }
    say::out(&text::list(&found))
}

fn show(args: &LedgerArgs, name: &str, json: bool) -> Result<()> {
    let Some(tables) = Tables::open(args, false)? else { return Err(no_such_table(name)) };
    let table = tables.one(name)?;
    let client = &tables.connection.client;
    let sizes = tables.runtime.block_on(sizes(client, &table))?;
    let sources = tables.runtime.block_on(inrush_windows::complete(client, &tables.ledger, &table))?;
    if json {
        return say::json(&text::show_json(&table, &sizes, &sources));
    }
    say::out(&text::show(&table, &sizes, &sources))
}

/// Ends with 2 if a table could not be kept up; the others are.
fn keep_up(args: &MaintainArgs) -> Result<ExitCode> {
    let Some(pause) = args.again else {
        let worked = match Tables::open(&args.ledger, false)? {
            Some(mut tables) => pass(&mut tables, args, true)?,
            None => match args.names.first() {
                Some(name) => return Err(no_such_table(name)),
                None => pass_over_none(args)?,
            },
        };
        return Ok(if worked { ExitCode::SUCCESS } else { ExitCode::from(2) });
    };
    let pause = Duration::from_micros(pause.us().unsigned_abs());
    let mut tables = None;
    loop {
        // Windows have to be made when the server is back, too: what fails is told, and tried again on a new connection.
        let outcome = match &mut tables {
            Some(open) => pass(open, args, false),
            None => Tables::open(&args.ledger, false).and_then(|mut open| {
                let outcome = open.as_mut().map_or(Ok(true), |open| pass(open, args, false));
                tables = open;
                outcome
            }),
        };
        if let Err(error) = outcome {
            // Nobody reads the results any more.
            if error.code() == Code::Output {
                return Err(error);
            }
            say::error(&error);
            tables = None;
        }
        std::thread::sleep(pause);
    }
}

fn pass_over_none(args: &MaintainArgs) -> Result<bool> {
    if !args.json {
        say::out("there are no windowed tables here\n")?;
    }
    Ok(true)
}

/// One pass over the tables. `tell_all`: also of those where there was nothing to do. Whether all are kept up: what one
/// fails of is told, and the others have their turn.
fn pass(tables: &mut Tables, args: &MaintainArgs, tell_all: bool) -> Result<bool> {
    // Tables that were dropped are among them: what is recorded of them goes.
    let mut wanted: Vec<u32> =
        args.names.iter().map(|name| Ok(tables.one(name)?.relid)).collect::<Result<_>>()?;
    if args.names.is_empty() {
        wanted = tables
            .runtime
            .block_on(inrush_windows::recorded_tables(&tables.connection.client, &tables.ledger))?;
    }
    if wanted.is_empty() && tell_all {
        return pass_over_none(args);
    }
    let mut worked = true;
    for relid in wanted {
        let Tables { runtime, connection, ledger } = tables;
        let options = Options::default();
        let one = maintain(&mut connection.client, ledger, relid, None, &options);
        match runtime.block_on(one) {
            Ok(did) => tell(&did, args.json, tell_all)?,
            Err(error) if connection.client.is_closed() => return Err(error),
            Err(error) => {
                worked = false;
                let name = runtime.block_on(name_of(connection, relid))?;
                say::error(&error.about(&format!("table {name}")));
            }
        }
    }
    Ok(worked)
}

async fn name_of(connection: &Connected, relid: u32) -> Result<String> {
    let sql = "SELECT $1::pg_catalog.oid::pg_catalog.regclass::pg_catalog.text";
    let row = connection.client.query_one(sql, &[&relid]).await.map_err(server_error)?;
    row.try_get(0).map_err(server_error)
}

fn tell(did: &Maintained, json: bool, tell_all: bool) -> Result<()> {
    if json {
        let line = serde_json::to_string(did)
            .map_err(|e| Error::new(Code::Internal, format!("what was done has no JSON form: {e}")))?;
        return say::out(&(line + "\n"));
    }
    if tell_all || did.did_something() || did.waits.iter().any(|wait| !wait.done) {
        say::out(&text::maintained(did))?;
    }
    Ok(())
}
