//! Whether rows go straight to where they belong, decided before the first one is sent.

use super::{SpreadPlan, extension};
use crate::levers::LeverOptions;
use crate::options::{LedgerChoice, Options, Via};
use crate::plan::{Plan, WirePath};
use inrush_cluster::{Aim, Ending, Found, NodeSession, Router, Visits, find};
use inrush_core::{Code, Error, Format, Result};
use inrush_encode::copy_binary::CopyBinary;
use inrush_sink::conninfo::ConnInfo;
use std::sync::Arc;
use tokio_postgres::Client;

/// Looks where the rows of the target are, and says in the plan how they get there. `encoding` is the server's.
pub(crate) async fn choose(
    client: &Client,
    conninfo: &ConnInfo,
    options: &Options,
    encoding: &str,
    plan: &mut Plan,
) -> Result<()> {
    let topology = match find(client, &plan.table).await? {
        Found::Here => return Ok(()),
        Found::Coordinator(why) => {
            plan.through = Some(why);
            return Ok(());
        }
        Found::Direct(topology) => *topology,
    };
    if let Some(why) = against(options, plan) {
        plan.through = Some(why);
        return Ok(());
    }
    let column = topology
        .keys
        .first()
        .cloned()
        .or_else(|| plan.shapes.first()?.columns.first().map(|c| c.name.clone()));
    let column =
        column.ok_or_else(|| Error::new(Code::Internal, "a table without a column to lock it by"))?;
    let aim = Aim::new(plan.table.clone(), column, Arc::new(topology.clone()), encoding, plan.session);
    let mut fills = Vec::new();
    for shape in &plan.shapes {
        let filled = inrush_cluster::fills(client, &plan.table, &shape.columns, topology.kind).await?;
        if let Err(why) = Router::new(&aim, &shape.columns, &filled, &topology) {
            plan.through = Some(why);
            return Ok(());
        }
        fills.push(Arc::new(filled));
    }
    let mut visits = Visits::new(conninfo, &options.nodes, "inrush load: plan", &topology);
    let said = visits.ask(&plan.table).await?;
    let ending = if said.prepares == Some(0) { Ending::Marks } else { Ending::TwoPhase };
    if ending == Ending::Marks
        && plan.inputs.iter().any(|input| !input.can_reread || input.columnar.is_some())
    {
        plan.through = Some(
            "nodes prepare nothing (max_prepared_transactions is 0), and the input could not be read again for one that \
             lacks rows"
                .into(),
        );
        return Ok(());
    }
    if let Some(most) = said.prepares.filter(|most| *most > 0) {
        // No more lanes than can have a unit prepared at once.
        plan.limits.max_jobs = plan.limits.max_jobs.min(most);
        plan.jobs = plan.jobs.map(|jobs| jobs.min(most));
    }
    let mut settings = NodeSession::settings(client).await?;
    if let Some(value) = &plan.sync_commit {
        settings.push(("synchronous_commit".into(), value.clone()));
    }
    // What the extension of the coordinator says is not what those of the nodes do.
    if plan.path == WirePath::Direct {
        let binary =
            plan.shapes.iter().all(|s| s.columns.iter().all(|column| CopyBinary::supports(&column.ty)));
        plan.path = if binary { WirePath::CopyBinary } else { WirePath::CopyText };
        plan.layouts.clear();
        plan.path_reason = "rows are sent to shards".into();
    }
    if let Some(why) = plan.shapes.iter().find_map(|shape| said.why_text(&shape.columns)) {
        as_text(plan, why);
    }
    plan.extension_missing = false;
    if let Some(why) = extension::choose(options, &mut visits, &fills, plan).await? {
        plan.path_reason = format!("{}; not direct: {why}", plan.path_reason);
    }
    // Its waits are those of the coordinator, which has nothing to do.
    plan.sample_hz = None;
    plan.spread = Some(Arc::new(SpreadPlan {
        aim: Arc::new(aim),
        settings,
        fills,
        map: options.nodes.clone(),
        ending,
    }));
    Ok(())
}

/// Sends rows as COPY text.
fn as_text(plan: &mut Plan, why: &str) {
    if plan.inputs.iter().all(|input| input.format != Format::Binary) {
        plan.path = WirePath::CopyText;
        plan.layouts.clear();
        plan.path_reason = why.to_owned();
    }
}

/// What the load itself has against it.
fn against(options: &Options, plan: &Plan) -> Option<String> {
    if !options.bypass {
        return Some("asked for with --no-bypass".into());
    }
    if options.ledger == LedgerChoice::None {
        return Some("without a ledger nothing could decide a unit on several nodes".into());
    }
    if plan.atomic {
        return Some("all rows are one transaction".into());
    }
    if options.on_conflict.is_some() {
        return Some("rows are merged with --on-conflict".into());
    }
    let harmless = LeverOptions {
        sync_commit: options.levers.sync_commit.clone(),
        drop_cache: options.levers.drop_cache,
        ..LeverOptions::default()
    };
    if options.levers != harmless {
        return Some("levers change the table as a whole".into());
    }
    if options.via == Via::Direct {
        return Some("asked for with --via direct".into());
    }
    plan.encoding
        .as_ref()
        .map(|encoding| format!("the server recodes {encoding}, and would hash other bytes"))
}
