//! `inrush bench`

use crate::args::{BenchArgs, BenchCommand, DataArgs, DataFormat};
use inrush_bench::{Case, Form, Options, c3, c4, c5, render};
use inrush_core::{Code, Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Of each contender.
const RUNS: u32 = 5;

pub fn run(args: BenchArgs) -> Result<ExitCode> {
    match args.command {
        Some(BenchCommand::Data(args)) => return write(&args),
        Some(BenchCommand::List) => {
            for name in Case::names() {
                println!("{}", render::line(&Case::find(name)?));
            }
            let stream = c3::Case::built_in()?;
            println!("{:<4} {} rungs: {}", stream.name, stream.rungs.len(), stream.about);
            let cluster = c4::Case::built_in()?;
            println!("{:<4} {} rungs: {}", cluster.name, cluster.rungs.len(), cluster.about);
            let scans = c5::Case::built_in()?;
            println!("{:<4} {} rungs: {}", scans.name, scans.rungs.len(), scans.about);
            return Ok(ExitCode::SUCCESS);
        }
        Some(BenchCommand::Pages(args)) => {
            inrush_bench::pages(&args.dir)?;
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let Some(name) = &args.case else {
        return Err(Error::new(Code::Usage, "no case is named").hint("`inrush bench list` shows the cases."));
    };
    if let Some(case) = c4::Case::find(name)? {
        return cluster(case, args);
    }
    if args.to.is_some() || !args.node.is_empty() || args.threads.is_some() {
        return Err(Error::new(Code::Clash, "--to, --node and --threads are for c4 only")
            .hint("--server names a server for c1 and c2."));
    }
    if let Some(case) = c3::Case::find(name)? {
        return stream(case, args);
    }
    if let Some(case) = c5::Case::find(name)? {
        return scans(case, args);
    }
    if args.seconds.is_some() || args.minutes.is_some() {
        return Err(Error::new(Code::Clash, "--seconds is for c3 and c4 only, --minutes for c3"));
    }
    let case = Case::find(name)?;
    let inrush = this_program()?;
    let command = without(&args.server);
    let options = Options {
        rows: args.rows,
        runs: args.runs.unwrap_or(RUNS),
        servers: args.server,
        versions: args.versions,
        rungs: args.rung,
        only: args.only,
        inrush,
        command,
    };
    let record = inrush_bench::run(case, &options, &|line| eprintln!("{line}"))?;
    print!("{}", render::text(&record));
    if !args.no_keep {
        let path = inrush_bench::keep(&record, &args.out)?;
        println!("\nkept in {}, with plots in {}", path.display(), path.with_extension("html").display());
    }
    let failed = record.ended_early.is_some() || record.runs.iter().any(|run| run.failure.is_some());
    Ok(ExitCode::from(if failed { 2 } else { 0 }))
}

/// Case C3.
fn stream(case: c3::Case, args: BenchArgs) -> Result<ExitCode> {
    if !args.server.is_empty() || args.rows.is_some() {
        return Err(Error::new(Code::Clash, "--server and --rows are not for c3")
            .hint("It starts servers of its own; --seconds says how long a run is."));
    }
    let options = c3::Options {
        runs: args.runs.unwrap_or(RUNS),
        seconds: f64::from(args.seconds.unwrap_or(20)),
        minutes: args.minutes.map(f64::from),
        versions: args.versions,
        rungs: args.rung,
        only: args.only,
        inrush: this_program()?,
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    let record = c3::run(case, &options, &|line| eprintln!("{line}"))?;
    print!("{}", c3::text(&record));
    if !args.no_keep {
        println!("\nkept in {}", c3::keep(&record, &args.out)?.display());
    }
    let failed = record.ended_early.is_some() || record.turns.iter().any(|turn| turn.failure.is_some());
    Ok(ExitCode::from(if failed { 2 } else { 0 }))
}

/// Case C4.
fn cluster(case: c4::Case, args: BenchArgs) -> Result<ExitCode> {
    if !args.server.is_empty() || !args.versions.is_empty() || args.minutes.is_some() {
        return Err(Error::new(Code::Clash, "--server, --versions and --minutes are not for c4")
            .hint("--to names the coordinator of the cluster."));
    }
    let Some(to) = args.to else {
        return Err(Error::new(Code::Usage, "no cluster is named").hint(
            "--to DSN names the coordinator: one of Citus, or a server with foreign servers of postgres_fdw.",
        ));
    };
    let options = c4::Options {
        command: without(std::slice::from_ref(&to)),
        to,
        nodes: args.node,
        runs: args.runs,
        seconds: args.seconds.map(f64::from),
        threads: args.threads,
        rows: args.rows,
        rungs: args.rung,
        only: args.only,
        inrush: this_program()?,
    };
    let record = c4::run(case, &options, &|line| eprintln!("{line}"))?;
    print!("{}", c4::text(&record));
    if !args.no_keep {
        println!("\nkept in {}", c4::keep(&record, &args.out)?.display());
    }
    let failed = record.ended_early.is_some() || record.turns.iter().any(|turn| turn.failure.is_some());
    Ok(ExitCode::from(if failed { 2 } else { 0 }))
}

/// Case C5.
fn scans(case: c5::Case, args: BenchArgs) -> Result<ExitCode> {
    if !args.server.is_empty() || args.seconds.is_some() || args.minutes.is_some() {
        return Err(Error::new(Code::Clash, "--server, --seconds and --minutes are not for c5")
            .hint("It starts servers of its own; --rows says how large the tables are."));
    }
    let options = c5::Options {
        runs: args.runs,
        rows: args.rows,
        versions: args.versions,
        rungs: args.rung,
        only: args.only,
        inrush: this_program()?,
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    let record = c5::run(case, &options, &|line| eprintln!("{line}"))?;
    print!("{}", c5::text(&record));
    if !args.no_keep {
        println!("\nkept in {}", c5::keep(&record, &args.out)?.display());
    }
    let failed = record.ended_early.is_some() || record.turns.iter().any(|turn| turn.failure.is_some());
    Ok(ExitCode::from(if failed { 2 } else { 0 }))
}

/// The command line without connection strings: what is kept may be published, and they may hold a password.
fn without(dsns: &[String]) -> String {
    let words =
        std::env::args().map(|word| dsns.iter().fold(word, |word, dsn| word.replace(dsn.as_str(), "DSN")));
    words.collect::<Vec<_>>().join(" ")
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| Error::new(Code::Internal, format!("cannot find this program: {e}")))
}

fn write(args: &DataArgs) -> Result<ExitCode> {
    let case = Case::find(&args.case)?;
    let form = match (args.format, args.header) {
        (DataFormat::Csv, false) => Form::Csv,
        (DataFormat::Csv, true) => Form::CsvHeader,
        (DataFormat::Text, false) => Form::Text,
        (DataFormat::Insert1, false) => Form::Insert(1),
        (DataFormat::Insert100, false) => Form::Insert(100),
        (DataFormat::Insert1000, false) => Form::Insert(1000),
        (_, true) => {
            return Err(Error::new(Code::Clash, "--header is for --format csv only"));
        }
    };
    let rows = args.rows.unwrap_or(case.rows);
    let bytes = inrush_bench::write_data(&case, form, rows, &args.file)?;
    eprintln!("{rows} rows, {bytes} bytes in {}", args.file.display());
    Ok(ExitCode::SUCCESS)
}
