//! The tables that rows go into: what they look like, and which leaf takes which row.

mod registry;
mod shape;
mod way;

pub(crate) use registry::{AHEAD, Registry, Settings, peek};
pub(crate) use shape::{Shape, Wish, is_line_time};
pub(crate) use way::{Nodes, Way, Ways};

use inrush_core::{Table, quote_ident};
use inrush_route::HashKind;
use inrush_windows::{TimeKind, Windowed};
use std::collections::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A table that COPY names: a plain one, a leaf, or a parent that takes what could not be told apart here.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub relid: u32,
    /// As SQL names it.
    pub qualified: String,
    /// As errors of COPY name it.
    pub name: String,
    pub unlogged: bool,
    /// Which of the leaves of its window.
    pub number: u32,
    /// Whether FORMAT inrush may be asked of it.
    pub may_be_direct: bool,
}

/// A table as it was when it was last looked at.
#[derive(Debug)]
pub(crate) struct Target {
    /// What it is known by.
    pub key: String,
    /// As the input named it.
    pub asked: String,
    pub table: Table,
    /// The table itself.
    pub root: Arc<Leaf>,
    pub windows: Option<Windows>,
    pub way: Way,
    pub session: inrush_encode::Session,
    /// Spreads tables over lanes.
    hash: u64,
    /// Grows with each look that found something else.
    pub version: u64,
}

/// What there is more of a table with windows.
#[derive(Debug)]
pub(crate) struct Windows {
    pub windowed: Windowed,
    pub leaves: HashMap<u32, Arc<Leaf>>,
    pub overflow: Option<Arc<Leaf>>,
    /// The key by which a window is spread over leaves.
    pub key: Option<Key>,
}

/// The key of hash partitions.
#[derive(Debug)]
pub(crate) struct Key {
    pub column: String,
    /// None where it is not known here how the server hashes it.
    pub hash: Option<HashKind>,
}

impl Target {
    /// Whether its rows are lost if the database crashes.
    pub fn unlogged(&self) -> bool {
        match &self.windows {
            Some(windows) => windows.windowed.policy.unlogged,
            None => self.table.unlogged,
        }
    }

    /// The lane of a leaf, of so many. Depends on nothing that changes while the table is there: rows that are read
    /// again come to the same lane.
    pub fn lane(&self, leaf: u32, lanes: usize) -> usize {
        let lanes = lanes.max(1) as u64;
        // The remainder is less than the number of lanes, which is a usize.
        #[allow(clippy::cast_possible_truncation)]
        let lane = (self.hash.wrapping_add(u64::from(leaf)) % lanes) as usize;
        lane
    }

    pub fn new(
        key: String,
        asked: &str,
        table: Table,
        windowed: Option<Windowed>,
        way: Way,
        session: inrush_encode::Session,
        version: u64,
    ) -> Target {
        let qualified = table.qualified();
        let windows = windowed.map(|windowed| {
            let unlogged = windowed.policy.unlogged;
            let leaf = |leaf: &inrush_windows::Leaf| {
                Arc::new(Leaf {
                    relid: leaf.relid,
                    qualified: format!("{}.{}", quote_ident(&leaf.schema), quote_ident(&leaf.name)),
                    name: leaf.name.clone(),
                    unlogged,
                    number: leaf.lane,
                    may_be_direct: true,
                })
            };
            let all = windowed.windows.iter().flat_map(|window| &window.leaves);
            let leaves = all.map(|l| (l.relid, leaf(l))).collect();
            let overflow = windowed.overflow.as_ref().map(leaf);
            let key = windowed.policy.key_column.as_ref().map(|column| Key {
                hash: table.column(column).and_then(|column| HashKind::of(&column.ty, column.typmod)),
                column: column.clone(),
            });
            Windows { windowed, leaves, overflow, key }
        });
        let root = Arc::new(Leaf {
            relid: table.oid,
            qualified: qualified.clone(),
            name: table.name.clone(),
            unlogged: table.unlogged,
            number: 0,
            may_be_direct: match &way {
                Way::Here => windows.is_none(),
                Way::Nodes(nodes) => nodes.text.is_none(),
                Way::Coordinator(_) => false,
            },
        });
        Target {
            key,
            asked: asked.to_owned(),
            hash: xxh3_64(qualified.as_bytes()),
            table,
            root,
            windows,
            way,
            session,
            version,
        }
    }
}

/// An instant in the binary form of a time column.
pub(crate) fn instant(kind: TimeKind, binary: &[u8]) -> Option<i64> {
    match kind {
        TimeKind::Timestamptz | TimeKind::Timestamp | TimeKind::Bigint => {
            binary.try_into().ok().map(i64::from_be_bytes)
        }
        TimeKind::Date => binary.try_into().ok().map(|four| i64::from(i32::from_be_bytes(four))),
    }
}
