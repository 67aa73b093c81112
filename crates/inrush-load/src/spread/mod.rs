//! A load whose rows go straight to the nodes that they belong on: what [`inrush_cluster::Scatter`] has to know of it.

mod careful;
mod choose;
mod extension;
mod lane;
mod settle;

pub(crate) use choose::choose;
pub(crate) use lane::scatter;
pub(crate) use settle::{audit, misplaced, settle};

use inrush_cluster::{Aim, Ending, Fill, NodeMap};
use std::sync::Arc;

/// Of a plan, what rows that are sent to nodes need.
pub(crate) struct SpreadPlan {
    pub aim: Arc<Aim>,
    /// Settings that decide what text means, for sessions on nodes.
    pub settings: Vec<(String, String)>,
    /// By shape, the columns that the coordinator fills.
    pub fills: Vec<Arc<Vec<Fill>>>,
    pub map: NodeMap,
    pub ending: Ending,
}
