//! The `inrush` command.
//!
//! Thin: reads arguments, calls the libraries, draws. Results go to stdout, everything else to stderr.
//! Exit codes: 0 done, 1 loaded with rejects, 2 failed.

mod args;
mod bench;
mod load;
mod progress;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    let result = match cli.command {
        args::Command::Load(args) => load::run(*args),
        args::Command::Bench(args) => bench::run(*args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
