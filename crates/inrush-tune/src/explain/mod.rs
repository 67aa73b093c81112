//! One query, scanned in every way that the planner has, with what each took beside what the planner
//! believed.
//!
//! [`run`] finds the largest table that the query scans, has the planner scan it sequentially, by index, by
//! bitmap and by BRIN, at the current and at another effective_io_concurrency, warm and, where that can be
//! had, cold; and says in sentences what the figures support. The query runs in read-only transactions that
//! are rolled back.

mod cold;
mod device;
mod estimate;
mod html;
mod measure;
mod methods;
mod plan;
mod query;
mod run;
mod session;
mod target;
mod variants;
mod verdict;

pub use run::run;
pub use verdict::{Reason, Verdict};

use crate::io::Measured;
use crate::io::keep::Store;
use crate::io::model::Prediction;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Version of the JSON form of [`Report`].
pub const VERSION: u32 = 1;

/// Whether the tables of the query may be made cold, which they then are for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdWish {
    /// Measure warm only.
    Never,
    /// If whoever is asked agrees.
    Ask,
    /// Agreed to.
    Agreed,
    /// Agreed to, and without cold runs nothing is wanted.
    Required,
}

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The query: one statement that only reads.
    pub query: String,
    /// How long a run may take.
    pub timeout: Duration,
    /// Bytes of tables that one run may read at most.
    pub max_bytes: u64,
    /// Runs of each variant, warm and cold each; at least one, and three for a verdict.
    pub runs: u32,
    /// Whether to measure cold.
    pub cold: ColdWish,
    /// Leaves parallel workers and JIT as the server has them; else both are off, since their own noise hides
    /// what is looked for.
    pub parallel: bool,
    /// Runs volatile functions too.
    pub allow_volatile: bool,
    /// An effective_io_concurrency to compare the current one with.
    pub concurrency: Option<u32>,
    /// What the storage of the table has been measured to do.
    pub storage: Option<Measured>,
    /// Where that is kept, to be looked up where it is not given.
    pub store: Option<Store>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            query: String::new(),
            timeout: Duration::from_secs(60),
            max_bytes: 4 << 30,
            runs: 3,
            cold: ColdWish::Never,
            parallel: false,
            allow_volatile: false,
            concurrency: None,
            storage: None,
            store: None,
        }
    }
}

/// What a run tells and asks meanwhile.
pub struct Hooks<'a> {
    /// Told what is going on.
    pub note: &'a dyn Fn(&str),
    /// Asked whether the table may be made cold; the text says what that means.
    pub agree: &'a dyn Fn(&str) -> bool,
    /// Set when everything is to stop: the running statement is cancelled, and what was made is removed.
    pub stop: Arc<AtomicBool>,
}

/// How a table is scanned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// From front to back.
    Sequential,
    /// In the order of an index.
    Index,
    /// From an index alone, where the visibility map allows.
    IndexOnly,
    /// The pages of a bitmap from indexes, at least one of which is not BRIN.
    Bitmap,
    /// The pages of a bitmap from BRIN indexes.
    Brin,
    /// The planner's own plan, where it scans partitions in different ways.
    #[default]
    Mixed,
}

impl Method {
    /// Its name in tables and sentences.
    pub fn name(self) -> &'static str {
        match self {
            Method::Sequential => "sequential",
            Method::Index => "index",
            Method::IndexOnly => "index only",
            Method::Bitmap => "bitmap",
            Method::Brin => "BRIN",
            Method::Mixed => "mixed",
        }
    }
}

/// What was found out about a query.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form.
    pub version: u32,
    /// Version of Inrush.
    pub inrush: String,
    /// The query.
    pub query: String,
    /// The server, as far as scans depend on it.
    pub server: Server,
    /// The table whose scan is studied.
    pub table: Table,
    /// What effective_io_concurrency was, and what it was compared with.
    pub concurrency: Concurrency,
    /// Whether and how cold runs were had.
    pub cold: Cold,
    /// The ways to scan it, each with what it took.
    pub scans: Vec<Variant>,
    /// The ways that the planner does not have here.
    pub absent: Vec<Absent>,
    /// What the figures say.
    pub verdict: Verdict,
    /// What has to be known to read the figures.
    pub notes: Vec<String>,
    /// What this role or account could not do.
    pub left_out: Vec<LeftOut>,
}

/// A server, as far as scans depend on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Server {
    /// The version as the server prints it.
    pub version: String,
    /// server_version_num.
    pub version_num: u32,
    /// The current role.
    pub role: String,
    /// Bytes of shared_buffers.
    pub shared_buffers: Option<u64>,
    /// io_method of PostgreSQL 18 and newer.
    pub io_method: Option<String>,
    /// io_workers of PostgreSQL 18.
    pub io_workers: Option<u32>,
    /// kB of work_mem in the session.
    pub work_mem_kb: u64,
    /// Settings of the planner that are not as the server comes, in the planner's own plan.
    pub settings: BTreeMap<String, String>,
}

/// The table whose scan is studied.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Table {
    /// Its name, quoted where it needs it.
    pub name: String,
    /// How many of its partitions the plan scans; `None` for a table that has none.
    pub partitions: Option<usize>,
    /// Pages of the table, of those partitions.
    pub pages: u64,
    /// The same in bytes.
    pub bytes: u64,
    /// Rows as the planner believes.
    pub rows_estimated: f64,
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// Other tables that the query scans: they are part of every time.
    pub other_tables: usize,
}

/// An index of the table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Index {
    /// Its name, quoted where it needs it.
    pub name: String,
    /// btree, brin ...
    pub method: String,
    /// Its pages.
    pub pages: u64,
    /// Its first key.
    pub first_key: String,
    /// The planner's statistic of how far the first key follows the order of rows, -1 to 1; only for a
    /// column.
    pub correlation: Option<f64>,
}

/// effective_io_concurrency, and what it was compared with.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Concurrency {
    /// What is in effect for the table: the option of its tablespace, else the session's setting.
    pub current: u32,
    /// Other values that were run.
    pub compared: Vec<u32>,
    /// Why there are none.
    pub why_only_current: Option<String>,
    /// Options of tablespaces that win over what a session sets.
    pub masks: Vec<Mask>,
}

/// An option of a tablespace that wins over what a session sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Mask {
    /// The tablespace.
    pub tablespace: String,
    /// The setting.
    pub option: String,
    /// Its value there.
    pub value: String,
    /// Whether this role may alter it.
    pub may_alter: bool,
}

/// Whether and how cold runs were had.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Cold {
    /// Whether there are cold runs.
    pub measured: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// What was done before each run.
    pub how: Vec<String>,
    /// The largest share of the files that was in the operating system's cache before a run, as looked up.
    pub resident: Option<f64>,
    /// The most pages that were in shared buffers before a run, where that can be looked up.
    pub buffers_left: Option<u64>,
    /// Why cold is not quite cold.
    pub partial: Option<String>,
}

/// One way to scan the table, with what it took.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Variant {
    /// How it is called in tables and sentences: `bitmap at 16`.
    pub label: String,
    /// How the table is scanned.
    pub method: Method,
    /// The indexes, quoted where they need it.
    pub indexes: Vec<String>,
    /// effective_io_concurrency; `None` for a scan that it means nothing to.
    pub concurrency: Option<u32>,
    /// Whether that is the current one.
    pub current: bool,
    /// kB of work_mem, where it is another than the session's.
    pub work_mem_kb: Option<u64>,
    /// Whether this is the plan that the planner made on its own.
    pub planners: bool,
    /// Whether the rest of the plan is another than in the planner's own: then times compare plans, not
    /// scans.
    pub rest_differs: bool,
    /// Parallel workers that the plan asks for.
    pub workers: u64,
    /// Whether what is above the scan may end it before it has read all that it could: a LIMIT, a semi join
    /// ...: then the pages that it reads cannot be told from its plan.
    pub stops_early: bool,
    /// The planner's cost of the scan; `None` where it has what the planner was told to avoid.
    pub scan_cost: Option<f64>,
    /// The planner's cost of the whole plan; `None` as above, and where a BRIN scan could only be had by
    /// raised costs of indexes that other parts of the plan use.
    pub total_cost: Option<f64>,
    /// Rows that the planner expected of the scan, of all its loops and workers together.
    pub rows_estimated: f64,
    /// Rows that it had.
    pub rows: f64,
    /// Pages of the table that the planner expected a bitmap to name, by its formula; `None` of a scan that
    /// is repeated.
    pub heap_pages_estimated: Option<f64>,
    /// Pages of the table that it visited, each counted once, where that is known.
    pub heap_pages: Option<u64>,
    /// Pages of indexes that bitmaps were made from.
    pub index_pages: u64,
    /// Pages of a bitmap with known rows; `None` without a bitmap, and where parallel workers do not tell
    /// theirs (up to PostgreSQL 17).
    pub exact_pages: Option<u64>,
    /// Pages of which all rows had to be checked, since the bitmap had no room for them; `None` as above.
    pub lossy_pages: Option<u64>,
    /// Rows thrown away by that check.
    pub rows_rechecked: u64,
    /// Rows that an index-only scan had to look up in the table.
    pub heap_fetches: u64,
    /// The runs with everything in memory.
    pub warm: Option<Timing>,
    /// The runs with nothing in memory.
    pub cold: Option<Timing>,
    /// What the model says of the scan cold.
    pub prediction: Option<Prediction>,
    /// Why it says nothing.
    pub no_prediction: Option<String>,
    /// Why there are no runs, or no more.
    pub failed: Option<String>,
}

/// What the runs of one variant took.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timing {
    /// Seconds of the server: the median.
    pub seconds: f64,
    /// The shortest and the longest.
    pub least: f64,
    /// The longest.
    pub most: f64,
    /// The largest distance from the median, as a share of it; `None` for a single run.
    pub spread: Option<f64>,
    /// Reads that the device did meanwhile, for whomever: the median.
    pub device_reads: Option<u64>,
    /// Whether they can be taken for this query's: in each run the bytes that the device read agree with what
    /// the query had read.
    pub device_reads_own: bool,
    /// Bytes that were read from it: by the process that ran the query if it reads itself, else by everybody.
    pub device_bytes: Option<u64>,
    /// Blocks found in shared buffers: the median.
    pub shared_hit: u64,
    /// Blocks read into shared buffers: the median.
    pub shared_read: u64,
    /// The runs, in order.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Run {
    /// Seconds of the execution by the server's clock.
    pub seconds: f64,
    /// Seconds from the statement to its answer, planning included.
    pub wall_seconds: f64,
    /// Reads that the device did meanwhile, for whomever.
    pub device_reads: Option<u64>,
    /// Bytes of those.
    pub device_bytes: Option<u64>,
    /// Bytes that the process which ran the query has had read.
    pub backend_bytes: Option<u64>,
    /// Blocks found in shared buffers.
    pub shared_hit: u64,
    /// Blocks read into shared buffers.
    pub shared_read: u64,
}

/// A way to scan the table that the planner does not have here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// The way.
    pub method: Method,
    /// Why.
    pub why: String,
}

/// Something that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// What, and why.
    pub what: String,
    /// A statement or a sentence for someone who can.
    pub remedy: Option<String>,
}
