//! Files into PostgreSQL: plan, run, report.
//!
//! The only crate that wires the stages together. [`run`] is the whole of `inrush load`; the command line
//! above it only reads arguments and draws.

mod ahead;
mod atomic;
mod buffers;
mod careful;
mod columnar;
mod copies;
mod create;
mod direct;
mod dry;
mod feed;
mod format;
mod inputs;
mod job;
mod lag;
mod lane;
mod levers;
mod once;
mod options;
mod plan;
mod progress;
mod queue;
mod reader;
mod rejects;
mod report;
mod run;
mod session;
mod shape;
mod spread;
mod target;
mod unit;
mod walwriter;
mod work;

pub use create::{
    SNIFF_BYTES, SniffedInput, column_names, create_table_sql, merged_columns, short_name, sniff_input,
    target_name,
};
pub use dry::dry_run;
pub use inrush_page::grouped;
pub use levers::advice::LeverAdvice;
pub use levers::{End, LeverOptions, Pulled, put_back};
pub use options::{ColumnSpec, LedgerChoice, MaxRejects, OnConflict, Options, Stated, Via};
pub use plan::WirePath;
pub use progress::{Progress, Stop};
pub use rejects::reject_json;
pub use report::{ClusterReport, Failure, InputReport, Outcome, Report, Stages, Totals, VERSION};
pub use run::{Finished, run};
