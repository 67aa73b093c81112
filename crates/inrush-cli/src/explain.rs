//! `inrush explain`: one query scanned in every way, with what each took and why.

mod text;

use crate::args::ExplainArgs;
use crate::report_file::ReportFile;
use crate::say;
use crate::server::{IfAbsent, Server};
use inrush_core::{Code, Error, Result};
use inrush_tune::explain::{self, Hooks};
use inrush_tune::io::keep::Store;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let mut options = args.options()?;
    options.store = Store::of(&|name| std::env::var(name).ok());
    // Before anything is run: a report that cannot be written is no news to bring at its end.
    let mut files = args.report.iter().map(|path| ReportFile::open(path)).collect::<Result<Vec<_>>>()?;
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
    // One that cannot be written does not keep the others from being written.
    let written =
        files.iter_mut().map(|file| file.write(&report, || report.html())).fold(Ok(()), Result::and);
    if args.json {
        say::json(&report)?;
    } else if !files.iter().any(ReportFile::is_stdout) {
        say::out(&text::report(&report))?;
    }
    written?;
    // It could be had when it began, and others have kept the table in memory since.
    match &report.cold.why_not {
        Some(why) if args.cold => {
            Err(Error::new(Code::Server, format!("the cold runs had to be given up: {why}"))
                .hint("Try again when fewer use the table."))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
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
