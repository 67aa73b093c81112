//! `inrush loads`

use crate::args::{LedgerArgs, LoadsCommand};
use crate::grid::{Align, grid, pair};
use crate::say;
use crate::server::{IfAbsent, Server};
use crate::words::shell_words;
use inrush_cluster::{NodeMap, Settled, known_nodes, settle};
use inrush_core::{Code, Error, Excerpt, Reject, Result};
use inrush_load::{grouped, reject_json};
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::ledger::{Ledger, LoadSummary, StoredLoad};
use serde_json::{Value, json};
use std::process::ExitCode;
use tokio::runtime::Runtime;
use tokio_postgres::Client;

/// A ledger and the way to it.
pub struct OpenLedger {
    runtime: Runtime,
    connection: Connected,
    conninfo: ConnInfo,
    pub ledger: Ledger,
}

impl OpenLedger {
    /// Connects and opens the ledger; `None` if nothing was ever recorded there.
    pub fn open(args: &LedgerArgs) -> Result<Option<OpenLedger>> {
        let Server { conninfo, .. } = Server::find(&args.server, IfAbsent::Refuse, &say::note)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
            Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
        })?;
        let mut connection = runtime.block_on(connect(&conninfo, "inrush loads"))?;
        let ledger = runtime.block_on(Ledger::open(&mut connection.client, &args.ledger, false))?;
        Ok(ledger.map(|ledger| OpenLedger { runtime, connection, conninfo, ledger }))
    }

    /// As [`OpenLedger::open`], for commands about a load that must be there.
    pub fn need(args: &LedgerArgs) -> Result<OpenLedger> {
        OpenLedger::open(args)?.ok_or_else(|| {
            Error::new(
                Code::Ledger,
                format!("nothing has been loaded here: there is no ledger {:?}", args.ledger),
            )
            .hint("Name the server with --to, and another ledger schema with --ledger.")
        })
    }

    /// Runs something on the connection.
    pub fn with<'s, T, F>(&'s mut self, work: impl FnOnce(&'s Ledger, &'s mut Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + 's,
    {
        self.runtime.block_on(work(&self.ledger, &mut self.connection.client))
    }

    /// Takes back what a load has changed about its table. Gives what was done, in words.
    pub fn put_back(&mut self, load: i64) -> Result<Vec<String>> {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let back = inrush_load::put_back(
            &mut self.connection.client,
            &self.conninfo,
            &self.ledger,
            load,
            inrush_load::End::GivenUp,
            jobs,
            &say::note,
        );
        self.runtime.block_on(back)
    }

    /// Ends what dead loads have prepared on several servers. Loads that nobody works on are given up for it.
    pub fn settle(&mut self, map: &NodeMap) -> Result<Settled> {
        let (ledger, client) = (&self.ledger, &self.connection.client);
        self.runtime.block_on(async {
            let nodes = known_nodes(client).await?;
            let first = settle(client, ledger, &self.conninfo, map, &nodes).await?;
            let mut given_up = false;
            for load in &first.others {
                if ledger.connections(client, *load).await?.is_empty() {
                    ledger.give_up(client, *load).await?;
                    given_up = true;
                }
            }
            if !given_up {
                return Ok(first);
            }
            let second = settle(client, ledger, &self.conninfo, map, &nodes).await?;
            Ok(Settled {
                committed: first.committed + second.committed,
                rolled_back: first.rolled_back + second.rolled_back,
                ..second
            })
        })
    }

    pub fn load(&mut self, id_or_name: &str) -> Result<StoredLoad> {
        self.with(async |ledger, client| ledger.load(client, id_or_name).await)
    }

    pub fn list(&mut self, limit: i64) -> Result<Vec<LoadSummary>> {
        self.with(async |ledger, client| ledger.list(client, limit).await)
    }
}

pub fn run(command: LoadsCommand) -> Result<ExitCode> {
    match command {
        LoadsCommand::List { limit, json, ledger } => list(&ledger, limit, json)?,
        LoadsCommand::Show { load, json, ledger } => show(&ledger, &load, json)?,
        LoadsCommand::Undo { load, partial, json, ledger } => {
            let mut open = OpenLedger::need(&ledger)?;
            let load = open.load(&load)?;
            let outcome = open.with(async |ledger, client| ledger.undo(client, &load, partial).await)?;
            for done in open.put_back(load.id)? {
                say::note(&format!("load {}: {done}", load.id));
            }
            if json {
                say::json(
                    &json!({ "load": load.id, "removed": outcome.removed, "recorded": outcome.recorded }),
                )?;
            } else {
                say::out(&format!("load {} undone: {} rows removed\n", load.id, grouped(outcome.removed)))?;
            }
        }
        LoadsCommand::Prune { older_than, json, ledger } => {
            let forgotten = match OpenLedger::open(&ledger)? {
                Some(mut open) => open.with(async |ledger, client| ledger.prune(client, older_than).await)?,
                None => 0,
            };
            if json {
                say::json(&json!({ "forgotten": forgotten }))?;
            } else {
                say::out(&format!("{} forgotten; their rows stay\n", counted(forgotten, "load")))?;
            }
        }
        LoadsCommand::Rejects { load, raw, json, ledger } => {
            let mut open = OpenLedger::need(&ledger)?;
            let load = open.load(&load)?;
            let print = |reject: Reject| {
                if raw {
                    let line_end: &[u8] = if reject.raw.ends_with(b"\n") { b"" } else { b"\n" };
                    say::bytes(&reject.raw)?;
                    say::bytes(line_end)
                } else if json {
                    say::out(&format!("{}\n", reject_json(&reject)))
                } else {
                    say::out(&reject_text(&reject))
                }
            };
            open.with(async |ledger, client| ledger.rejects(client, &load, print).await)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &LedgerArgs, limit: i64, json: bool) -> Result<()> {
    let loads = match OpenLedger::open(args)? {
        Some(mut open) => open.list(limit)?,
        None => Vec::new(),
    };
    if json {
        return say::json(&loads);
    }
    if loads.is_empty() {
        return say::out("nothing has been loaded here\n");
    }
    say::out(&overview(&loads))
}

/// A line for each load.
pub fn overview(loads: &[LoadSummary]) -> String {
    let rows: Vec<Vec<String>> = loads
        .iter()
        .map(|load| {
            vec![
                load.id.to_string(),
                match (load.state.as_str(), load.running) {
                    ("open", 1..) => "running".to_owned(),
                    (state, _) => state.to_owned(),
                },
                load.table.clone(),
                figure(load.rows),
                figure(load.rejects),
                to_seconds(&load.started_at).to_owned(),
                load.name.clone().unwrap_or_default(),
                match load.inputs.as_slice() {
                    [one] => one.clone(),
                    [first, rest @ ..] => format!("{first} and {} more", rest.len()),
                    [] => String::new(),
                },
            ]
        })
        .collect();
    grid(
        &[
            ("ID", Align::Right),
            ("STATE", Align::Left),
            ("TABLE", Align::Left),
            ("ROWS", Align::Right),
            ("REJECTS", Align::Right),
            ("STARTED", Align::Left),
            ("NAME", Align::Left),
            ("INPUT", Align::Left),
        ],
        &rows,
    )
}

fn show(args: &LedgerArgs, id_or_name: &str, json: bool) -> Result<()> {
    let mut open = OpenLedger::need(args)?;
    let load = open.load(id_or_name)?;
    let summary = open.list(i64::MAX)?.into_iter().find(|summary| summary.id == load.id);
    let Some(summary) = summary else {
        return Err(Error::new(Code::Ledger, format!("load {} has just been forgotten", load.id)));
    };
    let ranges = open.with(async |ledger, client| ledger.done_ranges(client, &load).await)?;
    let connections = open.with(async |ledger, client| ledger.connections(client, load.id).await)?;
    if json {
        let ranges: Vec<Value> = ranges
            .iter()
            .map(|r| {
                json!({ "input": r.input, "first_byte": r.start, "end_byte": r.end, "rows": r.rows, "rejects": r.rejects })
            })
            .collect();
        return say::json(&json!({
            "version": 1,
            "id": load.id,
            "name": load.name,
            "state": summary.state,
            "table": summary.table,
            "started_at": load.started_at,
            "finished_at": load.finished_at,
            "rows": summary.rows,
            "rejects": summary.rejects,
            "inputs": load.inputs,
            "settings": load.meaning,
            "command": load.command,
            "runs": load.epoch,
            "unlogged": load.unlogged,
            "ranges": ranges,
            "connections": connections,
        }));
    }
    let mut text = format!("load {}", load.id);
    if let Some(name) = &load.name {
        text += &format!(" ({name})");
    }
    let state = if summary.state == "open" && summary.running > 0 { "running" } else { &summary.state };
    text += &format!(": {state}\n");
    text += &pair("table", &summary.table);
    text += &pair("rows", &figure(summary.rows));
    text += &pair("rejects", &figure(summary.rejects));
    text += &pair("started", to_seconds(&load.started_at));
    if let Some(finished) = &load.finished_at {
        text += &pair("ended", to_seconds(finished));
    }
    if load.epoch > 1 {
        text += &pair("runs", &load.epoch.to_string());
    }
    for (i, input) in load.inputs.iter().enumerate() {
        let path = input.get("path").and_then(Value::as_str).unwrap_or_default();
        let size = input.get("size").and_then(Value::as_u64);
        let size = size.map_or_else(String::new, |n| format!(" ({})", crate::grid::bytes(n)));
        let mine = ranges.iter().filter(|r| r.input as usize == i);
        let (rows, units) = mine.fold((0, 0), |(rows, n), r| (rows + r.rows, n + 1));
        let done = if units > 0 {
            format!(": {} rows in {}", grouped(rows), counted(units, "range"))
        } else {
            String::new()
        };
        text += &pair("input", &format!("{path}{size}{done}"));
    }
    for connection in &connections {
        let client = connection.client.as_deref().unwrap_or("a local socket");
        text += &pair("connection", &format!("server process {}, from {client}", connection.pid));
    }
    text += "\n";
    match summary.state.as_str() {
        "open" => {
            text += &format!("load the rest:    {}\n", again(&load, args));
            text += &format!("remove its rows:  {}\n", for_load("loads undo", &load, args));
        }
        "done" => text += &format!("remove its rows:  {}\n", for_load("loads undo", &load, args)),
        _ => {}
    }
    if summary.rejects > 0 {
        text += &format!("see its rejects:  {}\n", for_load("loads rejects", &load, args));
    }
    say::out(&text)
}

/// The command that loads the rest of a load.
pub fn again(load: &StoredLoad, args: &LedgerArgs) -> String {
    if load.command.is_empty() {
        return "the same command again".to_owned();
    }
    let mut words = vec!["inrush".to_owned(), "load".to_owned()];
    words.extend(load.command.iter().cloned());
    words.extend(to(args));
    shell_words(&words)
}

/// A command about a load, with where it is.
pub fn for_load(what: &str, load: &StoredLoad, args: &LedgerArgs) -> String {
    let mut words: Vec<String> = ["inrush"].into_iter().chain(what.split(' ')).map(str::to_owned).collect();
    words.push(load.id.to_string());
    words.extend(to(args));
    if args.ledger != Ledger::DEFAULT_SCHEMA {
        words.extend(crate::words::option("ledger", &args.ledger));
    }
    shell_words(&words)
}

/// `--to` as it was given: what the environment says needs not be said. A password in it is not repeated.
pub fn to(args: &LedgerArgs) -> Vec<String> {
    args.server.to.as_deref().map_or_else(Vec::new, |to| crate::words::option("to", &without_password(to)))
}

/// A connection string for showing: `user:***@`, `password=***`.
fn without_password(dsn: &str) -> String {
    if let Some((scheme, rest)) = dsn.split_once("://") {
        let authority = rest.find(['/', '?']).unwrap_or(rest.len());
        let shown = match rest[..authority].rfind('@') {
            Some(at) if rest[..at].contains(':') => {
                let user = rest.split(':').next().unwrap_or_default();
                format!("{scheme}://{user}:***{}", &rest[at..])
            }
            _ => dsn.to_owned(),
        };
        return match shown.find("password=") {
            Some(at) => {
                let value = at + "password=".len();
                let end = shown[value..].find('&').map_or(shown.len(), |n| value + n);
                format!("{}***{}", &shown[..value], &shown[end..])
            }
            None => shown,
        };
    }
    match dsn.find("password") {
        // How far a quoted value goes is the parser's to know: the rest is left out.
        Some(at) => format!("{}password=***", &dsn[..at]),
        None => dsn.to_owned(),
    }
}

fn reject_text(reject: &Reject) -> String {
    format!(
        "{}: {} (SQLSTATE {})\n  {}\n",
        reject.position,
        reject.reason,
        reject.sqlstate,
        Excerpt(reject.raw.trim_ascii_end())
    )
}

fn figure(n: i64) -> String {
    grouped(u64::try_from(n).unwrap_or_default())
}

/// `1 load`, `2 loads`
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// A time stamp of the server without fractions of a second.
fn to_seconds(stamp: &str) -> &str {
    match stamp.find('.') {
        Some(at) => &stamp[..at],
        None => stamp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (given, shown) in [
            ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
            ("postgresql://u:p:x@h:5/d?a=b", "postgresql://u:***@h:5/d?a=b"),
            ("postgresql://u@h/d?password=x&sslmode=off", "postgresql://u@h/d?password=***&sslmode=off"),
            ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
            ("host=h password='a b' user=u", "host=h password=***"),
            ("shop", "shop"),
        ] {
            assert_eq!(without_password(given), shown);
        }
    }
}
