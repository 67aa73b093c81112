//! What a storage does, asked through the server alone: for clients on another machine and for managed services.
//!
//! A trial reads pages that nobody has read lately: rows of keys picked at random, by a bitmap heap scan, at one
//! effective_io_concurrency. What it took for each page that was not in shared_buffers is that of the heap part of the
//! plan alone; the index is read page by page whatever the setting. Trials follow each other in an order that tells a
//! drift from a difference (ABBA). Whether pages came from the storage or from the page cache of a machine that cannot be
//! seen is told by what they take; where that cannot be told, nothing is.

use super::measured::{Depth, Engine, Measured, Mechanism, PAGE, Replay, Stop, StopReason, VERSION, median};
use super::model::ReadAhead;
use super::report::Server;
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::failure::server_error;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

/// Values of effective_io_concurrency that are tried, by how much they tell: what is left out when time is up is last.
const TRIED: [u32; 9] = [0, 16, 1, 64, 4, 256, 32, 8, 128];

/// Trials of each value.
const PASSES: usize = 3;

/// A page that takes less, one at a time, came from a cache: local flash answers in 50 us or more, and a page that is
/// in the page cache costs a system call and a copy.
const CACHED_US: f64 = 35.0;

/// A trial reads this share of a table's pages: thirty of them leave most of it untouched.
const SHARE: f64 = 0.004;

/// Pages of a trial: fewer say nothing, and more are not needed.
const PAGES: std::ops::RangeInclusive<u64> = 100..=1_500;

/// Reads of others, as a share of ours, that make the figures worthless.
const FOREIGN: f64 = 0.5;

/// What a probe through the server may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The table to read from, as SQL names it; `None`: the largest that is fit for it.
    pub table: Option<String>,
    /// Seconds in all.
    pub seconds: f64,
    /// Bytes to be read in all.
    pub read_bytes: u64,
}

/// A table that can be read from at random, by an index on an integer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    oid: u32,
    /// Schema and name, quoted.
    table: String,
    column: String,
    kind: String,
    tablespace: String,
    pages: u64,
    /// Values that cut the keys into parts of about as many rows.
    bounds: Vec<i64>,
    /// Rows of a key, at least one.
    rows_per_key: u64,
}

/// Measures by reading from a table. The name of its tablespace comes with the figures.
///
/// # Errors
/// `server` where no table is fit, or nothing can be told: why, and what would help.
pub async fn run(
    client: &mut Client,
    server: &Server,
    plan: &Plan,
    tell: &mut dyn FnMut(f64, &str),
) -> Result<(String, Measured)> {
    let began = Instant::now();
    let at = now(client).await?;
    let candidate = candidate(client, plan).await?;
    let pages = trial_pages(&candidate, plan)?;
    let text = format!("reading {pages} rows at random from {} at each setting", candidate.table);
    let reads_before = all_reads(client).await?;
    let mut trials: BTreeMap<u32, Vec<Trial>> = BTreeMap::new();
    let mut stopped = None;
    let mut read = 0;
    let mut seed = u64::from(candidate.oid) ^ 0x9e37_79b9_7f4a_7c15 ^ nanoseconds();
    'passes: for pass in 0..PASSES {
        let order: Vec<u32> =
            if pass % 2 == 0 { TRIED.to_vec() } else { TRIED.iter().rev().copied().collect() };
        for concurrency in order {
            let left = plan.seconds - began.elapsed().as_secs_f64();
            if let Some(stop) = over(plan, left, read) {
                stopped = Some(stop);
                break 'passes;
            }
            let done = trials.values().map(Vec::len).sum::<usize>();
            tell(done as f64 / (TRIED.len() * PASSES) as f64, &text);
            let keys = keys(&candidate, pages, &mut seed);
            let trial = trial(client, &candidate, concurrency, &keys, left).await?;
            read += trial.pages * PAGE;
            trials.entry(concurrency).or_default().push(trial);
        }
    }
    let ours: u64 = trials.values().flatten().map(|trial| trial.reads).sum();
    let foreign = all_reads(client).await?.saturating_sub(reads_before).saturating_sub(ours);
    let measured = measured(server, &candidate, &trials, at, began.elapsed(), stopped);
    judge(&measured, &trials, ours, foreign)?;
    Ok((candidate.tablespace, measured))
}

/// What one trial took.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Trial {
    /// Pages of the table that were not in shared_buffers.
    pages: u64,
    /// The same with those of the index.
    reads: u64,
    /// Microseconds for each page of the table.
    page_us: f64,
}

/// Whether there is nothing left to spend.
fn over(plan: &Plan, left: f64, read: u64) -> Option<Stop> {
    if left <= 0.2 {
        let text = format!("{:.0} s were over", plan.seconds);
        return Some(Stop { reason: StopReason::Time, text });
    }
    (read >= plan.read_bytes).then(|| Stop {
        reason: StopReason::Bytes,
        text: format!("{:.0} MB had been read", plan.read_bytes as f64 / 1e6),
    })
}

/// Pages of a trial: enough to tell, and few of those there are.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // pages
fn trial_pages(candidate: &Candidate, plan: &Plan) -> Result<u64> {
    let bytes = plan.read_bytes / PAGE / (TRIED.len() * PASSES) as u64;
    let pages = ((candidate.pages as f64 * SHARE) as u64).min(*PAGES.end()).min(bytes);
    if pages >= *PAGES.start() {
        return Ok(pages);
    }
    Err(Error::new(
        Code::Server,
        format!(
            "cannot tell: {} has {} pages, too few for trials on disjoint parts",
            candidate.table, candidate.pages
        ),
    )
    .hint(format!(
        "Through the server a table of at least {} pages is needed.",
        (*PAGES.start() as f64 / SHARE) as u64
    )))
}

/// Refuses figures that say nothing.
#[allow(clippy::cast_precision_loss)] // counters
fn judge(measured: &Measured, trials: &BTreeMap<u32, Vec<Trial>>, ours: u64, foreign: u64) -> Result<()> {
    if ours == 0 || trials.values().flatten().all(|trial| trial.pages < *PAGES.start() / 4) {
        return Err(Error::new(Code::Server, "cannot tell: nearly all pages were in shared_buffers")
            .hint("A larger table can be named with --table."));
    }
    if foreign as f64 > FOREIGN * ours as f64 {
        return Err(Error::new(
            Code::Server,
            format!("cannot tell: other sessions read {foreign} pages meanwhile, and the trials {ours}"),
        )
        .hint("Give the command again when the server is quieter."));
    }
    let alone = measured.latency_us().unwrap_or(0.0);
    if alone < CACHED_US {
        return Err(Error::new(
            Code::Server,
            format!("cannot tell: a page took {alone:.0} us one at a time, so it came from a cache of the server's machine"),
        )
        .hint("A table that has not been read for long can be named with --table."));
    }
    Ok(())
}

/// The figures in the form that a probe of a directory has: a replay for each value, and a curve of depths from them.
fn measured(
    server: &Server,
    candidate: &Candidate,
    trials: &BTreeMap<u32, Vec<Trial>>,
    at: String,
    took: Duration,
    stopped: Option<Stop>,
) -> Measured {
    #[allow(clippy::cast_precision_loss)] // pages
    let density_of = |trials: &[Trial]| {
        let pages: Vec<f64> = trials.iter().map(|trial| trial.pages as f64).collect();
        median(&pages).unwrap_or(0.0) / candidate.pages.max(1) as f64
    };
    let mut random = Vec::new();
    let mut replays = Vec::new();
    let all: Vec<Trial> = trials.values().flatten().copied().collect();
    let density = density_of(&all);
    for (concurrency, trials) in trials {
        let passes: Vec<f64> = trials.iter().map(|trial| trial.page_us).filter(|us| us.is_finite()).collect();
        let Some(page_us) = median(&passes) else { continue };
        let ahead =
            ReadAhead::of(server.version_num, server.io_method.as_deref(), server.io_workers, *concurrency);
        // io_uring is told from others by what was measured with it.
        let mechanism = match (ahead.mechanism, server.io_method.as_deref()) {
            (Mechanism::Workers { .. }, Some("io_uring")) => Mechanism::Workers { workers: 32 },
            (mechanism, _) => mechanism,
        };
        // One at a time, as far as pages lie apart: without read-ahead. With 1 there are up to two in flight.
        if *concurrency != 1 {
            random.push(Depth {
                depth: (*concurrency).max(1),
                iops: 1e6 / page_us,
                p50_us: 0.0,
                p99_us: 0.0,
                passes: passes.iter().map(|us| 1e6 / us).collect(),
            });
        }
        replays.push(Replay { mechanism, density, ahead: *concurrency, page_us, passes });
    }
    let mut measured = Measured {
        version: VERSION,
        at,
        engine: Engine::Server,
        read_bytes: all.iter().map(|trial| trial.reads * PAGE).sum(),
        seconds: took.as_secs_f64(),
        random,
        replays,
        stopped,
        ..Measured::default()
    };
    measured.storage.directory = format!("table {}", candidate.table);
    measured
}

/// One scan of the rows of some keys, at one effective_io_concurrency.
async fn trial(
    client: &mut Client,
    candidate: &Candidate,
    concurrency: u32,
    keys: &[i64],
    left: f64,
) -> Result<Trial> {
    let tx = client.transaction().await.map_err(server_error)?;
    let ended = unmask(&tx, &candidate.tablespace, concurrency).await;
    let plan = match ended {
        Ok(()) => scan(&tx, candidate, keys, left).await,
        Err(error) => Err(error),
    };
    // The option of the tablespace, if one was set for us alone, is as before; the session is as it was in any case.
    tx.rollback().await.map_err(server_error)?;
    let plan = plan?;
    let node = find(&plan, "Bitmap Heap Scan").ok_or_else(|| {
        Error::new(Code::Server, format!("cannot tell: the planner reads {} in another way", candidate.table))
            .hint("Another table can be named with --table.")
    })?;
    let index = find(node, "Bitmap Index Scan").unwrap_or(&Value::Null);
    let number = |node: &Value, name: &str| node.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let pages = (number(node, "Shared Read Blocks") - number(index, "Shared Read Blocks")).max(0.0);
    let ms = number(node, "Actual Total Time") - number(index, "Actual Total Time");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counters
    Ok(Trial {
        pages: pages as u64,
        reads: number(node, "Shared Read Blocks") as u64,
        page_us: if pages > 0.0 { ms * 1e3 / pages } else { f64::NAN },
    })
}

/// Sets effective_io_concurrency for the scans of a transaction. An option of the tablespace would mask it: it is set in
/// the transaction, which is rolled back, so that nobody else sees it.
async fn unmask(tx: &Transaction<'_>, tablespace: &str, concurrency: u32) -> Result<()> {
    let masked = super::server::option_of(tx, tablespace, "effective_io_concurrency").await?.is_some();
    let sql = if masked {
        format!("ALTER TABLESPACE {} SET (effective_io_concurrency = {concurrency})", quote_ident(tablespace))
    } else {
        format!("SET LOCAL effective_io_concurrency = {concurrency}")
    };
    tx.batch_execute(&sql).await.map_err(|e| {
        let error = server_error(e);
        let hint = if masked {
            "The option effective_io_concurrency of the tablespace masks the setting: its owner can measure."
        } else {
            "The setting has to be one that the role may change."
        };
        Error::new(Code::Server, error.fact()).hint(hint)
    })
}

async fn scan(tx: &Transaction<'_>, candidate: &Candidate, keys: &[i64], left: f64) -> Result<Value> {
    let timeout = (left * 1e3).max(200.0);
    tx.batch_execute(&format!(
        "SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = {timeout:.0}; SET LOCAL lock_timeout = 1000; \
         SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; \
         SET LOCAL enable_bitmapscan = on; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off"
    ))
    .await
    .map_err(server_error)?;
    let list: Vec<String> = keys.iter().map(i64::to_string).collect();
    // A scan that needs no column of its rows would pass over pages that the visibility map knows (until 17).
    let sql = format!(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT pg_catalog.count(t.ctid) FROM {} t \
          WHERE t.{} OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.{}[])",
        candidate.table,
        quote_ident(&candidate.column),
        list.join(","),
        candidate.kind
    );
    let row = tx.query_one(&sql, &[]).await.map_err(server_error)?;
    let plan: Value = row
        .try_get(0)
        .map_err(|e| Error::new(Code::Internal, format!("EXPLAIN answered in another form: {e}")))?;
    Ok(plan)
}

/// The first node of a type in a plan.
fn find<'a>(plan: &'a Value, kind: &str) -> Option<&'a Value> {
    match plan {
        Value::Array(all) => all.iter().find_map(|one| find(one, kind)),
        Value::Object(node) if node.get("Node Type").and_then(Value::as_str) == Some(kind) => Some(plan),
        Value::Object(node) => {
            let below = node.get("Plan").and_then(|plan| find(plan, kind));
            below.or_else(|| node.get("Plans").and_then(|plans| find(plans, kind)))
        }
        _ => None,
    }
}

/// Keys picked at random, so many that about `pages` pages are read.
fn keys(candidate: &Candidate, pages: u64, seed: &mut u64) -> Vec<i64> {
    let parts = candidate.bounds.len().saturating_sub(1).max(1);
    let wanted = pages.div_ceil(candidate.rows_per_key).max(1);
    (0..wanted)
        .filter_map(|_| {
            #[allow(clippy::cast_possible_truncation)] // below the number of parts
            let part = (random(seed) % parts as u64) as usize;
            let (from, to) = (*candidate.bounds.get(part)?, *candidate.bounds.get(part + 1)?);
            let width = i128::from(to) - i128::from(from);
            let at = if width > 0 { i128::from(random(seed)) % width } else { 0 };
            i64::try_from(i128::from(from) + at).ok()
        })
        .collect()
}

/// splitmix64 (Steele, Lea, Flood 2014).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn nanoseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| u64::from(since.subsec_nanos()))
}

/// The table to read from: the one that is named, or the largest of those the role may read that have a btree index on
/// an integer with many values, and statistics of it.
async fn candidate(client: &Client, plan: &Plan) -> Result<Candidate> {
    let rows = client
        .query_typed(
            "SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, a.attname::pg_catalog.text, \
                    ty.typname::pg_catalog.text, \
                    coalesce(s.spcname, (SELECT ds.spcname FROM pg_catalog.pg_database d \
                        JOIN pg_catalog.pg_tablespace ds ON ds.oid OPERATOR(pg_catalog.=) d.dattablespace \
                        WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))::pg_catalog.text, \
                    c.relpages, \
                    CASE WHEN ty.oid OPERATOR(pg_catalog.=) ANY (ARRAY[21, 23, 20]::pg_catalog.oid[]) \
                         THEN st.histogram_bounds::pg_catalog.text::pg_catalog.int8[] END, \
                    st.n_distinct, c.reltuples \
               FROM pg_catalog.pg_class c \
               JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
               JOIN pg_catalog.pg_index i ON i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisvalid \
                    AND i.indpred IS NULL AND i.indexprs IS NULL \
               JOIN pg_catalog.pg_class ic ON ic.oid OPERATOR(pg_catalog.=) i.indexrelid \
               JOIN pg_catalog.pg_am am ON am.oid OPERATOR(pg_catalog.=) ic.relam \
                    AND am.amname OPERATOR(pg_catalog.=) 'btree' \
               JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid \
                    AND a.attnum OPERATOR(pg_catalog.=) i.indkey[0] \
               JOIN pg_catalog.pg_type ty ON ty.oid OPERATOR(pg_catalog.=) a.atttypid \
               JOIN pg_catalog.pg_stats st ON st.schemaname OPERATOR(pg_catalog.=) n.nspname \
                    AND st.tablename OPERATOR(pg_catalog.=) c.relname \
                    AND st.attname OPERATOR(pg_catalog.=) a.attname AND NOT st.inherited \
               LEFT JOIN pg_catalog.pg_tablespace s ON s.oid OPERATOR(pg_catalog.=) c.reltablespace \
              WHERE c.relkind IN ('r', 'm') AND c.relpersistence IN ('p', 'u') \
                AND ty.oid OPERATOR(pg_catalog.=) ANY (ARRAY[21, 23, 20]::pg_catalog.oid[]) \
                AND ($1::pg_catalog.text IS NULL \
                     OR c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)::pg_catalog.oid) \
                AND pg_catalog.has_table_privilege(c.oid, 'SELECT') \
                AND st.histogram_bounds IS NOT NULL \
              ORDER BY c.relpages DESC, i.indisunique DESC, a.attnum LIMIT 20",
            &[(&plan.table, Type::TEXT)],
        )
        .await
        .map_err(server_error)?;
    let mut fit = rows.iter().filter_map(|row| {
        let (distinct, tuples): (f32, f32) = (row.get(8), row.get(9));
        let tuples = f64::from(tuples).max(1.0);
        let values = if distinct < 0.0 { -f64::from(distinct) * tuples } else { f64::from(distinct) };
        let rows_per_key = (tuples / values.max(1.0)).max(1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small
        let candidate = (rows_per_key <= 20.0).then(|| Candidate {
            oid: row.get(0),
            table: format!("{}.{}", quote_ident(row.get(1)), quote_ident(row.get(2))),
            column: row.get(3),
            kind: row.get(4),
            tablespace: row.get(5),
            pages: u64::from(row.get::<_, i32>(6).unsigned_abs()),
            bounds: row.get::<_, Option<Vec<i64>>>(7).unwrap_or_default(),
            rows_per_key: rows_per_key as u64,
        });
        candidate.filter(|candidate| candidate.bounds.len() >= 2)
    });
    fit.next().ok_or_else(|| {
        let fact = match &plan.table {
            Some(table) => format!("cannot tell: {table:?} is not fit to be read at random"),
            None => "cannot tell: no table is fit to be read at random".to_owned(),
        };
        Error::new(Code::Server, fact).hint(
            "Through the server it takes a table with a btree index on an integer column with many values, that was \
             analyzed, and that the role may read.",
        )
    })
}

/// Pages that all sessions have had read into shared_buffers so far.
async fn all_reads(client: &Client) -> Result<u64> {
    // Own figures come in with the end of a transaction, at most once a second until 17.
    let sql =
        "SELECT coalesce(pg_catalog.sum(d.blks_read), 0)::pg_catalog.int8 FROM pg_catalog.pg_stat_database d";
    let row = client.query_one(sql, &[]).await.map_err(server_error)?;
    Ok(row.get::<_, i64>(0).unsigned_abs())
}

async fn now(client: &Client) -> Result<String> {
    let sql = "SELECT pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.now()), \
                                         'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    Ok(client.query_one(sql, &[]).await.map_err(server_error)?.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(pages: u64) -> Candidate {
        Candidate {
            oid: 16_384,
            table: "public.t".into(),
            column: "id".into(),
            kind: "int4".into(),
            tablespace: "pg_default".into(),
            pages,
            bounds: vec![1, 1_000, 5_000, 5_000],
            rows_per_key: 1,
        }
    }

    fn plan() -> Plan {
        Plan { table: None, seconds: 60.0, read_bytes: 2_000_000_000 }
    }

    #[test]
    fn trials_read_little_of_a_table_and_enough_to_tell() {
        assert_eq!(trial_pages(&candidate(100_000), &plan()).unwrap(), 400);
        assert_eq!(trial_pages(&candidate(10_000_000), &plan()).unwrap(), 1_500);
        assert!(trial_pages(&candidate(10_000), &plan()).unwrap_err().to_string().contains("cannot tell"));
        let little = Plan { read_bytes: 1 << 20, ..plan() };
        assert!(trial_pages(&candidate(10_000_000), &little).is_err());
    }

    #[test]
    fn keys_are_between_the_bounds() {
        let mut seed = 7;
        let keys = keys(&candidate(100_000), 400, &mut seed);
        assert_eq!(keys.len(), 400);
        assert!(keys.iter().all(|key| (1..=5_000).contains(key)));
        assert!(keys.iter().any(|key| *key < 1_000) && keys.iter().any(|key| *key > 1_000));
        let narrow = Candidate { bounds: vec![i64::MIN, i64::MAX], ..candidate(100_000) };
        assert_eq!(super::keys(&narrow, 10, &mut seed).len(), 10);
    }

    fn trials(page_us: &[(u32, f64)]) -> BTreeMap<u32, Vec<Trial>> {
        let one = |us| Trial { pages: 400, reads: 500, page_us: us };
        page_us.iter().map(|(n, us)| (*n, vec![one(*us), one(us * 1.02), one(us * 0.99)])).collect()
    }

    fn of(trials: &BTreeMap<u32, Vec<Trial>>) -> Measured {
        let server = Server { version_num: 150_000, ..Server::default() };
        measured(&server, &candidate(100_000), trials, String::new(), Duration::from_secs(9), None)
    }

    #[test]
    fn trials_make_a_curve() {
        let trials = trials(&[(0, 1_000.0), (1, 1_100.0), (4, 260.0), (16, 65.0), (64, 20.0), (256, 20.0)]);
        let measured = of(&trials);
        assert_eq!(measured.random.iter().map(|one| one.depth).collect::<Vec<_>>(), [1, 4, 16, 64, 256]);
        assert_eq!(measured.replays.len(), 6);
        assert!((measured.replays[0].density - 0.004).abs() < 1e-9);
        assert!(judge(&measured, &trials, 5_000, 100).is_ok());
        let verdict = super::super::Verdict::of(&measured);
        assert_eq!((verdict.class, verdict.knee), (super::super::Class::LatencyBound, Some(64)));
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let cached = trials(&[(0, 8.0), (16, 7.0)]);
        let told = judge(&of(&cached), &cached, 5_000, 0).unwrap_err().to_string();
        assert!(told.contains("came from a cache"), "{told}");
        let slow = trials(&[(0, 1_000.0), (16, 65.0)]);
        let told = judge(&of(&slow), &slow, 5_000, 4_000).unwrap_err().to_string();
        assert!(told.contains("other sessions read 4000 pages"), "{told}");
        assert!(judge(&of(&slow), &slow, 0, 0).is_err());
    }

    #[test]
    fn nodes_are_found_in_plans() {
        let plan: Value = serde_json::from_str(
            r#"[{"Plan": {"Node Type": "Aggregate", "Plans": [{"Node Type": "Bitmap Heap Scan",
                 "Plans": [{"Node Type": "Bitmap Index Scan"}]}]}}]"#,
        )
        .unwrap();
        let heap = find(&plan, "Bitmap Heap Scan").unwrap();
        assert!(find(heap, "Bitmap Index Scan").is_some() && find(heap, "Seq Scan").is_none());
    }
}
