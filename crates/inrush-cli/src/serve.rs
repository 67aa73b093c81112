//! `inrush serve`

use crate::args::{LogForm, ServeArgs};
use crate::say;
use inrush_core::{Code, Error, Result};
use inrush_serve::config::{Config, EXAMPLE};
use inrush_serve::{Stopped, Switch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::process::ExitCode;

/// Serves, checks or prints the example.
pub fn run(args: &ServeArgs) -> Result<ExitCode> {
    let path = match (&args.config, args.example) {
        (Some(path), false) => path,
        _ => {
            say::out(EXAMPLE)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let config = read(path)?;
    if args.check {
        for line in inrush_serve::check(&config)? {
            say::out(&format!("{line}\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    log(args.log, args.verbose);
    let switch = Switch::new();
    on_signals(&switch, path)?;
    let stopped = inrush_serve::run(&config, &switch)?;
    tracing::info!(rows = stopped.rows, rejects = stopped.rejects, "stopped");
    Ok(exit_code(&stopped))
}

/// 0: all is stored; 1: but for refused rows; 2: something was given up.
pub fn exit_code(stopped: &Stopped) -> ExitCode {
    match (stopped.aborted, stopped.rejects) {
        (true, _) => ExitCode::from(2),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::from(1),
    }
}

/// Reads a configuration, with the environment in it.
pub fn read(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(Code::Usage, format!("cannot read the configuration {}: {e}", path.display()))
            .hint("`inrush serve --example` prints one to begin with.")
    })?;
    Config::parse(&text, &|name| std::env::var(name).ok())
}

/// Has everything logged to standard error from here on.
pub fn log(form: LogForm, verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::INFO,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let lines =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_target(false);
    // Nobody else sets it.
    let _ = match form {
        LogForm::Text => {
            let colour = say::on_stderr();
            tracing::subscriber::set_global_default(lines.with_ansi(colour).finish())
        }
        LogForm::Json => tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish()),
    };
}

/// The first signal to stop lets everything be stored; the second waits for nothing.
pub fn on_signals(switch: &Switch, path: &Path) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Error::new(Code::Internal, format!("cannot listen for signals: {e}")))?;
    let switch = switch.clone();
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => match read(&path) {
                    Ok(config) => switch.reload(config),
                    Err(error) => {
                        tracing::error!(error = error.fact(), "the configuration was not read again");
                    }
                },
                _ if stopping => switch.abort(),
                _ => {
                    stopping = true;
                    switch.stop();
                }
            }
        }
    });
    Ok(())
}
