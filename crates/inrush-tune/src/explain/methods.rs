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
    /// Rows that the planner expects of all loops that there were, and of all workers together.
    pub(super) rows_estimated: f64,
    pub(super) rows: f64,
    /// Pages of the table that the planner expects from bitmaps, of one loop.
    pub(super) pages_estimated: f64,
    /// Pages of bitmaps; `None` without a bitmap, and where the server does not tell those of workers (up to
    /// PostgreSQL 17).
    pub(super) exact: Option<u64>,
    pub(super) lossy: Option<u64>,
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
    /// Whether a node may not have been run to its end, since nothing above it asked for more.
    pub(super) stops_early: bool,
    /// Parallel workers that the plan asks for.
    pub(super) workers: u64,
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
    /// that is not touched; that of other indexes in the plan is. The other way round there is no such
    /// setting.
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

/// What a plan is beside the scans of the target: its shape, and how it reads other tables.
pub(super) fn rest(top: &Node, target: &Target) -> Vec<String> {
    let others = top.scans().into_iter().filter(|scan| !target.has(scan.schema, scan.table));
    let read = others.map(|scan| format!("{:?} {:?}", scan.access, scan.indexes));
    std::iter::once(top.shape()).chain(read).collect()
}

/// Sums up the scans of the target.
pub(super) fn scanned(top: &Node, target: &Target) -> Scanned {
    let mut places = Vec::new();
    above(top, Above::default(), &mut places);
    let workers = places.iter().map(|(_, above)| above.workers).max().unwrap_or(0);
    let mut all = Scanned { workers, ..Scanned::default() };
    let mut bitmaps: Option<(u64, u64)> = Some((0, 0));
    let mut has_bitmap = false;
    let scans: Vec<TableScan<'_>> =
        top.scans().into_iter().filter(|scan| target.has(scan.schema, scan.table)).collect();
    for (i, scan) in scans.iter().enumerate() {
        let node = scan.node;
        let loops = node.loops();
        let place = places.iter().find(|(other, _)| std::ptr::eq(*other, node));
        let Above { workers, stops_early } = place.map(|(_, above)| *above).unwrap_or_default();
        // What is parallel-aware is shared out: each process runs a part of it, and Actual Rows is the
        // average.
        let shared_out = workers > 0 && node.is("Parallel Aware");
        let once = if shared_out { float(workers) + 1.0 } else { 1.0 };
        let twice = scans[..i].iter().any(|other| (other.schema, other.table) == (scan.schema, scan.table));
        all.repeated |= loops > once || twice;
        all.stops_early |= stops_early || node.number("Actual Loops") == Some(0.0);
        all.cost += node.number("Total Cost").unwrap_or(0.0);
        let expected = if shared_out { parallel_divisor(workers) } else { loops.max(1.0) };
        all.rows_estimated += node.number("Plan Rows").unwrap_or(0.0) * expected;
        all.rows += node.number("Actual Rows").unwrap_or(0.0) * loops;
        all.heap_fetches += node.count("Heap Fetches");
        // An average over loops, as are rows.
        all.rechecked += times(node.count("Rows Removed by Index Recheck"), loops);
        let (hit, read) = node.shared();
        all.found += hit;
        all.read += read;
        if scan.access == Access::BitmapHeap {
            has_bitmap = true;
            bitmaps = bitmaps.and_then(|(exact, lossy)| {
                let of = |name: &str| Some(node.count(name) + node.of_workers(name)?);
                Some((exact + of("Exact Heap Blocks")?, lossy + of("Lossy Heap Blocks")?))
            });
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
    (all.exact, all.lossy) = bitmaps.filter(|_| has_bitmap).unzip();
    all.indexes.sort();
    all
}

/// What stands above a node.
#[derive(Debug, Clone, Copy, Default)]
struct Above {
    /// Parallel workers of the Gather.
    workers: u64,
    /// Whether it may be asked for fewer rows than it has.
    stops_early: bool,
}

/// The nodes of a plan, each with what stands above it.
fn above<'a>(node: &'a Node, from: Above, into: &mut Vec<(&'a Node, Above)>) {
    into.push((node, from));
    for child in node.children() {
        let workers =
            if node.kind().starts_with("Gather") { node.count("Workers Planned") } else { from.workers };
        let stops_early = wants_no_more(node, child).unwrap_or(from.stops_early);
        above(child, Above { workers, stops_early }, into);
    }
}

/// Whether a node may end before it has asked its child for every row; `None` if that is as with the node
/// itself.
fn wants_no_more(node: &Node, child: &Node) -> Option<bool> {
    let relation = child.text("Parent Relationship").unwrap_or_default();
    // EXISTS wants one row. What else there may be is not told apart in a plan.
    if relation == "SubPlan" || relation == "InitPlan" {
        return Some(true);
    }
    let inner = relation == "Inner";
    let join = node.text("Join Type").unwrap_or_default();
    match node.kind() {
        "Limit" => Some(true),
        // It ends when either side does.
        "Merge Join" => Some(true),
        "Nested Loop" if inner && (["Semi", "Anti"].contains(&join) || node.is("Inner Unique")) => Some(true),
        // Without rows in its table it does not ask for more.
        "Hash Join" if !inner => node
            .children()
            .iter()
            .any(|hash| hash.loops() > 0.0 && hash.number("Actual Rows").is_some_and(|rows| rows <= 0.0))
            .then_some(true),
        "WindowAgg" if node.text("Run Condition").is_some() => Some(true),
        // They have every row of their input before they give one.
        "Sort" | "Hash" => Some(false),
        "Aggregate" if ["Plain", "Hashed"].contains(&node.text("Strategy").unwrap_or_default()) => {
            Some(false)
        }
        _ => None,
    }
}

/// By how much the planner divides the rows of what is shared out among workers (costsize.c,
/// get_parallel_divisor), with parallel_leader_participation as the server comes.
fn parallel_divisor(workers: u64) -> f64 {
    float(workers) + (1.0 - 0.3 * float(workers)).max(0.0)
}

#[allow(clippy::cast_precision_loss)] // workers
fn float(n: u64) -> f64 {
    n as f64
}

// counts of rows
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn times(n: u64, loops: f64) -> u64 {
    (n as f64 * loops.max(0.0)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::explained;
    use super::*;
    use serde_json::{Value, json};

    fn scan(kind: &str, relation: &str) -> Value {
        json!({ "Node Type": kind, "Parent Relationship": relation, "Schema": "s", "Relation Name": "t" })
    }

    /// Whether the last scan of a plan may end early.
    fn early(plan: &Value) -> bool {
        let plan = explained(plan);
        let mut places = Vec::new();
        above(&plan.top, Above::default(), &mut places);
        places.last().expect("a node").1.stops_early
    }

    #[test]
    fn what_ends_a_scan_early() {
        let outer = scan("Seq Scan", "Outer");
        let above = |kind: &str, more: Value| {
            let mut node = json!({ "Node Type": kind, "Plans": [outer.clone()] });
            node.as_object_mut().expect("a node").extend(more.as_object().expect("fields").clone());
            node
        };
        assert!(!early(&outer) && !early(&above("Unique", json!({}))));
        assert!(early(&above("Limit", json!({}))) && early(&above("Merge Join", json!({}))));
        let limited = |inner: Value| early(&json!({ "Node Type": "Limit", "Plans": [inner] }));
        assert!(limited(above("Gather", json!({}))));
        assert!(limited(above("Aggregate", json!({ "Strategy": "Sorted" }))));
        assert!(!limited(above("Aggregate", json!({ "Strategy": "Hashed" }))));
        assert!(!limited(above("Sort", json!({}))));
        assert!(early(&above("WindowAgg", json!({ "Run Condition": "(row_number() <= 3)" }))));
    }

    #[test]
    fn joins_that_end_a_scan_early() {
        let join = |kind: &str, how: &str, unique: bool, inner: Value| {
            early(&json!({ "Node Type": kind, "Join Type": how, "Inner Unique": unique,
                           "Plans": [scan("Seq Scan", "Outer"), inner] }))
        };
        let inner = || scan("Index Scan", "Inner");
        assert!(!join("Nested Loop", "Inner", false, inner()) && join("Nested Loop", "Inner", true, inner()));
        assert!(join("Nested Loop", "Semi", false, inner()) && join("Nested Loop", "Anti", false, inner()));
        let of_expression = scan("Seq Scan", "SubPlan");
        assert!(early(&json!({ "Node Type": "Result", "Plans": [of_expression] })));
        // The outer side of a hash join, whose table turns out to have no rows.
        let hash = |rows: f64| {
            let hash = json!({ "Node Type": "Hash", "Parent Relationship": "Inner", "Actual Rows": rows,
                               "Actual Loops": 1 });
            early(&json!({ "Node Type": "Hash Join", "Plans": [hash, scan("Seq Scan", "Outer")] }))
        };
        assert!(hash(0.0) && !hash(1.0));
    }

    #[test]
    fn other_tables_are_part_of_the_rest() {
        let target = Target::default();
        let rest = |kind: &str, index: &str| {
            let mut scan = scan(kind, "Outer");
            scan["Index Name"] = index.into();
            super::rest(&explained(&json!({ "Node Type": "Aggregate", "Plans": [scan] })).top, &target)
        };
        assert_eq!(rest("Index Scan", "a"), rest("Index Scan", "a"));
        assert_ne!(rest("Index Scan", "a"), rest("Index Scan", "b"));
        assert_ne!(rest("Index Scan", "a"), rest("Index Only Scan", "a"));
        // The shape alone does not tell.
        assert_eq!(rest("Index Scan", "a")[0], rest("Seq Scan", "a")[0]);
        assert_ne!(rest("Index Scan", "a"), rest("Seq Scan", "a"));
    }

    #[test]
    fn rows_of_a_worker() {
        // The leader does three tenths less for each worker.
        let said = [1, 2, 3, 4].map(parallel_divisor);
        assert!(said.iter().zip([1.7, 2.4, 3.1, 4.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{said:?}");
    }
}
