//! One trial: a scan of the rows of some keys, at one effective_io_concurrency.

use super::candidate::Candidate;
use super::session::Session;
use crate::io::server::option_of;
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::failure::server_error;
use serde_json::Value;
use std::time::Duration;

/// Rows more than expected, as a factor: beyond, the statistics do not hold, and a trial would read who knows
/// what.
const MOST_ROWS: u64 = 3;

/// What one trial took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Trial {
    /// Pages of the table that were not in shared_buffers.
    pub(super) pages: u64,
    /// Pages of the table that were.
    pub(super) hits: u64,
    /// Pages that were not, with those of the index.
    pub(super) reads: u64,
    /// Rows.
    pub(super) rows: u64,
    /// Microseconds for each page of the table that was not in shared_buffers; not a number without one.
    pub(super) page_us: f64,
    /// The same by track_io_timing: only the time of waiting.
    pub(super) waited_us: Option<f64>,
    /// Microseconds of the scan, with its index.
    pub(super) scan_us: f64,
}

/// What holds for all trials of a run.
pub(super) struct Reader<'a> {
    pub(super) session: &'a Session<'a>,
    pub(super) candidate: &'a Candidate,
    /// Whether the option of the tablespace masks the setting.
    masked: bool,
    /// Whether the role may have reads timed.
    timing: bool,
}

impl<'a> Reader<'a> {
    pub(super) async fn new(session: &'a Session<'a>, candidate: &'a Candidate) -> Result<Reader<'a>> {
        let client = session.client();
        let masked = option_of(client, &candidate.tablespace, "effective_io_concurrency").await?.is_some();
        // Since 15 a role may be granted what else only a superuser may set.
        let may = "SELECT pg_catalog.has_parameter_privilege('track_io_timing', 'SET')";
        let timing = client.query_one(may, &[]).await.map_err(server_error)?;
        Ok(Reader { session, candidate, masked, timing: timing.try_get(0).map_err(server_error)? })
    }

    /// Reads the rows of the keys, and rolls back.
    ///
    /// # Errors
    /// `server` with SQLSTATE 57014 where it took too long or was cancelled; where more is to be read than
    /// the keys should have; where the planner will not read that way.
    pub(super) async fn read(&self, concurrency: u32, keys: &[i64], limit: Duration) -> Result<Trial> {
        let trial = async {
            self.begin(concurrency, limit).await?;
            self.expect(keys, limit).await?;
            let plan = self.explain("ANALYZE, BUFFERS, ", &[keys], limit).await?;
            let trial = plan.first().and_then(of_plan).ok_or_else(|| self.other_way())?;
            // As many as the statement lets through: there would have been more.
            if trial.rows >= self.most_rows(keys) {
                return Err(self.skewed(keys, trial.rows));
            }
            Ok(trial)
        };
        let trial = trial.await;
        let back = self.session.rollback().await;
        let trial = trial?;
        back?;
        Ok(trial)
    }

    /// Reads the rows of each key alone, without read-ahead: one statement for each, sent together.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub(super) async fn read_each(&self, keys: &[i64], limit: Duration) -> Result<Vec<Trial>> {
        let trials = async {
            self.begin(0, limit).await?;
            self.expect(keys, limit).await?;
            let each: Vec<&[i64]> = keys.chunks(1).collect();
            let plans = self.explain("ANALYZE, BUFFERS, ", &each, limit).await?;
            plans.iter().map(|plan| of_plan(plan).ok_or_else(|| self.other_way())).collect()
        };
        let trials: Result<Vec<Trial>> = trials.await;
        let back = self.session.rollback().await;
        let trials = trials?;
        back?;
        Ok(trials)
    }

    /// Begins a transaction with the setting. An option of the tablespace would mask it: it is set in the
    /// transaction, which is rolled back, so that nobody else sees it.
    async fn begin(&self, concurrency: u32, limit: Duration) -> Result<()> {
        let set = if self.masked {
            let tablespace = quote_ident(&self.candidate.tablespace);
            format!("ALTER TABLESPACE {tablespace} SET (effective_io_concurrency = {concurrency})")
        } else {
            format!("SET LOCAL effective_io_concurrency = {concurrency}")
        };
        let timeout = limit.as_millis().max(100);
        let client = self.session.client();
        client
            .batch_execute(&format!(
                "BEGIN; SET LOCAL statement_timeout = {timeout}; SET LOCAL lock_timeout = 1000"
            ))
            .await
            .map_err(server_error)?;
        client.batch_execute(&set).await.map_err(|e| {
            let error = server_error(e);
            let hint = if self.masked {
                "The option effective_io_concurrency of the tablespace masks the setting: \
                 its owner can measure."
            } else {
                "The setting has to be one that the role may change."
            };
            Error::new(Code::Server, error.fact()).hint(hint)
        })?;
        let timing = if self.timing { "; SET LOCAL track_io_timing = on" } else { "" };
        client
            .batch_execute(&format!(
                "SET TRANSACTION READ ONLY; SET LOCAL enable_seqscan = off; \
                 SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; \
                 SET LOCAL enable_bitmapscan = on; SET LOCAL max_parallel_workers_per_gather = 0; \
                 SET LOCAL jit = off; SET LOCAL row_security = off{timing}"
            ))
            .await
            .map_err(server_error)
    }

    /// Refuses keys that the server expects far more rows of than they should have.
    async fn expect(&self, keys: &[i64], limit: Duration) -> Result<()> {
        let plan = self.explain("", &[keys], limit).await?;
        let node = plan.first().and_then(|plan| find(plan, "Bitmap Heap Scan"));
        let rows = number(node.ok_or_else(|| self.other_way())?, "Plan Rows");
        if rows >= self.most_rows(keys) {
            return Err(self.skewed(keys, rows));
        }
        Ok(())
    }

    fn most_rows(&self, keys: &[i64]) -> u64 {
        keys.len() as u64 * self.candidate.rows_per_key * MOST_ROWS + 100
    }

    /// EXPLAIN of a scan for each set of keys.
    async fn explain(&self, options: &str, sets: &[&[i64]], limit: Duration) -> Result<Vec<Value>> {
        let statements: Vec<String> = sets
            .iter()
            .map(|keys| {
                let list: Vec<String> = keys.iter().map(i64::to_string).collect();
                // A scan that needs no column of its rows would pass over pages that the visibility map knows
                // (until 17). ONLY: tables that inherit from it have other statistics, and may be foreign.
                format!(
                    "EXPLAIN ({options}FORMAT JSON) SELECT pg_catalog.count(s.place) FROM \
                     (SELECT t.ctid AS place FROM ONLY {} t \
                       WHERE t.{} OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.{}[]) LIMIT {}) s",
                    self.candidate.table,
                    quote_ident(&self.candidate.column),
                    list.join(","),
                    self.candidate.kind,
                    self.most_rows(keys)
                )
            })
            .collect();
        let texts = self.session.texts(&statements.join("; "), limit).await?;
        let read = |text: &String| {
            serde_json::from_str(text)
                .map_err(|e| Error::new(Code::Internal, format!("EXPLAIN answered in another form: {e}")))
        };
        texts.iter().map(read).collect()
    }

    fn other_way(&self) -> Error {
        let fact = format!("cannot tell: the planner reads {} in another way", self.candidate.table);
        Error::new(Code::Server, fact).hint("Another table can be named with --table.")
    }

    fn skewed(&self, keys: &[i64], rows: u64) -> Error {
        let Candidate { table, column, .. } = self.candidate;
        let fact =
            format!("cannot tell: {} values of {column} in {table} have {rows} rows or more", keys.len());
        Error::new(Code::Server, fact)
            .hint("Its statistics say otherwise: ANALYZE it, or name another table with --table.")
    }
}

/// What a plan says that was run.
fn of_plan(plan: &Value) -> Option<Trial> {
    let node = find(plan, "Bitmap Heap Scan")?;
    let index = find(node, "Bitmap Index Scan").unwrap_or(&Value::Null);
    let own = |name: &str| number(node, name).saturating_sub(number(index, name));
    let ms_of = |node: &Value, name: &str| node.get(name).and_then(Value::as_f64);
    let ms = |name: &str| Some(ms_of(node, name)? - ms_of(index, name).unwrap_or(0.0));
    let pages = own("Shared Read Blocks");
    #[allow(clippy::cast_precision_loss)] // pages
    let each = |ms: f64| if pages > 0 { ms * 1e3 / pages as f64 } else { f64::NAN };
    // Since 17 those of local buffers are apart. None: it is not known, for a read always takes some time.
    let waited = ms("Shared I/O Read Time").or_else(|| ms("I/O Read Time"));
    Some(Trial {
        pages,
        hits: own("Shared Hit Blocks"),
        reads: number(node, "Shared Read Blocks"),
        rows: number(node, "Actual Rows"),
        page_us: each(ms("Actual Total Time")?),
        waited_us: waited.map(each).filter(|us| us.is_finite() && *us > 0.0),
        scan_us: ms_of(node, "Actual Total Time")? * 1e3,
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counters; rows are a float since 18
fn number(node: &Value, name: &str) -> u64 {
    node.get(name).and_then(Value::as_f64).unwrap_or(0.0).max(0.0) as u64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_the_heap_took() {
        let plan: Value = serde_json::from_str(
            r#"[{"Plan": {"Node Type": "Aggregate", "Plans": [{"Node Type": "Limit", "Plans": [
                 {"Node Type": "Bitmap Heap Scan", "Actual Total Time": 130.0, "Actual Rows": 120.00,
                  "Shared Read Blocks": 150, "Shared Hit Blocks": 30,
                  "Shared I/O Read Time": 125.0, "Plans": [
                  {"Node Type": "Bitmap Index Scan", "Actual Total Time": 30.0, "Shared Read Blocks": 50,
                   "Shared Hit Blocks": 10, "Shared I/O Read Time": 28.0}]}]}]}}]"#,
        )
        .unwrap();
        let trial = of_plan(&plan).unwrap();
        assert_eq!((trial.pages, trial.hits, trial.reads, trial.rows), (100, 20, 150, 120));
        assert!((trial.page_us - 1_000.0).abs() < 1e-6 && (trial.waited_us.unwrap() - 970.0).abs() < 1e-6);
        assert!(find(&plan, "Seq Scan").is_none() && of_plan(&Value::Null).is_none());
    }
}
