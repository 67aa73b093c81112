//! `inrush explain`: one query scanned in every way, with what each took and why.

mod text;

use crate::args::ExplainArgs;
use crate::say;
use crate::server::{IfAbsent, Server};
use inrush_core::{Code, Error, Result};
use inrush_tune::explain::{self, Hooks, Report};
use inrush_tune::io::Measured;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let mut options = args.options()?;
    options.storage = options.storage.take().or_else(kept_measurement);
    // Before anything is run: a report that cannot be written is no news to bring at its end.
    let mut files = args.report.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let Server { conninfo, .. } = Server::find(&args.server, IfAbsent::Refuse, &say::note)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
    })?;
    let progress = std::io::stderr().is_terminal() && !args.json;
    let hooks = Hooks {
        note: &|text| {
            if progress {
                say::note(text);
            }
        },
        agree: &agreed,
        stop: asked_to_end()?,
    };
    let report = runtime.block_on(explain::run(&conninfo, &options, &hooks))?;
    let mut to_stdout = false;
    for (path, file) in args.report.iter().zip(&mut files) {
        match file {
            None => to_stdout = true,
            Some(file) => write(path, file, &report)?,
        }
    }
    if args.json || to_stdout {
        say::json(&report)?;
    } else {
        say::out(&text::report(&report))?;
    }
    // It could be had when it began, and others have kept the table in memory since.
    match &report.cold.why_not {
        Some(why) if args.cold => {
            Err(Error::new(Code::Server, format!("the cold runs had to be given up: {why}"))
                .hint("Try again when fewer use the table."))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// What was measured of the storage earlier and kept; --storage names a file instead.
fn kept_measurement() -> Option<Measured> {
    None
}

/// Opens a file for a report; `None` for standard output. What it holds stays until there is something new.
fn open(path: &Path) -> Result<Option<File>> {
    if path == Path::new("-") {
        return Ok(None);
    }
    match File::options().create(true).truncate(false).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) => Err(Error::new(Code::Output, format!("cannot write {}: {e}", path.display()))),
    }
}

fn write(path: &Path, file: &mut File, report: &Report) -> Result<()> {
    let page = path.to_string_lossy().to_ascii_lowercase().ends_with(".html");
    let text = if page { report.html() } else { say::json_text(report)? + "\n" };
    // A pipe or a device has no length to cut.
    let _ = file.set_len(0);
    file.write_all(text.as_bytes())
        .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", path.display())))
}

/// Asks on the terminal; where there is none nobody has agreed.
fn agreed(question: &str) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let mut stderr = std::io::stderr().lock();
    let mut answer = String::new();
    let asked = write!(stderr, "{question} [y/N] ")
        .and_then(|()| stderr.flush())
        .and_then(|()| std::io::stdin().read_line(&mut answer));
    asked.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "YES")
}

/// Becomes true with the first SIGINT or SIGTERM: the statement is cancelled, and what was made is removed.
fn asked_to_end() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the process as if nobody listened.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)))
            .map_err(|e| Error::new(Code::Internal, format!("cannot listen for signals: {e}")))?;
    }
    Ok(asked)
}
