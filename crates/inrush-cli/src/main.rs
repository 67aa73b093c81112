//! The `inrush` command.
//!
//! Thin: reads arguments, calls the libraries, draws. Results go to stdout, everything else to stderr.
//! Exit codes: 0 done, 1 loaded with rejects, 2 failed.

mod advise;
mod args;
mod bench;
mod cluster;
mod explain;
mod grid;
mod load;
mod loads;
mod local;
mod progress;
mod recover;
mod reference;
mod report_file;
mod route;
mod say;
mod serve;
mod server;
mod sniff;
mod spill;
mod table;
mod tune;
mod watch;
mod words;

use args::{Cli, Command};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use inrush_core::Result;
use std::process::ExitCode;

fn main() -> ExitCode {
    let parsed = Cli::command()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches).map(|cli| (cli, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        // Help and version are results, too.
        Err(told) if !told.use_stderr() => told.exit(),
        Err(wrong) => {
            say::wrong_command_line(&wrong);
            return ExitCode::from(2);
        }
    };
    match run(cli.command, &matches) {
        Ok(code) => code,
        Err(error) => {
            say::error(&error);
            ExitCode::from(2)
        }
    }
}

fn run(command: Command, matches: &ArgMatches) -> Result<ExitCode> {
    match command {
        Command::Load(args) => load::run(&args, kept(matches)).map(ExitCode::from),
        Command::Sniff(args) => sniff::run(&args),
        Command::Loads(args) => loads::run(args.command),
        Command::Table(args) => table::run(args.command),
        Command::Recover(args) => recover::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Cluster(args) => cluster::run(args.command),
        Command::Advise(args) => advise::run(&args),
        Command::Tune(args) => tune::run(args.command),
        Command::Explain(args) => explain::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Local { command } => local::run(command),
        Command::Serve(args) => serve::run(&args),
        Command::Spill(args) => spill::run(args.command),
        Command::Bench(args) => bench::run(*args),
        Command::Completions { shell } => reference::completions(shell).map(|()| ExitCode::SUCCESS),
        Command::Man { dir } => reference::man(dir.as_deref()).map(|()| ExitCode::SUCCESS),
        Command::Codes { code, markdown } => {
            reference::codes(code.as_deref(), markdown).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// The arguments of `inrush load` for the ledger.
fn kept(matches: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    match (command.find_subcommand("load"), matches.subcommand_matches("load")) {
        (Some(load), Some(matches)) => words::kept_arguments(load, matches),
        _ => Vec::new(),
    }
}
