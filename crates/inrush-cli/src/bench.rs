//! `inrush bench`

use crate::args::{BenchArgs, BenchCommand, DataArgs, DataFormat};
use inrush_bench::{Case, Form, Options, render};
use inrush_core::{Code, Error, Result};
use std::process::ExitCode;

pub fn run(args: BenchArgs) -> Result<ExitCode> {
    match args.command {
        Some(BenchCommand::Data(args)) => return write(&args),
        Some(BenchCommand::List) => {
            for name in Case::names() {
                println!("{}", render::line(&Case::find(name)?));
            }
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let Some(name) = &args.case else {
        return Err(Error::new(Code::Usage, "no case is named").hint("`inrush bench list` shows the cases."));
    };
    let case = Case::find(name)?;
    let inrush = std::env::current_exe()
        .map_err(|e| Error::new(Code::Internal, format!("cannot find this program: {e}")))?;
    // What is kept may be published: a DSN may hold a password.
    let words =
        std::env::args().map(|word| args.server.iter().fold(word, |word, dsn| word.replace(dsn, "DSN")));
    let command = words.collect::<Vec<_>>().join(" ");
    let options = Options {
        rows: args.rows,
        runs: args.runs,
        servers: args.server,
        versions: args.versions,
        only: args.only,
        inrush,
        command,
    };
    let record = inrush_bench::run(case, &options, &|line| eprintln!("{line}"))?;
    print!("{}", render::text(&record));
    if !args.no_keep {
        let path = inrush_bench::keep(&record, &args.out)?;
        println!("\nkept in {}", path.display());
    }
    let failed = record.runs.iter().any(|run| run.failure.is_some());
    Ok(ExitCode::from(if failed { 2 } else { 0 }))
}

fn write(args: &DataArgs) -> Result<ExitCode> {
    let case = Case::find(&args.case)?;
    let form = match (args.format, args.header) {
        (DataFormat::Csv, false) => Form::Csv,
        (DataFormat::Csv, true) => Form::CsvHeader,
        (DataFormat::Text, false) => Form::Text,
        (DataFormat::Text, true) => {
            return Err(Error::new(Code::Clash, "--header and --format text exclude each other"));
        }
    };
    let rows = args.rows.unwrap_or(case.rows);
    let bytes = inrush_bench::write_data(&case, form, rows, &args.file)?;
    eprintln!("{rows} rows, {bytes} bytes in {}", args.file.display());
    Ok(ExitCode::SUCCESS)
}
