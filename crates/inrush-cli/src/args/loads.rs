//! `inrush loads` and `inrush recover`

use super::{NodeArgs, ServerArgs, values};
use clap::{Args, Subcommand};
use inrush_sink::ledger::Ledger;
use std::ffi::OsString;

/// Which ledger.
#[derive(Debug, Args)]
pub struct LedgerArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Schema that records what was loaded
    #[arg(long, value_name = "SCHEMA", default_value = Ledger::DEFAULT_SCHEMA)]
    pub ledger: String,
}

/// What has been loaded: list, show, undo, prune, rejects
///
/// Every load is recorded in the database it went to, in the transactions of its rows.
#[derive(Debug, Args)]
pub struct LoadsArgs {
    #[command(subcommand)]
    pub command: LoadsCommand,
}

#[derive(Debug, Subcommand)]
pub enum LoadsCommand {
    /// List the loads, newest first
    List {
        /// How many at most
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..))]
        limit: i64,

        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        ledger: LedgerArgs,
    },
    /// Show one load: inputs, settings, rows, ranges, and how to go on with it
    Show {
        /// Number or name of the load
        #[arg(value_name = "ID")]
        load: String,

        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        ledger: LedgerArgs,
    },
    /// Remove exactly the rows of a load
    ///
    /// They are told by the transactions that stored them. Refused where that cannot be exact: the table was truncated
    /// or rewritten, VACUUM has frozen rows of the load, or rows have been changed since.
    Undo {
        /// Number or name of the load
        #[arg(value_name = "ID")]
        load: String,

        /// Remove the rows that are still as they were loaded, although others have been changed since
        #[arg(long)]
        partial: bool,

        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        ledger: LedgerArgs,
    },
    /// Forget loads that ended long ago; their rows stay
    ///
    /// The same command would then load the same file again.
    Prune {
        /// Forget loads that ended longer ago than this: days (90d) or weeks (12w)
        #[arg(long, value_name = "AGE", default_value = "90d", value_parser = values::days)]
        older_than: i32,

        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        ledger: LedgerArgs,
    },
    /// Show the rejects of a load: where, why, and the beginning of the record
    Rejects {
        /// Number or name of the load
        #[arg(value_name = "ID")]
        load: String,

        /// Write the records as they stand in the files, to repair and load again
        #[arg(long, conflicts_with = "json")]
        raw: bool,

        /// Print a JSON object per line
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        ledger: LedgerArgs,
    },
}

/// Finish or undo what a dead load left
///
/// Lists the loads that have begun and not ended, ends their connections that no client answers on any more, and
/// says for each how to go on. What a dead load has changed about its table (dropped indexes and foreign keys, autovacuum,
/// an unlogged table) is taken back. Nothing else has to be repaired: what is in the table is recorded, the rest is not
/// there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  inrush recover                          make tables what they were; what is open, and what can be done
  inrush recover --finish                 load the rest of every dead load
  inrush recover --finish 12 -- --jobs 8  of load 12, with options for a load
  inrush recover --undo 12                remove the rows of load 12")]
pub struct RecoverArgs {
    /// Load the rest: of this load, or of every one that nobody works on
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "", conflicts_with = "undo")]
    pub finish: Option<String>,

    /// Remove the rows: of this load, or of every one that nobody works on
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    pub undo: Option<String>,

    /// End connections of open loads that have waited for their client longer than this
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub silent: u32,

    /// Print JSON
    #[arg(long, conflicts_with_all = ["finish", "undo"])]
    pub json: bool,

    #[command(flatten)]
    pub ledger: LedgerArgs,

    #[command(flatten)]
    pub nodes: NodeArgs,

    /// Further options of `inrush load` for --finish
    #[arg(last = true, value_name = "LOAD OPTIONS", requires = "finish")]
    pub options: Vec<OsString>,
}
