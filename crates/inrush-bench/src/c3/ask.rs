//! Questions about the time of the rows.

use crate::c3::Query;
use crate::c3::psql::Session;
use inrush_core::{Code, Error, Result};
use serde_json::Value;
use std::time::Instant;

/// Asks a table for the ends of its time and for a sixtieth in the middle; nothing if it is empty.
pub fn ask(session: &mut Session, table: &str, at_seconds: f64) -> Result<Option<Query>> {
    let began = Instant::now();
    let ends = session.ask(&format!("SELECT min(crt_time), max(crt_time) FROM {table}"))?;
    let ends_ms = began.elapsed().as_secs_f64() * 1e3;
    let Some((first, last)) = ends.split_once('|').filter(|(first, _)| !first.is_empty()) else {
        return Ok(None);
    };
    let span = format!("('{last}'::timestamp - '{first}'::timestamp)");
    let text = session.ask(&format!(
        "SELECT '{first}'::timestamp + {span} * 0.5, '{first}'::timestamp + {span} * (0.5 + 1 / 60.0), \
         extract(epoch FROM {span}), (SELECT (sum(pg_relation_size(relid)) / current_setting('block_size')::int)::bigint \
         FROM pg_partition_tree('{table}') WHERE isleaf)"
    ))?;
    let fields: Vec<&str> = text.split('|').collect();
    let [from, to, span, pages] = fields[..] else { return Ok(None) };
    let count = format!(
        "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT count(*) FROM {table} \
         WHERE crt_time >= '{from}' AND crt_time < '{to}'"
    );
    let mut plan = |settings: &str| -> Result<Value> {
        // In one transaction: the settings end with it.
        let text = session.ask(&format!("BEGIN; {settings}; {count}; COMMIT"))?;
        serde_json::from_str::<Value>(&text)
            .map_err(|e| Error::new(Code::Internal, format!("a plan is not JSON: {e}: {text}")))
    };
    let brin = plan("SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0")?;
    let seq = plan("SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexscan = off")?;
    let millis = |plan: &Value| plan[0]["Execution Time"].as_f64().unwrap_or(0.0);
    Ok(Some(Query {
        at_seconds,
        pages: pages.parse().unwrap_or(0),
        ends_ms,
        span_seconds: span.parse().unwrap_or(0.0),
        rows: found(&brin[0]["Plan"]),
        brin_ms: millis(&brin),
        brin_pages: heap_blocks(&brin[0]["Plan"]),
        seq_ms: millis(&seq),
    }))
}

/// Rows that scans of the heap gave.
fn found(plan: &Value) -> u64 {
    if plan["Node Type"].as_str().is_some_and(|kind| kind == "Bitmap Heap Scan" || kind == "Seq Scan") {
        let number = |name: &str| plan[name].as_f64().unwrap_or(0.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rows
        return (number("Actual Rows") * number("Actual Loops")) as u64;
    }
    children(plan).map(found).sum()
}

/// Heap pages that bitmap scans looked at; a sequential scan in their place looked at more than is told.
fn heap_blocks(plan: &Value) -> u64 {
    let number = |name: &str| plan[name].as_u64().unwrap_or(0);
    let own = number("Exact Heap Blocks") + number("Lossy Heap Blocks");
    own + children(plan).map(heap_blocks).sum::<u64>()
}

fn children(plan: &Value) -> impl Iterator<Item = &Value> {
    plan["Plans"].as_array().into_iter().flatten()
}
