//! `inrush recover`: what a dead load left is finished or undone.
//!
//! All that a dead load can leave is an entry in state `open`, what it changed about its table (the levers it pulled),
//! and, for a while, connections whose client is gone. Rows of units that did not commit are not in the table; those of units that did are recorded.

use crate::args::{Cli, Command, RecoverArgs};
use crate::loads::{OpenLedger, again, counted, for_load, overview};
use crate::say;
use clap::Parser;
use inrush_core::{Code, Error, Result};
use inrush_load::grouped;
use inrush_sink::ledger::{Ledger, LoadConnection, LoadSummary, StoredLoad};
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between the two looks at a COPY that tell whether its client still sends.
const SECOND_LOOK: Duration = Duration::from_secs(2);

pub fn run(args: &RecoverArgs) -> Result<ExitCode> {
    let Some(mut open) = OpenLedger::open(&args.ledger)? else {
        if args.json {
            say::json(&json!([]))?;
        } else {
            say::out("nothing is open: nothing has been loaded here\n")?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let settled = open.settle(&args.nodes.map()?)?;
    if settled.committed + settled.rolled_back > 0 {
        say::note(&format!(
            "{} on several servers ended: {} committed, {} rolled back",
            counted(settled.committed + settled.rolled_back, "unit"),
            settled.committed,
            settled.rolled_back
        ));
    }
    for left in &settled.left {
        say::note(left);
    }
    for partial in &settled.partial {
        say::note(&partial.to_string());
    }
    let named = args.finish.as_deref().or(args.undo.as_deref()).filter(|id| !id.is_empty());
    let mut left = Vec::new();
    for summary in open.list(i64::MAX)? {
        let wanted =
            named.is_none_or(|id| summary.id.to_string() == id || summary.name.as_deref() == Some(id));
        if summary.state == "open" && wanted {
            let load = open.load(&summary.id.to_string())?;
            let working = end_silent(&mut open, &load, args.silent)?;
            left.push(OpenLoad {
                summary: LoadSummary { running: working.len() as i64, ..summary },
                load,
                working,
                put_back: Vec::new(),
            });
        }
    }
    if let (Some(id), true) = (named, left.is_empty()) {
        let load = open.load(id)?;
        return Err(Error::new(Code::Usage, format!("load {} is not open", load.id))
            .hint(format!("`{}` tells more.", for_load("loads show", &load, &args.ledger))));
    }
    if args.finish.is_none() && args.undo.is_none() {
        put_back(&mut open, &mut left, args.json)?;
    }
    if args.undo.is_some() {
        return undo(&mut open, &left, named.is_some());
    }
    if args.finish.is_some() {
        drop(open);
        return finish(args, &left, named.is_some());
    }
    list(args, &left)
}

/// A load that has begun and not ended.
struct OpenLoad {
    summary: LoadSummary,
    load: StoredLoad,
    /// Connections that have a client, as far as can be told.
    working: Vec<LoadConnection>,
    /// What was taken back of what it had changed about its table.
    put_back: Vec<String>,
}

/// How long the connections of a client that has just died may take to end.
const DYING: Duration = Duration::from_secs(3);

/// Takes back what loads have changed about their tables that nobody works on any more, whatever is to become of their
/// rows.
fn put_back(open: &mut OpenLedger, left: &mut [OpenLoad], json: bool) -> Result<()> {
    for id in open.with(async |ledger, client| ledger.loads_with_levers(client).await)? {
        let started = Instant::now();
        let working = loop {
            let there = open.with(async |ledger, client| ledger.connections(client, id).await)?;
            if there.is_empty() || started.elapsed() > DYING {
                break !there.is_empty();
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let of_load = left.iter_mut().find(|open| open.load.id == id);
        if working {
            say::note(&format!("load {id} is being worked on: what it has changed about its table stays"));
            continue;
        }
        let done = open.put_back(id)?;
        for what in &done {
            if !json {
                say::out(&format!("load {id}: {what}\n"))?;
            }
        }
        if let Some(load) = of_load {
            load.put_back = done;
            load.working.clear();
            load.summary.running = 0;
        }
    }
    Ok(())
}

/// Ends the connections of a load that have waited for their client for more than `seconds`, and gives the others.
///
/// A client that is alive after all sends its unit again: the cost of a wrong guess is that unit.
fn end_silent(open: &mut OpenLedger, load: &StoredLoad, seconds: u32) -> Result<Vec<LoadConnection>> {
    let look = async |ledger: &Ledger, client: &mut tokio_postgres::Client| {
        ledger.connections(client, load.id).await
    };
    let first = open.with(look)?;
    let suspects: Vec<&LoadConnection> =
        first.iter().filter(|c| c.waiting.is_some_and(|waited| waited >= f64::from(seconds))).collect();
    if suspects.is_empty() {
        return Ok(first);
    }
    std::thread::sleep(SECOND_LOOK);
    let second = open.with(look)?;
    let silent: Vec<i32> = suspects
        .iter()
        .filter(|suspect| {
            let now = second.iter().find(|c| c.pid == suspect.pid);
            now.is_some_and(|now| now.waiting >= suspect.waiting && now.copied == suspect.copied)
        })
        .map(|suspect| suspect.pid)
        .collect();
    if silent.is_empty() {
        return Ok(second);
    }
    let ended = open.with(async |ledger, client| ledger.end_connections(client, load.id, &silent).await)?;
    say::note(&format!(
        "load {}: ended {} that had waited for a client longer than {seconds} s",
        load.id,
        counted(ended, "connection")
    ));
    Ok(second.into_iter().filter(|c| !silent.contains(&c.pid)).collect())
}

fn list(args: &RecoverArgs, left: &[OpenLoad]) -> Result<ExitCode> {
    if args.json {
        let loads: Vec<_> = left
            .iter()
            .map(|open| {
                json!({
                    "load": open.summary,
                    "connections": open.working,
                    "put_back": open.put_back,
                    "finish": again(&open.load, &args.ledger),
                    "undo": for_load("recover --undo", &open.load, &args.ledger),
                })
            })
            .collect();
        say::json(&loads)?;
        return Ok(ExitCode::SUCCESS);
    }
    if left.is_empty() {
        say::out("nothing is open: every load has ended\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let summaries: Vec<LoadSummary> = left.iter().map(|open| open.summary.clone()).collect();
    let mut text = overview(&summaries);
    for open in left {
        text += &format!("\nload {}", open.load.id);
        if !open.working.is_empty() {
            let pids: Vec<String> = open.working.iter().map(|c| c.pid.to_string()).collect();
            text += &format!(" is being worked on: server processes {}", pids.join(", "));
        }
        let finish = match can_finish(&open.load) {
            Ok(()) => for_load("recover --finish", &open.load, &args.ledger),
            Err(_) => again(&open.load, &args.ledger),
        };
        text += &format!(
            "\n  load the rest:    {finish}\n  remove its rows:  {}\n",
            for_load("recover --undo", &open.load, &args.ledger)
        );
    }
    say::out(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn undo(open: &mut OpenLedger, left: &[OpenLoad], named: bool) -> Result<ExitCode> {
    let mut worst = ExitCode::SUCCESS;
    for OpenLoad { load, working, .. } in left {
        if !working.is_empty() && !named {
            say::note(&format!("load {} is being worked on: left alone", load.id));
            continue;
        }
        match open.with(async |ledger, client| ledger.undo(client, load, false).await) {
            Ok(outcome) => {
                say::out(&format!("load {} undone: {} rows removed\n", load.id, grouped(outcome.removed)))?;
                for what in open.put_back(load.id)? {
                    say::out(&format!("load {}: {what}\n", load.id))?;
                }
            }
            Err(error) => {
                say::error(&error);
                worst = ExitCode::from(2);
            }
        }
    }
    if left.is_empty() {
        say::out("nothing is open: every load has ended\n")?;
    }
    Ok(worst)
}

fn finish(args: &RecoverArgs, left: &[OpenLoad], named: bool) -> Result<ExitCode> {
    let mut worst = 0;
    for OpenLoad { load, working, .. } in left {
        if !working.is_empty() && !named {
            say::note(&format!("load {} is being worked on: left alone", load.id));
            continue;
        }
        say::note(&format!("load {}: {}", load.id, again(load, &args.ledger)));
        let code = can_finish(load).and_then(|()| finish_one(args, load)).unwrap_or_else(|error| {
            say::error(&error);
            2
        });
        worst = worst.max(code);
    }
    if left.is_empty() {
        say::out("nothing is open: every load has ended\n")?;
    }
    Ok(ExitCode::from(worst))
}

/// Whether the command of a load can be given again from here.
fn can_finish(load: &StoredLoad) -> Result<()> {
    let cannot = |fact: String| {
        Err(Error::new(Code::Usage, fact).hint(
            "Give the command again with the same input, or remove the rows with `inrush recover --undo`.",
        ))
    };
    if load.command.is_empty() {
        return cannot(format!("the ledger does not have the command of load {}", load.id));
    }
    if load.command.iter().any(|word| word == "-") {
        return cannot(format!("load {} was read from standard input, which is gone", load.id));
    }
    Ok(())
}

/// Gives the command of a load again.
fn finish_one(args: &RecoverArgs, load: &StoredLoad) -> Result<u8> {
    let mut words: Vec<OsString> = ["inrush", "load"].iter().map(Into::into).collect();
    words.extend(load.command.iter().map(Into::into));
    words.extend(args.options.iter().cloned());
    if let Some(to) = &args.ledger.server.to {
        words.push(format!("--to={to}").into());
    }
    let parsed = Cli::try_parse_from(words).map_err(|e| {
        let fact = e.to_string();
        let fact = fact.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Error::new(Code::Usage, format!("the command of load {} cannot be given again: {fact}", load.id))
    })?;
    let Command::Load(parsed) = parsed.command else {
        return Err(Error::new(
            Code::Ledger,
            format!("the command of load {} is none to load with", load.id),
        ));
    };
    crate::load::run(&parsed, load.command.clone())
}
