//! The leaves that a reader has met, and what writes their rows.
//!
//! Splitters share leaves: counting references to one for every row would have their cores take the counter from each
//! other. Rows name a leaf by its number here.

use crate::part::Batch;
use crate::target::{Leaf, Target};
use inrush_core::Record;
use inrush_encode::RowEncoder;
use inrush_encode::frames::BlockWriter;
use inrush_sink::copy::WireFormat;
use std::collections::HashMap;
use std::sync::Arc;

/// Leaves of one table.
#[derive(Default)]
pub(super) struct Leaves {
    met: Vec<Met>,
    by_relid: HashMap<u32, usize>,
    last: usize,
}

pub(super) struct Met {
    pub leaf: Arc<Leaf>,
    pub writer: Option<LeafWriter>,
}

/// Encodes rows for a leaf.
pub(super) struct LeafWriter {
    pub encoder: Box<dyn RowEncoder>,
    pub wire: WireFormat,
    pub blocks: Option<BlockWriter>,
}

impl LeafWriter {
    /// Appends a row to a batch. `false` if it has to go as text.
    pub fn write(&mut self, record: &Record<'_>, batch: &mut Batch) -> bool {
        self.encoder.row(record, &mut batch.open).is_ok()
    }
}

impl Leaves {
    /// The number of a leaf; `find` finds it when it is met for the first time.
    pub fn number(&mut self, relid: u32, find: impl FnOnce() -> Option<Arc<Leaf>>) -> Option<usize> {
        // Most rows go where the one before went.
        if self.met.get(self.last).is_some_and(|met| met.leaf.relid == relid) {
            return Some(self.last);
        }
        self.last = match self.by_relid.get(&relid) {
            Some(at) => *at,
            None => {
                self.met.push(Met { leaf: find()?, writer: None });
                self.by_relid.insert(relid, self.met.len() - 1);
                self.met.len() - 1
            }
        };
        Some(self.last)
    }

    /// The leaf of a number that [`Leaves::number`] gave.
    pub fn get(&self, number: usize) -> Option<&Met> {
        self.met.get(number)
    }

    pub fn get_mut(&mut self, number: usize) -> Option<&mut Met> {
        self.met.get_mut(number)
    }

    /// Goes on with the table as it is now. Numbers given before are void.
    pub fn follow(&mut self, target: &Target) {
        let now = |relid: u32| match &target.windows {
            _ if relid == target.root.relid => Some(&target.root),
            Some(windows) => {
                windows.leaves.get(&relid).or(windows.overflow.as_ref().filter(|o| o.relid == relid))
            }
            None => None,
        };
        self.met.retain_mut(|met| match now(met.leaf.relid) {
            Some(leaf) => {
                met.leaf = Arc::clone(leaf);
                // The server may want its frames otherwise by now.
                met.writer = met.writer.take().filter(|writer| writer.wire != WireFormat::Direct);
                true
            }
            None => false,
        });
        self.by_relid = self.met.iter().enumerate().map(|(at, met)| (met.leaf.relid, at)).collect();
        self.last = 0;
    }
}
