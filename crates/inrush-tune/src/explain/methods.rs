//! How the planner is brought to scan a table in one way, and how one sees that it does.

use super::Method;
use super::estimate::bitmap_pages;
use super::plan::{Access, Node, TableScan};
use super::session::Setup;
use super::target::Target;

/// The figures of the scans of the target in one plan, run or not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Scanned {
    /// Names of the indexes, in order.
    pub(super) indexes: Vec<(String, String)>,
    /// The planner's cost of these nodes, for as often as it expects them to run once: 0 for those inside of
    /// a loop.
    pub(super) cost: f64,
    pub(super) rows_estimated: f64,
    pub(super) rows: f64,
    /// Pages of the table that the planner expects from bitmaps.
    pub(super) pages_estimated: f64,
    pub(super) exact: u64,
    pub(super) lossy: u64,
    pub(super) rechecked: u64,
    pub(super) heap_fetches: u64,
    /// Blocks that bitmaps were made from, found and read.
    pub(super) index_blocks: u64,
    /// Blocks of the nodes that were found in shared buffers, indexes included.
    pub(super) found: u64,
    /// The same of those that were read into them.
    pub(super) read: u64,
    /// Whether a node ran more than once, or is scanned by more than one node for each relation.
    pub(super) repeated: bool,
}

impl Method {
    pub(super) const ALL: [Method; 5] =
        [Method::Sequential, Method::Index, Method::IndexOnly, Method::Bitmap, Method::Brin];

    /// What makes the planner take it wherever it can (PostgreSQL 15 to 18: costs of what is off are raised,
    /// or it is taken as the last choice). `harder`: more than that, for BRIN.
    ///
    /// Of indexes that answer the same conditions a bitmap is made from the one that is cheaper to read,
    /// whatever it names (indxpath.c, choose_bitmap_and). Reading a BRIN index has no cpu_index_tuple_cost,
    /// any other has (selfuncs.c, brincostestimate, genericcostestimate): raised, BRIN is taken, at a cost
    /// that is not touched. The other way round there is no such setting.
    pub(super) fn setup(self, harder: bool) -> Setup {
        let on = |yes: bool| if yes { "on" } else { "off" };
        let bitmap = matches!(self, Method::Bitmap | Method::Brin);
        let setup = Setup::default()
            .with("enable_seqscan", on(self == Method::Sequential))
            .with("enable_indexscan", on(matches!(self, Method::Index | Method::IndexOnly)))
            .with("enable_indexonlyscan", on(self == Method::IndexOnly))
            .with("enable_bitmapscan", on(bitmap))
            .with("enable_tidscan", "off");
        match self {
            Method::Brin if harder => setup.with("cpu_index_tuple_cost", "1000000"),
            _ => setup,
        }
    }

    /// How one scan reads its table.
    pub(super) fn of(scan: &TableScan<'_>, target: &Target) -> Option<Method> {
        match scan.access {
            Access::Sequential => Some(Method::Sequential),
            Access::Index => Some(Method::Index),
            Access::IndexOnly => Some(Method::IndexOnly),
            Access::BitmapHeap => {
                let brin =
                    |name: &&str| target.index(scan.schema, name).is_some_and(|one| one.method == "brin");
                Some(if scan.indexes.iter().all(brin) { Method::Brin } else { Method::Bitmap })
            }
            Access::Other => None,
        }
    }
}

/// How the plan scans the target: one method, or why it is not one.
pub(super) fn method_of(top: &Node, target: &Target) -> Result<Method, String> {
    let mut found: Vec<Method> = Vec::new();
    for scan in top.scans().iter().filter(|scan| target.has(scan.schema, scan.table)) {
        match Method::of(scan, target) {
            Some(method) if !found.contains(&method) => found.push(method),
            Some(_) => {}
            None => return Err(format!("it is read by a {}", scan.node.kind())),
        }
    }
    match found.as_slice() {
        [] => Err("the plan does not scan it".to_owned()),
        [one] => Ok(*one),
        several => {
            let names: Vec<&str> = several.iter().map(|method| method.name()).collect();
            Err(format!("its scans are of several kinds ({})", names.join(", ")))
        }
    }
}

/// Sums up the scans of the target.
pub(super) fn scanned(top: &Node, target: &Target) -> Scanned {
    let mut all = Scanned::default();
    let scans: Vec<TableScan<'_>> =
        top.scans().into_iter().filter(|scan| target.has(scan.schema, scan.table)).collect();
    for (i, scan) in scans.iter().enumerate() {
        let node = scan.node;
        let loops = node.loops();
        let twice = scans[..i].iter().any(|other| (other.schema, other.table) == (scan.schema, scan.table));
        all.repeated |= loops > 1.0 || twice;
        all.cost += node.number("Total Cost").unwrap_or(0.0);
        all.rows_estimated += node.number("Plan Rows").unwrap_or(0.0);
        all.rows += node.number("Actual Rows").unwrap_or(0.0) * loops;
        all.exact += node.count("Exact Heap Blocks");
        all.lossy += node.count("Lossy Heap Blocks");
        all.heap_fetches += node.count("Heap Fetches");
        // An average over loops, as are rows.
        all.rechecked += times(node.count("Rows Removed by Index Recheck"), loops);
        let (hit, read) = node.shared();
        all.found += hit;
        all.read += read;
        if scan.access == Access::BitmapHeap {
            for child in node.children() {
                let (hit, read) = child.shared();
                all.index_blocks += hit + read;
                let rows = child.number("Plan Rows").unwrap_or(0.0);
                all.pages_estimated += bitmap_pages(target.pages_of(scan.schema, scan.table), rows);
            }
        }
        for index in &scan.indexes {
            let index = (scan.schema.to_owned(), (*index).to_owned());
            if !all.indexes.contains(&index) {
                all.indexes.push(index);
            }
        }
    }
    all.indexes.sort();
    all
}

// counts of rows
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn times(n: u64, loops: f64) -> u64 {
    (n as f64 * loops.max(0.0)).round() as u64
}
