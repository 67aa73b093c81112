//! The command line. Parsing validates and touches nothing of the world.

mod load;
mod values;

pub use load::LoadArgs;

use clap::{Parser, Subcommand};

/// Gets data into PostgreSQL as fast as the disk takes it: nothing lost, nothing twice.
#[derive(Debug, Parser)]
#[command(name = "inrush", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load files into a table, exactly once
    Load(Box<LoadArgs>),
}
