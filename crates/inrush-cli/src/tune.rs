//! `inrush tune io`: what storage gives at depth, and the settings of scans that fit it.

mod text;

use crate::args::{LedgerArgs, TuneCommand, TuneIoArgs};
use crate::loads::to;
use crate::report_file::ReportFile;
use crate::say;
use crate::server::{IfAbsent, Server};
use crate::words::{option, shell_words};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::ledger::Ledger;
use inrush_tune::advise::apply::{Change, Outcome, Undone};
use inrush_tune::advise::facts;
use inrush_tune::io::keep::Store;
use inrush_tune::io::probe::Progress;
use inrush_tune::io::run::{self, Connection, Request};
use inrush_tune::io::{Advice, Report, apply};
use serde_json::json;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub fn run(command: TuneCommand) -> Result<ExitCode> {
    let TuneCommand::Io(args) = command;
    if let Some(path) = args.path.as_deref().filter(|_| alone(&args)) {
        return directory(&args, path);
    }
    let Server { conninfo, .. } = Server::find(&args.ledger.server, IfAbsent::Refuse, &say::note)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
    })?;
    runtime.block_on(async {
        let mut connection = connect(&conninfo, "inrush tune").await?;
        if args.undo {
            undo(&args, &mut connection).await
        } else {
            server(&args, &conninfo, &mut connection).await
        }
    })
}

/// Whether a directory is to be measured without a server.
fn alone(args: &TuneIoArgs) -> bool {
    args.ledger.server.to.is_none() && args.tablespace.is_empty() && !args.apply
}

fn request(args: &TuneIoArgs) -> Request {
    Request {
        tablespaces: args.tablespace.clone(),
        path: args.path.clone(),
        table: args.table.clone(),
        seconds: f64::from(args.seconds),
        verify: args.verify,
        store: Store::of(&|name| std::env::var(name).ok()),
    }
}

fn directory(args: &TuneIoArgs, path: &Path) -> Result<ExitCode> {
    let mut reports = args.report.iter().map(|path| ReportFile::open(path)).collect::<Result<Vec<_>>>()?;
    let ended = ended()?;
    let display = Display::new();
    let report = run::directory(&request(args), path, &ended, &mut |progress| display.show(&progress));
    display.finish();
    let report = report?;
    write(args, &mut reports, &report, None)?;
    Ok(code(&report, &ended))
}

async fn server(args: &TuneIoArgs, conninfo: &ConnInfo, connected: &mut Connected) -> Result<ExitCode> {
    let mut reports = args.report.iter().map(|path| ReportFile::open(path)).collect::<Result<Vec<_>>>()?;
    let facts = facts::read(&connected.client).await?;
    let ended = ended()?;
    let display = Display::new();
    let connection = Connection { client: &mut connected.client, conninfo, facts: &facts };
    let report =
        run::server(&request(args), connection, &ended, &mut |progress| display.show(&progress)).await;
    display.finish();
    let report = report?;
    let applied = if args.apply && !ended.load(Relaxed) {
        Some(applied(args, connected, &facts, &report).await?)
    } else {
        None
    };
    write(args, &mut reports, &report, applied.as_ref())?;
    if let Some(applied) = &applied {
        applied.judge(args)?;
    }
    Ok(code(&report, &ended))
}

/// What `--apply` has done, and what it could not.
struct Applied {
    changes: Vec<Change>,
    /// Advice that --apply follows, and could not here; with the lines for who can.
    not_applied: Vec<Advice>,
    /// Why not.
    why: Option<String>,
    role: String,
}

async fn applied(
    args: &TuneIoArgs,
    connected: &mut Connected,
    facts: &facts::ServerFacts,
    report: &Report,
) -> Result<Applied> {
    let advice: Vec<&Advice> = report.targets.iter().flat_map(|target| &target.advice).collect();
    let mut wanted = apply::applicable(advice.iter().copied());
    let why = apply::check(facts, &wanted).err();
    if why.is_some() {
        // Options of tablespaces need none of what the settings of a server do, unless nothing can be recorded.
        wanted.retain(|one| {
            !facts.standby && matches!(one.place, inrush_tune::io::advice::Place::Tablespace { .. })
        });
    }
    let mut changes = Vec::new();
    if !wanted.is_empty() {
        let client = &mut connected.client;
        let ledger = Ledger::open(client, &args.ledger.ledger, true)
            .await?
            .ok_or_else(|| Error::new(Code::Internal, "the ledger is missing although it was to be made"))?;
        changes = apply::apply(client, &ledger, &wanted).await?;
    }
    let not_applied =
        advice.into_iter().filter(|one| one.applied && !wanted.contains(one)).cloned().collect();
    Ok(Applied {
        changes,
        not_applied,
        why: why.map(|error| error.fact().to_owned()),
        role: facts.role.clone(),
    })
}

impl Applied {
    /// An error if something that was to be set is not in effect.
    fn judge(&self, args: &TuneIoArgs) -> Result<()> {
        let overruled: Vec<&Change> =
            self.changes.iter().filter(|change| change.overruled.is_some()).collect();
        if let Some(why) = overruled.first().and_then(|change| change.overruled.clone()) {
            let names: Vec<&str> = overruled.iter().map(|change| change.setting.as_str()).collect();
            return Err(Error::new(
                Code::Server,
                format!("set and not in effect: {} ({why})", names.join(", ")),
            )
            .hint(format!("`{}` takes it back.", again("--undo", &args.ledger))));
        }
        if self.not_applied.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.not_applied.iter().map(|one| one.setting).collect();
        let fact = match &self.why {
            Some(why) => why.clone(),
            None => format!("role {} may not set {}", self.role, names.join(", ")),
        };
        let lines: Vec<&str> =
            self.not_applied.iter().flat_map(|one| &one.lines).map(String::as_str).collect();
        Err(Error::new(Code::Server, fact).hint(format!("Who may, can give: {}", lines.join(" "))))
    }
}

async fn undo(args: &TuneIoArgs, connected: &mut Connected) -> Result<ExitCode> {
    let facts = facts::read(&connected.client).await?;
    let client = &mut connected.client;
    let undone = match Ledger::open(client, &args.ledger.ledger, false).await? {
        Some(ledger) => apply::undo(client, &ledger, &facts).await?,
        None => Vec::new(),
    };
    if args.json {
        say::json(&json!({ "version": inrush_tune::io::report::VERSION, "undone": undone }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out: String = undone.iter().map(undone_line).collect();
    if undone.is_empty() {
        out += "nothing to take back: nothing that was applied from here is recorded\n";
    }
    say::out(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn undone_line(undone: &Undone) -> String {
    let Undone { setting, value, previous, outcome, now } = undone;
    let entry = |entry: &Option<String>| entry.clone().unwrap_or_else(|| "nothing".to_owned());
    match outcome {
        Outcome::Restored => format!("{setting}: {value} taken back, now {now}\n"),
        Outcome::AsBefore => format!("{setting}: nothing to take back, now {now}\n"),
        Outcome::ChangedSince { found } => format!(
            "{setting}: left alone, somebody has changed it since: there was {}, it was given {value}, and there is {} \
             now\n",
            entry(previous),
            entry(found)
        ),
    }
}

/// The report to where it is wanted: standard output as text or JSON, and files.
fn write(
    args: &TuneIoArgs,
    reports: &mut [ReportFile<'_>],
    report: &Report,
    applied: Option<&Applied>,
) -> Result<()> {
    // One that cannot be written does not keep the others from being written.
    let written =
        reports.iter_mut().map(|file| file.write(report, || report.html())).fold(Ok(()), Result::and);
    if args.json {
        match applied {
            Some(Applied { changes, not_applied, .. }) => {
                let mut all = serde_json::to_value(report).map_err(|e| {
                    Error::new(Code::Internal, format!("what is to be printed has no JSON form: {e}"))
                })?;
                all["applied"] = json!(changes);
                all["not_applied"] = json!(not_applied);
                say::json(&all)?;
            }
            None => say::json(report)?,
        }
    } else if !reports.iter().any(ReportFile::is_stdout) {
        let mut out = text::report(report, &again("--apply", &args.ledger), args.apply);
        if let Some(applied) = applied {
            out += &text::applied(
                &applied.changes,
                &again("--undo", &args.ledger),
                &again("--verify", &args.ledger),
            );
        }
        say::out(&out)?;
    }
    written
}

/// 2 where nothing could be told.
fn code(report: &Report, ended: &AtomicBool) -> ExitCode {
    let told =
        report.targets.iter().any(|target| target.verdict.refused.is_none() || !target.advice.is_empty());
    if told && !ended.load(Relaxed) { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

/// Set by Ctrl-C and SIGTERM; the second one ends the process. The scratch file has no name: nothing is left.
fn ended() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&ended))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&ended)))
            .map_err(|e| Error::new(Code::Internal, format!("cannot listen for signals: {e}")))?;
    }
    Ok(ended)
}

/// The same command with another option.
fn again(what: &str, args: &LedgerArgs) -> String {
    let mut words = vec!["inrush".to_owned(), "tune".to_owned(), "io".to_owned(), what.to_owned()];
    words.extend(to(args));
    if args.ledger != Ledger::DEFAULT_SCHEMA {
        words.extend(option("ledger", &args.ledger));
    }
    shell_words(&words)
}

/// A bar on a terminal, and nothing elsewhere: a measurement takes a minute at most.
struct Display {
    bar: Option<ProgressBar>,
}

impl Display {
    fn new() -> Display {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(
                ProgressStyle::with_template("{percent:>3}% {bar:30} {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Display { bar }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of 1000
    fn show(&self, progress: &Progress) {
        if let Some(bar) = &self.bar {
            bar.set_position((progress.done.clamp(0.0, 1.0) * 1000.0) as u64);
            bar.set_message(progress.text.clone());
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
