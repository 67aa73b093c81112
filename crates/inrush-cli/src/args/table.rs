//! `inrush table`

use super::{LedgerArgs, values};
use clap::{Args, Subcommand, ValueEnum};
use inrush_windows::{IndexKind, Late, Span, Unit};
use std::path::PathBuf;

/// Time-windowed tables: create, list, show, maintain
///
/// A windowed table is an ordinary table, partitioned by range of time. Its windows are made ahead of time, their BRIN
/// indexes are summarized behind the rows, and windows go by age or for want of room, without a lock that writers wait
/// for.
#[derive(Debug, Args)]
pub struct TableArgs {
    #[command(subcommand)]
    pub command: TableCommand,
}

#[derive(Debug, Subcommand)]
pub enum TableCommand {
    Create(Box<CreateArgs>),
    /// List the windowed tables
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        ledger: LedgerArgs,
    },
    /// Show one table: what was decided, its windows, and up to when each source is complete
    Show {
        /// The table
        #[arg(value_name = "NAME")]
        name: String,

        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        ledger: LedgerArgs,
    },
    Maintain(MaintainArgs),
}

/// Create a windowed table
///
/// Parent, index, first window and a view NAME_complete are made in one transaction; the windows ahead follow. Refused
/// where a query over all windows would need more than a quarter of the server's locks; the width of windows that would
/// do is named.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A late row goes to its window as long as that stands, then where --late says. A
retired window never comes back.

Windows are made, summarized and retired by `inrush table maintain`, or by
`inrush serve` while it streams into the table.

The view NAME_complete has a row for each source: the smallest event time that
its lanes have committed. A lane that has committed nothing for --idle does not
count; when all lanes of a source are idle, the largest event time counts.

Examples:
  inrush table create calls 'at timestamptz, n int' --time at --keep 30d
  inrush table create calls --like calls.sql --time at --window 1h --keep 7d \\
      --lanes 8 --key device --tablespaces fast1,fast2 --unlogged
  inrush table create calls --like calls.sql --time at --max-size 500GB")]
pub struct CreateArgs {
    /// The table
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Columns and constraints as in CREATE TABLE, in one argument or several
    #[arg(value_name = "COLUMNS", required_unless_present = "like", conflicts_with = "like")]
    pub columns: Vec<String>,

    /// A file with one CREATE TABLE statement
    #[arg(long, value_name = "FILE")]
    pub like: Option<PathBuf>,

    /// The column of the event time: timestamptz, timestamp, date or bigint
    #[arg(long, value_name = "COLUMN")]
    pub time: String,

    /// What a bigint counts since 1970-01-01 UTC
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<UnitName>,

    /// Length of a window, in UTC: 10m, 1h, 1d [default: what suits --keep]
    #[arg(long, value_name = "LENGTH", value_parser = Span::parse)]
    pub window: Option<Span>,

    /// Retire windows that ended longer ago than this: 12h, 30d
    #[arg(long, value_name = "AGE", value_parser = Span::parse)]
    pub keep: Option<Span>,

    /// Retire the oldest windows of a tablespace above this size: 500GB
    #[arg(long, value_name = "SIZE", value_parser = values::some_bytes)]
    pub max_size: Option<u64>,

    /// Retire the oldest windows of a tablespace when its device has less room; the server is on this machine
    #[arg(long, value_name = "SIZE", value_parser = values::some_bytes)]
    pub min_free: Option<u64>,

    /// Windows made before they begin
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub ahead: u32,

    /// Leaves of each window, chosen by the hash of --key
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub lanes: u32,

    /// The column whose hash chooses the leaf
    #[arg(long, value_name = "COLUMN")]
    pub key: Option<String>,

    /// Tablespaces the leaves go to, in turn
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub tablespaces: Vec<String>,

    /// Leaves are unlogged: faster, and empty after a crash of the server
    #[arg(long)]
    pub unlogged: bool,

    /// A BRIN index on the time from the first row on, summarized behind the rows (the default)
    #[arg(long, group = "index")]
    pub brin: bool,

    /// Build the BRIN index of a window when it has ended
    #[arg(long, group = "index")]
    pub brin_at_close: bool,

    /// No index on the time
    #[arg(long, group = "index")]
    pub no_index: bool,

    /// Blocks that one BRIN range sums up
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    pub pages_per_range: u32,

    /// How a column is stored, as info=plain; may be given again
    #[arg(long, value_name = "COLUMN=KIND", value_parser = values::assignment)]
    pub storage: Vec<(String, String)>,

    /// What becomes of a row whose window is gone
    #[arg(long, value_name = "WHAT", default_value = "reject")]
    pub late: LateName,

    /// A lane that commits nothing for so long does not hold its source back
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = Span::parse)]
    pub idle: Span,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub ledger: LedgerArgs,
}

impl CreateArgs {
    /// When leaves get their index.
    pub fn index(&self) -> IndexKind {
        match (self.brin_at_close, self.no_index) {
            (true, _) => IndexKind::BrinAtClose,
            (_, true) => IndexKind::None,
            _ => IndexKind::Brin,
        }
    }
}

/// Make windows, retire, close, summarize; finish what an earlier pass left half done
///
/// Safe at any time and beside others: one works on a table at a time, the others pass it over. A lock that cannot be
/// had is left for the next pass, and told.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  inrush table maintain                  one pass over every windowed table
  inrush table maintain calls --loop 10s")]
pub struct MaintainArgs {
    /// Only these tables
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Again and again, with a pause of this length, until it is interrupted
    #[arg(long = "loop", value_name = "TIME", value_parser = Span::parse)]
    pub again: Option<Span>,

    /// Print a JSON object for each table and pass
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub ledger: LedgerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnitName {
    S,
    Ms,
    Us,
    Ns,
}

impl From<UnitName> for Unit {
    fn from(name: UnitName) -> Unit {
        match name {
            UnitName::S => Unit::Seconds,
            UnitName::Ms => Unit::Millis,
            UnitName::Us => Unit::Micros,
            UnitName::Ns => Unit::Nanos,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LateName {
    /// it is a reject
    Reject,
    /// it goes to the table NAME_late
    Overflow,
    /// it is counted and dropped
    Drop,
}

impl From<LateName> for Late {
    fn from(name: LateName) -> Late {
        match name {
            LateName::Reject => Late::Reject,
            LateName::Overflow => Late::Overflow,
            LateName::Drop => Late::Drop,
        }
    }
}
