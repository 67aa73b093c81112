//! `inrush load`

use super::levers::LeverArgs;
use super::{ClusterArgs, ServerArgs, values};
use clap::{Args, ValueEnum};
use inrush_core::Limits;
use inrush_load::{LedgerChoice, MaxRejects, Options, Stated, Via};
use inrush_profile::SamplerOptions;
use inrush_sink::ledger::Ledger;
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 loaded with rejects, 2 failed.";

const EXAMPLES: &str = "\
Examples:
  inrush load trips.csv             into the table trips, made if it is missing
  inrush load 'a-*.csv.gz' -t public.trips --to postgresql://me@db/shop
  ssh there cat a.csv | inrush load - -t trips --load-id monday
  inrush load trips.csv --max-rejects 100 --rejects bad.csv

Exit codes: 0 done, 1 loaded with rejects, 2 failed.";

/// Load files into a table, exactly once
///
/// Each commit unit and the record of what it loaded are one transaction. When anything dies, give the same command
/// again: every row is in the table exactly once. Ctrl-C once finishes the units in flight, twice stops at once.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = EXAMPLES)]
pub struct LoadArgs {
    /// Files, globs, directories, or - for standard input; plain or gzip, zstd, lz4, bzip2, xz
    ///
    /// Compression is told by the content. A directory stands for the files directly in it. A glob in quotes is
    /// expanded here and may match more files than a command line holds.
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// The table, as SQL names it: schema.name [default: the name of the first file]
    ///
    /// A table that does not exist is created with the columns and types that `inrush sniff` shows, unless
    /// --no-create is said.
    #[arg(long, short, value_name = "TABLE")]
    pub table: Option<String>,

    #[command(flatten)]
    pub server: ServerArgs,

    /// Read and decode everything, report it, and need no server
    #[arg(long)]
    pub dry_run: bool,

    /// Write the report as JSON to this file, or as a page if its name ends in .html; may be repeated
    ///
    /// With - JSON goes to standard output in place of the text. The page shows the load over time: throughput, what the
    /// server waited for, and what would help. It is one file that needs no other.
    #[arg(long, value_name = "FILE")]
    pub report: Vec<PathBuf>,

    /// No progress, no report; errors only
    #[arg(long, short)]
    pub quiet: bool,

    #[command(flatten, next_help_heading = "Format")]
    pub format: FormatArgs,

    #[command(flatten, next_help_heading = "Columns")]
    pub columns: ColumnArgs,

    #[command(flatten, next_help_heading = "Bad rows")]
    pub rejects: RejectArgs,

    #[command(flatten, next_help_heading = "Exactly once")]
    pub once: OnceArgs,

    #[command(flatten, next_help_heading = "Levers")]
    pub levers: LeverArgs,

    #[command(flatten, next_help_heading = "Several servers")]
    pub cluster: ClusterArgs,

    #[command(flatten, next_help_heading = "Speed and limits")]
    pub speed: SpeedArgs,
}

#[derive(Debug, Args)]
pub struct FormatArgs {
    /// The format [default: what name and content show]
    ///
    /// What is not stated is found from a sample; `inrush sniff` shows what is found and why.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<FormatName>,

    /// Field separator of csv and text: one byte, \t or \x01
    #[arg(long, value_parser = values::byte, value_name = "BYTE")]
    pub delimiter: Option<u8>,

    /// Quote of csv
    #[arg(long, value_parser = values::byte, value_name = "BYTE")]
    pub quote: Option<u8>,

    /// Escape inside quotes of csv [default: the quote]
    #[arg(long, value_parser = values::byte, value_name = "BYTE")]
    pub escape: Option<u8>,

    /// The first line of every file names the columns
    #[arg(long, overrides_with = "no_header")]
    pub header: bool,

    /// The first line is data
    #[arg(long)]
    pub no_header: bool,

    /// The text that means NULL [default: csv: empty and not quoted; text: \N]
    #[arg(long, value_name = "TEXT")]
    pub null: Option<String>,

    /// Encoding of the files, as PostgreSQL names it [default: UTF8]
    #[arg(long, value_name = "NAME")]
    pub encoding: Option<String>,

    /// Columns in which a quoted NULL text is NULL too
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub force_null: Vec<String>,

    /// Columns in which the NULL text is a value
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub force_not_null: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FormatName {
    /// Comma-separated, as COPY CSV reads it
    Csv,
    /// csv with tabs
    Tsv,
    /// PostgreSQL's COPY text
    Text,
    /// PostgreSQL's COPY binary
    Binary,
    /// One JSON object per line
    Ndjson,
    /// Apache Parquet
    Parquet,
    /// Apache Arrow IPC, file or stream
    Arrow,
}

#[derive(Debug, Args)]
pub struct ColumnArgs {
    /// Columns the fields go to, in order; - leaves a field out; column=field maps by header or key
    ///
    /// id,-,name: the first field goes to id, the second nowhere, the third to name. id=ID,name="Full Name": by the
    /// names in the header or the keys; fields that are not listed are left out. Without this option header or keys
    /// are matched with the columns of the table, or else the fields go to its columns in order.
    #[arg(long, value_parser = values::columns, allow_hyphen_values = true, value_name = "LIST")]
    pub columns: Option<values::Columns>,

    /// The same value for a column of every row; may be repeated
    #[arg(long = "set", value_parser = values::assignment, value_name = "COLUMN=VALUE")]
    pub set: Vec<(String, String)>,

    /// A column that takes the name of the file
    #[arg(long, value_name = "COLUMN")]
    pub filename: Option<String>,

    /// Leave out fields that the table has no column for
    #[arg(long)]
    pub ignore_unknown: bool,

    /// Fail if the table does not exist instead of creating it
    #[arg(long)]
    pub no_create: bool,
}

#[derive(Debug, Args)]
pub struct RejectArgs {
    /// Go on past this many bad rows, or this share of them (2%)
    ///
    /// A share is judged at the end with --atomic, else from 10,000 records on. By default the first bad row stops the
    /// load; what was committed before stays, and the report says so.
    #[arg(long, value_parser = values::max_rejects, value_name = "N|P%", default_value = "0")]
    pub max_rejects: MaxRejects,

    /// Write bad records to FILE, to repair and load again, and why to FILE.jsonl
    ///
    /// Each line of FILE.jsonl has source, line, byte, column, SQLSTATE, reason and the raw record.
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct OnceArgs {
    /// All rows or none, in one transaction on one connection
    ///
    /// A load of at most 16 MiB of plain files is one transaction anyway.
    #[arg(long)]
    pub atomic: bool,

    /// Load again what was loaded before
    ///
    /// Without it the same command says that the rows are there already, and loads nothing.
    #[arg(long, conflicts_with = "resume")]
    pub again: bool,

    /// Go on with a load although its table or file is not what it was
    ///
    /// Loads what the load has not recorded, even if the table was truncated or the file written again since.
    #[arg(long)]
    pub resume: bool,

    /// A name for the load; the same name is the same load
    ///
    /// Without it a load is told by its table and its files.
    #[arg(long, value_name = "NAME")]
    pub load_id: Option<String>,

    /// Schema that records what was loaded
    #[arg(long, value_name = "SCHEMA", default_value = Ledger::DEFAULT_SCHEMA)]
    pub ledger: String,

    /// Record nothing: one transaction, and the same command again loads again
    #[arg(long, conflicts_with_all = ["load_id", "resume"])]
    pub no_ledger: bool,
}

#[derive(Debug, Args)]
pub struct SpeedArgs {
    /// Connections at once
    ///
    /// auto begins with one per processor, at most four, and adds one while the throughput grows by it.
    #[arg(long, short, value_parser = values::jobs, value_name = "auto|N", default_value = "auto")]
    pub jobs: Jobs,

    /// The path into the server
    #[arg(long, value_enum, default_value = "auto")]
    pub via: ViaName,

    /// Do not ANALYZE the table at the end
    #[arg(long)]
    pub no_analyze: bool,

    /// The longest record; a longer one is a reject
    #[arg(long, value_parser = values::bytes, value_name = "SIZE", default_value = "64MiB")]
    pub max_record: u64,

    /// Input bytes per second at most
    ///
    /// A size is a number of bytes, or has a unit: K, M, G, T, KiB, MiB, GiB, TiB are powers of 1024, KB, MB, GB, TB
    /// of 1000.
    #[arg(long, value_parser = values::bytes, value_name = "SIZE")]
    pub max_rate: Option<u64>,

    /// Pause while replicas, slots or the archiver are this much WAL behind
    ///
    /// Watches what replicas have replayed, what active replication slots hold back and what the archiver has
    /// archived, and, where the server's data directory can be looked at, that the WAL's device keeps as much
    /// free space. Replicas are seen by members of pg_read_all_stats only.
    #[arg(long, value_parser = values::bytes, value_name = "SIZE")]
    pub max_lag: Option<u64>,

    /// Looks per second at what the server's processes wait for; 0 for none
    ///
    /// Over one more connection, from a tenth of a second on. The report says where the time went.
    #[arg(long, value_name = "N", default_value_t = SamplerOptions::DEFAULT_HZ,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub sample_hz: u32,

    /// Bytes of one chunk
    #[arg(long, value_parser = values::bytes, value_name = "SIZE", default_value = "4MiB", hide = true)]
    pub chunk: u64,

    /// Milliseconds after which a commit unit is committed: 1000, or 3000 of a table on several servers
    #[arg(long, value_name = "MS", hide = true)]
    pub unit_millis: Option<u64>,

    /// Input bytes of one commit unit; a smaller plain file is one unit, up to 16 MiB
    #[arg(long, value_parser = values::bytes, value_name = "SIZE", default_value = "256MiB", hide = true)]
    pub unit_bytes: u64,
}

/// `--jobs`; an own type because clap reads an `Option` as "may be absent".
pub type Jobs = std::option::Option<usize>;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ViaName {
    /// The fastest that fits the table
    Auto,
    /// Rows in the layout of the heap, through the server's extension
    Direct,
    /// Values encoded here, COPY binary
    CopyBinary,
    /// Values read by the server, COPY text
    CopyText,
}

impl FormatArgs {
    /// What was stated, as the load library takes it.
    pub fn stated(&self) -> Stated {
        Stated {
            format: self.format.and_then(|f| f.to_possible_value()).map(|v| v.get_name().to_owned()),
            delimiter: self.delimiter,
            quote: self.quote,
            escape: self.escape,
            header: if self.header {
                Some(true)
            } else if self.no_header {
                Some(false)
            } else {
                None
            },
            null: self.null.clone(),
            encoding: self.encoding.clone(),
            force_null: self.force_null.clone(),
            force_not_null: self.force_not_null.clone(),
        }
    }
}

impl LoadArgs {
    /// What the load library is asked for.
    pub fn options(&self) -> Options {
        let mut options = Options::new(self.sources.clone());
        options.table.clone_from(&self.table);
        options.stated = self.format.stated();
        options.columns = self.columns.columns.as_ref().map(|c| c.0.clone());
        options.constants.clone_from(&self.columns.set);
        options.filename_column.clone_from(&self.columns.filename);
        options.ignore_unknown = self.columns.ignore_unknown;
        options.create = !self.columns.no_create;
        options.max_rejects = self.rejects.max_rejects;
        options.rejects.clone_from(&self.rejects.rejects);
        options.atomic = self.once.atomic;
        options.again = self.once.again;
        options.resume = self.once.resume;
        options.load_id.clone_from(&self.once.load_id);
        options.ledger = if self.once.no_ledger {
            LedgerChoice::None
        } else {
            LedgerChoice::Schema(self.once.ledger.clone())
        };
        options.jobs = self.speed.jobs;
        options.via = match self.speed.via {
            ViaName::Auto => Via::Auto,
            ViaName::Direct => Via::Direct,
            ViaName::CopyBinary => Via::CopyBinary,
            ViaName::CopyText => Via::CopyText,
        };
        options.analyze = !self.speed.no_analyze;
        options.max_rate = self.speed.max_rate;
        options.max_lag = self.speed.max_lag;
        options.sample_hz = (self.speed.sample_hz > 0).then_some(self.speed.sample_hz);
        options.bypass = !self.cluster.no_bypass;
        options.audit = self.cluster.audit;
        options.levers = self.levers.options();
        options.on_conflict = self.levers.on_conflict.map(|name| name.action());
        options.conflict_key.clone_from(&self.levers.conflict_key);
        options.limits = Limits {
            max_record: usize::try_from(self.speed.max_record)
                .unwrap_or(usize::MAX)
                .clamp(1, Limits::MAX_RECORD_CEILING),
            chunk: usize::try_from(self.speed.chunk).unwrap_or(usize::MAX).clamp(1, 1 << 30),
            unit_millis: self.speed.unit_millis,
            unit_bytes: self.speed.unit_bytes,
            ..Limits::default()
        };
        options
    }
}
