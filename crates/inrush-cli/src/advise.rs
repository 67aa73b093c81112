//! `inrush advise`: what limits bulk loads on a server, and the changes that need no restart.

mod text;

use crate::args::{AdviseArgs, LedgerArgs};
use crate::loads::to;
use crate::say;
use crate::server::{IfAbsent, Server};
use crate::words::{option, shell_words};
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::{Connected, connect};
use inrush_sink::ledger::Ledger;
use inrush_tune::advise::apply::{self, Change, Outcome, Undone};
use inrush_tune::advise::{Effect, Report, VERSION, facts};
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &AdviseArgs) -> Result<ExitCode> {
    let Server { conninfo, .. } = Server::find(&args.ledger.server, IfAbsent::Refuse, &say::note)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
    })?;
    runtime.block_on(async {
        let mut connection = connect(&conninfo, "inrush advise").await?;
        let report = Report::of(facts::read(&connection.client).await?);
        if args.apply {
            apply(args, &mut connection, &report).await
        } else if args.undo {
            undo(args, &mut connection, &report).await
        } else if args.json {
            say::json(&report)
        } else {
            say::out(&text::report(&report, &again("--apply", &args.ledger)))
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn apply(args: &AdviseArgs, connection: &mut Connected, report: &Report) -> Result<()> {
    apply::check(report)?;
    let wanted = apply::applicable(report);
    let mut changes = Vec::new();
    if !wanted.is_empty() {
        let client = &mut connection.client;
        let ledger = Ledger::open(client, &args.ledger.ledger, true)
            .await?
            .ok_or_else(|| Error::new(Code::Internal, "the ledger is missing although it was to be made"))?;
        changes = apply::apply(client, &ledger, &wanted).await?;
    }
    let left: Vec<&str> = report
        .advice
        .iter()
        .filter(|advice| !wanted.iter().any(|one| one.setting == advice.setting))
        .map(|advice| advice.setting)
        .collect();
    if args.json {
        say::json(&json!({ "version": VERSION, "applied": changes, "not_applied": left }))?;
        return in_effect(&changes, &args.ledger);
    }
    let mut out = String::new();
    for change in &changes {
        match &change.overruled {
            None => out += &format!("{}: {} -> {}, in effect\n", change.setting, change.before, change.value),
            Some(why) => {
                out += &format!(
                    "{}: set to {}, but {} is in effect: {why}\n",
                    change.setting, change.value, change.now
                );
            }
        }
    }
    if changes.is_empty() {
        out += "nothing to change that needs no restart\n";
    }
    for advice in report.advice.iter().filter(|advice| left.contains(&advice.setting)) {
        let why = match (&advice.obstacle, advice.effect) {
            (Some(obstacle), _) => obstacle.as_str(),
            (None, Effect::Restart) => "needs a restart: `inrush advise` has the lines",
            (None, _) => "this role may not set it",
        };
        out += &format!("{}: left at {}; {why}\n", advice.setting, advice.now);
    }
    if !changes.is_empty() {
        out += &format!("take it back with: {}\n", again("--undo", &args.ledger));
    }
    say::out(&out)?;
    in_effect(&changes, &args.ledger)
}

/// An error if a change was made and another value counts.
fn in_effect(changes: &[Change], ledger: &LedgerArgs) -> Result<()> {
    let mut overruled = changes.iter().filter(|change| change.overruled.is_some()).peekable();
    let Some(Change { overruled: Some(why), .. }) = overruled.peek() else { return Ok(()) };
    let why = why.clone();
    let names: Vec<&str> = overruled.map(|change| change.setting.as_str()).collect();
    Err(Error::new(Code::Server, format!("set and not in effect: {} ({why})", names.join(", "))).hint(
        format!(
            "Once that is mended `SELECT pg_reload_conf()` is enough; `{}` takes it back.",
            again("--undo", ledger)
        ),
    ))
}

async fn undo(args: &AdviseArgs, connection: &mut Connected, report: &Report) -> Result<()> {
    let client = &mut connection.client;
    let undone = match Ledger::open(client, &args.ledger.ledger, false).await? {
        Some(ledger) => apply::undo(client, &ledger, &report.facts).await?,
        None => Vec::new(),
    };
    if args.json {
        return say::json(&json!({ "version": VERSION, "undone": undone }));
    }
    let mut out: String = undone.iter().map(undone_line).collect();
    if undone.is_empty() {
        out += "nothing to take back: nothing that was applied from here is recorded\n";
    }
    say::out(&out)
}

fn undone_line(undone: &Undone) -> String {
    let Undone { setting, value, previous, outcome, now } = undone;
    let entry = |entry: &Option<String>| match entry {
        Some(value) => value.clone(),
        None => "no entry".to_owned(),
    };
    match outcome {
        Outcome::Restored => format!("{setting}: {value} taken back, {now} is in effect\n"),
        Outcome::AsBefore | Outcome::Gone => format!("{setting}: nothing to take back, {now} is in effect\n"),
        Outcome::ChangedSince { found } => format!(
            "{setting}: left alone, somebody has changed it since: postgresql.auto.conf had {}, was given {value}, \
             and has {} now\n",
            entry(previous),
            entry(found)
        ),
    }
}

/// The same command with another option.
fn again(what: &str, args: &LedgerArgs) -> String {
    let mut words = vec!["inrush".to_owned(), "advise".to_owned(), what.to_owned()];
    words.extend(to(args));
    if args.ledger != Ledger::DEFAULT_SCHEMA {
        words.extend(option("ledger", &args.ledger));
    }
    shell_words(&words)
}
