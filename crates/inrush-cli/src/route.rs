//! `inrush route`

use crate::args::RouteArgs;
use crate::grid::{pair, wrapped};
use crate::say;
use crate::server::{IfAbsent, Server};
use inrush_cluster::{Placement, Route, Spread, Step, route};
use inrush_core::{Code, Error, Result};
use inrush_load::grouped;
use inrush_sink::catalog::{TableName, table};
use inrush_sink::connect::connect;
use std::process::ExitCode;

pub fn run(args: &RouteArgs) -> Result<ExitCode> {
    let name = TableName::parse(&args.table)?;
    let Server { conninfo, .. } = Server::find(&args.server, IfAbsent::Refuse, &say::note)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
    })?;
    let found = runtime.block_on(async {
        let connection = connect(&conninfo, "inrush route").await?;
        let table = table(&connection.client, &name).await?;
        route(&connection.client, &table, &args.key()).await
    })?;
    if args.json {
        say::json(&found)?;
    } else {
        say::out(&text(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(route: &Route) -> String {
    let mut text = format!("table {}: {}\n", route.table, spread(route));
    for key in &route.key {
        let value = key.value.as_deref().unwrap_or("NULL");
        text += &pair("key", &format!("{} = {value} ({})", key.column, key.ty));
    }
    // Of a table without a key nothing was chosen.
    for step in route.steps.iter().filter(|_| !route.key.is_empty()) {
        text += &of_step(route.spread, step);
    }
    for placement in &route.placements {
        text += &pair("node", &node(placement));
        text += &pair("relation", &placement.relation);
    }
    match (&route.why, route.placements.is_empty()) {
        (Some(why), true) if route.spread == Spread::CitusAppend => text += &wrapped("anywhere", why),
        (Some(why), true) => text += &wrapped("nowhere", why),
        (None, _) => text += &pair("a load", "sends it straight there"),
        // There is no other way to what is here as a whole.
        (Some(_), false) if route.spread == Spread::None => {}
        (Some(why), false) => {
            text += &wrapped("a load", &format!("sends it to the server that was asked: {why}"));
        }
    }
    text
}

fn spread(route: &Route) -> String {
    let by = route.by.as_deref().unwrap_or("no key");
    match route.spread {
        Spread::CitusHash | Spread::CitusRange => format!("distributed by Citus, by {by}"),
        Spread::CitusAppend => "distributed by Citus, by append".into(),
        Spread::CitusSingle => "one shard of Citus, without a key".into(),
        Spread::CitusReference => "a reference table of Citus: every node has a copy".into(),
        Spread::CitusLocal => "a local table of Citus".into(),
        Spread::Partitions => format!("partitioned by {by}"),
        _ => "on this server as a whole, without a key".into(),
    }
}

fn of_step(spread: Spread, step: &Step) -> String {
    let mut text = String::new();
    if let Some(hash) = &step.hash {
        text += &pair("hash", &format!("{} ({} bits)", hash.value, hash.bits));
    }
    let what = if spread == Spread::Partitions { "partition" } else { "shard" };
    match &step.chosen {
        None => text += &pair(what, &format!("none of {}", grouped(step.of as u64))),
        Some(chosen) => {
            // The name of a shard comes with its node.
            let name = if what == "shard" { chosen.id.to_string() } else { chosen.name.clone() };
            text += &pair(what, &format!("{name}, one of {}", grouped(step.of as u64)));
            if let Some(takes) = &chosen.takes {
                text += &pair("takes", takes);
            }
        }
    }
    text += &pair("found by", &step.found);
    if !step.checked.is_empty() {
        text += &wrapped("checked by", &step.checked.join(", "));
    }
    text
}

fn node(placement: &Placement) -> String {
    match (&placement.host, placement.port) {
        (Some(host), Some(port)) if placement.node != format!("{host}:{port}") => {
            format!("{} ({host}:{port})", placement.node)
        }
        (None, _) if placement.node == "coordinator" => "the server that was asked".into(),
        _ => placement.node.clone(),
    }
}
