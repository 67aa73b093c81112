//! What a load is asked to do, validated but not yet looked at against the world.

use crate::levers::LeverOptions;
use inrush_core::Limits;
use serde::Serialize;
use std::path::PathBuf;

/// Everything the user may state about a load. `Options::new` gives the defaults of the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// Files, globs, directories, `-`.
    pub sources: Vec<String>,
    /// `schema.name`, as SQL would read it. Without it the name of the first file.
    pub table: Option<String>,
    /// Format and dialect as far as stated.
    pub stated: Stated,
    /// `--columns`
    pub columns: Option<Vec<ColumnSpec>>,
    /// `--set COLUMN=VALUE`
    pub constants: Vec<(String, String)>,
    /// `--filename COLUMN`: a column that takes the input's name.
    pub filename_column: Option<String>,
    /// Fields of the file that the table has no column for are left out instead of being an error.
    pub ignore_unknown: bool,
    /// Which path into the server.
    pub via: Via,
    /// Connections at once; `None` finds out.
    pub jobs: Option<usize>,
    /// Named bounds.
    pub limits: Limits,
    /// How many bad rows a load survives.
    pub max_rejects: MaxRejects,
    /// Where to write the rejected records; `FILE.jsonl` beside it says why.
    pub rejects: Option<PathBuf>,
    /// All rows or none, in one transaction on one connection.
    pub atomic: bool,
    /// Load again what has been loaded before.
    pub again: bool,
    /// Go on with a load whose table or input is not what it was.
    pub resume: bool,
    /// A name for the load instead of what is derived from inputs, dialect and target.
    pub load_id: Option<String>,
    /// Where loads are recorded.
    pub ledger: LedgerChoice,
    /// ANALYZE at the end.
    pub analyze: bool,
    /// Create a missing table from what the sample shows.
    pub create: bool,
    /// Bytes of input per second at most.
    pub max_rate: Option<u64>,
    /// Bytes of WAL that replicas, slots and the archiver may be behind before the load pauses.
    pub max_lag: Option<u64>,
    /// What to do with rows whose key is there already; `None`: the server refuses them.
    pub on_conflict: Option<OnConflict>,
    /// `--conflict-key`: the columns of the unique index that decides.
    pub conflict_key: Option<Vec<String>>,
    /// Changes of the table that make the load faster.
    pub levers: LeverOptions,
    /// Rows of a table on several servers go straight to where they belong.
    pub bypass: bool,
    /// Other ways to nodes than those the coordinator knows.
    pub nodes: inrush_cluster::NodeMap,
    /// Look afterwards whether every row of such a table is where it belongs.
    pub audit: bool,
    /// Looks per second at what the load's backends wait for; `None` does not look.
    pub sample_hz: Option<u32>,
    /// The arguments of the command that asks for it, with absolute paths and without the server's name. The
    /// ledger keeps them, so that `inrush recover` can give the command again.
    pub command: Vec<String>,
}

/// Parts of the format that the user stated. What is stated always wins over what a sample suggests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stated {
    /// `csv`, `tsv`, `text`, `binary`, `ndjson`, `parquet`, `arrow`
    pub format: Option<String>,
    /// `--delimiter`
    pub delimiter: Option<u8>,
    /// `--quote`
    pub quote: Option<u8>,
    /// `--escape`
    pub escape: Option<u8>,
    /// `--header`, `--no-header`
    pub header: Option<bool>,
    /// `--null`
    pub null: Option<String>,
    /// `--encoding`, a name PostgreSQL knows.
    pub encoding: Option<String>,
    /// `--force-null`: columns.
    pub force_null: Vec<String>,
    /// `--force-not-null`: columns.
    pub force_not_null: Vec<String>,
}

/// One entry of `--columns`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnSpec {
    /// The field at this place goes to this column.
    Column(String),
    /// The field at this place is left out (`-`).
    Skip,
    /// The field of this name goes to this column (`column=field`).
    Named {
        /// Column of the table.
        column: String,
        /// Field of the file: header or key.
        field: String,
    },
}

/// Which path rows take into the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// The fastest that fits the table.
    #[default]
    Auto,
    /// Rows in the layout of the heap, through the server's extension.
    Direct,
    /// COPY binary, values encoded by the client.
    CopyBinary,
    /// COPY text, values read by the server.
    CopyText,
}

/// When bad rows stop a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaxRejects {
    /// More rejects than this stop it.
    Count(u64),
    /// More than this share of the records (0 to 100), judged at the end with `--atomic`, else from
    /// [`MaxRejects::MINIMUM`] records on and at the end.
    Percent(f64),
}

impl MaxRejects {
    /// Records that must have been read before a percentage is judged without `--atomic`.
    pub const MINIMUM: u64 = 10_000;
}

/// What to do with a row whose key is in the table already, or came earlier in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Pass it over.
    Nothing,
    /// It takes the place of what is there.
    Update,
}

/// Where loads are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerChoice {
    /// In this schema of the target database.
    Schema(String),
    /// Nowhere: one transaction on one connection.
    None,
}

impl Options {
    /// All rows or none: one transaction on one connection.
    pub fn one_transaction(&self) -> bool {
        self.atomic || self.levers.freeze || self.ledger == LedgerChoice::None
    }

    /// The defaults of `inrush load`.
    pub fn new(sources: Vec<String>) -> Options {
        Options {
            sources,
            table: None,
            stated: Stated::default(),
            columns: None,
            constants: Vec::new(),
            filename_column: None,
            ignore_unknown: false,
            via: Via::Auto,
            jobs: None,
            limits: Limits::default(),
            max_rejects: MaxRejects::Count(0),
            rejects: None,
            atomic: false,
            again: false,
            resume: false,
            load_id: None,
            ledger: LedgerChoice::Schema(inrush_sink::ledger::Ledger::DEFAULT_SCHEMA.to_owned()),
            analyze: true,
            create: true,
            max_rate: None,
            max_lag: None,
            on_conflict: None,
            conflict_key: None,
            levers: LeverOptions::default(),
            bypass: true,
            nodes: inrush_cluster::NodeMap::default(),
            audit: false,
            sample_hz: Some(inrush_profile::SamplerOptions::DEFAULT_HZ),
            command: Vec::new(),
        }
    }
}
