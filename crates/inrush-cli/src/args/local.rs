//! `inrush local`

use clap::{Subcommand, ValueEnum};
use std::ffi::OsString;

#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Start the embedded server; it is fetched and created as far as needed
    Start,
    /// Stop it; its data stays
    Stop {
        /// How to treat sessions that are open
        #[arg(long, value_enum, value_name = "MODE", default_value = "fast")]
        mode: StopModeName,
    },
    /// Show whether it runs, its version, data directory, process, URL and size
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Open psql on it, started if need be; arguments go to psql
    ///
    /// Runs the psql of the server or on PATH. Without one a small prompt of its own, which takes -c SQL.
    Psql {
        /// Arguments for psql, such as -c 'TABLE trips LIMIT 10'
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Print its connection URL and nothing else
    Url,
    /// Stop it and remove it with all its data
    Destroy {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum StopModeName {
    /// Wait until every session has ended
    Smart,
    /// End the sessions, then shut down cleanly
    Fast,
    /// Abort everything; the next start recovers
    Immediate,
}
