//! The session that runs the query: every statement can be interrupted, and every run is a transaction that
//! is rolled back.

use super::plan::Explained;
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::error::ErrorPosition;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Row};

/// How often a statement that runs is asked whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How long a lock may be waited for: others queue behind whoever waits.
const LOCK_TIMEOUT_MS: u64 = 5000;

/// How long the server keeps a transaction of a client that has gone quiet.
const IDLE_TIMEOUT_MS: u64 = 60_000;

/// What a statement that looks something up may take at least, however short the query's runs are to be.
const LEAST_TIMEOUT: Duration = Duration::from_secs(10);

/// What a run of the query sets, for its transaction only.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Setup {
    /// Names and values for SET LOCAL. Values are numbers and on/off.
    pub(super) settings: Vec<(&'static str, String)>,
    /// ALTER TABLESPACE statements: the options of a tablespace win over a session's settings. Rolled back
    /// with the rest; until then other sessions see what was there before.
    pub(super) statements: Vec<String>,
}

impl Setup {
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Setup {
        self.settings.push((name, value.to_owned()));
        self
    }

    /// The statements of a transaction up to the query. It is read-only before the query is parsed, and
    /// cannot become anything else behind that (variable.c, check_transaction_read_only).
    fn begin(&self, timeout: Duration) -> String {
        let mut sql =
            String::from(if self.statements.is_empty() { "BEGIN READ ONLY" } else { "BEGIN READ WRITE" });
        sql += &format!(
            "; SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; \
             SET LOCAL idle_in_transaction_session_timeout = {IDLE_TIMEOUT_MS}",
            timeout.as_millis().max(1)
        );
        for statement in &self.statements {
            sql += "; ";
            sql += statement;
        }
        for (name, value) in &self.settings {
            sql += &format!("; SET LOCAL {name} = {value}");
        }
        sql + "; SET TRANSACTION READ ONLY"
    }
}

/// Why a statement was not parsed.
#[derive(Debug)]
pub(super) struct ParseFailure {
    pub(super) error: Error,
    /// The character of the statement that the server points to, from 1.
    pub(super) position: Option<u32>,
}

/// A session.
pub(super) struct Session {
    connected: Connected,
    stop: Arc<AtomicBool>,
    /// What is left to do is done whatever the user wants.
    calm: AtomicBool,
}

impl Session {
    pub(super) async fn open(conninfo: &ConnInfo, stop: &Arc<AtomicBool>) -> Result<Session> {
        let connected = connect(conninfo, "inrush explain").await?;
        let session = Session { connected, stop: Arc::clone(stop), calm: AtomicBool::new(false) };
        // Parsing takes locks, too, and so does asking for sizes.
        session.run(&format!("SET lock_timeout = {LOCK_TIMEOUT_MS}")).await?;
        Ok(session)
    }

    /// Bounds what each statement may take that is no run of the query: parsing, planning, looking up.
    pub(super) async fn bound(&self, timeout: Duration) -> Result<()> {
        let ms = timeout.max(LEAST_TIMEOUT).as_millis();
        self.run(&format!("SET statement_timeout = {ms}")).await
    }

    /// From now on nothing is interrupted: what has been made is removed.
    pub(super) fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    pub(super) fn client(&self) -> &Client {
        &self.connected.client
    }

    /// The process of the server behind this session.
    pub(super) fn backend(&self) -> i32 {
        self.connected.backend_pid
    }

    /// Waits for a statement, and cancels it when the user has had enough.
    ///
    /// # Errors
    /// `interrupted`; else what the server says.
    pub(super) async fn wait<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        tokio::pin!(statement);
        loop {
            if self.stop.load(Ordering::Relaxed) && !self.calm.load(Ordering::Relaxed) {
                // Whether the request arrives or not: nothing more is asked of this session but to roll back.
                let _ = self.connected.cancel.cancel().await;
                let _ = tokio::time::timeout(Duration::from_secs(10), &mut statement).await;
                return Err(interrupted());
            }
            if let Ok(ended) = tokio::time::timeout(LOOK, &mut statement).await {
                return ended.map_err(|error| waited(server_error(error)));
            }
        }
    }

    /// Statements without a result.
    pub(super) async fn run(&self, sql: &str) -> Result<()> {
        self.wait(self.client().batch_execute(sql)).await
    }

    pub(super) async fn rows(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>> {
        self.wait(self.client().query_typed(sql, parameters)).await
    }

    pub(super) async fn row(&self, sql: &str, parameters: &[(&(dyn ToSql + Sync), Type)]) -> Result<Row> {
        self.rows(sql, parameters)
            .await?
            .pop()
            .ok_or_else(|| Error::new(Code::Server, "the server gave no row where there always is one"))
    }

    /// What the server makes of one statement, without running it: nothing else is parsed than one.
    ///
    /// # Errors
    /// What the server says, and where.
    pub(super) async fn parse(&self, sql: &str) -> Result<tokio_postgres::Statement, ParseFailure> {
        let mut position = None;
        let parsed = self
            .wait(async {
                self.client().prepare(sql).await.inspect_err(|error| {
                    position = match error.as_db_error().and_then(|db| db.position()) {
                        Some(ErrorPosition::Original(at)) => Some(*at),
                        _ => None,
                    };
                })
            })
            .await;
        parsed.map_err(|error| ParseFailure { error, position })
    }

    /// EXPLAIN of the query with these options, in a read-only transaction of its own that is rolled back.
    /// The query is sent as a part of a single statement (extended query protocol), so a second one is
    /// refused by the server.
    pub(super) async fn explain(
        &self,
        setup: &Setup,
        options: &str,
        query: &str,
        timeout: Duration,
    ) -> Result<Explained> {
        let explained = self.explain_inside(setup, options, query, timeout).await;
        // Also after an interrupt: the statement has been cancelled, and the session is free.
        let back = self.client().batch_execute("ROLLBACK").await.map_err(server_error);
        let explained = explained?;
        back?;
        Ok(explained)
    }

    async fn explain_inside(
        &self,
        setup: &Setup,
        options: &str,
        query: &str,
        timeout: Duration,
    ) -> Result<Explained> {
        self.run(&setup.begin(timeout)).await?;
        // A line end behind the query: it may end with a comment.
        let sql = format!("EXPLAIN ({options}, FORMAT JSON) {query}\n");
        let began = Instant::now();
        let row = self.row(&sql, &[]).await?;
        let wall = began.elapsed();
        Explained::read(get::<Value>(&row, 0)?, wall)
    }
}

/// A column of a row.
pub(super) fn get<'r, T: FromSql<'r>>(row: &'r Row, i: usize) -> Result<T> {
    row.try_get(i).map_err(server_error)
}

/// Says of a lock that was waited for in vain what is known of it.
fn waited(error: Error) -> Error {
    match error.sqlstate_text() {
        Some("55P03") => error.about("another session holds a lock").hint(
            "Try again when it has let go: pg_blocking_pids() and pg_locks name it. No longer is waited, since \
             others would queue behind.",
        ),
        _ => error,
    }
}

pub(super) fn interrupted() -> Error {
    Error::new(Code::Interrupted, "interrupted: nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_read_only_before_the_query() {
        let plain = Setup::default().with("jit", "off").begin(Duration::from_secs(60));
        assert!(plain.starts_with("BEGIN READ ONLY; SET LOCAL statement_timeout = 60000;"), "{plain}");
        assert!(plain.ends_with("SET LOCAL jit = off; SET TRANSACTION READ ONLY"), "{plain}");
        let altered = Setup { statements: vec!["ALTER TABLESPACE x RESET (a)".into()], ..Setup::default() };
        let sql = altered.begin(Duration::from_secs(1));
        assert!(
            sql.starts_with("BEGIN READ WRITE;") && sql.ends_with("; SET TRANSACTION READ ONLY"),
            "{sql}"
        );
    }

    /// An option of a tablespace that is altered in the transaction counts in it, and is not there behind it:
    /// shown by random_page_cost, which is kept beside effective_io_concurrency (spccache.c) and can be seen
    /// in costs.
    async fn an_altered_tablespace_counts_for_the_run_only(version: u32) {
        use inrush_testkit::{Postgres, ServerOptions};
        let server = Postgres::start(&ServerOptions { version: version.into(), ..ServerOptions::default() });
        server.psql(
            "CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 10000) i; CREATE INDEX ON t (a); \
             ANALYZE t;
             ALTER TABLESPACE pg_default SET (random_page_cost = 3)",
        );
        let info = inrush_sink::conninfo::resolve(Some(&server.url()), &|_| None).expect("settings");
        let info = info.expect("a server");
        let session = Session::open(&info, &Arc::default()).await.expect("a session");
        let off = Setup::default().with("enable_seqscan", "off").with("enable_bitmapscan", "off");
        let cost = async |setup: &Setup| {
            let plan = session.explain(setup, "VERBOSE", "SELECT * FROM t WHERE a = 1", LOOK * 100).await;
            plan.expect("a plan").top.number("Total Cost").expect("a cost")
        };
        let before = cost(&off).await;
        // A session's setting is masked; the altered option is not.
        assert!((cost(&off.clone().with("random_page_cost", "30")).await - before).abs() < 1e-6);
        let alter = |value: &str| format!("ALTER TABLESPACE pg_default SET (random_page_cost = {value})");
        let altered = Setup { statements: vec![alter("30")], ..off.clone() };
        assert!(cost(&altered).await > before * 5.0);
        assert!((cost(&off).await - before).abs() < 1e-6);
        // The transaction that altered it is as read-only as any other.
        let write = session.explain(&altered, "ANALYZE", "INSERT INTO t VALUES (0)", LOOK * 100).await;
        assert_eq!(write.expect_err("read-only").sqlstate_text(), Some("25006"));
        let kept = server.psql("SELECT spcoptions FROM pg_tablespace WHERE spcname = 'pg_default'");
        assert_eq!(kept, "{random_page_cost=3}");
    }

    #[tokio::test]
    async fn an_altered_tablespace_counts_for_the_run_only_on_15() {
        inrush_testkit::require_server!(15);
        an_altered_tablespace_counts_for_the_run_only(15).await;
    }

    #[tokio::test]
    async fn an_altered_tablespace_counts_for_the_run_only_on_18() {
        inrush_testkit::require_server!(18);
        an_altered_tablespace_counts_for_the_run_only(18).await;
    }
}
