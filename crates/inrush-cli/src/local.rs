//! `inrush local`

use crate::args::{LocalCommand, StopModeName};
use crate::grid::{bytes, pair};
use crate::{say, server};
use inrush_core::{Code, Error, Result};
use inrush_local::{Local, Options, Origin, State, Status, StopMode};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

pub fn run(command: LocalCommand) -> Result<ExitCode> {
    let local = Local::open(&Options::from_env())?;
    match command {
        LocalCommand::Start => {
            let started = local.ensure_started(&mut |p| server::tell(&p, &say::note))?;
            let how = if started.was_running { "runs already" } else { "runs" };
            say::out(&format!(
                "PostgreSQL {} {how}: {}\nlook at it with: inrush local psql\n",
                started.version, started.url
            ))?;
        }
        LocalCommand::Stop { mode } => {
            let mode = match mode {
                StopModeName::Smart => StopMode::Smart,
                StopModeName::Fast => StopMode::Fast,
                StopModeName::Immediate => StopMode::Immediate,
            };
            let ran = local.stop(mode)?;
            say::out(if ran { "stopped\n" } else { "it did not run\n" })?;
        }
        LocalCommand::Status { json } => status(&local.status()?, json)?,
        LocalCommand::Psql { arguments } => {
            local.ensure_started(&mut |p| server::tell(&p, &say::note))?;
            return local.psql(&arguments).map(ExitCode::from);
        }
        LocalCommand::Url => say::out(&format!("{}\n", local.url()))?,
        LocalCommand::Destroy { yes } => destroy(&local, yes)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn status(status: &Status, json: bool) -> Result<()> {
    let (state, pid) = match status.state {
        State::Absent => ("absent", None),
        State::Stopped => ("stopped", None),
        State::Starting { pid } => ("starting", Some(pid)),
        State::Running { pid } => ("running", Some(pid)),
    };
    let version = status.server.as_ref().map(inrush_local::Server::version);
    let origin = status.server.as_ref().map(|server| match server.origin() {
        Origin::Installed => "installed",
        Origin::Fetched => "fetched",
    });
    let size = (status.state != State::Absent).then(|| size_of(&status.data_dir)).flatten();
    if json {
        return say::json(&json!({
            "state": state,
            "pid": pid,
            "version": version,
            "major": status.major,
            "origin": origin,
            "programs": status.server.as_ref().map(inrush_local::Server::bin),
            "root": status.root,
            "data_directory": status.data_dir,
            "log": status.log,
            "url": status.url,
            "bytes": size,
        }));
    }
    let mut text = match status.state {
        State::Absent => "there is no embedded server yet; `inrush local start` creates it\n".to_owned(),
        State::Stopped => "stopped; `inrush local start` starts it\n".to_owned(),
        State::Starting { pid } => format!("not ready yet, or stopping (process {pid})\n"),
        State::Running { pid } => format!("running (process {pid})\n"),
    };
    let programs = match (&status.server, version, origin) {
        (Some(server), Some(version), Some(origin)) => {
            format!("{version}, {origin}, {}", server.bin().display())
        }
        _ => format!("{} (to be fetched)", status.major.map_or("the newest".to_owned(), |m| m.to_string())),
    };
    text += &pair("PostgreSQL", &programs);
    text += &pair("data", &status.data_dir.display().to_string());
    if let Some(size) = size {
        text += &pair("size", &bytes(size));
    }
    if status.state != State::Absent {
        text += &pair("log", &status.log.display().to_string());
        text += &pair("url", &status.url);
    }
    say::out(&text)
}

/// Bytes of the files under `dir` as they are stored; `None` where it may not be read.
fn size_of(dir: &Path) -> Option<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(dir).ok()? {
        // A running server adds and removes files all the time.
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        total += if metadata.is_dir() { size_of(&entry.path()).unwrap_or(0) } else { metadata.len() };
    }
    Some(total)
}

fn destroy(local: &Local, yes: bool) -> Result<()> {
    let status = local.status()?;
    if status.state == State::Absent && !status.root.is_dir() {
        return say::out("there is no embedded server\n");
    }
    if !yes && !agreed(&status)? {
        return say::out("nothing was removed\n");
    }
    let existed = local.destroy()?;
    say::out(if existed { "removed\n" } else { "there is no embedded server\n" })
}

fn agreed(status: &Status) -> Result<bool> {
    let size = size_of(&status.data_dir).map_or_else(String::new, |size| format!(" ({})", bytes(size)));
    let what = format!("all data of the embedded server in {}{size}", status.root.display());
    if !std::io::stdin().is_terminal() {
        return Err(Error::new(Code::Usage, format!("removing {what} has to be confirmed"))
            .hint("Say --yes where no terminal can be asked."));
    }
    let mut stderr = std::io::stderr().lock();
    let asked = write!(stderr, "Remove {what}? Type yes: ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    asked
        .and_then(|()| std::io::stdin().read_line(&mut answer))
        .map_err(|e| Error::new(Code::Output, format!("the terminal cannot be asked: {e}")))?;
    Ok(matches!(answer.trim(), "yes" | "y" | "YES"))
}
