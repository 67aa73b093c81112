//! `inrush tune`

use super::LedgerArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Measure the storage of a server, and set what that means for its scans
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct TuneArgs {
    #[command(subcommand)]
    pub command: TuneCommand,
}

#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    Io(Box<TuneIoArgs>),
}

/// Measure what the storage gives at depth, and say which settings of scans fit it
///
/// Measures each tablespace with a scratch file that has no name and so is gone whatever happens: random reads at
/// depth 1 to 128, reads from front to back, and pages read ahead as bitmap heap scans read them. At most 512 MB of
/// scratch and 1 % of what is free, 60 seconds and 2 GB of reads; it stops when live queries suffer. Says what kind of
/// storage it is, and what that means for effective_io_concurrency, maintenance_io_concurrency, io_workers, io_method,
/// random_page_cost and the device's read-ahead. Nothing is changed without --apply.
///
/// It is to run on the server's machine, as its account (`sudo -u postgres inrush tune io --to dbname=postgres`), or as anybody with --path
/// to a directory on the same file system; never as root of necessity. From another machine the server's own scans are
/// measured, on a table that is large and cold enough, or it says that it cannot tell.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  inrush tune io                       every tablespace, and what to set
  inrush tune io --apply               set it where it holds: tablespace options, io_workers
  inrush tune io --verify              measure again, beside what was measured last
  inrush tune io --undo                put back what was there before --apply
  inrush tune io --path /mnt/volume    a directory, without asking a server

An option of a tablespace masks what sessions SET.")]
pub struct TuneIoArgs {
    /// Only this tablespace; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    pub tablespace: Vec<String>,

    /// Measure in this directory instead: one on the tablespace's file system. Without --to and --tablespace no server
    /// is asked
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,

    /// The table to read from where only the server can be asked: large, with a btree index on an integer, and not
    /// read for long [default: the largest that is fit]
    #[arg(long, value_name = "TABLE", conflicts_with = "path")]
    pub table: Option<String>,

    /// Seconds a measurement may take
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=60))]
    pub seconds: u32,

    /// Set what is advised where it holds; what was there before is recorded
    #[arg(long, conflicts_with_all = ["undo", "verify"])]
    pub apply: bool,

    /// Measure again and show it beside what was measured last
    #[arg(long, conflicts_with = "undo")]
    pub verify: bool,

    /// Take back what --apply has set, unless somebody has changed it since; nothing is measured
    #[arg(long, conflicts_with_all = ["path", "table", "report", "tablespace"])]
    pub undo: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write the report as JSON to this file, or as a page if its name ends in .html; may be repeated
    #[arg(long, value_name = "FILE")]
    pub report: Vec<PathBuf>,

    #[command(flatten)]
    pub ledger: LedgerArgs,
}
