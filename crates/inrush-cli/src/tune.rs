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
use inrush_tune::advise::{ServerFacts, facts};
use inrush_tune::io::advice::Place;
use inrush_tune::io::apply::Undoing;
use inrush_tune::io::keep::Store;
use inrush_tune::io::probe::Progress;
use inrush_tune::io::report::Applied;
use inrush_tune::io::run::{self, Connection, Request};
use inrush_tune::io::server::prepare;
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
        let mut connection = open(&conninfo).await?;
        if args.undo {
            undo(&args, &mut connection).await
        } else {
            server(&args, &conninfo, &mut connection).await
        }
    })
}

/// A session for a command that may take a minute.
async fn open(conninfo: &ConnInfo) -> Result<Connected> {
    let connected = connect(conninfo, "inrush tune").await?;
    prepare(&connected.client).await?;
    Ok(connected)
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
    write(args, &mut reports, &report)?;
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
    let mut report = report?;
    let mut failed = None;
    if args.apply && !ended.load(Relaxed) {
        let (applied, error) = applied(args, conninfo, connected, &facts, &report).await;
        report.applied = Some(applied);
        failed = error;
    }
    // What was measured is shown, whatever became of what was to be set.
    write(args, &mut reports, &report)?;
    failed.map_or_else(|| Ok(code(&report, &ended)), Err)
}

/// Sets what is advised; what came of it, and an error where something that was to be set is not in effect.
async fn applied(
    args: &TuneIoArgs,
    conninfo: &ConnInfo,
    connected: &mut Connected,
    facts: &ServerFacts,
    report: &Report,
) -> (Applied, Option<Error>) {
    let wanted: Vec<&Advice> =
        report.targets.iter().flat_map(|target| &target.advice).filter(|one| one.applied).collect();
    let mut may = apply::applicable(wanted.iter().copied());
    let mut error = apply::check(facts, &may).err();
    if error.is_some() {
        // Options of tablespaces need none of the rights that settings of the server do.
        may.retain(|one| matches!(one.place, Place::Tablespace { .. }));
        if apply::check(facts, &may).is_err() {
            may.clear();
        }
    }
    let changes = match set(args, conninfo, connected, &may).await {
        Ok(changes) => changes,
        Err(refused) => {
            may.clear();
            error = Some(refused);
            Vec::new()
        }
    };
    let not_applied: Vec<Advice> = wanted.into_iter().filter(|one| !may.contains(one)).cloned().collect();
    let why = error.as_ref().map(|error| error.fact().to_owned());
    let applied = Applied { changes, not_applied, why };
    let failed = not_in_effect(args, &applied, facts, error.as_ref());
    (applied, failed)
}

async fn set(
    args: &TuneIoArgs,
    conninfo: &ConnInfo,
    connected: &mut Connected,
    advice: &[&Advice],
) -> Result<Vec<Change>> {
    if advice.is_empty() {
        return Ok(Vec::new());
    }
    if connected.client.is_closed() {
        *connected = open(conninfo).await?;
    }
    let client = &mut connected.client;
    let ledger = Ledger::open(client, &args.ledger.ledger, true)
        .await?
        .ok_or_else(|| Error::new(Code::Internal, "the ledger is missing although it was to be made"))?;
    apply::apply(client, &ledger, advice).await
}

fn not_in_effect(
    args: &TuneIoArgs,
    applied: &Applied,
    facts: &ServerFacts,
    error: Option<&Error>,
) -> Option<Error> {
    let overruled: Vec<&Change> =
        applied.changes.iter().filter(|change| change.overruled.is_some()).collect();
    if let Some(why) = overruled.first().and_then(|change| change.overruled.clone()) {
        let names: Vec<&str> = overruled.iter().map(|change| change.setting.as_str()).collect();
        let fact = format!("set and not in effect: {} ({why})", names.join(", "));
        let hint = format!("`{}` takes it back.", again("--undo", &args.ledger));
        return Some(Error::new(Code::Server, fact).hint(hint));
    }
    if applied.not_applied.is_empty() {
        return None;
    }
    let names: Vec<&str> = applied.not_applied.iter().map(|one| one.setting).collect();
    let fact = match error {
        Some(error) => error.fact().to_owned(),
        None => match applied.not_applied.iter().find_map(|one| one.obstacle.as_ref().filter(|_| one.may)) {
            Some(obstacle) => format!("not set: {}: {obstacle}", names.join(", ")),
            None => format!("role {} may not set {}", facts.role, names.join(", ")),
        },
    };
    let lines: Vec<&str> =
        applied.not_applied.iter().flat_map(|one| &one.lines).map(String::as_str).collect();
    Some(Error::new(Code::Server, fact).hint(format!("Who may, can give: {}", lines.join(" "))))
}

async fn undo(args: &TuneIoArgs, connected: &mut Connected) -> Result<ExitCode> {
    let facts = facts::read(&connected.client).await?;
    let client = &mut connected.client;
    let Undoing { undone, left } = match Ledger::open(client, &args.ledger.ledger, false).await? {
        Some(ledger) => apply::undo(client, &ledger, &facts).await?,
        None => Undoing { undone: Vec::new(), left: None },
    };
    if args.json {
        say::json(&json!({ "version": inrush_tune::io::report::VERSION, "undone": undone }))?;
    } else {
        let mut out: String = undone.iter().map(undone_line).collect();
        if undone.is_empty() && left.is_none() {
            out += "nothing to take back: nothing that was applied from here is recorded\n";
        }
        say::out(&say::printable_lines(&out))?;
    }
    left.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn undone_line(undone: &Undone) -> String {
    let Undone { setting, value, previous, outcome, now } = undone;
    let entry = |entry: &Option<String>| entry.clone().unwrap_or_else(|| "nothing".to_owned());
    match outcome {
        Outcome::Restored => format!("{setting}: {value} taken back, now {now}\n"),
        Outcome::AsBefore => format!("{setting}: nothing to take back, now {now}\n"),
        Outcome::Gone => format!("{setting}: nothing to take back, the tablespace is gone\n"),
        Outcome::ChangedSince { found } => format!(
            "{setting}: left alone, somebody has changed it since: there was {}, it was given {value}, and there is {} \
             now\n",
            entry(previous),
            entry(found)
        ),
    }
}

/// The report to where it is wanted: standard output as text or JSON, and files.
fn write(args: &TuneIoArgs, reports: &mut [ReportFile<'_>], report: &Report) -> Result<()> {
    // One that cannot be written does not keep the others from being written.
    let written =
        reports.iter_mut().map(|file| file.write(report, || report.html())).fold(Ok(()), Result::and);
    if args.json {
        say::json(report)?;
    } else if !reports.iter().any(ReportFile::is_stdout) {
        let mut out = text::report(report, &again("--apply", &args.ledger), args.apply);
        if let Some(applied) = &report.applied {
            let (undo, verify) = (again("--undo", &args.ledger), again("--verify", &args.ledger));
            out += &text::applied(&applied.changes, &undo, &verify);
        }
        say::out(&say::printable_lines(&out))?;
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
