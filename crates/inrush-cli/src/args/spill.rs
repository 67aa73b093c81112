//! `inrush spill`

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What `inrush serve` kept on disk while the server could not take it: check, drain
#[derive(Debug, Args)]
pub struct SpillArgs {
    #[command(subcommand)]
    pub command: SpillCommand,
}

#[derive(Debug, Subcommand)]
pub enum SpillCommand {
    /// Check every record of a spill, changing nothing
    ///
    /// May be done while `inrush serve` uses it. Exit code 0: whole, or torn at its end by a crash, which loses nothing
    /// that was acknowledged; 2: damaged.
    Check {
        /// The directory: spill.dir of the configuration
        dir: PathBuf,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Store what a spill holds, and take nothing in
    ///
    /// As `inrush serve` does when the server is back. Stops when the spill is empty.
    Drain {
        /// The configuration of `inrush serve`
        #[arg(value_name = "CONFIG")]
        config: PathBuf,
    },
}
