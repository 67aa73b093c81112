//! `inrush load`

use crate::args::LoadArgs;
use crate::progress::Display;
use inrush_core::{Code, Error, Result};
use inrush_load::{Progress, Stop};
use inrush_sink::conninfo;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(args: LoadArgs) -> Result<ExitCode> {
    let options = args.options();
    let env = |name: &str| std::env::var(name).ok();
    let conninfo = conninfo::resolve(args.to.as_deref(), &env)?.ok_or_else(|| {
        Error::new(Code::Connect, "no server is named").hint("Name one with --to DSN or DATABASE_URL.")
    })?;
    let progress = Arc::new(Progress::new());
    stop_on_signals(&progress)?;
    let display = Display::start(&progress, args.quiet);
    let notice = |text: &str| display.notice(text);
    let finished = inrush_load::run(&options, &conninfo, Arc::clone(&progress), &notice);
    display.finish();
    let finished = finished?;
    if let Some(path) = &args.report {
        let json = serde_json::to_string_pretty(&finished.report)
            .map_err(|e| Error::new(Code::Internal, format!("the report is not JSON: {e}")))?;
        std::fs::write(path, json + "\n")
            .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", path.display())))?;
    }
    if !args.quiet {
        print!("{}", finished.report.text());
    }
    if let Some(error) = finished.error {
        eprintln!("{error}");
    }
    Ok(ExitCode::from(finished.report.outcome.exit_code()))
}

/// Ctrl-C once: finish the units in flight. Twice: stop at once.
fn stop_on_signals(progress: &Arc<Progress>) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Error::new(Code::Internal, format!("cannot listen for signals: {e}")))?;
    let progress = Arc::clone(progress);
    std::thread::spawn(move || {
        for (i, _) in signals.forever().enumerate() {
            if i == 0 {
                eprintln!("stopping: the units in flight are finished first; once more stops at once");
                progress.stop(Stop::Drain);
            } else {
                progress.stop(Stop::Abort);
                // Whatever still waits for the server must not keep the user waiting: nothing that was not
                // committed is in the table, and the ledger says what was.
                std::thread::sleep(std::time::Duration::from_secs(1));
                std::process::exit(2);
            }
        }
    });
    Ok(())
}
