//! `inrush route`

use super::ServerArgs;
use clap::Args;

/// Show where a key lives: its hash, its shard or partition, and its node
///
/// A value may be all that the column takes in an INSERT. What is computed here, as `inrush load` does for each row, is
/// compared with what the server says. For tables that Citus distributes and for partitioned ones, on one server or on
/// several.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  inrush route orders 42
  inrush route calls 2026-11-22 berlin      a key of several columns
  inrush route calls NULL --null NULL
  inrush route numbers -- -42abc            a value that begins with a dash")]
pub struct RouteArgs {
    /// The table
    #[arg(value_name = "TABLE")]
    pub table: String,

    /// The key: a value for each of its columns; none for a table without a key
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub values: Vec<String>,

    /// A value that is exactly this text is NULL
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub null: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub server: ServerArgs,
}

impl RouteArgs {
    /// The values, with `None` for NULL.
    pub fn key(&self) -> Vec<Option<String>> {
        let is_null = |value: &&String| self.null.as_ref() != Some(*value);
        self.values.iter().map(|value| Some(value).filter(is_null).cloned()).collect()
    }
}
