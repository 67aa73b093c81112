//! `inrush cluster`

mod text;

use crate::args::{ClusterCommand, ClusterStatusArgs};
use crate::say;
use crate::server::{IfAbsent, Server};
use inrush_cluster::{Look, Status, status};
use inrush_core::{Code, Error, Result};
use inrush_sink::catalog::{TableName, table};
use inrush_sink::connect::connect;
use inrush_sink::ledger::Ledger;
use std::process::ExitCode;

pub fn run(command: ClusterCommand) -> Result<ExitCode> {
    match command {
        ClusterCommand::Status(args) => {
            let found = look(&args)?;
            if args.json { say::json(&found)? } else { say::out(&text::status(&found))? }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn look(args: &ClusterStatusArgs) -> Result<Status> {
    let name = args.table.as_deref().map(TableName::parse).transpose()?;
    let map = args.nodes.map()?;
    let Server { conninfo, .. } = Server::find(&args.ledger.server, IfAbsent::Refuse, &say::note)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
    })?;
    runtime.block_on(async {
        let mut connection = connect(&conninfo, "inrush cluster").await?;
        // One that may not be read says nothing of nodes and shards.
        let (ledger, against) = match Ledger::open(&mut connection.client, &args.ledger.ledger, false).await {
            Ok(ledger) => (ledger, None),
            Err(error) => (None, Some(error)),
        };
        let table = match &name {
            Some(name) => Some(table(&connection.client, name).await?),
            None => None,
        };
        let look =
            Look { table: table.as_ref(), exact: args.exact, ledger: ledger.as_ref(), ..Look::default() };
        let mut found = status(&connection.client, &conninfo, &map, look).await?;
        if let Some(error) = against {
            found.notes.push(format!("whose transactions are prepared is not known: {}", error.fact()));
        }
        Ok(found)
    })
}
