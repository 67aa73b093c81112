//! What comes before the first row and after the last one of a load into several servers.

use crate::options::Options;
use crate::plan::Plan;
use inrush_cluster::{Audit, Found, Partial, find, known_nodes};
use inrush_core::{Code, Error, Result};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::ledger::{Ledger, StoredLoad};
use tokio_postgres::Client;

/// Ends what earlier runs, of this load and of others that are over, have left prepared. Gives what of this load is on
/// some nodes and not on others.
pub(crate) async fn settle(
    client: &Client,
    (ledger, load): (&Ledger, &StoredLoad),
    conninfo: &ConnInfo,
    options: &Options,
    plan: &Plan,
    resumed: bool,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Partial>> {
    // A load that is resumed may have begun when the table was on several servers.
    if plan.spread.is_none() && plan.through.is_none() && !resumed {
        return Ok(Vec::new());
    }
    let nodes = known_nodes(client).await?;
    let settled = inrush_cluster::settle(client, ledger, conninfo, &options.nodes, &nodes).await?;
    if settled.committed + settled.rolled_back > 0 {
        notice(&format!(
            "units that an earlier run had left on several servers: {} committed, {} rolled back",
            settled.committed, settled.rolled_back
        ));
    }
    settled.left.iter().for_each(|left| notice(left));
    let (ours, others): (Vec<_>, Vec<_>) =
        settled.partial.into_iter().partition(|partial| partial.unit.load == load.id);
    for other in others {
        notice(&other.to_string());
    }
    if let (Some(first), None) = (ours.first(), &plan.spread) {
        let fact = format!("a unit of this load is on some nodes, and not on {}", first.missing.join(", "));
        return Err(Error::new(Code::Clash, fact)
            .hint("Only a load straight to the nodes can send them what is missing: give the command as it was then."));
    }
    Ok(ours)
}

/// Looks whether every row is where it belongs; `None` for a table that is here.
pub(crate) async fn audit(
    client: &Client,
    conninfo: &ConnInfo,
    options: &Options,
    plan: &Plan,
) -> Result<Option<Audit>> {
    let Found::Direct(topology) = find(client, &plan.table).await? else { return Ok(None) };
    inrush_cluster::audit(&topology, conninfo, &options.nodes, "inrush load: audit").await.map(Some)
}

/// The error of a load behind which rows are misplaced.
pub(crate) fn misplaced(plan: &Plan, audit: &Audit) -> Option<Error> {
    let first = audit.places.first()?;
    let fact = format!(
        "{} rows of {} are not where their keys lead, {} of them in {} on {}",
        audit.misplaced,
        plan.table.qualified(),
        first.rows,
        first.place,
        first.node
    );
    Some(Error::new(Code::Table, fact).hint(
        "Queries by key do not find them. They may have been there before this load: `inrush load` only sends rows \
         behind locks that keep shards in place.",
    ))
}
