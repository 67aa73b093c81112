//! `inrush bench`

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Measure a case against psql and others on this machine.
///
/// Without --server it starts servers of its own, of every version installed, with fsync, full_page_writes and
/// data checksums on. Files and servers are under TMPDIR: let that be on the disk that is meant. c4 runs on the
/// cluster that --to names. c5 has slow storage too, which only root can make.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// c1 (wide rows), c2 (narrow rows), c3 (a stream), c4 (a cluster), c5 (scans), or a case file that ends in .toml
    #[arg(value_name = "CASE")]
    pub case: Option<String>,

    /// Rows instead of the case's; of c5, of its first table, the others in proportion
    #[arg(long, value_name = "N")]
    pub rows: Option<u64>,

    /// Runs of each contender [default: 5; c4: 3; c5: 5, on slow storage 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: Option<u32>,

    /// Seconds of each run (c3, c4) [default: 20; c4: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,

    /// One run of this length instead, with rounds and questions meanwhile (c3): 1440 is a day
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=525_600))]
    pub minutes: Option<u32>,

    /// A server to run against instead of own ones, as psql names it; may be repeated, and their results stand
    /// side by side
    #[arg(long, value_name = "DSN")]
    pub server: Vec<String>,

    /// The coordinator of the cluster to run on, as psql names it (c4): of Citus, or a server with foreign servers
    /// of postgres_fdw and mappings for the role
    #[arg(long, value_name = "DSN", conflicts_with = "server")]
    pub to: Option<String>,

    /// How a node is reached from here, if not as the coordinator does (c4); may be repeated
    #[arg(long, value_name = "HOST:PORT=HOST:PORT")]
    pub node: Vec<String>,

    /// Clients at once that send statements (c4) [default: insert 8, update 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub threads: Option<u32>,

    /// Major versions of the servers to start [default: all installed]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "server")]
    pub versions: Vec<u32>,

    /// Only this rung of the case; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    pub rung: Vec<String>,

    /// Only the baselines and the contenders whose names contain one of these; of c5, only such scans
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Where to keep the run, in a directory DATE-HOST
    #[arg(long, value_name = "DIR", default_value = "bench/runs")]
    pub out: PathBuf,

    /// Show the figures and keep nothing
    #[arg(long)]
    pub no_keep: bool,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Write the file of a case
    Data(DataArgs),
    /// List the cases
    List,
    /// Make the README and the pages of kept runs anew from their JSON files
    Pages(PagesArgs),
}

#[derive(Debug, Args)]
pub struct PagesArgs {
    /// The directory of the runs, as bench/runs/2026-11-21-host
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct DataArgs {
    /// c1 or c2
    #[arg(value_name = "CASE")]
    pub case: String,

    /// Rows instead of the case's
    #[arg(long, value_name = "N")]
    pub rows: Option<u64>,

    /// The form of the file
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "csv")]
    pub format: DataFormat,

    /// The first line names the columns (csv)
    #[arg(long)]
    pub header: bool,

    /// The file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    /// Comma-separated
    Csv,
    /// PostgreSQL's COPY text
    Text,
    /// INSERT statements into inrush_bench.t, one row each
    #[value(name = "insert-1")]
    Insert1,
    /// The same, 100 rows each
    #[value(name = "insert-100")]
    Insert100,
    /// The same, 1000 rows each
    #[value(name = "insert-1000")]
    Insert1000,
}
