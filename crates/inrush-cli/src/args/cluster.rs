//! Options for tables on several servers.

use clap::Args;
use inrush_cluster::NodeMap;
use inrush_core::Result;

#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Send rows of a table on several servers through the coordinator
    ///
    /// Without it rows of a table that Citus distributes, or whose partitions are on other servers with postgres_fdw, go
    /// straight to where they belong. The report says which way they went, and why.
    #[arg(long)]
    pub no_bypass: bool,

    #[command(flatten)]
    pub nodes: NodeArgs,

    /// Look afterwards whether every row of the table is where its key leads
    ///
    /// Reads the whole table. For tables that Citus distributes, or whose partitions are on other servers.
    #[arg(long)]
    pub audit: bool,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// How a node is reached from here, if not as the coordinator does; may be repeated
    ///
    /// In front of the = the node as the coordinator knows it, behind it where it listens for us. Role, password and TLS
    /// are those of the coordinator, or those of the user mapping; ~/.pgpass is asked for each node.
    #[arg(long, value_name = "HOST[:PORT]=HOST[:PORT]")]
    pub node: Vec<String>,
}

impl NodeArgs {
    pub fn map(&self) -> Result<NodeMap> {
        NodeMap::parse(&self.node)
    }
}
