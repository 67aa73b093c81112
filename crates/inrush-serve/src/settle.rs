//! Ends what dead processes have left on several servers.

use crate::target::Settings;
use inrush_cluster::known_nodes;
use inrush_core::Result;
use inrush_sink::connect::Connected;
use inrush_sink::ledger::Ledger;
use std::time::Duration;

/// How often. What another process has prepared keeps its locks until then: rows with the same keys wait for it.
pub(crate) const EVERY: Duration = Duration::from_secs(15);

/// Commits what the ledger has, and rolls back what it has not.
pub(crate) async fn settle(connected: &Connected, ledger: &Ledger, settings: &Settings) -> Result<()> {
    let client = &connected.client;
    let nodes = known_nodes(client).await?;
    let settled = inrush_cluster::settle(client, ledger, &settings.conninfo, &settings.nodes, &nodes).await?;
    if settled.committed + settled.rolled_back > 0 {
        tracing::info!(
            committed = settled.committed,
            rolled_back = settled.rolled_back,
            "units that a dead process had left on several servers were ended"
        );
    }
    for left in &settled.left {
        tracing::warn!("{left}");
    }
    Ok(())
}
