//! Whether rows go straight to where they belong, decided before the first one is sent.

use super::router::Router;
use super::{Ending, SpreadPlan, extension, fill};
use crate::levers::LeverOptions;
use crate::options::{LedgerChoice, Options, Via};
use crate::plan::{Plan, WirePath};
use inrush_cluster::{Found, Kind, Node, NodeSession, Place, Topology, find};
use inrush_core::{Code, Error, Format, PgType, Result, Table, TypeKind};
use inrush_encode::copy_binary::CopyBinary;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
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
    let utf8 = matches!(encoding, "UTF8" | "SQL_ASCII");
    let mut fills = Vec::new();
    for shape in &plan.shapes {
        let filled = fill::of(client, &plan.table, shape, topology.kind).await?;
        if let Err(why) = Router::new(plan, shape, &filled, &topology, utf8) {
            plan.through = Some(why);
            return Ok(());
        }
        fills.push(Arc::new(filled));
    }
    let ending = ending(conninfo, options, &topology, plan).await?;
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
    let column = topology
        .keys
        .first()
        .cloned()
        .or_else(|| plan.shapes.first()?.columns.first().map(|c| c.name.clone()));
    let column =
        column.ok_or_else(|| Error::new(Code::Internal, "a table without a column to lock it by"))?;
    let mut settings = NodeSession::settings(client).await?;
    // Units of two lanes may wait for each other on different nodes, which none of them can see.
    settings.push(("lock_timeout".into(), "10s".into()));
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
    if plan.shapes.iter().any(|shape| shape.columns.iter().any(|column| names_its_element(&column.ty))) {
        as_text(
            plan,
            "arrays in COPY binary name the type of their elements, which has another number on each node",
        );
    }
    plan.extension_missing = false;
    if let Some(why) = extension::choose(conninfo, options, &topology, &fills, plan).await? {
        plan.path_reason = format!("{}; not direct: {why}", plan.path_reason);
    }
    // Its waits are those of the coordinator, which has nothing to do.
    plan.sample_hz = None;
    plan.spread = Some(Arc::new(SpreadPlan {
        topology: Arc::new(topology),
        settings,
        column,
        fills,
        map: options.nodes.clone(),
        utf8,
        ending,
    }));
    Ok(())
}

/// Whether values of a type carry the number of a type that each server has made for itself.
fn names_its_element(ty: &PgType) -> bool {
    match &ty.under_domains(-1).0.kind {
        TypeKind::Array { element } => !matches!(element.kind, TypeKind::Base(_)),
        _ => false,
    }
}

/// How units end, by what the nodes say: and no more lanes than can have a unit prepared at once. Citus sees to it that its
/// nodes prepare as many as there may be.
async fn ending(
    conninfo: &ConnInfo,
    options: &Options,
    topology: &Topology,
    plan: &mut Plan,
) -> Result<Ending> {
    if topology.kind == Kind::Citus {
        return Ok(Ending::TwoPhase);
    }
    let (mut least, mut same_types) = (usize::MAX, true);
    for (number, node) in topology.nodes.iter().enumerate() {
        let session = node.connect(conninfo, &options.nodes, "inrush load: plan", &[]).await?;
        let client = &session.connected.client;
        let sql = "SELECT pg_catalog.current_setting('max_prepared_transactions')::int4";
        let most: i32 = client.query_one(sql, &[]).await.map_err(server_error)?.get(0);
        least = least.min(usize::try_from(most).unwrap_or(0));
        for place in topology.places.iter().filter(|place| place.node == number) {
            check(client, node, place).await?;
            same_types &= has_types(client, place, &plan.table).await?;
        }
    }
    if !same_types {
        as_text(plan, "columns have other types on the nodes, which read text");
    }
    if least == 0 {
        return Ok(Ending::Marks);
    }
    plan.limits.max_jobs = plan.limits.max_jobs.min(least);
    plan.jobs = plan.jobs.map(|jobs| jobs.min(least));
    Ok(Ending::TwoPhase)
}

/// Sends rows as COPY text.
fn as_text(plan: &mut Plan, why: &str) {
    if plan.inputs.iter().all(|input| input.format != Format::Binary) {
        plan.path = WirePath::CopyText;
        plan.layouts.clear();
        plan.path_reason = why.to_owned();
    }
}

/// Whether columns are of the same types there: COPY binary has values as their own type has them.
async fn has_types(client: &Client, place: &Place, table: &Table) -> Result<bool> {
    let sql = "SELECT a.attname::text, n.nspname::text, pg_catalog.format_type(a.atttypid, NULL)
                 FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                 JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
                WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";
    let there = client.query(sql, &[&place.qualified()]).await.map_err(server_error)?;
    Ok(table.columns.iter().all(|column| {
        let name = place.column(&column.name);
        // What is not there at all the node says, if it is sent.
        there.iter().find(|row| row.get::<_, &str>(0) == name).is_none_or(|row| {
            // The types of users have names only, and may mean something else.
            row.get::<_, &str>(1) == "pg_catalog" && row.get::<_, &str>(2) == column.ty.name
        })
    }))
}

/// Refuses a place that is not there, or that a crash of its node would empty while the ledger keeps what it has of it.
async fn check(client: &Client, node: &Node, place: &Place) -> Result<()> {
    let name = place.qualified();
    let sql =
        "SELECT c.relpersistence = 'u' FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)";
    let (fact, hint) =
        match client.query_opt(sql, &[&name]).await.map_err(server_error)?.map(|row| row.get(0)) {
            Some(false) => return Ok(()),
            Some(true) => (
                format!("{name} on node {node} is unlogged"),
                "After a crash of the node nobody could say which rows are left. Make it logged.",
            ),
            None => (
                format!("there is no table {name} on node {node}"),
                "The options schema_name and table_name of the foreign table say what it is called there.",
            ),
        };
    Err(Error::new(Code::Table, fact).hint(hint))
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
