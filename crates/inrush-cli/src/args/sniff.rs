//! `inrush sniff`

use super::FormatArgs;
use clap::Args;

/// Show what files are: dialect, columns, types, and the command that loads them
///
/// Looks at the first MiB of each file, and prints the CREATE TABLE and the complete load command, with everything
/// spelled out, ready to paste. What you state wins; where the file contradicts it, that is an error.
#[derive(Debug, Args)]
pub struct SniffArgs {
    /// Files, globs, directories, or - for standard input; plain or compressed
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// The table to name, as SQL does: schema.name [default: the name of the first file]
    #[arg(long, short, value_name = "TABLE")]
    pub table: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten, next_help_heading = "Format")]
    pub format: FormatArgs,
}
