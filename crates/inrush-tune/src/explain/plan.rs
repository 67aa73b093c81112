//! What EXPLAIN (FORMAT JSON) says, as far as scans of tables are concerned.

use inrush_core::{Code, Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The plan of a query, and if it was run what it took.
#[derive(Debug, Clone)]
pub(super) struct Explained {
    /// The top node.
    pub(super) top: Node,
    /// Settings that have to do with planning and are not as the server comes.
    pub(super) settings: BTreeMap<String, String>,
    /// Seconds of the run by the server's clock.
    pub(super) execution_seconds: Option<f64>,
    /// Seconds from sending the statement to its answer, planning included.
    pub(super) wall_seconds: f64,
}

/// A node of a plan.
#[derive(Debug, Clone)]
pub(super) struct Node {
    fields: serde_json::Map<String, Value>,
    children: Vec<Node>,
}

/// How one node reads a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Sequential,
    Index,
    IndexOnly,
    BitmapHeap,
    /// By tuple ids, or a sample: not studied.
    Other,
}

/// A node that reads a table.
#[derive(Debug, Clone)]
pub(super) struct TableScan<'a> {
    pub(super) access: Access,
    pub(super) schema: &'a str,
    pub(super) table: &'a str,
    /// Names of the indexes it uses, in the schema of the table.
    pub(super) indexes: Vec<&'a str>,
    pub(super) node: &'a Node,
}

/// Fields of a node that hold names and key words, no expressions.
const NO_EXPRESSIONS: &[&str] = &[
    "Node Type",
    "Parent Relationship",
    "Join Type",
    "Strategy",
    "Partial Mode",
    "Scan Direction",
    "Command",
    "Operation",
    "Subplan Name",
    "CTE Name",
    "Relation Name",
    "Schema",
    "Alias",
    "Index Name",
    "Function Name",
    "Sort Method",
    "Sort Space Type",
];

impl Explained {
    /// Reads the answer of the server.
    ///
    /// # Errors
    /// `server` for something that is no plan.
    pub(super) fn read(answer: Value, wall: Duration) -> Result<Explained> {
        let no_plan = || Error::new(Code::Server, "the server's EXPLAIN has no plan");
        let mut outer = match answer {
            Value::Array(mut list) if !list.is_empty() => list.swap_remove(0),
            _ => return Err(no_plan()),
        };
        let execution = outer.get("Execution Time").and_then(Value::as_f64).map(|ms| ms / 1e3);
        let top = outer.get_mut("Plan").map(Value::take).and_then(Node::read).ok_or_else(no_plan)?;
        let setting = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let settings = outer.get("Settings").and_then(Value::as_object);
        let settings = settings.map(|all| all.iter().filter_map(setting).collect()).unwrap_or_default();
        Ok(Explained { top, settings, execution_seconds: execution, wall_seconds: wall.as_secs_f64() })
    }
}

impl Node {
    fn read(value: Value) -> Option<Node> {
        let Value::Object(mut fields) = value else { return None };
        let children = match fields.remove("Plans") {
            Some(Value::Array(plans)) => plans.into_iter().map(Node::read).collect::<Option<_>>()?,
            _ => Vec::new(),
        };
        Some(Node { fields, children })
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.fields.get(name)?.as_f64()
    }

    /// A count; 0 where the server says nothing.
    // counts; PostgreSQL 18 has fractions of rows
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn count(&self, name: &str) -> u64 {
        self.number(name).map_or(0, |n| n.max(0.0).round() as u64)
    }

    pub(super) fn kind(&self) -> &str {
        self.text("Node Type").unwrap_or_default()
    }

    /// How often the node ran: averages have to be multiplied by it.
    pub(super) fn loops(&self) -> f64 {
        self.number("Actual Loops").unwrap_or(0.0)
    }

    /// Blocks found in shared buffers and blocks read into them, children included.
    pub(super) fn shared(&self) -> (u64, u64) {
        (self.count("Shared Hit Blocks"), self.count("Shared Read Blocks"))
    }

    pub(super) fn children(&self) -> &[Node] {
        &self.children
    }

    /// Whether something is said of the node, and true.
    pub(super) fn is(&self, name: &str) -> bool {
        self.fields.get(name).and_then(Value::as_bool) == Some(true)
    }

    /// A count that parallel workers have each for themselves, summed up; `None` where one has none.
    pub(super) fn of_workers(&self, name: &str) -> Option<u64> {
        let workers = self.fields.get("Workers").and_then(Value::as_array);
        workers.into_iter().flatten().map(|worker| worker.get(name)?.as_u64()).sum()
    }

    /// This node and all below it, the top first.
    pub(super) fn all(&self) -> Vec<&Node> {
        let mut all = vec![self];
        let mut next = 0;
        while let Some(node) = all.get(next).copied() {
            all.extend(&node.children);
            next += 1;
        }
        all
    }

    /// The nodes that read tables.
    pub(super) fn scans(&self) -> Vec<TableScan<'_>> {
        self.all().into_iter().filter_map(Node::scan).collect()
    }

    fn scan(&self) -> Option<TableScan<'_>> {
        let access = match self.kind() {
            "Seq Scan" => Access::Sequential,
            "Index Scan" => Access::Index,
            "Index Only Scan" => Access::IndexOnly,
            "Bitmap Heap Scan" => Access::BitmapHeap,
            "Tid Scan" | "Tid Range Scan" | "Sample Scan" => Access::Other,
            _ => return None,
        };
        let mut indexes: Vec<&str> = match access {
            Access::BitmapHeap => self.children.iter().flat_map(Node::bitmap_indexes).collect(),
            _ => self.text("Index Name").into_iter().collect(),
        };
        indexes.sort_unstable();
        indexes.dedup();
        Some(TableScan {
            access,
            schema: self.text("Schema")?,
            table: self.text("Relation Name")?,
            indexes,
            node: self,
        })
    }

    /// The indexes of a tree of bitmaps.
    fn bitmap_indexes(&self) -> Vec<&str> {
        let own = self.text("Index Name").into_iter();
        own.chain(self.children.iter().flat_map(Node::bitmap_indexes)).collect()
    }

    /// Texts that may hold expressions, of this node and all below it.
    pub(super) fn expressions(&self) -> Vec<&str> {
        fn strings<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
            match value {
                Value::String(text) => into.push(text),
                Value::Array(list) => list.iter().for_each(|one| strings(one, into)),
                Value::Object(fields) => fields.values().for_each(|one| strings(one, into)),
                _ => {}
            }
        }
        let mut texts = Vec::new();
        for node in self.all() {
            let fields = node.fields.iter().filter(|(name, _)| !NO_EXPRESSIONS.contains(&name.as_str()));
            fields.for_each(|(_, value)| strings(value, &mut texts));
        }
        texts
    }

    /// The shape of the plan outside the scans of tables: two plans with one shape differ in their scans
    /// only. Sorts and gathers that a scan makes needless are part of it.
    pub(super) fn shape(&self) -> String {
        if let Some(scan) = self.scan() {
            return format!("scan {}.{}", scan.schema, scan.table);
        }
        let inner: Vec<String> = self.children.iter().map(Node::shape).collect();
        format!("{} {}({})", self.kind(), self.text("Join Type").unwrap_or_default(), inner.join(", "))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::explain) fn explained(plan: &Value) -> Explained {
        let answer = json!([{ "Plan": plan, "Execution Time": 12.5 }]);
        Explained::read(answer, Duration::from_millis(20)).expect("a plan")
    }

    #[test]
    fn scans_are_found_with_their_indexes() {
        let plan = explained(&json!({
            "Node Type": "Aggregate", "Output": ["count(*)"], "Plans": [
                { "Node Type": "Bitmap Heap Scan", "Schema": "s", "Relation Name": "t", "Alias": "f(x)",
                  "Recheck Cond": "(lower(a) = 'x'::text)", "Plans": [
                    { "Node Type": "BitmapAnd", "Plans": [
                        { "Node Type": "Bitmap Index Scan", "Index Name": "b" },
                        { "Node Type": "Bitmap Index Scan", "Index Name": "a" } ] } ] } ] }));
        assert!((plan.execution_seconds.unwrap() - 0.0125).abs() < 1e-9);
        let scans = plan.top.scans();
        assert_eq!(scans.len(), 1);
        assert_eq!((scans[0].access, scans[0].indexes.as_slice()), (Access::BitmapHeap, &["a", "b"][..]));
        assert_eq!(plan.top.shape(), "Aggregate (scan s.t)");
        // Names are no expressions.
        let mut texts = plan.top.expressions();
        texts.sort_unstable();
        assert_eq!(texts, ["(lower(a) = 'x'::text)", "count(*)"]);
    }

    #[test]
    fn what_is_no_plan_is_an_error() {
        for answer in [json!([]), json!({}), json!([{ "Plan": 1 }]), json!([{}])] {
            assert_eq!(Explained::read(answer, Duration::ZERO).unwrap_err().code(), Code::Server);
        }
    }
}
