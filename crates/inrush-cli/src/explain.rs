//! `inrush explain`: one query scanned in every way, with what each took and why.

mod text;

use crate::args::ExplainArgs;
use crate::report_file::ReportFile;
use crate::say;
use crate::server::{IfAbsent, Server};
use inrush_core::{Code, Error, Result, printable};
use inrush_tune::explain::{self, Hooks};
use inrush_tune::io::keep::Store;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often who is asked is looked at for having had enough: 100 ms.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

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
    let stop = asked_to_end()?;
    let hooks = Hooks {
        note: &|text| {
            if progress {
                say::note(&printable(text));
            }
        },
        agree: &|question| agreed(question, &stop),
        stop: Arc::clone(&stop),
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

/// Asks on the terminal. Where there is none nobody has agreed, nor has somebody who wants all this to end.
fn agreed(question: &str, stop: &AtomicBool) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let mut stderr = std::io::stderr().lock();
    let asked = write!(stderr, "{} [y/N] ", printable(question)).and_then(|()| stderr.flush());
    let answer = asked.is_ok().then(|| line_of_stdin(stop)).flatten();
    if answer.is_none() {
        // What comes next begins on a line of its own.
        let _ = writeln!(stderr);
    }
    answer.is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes" | "YES"))
}

/// A line of standard input, or what there was of it at its end; `None` when the user wants to end, or it cannot
/// be read. Reading alone would not do: handlers of signals have it go on (SA_RESTART).
fn line_of_stdin(stop: &AtomicBool) -> Option<String> {
    let stdin = std::io::stdin();
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut wanted, Some(&LOOK)) {
            Ok(_) if stop.load(Ordering::Relaxed) => return None,
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return None,
        }
        let mut byte = [0];
        match rustix::io::read(&stdin, &mut byte) {
            Ok(0) => break,
            Ok(_) => line.extend(byte),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
    Some(String::from_utf8_lossy(&line).into_owned())
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
