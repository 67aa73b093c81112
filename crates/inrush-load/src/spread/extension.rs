//! Whether rows can go to the extension of the nodes, in the layout of their heaps.

use crate::direct::without_server;
use crate::feed::columns_of;
use crate::options::{Options, Via};
use crate::plan::{Plan, WirePath};
use inrush_cluster::{Fill, Map, Topology, Visits};
use inrush_core::Result;
use inrush_encode::frames::{FrameEncoder, FrameLayout};
use inrush_sink::catalog::direct::{IS_THERE, LOAD_LIBRARY, plan_of};
use inrush_sink::failure::server_error;
use std::sync::Arc;

/// Takes the way if every node has the extension and all places take the same frames. Gives why not, where that is worth
/// a word.
pub(super) async fn choose(
    options: &Options,
    topology: &Topology,
    visits: &mut Visits<'_>,
    fills: &[Arc<Vec<Fill>>],
    plan: &mut Plan,
) -> Result<Option<String>> {
    if options.via != Via::Auto || plan.path == WirePath::CopyText {
        return Ok(None);
    }
    if fills.iter().any(|fills| !fills.is_empty()) {
        return Ok(Some("the coordinator fills columns".into()));
    }
    if matches!(topology.map, Map::Ranges(_)) {
        return Ok(Some("partitions are by range".into()));
    }
    if plan.inputs.iter().any(|input| input.columnar.is_some()) {
        return Ok(Some("inputs with columns are routed by their rows in COPY binary".into()));
    }
    if let Some(why) = without_server(options, plan) {
        return Ok(Some(why));
    }
    let mut layouts: Vec<FrameLayout> = Vec::new();
    for number in 0..topology.nodes.len() {
        let client = visits.node(number).await?;
        let there = client.query_one(&format!("SELECT {IS_THERE}"), &[]).await.map_err(server_error)?;
        if !there.get::<_, bool>(0) {
            return Ok(None);
        }
        client.batch_execute(LOAD_LIBRARY).await.map_err(server_error)?;
        for place in topology.places.iter().filter(|place| place.node == number) {
            for (shape_number, shape) in plan.shapes.iter().enumerate() {
                let names: Vec<&str> =
                    shape.columns.iter().map(|column| place.column(&column.name)).collect();
                let layout = FrameLayout::parse(&plan_of(client, &place.qualified(), &names).await?)?;
                if let Some(refusal) = layout.refusal {
                    return Ok(Some(format!("{} ({})", refusal.code, refusal.detail)));
                }
                if !layout.enums().is_empty() || !place.renamed.is_empty() {
                    return Ok(Some("enums and columns of other names differ from node to node".into()));
                }
                match layouts.get(shape_number) {
                    None => layouts.push(layout),
                    Some(first) if first.fingerprint == layout.fingerprint => {}
                    Some(_) => {
                        return Ok(Some(format!("{} is laid out otherwise than others", place.qualified())));
                    }
                }
            }
        }
    }
    for input in &plan.inputs {
        let names = plan.shapes[input.shape].names();
        let columns = columns_of(plan, input, &input.sources);
        if let Err(unsupported) = FrameEncoder::new(&layouts[input.shape], &names, &columns, &plan.session) {
            return Ok(Some(unsupported.to_string()));
        }
    }
    plan.layouts = layouts.into_iter().map(Arc::new).collect();
    plan.path = WirePath::Direct;
    plan.path_reason = "the nodes have the extension, and the table qualifies".into();
    Ok(None)
}
