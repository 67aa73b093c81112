//! One scan, and what the server's plan tells of it.

use crate::c5::data::{DENSE, SPARSE, moment};
use crate::c5::server::Server;
use crate::c5::storage::Storage;
use crate::c5::{Method, Query, Rung, Scan, Setup, Tables, Turn};
use crate::machine;
use inrush_core::{Code, Error, Result};
use serde_json::Value;
use std::path::PathBuf;

/// Share of the pages that may be in the page cache before a turn: files have other readers, and the kernel
/// keeps a page that somebody looks at.
const RESIDENT: f64 = 0.01;

/// Where turns take place.
#[derive(Debug)]
pub struct Stage<'s> {
    pub rung: &'s Rung,
    pub tables: Tables,
    pub server: &'s Server,
    pub storage: &'s Storage,
    pub files: Vec<PathBuf>,
}

/// What a turn is of.
#[derive(Debug, Clone)]
pub struct Wanted<'w> {
    pub setup: &'w Setup,
    pub scan: &'w Scan,
    pub concurrency: Option<u32>,
    /// Whether the query is run once more, with everything in memory.
    pub warm: bool,
}

impl Stage<'_> {
    /// One turn. What the server makes of the query is in it; an error is of the server or this machine.
    pub fn turn(&self, wanted: &Wanted<'_>) -> Result<Turn> {
        self.server.restart(wanted.setup, self.storage)?;
        let resident = self.server.forget(&self.files)?;
        let script = self.script(wanted);
        let load_average = machine::load_average();
        let (reads, cpu) = (self.storage.reads(), self.server.cpu());
        let said = self.server.sql(&script)?;
        let (reads_after, cpu_after) = (self.storage.reads(), self.server.cpu());
        let mut turn = Turn {
            rung: self.rung.name.clone(),
            server: wanted.setup.name.clone(),
            scan: wanted.scan.name.clone(),
            resident,
            load_average,
            cpu_seconds: cpu.zip(cpu_after).map(|(before, after)| after - before),
            device_reads: reads.zip(reads_after).map(|(before, after)| after.0 - before.0),
            device_bytes: reads.zip(reads_after).map(|(before, after)| after.1 - before.1),
            ..read(&said)?
        };
        if resident > RESIDENT {
            turn.failure = Some(format!("{:.1} % of the pages were in memory before it", resident * 100.0));
        } else if !fits(wanted.scan.method, &turn) {
            let index = turn.index.as_deref().unwrap_or("no index");
            turn.failure = Some(format!("the server took another way: {}, {index}", turn.plan));
        }
        if wanted.warm && turn.failure.is_none() {
            turn.warm_seconds = Some(read(&self.server.sql(&script)?)?.seconds);
        }
        Ok(turn)
    }

    /// The statements of a turn: the plan, then effective_io_concurrency.
    fn script(&self, wanted: &Wanted<'_>) -> String {
        let off = |names: &[&str]| {
            names.iter().map(|name| format!("SET enable_{name} = off;\n")).collect::<String>()
        };
        let scan = wanted.scan;
        let ways = match scan.method {
            Method::Planner => String::new(),
            Method::Sequential => off(&["indexscan", "indexonlyscan", "bitmapscan"]),
            Method::Index => off(&["seqscan", "indexonlyscan", "bitmapscan"]),
            Method::Bitmap | Method::Brin => off(&["seqscan", "indexscan", "indexonlyscan"]),
        };
        let concurrency = wanted
            .concurrency
            .map(|value| format!("SET effective_io_concurrency = {value};\n"))
            .unwrap_or_default();
        let work_mem = scan.work_mem.as_deref().unwrap_or("256MB");
        let rung = &self.rung.name;
        // The planner would take the btree: without it, until the end of the transaction.
        let dropped = match (scan.method, scan.query) {
            (Method::Brin, _) => format!("DROP INDEX events_{rung}_btree;\n"),
            // A bitmap of the btree.
            (Method::Bitmap, Query::Events) => format!("DROP INDEX events_{rung}_brin;\n"),
            _ => String::new(),
        };
        let query = self.query(scan.query);
        format!(
            "SET work_mem = '{work_mem}';\n{concurrency}{ways}BEGIN;\n{dropped}\
             EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {query};\n\
             SHOW effective_io_concurrency;\nROLLBACK"
        )
    }

    fn query(&self, query: Query) -> String {
        let rung = &self.rung.name;
        match query {
            // Of all columns something, so that no index is enough.
            Query::Dense => format!("SELECT sum(id), count(pad) FROM tbx_{rung} WHERE c1 = {DENSE}"),
            Query::Sparse => format!("SELECT sum(id), count(pad) FROM tbx_{rung} WHERE c1 = {SPARSE}"),
            Query::Events => {
                let rows = self.tables.events;
                let (from, to) = (moment(rows / 2), moment(rows / 2 + rows / 100));
                format!("SELECT sum(v), count(pad) FROM events_{rung} WHERE at >= '{from}' AND at < '{to}'")
            }
            // TPC-H, 2.4.6, with the values of its validation.
            Query::Q6 => format!(
                "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem_{rung} \
                 WHERE l_shipdate >= date '1994-01-01' \
                 AND l_shipdate < date '1994-01-01' + interval '1' year \
                 AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24"
            ),
        }
    }
}

fn fits(method: Method, turn: &Turn) -> bool {
    let brin = turn.index.as_ref().is_some_and(|name| name.ends_with("_brin"));
    match method {
        Method::Planner => true,
        Method::Sequential => turn.plan == "Seq Scan",
        Method::Index => turn.plan == "Index Scan",
        Method::Bitmap => turn.plan == "Bitmap Heap Scan" && !brin,
        Method::Brin => turn.plan == "Bitmap Heap Scan" && brin,
    }
}

/// Of what the statements of a turn give.
fn read(said: &str) -> Result<Turn> {
    let wrong = |fact: &str| Error::new(Code::Internal, format!("a plan is not as expected: {fact}"));
    let mut values = serde_json::Deserializer::from_str(said).into_iter::<Value>();
    let plan = values.next().and_then(std::result::Result::ok).ok_or_else(|| wrong(said))?;
    let concurrency = values.next().and_then(std::result::Result::ok).and_then(|value| value.as_u64());
    let (top, plan) = (&plan[0]["Plan"], &plan[0]);
    let scan = scan_of(top).ok_or_else(|| wrong("there is no scan"))?;
    let number = |node: &Value, name: &str| node[name].as_u64();
    let index = scan["Plans"].get(0);
    let rows = scan["Actual Rows"].as_f64().unwrap_or(0.0) * scan["Actual Loops"].as_f64().unwrap_or(1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rows
    let rows = rows as u64;
    Ok(Turn {
        seconds: plan["Execution Time"].as_f64().ok_or_else(|| wrong("it has no time"))? / 1e3,
        concurrency: concurrency.and_then(|value| u32::try_from(value).ok()).ok_or_else(|| wrong(said))?,
        plan: scan["Node Type"].as_str().unwrap_or_default().to_owned(),
        index: scan["Index Name"]
            .as_str()
            .or_else(|| index.and_then(|node| node["Index Name"].as_str()))
            .map(str::to_owned),
        cost: top["Total Cost"].as_f64().unwrap_or(0.0),
        rows,
        exact_pages: number(scan, "Exact Heap Blocks"),
        lossy_pages: number(scan, "Lossy Heap Blocks"),
        rechecked_rows: number(scan, "Rows Removed by Index Recheck"),
        pages_read: number(top, "Shared Read Blocks").unwrap_or(0),
        index_pages: index.and_then(|node| number(node, "Shared Read Blocks")),
        ..Turn::default()
    })
}

/// The scan of the table.
fn scan_of(node: &Value) -> Option<&Value> {
    if node.get("Relation Name").is_some() {
        return Some(node);
    }
    node["Plans"].as_array()?.iter().find_map(scan_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read() {
        let said = r#"[{"Plan": {"Node Type": "Aggregate", "Total Cost": 9.5,
            "Shared Read Blocks": 30, "Plans": [
            {"Node Type": "Bitmap Heap Scan", "Relation Name": "tbx", "Actual Rows": 12.00, "Actual Loops": 1,
             "Exact Heap Blocks": 7, "Lossy Heap Blocks": 20, "Rows Removed by Index Recheck": 99,
             "Plans": [{"Node Type": "Bitmap Index Scan", "Index Name": "i", "Shared Read Blocks": 3}]}]},
            "Execution Time": 250.0}]
16"#;
        let turn = read(said).unwrap();
        assert_eq!(
            (turn.plan.as_str(), turn.concurrency, turn.seconds, turn.cost),
            ("Bitmap Heap Scan", 16, 0.25, 9.5)
        );
        assert_eq!((turn.rows, turn.pages_read, turn.index_pages), (12, 30, Some(3)));
        assert_eq!((turn.exact_pages, turn.lossy_pages, turn.rechecked_rows), (Some(7), Some(20), Some(99)));
        assert_eq!(turn.index.as_deref(), Some("i"));
        assert!(
            fits(Method::Bitmap, &turn) && !fits(Method::Brin, &turn) && !fits(Method::Sequential, &turn)
        );
        assert!(read("16").is_err() && read("[{}]\n1").is_err());
    }
}
