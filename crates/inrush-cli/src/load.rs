//! `inrush load`

use crate::args::LoadArgs;
use crate::progress::{Display, Notices};
use crate::report_file::ReportFile;
use crate::say;
use crate::server::{IfAbsent, Server};
use crate::words::shell_words;
use inrush_core::{Code, Error, Result};
use inrush_load::{Finished, Outcome, Progress, Report, Stop};
use std::sync::Arc;

/// Loads; the exit code. `command` are the arguments to keep in the ledger.
pub fn run(args: &LoadArgs, command: Vec<String>) -> Result<u8> {
    let mut options = args.options();
    options.nodes = args.cluster.nodes.map()?;
    options.command = command;
    // Before the load: a report that cannot be written is no news to bring at its end.
    let mut reports = args.report.iter().map(|path| ReportFile::open(path)).collect::<Result<Vec<_>>>()?;
    let server = if args.dry_run {
        None
    } else {
        let notice = |text: &str| {
            if !args.quiet {
                say::note(text);
            }
        };
        Some(Server::find(&args.server, IfAbsent::Create, &notice)?)
    };
    let progress = Arc::new(Progress::new());
    let display = Display::start(&progress, args.quiet);
    let notices = display.notices();
    stop_on_signals(&progress, notices.clone())?;
    let notice = |text: &str| {
        if !args.quiet {
            notices.show(text);
        }
    };
    let finished = match &server {
        None => inrush_load::dry_run(&options, Arc::clone(&progress)),
        Some(server) => inrush_load::run(&options, &server.conninfo, &progress, &notice),
    };
    display.finish();
    let Finished { report: result, error } = finished.map_err(with_way_on)?;
    let text_wanted = !reports.iter().any(ReportFile::is_stdout);
    // One that cannot be written does not keep the others from being written.
    let written =
        reports.iter_mut().map(|report| report.write(&result, || result.html())).fold(Ok(()), Result::and);
    if !args.quiet && text_wanted {
        say::out(&result.text())?;
        if server.is_some_and(|server| server.embedded) && is_there(&result) {
            let look = ["inrush", "local", "psql", "-c", &format!("TABLE {} LIMIT 10", result.table)];
            say::out(&format!("look at it with: {}\n", shell_words(&look)))?;
        }
    }
    if let Some(error) = error {
        say::error(&with_way_on(error));
    }
    written?;
    Ok(result.outcome.exit_code())
}

/// Whether there is something to look at.
fn is_there(report: &Report) -> bool {
    match report.outcome {
        Outcome::Loaded | Outcome::LoadedWithRejects | Outcome::AlreadyLoaded => true,
        Outcome::Interrupted | Outcome::Failed => report.totals.rows + report.totals.rows_before > 0,
        #[allow(unreachable_patterns)] // outcomes may be added
        _ => false,
    }
}

/// A stopped load says how to go on, also where the library did not.
fn with_way_on(error: Error) -> Error {
    if error.code() == Code::Interrupted && error.hint_text().is_none() {
        return error.hint(WAY_ON);
    }
    error
}

const WAY_ON: &str = "What was committed stays. Give the same command again to load the rest.";

/// Ctrl-C once: finish the units in flight. Twice: stop at once.
fn stop_on_signals(progress: &Arc<Progress>, notices: Notices) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Error::new(Code::Internal, format!("cannot listen for signals: {e}")))?;
    let progress = Arc::clone(progress);
    std::thread::spawn(move || {
        for (i, _) in signals.forever().enumerate() {
            if i == 0 {
                notices.show("stopping: the units in flight are finished first; once more stops at once");
                progress.stop(Stop::Drain);
            } else {
                progress.stop(Stop::Abort);
                // Whatever still waits for the server must not keep the user waiting: nothing that was not
                // committed is in the table, and the ledger says what was.
                std::thread::sleep(std::time::Duration::from_secs(1));
                notices.show(&format!("stopped at once\nhint: {WAY_ON}"));
                std::process::exit(2);
            }
        }
    });
    Ok(())
}
