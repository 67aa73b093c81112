//! `inrush cluster`

use super::{LedgerArgs, NodeArgs};
use clap::{Args, Subcommand};

/// Tables on several servers: status
#[derive(Debug, Args)]
pub struct ClusterCommandArgs {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    Status(ClusterStatusArgs),
}

/// Show nodes, shards, skew, and what loads have left prepared
///
/// Every node is asked, and nothing is changed. Rows are what VACUUM and ANALYZE found last; bytes are those of tables with
/// their indexes. Skew is the largest shard, or node, divided by the mean: 1 is even. Of transactions that loads have
/// prepared it is said what `inrush recover` would do; those of others are shown when they are older than a minute, because
/// they hold locks.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  inrush cluster status                   all nodes, all tables on several servers
  inrush cluster status orders --exact    one table, its rows counted")]
pub struct ClusterStatusArgs {
    /// Only this table
    #[arg(value_name = "TABLE")]
    pub table: Option<String>,

    /// Count the rows: reads every shard
    #[arg(long)]
    pub exact: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub ledger: LedgerArgs,

    #[command(flatten)]
    pub nodes: NodeArgs,
}
