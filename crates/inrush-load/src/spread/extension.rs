//! Whether rows can go to the extension of the nodes, in the layout of their heaps.

use crate::direct::without_server;
use crate::feed::columns_of;
use crate::options::{Options, Via};
use crate::plan::{Plan, WirePath};
use inrush_cluster::{Fill, Visits};
use inrush_core::Result;
use inrush_encode::frames::{FrameEncoder, FrameLayout};
use std::sync::Arc;

/// Takes the way if every node has the extension and all places take the same frames. Gives why not, where that is worth
/// a word.
pub(super) async fn choose(
    options: &Options,
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
    if plan.inputs.iter().any(|input| input.columnar.is_some()) {
        return Ok(Some("inputs with columns are routed by their rows in COPY binary".into()));
    }
    if let Some(why) = without_server(options, plan) {
        return Ok(Some(why));
    }
    let mut layouts: Vec<FrameLayout> = Vec::new();
    for shape in &plan.shapes {
        match visits.layout(&shape.names()).await? {
            Ok(Some(layout)) => layouts.push(layout),
            Ok(None) => return Ok(None),
            Err(why) => return Ok(Some(why)),
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
